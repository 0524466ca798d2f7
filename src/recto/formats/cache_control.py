"""Marks with which a caller steers a provider's cache: where they are, how one is put on a message, how they leave.

A mark stands on a message, on a block of its content, or on a block of a result's content; never inside the arguments
of a call, where the same word is somebody's data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from recto.formats.json_spans import (
    Json,
    JsonSpan,
    Member,
    TextEdit,
    array_of,
    member_at,
    members,
    put_member,
    spliced,
    taken_out,
    text_of,
    value_at,
)
from recto.formats.message import ANTHROPIC, CACHE_MARKS, CHAT, RESPONSES, fields_of, stated_role
from recto.formats.validation import MAX_CACHE_MARKS, THINKING, is_blank

_HOLDS_BLOCKS: Final[Mapping[str, tuple[str, ...]]] = {
    CHAT: ("content",),
    RESPONSES: ("content", "output"),
    ANTHROPIC: ("content",),
}


def cache_marks(raw: bytes, wire: str) -> list[bytes]:
    """The exact source of every mark on a message, in order."""
    text = text_of(raw)
    return [
        text[member.value.start : member.value.end].encode()
        for held in _holders(text, _start(text), _HOLDS_BLOCKS[wire])
        for member in held
        if member.key in CACHE_MARKS and member.value.value is not None
    ]


def without_cache_marks(raw: bytes, wire: str) -> bytes:
    """The message with no mark on it."""
    if not any(key.encode() in raw for key in CACHE_MARKS):
        return raw
    text = text_of(raw)
    edits: list[TextEdit] = []
    for held in _holders(text, _start(text), _HOLDS_BLOCKS[wire]):
        spans = [(member.start, member.value.end) for member in held]
        edits += taken_out(spans, [member.key in CACHE_MARKS for member in held])
    return spliced(text, edits).encode()


def with_cache_mark(raw: bytes, wire: str, mark: bytes) -> bytes:
    """The message with a mark on its last block. A text becomes one block; what cannot carry a mark stays as it is."""
    text = text_of(raw)
    held = next(filter(None, (member_at(text, 0, key) for key in _HOLDS_BLOCKS[wire])), None)
    if held is None:
        return raw
    name = _name(wire, mark)
    if isinstance(held.value.value, str):
        if not held.value.value.strip():
            return raw
        kind = _text_kind(raw, wire, held.key)
        words = text[held.value.start : held.value.end]
        block = f'[{{"type": "{kind}", "text": {words}, "{name}": {mark.decode()}}}]'
        return spliced(text, [TextEdit(held.value.start, held.value.end, block)]).encode()
    for span in reversed(array_of(text, held.value)):
        if _can_carry(span.value):
            return spliced(text, [put_member(text, span.start, name, mark.decode())]).encode()
    return raw


def newest_marks(messages: Sequence[bytes], wire: str, at_most: int = MAX_CACHE_MARKS) -> list[bytes]:
    """The messages with marks on no more than so many of the newest that have any; an older client left the others."""
    kept: list[bytes] = []
    left = at_most
    for raw in reversed(messages):
        marks = len(cache_marks(raw, wire)) if any(key.encode() in raw for key in CACHE_MARKS) else 0
        left -= marks
        kept.append(raw if left >= 0 or not marks else without_cache_marks(raw, wire))
    return kept[::-1]


def _holders(text: str, at: JsonSpan, keys: tuple[str, ...]) -> Iterator[list[Member]]:
    """The members of every object that may carry a mark, from the outside inwards."""
    if not isinstance(at.value, dict):
        return
    held = list(members(text, at.start))
    yield held
    inner = (array_of(text, member.value) for member in held if member.key in keys)
    for span in chain.from_iterable(inner):
        yield from _holders(text, span, keys)


def _start(text: str) -> JsonSpan:
    return value_at(text, len(text) - len(text.lstrip(" \t\r\n")))


def _name(wire: str, mark: bytes) -> str:
    # gateways in front of Claude take Anthropic's marks in Chat messages too; they tell themselves apart
    return "cache_control" if wire == ANTHROPIC or "type" in fields_of(mark) else "prompt_cache_breakpoint"


def _text_kind(raw: bytes, wire: str, key: str) -> str:
    if wire != RESPONSES:
        return "text"
    return "output_text" if key == "content" and stated_role(fields_of(raw)) == "assistant" else "input_text"


def _can_carry(block: Json) -> bool:
    return isinstance(block, dict) and block.get("type") not in THINKING and not is_blank(block)
