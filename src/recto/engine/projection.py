"""The window's state as the fold of a transcript: messages come in, decisions take out, restores bring back.

It starts from the last snapshot and reads what follows, so its cost does not grow with the history. It can be thrown
away at any moment and is the same again, on this machine or another. It appends nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from recto.context.window.notes import NOTE_KINDS, Note
from recto.context.window.plan import ShortenedResult
from recto.context.window.state import WindowState, ranges_of, seqs_in
from recto.context.window.summary import Summary
from recto.context.window.units import WindowMessage
from recto.engine.prompt_builder import MessageCache
from recto.engine.standing_context import STANDING
from recto.transcript.entries import MESSAGE, Draft, Entry, Head
from recto.transcript.events import event
from recto.transcript.protocols import Clock, TranscriptStore

PRUNED, EVICTED, MERGED, TRIMMED = "context_window_pruned", "units_evicted", "units_merged", "tool_results_trimmed"
PINNED, UNPINNED, RESTORED, SNAPSHOT = "pinned", "unpinned", "restored", "window_snapshot"
ZONE, SPIKE, OVERFLOW = "zone_changed", "velocity_spike", "window_overflow"
WARNING, VIOLATION, USAGE = "budget_warning", "budget_violation", "usage_reported"
COMPRESSED, COMPACTION, NEW_WINDOW = "content_compressed", "compaction", "window_opened"
NOTE, CHECKPOINT, HANDOFF, REPLAYED = "note", "checkpoint_saved", "handoff_written", "handoff_replayed"
UNSAVED, HOST_COMPACTED = "checkpoint_unsaved", "host_compacted"
ANNOUNCED, REQUIRED = "auto_compact_warning", "auto_compact_required"
FIDELITY_LOW, JUDGED = "fidelity_low", "fidelity_judged"
WRITTEN = frozenset({COMPRESSED, COMPACTION, NEW_WINDOW})
"""Decisions for which something was written."""
DECISIONS = frozenset({PRUNED, EVICTED, MERGED, TRIMMED}) | WRITTEN

_TOLD = frozenset({ZONE, WARNING, VIOLATION, USAGE, ANNOUNCED, NOTE, REPLAYED, HANDOFF, CHECKPOINT, STANDING})
"""What else changes a state."""

_MALFORMED = (KeyError, TypeError, ValueError, AttributeError)
"""What an event raises that only has the name of one of ours."""

SNAPSHOT_EVERY = 256
"""Entries between two snapshots: how far back an opening has to read."""
_SHORT = 1024
"""A session of so many entries that never had a snapshot is read from its beginning."""
_BEGINNING = 64
"""Entries at the beginning of a longer one in which its system text and its task are looked for."""


def snapshot_key(number: int) -> str:
    """The key of a snapshot; they are numbered without gaps."""
    return f"window-snapshot/{number}"


def checkpoint_key(version: int) -> str:
    """The key of a checkpoint; they are numbered without gaps."""
    return f"checkpoint/{version}"


def replay_key(digest: str) -> str:
    """The key under which a handoff is replayed: once for each content."""
    return f"handoff/{digest}"


def last_numbered(
    store: TranscriptStore, session: str, key_of: Callable[[int], str], known: int = 0
) -> tuple[int, Entry | None]:
    """The last of the events that are numbered by their keys, and its number. Few look-ups, however many there are.

    `known` is a number that is not above the last one; 0 where nothing is known.
    """

    def numbered(number: int) -> Entry | None:
        return store.find(session, key_of(number))

    step = 1
    while numbered(known + step):
        known, step = known + step, 2 * step
    above = known + step
    while above - known > 1:
        middle = (known + above) // 2
        known, above = (middle, above) if numbered(middle) else (known, middle)
    return known, numbered(known) if known else None


class EventLog:
    """Appends a window's events to its session and notifies listeners."""

    def __init__(self, store: TranscriptStore, session: str, clock: Clock) -> None:
        self.store = store
        self.session = session
        self._clock = clock
        self._listeners: list[Callable[[Entry], None]] = []

    def listen(self, listener: Callable[[Entry], None]) -> None:
        """Calls back with every event that is appended here: decisions, zone changes, spikes."""
        self._listeners.append(listener)

    def draft(self, kind: str, payload: Mapping[str, Any], key: str | None = None) -> Draft:
        """An event that is not stored yet."""
        return event(self._clock, kind, payload, key)

    def append(self, kind: str, payload: Mapping[str, Any], key: str | None = None) -> Entry:
        """Stores an event and notifies listeners."""
        return self.append_all([self.draft(kind, payload, key)])[0]

    def append_all(self, drafts: Sequence[Draft], expect: int | None = None) -> list[Entry]:
        """Stores events that belong together, all or none, and notifies listeners."""
        entries = self.store.append(self.session, drafts, expect=expect)
        for entry in entries:
            for listener in self._listeners:
                listener(entry)
        return entries


class WindowProjection:
    """The state of one session's window, kept up to date with its transcript."""

    def __init__(self, store: TranscriptStore, session: str, messages: MessageCache, input_budget: int) -> None:
        self.snapshots = 0
        """How many snapshots there are."""
        self.snapshot_at = 0
        """Where the last one stands."""
        self._store = store
        self._session = session
        self._messages = messages
        self._input_budget = input_budget
        self._state: WindowState | None = None

    def state(self) -> WindowState:
        """The state as of the end of the transcript, whoever wrote there."""
        head = self._store.head(self._session)
        if self._state is None or self._state.seq > head.seq:
            self._state = self._opened(head)
        if self._state.seq < head.seq:
            for entry in self._store.read(self._session, self._state.seq + 1, head.seq):
                self._take(self._state, entry)
        return self._state

    def states(self, start: int, stop: int) -> Iterator[tuple[Entry, WindowState]]:
        """The state as it was after each entry of a range: one state, which changes while it is looked at.

        It begins at the last snapshot before the range, or at the session's beginning. Where neither is near, nothing
        is in before the range begins.
        """
        state = self._before(start)
        for entry in self._store.read(self._session, state.seq + 1, stop):
            self._take(state, entry)
            if entry.seq >= start:
                yield entry, state

    def _before(self, start: int) -> WindowState:
        above, known = last_numbered(self._store, self._session, snapshot_key)[0] + 1, 0
        found: Entry | None = None
        while above - known > 1:
            middle = (known + above) // 2
            entry = self._store.find(self._session, snapshot_key(middle))
            if entry is not None and entry.seq < start:
                known, found = middle, entry
            else:
                above = middle
        if found is not None:
            with suppress(*_MALFORMED):
                return self._from(found)
        return WindowState(seq=0 if start <= _SHORT else start - 1)

    def _opened(self, head: Head) -> WindowState:
        snapshot = self._last_snapshot()
        if snapshot is not None:
            with suppress(*_MALFORMED):
                return self._from(snapshot)
        return WindowState() if head.seq <= _SHORT else self._entered_late(head)

    def _from(self, snapshot: Entry) -> WindowState:
        about = json.loads(snapshot.content)
        lines = self._lines(ranges_of(_seqs(about["in"], snapshot.seq)))
        return WindowState.from_snapshot(about, lines, self._summary(about.get("summary", 0)))

    def _last_snapshot(self) -> Entry | None:
        known, found = last_numbered(self._store, self._session, snapshot_key)
        self.snapshots, self.snapshot_at = known, found.seq if found else 0
        return found

    def _entered_late(self, head: Head) -> WindowState:
        """The beginning with its task, and as much of the end as the room holds; what lies between has left."""
        state = WindowState()
        for entry in self._store.read(self._session, 1, _BEGINNING):
            if entry.kind == MESSAGE and (entry.role == "system" or (entry.role == "user" and not state.task_seq)):
                state.add(self._line(entry))
        start, spent = head.seq, 0
        while start > _BEGINNING and spent <= self._input_budget:
            page = list(self._store.read(self._session, max(start - SNAPSHOT_EVERY, _BEGINNING) + 1, start))
            spent += sum(entry.tokens for entry in page)
            start = page[0].seq - 1
        state.evicted_messages, state.last_evicted = start - len(state.messages), start
        state.first_evicted = next(seq for seq in range(1, start + 2) if seq not in state.messages)
        state.seq = start
        return state

    def _take(self, state: WindowState, entry: Entry) -> None:
        if entry.kind == MESSAGE:
            state.add(self._line(entry))
        else:
            with suppress(*_MALFORMED):  # one that only has the name of ours, as a file from elsewhere may hold
                self._take_event(state, entry)
        state.seq = entry.seq

    def _take_event(self, state: WindowState, entry: Entry) -> None:
        if entry.kind in DECISIONS:
            about = json.loads(entry.content)
            gone = _seqs(about["left"], entry.seq)
            shrunk = [ShortenedResult(seq=int(seq), **shrunk) for seq, shrunk in about["shrunk"].items()]
            summary = Summary.from_json(entry.seq, about["summary"]) if "summary" in about else state.summary
            cache_mark = about.get("cache_mark") or state.cache_mark
            state.evict(gone)
            self._messages.forget(gone)
            state.shorten(shrunk)
            state.summary, state.cache_mark = summary, cache_mark
            state.windows += entry.kind == NEW_WINDOW
            state.last_edit = entry.seq
        elif entry.kind in (PINNED, UNPINNED, RESTORED):
            self._take_pins(state, entry, json.loads(entry.content))
            state.last_edit = entry.seq if entry.kind != UNPINNED else state.last_edit
        elif entry.kind in _TOLD:
            _told(state, entry)
        elif entry.kind == SNAPSHOT:
            self.snapshots = max(self.snapshots, int((entry.key or "/0").rpartition("/")[2]))
            self.snapshot_at = entry.seq

    def _summary(self, decision: int) -> Summary | None:
        """What a decision wrote; nothing for none."""
        entry = next(iter(self._store.read(self._session, decision, decision)), None) if decision else None
        return Summary.from_json(decision, json.loads(entry.content)["summary"]) if entry else None

    def _take_pins(self, state: WindowState, entry: Entry, about: Mapping[str, Any]) -> None:
        if entry.kind == UNPINNED:
            state.pins -= set(about["seqs"])
            return
        if entry.kind == PINNED:
            back = _seqs([[seq, seq] for seq in about["seqs"]], entry.seq)
        else:
            shrunk = [int(seq) for seq in about["shrunk"]]
            back = _seqs([*about["left"], *([seq, seq] for seq in shrunk)], entry.seq)
        missing = {seq for seq in back if entry.kind == RESTORED or seq not in state.messages}
        lines = self._lines(ranges_of(sorted(missing)))
        state.pins |= set(back)
        state.restore(lines)
        if entry.kind == RESTORED and state.summary is not None and state.summary.decision_seq == about["decision"]:
            state.summary = self._summary(about.get("replaces", 0))
            state.shown_handoff = 0, 0

    def _lines(self, ranges: list[list[int]]) -> list[WindowMessage]:
        return [
            self._line(entry)
            for first, last in ranges
            for entry in self._store.read(self._session, first, last)
            if entry.kind == MESSAGE
        ]

    def _line(self, entry: Entry) -> WindowMessage:
        known = entry.tokens if entry.counter == self._messages.meter.name else None
        return self._messages.take(entry.seq, entry.id, entry.content, entry.wire, known)


def _seqs(ranges: Iterable[Iterable[int]], before: int) -> list[int]:
    """The entries that ranges stand for. Raises `ValueError` for any that do not stand before the one naming them."""
    found = [(first, last) for first, last in ranges]
    if any(not 0 < first <= last < before for first, last in found):
        raise ValueError("entries that are not there")
    return seqs_in(found)


def _told(state: WindowState, entry: Entry) -> None:
    about = json.loads(entry.content)
    if entry.kind == ZONE:
        state.zone = about["after"]
    elif entry.kind == USAGE:
        state.reported_tokens, state.counted_tokens = about["reported"], about["counted"]
    elif entry.kind == ANNOUNCED:
        state.budget_levels[ANNOUNCED] = "warning"
    elif entry.kind in (CHECKPOINT, HANDOFF, REPLAYED):
        _went_on(state, entry, about)
    elif entry.kind == STANDING:
        state.standing_digest = about["digest"]
    elif entry.kind == NOTE:
        if about.get("kind") in NOTE_KINDS and isinstance(about.get("text"), str):  # others may have notes of their own
            note = Note(seq=entry.seq, kind=about["kind"], text=about["text"], critical=about.get("critical") is True)
            state.note(note)
    else:
        state.budget_levels[about["component"]] = about["level"]


def _went_on(state: WindowState, entry: Entry, about: Mapping[str, Any]) -> None:
    if entry.kind == CHECKPOINT:
        state.budget_levels[CHECKPOINT] = "warning"
        version = about.get("version")
        if isinstance(version, int) and 0 < version < 2**53:  # others may have checkpoints of their own
            state.checkpoints = version
    elif entry.kind == HANDOFF and about.get("pending") is True:
        state.shown_handoff = entry.seq, 0  # it waits for the next question
    elif entry.kind == REPLAYED and about.get("to") != "host":
        state.shown_handoff = about["handoff"], about["question"]
