"""Messages of OpenAI's Responses API: how they are parsed and edited, and what the provider refuses."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from recto.errors import MalformedMessage
from recto.formats.json_spans import apply_edits, elements_of, member_at, quoted, set_member, text_of
from recto.formats.message import (
    CACHE_MARKS,
    REPLY_ONLY,
    Message,
    Part,
    as_json,
    content_defect,
    fields_of,
    image_part,
    result_parts,
    stated_role,
    text_in,
    unknown_members,
    unknown_part,
    weight_in,
)
from recto.formats.openai_chat.message import has_chat_members
from recto.formats.tool_calls import NO_CALLS, ToolCallIds, call_defect, unanswered_calls

if TYPE_CHECKING:
    from recto.formats.json_spans import Json, Member
    from recto.formats.tool_calls import NewToolCall, NewToolResult
    from recto.transcript.entries import Role

_PLAIN_ITEMS = frozenset(
    {"reasoning", "compaction", "compaction_trigger", "item_reference", "program", "additional_tools"}
) | frozenset({"configuration_update", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"})
_OWN_PARTS = ("input_text", "output_text", "input_image", "input_file")
_KNOWN = frozenset({"type", "role", "content", "id", "status", "phase", "name"}) | CACHE_MARKS
_CALL_KNOWN = frozenset({"type", "id", "call_id", "status", "name", "namespace"}) | CACHE_MARKS


def is_item(kind: Json) -> bool:
    """Whether a `type` is an item type that only this format has."""
    return isinstance(kind, str) and (kind in _PLAIN_ITEMS or kind.endswith(("_call", "_output")))


def read(raw: bytes) -> Message:
    """Parses an item."""
    fields = fields_of(raw)
    role = role_of(fields)
    kind = fields.get("type", "message")
    if kind == "message":
        parts = [*content_parts(fields.get("content")), *unknown_members(fields, _KNOWN)]
        return Message(role=role, parts=tuple(parts), name=text_in(fields.get("name")))
    return Message(role=role, parts=tuple(_item_parts(str(kind), fields)))


def role_of(fields: Mapping[str, Json]) -> Role:
    """Returns the role of an item: its own one, `tool` for outputs of calls, else `assistant`."""
    kind = fields.get("type")
    if kind is None or kind == "message":
        return stated_role(fields)
    if not isinstance(kind, str):
        raise MalformedMessage("its 'type' is not a word")
    if kind.endswith("_output"):
        return "tool"
    if kind == "mcp_approval_response":
        return "user"
    return stated_role(fields) if isinstance(fields.get("role"), str) else "assistant"


def is_own_message(fields: dict[str, Json]) -> bool:
    """Whether only Responses has such an item: one of its types, or a Chat role together with a `type`."""
    kind = fields.get("type")
    return is_item(kind) or (kind is not None and has_chat_members(fields))


def is_own_block(block: dict[str, Json]) -> bool:
    """Whether only Responses has such a content part."""
    return block.get("type") in _OWN_PARTS


def is_own_wrapper(fields: dict[str, Json]) -> bool:
    """Whether a message with `"type": "message"` is an item and not an Anthropic response."""
    return not REPLY_ONLY & (fields.keys() - {"id", "type"})


def canonical_fields(fields: dict[str, Json]) -> dict[str, Json]:
    """Drops the status, and the id unless it is the only link to a call or the only content."""
    kind = fields.get("type", "message")
    dropped = {"status"}
    if kind == "message":
        dropped |= {"type", "id"}
    elif "call_id" in fields or not str(kind).endswith(("_output", "_reference")):
        dropped |= {"id"}
    return {key: value for key, value in fields.items() if key not in dropped}


def content_parts(content: Json) -> Iterator[Part]:
    """Parses the content of a message or the output of a call: a string, a list of parts, or null."""
    if isinstance(content, str):
        yield Part(kind="text", text=content)
    elif isinstance(content, list):
        for item in content:
            yield _content_part(item)
    elif content is not None:
        yield _content_part(content)


def _content_part(item: Json) -> Part:
    if isinstance(item, str):
        return Part(kind="text", text=item)
    if not isinstance(item, dict):
        return unknown_part(item)
    match item:
        case {"type": "input_image" | "computer_screenshot"}:
            source = item.get("image_url") or item.get("file_id")
            return image_part(source, item.get("detail"))
        case {"type": "input_file"}:
            label = text_in(item.get("filename")) or text_in(item.get("file_url")) or text_in(item.get("file_id"))
            return Part(kind="media", text=label, weight=weight_in(item.get("file_data")))
        case {"type": "input_audio", "input_audio": {"data": data}}:
            return Part(kind="media", weight=weight_in(data))
        case {"type": "refusal", "refusal": str(text)} | {"type": str(), "text": str(text)}:
            return Part(kind="text", text=text)
        case _:
            return unknown_part(item)


def _item_parts(kind: str, fields: dict[str, Json]) -> Iterator[Part]:
    if kind == "reasoning":
        yield _reasoning(fields)
    elif kind == "compaction":
        yield Part(kind="other", weight=weight_in(fields.get("encrypted_content")))
    elif kind == "image_generation_call":
        yield image_part(fields.get("result"))
    elif kind.endswith("_output"):
        call_id = text_in(fields.get("call_id")) or text_in(fields.get("id"))
        yield from result_parts(call_id, text_in(fields.get("name")), content_parts(fields.get("output")))
        yield from unknown_members(fields, _CALL_KNOWN | {"output"})
    elif kind in ("function_call", "custom_tool_call") or _expects_output(kind, fields):
        yield _call(kind, fields)
    else:
        # Run by the provider, or unknown: call and result are in one item, so it needs no partner.
        yield unknown_part({key: value for key, value in fields.items() if key not in ("id", "status", "role")})


def _expects_output(kind: str, fields: dict[str, Json]) -> bool:
    return kind.endswith("_call") and isinstance(fields.get("call_id"), str)


def _call(kind: str, fields: dict[str, Json]) -> Part:
    name = text_in(fields.get("name")) or kind.removesuffix("_call")
    arguments = fields.get("arguments", fields.get("input"))
    if arguments is None:
        arguments = {key: value for key, value in fields.items() if key not in _CALL_KNOWN} or ""
    text = arguments if isinstance(arguments, str) else as_json(arguments)
    return Part(kind="call", name=name, text=text, call_id=text_in(fields.get("call_id")))


def _reasoning(fields: dict[str, Json]) -> Part:
    texts = [part.text for key in ("summary", "content") for part in content_parts(fields.get(key))]
    return Part(kind="thinking", text="\n".join(texts), weight=weight_in(fields.get("encrypted_content")))


def tool_call_ids(fields: Mapping[str, Json]) -> ToolCallIds:
    """Returns the ids of the calls that an item makes or answers."""
    kind = text_in(fields.get("type"))
    call_id = fields.get("call_id")
    if kind.endswith("_call_output") or (kind == "tool_search_output" and isinstance(call_id, str)):
        return ToolCallIds((), (text_in(call_id) or text_in(fields.get("id")),))
    return ToolCallIds((call_id,), ()) if kind.endswith("_call") and isinstance(call_id, str) else NO_CALLS


def problems(messages: Sequence[dict[str, Json]]) -> Iterator[str]:
    """Yields every reason for which the provider would reject these items."""
    open_calls: dict[str, int] = {}
    answered: set[str] = set()
    for place, fields in enumerate(messages):
        calls, answers = tool_call_ids(fields)
        if role_of(fields) == "user":
            yield from unanswered_calls(open_calls)
            open_calls = {}
        for call in calls:
            if call in open_calls:
                yield f"message {place}: the id {call!r} names two open calls"
            open_calls[call] = place
            answered.discard(call)
        for call in answers:
            if call in answered:
                yield f"message {place}: call {call!r} has a result already"
            elif call not in open_calls:
                yield f"message {place}: the result for {call!r} does not follow its call"
            answered.add(call)
            open_calls.pop(call, None)
        if leads_on(fields) and (place + 1 == len(messages) or role_of(messages[place + 1]) != "assistant"):
            yield f"message {place}: the reasoning has no message or call after it"
    yield from unanswered_calls(open_calls)


def defect(fields: Mapping[str, Json]) -> str:
    """Returns why the provider rejects an item in any context; empty if it might accept it."""
    if wrong := content_defect(fields):
        return wrong
    needs_id = text_in(fields.get("type")).removesuffix("_output") in ("function_call", "custom_tool_call")
    if needs_id and not text_in(fields.get("call_id")):
        return "its 'call_id' is no text"
    return call_defect(tool_call_ids(fields), role_of(fields), ("tool",))


def leads_on(fields: Mapping[str, Json]) -> bool:
    """Whether the item is reasoning, which is valid only before the output that it led to."""
    return fields.get("type") == "reasoning"


def settle(messages: Iterable[bytes]) -> list[bytes]:
    """Drops reasoning items that no output of the assistant follows."""
    settled: list[bytes] = []
    reasoning: list[bytes] = []
    for raw in messages:
        fields = fields_of(raw)
        if fields.get("type") == "reasoning":
            reasoning.append(raw)
            continue
        role = role_of(fields)
        if role == "assistant":
            settled += reasoning
        if role != "tool":  # a result that came between reasoning and its call goes before both
            reasoning = []
        settled.append(raw)
    return settled


def result_message(call_id: str, name: str, text: str, kind: str = "function_call") -> bytes:
    """Creates the result of a call. `kind` is the type of the call's item: each has its own output type."""
    output = quoted(text)
    if kind == "shell_call":
        output = f'[{{"stdout": "", "stderr": {output}, "outcome": {{"type": "timeout"}}}}]'
    status = ', "status": "failed"' if kind == "apply_patch_call" else ""
    id_key = "id" if kind == "local_shell_call" else "call_id"
    return f'{{"type": "{kind}_output", "{id_key}": {quoted(call_id)}, "output": {output}{status}}}'.encode()


def call_messages(text: str, calls: Sequence[NewToolCall]) -> list[bytes]:
    """Creates a message of the assistant, if there is text, and one item for each call."""
    items: list[dict[str, str]] = [{"role": "assistant", "content": text}] if text else []
    items += [
        {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": json.dumps(call.arguments)}
        for call in calls
    ]
    return [json.dumps(item, ensure_ascii=False).encode() for item in items]


def result_messages(results: Sequence[NewToolResult]) -> list[bytes]:
    """Creates one item for each result."""
    return [result_message(result.call_id, "", result.text) for result in results]


def with_results(raw: bytes, texts: Mapping[str, str]) -> bytes:
    """Replaces the output of an output item. A screenshot stays as it is: a text cannot replace it."""
    fields = fields_of(raw)
    call = next(iter(tool_call_ids(fields).answers), None)
    if call is None or call not in texts:
        return raw
    text = text_of(raw)
    source = _output_source(text, member_at(text, 0, "output"), text_in(fields.get("type")), texts[call])
    return raw if source is None else apply_edits(text, [set_member(text, 0, "output", source)]).encode()


def only_answers(raw: bytes, keep: Collection[str], *, rest: bool = True) -> bytes | None:
    """Keeps an output of one of these calls, and with `rest` an item that is no output."""
    answers = tool_call_ids(fields_of(raw)).answers
    return raw if (rest and not answers) or (answers and answers[0] in keep) else None


def without_thinking(raw: bytes) -> bytes | None:
    """Returns the item as it is: reasoning is an item of its own and bound to nothing before it."""
    return raw


def without_old_thinking(raw: bytes) -> bytes | None:
    """Removes a reasoning item: only those behind the last user message are read."""
    return None if leads_on(fields_of(raw)) else raw


def text_block_type(raw: bytes, key: str) -> str:
    """Returns the type of a text part: output of the assistant, else input."""
    return "output_text" if key == "content" and stated_role(fields_of(raw)) == "assistant" else "input_text"


def _output_source(text: str, output: Member | None, kind: str, replacement: str) -> str | None:
    """Returns the JSON of the new output; `None` if a text cannot replace the old one."""
    if output is not None and isinstance(output.value.value, dict):
        return None  # a screenshot
    if kind != "shell_call_output":
        return quoted(replacement)
    outcome = '{"type": "exit", "exit_code": 0}'
    for span in elements_of(text, output.value) if output else []:
        member = member_at(text, span.start, "outcome") if isinstance(span.value, dict) else None
        if member is not None:
            outcome = text[member.value.start : member.value.end]
    return f'[{{"stdout": {quoted(replacement)}, "stderr": "", "outcome": {outcome}}}]'
