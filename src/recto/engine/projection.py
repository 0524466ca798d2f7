"""The events of a window, and the state they add up to: messages are added, decisions evict, restores bring back.

The projection starts from the last snapshot and reads what follows, so its cost does not grow with the history. It can
be discarded at any time and is rebuilt the same, on this machine or another.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import zip_longest
from typing import Any

from recto.context.record import WorkingRecord
from recto.context.window.state import (
    NOTE_KINDS,
    NOTE_LEVELS,
    Note,
    Summary,
    WindowState,
    left_out_tools,
    merged_unit,
    ranges_of,
    seqs_in,
)
from recto.context.window.units import ClearedThinking, ShortenedResult, WindowMessage, steps_in
from recto.continuity.checkpoints.checkpoint import BEGUN, CONTINUED
from recto.engine.arguments import check_listener
from recto.engine.prompt_builder import MessageCache
from recto.engine.standing_context import STANDING
from recto.errors import AppendConflict, KeyReused, RectoError
from recto.formats.message import Message
from recto.recall.types import JUDGED as RECALL_JUDGED
from recto.transcript.entries import MESSAGE, Clock, Draft, Entry, Head, event, payload_of, refused_key
from recto.transcript.protocols import Records, TranscriptStore

_log = logging.getLogger("recto.session")

PRUNED, EVICTED, MERGED, TRIMMED = "context_window_pruned", "units_evicted", "units_merged", "tool_results_trimmed"
PINNED, UNPINNED, RESTORED, SNAPSHOT = "pinned", "unpinned", "restored", "window_snapshot"
CLEARED, TOOLS_LEFT_OUT = "thinking_cleared", "tools_left_out"
ZONE, SPIKE, OVERFLOW = "zone_changed", "velocity_spike", "window_overflow"
POSTPONED = "relief_postponed"
WARNING, VIOLATION, USAGE = "budget_warning", "budget_violation", "usage_reported"
COMPRESSED, COMPACTION, NEW_WINDOW = "content_compressed", "compaction", "window_opened"
NOTE, CHECKPOINT, HANDOFF, REPLAYED = "note", "checkpoint_saved", "handoff_written", "handoff_replayed"
UNSAVED, TOOLS_MISSING = "checkpoint_unsaved", "tools_missing"
TASK_COMPLETED, RESULT_HELD = "task_completed", "tool_result_held"
REFUSED, RETRIED = "message_refused", "message_retried"
ANNOUNCED, REQUIRED = "auto_compact_warning", "auto_compact_required"
FIDELITY_LOW, JUDGED = "fidelity_low", "fidelity_judged"
WRITTEN = frozenset({COMPRESSED, COMPACTION, NEW_WINDOW})
"""Decisions with a text that was written for them."""
DECISIONS = frozenset({PRUNED, EVICTED, MERGED, TRIMMED, CLEARED}) | WRITTEN

_STATUS = frozenset(
    {
        ZONE,
        WARNING,
        VIOLATION,
        USAGE,
        ANNOUNCED,
        NOTE,
        REPLAYED,
        HANDOFF,
        CHECKPOINT,
        STANDING,
        TOOLS_LEFT_OUT,
        RECALL_JUDGED,
    }
)
"""Other events that change a state."""

_MALFORMED = (KeyError, TypeError, ValueError, AttributeError)
"""What is raised by an event that only has the name of one of ours, as an imported file may contain."""

SNAPSHOT_EVERY = 256
"""Entries between two snapshots, and so how far back opening a session has to read."""
_SHORT = 1024
"""A session without a snapshot is read from its beginning, if it has at most this many entries."""
_MAX_FED = 1024
"""Entries that wait for the state at most; beyond that it reads them from the store."""
_RECENT = SNAPSHOT_EVERY + 64
"""Entries at the end of a session among which its last snapshot mostly is: the first prompt takes it when it is due."""
_GAP = 16
"""Entries between two ranges up to which both are read at once."""
_MAX_STEP = 1024
"""Entries before and after a restored message that are searched for the rest of its step."""
_BEGINNING = 64
"""Entries at the beginning of a longer session that are read for its system text and its task."""


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
    """The last of the events that are numbered by their keys, and its number, in a logarithmic number of look-ups.

    `known` is a lower bound for the number.
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


def guarded(listener: Callable[..., object]) -> Callable[..., None]:
    """A caller's listener that logs what it raises, because what it is called about has happened and is stored.

    Raises:
        InputError: It cannot be called.
    """
    check_listener(listener)

    def call(*arguments: object) -> None:
        try:
            listener(*arguments)
        except Exception:  # noqa: BLE001  # a listener may fail, the call may not
            _log.exception("a listener failed; the session goes on, and what it was called about is stored")

    return call


class EventLog:
    """Appends a window's events to its session and notifies listeners.

    Status events that are recorded while a prompt is built wait, and are stored in one commit when it is done.
    Everything else, decisions above all, is stored at once, behind the events that wait.
    """

    def __init__(self, store: TranscriptStore, session: str, clock: Clock) -> None:
        self.store = store
        self.session = session
        self._clock = clock
        self._listeners: list[Callable[[Entry], None]] = []
        self._waiting: list[Draft] = []
        self._gate = threading.Lock()
        """Held while events are added to those that wait, or taken from them: another thread may append meanwhile."""
        self._collects = False

    def listen(self, listener: Callable[[Entry], None]) -> None:
        """Calls back with every event that is appended here: decisions, zone changes, spikes."""
        self._listeners.append(listener)

    def now(self) -> int:
        """The time that an event gets."""
        return self._clock.now()

    def draft(self, kind: str, payload: Mapping[str, Any], key: str | None = None) -> Draft:
        """An event that is not stored yet."""
        return event(self._clock, kind, payload, key)

    def append(self, kind: str, payload: Mapping[str, Any], key: str | None = None) -> Entry:
        """Stores an event and notifies listeners."""
        return self.append_all([self.draft(kind, payload, key)])[0]

    def append_all(self, drafts: Sequence[Draft], expect: int | None = None) -> list[Entry]:
        """Stores events that belong together, all or none, and notifies listeners."""
        self.flush()
        return self._notify(self.store.append(self.session, drafts, expect=expect))

    def append_messages(
        self, drafts: Sequence[Draft], expect: int | None = None, also: Records | None = None
    ) -> list[Entry]:
        """Stores messages, and the events that wait before them in the same commit. Returns the messages."""
        waiting = self._take()
        if waiting:
            try:
                about = None if also is None else lambda entries: also(entries[len(waiting) :])
                entries = self.store.append(self.session, [*waiting, *drafts], expect=expect, also=about)
            except (KeyReused, AppendConflict):  # a draft is stored already, or must not be stored
                self._put_back(waiting)
            except BaseException:
                self._put_back(waiting)
                raise
            else:
                self._notify(entries[: len(waiting)])
                return entries[len(waiting) :]
        return self.store.append(self.session, drafts, expect=expect, also=also)

    def record(self, kind: str, payload: Mapping[str, Any], key: str | None = None) -> None:
        """Records a status event; inside `collecting` it waits for the others. A reused key is no error."""
        with self._gate:
            self._waiting.append(self.draft(kind, payload, key))
        if not self._collects:
            self.flush()

    @contextmanager
    def collecting(self, *, defer: bool = False) -> Iterator[None]:
        """Stores all status events that are recorded inside in one commit at the end.

        With `defer` they wait for whatever is stored next in the session by this window, or for its end.
        """
        self.flush()
        self._collects = True
        try:
            yield
        except BaseException:
            with suppress(RectoError):  # the first error is the one to report
                self.flush()
            raise
        finally:
            self._collects = False
        if not defer:
            self.flush()

    def flush(self) -> int:
        """Stores the events that wait; returns how many they were."""
        waiting = self._take()
        try:
            self._notify(self.store.append(self.session, waiting) if waiting else [])
        except (KeyReused, AppendConflict):  # one of them was stored before, as after a restart
            for draft in waiting:
                with suppress(KeyReused):
                    self._notify(self.store.append(self.session, [draft]))
        except BaseException:
            self._put_back(waiting)
            raise
        return len(waiting)

    def _take(self) -> list[Draft]:
        with self._gate:
            waiting, self._waiting = self._waiting, []
        return waiting

    def _put_back(self, waiting: Sequence[Draft]) -> None:
        with self._gate:
            self._waiting[:0] = waiting

    def _notify(self, entries: list[Entry]) -> list[Entry]:
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
        """The entry of the last one."""
        self._store = store
        self._session = session
        self._messages = messages
        self._input_budget = input_budget
        self._state: WindowState | None = None
        self._fed: dict[int, tuple[Entry, Message | None]] = {}
        """Entries that this process stored and that are not part of the state yet, and their parsed messages."""
        self._newest = 0
        """The highest number among all entries that were fed."""
        self._written: tuple[str, WorkingRecord] | None = None
        """The working record that this process wrote last, and the id of its decision."""

    def state(self) -> WindowState:
        """The state as of the end of the transcript, whichever process wrote there."""
        head = self._store.head(self._session)
        if self._state is None or self._state.seq > head.seq:
            self._fed.clear()
            self._newest = head.seq
            self._state = self._open(head)
        return self._advance(self._state, head.seq)

    def current(self) -> WindowState:
        """The state with everything that this process stored; does not look whether others wrote since."""
        return self.state() if self._state is None else self._advance(self._state, self._newest)

    def feed(self, entries: Sequence[Entry], messages: Sequence[Message | None] = ()) -> None:
        """Takes entries that were just stored, with their parsed messages, so that they are not read back.

        May be called from any thread; the state takes them when it is next asked for.
        """
        if self._state is None:
            return  # opened when first needed, from the store
        if len(self._fed) + len(entries) > _MAX_FED:  # no prompt is built
            self._fed.clear()
        for entry, message in zip_longest(entries, messages):
            if entry.seq > self._state.seq:
                self._fed[entry.seq] = entry, message
                self._newest = max(self._newest, entry.seq)

    def know_record(self, decision: Entry, record: WorkingRecord | None) -> None:
        """Takes the working record of a decision that was just stored, so that it is not read back."""
        self._written = None if record is None else (decision.id, record)

    def _advance(self, state: WindowState, stop: int) -> WindowState:
        while state.seq < stop:
            fed = self._fed.pop(state.seq + 1, None)
            if fed is not None:
                self._apply(state, *fed)
                continue
            before = state.seq
            until = min((seq - 1 for seq in list(self._fed) if before < seq <= stop), default=stop)
            for entry in self._store.read(self._session, before + 1, until):
                self._apply(state, entry)
            if state.seq == before:
                break  # erased by another process
        return state

    def states(self, start: int, stop: int) -> Iterator[tuple[Entry, WindowState]]:
        """The state after each entry of a range. One state is yielded, and changes from entry to entry.

        It begins at the last snapshot before the range, or at the beginning of the session. Where neither is near, the
        state is empty before the range.
        """
        state = self._before(start)
        for entry in self._store.read(self._session, state.seq + 1, stop):
            self._apply(state, entry)
            if entry.seq >= start:
                yield entry, state

    def _before(self, start: int) -> WindowState:
        above, known = last_numbered(self._store, self._session, snapshot_key)[0] + 1, 0
        newest: Entry | None = None
        while above - known > 1:
            middle = (known + above) // 2
            entry = self._store.find(self._session, snapshot_key(middle))
            if entry is not None and entry.seq < start:
                known, newest = middle, entry
            else:
                above = middle
        if newest is not None:
            with suppress(*_MALFORMED):
                return self._from(newest, payload_of(newest.content))
        return WindowState(seq=0 if start <= _SHORT else start - 1)

    def _open(self, head: Head) -> WindowState:
        recent = self._store.tail(self._session, _RECENT)
        snapshot = self._last_snapshot(recent)
        if snapshot is not None:
            with suppress(*_MALFORMED):
                state = self._from_recent(snapshot, recent)
                return self._from(snapshot, payload_of(snapshot.content)) if state is None else state
        return WindowState() if head.seq <= _SHORT else self._open_late(head)

    def _from_recent(self, snapshot: Entry, recent: Sequence[Entry]) -> WindowState | None:
        """The state after the recent entries; None where they do not reach back to the snapshot."""
        payload = payload_of(snapshot.content)
        after = payload["seq"]
        following = [entry for entry in recent if entry.seq > after]
        if not following or following[0].seq != after + 1:
            return None
        state = self._from(snapshot, payload, recent)
        for entry in following:
            self._apply(state, entry)
        return state

    def _from(self, snapshot: Entry, payload: Mapping[str, Any], recent: Sequence[Entry] = ()) -> WindowState:
        """The state of a snapshot. `recent` are entries at the end of the session, which need not be read again."""
        known = {entry.seq: entry for entry in recent if entry.kind == MESSAGE}
        seqs = _seqs(payload["in"], snapshot.seq)
        messages = self._messages_in([seq for seq in seqs if seq not in known])
        messages += [self._message(known[seq]) for seq in seqs if seq in known]
        summary, record = self._summary(payload.get("summary", 0)), self._record(payload.get("record", 0))
        return WindowState.from_snapshot(payload, messages, summary, record)

    def _last_snapshot(self, recent: Sequence[Entry]) -> Entry | None:
        """The last snapshot: mostly one of the recent entries, else found by its number."""
        for entry in reversed(recent):
            number = (entry.key or "").rpartition("/")[2]
            if entry.kind == SNAPSHOT and number.isdecimal() and entry.key == snapshot_key(int(number)):
                self.snapshots, self.snapshot_at = int(number), entry.seq
                return entry
        count, snapshot = last_numbered(self._store, self._session, snapshot_key)
        self.snapshots, self.snapshot_at = count, snapshot.seq if snapshot else 0
        return snapshot

    def _open_late(self, head: Head) -> WindowState:
        """The beginning with its task, and as much of the end as the input budget holds; the rest counts as evicted."""
        state = WindowState()
        for entry in self._store.read(self._session, 1, _BEGINNING):
            stays = entry.kind == MESSAGE and (entry.role == "system" or (entry.role == "user" and not state.task_seq))
            if stays and self._store.find(self._session, refused_key(entry.seq)) is None:
                state.add(self._message(entry))
        start, spent = head.seq, 0
        while start > _BEGINNING and spent <= self._input_budget:
            page = list(self._store.read(self._session, max(start - SNAPSHOT_EVERY, _BEGINNING) + 1, start))
            spent += sum(entry.tokens for entry in page)
            start = page[0].seq - 1
        if start <= _BEGINNING and spent <= self._input_budget:
            return WindowState()  # all of it fits, or nearly: it is read from its beginning
        state.evicted_messages, state.last_evicted = start - len(state.messages), start
        state.first_evicted = next(seq for seq in range(1, start + 2) if seq not in state.messages)
        state.seq = start
        return state

    def _apply(self, state: WindowState, entry: Entry, message: Message | None = None) -> None:
        if entry.kind == MESSAGE:
            state.add(self._message(entry, message))
        else:
            with suppress(*_MALFORMED):
                self._apply_event(state, entry)
        state.seq = entry.seq

    def _apply_event(self, state: WindowState, entry: Entry) -> None:
        if entry.kind in DECISIONS:
            payload = payload_of(entry.content)
            evicted = _seqs(payload["left"], entry.seq)
            shortened = [ShortenedResult(seq=int(seq), **result) for seq, result in payload["shrunk"].items()]
            summary = Summary.from_json(entry.seq, payload["summary"]) if "summary" in payload else state.summary
            cache_mark = payload.get("cache_mark") or state.cache_mark
            state.evict(evicted)
            self._messages.forget(evicted)
            state.shorten(shortened)
            cleared = payload.get("cleared", {}).items()
            state.clear_thinking([ClearedThinking(seq=int(seq), tokens=int(tokens)) for seq, tokens in cleared])
            state.merge([merged_unit(unit) for unit in payload.get("merged", ())], entry.seq)
            state.summary, state.cache_mark = summary, cache_mark
            if "record" in payload:
                known, record = self._written or ("", None)
                if record is None or known != entry.id:
                    record = WorkingRecord.from_json(payload["record"])
                state.record, state.record_seq = record, entry.seq
            state.windows += entry.kind == NEW_WINDOW
            state.last_edit = entry.seq
        elif entry.kind in (PINNED, UNPINNED, RESTORED):
            self._apply_pins(state, entry, payload_of(entry.content))
            state.last_edit = entry.seq if entry.kind != UNPINNED else state.last_edit
        elif entry.kind in (REFUSED, RETRIED):
            self._apply_refusal(state, entry)
        elif entry.kind in _STATUS:
            _apply_status(state, entry)
        elif entry.kind == SNAPSHOT:
            self.snapshots = max(self.snapshots, int((entry.key or "/0").rpartition("/")[2]))
            self.snapshot_at = entry.seq

    def _apply_refusal(self, state: WindowState, entry: Entry) -> None:
        seq = payload_of(entry.content)["entry"]
        seqs = _seqs([[seq, seq]], entry.seq)
        if entry.kind == REFUSED:
            state.refuse(seqs)
            self._messages.forget(seqs)
        else:
            with self._messages.taking_again():
                state.reinstate(self._messages_in(seqs))
        state.last_edit = entry.seq

    def _summary(self, decision: int) -> Summary | None:
        """The summary of a decision; None for 0."""
        entry = next(iter(self._store.read(self._session, decision, decision)), None) if decision else None
        return Summary.from_json(decision, payload_of(entry.content)["summary"]) if entry else None

    def _record(self, decision: int) -> WorkingRecord | None:
        """The working record of a decision; None for 0."""
        entry = next(iter(self._store.read(self._session, decision, decision)), None) if decision else None
        return WorkingRecord.from_json(payload_of(entry.content)["record"]) if entry else None

    def _apply_pins(self, state: WindowState, entry: Entry, payload: Mapping[str, Any]) -> None:
        if entry.kind == UNPINNED:
            state.pins -= set(payload["seqs"])
            return
        partners: list[int] = []
        if entry.kind == PINNED:
            restored = _seqs([[seq, seq] for seq in payload["seqs"]], entry.seq)
            partners = _seqs(payload.get("with", ()), entry.seq)
        else:
            shortened = [int(seq) for seq in payload["shrunk"]]
            restored = _seqs([*payload["left"], *([seq, seq] for seq in shortened)], entry.seq)
        restored = [seq for seq in restored if seq not in state.refused]
        missing = {seq for seq in (*restored, *partners) if entry.kind == RESTORED or seq not in state.messages}
        with self._messages.taking_again():
            messages = self._messages_in(sorted(missing))
        state.pins |= set(restored)
        if entry.kind == RESTORED:
            state.forget_merges(payload["decision"])
        state.restore(messages)
        if entry.kind == RESTORED and state.summary is not None and state.summary.decision_seq == payload["decision"]:
            state.summary = self._summary(payload.get("replaces", 0))
            state.shown_handoff = 0, 0
        if entry.kind == RESTORED and state.record_seq == payload["decision"]:
            state.record_seq = payload.get("record_before", 0)
            state.record = self._record(state.record_seq)

    def rest_of_steps(self, seqs: Iterable[int]) -> list[int]:
        """The entries that complete the steps of these messages: calls, their results, reasoning, commands and outputs.

        A call or result that is far away (`_MAX_STEP`) or was never stored is not found.
        """
        wanted = sorted(set(seqs))
        found = {seq for first, last in _nearby(wanted) for seq in self._steps_around(first, last, set(wanted))}
        return sorted(found.difference(wanted))

    def _steps_around(self, first: int, last: int, wanted: set[int]) -> set[int]:
        """The entries of all steps with a wanted message in a range, read in growing stretches around it."""
        margin, head = _GAP, self._store.head(self._session).seq
        while True:
            start, stop = max(first - margin, 1), min(last + margin, head)
            cache = MessageCache(meter=self._messages.meter, pointer_of=self._messages.pointer_of)
            lines = [
                cache.take(entry.seq, entry.id, entry.content, entry.wire, entry.tokens, role=entry.role)
                for entry in self._store.read(self._session, start, stop)
                if entry.kind == MESSAGE
            ]
            touched = [step for step in steps_in(lines) if not wanted.isdisjoint(step.seqs)]
            whole = all(step.is_complete for step in touched)
            if whole or margin >= _MAX_STEP or (start, stop) == (1, head):
                return {seq for step in touched for seq in step.seqs}
            margin *= 4

    def _messages_in(self, seqs: Sequence[int]) -> list[WindowMessage]:
        wanted = set(seqs)
        return [
            self._message(entry)
            for first, last in _nearby(seqs)
            for entry in self._store.read(self._session, first, last)
            if entry.kind == MESSAGE and entry.seq in wanted
        ]

    def _message(self, entry: Entry, message: Message | None = None) -> WindowMessage:
        tokens = entry.tokens if entry.counter == self._messages.meter.name else None
        return self._messages.take(entry.seq, entry.id, entry.content, entry.wire, tokens, message, entry.role)


def _nearby(seqs: Sequence[int]) -> list[list[int]]:
    """Ascending numbers as ranges to read; a few events between messages are cheaper to read than to skip."""
    ranges = ranges_of(seqs)
    for before, after in zip(ranges[-2::-1], ranges[:0:-1], strict=True):
        if after[0] - before[1] <= _GAP:
            before[1] = after[1]
            ranges.remove(after)
    return ranges


def _seqs(ranges: Iterable[Iterable[int]], before: int) -> list[int]:
    """The entries in ranges. Raises `ValueError` for an entry that is not before the event that names it."""
    pairs = [(first, last) for first, last in ranges]
    if any(not 0 < first <= last < before for first, last in pairs):
        raise ValueError("entries that are not there")
    return seqs_in(pairs)


def note_of(entry: Entry) -> Note | None:
    """The note that an event stores; None for one of another shape, which imported sessions may have."""
    payload = payload_of(entry.content)
    kind, text, level = payload.get("kind"), payload.get("text"), payload.get("level")
    if kind not in NOTE_KINDS or not isinstance(text, str):
        return None
    critical = payload.get("critical") is True
    return Note(
        seq=entry.seq, kind=kind, text=text, critical=critical, level=level if level in NOTE_LEVELS else "normal"
    )


def _apply_status(state: WindowState, entry: Entry) -> None:
    payload = payload_of(entry.content)
    if entry.kind == ZONE:
        state.zone = payload["after"]
    elif entry.kind == USAGE:
        state.reported_tokens, state.counted_tokens = payload["reported"], payload["counted"]
        state.warned_tokens = 0  # a report is newer
    elif entry.kind == ANNOUNCED:
        state.budget_levels[ANNOUNCED] = "warning"
    elif entry.kind in (CHECKPOINT, HANDOFF, REPLAYED):
        _apply_continuity(state, entry, payload)
    elif entry.kind == STANDING:
        state.standing_digest = payload["digest"]
    elif entry.kind == TOOLS_LEFT_OUT:
        state.left_out = left_out_tools(payload)
        state.use_tools(state.left_out.found, entry.seq)
    elif entry.kind == NOTE:
        note = note_of(entry)
        if note is not None:
            state.note(note)
    elif entry.kind == RECALL_JUDGED:
        helpful = {"helpful": True, "not_helpful": False, "withdrawn": None}[payload["verdict"]]
        state.judge(str(payload.get("pointer") or int(payload["entry"])), helpful=helpful)
    else:
        state.budget_levels[payload["component"]] = payload["level"]
        if entry.kind == VIOLATION and isinstance(payload.get("limit"), int):
            state.violated_limits[payload["component"]] = payload["limit"]


def _apply_continuity(state: WindowState, entry: Entry, payload: Mapping[str, Any]) -> None:
    if entry.kind == CHECKPOINT:
        if payload.get("reason") not in (BEGUN, CONTINUED):  # what these hold was said before any pressure
            state.budget_levels[CHECKPOINT] = "warning"
        version = payload.get("version")
        if isinstance(version, int) and 0 < version < 2**53:  # imported sessions may have their own
            state.checkpoints = version
    elif entry.kind == HANDOFF and payload.get("pending") is True:
        state.shown_handoff = entry.seq, 0  # pending until the next question
    elif entry.kind == REPLAYED and payload.get("to") != "host":
        state.shown_handoff = payload["handoff"], payload["question"]
