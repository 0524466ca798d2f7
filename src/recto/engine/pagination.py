"""Pages of a transcript: its entries, with where each is now, and its decisions.

A page reads a bounded number of entries, however long the session is, and says where the next page begins.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from recto.engine.projection import DECISIONS, RESTORED
from recto.engine.report import last_recall, summarize_decision
from recto.engine.views.models import MAX_TEXT, DecisionPage, EntryPage, EntryView, Place
from recto.engine.window import Window
from recto.errors import InputError
from recto.formats import entry_text
from recto.transcript.entries import MESSAGE, Entry
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import parse_pointer

MAX_SCANNED = 2_000
"""Entries that one page scans at most for a word or for decisions."""
_MAX_UNDO_SCANNED = 10_000
"""Newest entries that are scanned for the undoing of a decision."""
_CHUNK = 200


class EntryPositions:
    """Where the entries of a session are at one moment: in the prompt, trimmed, evicted or recalled."""

    def __init__(self, window: Window) -> None:
        with window.lock:
            state = window.state
            self._in_prompt, self._pins = window.shown_entries(), frozenset(state.pins)
            self._shortened = frozenset(state.shortened)
            self._recalled = frozenset(_recalled_seqs(window))

    def view(self, entry: Entry, max_text: int = MAX_TEXT) -> EntryView:
        """An entry on a page, with its position."""
        text = entry_text(entry)
        return EntryView(
            seq=entry.seq,
            id=entry.id,
            ts=entry.ts,
            role=entry.role,
            kind=entry.kind,
            surface=entry.surface,
            tokens=entry.tokens,
            text=text[:max_text],
            cut=len(text) > max_text,
            place=self._place(entry),
            pinned=entry.seq in self._pins,
        )

    def _place(self, entry: Entry) -> Place:
        if entry.kind != MESSAGE:
            return "event"
        if entry.seq in self._in_prompt:
            return "trimmed" if entry.seq in self._shortened else "in"
        return "recalled" if entry.seq in self._recalled else "out"


def entry_page(
    window: Window, start: int | None = None, *, limit: int = 50, newest_first: bool = False, words: str = ""
) -> EntryPage:
    """A page of the transcript from an entry on, in either direction; with `words`, only entries that contain them."""
    positions, folded = EntryPositions(window), words.casefold()
    views: list[EntryView] = []
    for scanned, entry in enumerate(_walk(window, start, newest_first=newest_first)):
        if len(views) >= limit or scanned >= MAX_SCANNED:
            return EntryPage(entries=tuple(views), next=entry.seq)
        # A decision quotes messages in its record; what is searched for is the messages.
        if not folded or (entry.kind not in DECISIONS and folded in entry_text(entry).casefold()):
            views.append(positions.view(entry))
    return EntryPage(entries=tuple(views), next=None)


def decision_page(window: Window, start: int | None = None, *, limit: int = 50, scores: bool = False) -> DecisionPage:
    """A page of decisions from an entry on, newest first. An undoing older than the scanned entries is not noticed."""
    decisions: list[Entry] = []
    undone: set[int] = set()
    next_seq: int | None = None
    for scanned, entry in enumerate(_walk(window, start, newest_first=True)):
        if len(decisions) >= limit or scanned >= MAX_SCANNED:
            next_seq = entry.seq
            break
        if entry.kind in DECISIONS:
            decisions.append(entry)
        elif entry.kind == RESTORED:
            undone.add(json.loads(entry.content)["decision"])
    if decisions and start is not None:
        undone |= undone_decisions(window, start)
    summaries = (summarize_decision(entry, undone=entry.seq in undone, scores=scores) for entry in decisions)
    return DecisionPage(decisions=tuple(summaries), next=next_seq)


def undone_decisions(window: Window, after: int) -> set[int]:
    """The decisions that were undone behind an entry, as far as the newest entries tell."""
    later = window.store.read(window.session, max(after, window.store.head(window.session).seq - _MAX_UNDO_SCANNED))
    return {json.loads(entry.content)["decision"] for entry in later if entry.kind == RESTORED}


def _walk(window: Window, start: int | None, *, newest_first: bool) -> Iterator[Entry]:
    return walk_entries(window.store, window.session, start, newest_first=newest_first)


def walk_entries(store: TranscriptStore, session: str, start: int | None, *, newest_first: bool) -> Iterator[Entry]:
    """Entries from one on, to the end or back to the beginning, read in chunks so that few are in memory."""
    if not newest_first:
        yield from store.read(session, start or 1)
        return
    head = store.head(session).seq
    last = head if start is None else min(start, head)
    while last > 0:
        first = max(last - _CHUNK + 1, 1)
        yield from reversed(list(store.read(session, first, last)))
        last = first - 1


def _recalled_seqs(window: Window) -> Iterator[int]:
    """Entries of this session that were recalled for the current turn."""
    for recalled in last_recall(window)[0]:
        try:
            session, seq = parse_pointer(recalled.pointer)
        except InputError:
            continue
        if session == window.session:
            yield seq
