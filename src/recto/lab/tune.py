"""Tunes settings by replaying recorded sessions: candidates are tried on some sessions, and the best is judged on
others.

A candidate that is worse than the current settings on the first quarter of the sessions is dropped there, so that time
goes to the others. Only the best candidate is measured on the held-out sessions, so its result there is not the luck of
the best of many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, TypeAlias

from recto.errors import SettingsError
from recto.lab._tpe import Suggestions
from recto.lab.backtest import Backtest
from recto.lab.bootstrap import Interval, held_out, ratio_interval, shuffled
from recto.lab.objective import Candidate, Dimension, Goal, changed_values, cost_rise

Measure: TypeAlias = Callable[[Candidate, Sequence[int]], Sequence[Backtest]]
"""Replays sessions (by index) under a candidate; an empty candidate means the current settings."""
Verdict = Literal["better", "noise", "worse", "beyond", "nothing"]
"""`noise`: the gain may be chance. `beyond`: better, but the watched measure rose too far. `nothing`: no candidate was
better.
"""
_PARTS = (1 / 4, 1 / 2, 1.0)
"""Shares of the sessions after which a candidate is checked."""
_MIN_SEEN = 5
"""Sessions that every candidate sees before it can be dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A candidate that was tried."""

    number: int
    values: Candidate
    score: float
    """Below 1 is better than the current settings, on the sessions that it saw."""
    results: tuple[Backtest, ...] = ()
    """One per session, in order; fewer than all if it was dropped."""
    dropped: bool = False
    refused: bool = False
    """Whether the settings do not allow it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The gain of a candidate over the current settings, on some sessions."""

    sessions: int
    baseline: Backtest
    """Measures under the current settings."""
    chosen: Backtest
    baseline_rate: float
    chosen_rate: float
    interval: Interval
    """The decrease of the rate."""
    cost: float
    """The share by which prompts cost more."""
    excess: float
    """The rise of the watched measure beyond the allowance."""

    @property
    def share(self) -> float:
        """The gain as a share of the rate."""
        return self.interval.value / self.baseline_rate if self.baseline_rate else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneResult:
    """The result of a search."""

    verdict: Verdict
    trials: int
    dropped: int
    refused: int
    stopped: bool
    """Whether the user stopped the search."""
    tried_on: int
    held_out: int
    """Sessions on either side."""
    values: Candidate
    """The chosen values that differ from the current settings, by name; empty if nothing was chosen."""
    gain: Gain | None = None
    """On the held-out sessions; None if there was no candidate."""
    tried_gain: Gain | None = None
    """On the sessions it was chosen by, where it is biased upwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """How long to search, and callbacks."""

    trials: int = 40
    seed: int = 0
    held_out: float = 0.3
    is_done: Callable[[], bool] = lambda: False
    """Called before each trial: whether time is up."""
    on_trial: Callable[[Trial], object] = lambda trial: None
    """Called after each trial."""
    on_judging: Callable[[bool], object] = lambda stopped: None
    """Called when the search has ended and the best is judged, with whether the user stopped it."""


def tune(
    measure: Measure, keys: Sequence[str], space: Sequence[Dimension], goal: Goal, options: SearchOptions
) -> TuneResult:
    """Searches, chooses one candidate, and judges it. Sessions with the same key are never on both sides.

    Ctrl-C ends the search and judges the best so far; before the baseline is measured it is raised again.
    """
    held_out_keys = held_out(keys, options.held_out, options.seed)
    order = {key: place for place, key in enumerate(shuffled(keys, options.seed))}
    places = sorted(range(len(keys)), key=lambda place: (order[keys[place]], place))
    search = _Search(measure, [place for place in places if keys[place] not in held_out_keys], goal)
    search.measure_baseline()
    stopped = False
    try:
        search.run(space, options)
    except KeyboardInterrupt:
        stopped = True
    judged_places = [place for place in places if keys[place] in held_out_keys]
    result = TuneResult(
        verdict="nothing",
        trials=search.trials,
        dropped=search.dropped,
        refused=search.refused,
        stopped=stopped,
        tried_on=len(search.places),
        held_out=len(judged_places),
        values={},
    )
    best = search.best
    if best is None:
        return result
    options.on_judging(stopped)
    tried_gain = _gain(goal, [keys[place] for place in search.places], search.baseline, best.results, options.seed)
    baseline, chosen = measure({}, judged_places), measure(best.values, judged_places)
    gain = _gain(goal, [keys[place] for place in judged_places], baseline, chosen, options.seed)
    values = changed_values(space, best.values)
    return replace(result, verdict=_verdict(gain), values=values, gain=gain, tried_gain=tried_gain)


class _Search:
    """Tries candidates on the sessions that are not held out."""

    def __init__(self, measure: Measure, places: Sequence[int], goal: Goal) -> None:
        self.places = places
        self.baseline: Sequence[Backtest] = ()
        self.trials = self.dropped = self.refused = 0
        self.best: Trial | None = None
        """The best candidate that saw all sessions and beats the current settings there."""
        self._measure = measure
        self._goal = goal
        self._ends = sorted({min(max(round(len(places) * part), _MIN_SEEN), len(places)) for part in _PARTS})

    def measure_baseline(self) -> None:
        """Measures the current settings."""
        self.baseline = self._measure({}, self.places)

    def run(self, space: Sequence[Dimension], options: SearchOptions) -> None:
        """Tries candidates until the limit."""
        suggestions = Suggestions(space, options.seed)
        while self.trials < options.trials and not options.is_done():
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
            options.on_trial(trial)

    def _try(self, values: Candidate) -> Trial:
        number, results, score = self.trials + 1, list[Backtest](), 1.0
        for end in self._ends:
            try:
                results += self._measure(values, self.places[len(results) : end])
            except SettingsError:
                return Trial(number=number, values=values, score=score, refused=True)
            score = self._goal.score(self.baseline[:end], results)
            if end < self._ends[-1] and score >= self._bar(end):
                return Trial(number=number, values=values, score=score, results=tuple(results), dropped=True)
        return Trial(number=number, values=values, score=score, results=tuple(results))

    def _bar(self, end: int) -> float:
        """Returns the score to beat: that of the current settings at first, then of the best on the same sessions."""
        if self.best is None or end == self._ends[0]:
            return 1.0
        return self._goal.score(self.baseline[:end], self.best.results[:end])


def _gain(goal: Goal, keys: Sequence[str], baseline: Sequence[Backtest], chosen: Sequence[Backtest], seed: int) -> Gain:
    """Computes the gain. Sessions with the same key count as one, because they are not independent."""
    rows = sorted(zip(keys, baseline, chosen, strict=True), key=lambda row: row[0])
    numerators, denominators = list[float](), list[float]()
    for _, group in groupby(rows, key=lambda row: row[0]):
        sessions = list(group)
        numerators.append(sum(goal.numerator(before) - goal.numerator(after) for _, before, after in sessions))
        denominators.append(sum(goal.denominator(before) for _, before, _ in sessions))
    return Gain(
        sessions=len(rows),
        baseline=sum(baseline, Backtest()),
        chosen=sum(chosen, Backtest()),
        baseline_rate=goal.rate(baseline),
        chosen_rate=goal.rate(chosen),
        interval=ratio_interval(numerators, denominators, seed=seed),
        cost=cost_rise(baseline, chosen),
        excess=goal.excess(baseline, chosen),
    )


def _verdict(gain: Gain) -> Verdict:
    if gain.interval.below_zero:
        return "worse"
    if not gain.interval.above_zero:
        return "noise"
    return "beyond" if gain.excess else "better"
