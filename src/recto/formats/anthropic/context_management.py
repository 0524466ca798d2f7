"""Anthropic's `context_management`, and the tools that only its own servers know.

The edits of `context-management-2025-06-27` and the compaction of `compact-2026-01-12`, as documented under
https://platform.claude.com/docs/en/build-with-claude/context-editing and `…/compaction`. The memory tool is run by the
client: only its definition has to be written out for other servers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import Final

from recto.errors import InputError
from recto.formats.anthropic.message import with_results, without_thinking
from recto.formats.context_management import (
    COMPACTED,
    MEMBER,
    ContextEdit,
    ContextPlan,
    ContextReport,
    EditedPrompt,
)
from recto.formats.convert.types import ResponseIds
from recto.formats.json_spans import (
    Json,
    apply_edits,
    elements_of,
    member_at,
    set_member,
    text_of,
)
from recto.formats.message import THINKING, content_blocks, fields_of, json_of, object_in, text_in, without_blocks
from recto.formats.streaming import SseEvent, event_object, sse

BETAS: Final = frozenset({"context-management-2025-06-27", "compact-2026-01-12"})
"""Values of `anthropic-beta` that announce what is served here."""
_MEMORY_TOOL: Final = "memory_20250818"
_DEFAULT_TRIGGER: Final = 100_000
_DEFAULT_COMPACTION: Final = 150_000
_DEFAULT_KEEP: Final = 3
_CLEARED: Final = "[Old tool result content cleared{}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearToolUses:
    """`clear_tool_uses_20250919`: replaces the oldest tool results by a placeholder."""

    trigger_tokens: int = _DEFAULT_TRIGGER
    trigger_uses: int | None = None
    """Tool uses instead of tokens."""
    keep: int = _DEFAULT_KEEP
    clear_at_least: int = 0
    exclude: frozenset[str] = frozenset()
    inputs: bool | frozenset[str] = False
    """Whether the inputs of the calls are cleared, too: of all tools, or of those named."""

    def apply(self, prompt: EditedPrompt) -> tuple[EditedPrompt, dict[str, Json] | None]:
        """Clears all results but the newest ones, if the prompt is over the trigger."""
        uses = _tool_uses(prompt.messages)
        over = prompt.tokens > self.trigger_tokens if self.trigger_uses is None else len(uses) > self.trigger_uses
        old = list(uses)[: max(len(uses) - self.keep, 0)] if over else []
        names = {id: uses[id] for id in old if uses[id] not in self.exclude}
        if not names:
            return prompt, None
        texts = {id: _CLEARED.format(f"; it is {at}" if (at := prompt.pointer(id)) else "") for id in names}
        inputs = {id for id, name in names.items() if self.inputs is True or (self.inputs and name in self.inputs)}
        messages: list[bytes] = []
        tokens = 0
        for raw in prompt.messages:
            changed = _without_inputs(with_results(raw, texts), inputs)
            if changed != raw:
                tokens += prompt.cost(raw) - prompt.cost(changed)
            messages.append(changed)
        if tokens <= 0 or tokens < self.clear_at_least:
            return prompt, None
        about: dict[str, Json] = {
            "type": "clear_tool_uses_20250919",
            "cleared_tool_uses": len(names),
            "cleared_input_tokens": tokens,
        }
        return replace(prompt, messages=tuple(messages), tokens=prompt.tokens - tokens), about


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearThinkingEdit:
    """`clear_thinking_20251015`: removes the thinking of all but the newest turns that have some."""

    keep: int | None = 1
    """Turns; None: all."""

    def apply(self, prompt: EditedPrompt) -> tuple[EditedPrompt, dict[str, Json] | None]:
        """Removes the thinking of older turns. A turn ends where the user says something."""
        turns: list[list[int]] = [[]]
        for place, raw in enumerate(prompt.messages):
            fields = fields_of(raw)
            blocks = content_blocks(fields)
            if fields.get("role") != "assistant" and not any(block.get("type") == "tool_result" for block in blocks):
                turns.append([])
            elif b"thinking" in raw and any(block.get("type") in THINKING for block in blocks):
                turns[-1].append(place)
        thinking = [turn for turn in turns if turn]
        old = [] if self.keep is None else thinking[: max(len(thinking) - self.keep, 0)]
        messages: dict[int, bytes] = dict(enumerate(prompt.messages))
        tokens = 0
        for place in (place for turn in old for place in turn):
            changed = without_thinking(messages[place])
            if changed is None:  # nothing else is in it, and an empty message would be refused
                continue
            tokens += prompt.cost(messages[place]) - prompt.cost(changed)
            messages[place] = changed
        if not old:
            return prompt, None
        about: dict[str, Json] = {
            "type": "clear_thinking_20251015",
            "cleared_thinking_turns": len(old),
            "cleared_input_tokens": tokens,
        }
        return replace(prompt, messages=tuple(messages.values()), tokens=prompt.tokens - tokens), about


def read_plan(value: Json) -> ContextPlan:
    """Reads the member of a request. Raises `InputError`, which names an edit that is not known."""
    edits = object_in(value).get("edits") or []
    if (value is not None and not isinstance(value, dict)) or not isinstance(edits, list):
        raise InputError(f"'{MEMBER}' is an object with a list of 'edits'")
    found: list[ContextEdit] = []
    plan = ContextPlan()
    for edit in map(object_in, edits):
        match edit.get("type"):
            case "clear_tool_uses_20250919":
                found.append(_clear_tool_uses(edit))
            case "clear_thinking_20251015":
                found.append(ClearThinkingEdit(keep=_kept_turns(edit.get("keep"))))
            case "compact_20260112":
                trigger = _amount(edit, "trigger", ("input_tokens",))
                plan = ContextPlan(
                    compact_at=_DEFAULT_COMPACTION if trigger is None else trigger[1],
                    pauses=edit.get("pause_after_compaction") is True,
                    focus=text_in(edit.get("instructions")),
                )
            case unknown:
                raise InputError(f"'{MEMBER}' has an edit of a type that is not known: {json.dumps(unknown):.80}")
    return replace(plan, edits=tuple(found))


def local_tools(tools: bytes) -> bytes:
    """Returns the tools of a request as any server knows them: the memory tool is written out."""
    if _MEMORY_TOOL.encode() not in tools:
        return tools
    text = text_of(tools)
    listed = json.loads(text)
    if not isinstance(listed, list):
        return tools
    changed = [_written_out(tool) if object_in(tool).get("type") == _MEMORY_TOOL else tool for tool in listed]
    return tools if changed == listed else json_of(changed).encode()


def compaction_item(id: str, summary: str) -> dict[str, Json]:
    """Writes the block that represents a history."""
    return {"type": "compaction", "content": summary or "Compacted.", "encrypted_content": f"{COMPACTED}{id}"}


def after_compaction(messages: Sequence[bytes]) -> tuple[str, tuple[bytes, ...]]:
    """Returns the id of the last compaction made here, and the messages after its block; no id without one."""
    for place in range(len(messages) - 1, -1, -1):
        if b"compaction" not in messages[place] or COMPACTED.encode() not in messages[place]:
            continue
        ids = [_compacted_id(block) for block in content_blocks(fields_of(messages[place]))]
        end = max((index for index, id in enumerate(ids, 1) if id), default=0)
        if end:
            behind = chain(repeat(True, end), repeat(False))
            rest = without_blocks(messages[place], lambda _, gone=behind: next(gone))  # type: ignore[misc]
            return ids[end - 1], (*((rest,) if rest is not None else ()), *messages[place + 1 :])
    return "", ()


def with_report(raw: bytes, report: ContextReport) -> bytes:
    """Returns a response body that says what was done."""
    text = text_of(raw)
    content = member_at(text, 0, "content")
    if report.compaction is not None and content is not None and isinstance(content.value.value, list):
        blocks = [json_of(report.compaction), *(text[one.start : one.end] for one in elements_of(text, content.value))]
        text = apply_edits(text, [set_member(text, 0, "content", f"[{', '.join(blocks)}]")])
    return apply_edits(text, [set_member(text, 0, MEMBER, json_of(_applied(report)))]).encode()


class MessagesReportStream:
    """Adds what was done to the events of a stream: a block before the others, and a member of `message_delta`."""

    def __init__(self, report: ContextReport) -> None:
        self._report = report

    def feed(self, event: SseEvent) -> list[bytes]:
        """Converts an event."""
        data = event_object(event)
        match text_in(data.get("type")) if data else "":
            case "message_start" if self._report.compaction is not None:
                return [event.raw, *_block_events(self._report.compaction)]
            case "message_delta" if data is not None:
                return [sse(event.name, json_of({**data, MEMBER: _applied(self._report)}))]
            case "content_block_start" | "content_block_delta" | "content_block_stop" if (
                data is not None and self._report.compaction is not None and isinstance(index := data.get("index"), int)
            ):
                return [sse(event.name, json_of({**data, "index": index + 1}))]
        return [event.raw]

    def finish(self) -> list[bytes]:
        """Returns nothing: an incomplete stream stays incomplete."""
        return []


def report_stream(report: ContextReport) -> MessagesReportStream:
    """Creates the converter of one stream."""
    return MessagesReportStream(report)


def compaction_response(item: dict[str, Json], usage: Json, ids: ResponseIds, model: str) -> bytes:
    """Writes a response that is only a compaction block."""
    return json_of(_message([item], "compaction", usage, ids, model)).encode()


def compaction_stream(item: dict[str, Json], usage: Json, ids: ResponseIds, model: str) -> bytes:
    """Writes the same response as a stream."""
    ending: dict[str, Json] = {"stop_reason": "compaction", "stop_sequence": None}
    delta: dict[str, Json] = {"type": "message_delta", "delta": ending, "usage": usage, MEMBER: {"applied_edits": []}}
    start: dict[str, Json] = {"type": "message_start", "message": _message([], None, usage, ids, model)}
    return b"".join(
        (_named(start), *_block_events(item), _named(delta), _named({"type": "message_stop"})),
    )


def _message(content: list[Json], stop: Json, usage: Json, ids: ResponseIds, model: str) -> dict[str, Json]:
    head: dict[str, Json] = {"id": ids.reply, "type": "message", "role": "assistant", "model": model}
    return {
        **head,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage,
        MEMBER: {"applied_edits": []} if stop else None,
    }


def _named(data: dict[str, Json]) -> bytes:
    return sse(text_in(data["type"]), json_of(data))


def _block_events(block: dict[str, Json]) -> Iterator[bytes]:
    delta: dict[str, Json] = {**block, "type": "compaction_delta"}
    empty: dict[str, Json] = {**block, "content": None}
    yield _named({"type": "content_block_start", "index": 0, "content_block": empty})
    yield _named({"type": "content_block_delta", "index": 0, "delta": delta})
    yield _named({"type": "content_block_stop", "index": 0})


def _applied(report: ContextReport) -> dict[str, Json]:
    return {"applied_edits": list(report.edits)}


def _compacted_id(block: Mapping[str, Json]) -> str:
    content = text_in(block.get("encrypted_content")) if block.get("type") == "compaction" else ""
    return content.removeprefix(COMPACTED) if content.startswith(COMPACTED) else ""


def _tool_uses(messages: Sequence[bytes]) -> dict[str, str]:
    """The ids of the calls whose results are in a prompt, in order, with the names of their tools."""
    names: dict[str, str] = {}
    answered: set[str] = set()
    for raw in messages:
        if b"tool_use" not in raw and b"tool_result" not in raw:
            continue
        for block in content_blocks(fields_of(raw)):
            if block.get("type") == "tool_use":
                names[text_in(block.get("id"))] = text_in(block.get("name"))
            elif block.get("type") == "tool_result":
                answered.add(text_in(block.get("tool_use_id")))
    return {id: name for id, name in names.items() if id in answered}


def _without_inputs(raw: bytes, ids: set[str]) -> bytes:
    """Returns a message whose calls with these ids have empty inputs."""
    if not ids or b"tool_use" not in raw:
        return raw
    text = text_of(raw)
    content = member_at(text, 0, "content")
    if content is None or not isinstance(content.value.value, list):
        return raw
    edits = [
        set_member(text, span.start, "input", "{}")
        for span in elements_of(text, content.value)
        if (block := object_in(span.value)).get("type") == "tool_use" and block.get("id") in ids and block.get("input")
    ]
    return apply_edits(text, edits).encode()


def _clear_tool_uses(edit: Mapping[str, Json]) -> ClearToolUses:
    trigger = _amount(edit, "trigger", ("input_tokens", "tool_uses")) or ("input_tokens", _DEFAULT_TRIGGER)
    keep = _amount(edit, "keep", ("tool_uses",))
    least = _amount(edit, "clear_at_least", ("input_tokens",))
    inputs = edit.get("clear_tool_inputs") or False
    return ClearToolUses(
        trigger_tokens=trigger[1],
        trigger_uses=trigger[1] if trigger[0] == "tool_uses" else None,
        keep=_DEFAULT_KEEP if keep is None else keep[1],
        clear_at_least=0 if least is None else least[1],
        exclude=_names(edit, "exclude_tools"),
        inputs=inputs if isinstance(inputs, bool) else _names(edit, "clear_tool_inputs"),
    )


def _kept_turns(keep: Json) -> int | None:
    if keep == "all" or object_in(keep).get("type") == "all":
        return None
    amount = _amount({"keep": keep}, "keep", ("thinking_turns",))
    return 1 if amount is None else amount[1]


def _amount(edit: Mapping[str, Json], key: str, kinds: Sequence[str]) -> tuple[str, int] | None:
    """Reads a number with its unit. Raises `InputError`."""
    value = edit.get(key)
    if value is None:
        return None
    kind, number = object_in(value).get("type"), object_in(value).get("value")
    if not isinstance(kind, str) or kind not in kinds or not isinstance(number, int) or number < 0:
        raise InputError(f"'{key}' of an edit is a 'type' ({' or '.join(kinds)}) and a 'value'")
    return kind, number


def _names(edit: Mapping[str, Json], key: str) -> frozenset[str]:
    names = edit.get(key) or []
    if not isinstance(names, list):
        raise InputError(f"'{key}' of an edit is a list of the names of tools")
    return frozenset(map(text_in, names))


def _written_out(tool: Json) -> dict[str, Json]:
    """Returns the memory tool as an ordinary one. What steers only Anthropic's servers is dropped."""
    fields = object_in(tool)
    kept: dict[str, Json] = {key: value for key, value in fields.items() if key in ("cache_control", "strict")}
    return {"name": fields.get("name") or "memory", "description": _DESCRIPTION, "input_schema": _SCHEMA, **kept}


_DESCRIPTION: Final = (
    "Reads and writes files in the directory /memories, which lasts across conversations. Before other work, view "
    "/memories to see what earlier conversations wrote down; write down what a later conversation needs. "
    "view: shows a directory, or a file with line numbers (view_range: [first, last]). create: writes a file. "
    "str_replace: replaces old_str, which must occur once, by new_str. insert: inserts insert_text after the line "
    "insert_line (0: at the beginning). delete: deletes a file or directory. rename: moves old_path to new_path. "
    "Every path begins with /memories."
)


def _text(description: str) -> dict[str, Json]:
    return {"type": "string", "description": description}


_SCHEMA: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "enum": ["view", "create", "str_replace", "insert", "delete", "rename"]},
        "path": _text("Of all commands but rename: the file or directory, such as /memories/notes.md"),
        "view_range": {
            "type": "array",
            "items": {"type": "integer"},
            "minItems": 2,
            "maxItems": 2,
            "description": "Of view: the first and the last line",
        },
        "file_text": _text("Of create: the content of the file"),
        "old_str": _text("Of str_replace: the text to replace"),
        "new_str": _text("Of str_replace: the text to put in its place"),
        "insert_line": {"type": "integer", "description": "Of insert: the line after which the text is inserted"},
        "insert_text": _text("Of insert: the text to insert"),
        "old_path": _text("Of rename: the path now"),
        "new_path": _text("Of rename: the new path"),
    },
    "required": ["command"],
}
