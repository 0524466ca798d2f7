"""The transcript as files: lists entries by range, and searches their lines for a text or a regular expression.

Both read a bounded number of entries, however long the session is, and say where the next page begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from recto.engine.pagination import walk_entries
from recto.engine.views.models import EntryOutline, GrepLine, GrepMatch, GrepPage, OutlinePage
from recto.formats import entry_text
from recto.text.line_pattern import LinePattern, byte_filter
from recto.transcript.entries import MESSAGE
from recto.transcript.session_keys import pointer_to

if TYPE_CHECKING:
    from recto.transcript.entries import Entry
    from recto.transcript.protocols import TranscriptStore

MAX_ENTRIES = 20_000
"""Entries that one search reads."""
MAX_CHARS = 3_000_000
"""Characters of messages that one search compares with a regular expression."""
MAX_CONTEXT = 10
"""Lines before and after a match."""
MAX_LINE_CHARS = 400
"""Characters of a line in a result."""
_MAX_ENTRY_MATCHES = 50
"""Matching lines of one entry that are listed."""


def list_entries(
    store: TranscriptStore, session: str, start: int | None = None, *, limit: int = 50, newest_first: bool = False
) -> OutlinePage:
    """A page of entries from one on: role, size and first line of each."""
    entries = list(islice(walk_entries(store, session, start, newest_first=newest_first), limit + 1))
    following = entries[limit].seq if len(entries) > limit else None
    return OutlinePage(entries=tuple(map(_outline, entries[:limit])), next=following)


def _outline(entry: Entry) -> EntryOutline:
    text = entry_text(entry)
    stripped = text.lstrip()
    return EntryOutline(
        pointer=pointer_to(entry.session, entry.seq),
        seq=entry.seq,
        ts=entry.ts,
        role=entry.role,
        kind=entry.kind,
        tokens=entry.tokens,
        characters=len(text),
        lines=text.count("\n") + 1 if text else 0,
        first_line=stripped[:MAX_LINE_CHARS].partition("\n")[0],
    )


def grep(
    store: TranscriptStore,
    session: str,
    pattern: LinePattern,
    start: int | None = None,
    *,
    stop: int | None = None,
    newest_first: bool = True,
    context: int = 0,
    limit: int = 50,
) -> GrepPage:
    """The messages from an entry on, up to `stop`, with the lines that match a pattern and `context` lines around."""
    may_contain = byte_filter(pattern.needle)
    matches: list[GrepMatch] = []
    lines = searched = looked_at = 0
    for entry in walk_entries(store, session, start, newest_first=newest_first):
        if stop is not None and (entry.seq < stop if newest_first else entry.seq > stop):
            break
        if lines >= limit or searched >= MAX_ENTRIES or looked_at >= MAX_CHARS:
            return GrepPage(matches=tuple(matches), searched=searched, next=entry.seq)
        searched += 1
        if entry.kind != MESSAGE or not may_contain(entry.content):
            continue
        text = entry_text(entry)
        if not pattern.may_match(text):
            continue
        looked_at += len(text) if pattern.is_regex else 0
        if match := _match(entry, text.splitlines(), pattern, min(context, MAX_CONTEXT)):
            matches.append(match)
            lines += match.count
    return GrepPage(matches=tuple(matches), searched=searched, next=None)


def _match(entry: Entry, lines: Sequence[str], pattern: LinePattern, context: int) -> GrepMatch | None:
    found = {number: end for number, line in enumerate(lines) if (end := pattern.search(line)) is not None}
    if not found:
        return None
    listed = list(found)[:_MAX_ENTRY_MATCHES]
    shown = sorted({near for number in listed for near in range(number - context, number + context + 1)})
    return GrepMatch(
        pointer=pointer_to(entry.session, entry.seq),
        seq=entry.seq,
        ts=entry.ts,
        role=entry.role,
        count=len(found),
        lines=tuple(
            GrepLine(number=number + 1, text=_excerpt(lines[number], found.get(number, 0)), matches=number in found)
            for number in shown
            if 0 <= number < len(lines)
        ),
    )


def _excerpt(line: str, end: int) -> str:
    """A line, cut around the match that ends at `end`."""
    if len(line) <= MAX_LINE_CHARS:
        return line
    first = max(min(end - MAX_LINE_CHARS * 3 // 4, len(line) - MAX_LINE_CHARS), 0)
    cut = line[first : first + MAX_LINE_CHARS]
    return f"{'…' if first else ''}{cut}{'…' if first + MAX_LINE_CHARS < len(line) else ''}"
