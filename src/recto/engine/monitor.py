"""How the turns of a session go, told while they happen and told again from the transcript: the same numbers.

Both come from one fold of the entries (`recto.health.metrics`). What a prompt was made of stands in the meta of the
message that answered it, and every so often the state of the fold stands beside it, so that a session that is opened
again goes on from there and reads only a few entries. Assistant messages without such numbers are no measured turns:
nobody knows what their prompt was made of.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from recto.engine.projection import DECISIONS, JUDGED, PINNED, RESTORED, SNAPSHOT, USAGE
from recto.engine.recall_injection import INJECTED, MISSED
from recto.errors import RectoError
from recto.formats import read
from recto.health.alerts import Alerting, AlertRules
from recto.health.metrics import Alert, Gone, Measures, PromptComposition, TurnHealth, call_mark
from recto.health.protocols import HealthSink
from recto.health.trends import HealthReport, report_of
from recto.transcript.entries import MESSAGE, Entry
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import pointer_to

NUMBERS = "prompt"
"""Where in an answer's meta it stands what its prompt was made of."""
CARRIED = "carried"
"""Where in there the state of the fold stands, as of the turn before."""
CARRY_EVERY = 32
"""Entries after which the state is written down again: how far back an opening has to read."""
REACH = 512
"""How far back it is looked for. Where nobody measured for so long, measuring begins anew, and says so."""
_NEAR = 2 * CARRY_EVERY
_MOST_TURNS = 10_000
_MOST_ENTRIES = 200_000
"""How far back a report looks at most."""
_LIVE_ENTRIES = 10_000
"""How far back one looks that somebody waits for."""
_UNMEASURED = 5_000
"""Entries in which nobody measured, after which it does not look on."""
_PAGE = 1_000
"""Entries read at a time when turns are looked for backwards."""
_ALERTS = "alerts"
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, RectoError)
"""What an event raises that only has the name of one of ours."""


class _Reading:
    """One session's fold: measures and alerts as of an entry."""

    def __init__(self, session: str, rules: AlertRules, regret_turns: int) -> None:
        self.session = session
        self.measures = Measures(regret_turns=regret_turns)
        self.alerting = Alerting(session, rules)
        self.at = 0
        """The last entry that is part of this."""
        self.carried_at = 0
        """The last answer that carried a state."""

    def take(self, entry: Entry) -> tuple[TurnHealth, list[Alert]] | None:
        """Takes in one entry; gives the turn that it ended, and what that raised."""
        self.at = entry.seq
        if entry.kind == MESSAGE:
            return self._message(entry)
        if entry.kind == INJECTED and not self.measures.gone:
            self.measures.recalled(())  # nothing has left lately: what came back is nothing to regret
        elif entry.kind in _READERS:
            with suppress(*_MALFORMED):
                _READERS[entry.kind](self, entry, json.loads(entry.content))
        return None

    def _message(self, entry: Entry) -> tuple[TurnHealth, list[Alert]] | None:
        if entry.role != "assistant":
            self.measures.came_in(entry.tokens)
            return None
        about = numbers_in(entry)
        made = PromptComposition.from_json(about)
        carried = about.get(CARRIED) if about and made else None
        if isinstance(carried, dict):
            self.carried_at = entry.seq
            if carried.get("after") == 0:
                self.measures.begin_anew()
                self.alerting.begin_anew()
        if any(gone.calls for gone in self.measures.gone):
            self.measures.called(_calls(entry))
        if made is None:
            self.measures.came_in(entry.tokens)
            return None
        turn = self.measures.answered(entry.seq, entry.ts, entry.tokens, made)
        return turn, self.alerting.after(turn)

    def _decision(self, entry: Entry, about: Mapping[str, Any]) -> None:
        self.measures.decided(_gone(entry.seq, about, self.measures.turn), int(about["frees"]))
        compression = about.get("compression")
        if compression:
            self.measures.compressed(int(compression["tokens_from"]), int(compression["tokens_to"]))
            score = compression.get("fidelity", {}).get("score")
            if score is not None:
                self.measures.scored(float(score))

    def _judged(self, entry: Entry, about: Mapping[str, Any]) -> None:
        self.measures.scored(float(about["score"]))

    def _recalled(self, entry: Entry, about: Mapping[str, Any]) -> None:
        own = pointer_to(self.session, 0).removesuffix("0")
        places = [str(hit["pointer"]).removeprefix(own) for hit in about["hits"]]
        self.measures.recalled([int(place) for place in places if place.isdecimal()])  # others' stay whole

    def _missed(self, entry: Entry, about: Mapping[str, Any]) -> None:
        self.measures.missed()

    def _pinned(self, entry: Entry, about: Mapping[str, Any]) -> None:
        self.measures.fetched(int(seq) for seq in about["seqs"])

    def _restored(self, entry: Entry, about: Mapping[str, Any]) -> None:
        self.measures.restored(int(about["decision"]))

    def _usage(self, entry: Entry, about: Mapping[str, Any]) -> None:
        told = int(about.get("cache_read", 0)), int(about.get("cache_write", 0))
        self.measures.reported(int(about["counted"]), int(about["reported"]), *told)

    def go_on(self, store: TranscriptStore, start: int, stop: int) -> Iterator[tuple[TurnHealth, list[Alert]]]:
        """Takes in a range of what is stored."""
        for entry in store.read(self.session, start, stop) if start <= stop else ():  # mostly there is nothing
            found = self.take(entry)
            if found is not None:
                yield found

    def take_up(self, store: TranscriptStore, entry: Entry, carried: Mapping[str, Any]) -> None:
        """Goes on from the state that an answer carries, before anything that came after that state."""
        if not carried["after"]:  # the answer itself says that measuring begins anew
            self.at, self.carried_at = entry.seq - 1, entry.seq
            return
        gone = []
        for seq, turn in carried["gone"]:
            decision = next(iter(store.read(self.session, seq, seq)), None)
            if decision is not None:
                gone.append(_gone(seq, json.loads(decision.content), turn))
        self.alerting.take_up(carried[_ALERTS])
        self.measures.take_up(carried, gone)
        self.at, self.carried_at = carried["after"], entry.seq

    def carried(self) -> dict[str, Any]:
        """The state as of the last turn."""
        return {**self.measures.carried(), _ALERTS: self.alerting.carried()}


_READERS: Mapping[str, Callable[[_Reading, Entry, Mapping[str, Any]], None]] = {
    **dict.fromkeys(DECISIONS, _Reading._decision),
    JUDGED: _Reading._judged,
    INJECTED: _Reading._recalled,
    MISSED: _Reading._missed,
    PINNED: _Reading._pinned,
    RESTORED: _Reading._restored,
    USAGE: _Reading._usage,
}


def numbers_in(entry: Entry) -> dict[str, Any] | None:
    """What the prompt was made of that an entry answers, as it is kept; None for an entry that answers none."""
    if entry.kind != MESSAGE or entry.role != "assistant" or b'"prompt"' not in entry.meta:
        return None
    with suppress(ValueError, AttributeError):
        found = json.loads(entry.meta).get(NUMBERS)
        return found if isinstance(found, dict) else None
    return None


def _carried_in(entry: Entry) -> dict[str, Any] | None:
    found = (numbers_in(entry) or {}).get(CARRIED)
    return found if isinstance(found, dict) and type(found.get("after")) is int else None


def _gone(seq: int, about: Mapping[str, Any], turn: int) -> Gone:
    left = tuple((int(first), int(last)) for first, last in about["left"])
    return Gone(seq=seq, turn=turn, left=left, calls=frozenset(map(str, about.get("gone", ()))))


def _calls(entry: Entry) -> list[str]:
    with suppress(*_MALFORMED):
        return [call_mark(part.name, part.text) for part in read(entry.content, entry.wire).calls]
    return []


@dataclass(frozen=True, slots=True)
class AlertsOnly:
    """Somebody who wants to hear of alerts and of nothing else."""

    callback: Callable[[Alert], object]

    def turn(self, session: str, turn: TurnHealth) -> None:
        """Not told."""

    def alert(self, alert: Alert) -> None:
        """Told."""
        self.callback(alert)

    def event(self, entry: Entry) -> None:
        """Not told."""


class Monitor:
    """Follows a session that is open, and tells whoever listens. Nothing it meets fails a turn."""

    def __init__(
        self,
        store: TranscriptStore,
        session: str,
        *,
        rules: AlertRules | None = None,
        regret_turns: int = 10,
        sinks: Sequence[HealthSink] = (),
    ) -> None:
        self.rules = rules or AlertRules()
        self.sinks = list(sinks)
        self.owned: Sequence[HealthSink] = ()
        """Those that are closed with it."""
        self.failures = 0
        """How often somebody who was to be told failed."""
        self._store = store
        self._session = session
        self._regret_turns = regret_turns
        self._turn = threading.Lock()
        self._reading: _Reading | None = None
        self._blank = False
        """Whether nothing was known of what was before when measuring began."""

    def kept_with(self, made: PromptComposition) -> dict[str, Any]:
        """What is kept in the meta of a prompt's answer: what it was made of, and sometimes the state so far."""
        about = made.to_json()
        with self._turn, self._safely():
            reading = self._opened()
            if self._blank and not reading.carried_at:
                about[CARRIED] = {"after": 0}
            elif reading.measures.last and reading.measures.last - reading.carried_at >= CARRY_EVERY:
                about[CARRIED] = reading.carried()
        return about

    def heard(self, entries: Sequence[Entry]) -> None:
        """This process has stored entries. What others stored meanwhile is taken in too, but they tell of it."""
        found: list[tuple[TurnHealth, list[Alert]]] = []
        with self._turn, self._safely():
            # until a turn ends nothing has to be known: most sessions are only written to
            if entries and (self._reading is not None or any(numbers_in(entry) for entry in entries)):
                reading = self._opened(entries[0].seq - 1)
                for entry in entries:
                    if entry.seq > reading.at:
                        deque(reading.go_on(self._store, reading.at + 1, entry.seq - 1), maxlen=0)
                        ended = reading.take(entry)
                        found += [ended] if ended is not None else []
        # told with nothing held: whoever is told may use the session
        for sink in self.sinks:
            for entry in entries:
                if entry.kind not in (MESSAGE, SNAPSHOT):
                    self._tell(sink.event, entry)
            for turn, alerts in found:
                self._tell(sink.turn, self._session, turn)
                for alert in alerts:
                    self._tell(sink.alert, alert)

    def report(self, turns: int, red: float) -> HealthReport:
        """How the session is, by its last turns."""
        return health_report(
            self._store,
            self._session,
            rules=self.rules,
            regret_turns=self._regret_turns,
            turns=turns,
            red=red,
            sinks_failed=self.failures,
            reach=_LIVE_ENTRIES,
        )

    def close(self) -> None:
        """Closes those it was given to close."""
        for sink in self.owned:
            self._tell(getattr(sink, "close", lambda: None))

    def _tell(self, call: Callable[..., object], *about: object) -> None:
        try:
            call(*about)
        except Exception:  # noqa: BLE001  # whoever listens may fail; the turn may not. It stands in the report.
            self.failures += 1

    @contextmanager
    def _safely(self) -> Iterator[None]:
        """A store that fails here has kept the message already: the fold is made anew when the next turn ends."""
        try:
            yield
        except RectoError:
            self.failures += 1
            self._reading = None

    def _opened(self, stop: int | None = None) -> _Reading:
        """The fold as of an entry; at first from the last state that was carried along."""
        if self._reading is None:
            reading = _Reading(self._session, self.rules, self._regret_turns)
            head = self._store.head(self._session).seq if stop is None else stop
            begun = _take_up(reading, self._store, head)
            self._blank = not begun
            deque(reading.go_on(self._store, reading.at + 1, head), maxlen=0)
            self._reading = reading
        return self._reading


def _take_up(reading: _Reading, store: TranscriptStore, head: int) -> bool:
    """Goes on from the last state that is carried near the end of a session; whether anything is known of it."""
    for reach in (_NEAR, REACH):
        for entry in reversed(list(store.read(reading.session, max(head - reach, 0) + 1, head))):
            carried = _carried_in(entry)
            if carried is not None:
                with suppress(*_MALFORMED):
                    reading.take_up(store, entry, carried)
                    return True
        if head <= reach:
            return True  # it is short enough to be read from its beginning
    reading.at = head
    return False


def health_of(
    store: TranscriptStore, session: str, *, rules: AlertRules | None = None, regret_turns: int = 10
) -> Iterator[tuple[TurnHealth, list[Alert]]]:
    """Every turn of a stored session and what it raised, made anew from its entries; in bounded memory."""
    reading = _Reading(session, rules or AlertRules(), regret_turns)
    return reading.go_on(store, 1, store.head(session).seq)


def health_report(
    store: TranscriptStore,
    session: str,
    *,
    rules: AlertRules | None = None,
    regret_turns: int = 10,
    turns: int = 20,
    red: float | None = None,
    sinks_failed: int = 0,
    reach: int = _MOST_ENTRIES,
) -> HealthReport:
    """How a stored session is, by its last turns; reads only as far back as they go, and not beyond `reach` entries."""
    reading = _Reading(session, rules or AlertRules(), regret_turns)
    head = store.head(session).seq
    wanted = min(max(turns, 1), _MOST_TURNS)
    floor, start = _before(store, session, head, wanted, reach)
    reading.at = floor
    with suppress(*_MALFORMED):
        if start is not None:
            reading.take_up(store, *start)
    last: deque[TurnHealth] = deque(maxlen=wanted)
    for turn, _ in reading.go_on(store, reading.at + 1, head):
        last.append(turn)
    return report_of(session, tuple(last), reading.alerting.active, red=red, sinks_failed=sinks_failed)


def _before(
    store: TranscriptStore, session: str, head: int, wanted: int, reach: int
) -> tuple[int, tuple[Entry, dict[str, Any]] | None]:
    """The newest state that is carried from before so many of the last turns, else the oldest one within reach.

    With it the entry behind which it was looked; there reading begins where no state is carried.
    """
    found, stop, floor, measured = 0, head, max(head - reach, 0), head
    oldest: tuple[Entry, dict[str, Any]] | None = None
    while stop > max(floor, measured - _UNMEASURED, 0):
        start = max(stop - _PAGE, floor)
        for entry in reversed(list(store.read(session, start + 1, stop))):
            if numbers_in(entry) is None:
                continue
            found, measured = found + 1, entry.seq
            carried = _carried_in(entry)
            oldest = (entry, carried) if carried is not None else oldest
            if carried is not None and (found >= wanted or carried["after"] == 0):
                return start, oldest
        stop = start
    return stop, oldest if stop else None  # all of a short one is read
