"""Results of replays: one file in one way, summed over files, and compared with the baseline.

A way is a mode with a policy, or a baseline.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from recto.lab.backtest import Backtest, ReplayedTurn

MOST_POINTS = 400
"""Points of a curve. With more turns, each point is the largest prompt of an interval."""
_SHARES = ("share", "regret_rate", "survival")
_COUNTS = ("regret", "met", "missed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to keep a session inside a context window."""

    name: str
    mode: str | None = None
    """None for a baseline that does not use Recto."""
    policy: str | None = None
    """None if the mode uses no policy."""
    is_baseline: bool = False
    """Whether the other ways are compared with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Prompt sizes of one session over its turns."""

    turns: int
    input_budget: int
    tokens: tuple[int | None, ...]
    """At most `MOST_POINTS` values, evenly spaced over the turns; None for an interval in which every prompt was
    refused.
    """

    @property
    def largest(self) -> int:
        """The largest prompt."""
        return max((size for size in self.tokens if size is not None), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantOutcome:
    """The result of one file in one way."""

    place: int
    """The index of the file; two files may have the same name."""
    file: str
    way: Way
    result: Backtest
    curve: Curve | None = None
    """Curve of the file's longest session, if requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantSummary:
    """The result of all files in one way."""

    way: Way
    result: Backtest
    against: Backtest | None = None
    """The baseline's result; None without a baseline, and for the baseline itself."""


class PromptSizes:
    """Collects the prompt sizes of a session, a few bytes per turn."""

    def __init__(self) -> None:
        self._tokens: list[int | None] = []
        self._input_budget = 0

    def __len__(self) -> int:
        return len(self._tokens)

    def take(self, turn: ReplayedTurn) -> None:
        """Adds a turn."""
        self._tokens.append(None if turn.refused else turn.tokens)
        self._input_budget = max(self._input_budget, turn.input_budget)

    def curve(self) -> Curve | None:
        """Returns the curve; None if there was no turn."""
        if not self._tokens:
            return None
        points = min(len(self), MOST_POINTS)
        edges = [len(self) * place // points for place in range(points + 1)]
        tokens = tuple(_largest(self._tokens[begin:end]) for begin, end in pairwise(edges))
        return Curve(turns=len(self), input_budget=self._input_budget, tokens=tokens)


def _largest(sizes: Iterable[int | None]) -> int | None:
    return max((size for size in sizes if size is not None), default=None)


def summarize(outcomes: Sequence[VariantOutcome]) -> list[VariantSummary]:
    """Sums the results of each way over all files, in order of first appearance."""
    sums: dict[Way, Backtest] = {}
    for outcome in outcomes:
        sums[outcome.way] = sums[outcome.way] + outcome.result if outcome.way in sums else outcome.result
    baseline = next((result for way, result in sums.items() if way.is_baseline), None)
    return [
        VariantSummary(way=way, result=result, against=None if way.is_baseline else baseline)
        for way, result in sums.items()
    ]


def has_overflow(outcomes: Iterable[VariantOutcome]) -> bool:
    """Returns whether a prompt exceeded the window or was refused; baselines are ignored."""
    return any(outcome.result.over or outcome.result.refused for outcome in outcomes if not outcome.way.is_baseline)


def dollars(result: Backtest) -> float | None:
    """Returns the cost in dollars; None if the prices are unknown."""
    return None if result.picodollars is None else round(result.picodollars / 1e12, 6)


def measures_of(result: Backtest) -> dict[str, Any]:
    """Returns every measure by name."""
    shares = {name: round(getattr(result, name), 4) for name in _SHARES}
    counts = {name: getattr(result, name) for name in _COUNTS}
    return asdict(result) | counts | shares | {"dollars": dollars(result)}


def difference(result: Backtest, baseline: Backtest) -> dict[str, Any]:
    """Returns every measure minus the baseline's; None if either is unknown."""
    mine, theirs = measures_of(result), measures_of(baseline)
    return {
        name: None if value is None or theirs[name] is None else _rounded(value - theirs[name])
        for name, value in mine.items()
    }


def _rounded(value: float) -> float:
    return value if isinstance(value, int) else round(value, 6)


def best(sums: Sequence[VariantSummary], name: str, *, highest: bool = False) -> VariantSummary | None:
    """Returns the way with the lowest value of a measure, or with the highest; None if it is unknown or the same for
    all.
    """
    values = {summary.way: measures_of(summary.result)[name] for summary in sums}
    if None in values.values() or len(set(values.values())) < 2:
        return None
    return (max if highest else min)(sums, key=lambda summary: values[summary.way])
