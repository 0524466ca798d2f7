"""A transcript a page at a time, for people and screens: its entries and its decisions, wherever they are now.

Whatever the length of a session, a page reads a bounded number of its entries and says where the next one begins.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from recto.engine.projection import DECISIONS, RESTORED
from recto.engine.report import last_recall, summarize_decision
from recto.engine.views.models import DecisionPage, EntryPage, EntryView, Place
from recto.engine.window import Window
from recto.errors import InputError
from recto.formats.entry_text import entry_text
from recto.transcript.entries import MESSAGE, Entry
from recto.transcript.session_keys import parse_pointer

MAX_SCANNED = 2_000
"""Entries that one page looks through at most for a word or for a decision."""
_UNDONE = 10_000
"""Entries back from the end in which it is looked for whether a decision was undone."""
_CHUNK = 200
_LONGEST = 2_000
"""Characters of a text on a page."""


class EntryPositions:
    """Where the entries of a session are, as of one moment."""

    def __init__(self, window: Window) -> None:
        with window.lock:
            state = window.state
            self._in, self._shrunk, self._pins = (
                frozenset(state.messages),
                frozenset(state.shortened),
                frozenset(state.pins),
            )
            self._recalled = frozenset(_quoted(window))

    def show(self, entry: Entry, most: int = _LONGEST) -> EntryView:
        """An entry, with where it is."""
        text = entry_text(entry)
        return EntryView(
            seq=entry.seq,
            id=entry.id,
            ts=entry.ts,
            role=entry.role,
            kind=entry.kind,
            surface=entry.surface,
            tokens=entry.tokens,
            text=text[:most],
            cut=len(text) > most,
            place=self._place(entry),
            pinned=entry.seq in self._pins,
        )

    def _place(self, entry: Entry) -> Place:
        if entry.kind != MESSAGE:
            return "event"
        if entry.seq in self._in:
            return "trimmed" if entry.seq in self._shrunk else "in"
        return "recalled" if entry.seq in self._recalled else "out"


def entries_from(
    window: Window, start: int | None = None, *, limit: int = 50, newest_first: bool = False, words: str = ""
) -> EntryPage:
    """A page of the transcript from an entry on, in either direction; with words, only entries that say them."""
    places, wanted = EntryPositions(window), words.casefold()
    found: list[EntryView] = []
    for looked, entry in enumerate(_walk(window, start, newest_first=newest_first)):
        if len(found) >= limit or looked >= MAX_SCANNED:
            return EntryPage(entries=tuple(found), next=entry.seq)
        if not wanted or wanted in entry_text(entry).casefold():
            found.append(places.show(entry))
    return EntryPage(entries=tuple(found), next=None)


def decisions_before(
    window: Window, start: int | None = None, *, limit: int = 50, scores: bool = False
) -> DecisionPage:
    """A page of decisions, from an entry on towards the beginning. What was undone long ago may not be told as such."""
    made: list[Entry] = []
    undone: set[int] = set()
    following: int | None = None
    for looked, entry in enumerate(_walk(window, start, newest_first=True)):
        if len(made) >= limit or looked >= MAX_SCANNED:
            following = entry.seq
            break
        if entry.kind in DECISIONS:
            made.append(entry)
        elif entry.kind == RESTORED:
            undone.add(json.loads(entry.content)["decision"])
    if made and start is not None:
        later = window.store.read(window.session, max(start, window.store.head(window.session).seq - _UNDONE))
        undone |= {json.loads(entry.content)["decision"] for entry in later if entry.kind == RESTORED}
    told = (summarize_decision(entry, undone=entry.seq in undone, scores=scores) for entry in made)
    return DecisionPage(decisions=tuple(told), next=following)


def _walk(window: Window, start: int | None, *, newest_first: bool) -> Iterator[Entry]:
    """Entries from one on, to the end or back to the beginning; a little at a time, so that few are ever held."""
    store, session = window.store, window.session
    if not newest_first:
        yield from store.read(session, start or 1)
        return
    head = store.head(session).seq
    last = head if start is None else min(start, head)
    while last > 0:
        first = max(last - _CHUNK + 1, 1)
        yield from reversed(list(store.read(session, first, last)))
        last = first - 1


def _quoted(window: Window) -> Iterator[int]:
    """Entries of this session that came back for the question in flight."""
    for back in last_recall(window)[0]:
        try:
            session, seq = parse_pointer(back.pointer)
        except InputError:
            continue
        if session == window.session:
            yield seq
