"""Cache marks, with which a caller controls the provider's prompt cache: finds, adds and removes them.

A mark is a member of a message, of a content block, or of a block inside a tool result. The arguments of a call are not
searched: there, the same key is the caller's data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from recto.formats.json_spans import (
    Json,
    JsonSpan,
    Member,
    TextEdit,
    apply_edits,
    elements_of,
    member_at,
    members,
    removals,
    set_member,
    text_of,
    value_at,
)
from recto.formats.message import CACHE_MARKS, MAX_CACHE_MARKS, THINKING, fields_of, is_blank
from recto.formats.registry import format_named

_MARK_KEYS: Final = tuple(key.encode() for key in CACHE_MARKS)


def cache_marks(raw: bytes, wire: str) -> list[bytes]:
    """Returns the exact JSON of every mark on a message, in order."""
    text = text_of(raw)
    return [
        text[member.value.start : member.value.end].encode()
        for holder in _holders(text, _start(text), format_named(wire).block_keys)
        for member in holder
        if member.key in CACHE_MARKS and member.value.value is not None
    ]


def without_cache_marks(raw: bytes, wire: str) -> bytes:
    """Removes all marks from a message."""
    if not any(key in raw for key in _MARK_KEYS):
        return raw
    text = text_of(raw)
    edits: list[TextEdit] = []
    for holder in _holders(text, _start(text), format_named(wire).block_keys):
        spans = [(member.start, member.value.end) for member in holder]
        edits += removals(spans, [member.key in CACHE_MARKS for member in holder])
    return apply_edits(text, edits).encode()


def with_cache_mark(raw: bytes, wire: str, mark: bytes) -> bytes:
    """Adds a mark to the last block that can carry one. A string becomes one block with the mark."""
    format, text = format_named(wire), text_of(raw)
    content = next(filter(None, (member_at(text, 0, key) for key in format.block_keys)), None)
    if content is None:
        return raw
    # routers to Claude accept Anthropic's marks in Chat messages too; such a mark has a `type`
    name = "cache_control" if "type" in fields_of(mark) else format.cache_mark
    if isinstance(content.value.value, str):
        if not content.value.value.strip():
            return raw
        kind = format.edits.text_block_type(raw, content.key)
        string = text[content.value.start : content.value.end]
        block = f'[{{"type": "{kind}", "text": {string}, "{name}": {mark.decode()}}}]'
        return apply_edits(text, [TextEdit(content.value.start, content.value.end, block)]).encode()
    for span in reversed(elements_of(text, content.value)):
        if _can_carry(span.value):
            return apply_edits(text, [set_member(text, span.start, name, mark.decode())]).encode()
    return raw


def newest_marks(messages: Sequence[bytes], wire: str, at_most: int = MAX_CACHE_MARKS) -> list[bytes]:
    """Keeps at most so many marks, on the newest messages that have any. Older ones are leftovers of past requests."""
    bounded: list[bytes] = []
    remaining = at_most
    for raw in reversed(messages):
        marks = len(cache_marks(raw, wire)) if any(key in raw for key in _MARK_KEYS) else 0
        remaining -= marks
        bounded.append(raw if remaining >= 0 or not marks else without_cache_marks(raw, wire))
    return bounded[::-1]


def _holders(text: str, at: JsonSpan, keys: tuple[str, ...]) -> Iterator[list[Member]]:
    """Yields the members of every object that may carry a mark, from the outside in."""
    if not isinstance(at.value, dict):
        return
    holder = list(members(text, at.start))
    yield holder
    inner = (elements_of(text, member.value) for member in holder if member.key in keys)
    for span in chain.from_iterable(inner):
        yield from _holders(text, span, keys)


def _start(text: str) -> JsonSpan:
    return value_at(text, len(text) - len(text.lstrip(" \t\r\n")))


def _can_carry(block: Json) -> bool:
    return isinstance(block, dict) and block.get("type") not in THINKING and not is_blank(block)
