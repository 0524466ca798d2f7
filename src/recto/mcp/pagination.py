"""How much one answer holds. A longer text comes in pages, and each page says where the next one begins.

Texts are quoted as recall quotes them in a prompt: every line marked, nothing that hides, secrets left out. They are
made harmless before they are cut, so that no secret is cut in two and passes for something else.
"""

from __future__ import annotations

from dataclasses import dataclass

from recto.formats.entry_text import text_of
from recto.recall.quoting import Excerpt, format_minute
from recto.text.secrets import mask_secrets
from recto.text.unicode import prompt_safe
from recto.transcript.entries import MESSAGE, Entry
from recto.transcript.session_keys import pointer_to

MOST = 16_000
"""Characters of history in one answer, nearly: about 4,000 tokens, far below what hosts take."""
NEIGHBOUR = 1_600
"""Characters of an entry that stands beside the one that was asked for."""
_LINE = 16
"""Characters that a line counts for, however short: each is marked, which costs too."""
_PAUSE = 0.8
"""A page ends at a line's end, or between words, where one is found in its last fifth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPage:
    """A part of one entry's text."""

    pointer: str
    """The entry."""
    role: str
    when: str
    """Day and minute, in UTC."""
    characters: int
    """Of the whole text."""
    start: int
    """Where this page begins."""
    next: int | None
    """What to give as `start` for the next page; none where this is the last."""


def paged(entry: Entry, start: int = 0, most: int = MOST) -> tuple[TextPage, Excerpt]:
    """A page of an entry, and what is quoted of it."""
    text = mask_secrets(prompt_safe(text_of(entry)))
    begin = min(start, len(text))
    end = _end(text, begin, most)
    pointer, who = pointer_to(entry.session, entry.seq), entry.role if entry.kind == MESSAGE else entry.kind
    following = end if end < len(text) else None
    page = TextPage(
        pointer=pointer, role=who, when=format_minute(entry.ts), characters=len(text), start=begin, next=following
    )
    return page, Excerpt(pointer, who, entry.ts, text[begin:end], _noted(page, end))


def _noted(page: TextPage, end: int) -> str:
    if page.next is None and not page.start:
        return ""
    whole = f"characters {page.start:,} to {end:,} of {page.characters:,}"
    return whole if page.next is None else f"{whole}; read it with start={page.next} for more"


def _lines_end(text: str, begin: int, end: int, most: int) -> int:
    """Where so many lines end, if that is before the end."""
    at = begin
    for _ in range(most):
        at = text.find("\n", at, end) + 1
        if not at:
            return end
    return at


def _end(text: str, begin: int, most: int) -> int:
    end = _lines_end(text, begin, min(begin + most, len(text)), most // _LINE)
    if end == len(text):
        return end
    earliest = begin + int(most * _PAUSE)
    for pause in ("\n", " "):
        found = text.rfind(pause, earliest, end)
        if found > 0:
            return found + 1
    return end
