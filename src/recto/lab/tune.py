"""Settings tuned by going through recorded sessions again: tried on some sessions, judged once on others.

A candidate that does worse than the settings as they are on the first quarter of the sessions is dropped there, so that
time goes to the others. The best on all of them is the only one that is ever measured on sessions that were held out:
what is told of it there is not the luck of the best of many. How a candidate is measured, and what its values mean, is
not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, TypeAlias

from recto.errors import SettingsError
from recto.lab.backtest import Backtest
from recto.lab.bootstrap import Interval, drawn, held_out, ratio_interval
from recto.lab.objective import Candidate, Dimension, Goal, changed, cost_rise
from recto.lab.tpe import Suggestions

Measure: TypeAlias = Callable[[Candidate, Sequence[int]], Sequence[Backtest]]
"""What sessions come to under a candidate; an empty one is the settings as they are. Sessions by their places."""
Verdict = Literal["better", "noise", "worse", "beyond", "nothing"]
"""`noise`: it may be chance. `beyond`: better, but what is watched rose too far. `nothing`: none was any better."""
_PARTS = (1 / 4, 1 / 2, 1.0)
"""After which shares of the sessions a candidate is looked at."""
_FEW = 5
"""Sessions of which no candidate is dropped before it has seen them: fewer say too little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One candidate that was tried."""

    number: int
    values: Candidate
    score: float
    """Less than 1 is better than the settings as they are, on the sessions that it saw."""
    results: tuple[Backtest, ...] = ()
    """On each session, in the order of trying; fewer than all where it was dropped."""
    dropped: bool = False
    refused: bool = False
    """Whether the settings did not allow it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What a candidate gains over the settings as they are, on some sessions."""

    sessions: int
    given: Backtest
    """What they came to under the settings as they are."""
    chosen: Backtest
    given_rate: float
    chosen_rate: float
    interval: Interval
    """By how much the rate falls."""
    cost: float
    """The share by which prompts cost more."""
    excess: float
    """By how much more than allowed what is watched rose."""

    @property
    def share(self) -> float:
        """The part of the rate that is gained."""
        return self.interval.value / self.given_rate if self.given_rate else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What came of it."""

    verdict: Verdict
    trials: int
    dropped: int
    refused: int
    stopped: bool
    """Whether somebody stopped the search before its end."""
    tried_on: int
    held_out: int
    """Sessions on either side."""
    values: Candidate
    """What was chosen, by name: only what differs from the settings as they are. Empty where nothing was."""
    gain: Gain | None = None
    """On sessions that were held out; None where there was nothing to judge."""
    tried_gain: Gain | None = None
    """On those that it was chosen by, where it is flattered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is done, and when it ends."""

    trials: int = 40
    seed: int = 0
    held_out: float = 0.3
    enough: Callable[[], bool] = lambda: False
    """Asked before each trial: whether time is up."""
    told: Callable[[Trial], object] = lambda trial: None
    """Told of each trial."""
    judging: Callable[[bool], object] = lambda stopped: None
    """Told when the search has ended and the best is judged; with whether somebody stopped it."""


def tune(measure: Measure, keys: Sequence[str], space: Sequence[Dimension], goal: Goal, effort: Effort) -> Tuned:
    """Searches, chooses one candidate, and judges it. Sessions with one key are never on both sides.

    Ctrl-C ends the search and judges the best so far; before there is anything to compare with it is raised again.
    """
    aside = held_out(keys, effort.held_out, effort.seed)
    order = {key: place for place, key in enumerate(drawn(keys, effort.seed))}
    places = sorted(range(len(keys)), key=lambda place: (order[keys[place]], place))
    search = _Search(measure, [place for place in places if keys[place] not in aside], goal)
    search.begin()
    stopped = False
    try:
        search.run(space, effort)
    except KeyboardInterrupt:
        stopped = True
    judged = [place for place in places if keys[place] in aside]
    found = Tuned(
        verdict="nothing",
        trials=search.trials,
        dropped=search.dropped,
        refused=search.refused,
        stopped=stopped,
        tried_on=len(search.places),
        held_out=len(judged),
        values={},
    )
    best = search.best
    if best is None:
        return found
    effort.judging(stopped)
    tried = _gain(goal, [keys[place] for place in search.places], search.given, best.results, effort.seed)
    given, chosen = measure({}, judged), measure(best.values, judged)
    gain = _gain(goal, [keys[place] for place in judged], given, chosen, effort.seed)
    values = changed(space, best.values)
    return replace(found, verdict=_verdict(gain), values=values, gain=gain, tried_gain=tried)


class _Search:
    """Tries candidates on the sessions that are there for it."""

    def __init__(self, measure: Measure, places: Sequence[int], goal: Goal) -> None:
        self.places = places
        self.given: Sequence[Backtest] = ()
        self.trials = self.dropped = self.refused = 0
        self.best: Trial | None = None
        """The best that saw all sessions and is better there than the settings as they are."""
        self._measure = measure
        self._goal = goal
        self._ends = sorted({min(max(round(len(places) * part), _FEW), len(places)) for part in _PARTS})

    def begin(self) -> None:
        """Measures the settings as they are."""
        self.given = self._measure({}, self.places)

    def run(self, space: Sequence[Dimension], effort: Effort) -> None:
        """Tries one candidate after the other."""
        suggestions = Suggestions(space, effort.seed)
        while self.trials < effort.trials and not effort.enough():
            trial = self._try(suggestions.ask())
            if trial.refused:
                suggestions.refused()
            else:
                suggestions.tell(trial.score, len(trial.results) if trial.dropped else 0)
            self.trials += 1
            self.dropped += trial.dropped
            self.refused += trial.refused
            if not trial.dropped and not trial.refused and trial.score < (self.best.score if self.best else 1.0):
                self.best = trial
            effort.told(trial)

    def _try(self, values: Candidate) -> Trial:
        number, results, score = self.trials + 1, list[Backtest](), 1.0
        for end in self._ends:
            try:
                results += self._measure(values, self.places[len(results) : end])
            except SettingsError:
                return Trial(number=number, values=values, score=score, refused=True)
            score = self._goal.score(self.given[:end], results)
            if end < self._ends[-1] and score >= self._bar(end):
                return Trial(number=number, values=values, score=score, results=tuple(results), dropped=True)
        return Trial(number=number, values=values, score=score, results=tuple(results))

    def _bar(self, end: int) -> float:
        """What must be beaten: at first the settings as they are, then the best so far on the same sessions."""
        if self.best is None or end == self._ends[0]:
            return 1.0
        return self._goal.score(self.given[:end], self.best.results[:end])


def _gain(goal: Goal, keys: Sequence[str], given: Sequence[Backtest], chosen: Sequence[Backtest], seed: int) -> Gain:
    """Sessions with one key count as one: they are not independent."""
    rows = sorted(zip(keys, given, chosen, strict=True), key=lambda row: row[0])
    parts, wholes = list[float](), list[float]()
    for _, some in groupby(rows, key=lambda row: row[0]):
        sessions = list(some)
        parts.append(sum(goal.part(before) - goal.part(after) for _, before, after in sessions))
        wholes.append(sum(goal.whole(before) for _, before, _ in sessions))
    return Gain(
        sessions=len(rows),
        given=sum(given, Backtest()),
        chosen=sum(chosen, Backtest()),
        given_rate=goal.rate(given),
        chosen_rate=goal.rate(chosen),
        interval=ratio_interval(parts, wholes, seed=seed),
        cost=cost_rise(given, chosen),
        excess=goal.excess(given, chosen),
    )


def _verdict(gain: Gain) -> Verdict:
    if gain.interval.below_zero:
        return "worse"
    if not gain.interval.above_zero:
        return "noise"
    return "beyond" if gain.excess else "better"
