"""Changes inside JSON text that leave everything around them byte for byte as it was.

It knows where values stand and how commas lie between them. It knows no message.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from recto.core.json_text import Member, Span, elements, members


class Edit(NamedTuple):
    """What stands from `start` to `end` becomes `text`."""

    start: int
    end: int
    text: str


def spliced(text: str, edits: Iterable[Edit]) -> str:
    """The text with the edits made. They do not overlap."""
    pieces: list[str] = []
    at = 0
    for edit in sorted(edits):
        pieces += (text[at : edit.start], edit.text)
        at = edit.end
    pieces.append(text[at:])
    return "".join(pieces)


def taken_out(items: Sequence[tuple[int, int]], gone: Sequence[bool]) -> list[Edit]:
    """How some of the items of an array or object leave, each with the comma that only it needed."""
    edits: list[Edit] = []
    kept_before = False
    for place, (start, end) in enumerate(items):
        if not gone[place]:
            kept_before = True
        elif kept_before:
            edits.append(Edit(items[place - 1][1], end, ""))
        elif place + 1 < len(items):
            edits.append(Edit(start, items[place + 1][0], ""))
        else:
            edits.append(Edit(start, end, ""))
    return edits


def member_at(text: str, at: int, key: str) -> Member | None:
    """The member of the object that starts at a position; the last where the key is repeated, as readers do it."""
    found = None
    for member in members(text, at):
        if member.key == key:
            found = member
    return found


def put_member(text: str, at: int, key: str, source: str) -> Edit:
    """Gives a member of the object that starts at a position another value; adds it at the end where it is missing."""
    last = None
    found = None
    for member in members(text, at):
        last = member
        if member.key == key:
            found = member
    if found is not None:
        return Edit(found.value.start, found.value.end, source)
    if last is not None:
        return Edit(last.value.end, last.value.end, f", {quoted(key)}: {source}")
    behind = text.index("{", at) + 1
    return Edit(behind, behind, f"{quoted(key)}: {source}")


def array_of(text: str, span: Span) -> list[Span]:
    """The elements of a value that is an array; none where it is not."""
    return list(elements(text, span.start)) if isinstance(span.value, list) else []


def quoted(text: str) -> str:
    """Text as a JSON string that can be encoded, lone surrogates included."""
    source = json.dumps(text, ensure_ascii=False)
    try:
        source.encode()
    except UnicodeEncodeError:
        return json.dumps(text)
    return source
