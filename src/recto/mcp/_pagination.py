"""Pages of long texts: bounds the characters of one result; each page says where the next one begins.

Texts are quoted as recall quotes them in a prompt: every line marked, control characters and secrets removed. They are
cleaned before they are cut, so that no secret is cut in two and passes unmasked.
"""

from __future__ import annotations

from recto.engine.views.models import TextPage
from recto.formats import entry_text
from recto.recall.quoting import Excerpt, format_minute
from recto.text.secrets import mask_secrets
from recto.text.unicode import prompt_safe
from recto.transcript.entries import MESSAGE, Entry
from recto.transcript.session_keys import pointer_to

MAX_CHARS = 16_000
"""Characters of history in one result, nearly: about 4,000 tokens, far below the limit of hosts."""
MAX_NEIGHBOUR_CHARS = 1_600
"""Characters of an entry next to the requested one."""
_LINE_COST = 16
"""Characters that a line counts for at least: the mark of a quoted line costs too."""
_EARLIEST_BREAK = 0.8
"""A page ends at the end of a line, or between words, where there is one in its last fifth."""


def text_page(entry: Entry, start: int = 0, max_chars: int = MAX_CHARS) -> tuple[TextPage, Excerpt]:
    """A page of an entry's text, and the excerpt to quote for it."""
    text = mask_secrets(prompt_safe(entry_text(entry)))
    begin = min(start, len(text))
    end = _page_end(text, begin, max_chars)
    pointer, role = pointer_to(entry.session, entry.seq), entry.role if entry.kind == MESSAGE else entry.kind
    page = TextPage(
        pointer=pointer,
        role=role,
        when=format_minute(entry.ts),
        characters=len(text),
        start=begin,
        next=end if end < len(text) else None,
    )
    return page, Excerpt(pointer, role, entry.ts, text[begin:end], _extent(page, end))


def _extent(page: TextPage, end: int) -> str:
    if page.next is None and not page.start:
        return ""
    extent = f"characters {page.start:,} to {end:,} of {page.characters:,}"
    return extent if page.next is None else f"{extent}; read it with start={page.next} for more"


def _page_end(text: str, begin: int, max_chars: int) -> int:
    end = _lines_end(text, begin, min(begin + max_chars, len(text)), max_chars // _LINE_COST)
    if end == len(text):
        return end
    earliest = begin + int(max_chars * _EARLIEST_BREAK)
    for separator in ("\n", " "):
        at = text.rfind(separator, earliest, end)
        if at > 0:
            return at + 1
    return end


def _lines_end(text: str, begin: int, end: int, max_lines: int) -> int:
    """Where `max_lines` lines end, if that is before `end`."""
    at = begin
    for _ in range(max_lines):
        at = text.find("\n", at, end) + 1
        if not at:
            return end
    return at
