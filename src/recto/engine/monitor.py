"""Health monitor: measures the turns of a session while they happen, or later from the transcript, with the same
result.

Both use one fold of the entries (`recto.health.metrics`). The composition of a prompt is stored in the meta of the
message that answered it; every so often the state of the fold is stored there too, so that a reopened session reads
only a few entries. Assistant messages without a composition are not measured turns.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from msgspec import Struct

from recto.engine.projection import DECISIONS, JUDGED, PINNED, RESTORED, SNAPSHOT, USAGE
from recto.engine.recall_injection import INJECTED, MISSED
from recto.errors import RectoError
from recto.formats import read
from recto.health.alerts import AlertRules, AlertTracker
from recto.health.metrics import (
    Alert,
    EvictionRecord,
    PromptComposition,
    SearchHealth,
    TurnAccumulator,
    TurnHealth,
    call_fingerprint,
)
from recto.health.protocols import HealthSink, SearchSink
from recto.health.trends import HealthReport, make_report
from recto.recall.types import SearchResult
from recto.transcript.entries import MESSAGE, Clock, Entry, payload_of, to_json
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import pointer_to

COMPOSITION = "prompt"
"""Key in an answer's meta under which the composition of its prompt is stored."""
STATE = "carried"
"""Key in there under which the state of the fold as of the previous turn is stored."""
STATE_INTERVAL = 32
"""Entries after which the state is stored again: how far back opening a session has to read."""
STATE_LOOKBACK = 512
"""How far back a state is searched. If there is none, measuring starts over, and the next state records that."""
_SHORT_LOOKBACK = 2 * STATE_INTERVAL
_MAX_TURNS = 10_000
_MAX_ENTRIES = 200_000
"""How far back a report reads at most."""
_LIVE_ENTRIES = 10_000
"""How far back a report of an open session reads."""
_MAX_UNMEASURED = 5_000
"""Stop searching after this many entries without a measured turn."""
_PAGE = 1_000
"""Entries read at a time when searching backwards."""
_ALERTS = "alerts"
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, RectoError)
"""What events with a known kind but foreign content raise."""


_Announced = tuple[bytes, dict[str, Any]]
"""A meta, and the composition in it."""


class _HealthFold:
    """The fold of one session: metrics and alerts as of an entry."""

    def __init__(self, session: str, rules: AlertRules, regret_turns: int) -> None:
        self.session = session
        self.accumulator = TurnAccumulator(regret_turns=regret_turns)
        self.alerts = AlertTracker(session, rules)
        self.last_seq = 0
        """The last entry folded."""
        self.state_seq = 0
        """The last answer that stored a state."""

    def apply(self, entry: Entry, announced: _Announced | None = None) -> tuple[TurnHealth, list[Alert]] | None:
        """Fold one entry; return the turn that it ended and its alerts. The meta in `announced` need not be parsed."""
        self.last_seq = entry.seq
        if entry.kind == MESSAGE:
            return self._message(entry, announced)
        if entry.kind == INJECTED and not self.accumulator.evictions:
            self.accumulator.add_recall(())  # nothing was evicted lately, so there is nothing to regret
        elif entry.kind in _READERS:
            with suppress(*_MALFORMED):
                _READERS[entry.kind](self, entry, payload_of(entry.content))
        return None

    def _message(self, entry: Entry, announced: _Announced | None) -> tuple[TurnHealth, list[Alert]] | None:
        if entry.role != "assistant":
            self.accumulator.add_message(entry.tokens)
            self._results(entry)
            return None
        stored = announced[1] if announced is not None and entry.meta is announced[0] else composition_in(entry)
        composition = PromptComposition.from_json(stored, pieces=False)  # for every turn
        state = stored.get(STATE) if stored and composition else None
        if isinstance(state, dict):
            self.state_seq = entry.seq
            if state.get("after") == 0:
                self.accumulator.reset()
                self.alerts.reset()
        calls = _calls(entry)
        self.accumulator.repetition.add_calls(calls)
        if any(eviction.calls for eviction in self.accumulator.evictions):
            self.accumulator.add_calls(calls.values())
        if composition is None:
            self.accumulator.add_message(entry.tokens)
            return None
        turn = self.accumulator.end_turn(entry.seq, entry.ts, entry.tokens, composition)
        return turn, self.alerts.update(turn)

    def _results(self, entry: Entry) -> None:
        """Count the results of repeated calls. A message of the user starts over."""
        repetition = self.accumulator.repetition
        if entry.role == "system" or not (repetition.pending or repetition.recent):
            return
        with suppress(*_MALFORMED):
            message = read(entry.content, entry.wire)
            if entry.role == "user" and not message.results:
                repetition.reset()
            # an image is not compared: two screenshots count as different
            unlike = entry.id if any(part.kind in ("image", "media") for part in message.parts) else ""
            for part in message.results:
                repetition.add_result(part.call_id, part.text + unlike)

    def _decision(self, entry: Entry, payload: Mapping[str, Any]) -> None:
        self.accumulator.add_decision(_eviction(entry.seq, payload, self.accumulator.turn), int(payload["frees"]))
        compression = payload.get("compression")
        if compression:
            self.accumulator.add_compression(int(compression["tokens_from"]), int(compression["tokens_to"]))
            score = compression.get("fidelity", {}).get("score")
            if score is not None:
                self.accumulator.add_score(float(score))

    def _judged(self, entry: Entry, payload: Mapping[str, Any]) -> None:
        self.accumulator.add_score(float(payload["score"]))

    def _recalled(self, entry: Entry, payload: Mapping[str, Any]) -> None:
        own_prefix = pointer_to(self.session, 0).removesuffix("0")
        seqs = [str(hit["pointer"]).removeprefix(own_prefix) for hit in payload["hits"]]
        # Pointers to other sessions are skipped: their entries were not evicted here.
        self.accumulator.add_recall([int(seq) for seq in seqs if seq.isdecimal()])

    def _missed(self, entry: Entry, payload: Mapping[str, Any]) -> None:
        self.accumulator.add_recall_miss()

    def _pinned(self, entry: Entry, payload: Mapping[str, Any]) -> None:
        self.accumulator.add_fetch(int(seq) for seq in payload["seqs"])

    def _restored(self, entry: Entry, payload: Mapping[str, Any]) -> None:
        self.accumulator.add_restore(int(payload["decision"]))

    def _usage(self, entry: Entry, payload: Mapping[str, Any]) -> None:
        cache = int(payload.get("cache_read", 0)), int(payload.get("cache_write", 0))
        self.accumulator.add_usage(int(payload["counted"]), int(payload["reported"]), *cache)

    def fold(self, store: TranscriptStore, start: int, stop: int) -> Iterator[tuple[TurnHealth, list[Alert]]]:
        """Fold a range of stored entries; yield the turns they ended."""
        for entry in store.read(self.session, start, stop) if start <= stop else ():  # usually empty
            ended = self.apply(entry)
            if ended is not None:
                yield ended

    def load_state(self, store: TranscriptStore, entry: Entry, state: Mapping[str, Any]) -> None:
        """Restore the state stored with an answer; entries after that state are folded next."""
        if not state["after"]:  # this answer records that measuring started over
            self.last_seq, self.state_seq = entry.seq - 1, entry.seq
            return
        evictions = []
        for seq, turn in state["gone"]:
            decision = next(iter(store.read(self.session, seq, seq)), None)
            if decision is not None:
                evictions.append(_eviction(seq, payload_of(decision.content), turn))
        self.alerts.load_state(state[_ALERTS])
        self.accumulator.load_state(state, evictions)
        self.last_seq, self.state_seq = state["after"], entry.seq

    def to_state(self) -> dict[str, Any]:
        """Serialise the state as of the last turn."""
        return {**self.accumulator.to_state(), _ALERTS: self.alerts.to_state()}


_READERS: Mapping[str, Callable[[_HealthFold, Entry, Mapping[str, Any]], None]] = {
    **dict.fromkeys(DECISIONS, _HealthFold._decision),
    JUDGED: _HealthFold._judged,
    INJECTED: _HealthFold._recalled,
    MISSED: _HealthFold._missed,
    PINNED: _HealthFold._pinned,
    RESTORED: _HealthFold._restored,
    USAGE: _HealthFold._usage,
}


def composition_in(entry: Entry) -> dict[str, Any] | None:
    """Return the stored composition of the prompt that an entry answers; None if it answers none."""
    if entry.kind != MESSAGE or entry.role != "assistant" or b'"prompt"' not in entry.meta:
        return None
    with suppress(ValueError, AttributeError):
        composition = json.loads(entry.meta).get(COMPOSITION)
        return composition if isinstance(composition, dict) else None
    return None


def _state_in(entry: Entry) -> dict[str, Any] | None:
    state = (composition_in(entry) or {}).get(STATE)
    return state if isinstance(state, dict) and type(state.get("after")) is int else None


def _eviction(seq: int, payload: Mapping[str, Any], turn: int) -> EvictionRecord:
    ranges = tuple((int(first), int(last)) for first, last in payload["left"])
    return EvictionRecord(seq=seq, turn=turn, ranges=ranges, calls=frozenset(map(str, payload.get("gone", ()))))


def _calls(entry: Entry) -> dict[str, str]:
    """Fingerprints of the tool calls in an assistant message, by call id."""
    with suppress(*_MALFORMED):
        calls = read(entry.content, entry.wire).calls
        return {part.call_id: call_fingerprint(part.name, part.text) for part in calls}
    return {}


class AlertsOnly(Struct, frozen=True):
    """A sink that passes alerts to a callback and ignores everything else."""

    callback: Callable[[Alert], object]

    def turn(self, session: str, turn: TurnHealth) -> None:
        """Ignored."""

    def alert(self, alert: Alert) -> None:
        """Call the callback."""
        self.callback(alert)

    def event(self, entry: Entry) -> None:
        """Ignored."""


class Monitor:
    """Measures an open session and reports to its sinks. Its errors never fail a turn."""

    def __init__(
        self,
        store: TranscriptStore,
        session: str,
        *,
        rules: AlertRules | None = None,
        regret_turns: int = 10,
        sinks: Sequence[HealthSink] = (),
        owned: Sequence[HealthSink] = (),
    ) -> None:
        self.rules = rules or AlertRules()
        self.sinks = [*owned, *sinks]
        self.owned = tuple(owned)
        """Sinks that are closed with the monitor."""
        self.failures = 0
        """How often a sink failed."""
        self._store = store
        self._session = session
        self._regret_turns = regret_turns
        self._turn = threading.Lock()
        self._fold: _HealthFold | None = None
        self._starts_over = False
        """Whether no earlier state was found when measuring began."""
        self._announced: _Announced = b"", {}
        """The last meta that was made here: that of the answer which comes with it is not parsed."""

    def meta_for(self, composition: PromptComposition, meta: Mapping[str, Any]) -> bytes:
        """Return the meta of a prompt's answer: with the composition of the prompt, and at intervals the state."""
        payload = composition.to_json()
        with self._turn, self._safely():
            fold = self._open_fold()
            if self._starts_over and not fold.state_seq:
                payload[STATE] = {"after": 0}
            elif fold.accumulator.last and fold.accumulator.last - fold.state_seq >= STATE_INTERVAL:
                payload[STATE] = fold.to_state()
        encoded = to_json({**meta, COMPOSITION: payload})
        self._announced = encoded, payload
        return encoded

    def record(self, entries: Sequence[Entry]) -> None:
        """Fold entries that this process stored. Entries stored by others meanwhile are folded too, but their processes
        report them."""
        ended_turns: list[tuple[TurnHealth, list[Alert]]] = []
        with self._turn, self._safely():
            # until a turn ends no state is needed: most sessions are only written to
            if entries and (self._fold is not None or any(composition_in(entry) for entry in entries)):
                fold = self._open_fold(entries[0].seq - 1)
                for entry in entries:
                    if entry.seq > fold.last_seq:
                        deque(fold.fold(self._store, fold.last_seq + 1, entry.seq - 1), maxlen=0)
                        ended = fold.apply(entry, self._announced)
                        ended_turns += [ended] if ended is not None else []
        # outside the lock: a sink may use the session
        for sink in self.sinks:
            for entry in entries:
                if entry.kind not in (MESSAGE, SNAPSHOT):
                    self._call_sink(sink.event, entry)
            for turn, alerts in ended_turns:
                self._call_sink(sink.turn, self._session, turn)
                for alert in alerts:
                    self._call_sink(sink.alert, alert)

    def search(self, search: Callable[[], SearchResult], most: int, clock: Clock) -> SearchResult:
        """Run a search of the history, and report it where a sink receives searches. `most` is its limit."""
        sinks = [sink for sink in self.sinks if isinstance(sink, SearchSink)]
        if not sinks:
            return search()
        began = clock.now()
        try:
            result = search()
        except RectoError as error:
            failed = SearchHealth(most=most, began=began, ended=clock.now(), error=type(error).__name__)
            for sink in sinks:
                self._call_sink(sink.searched, self._session, failed)
            raise
        measured = SearchHealth(
            scope=result.scope,
            most=most,
            hits=len(result.hits),
            searched=result.searched,
            began=began,
            ended=clock.now(),
        )
        for sink in sinks:
            self._call_sink(sink.searched, self._session, measured)
        return result

    def report(self, turns: int, red: float) -> HealthReport:
        """Report the health of the session over its last turns."""
        return health_report(
            self._store,
            self._session,
            rules=self.rules,
            regret_turns=self._regret_turns,
            turns=turns,
            red=red,
            sinks_failed=self.failures,
            max_entries=_LIVE_ENTRIES,
        )

    def close(self) -> None:
        """Close the owned sinks."""
        for sink in self.owned:
            self._call_sink(getattr(sink, "close", lambda: None))

    def _call_sink(self, call: Callable[..., object], *arguments: object) -> None:
        try:
            call(*arguments)
        except Exception:  # noqa: BLE001  # a sink may fail, the turn may not; the report counts failures
            self.failures += 1

    @contextmanager
    def _safely(self) -> Iterator[None]:
        """Ignore store errors: the message is already stored, and the fold is rebuilt when the next turn ends."""
        try:
            yield
        except RectoError:
            self.failures += 1
            self._fold = None

    def _open_fold(self, stop: int | None = None) -> _HealthFold:
        """Return the fold as of an entry, restored from the last stored state the first time."""
        if self._fold is None:
            fold = _HealthFold(self._session, self.rules, self._regret_turns)
            head = self._store.head(self._session).seq if stop is None else stop
            restored = _restore(fold, self._store, head)
            self._starts_over = not restored
            deque(fold.fold(self._store, fold.last_seq + 1, head), maxlen=0)
            self._fold = fold
        return self._fold


def _restore(fold: _HealthFold, store: TranscriptStore, head: int) -> bool:
    """Restore the last state stored near the end of a session; returns whether the earlier history is known."""
    for lookback in (_SHORT_LOOKBACK, STATE_LOOKBACK):
        for entry in reversed(list(store.read(fold.session, max(head - lookback, 0) + 1, head))):
            state = _state_in(entry)
            if state is not None:
                with suppress(*_MALFORMED):
                    fold.load_state(store, entry, state)
                    return True
        if head <= lookback:
            return True  # short enough to be read from its beginning
    fold.last_seq = head
    return False


def health_of(
    store: TranscriptStore, session: str, *, rules: AlertRules | None = None, regret_turns: int = 10
) -> Iterator[tuple[TurnHealth, list[Alert]]]:
    """Yield every turn of a stored session and its alerts, recomputed from its entries in bounded memory."""
    fold = _HealthFold(session, rules or AlertRules(), regret_turns)
    return fold.fold(store, 1, store.head(session).seq)


def health_report(
    store: TranscriptStore,
    session: str,
    *,
    rules: AlertRules | None = None,
    regret_turns: int = 10,
    turns: int = 20,
    red: float | None = None,
    sinks_failed: int = 0,
    max_entries: int = _MAX_ENTRIES,
) -> HealthReport:
    """Report the health of a stored session over its last turns. Reads only as far back as needed, at most `reach`
    entries."""
    fold = _HealthFold(session, rules or AlertRules(), regret_turns)
    head = store.head(session).seq
    turn_limit = min(max(turns, 1), _MAX_TURNS)
    floor, start = _find_start(store, session, head, turn_limit, max_entries)
    fold.last_seq = floor
    with suppress(*_MALFORMED):
        if start is not None:
            fold.load_state(store, *start)
    last: deque[TurnHealth] = deque(maxlen=turn_limit)
    for turn, _ in fold.fold(store, fold.last_seq + 1, head):
        last.append(turn)
    return make_report(session, tuple(last), fold.alerts.active, red=red, sinks_failed=sinks_failed)


def _find_start(
    store: TranscriptStore, session: str, head: int, turn_limit: int, max_entries: int
) -> tuple[int, tuple[Entry, dict[str, Any]] | None]:
    """Find the newest state stored before the last `turn_limit` turns, else the oldest within `max_entries`.

    Returns it with the entry after which the search ended; without a state, reading begins there.
    """
    turns_seen, stop, floor, measured = 0, head, max(head - max_entries, 0), head
    oldest: tuple[Entry, dict[str, Any]] | None = None
    while stop > max(floor, measured - _MAX_UNMEASURED, 0):
        start = max(stop - _PAGE, floor)
        for entry in reversed(list(store.read(session, start + 1, stop))):
            if composition_in(entry) is None:
                continue
            turns_seen, measured = turns_seen + 1, entry.seq
            state = _state_in(entry)
            oldest = (entry, state) if state is not None else oldest
            if state is not None and (turns_seen >= turn_limit or state["after"] == 0):
                return start, oldest
        stop = start
    return stop, oldest if stop else None  # a short session is read in full
