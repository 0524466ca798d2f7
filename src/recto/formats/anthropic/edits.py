"""Creates and edits messages of Anthropic's Messages API."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count, groupby
from typing import Literal, NamedTuple

from recto.formats.json_spans import Json, JsonSpan, apply_edits, elements_of, member_at, quoted, set_member, text_of
from recto.formats.message import (
    THINKING,
    content_blocks,
    fields_of,
    is_blank,
    object_in,
    stated_role,
    text_in,
    without_blocks,
)
from recto.formats.tool_calls import NewToolCall

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
    return result_messages([(call_id, text)])[0]


def call_messages(text: str, calls: Sequence[NewToolCall]) -> list[bytes]:
    """Creates an assistant message with these calls."""
    blocks: list[Json] = [{"type": "text", "text": text}] if text else []
    blocks += [{"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)} for call in calls]
    return [json.dumps({"role": "assistant", "content": blocks}, ensure_ascii=False).encode()]


def result_messages(results: Sequence[tuple[str, str]]) -> list[bytes]:
    """Creates one user message with all results."""
    blocks = [
        f'{{"type": "tool_result", "tool_use_id": {quoted(call_id)}, "content": {quoted(text)}}}'
        for call_id, text in results
    ]
    return [f'{{"role": "user", "content": [{", ".join(blocks)}]}}'.encode()]


def with_results(raw: bytes, texts: Mapping[str, str]) -> bytes:
    """Replaces the output of tool results, by call id."""
    text = text_of(raw)
    edits = [
        set_member(text, span.start, "content", quoted(texts[call]))
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
