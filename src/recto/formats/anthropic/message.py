"""Messages of Anthropic's Messages API: how they are parsed and edited, and what the provider refuses."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count, groupby
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from recto.formats.json_spans import apply_edits, elements_of, member_at, quoted, set_member, text_of
from recto.formats.message import (
    CACHE_MARKS,
    MAX_CACHE_MARKS,
    REPLY_ONLY,
    THINKING,
    Message,
    Part,
    as_json,
    content_blocks,
    content_defect,
    fields_of,
    image_part,
    is_blank,
    object_in,
    result_parts,
    stated_role,
    text_in,
    unknown_members,
    unknown_part,
    weight_in,
    without_blocks,
)
from recto.formats.tool_calls import NO_CALLS, NewToolResult, ToolCallIds, call_defect, repeated_ids, unanswered_calls

if TYPE_CHECKING:
    from recto.formats.json_spans import Json, JsonSpan
    from recto.formats.tool_calls import NewToolCall
    from recto.transcript.entries import Role

_OWN_BLOCKS: Final = ("tool_use", "tool_result", "redacted_thinking", "server_tool_use", "document")
_KNOWN = frozenset({"role", "content", "clear_at"}) | REPLY_ONLY | CACHE_MARKS


def read(raw: bytes) -> Message:
    """Parses a message."""
    fields = fields_of(raw)
    parts = [*content_parts(fields.get("content")), *unknown_members(fields, _KNOWN)]
    return Message(role=role_of(fields), parts=tuple(parts))


def role_of(fields: dict[str, Json]) -> Role:
    """Returns the role of a message; `tool` for a user message with a tool result in it."""
    role = stated_role(fields)
    content = fields.get("content")
    if role == "user" and isinstance(content, list):
        for block in content:
            if isinstance(block, dict) and block.get("type") == "tool_result":
                return "tool"
    return role


def is_own_message(fields: dict[str, Json]) -> bool:
    """Never: outside its content, a message has no members that other formats lack."""
    return False


def is_own_block(block: dict[str, Json]) -> bool:
    """Whether only Anthropic has such a block."""
    match block:
        case {"type": "thinking", "thinking": str()} | {"type": "image", "source": {}}:
            return True
        case _:
            return block.get("type") in _OWN_BLOCKS


def is_own_wrapper(fields: dict[str, Json]) -> bool:
    """Whether a message with `"type": "message"` has other members that only a response has."""
    return bool(REPLY_ONLY & (fields.keys() - {"id", "type"}))


def canonical_fields(fields: dict[str, Json]) -> dict[str, Json]:
    """Drops the members of a response that are not part of the message."""
    return {key: value for key, value in fields.items() if key not in REPLY_ONLY}


def content_parts(content: Json) -> Iterator[Part]:
    """Parses the content of a message: a string, a list of blocks, or null."""
    if isinstance(content, str):
        yield Part(kind="text", text=content)
    elif isinstance(content, list):
        for block in content:
            yield from _block_parts(block)
    elif content is not None:
        yield from _block_parts(content)


def _block_parts(block: Json) -> Iterator[Part]:
    if isinstance(block, str):
        yield Part(kind="text", text=block)
        return
    if not isinstance(block, dict):
        yield unknown_part(block)
        return
    match block:
        case {"type": "text", "text": str(text)}:
            yield Part(kind="text", text=text)
        case {"type": "thinking", "thinking": str(text)}:
            yield Part(kind="thinking", text=text, weight=weight_in(block.get("signature")))
        case {"type": "redacted_thinking"}:
            yield Part(kind="thinking", weight=weight_in(block.get("data")))
        case {"type": str(kind), "tool_use_id": call_id} if kind.endswith("tool_result"):
            failed = block.get("is_error") is True
            yield from result_parts(text_in(call_id), "", content_parts(block.get("content")), failed=failed)
        case {"type": str(kind), "name": str(name)} if kind.endswith("tool_use"):
            arguments = as_json(block.get("input")) if "input" in block else ""
            yield Part(kind="call", name=name, text=arguments, call_id=text_in(block.get("id")))
        case {"type": "image", "source": dict()}:
            yield _image(object_in(block["source"]))
        case {"type": "document", "source": dict()}:
            yield from _document(block, object_in(block["source"]))
        case {"type": "search_result"}:
            yield Part(kind="text", text=text_in(block.get("title")))
            yield from content_parts(block.get("content"))
        case {"type": "compaction"}:
            sealed = weight_in(block.get("encrypted_content")) + weight_in(block.get("signature"))
            yield Part(kind="text", text=text_in(block.get("content")), weight=sealed)
        case _:
            yield unknown_part(block)


def _image(source: dict[str, Json]) -> Part:
    match source:
        case {"type": "base64", "data": data}:
            return image_part(data)
        case {"type": "url", "url": url}:
            return image_part(url)
        case _:
            return Part(kind="image", text=text_in(source.get("file_id")))


def _document(block: dict[str, Json], source: dict[str, Json]) -> Iterator[Part]:
    title = text_in(block.get("title"))
    match source:
        case {"type": "text", "data": str(text)}:
            yield Part(kind="text", text=f"{title}\n{text}" if title else text)
        case {"type": "content", "content": content}:
            yield from content_parts(content)
        case _:
            label = title or text_in(source.get("url")) or text_in(source.get("file_id"))
            yield Part(kind="media", text=label, weight=weight_in(source.get("data")))


_BlockKind = Literal["result", "thinking", "blank", "other"]


def settle(messages: Iterable[bytes]) -> list[bytes]:
    """Drops blank text and thinking at the end of an assistant turn; puts results before other user content.

    Adjacent messages with one role are one turn.
    """
    not_blank = [message for raw in messages if (message := _without(_scan(raw), "blank")) is not None]
    without_thinking: list[_ScannedMessage] = []
    for role, turn in _by_role(not_blank):
        without_thinking += _without_last_thinking(turn) if role == "assistant" else turn
    settled: list[_ScannedMessage] = []
    for role, turn in _by_role(without_thinking):
        settled += _results_first(turn) if role == "user" else turn
    return [message.raw for message in settled]


def result_message(call_id: str, name: str, text: str, kind: str = "function_call") -> bytes:
    """Creates the result of a call."""
    return result_messages([NewToolResult(call_id, text)])[0]


def call_messages(text: str, calls: Sequence[NewToolCall]) -> list[bytes]:
    """Creates an assistant message with these calls."""
    blocks: list[Json] = [{"type": "text", "text": text}] if text else []
    blocks += [{"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)} for call in calls]
    return [json.dumps({"role": "assistant", "content": blocks}, ensure_ascii=False).encode()]


def result_messages(results: Sequence[NewToolResult]) -> list[bytes]:
    """Creates one user message with all results."""
    blocks = [
        f'{{"type": "tool_result", "tool_use_id": {quoted(result.call_id)}, "content": {quoted(result.text)}}}'
        for result in results
    ]
    return [f'{{"role": "user", "content": [{", ".join(blocks)}]}}'.encode()]


def with_results(raw: bytes, texts: Mapping[str, str]) -> bytes:
    """Replaces the output of tool results, by call id; a second result for a call, which is not sent, becomes empty."""
    text, left = text_of(raw), dict(texts)
    edits = [
        set_member(text, span.start, "content", quoted(left.pop(call, "")))
        for span in _block_spans(text)
        if (call := _answered_call(span.value)) is not None and call in texts
    ]
    return apply_edits(text, edits).encode()


def only_answers(raw: bytes, keep: Collection[str], *, rest: bool = True) -> bytes | None:
    """Keeps one result for each of these calls, and with `rest` all blocks that are no results."""
    missing = set(keep)

    def goes(block: Json) -> bool:
        call = _answered_call(block)
        if call is None:
            return not rest
        if call not in missing:
            return True
        missing.remove(call)
        return False

    return without_blocks(raw, goes)


def without_thinking(raw: bytes) -> bytes | None:
    """Removes thinking: its signature is valid only behind the messages that it was created for."""
    if b"thinking" not in raw:
        return raw
    return without_blocks(raw, lambda block: object_in(block).get("type") in THINKING)


def without_old_thinking(raw: bytes) -> bytes | None:
    """Removes thinking: Anthropic requires it back only inside the tool loop of the current turn."""
    return without_thinking(raw)


def text_block_type(raw: bytes, key: str) -> str:
    """Returns the type of a text block."""
    return "text"


class _ScannedMessage(NamedTuple):
    """A message that is parsed once: a prompt holds hundreds, and nearly all of them stay as they are."""

    raw: bytes
    role: str
    kinds: tuple[_BlockKind, ...]


def _scan(raw: bytes) -> _ScannedMessage:
    fields = fields_of(raw)
    return _ScannedMessage(raw, stated_role(fields), tuple(map(_kind, content_blocks(fields))))


def _kind(block: Json) -> _BlockKind:
    kind = object_in(block).get("type")
    if kind == "tool_result":
        return "result"
    if kind in THINKING:
        return "thinking"
    return "blank" if is_blank(block) else "other"


def _by_role(messages: Sequence[_ScannedMessage]) -> list[tuple[str, list[_ScannedMessage]]]:
    return [(role, list(turn)) for role, turn in groupby(messages, key=lambda message: message.role)]


def _without(message: _ScannedMessage, *kinds: _BlockKind) -> _ScannedMessage | None:
    """Removes blocks of these kinds; returns `None` if none remains."""
    if all(kind in kinds for kind in message.kinds):
        return None
    if not any(kind in kinds for kind in message.kinds):
        return message
    raw = without_blocks(message.raw, lambda block: _kind(block) in kinds)
    return None if raw is None else _scan(raw)


def _without_last_thinking(turn: list[_ScannedMessage]) -> list[_ScannedMessage]:
    remaining = list(turn)
    while remaining and remaining[-1].kinds[-1] == "thinking":
        last = remaining.pop()
        others = [place for place, kind in enumerate(last.kinds) if kind != "thinking"]
        raw = _first_blocks(last.raw, others[-1] + 1) if others else None
        if raw is not None:
            remaining.append(_scan(raw))
    return remaining


def _first_blocks(raw: bytes, many: int) -> bytes | None:
    places = count()
    return without_blocks(raw, lambda _: next(places) >= many)


def _results_first(turn: list[_ScannedMessage]) -> list[_ScannedMessage]:
    order = [kind == "result" for message in turn for kind in message.kinds]
    if order == sorted(order, reverse=True):
        return turn
    results = [_without(message, "thinking", "blank", "other") for message in turn]
    others = [_without(message, "result") for message in turn]
    return [message for message in (*results, *others) if message is not None]


def _block_spans(text: str) -> list[JsonSpan]:
    content = member_at(text, 0, "content")
    return [] if content is None else elements_of(text, content.value)


def _answered_call(block: Json) -> str | None:
    fields = object_in(block)
    return text_in(fields.get("tool_use_id")) if fields.get("type") == "tool_result" else None


class _RoleTurn(NamedTuple):
    """Adjacent messages with one role, which Anthropic reads as one message."""

    place: int
    role: str
    blocks: list[dict[str, Json]]
    ids: ToolCallIds


def tool_call_ids(fields: Mapping[str, Json]) -> ToolCallIds:
    """Returns the ids of the calls that a message makes or answers."""
    blocks = content_blocks(fields)
    return ToolCallIds(
        tuple(text_in(block.get("id")) for block in blocks if block.get("type") == "tool_use"),
        tuple(text_in(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"),
    )


def problems(messages: Sequence[dict[str, Json]]) -> Iterator[str]:
    """Yields every reason for which the provider would reject these messages."""
    turns = list(_turns(messages))
    if turns[0].role != "user":
        yield "message 0: the first message must be from the user"
    for place, fields in enumerate(messages):
        if not (blocks := content_blocks(fields)) or any(map(is_blank, blocks)):
            yield f"message {place}: it has no content, or text that says nothing"
    marks = sum(_count_marks(fields) for fields in messages)
    if marks > MAX_CACHE_MARKS:
        yield f"{marks} cache marks, at most {MAX_CACHE_MARKS} are allowed"
    nothing = _RoleTurn(len(messages), "user", [], NO_CALLS)
    for before, turn, after in zip([nothing, *turns], turns, [*turns[1:], nothing], strict=False):
        if turn.role == "assistant":
            yield from _assistant_problems(turn, after)
        else:
            yield from _user_problems(turn, before)


def defect(fields: Mapping[str, Json]) -> str:
    """Returns why the provider rejects a message in any context; empty if it might accept it."""
    if wrong := content_defect(fields):
        return wrong
    if fields.get("content") is None:
        return "it has no 'content'"
    return call_defect(tool_call_ids(fields), text_in(fields.get("role")), ("user",))


def leads_on(fields: Mapping[str, Json]) -> bool:
    """Never: thinking is a block of the message that it led to."""
    return False


def _assistant_problems(turn: _RoleTurn, after: _RoleTurn) -> Iterator[str]:
    yield from repeated_ids(turn.ids.calls, turn.place)
    answers = after.ids.answers if after.role == "user" else ()
    yield from unanswered_calls({call: turn.place for call in turn.ids.calls if call not in answers})
    if turn.ids.answers:
        yield f"message {turn.place}: an assistant cannot give results"
    if turn.blocks and turn.blocks[-1].get("type") in THINKING:
        yield f"message {turn.place}: the assistant's turn ends with thinking"


def _user_problems(turn: _RoleTurn, before: _RoleTurn) -> Iterator[str]:
    for place, call in enumerate(turn.ids.answers):
        if call in turn.ids.answers[:place]:
            yield f"message {turn.place}: call {call!r} has a result already"
        elif call not in before.ids.calls:
            yield f"message {turn.place}: the result for {call!r} does not follow its call"
    if turn.ids.calls:
        yield f"message {turn.place}: only an assistant can call tools"
    kinds = [block.get("type") == "tool_result" for block in turn.blocks]
    if kinds != sorted(kinds, reverse=True):
        yield f"message {turn.place}: results have to come before everything else the user says"


def _turns(messages: Sequence[dict[str, Json]]) -> Iterator[_RoleTurn]:
    place = 0
    for role, group in groupby(messages, key=stated_role):
        together = list(group)
        blocks = [block for fields in together for block in content_blocks(fields)]
        ids = [tool_call_ids(fields) for fields in together]
        calls = tuple(call for of_message in ids for call in of_message.calls)
        answers = tuple(call for of_message in ids for call in of_message.answers)
        yield _RoleTurn(place, role, blocks, ToolCallIds(calls, answers))
        place += len(together)


def _count_marks(holder: Mapping[str, Json]) -> int:
    here = sum(holder.get(key) is not None for key in CACHE_MARKS)
    return here + sum(_count_marks(block) for block in content_blocks(holder))
