"""The search space of tuning and its objective. Pure.

A candidate has a value for each setting that is tried, by name. It is judged by the measures of recorded sessions under
it, compared with those under the current settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, get_args

Value: TypeAlias = int | float | str
Candidate: TypeAlias = Mapping[str, Value]
Objective = Literal["missed", "regret", "lost", "tokens", "dollars"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
_COSTS: tuple[Objective, ...] = ("tokens", "dollars")

MEANINGS: Mapping[Objective, str] = {
    "missed": "needs missed per turn",
    "regret": "needs per turn for evicted content",
    "lost": "share of the names in answers that no longer stood in the prompt",
    "tokens": "tokens per turn",
    "dollars": "dollars per turn",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """A setting that can be tried with other values."""

    name: str
    """As in a settings file, with dots between levels."""
    current: Value
    """Its current value."""
    low: float = 0.0
    high: float = 0.0
    step: float = 0.0
    """Distance between two values; 0 for any value on a logarithmic scale."""
    options: tuple[str, ...] = ()
    """The values of a setting that is no number."""
    only_with: tuple[str, str] | None = None
    """Another setting and the value that it must have for this one to matter."""

    @property
    def is_integer(self) -> bool:
        """Whether it is an integer."""
        return isinstance(self.current, int)

    def applies(self, values: Candidate) -> bool:
        """Returns whether it matters with these values."""
        return self.only_with is None or values.get(self.only_with[0]) == self.only_with[1]

    def nearest(self, value: float) -> Value:
        """Returns the nearest value that can be tried: on a step and within bounds; the current value stays."""
        if value == self.current:
            return self.current
        if self.step:
            value = self.low + round((value - self.low) / self.step) * self.step
        value = min(max(value, self.low), self.high)
        return round(value) if self.is_integer else round(value, 6)


class Figures(Protocol):
    """The measures of a backtest that are tuned for or watched."""

    @property
    def turns(self) -> int:
        """Model calls."""

    @property
    def over(self) -> int:
        """Prompts over the input budget."""

    @property
    def refused(self) -> int:
        """Turns without a prompt."""

    @property
    def tokens(self) -> int:
        """Tokens of all prompts."""

    @property
    def unchanged(self) -> int:
        """Of these, tokens of unchanged prefixes."""

    @property
    def picodollars(self) -> int | None:
        """Their cost, if known."""

    @property
    def regret(self) -> int:
        """Needs for evicted content."""

    @property
    def missed(self) -> int:
        """Of these, needs that nothing met."""

    @property
    def entities_used(self) -> int:
        """Names in answers that were known from before."""

    @property
    def entities_there(self) -> int:
        """Of these, names that were in the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What to minimise, and what must not rise for it."""

    objective: Objective = "missed"
    allowance: float = 0.05
    """The share by which the watched measure may rise: the cost of prompts or, if the goal is to save, the needs
    missed.
    """

    @property
    def watches(self) -> str:
        """The name of the watched measure."""
        return "needs missed" if self.objective in _COSTS else "cost"

    def numerator(self, figures: Figures) -> float:
        """The measure to minimise, in one session."""
        match self.objective:
            case "missed":
                return figures.missed
            case "regret":
                return figures.regret
            case "lost":
                return figures.entities_used - figures.entities_there
            case "tokens":
                return figures.tokens
            case "dollars":
                return (figures.picodollars or 0) / 1e12

    def denominator(self, figures: Figures) -> float:
        """What it is divided by."""
        return figures.entities_used if self.objective == "lost" else figures.turns

    def rate(self, sessions: Iterable[Figures]) -> float:
        """The measure to minimise, over all sessions."""
        ratios = [(self.numerator(figures), self.denominator(figures)) for figures in sessions]
        return sum(numerator for numerator, _ in ratios) / max(sum(denominator for _, denominator in ratios), 1)

    def excess(self, baseline: Sequence[Figures], tried: Sequence[Figures]) -> float:
        """The rise of the watched measure beyond the allowance; 0 if it is within."""
        if any(_sum(tried, name) > _sum(baseline, name) for name in ("over", "refused")):
            return 1.0
        rises = (_rise(before, after) for before, after in self._watched(baseline, tried))
        return max(0.0, *(rise - self.allowance for rise in rises))

    def score(self, baseline: Sequence[Figures], tried: Sequence[Figures]) -> float:
        """1 for a candidate as good as the current settings, less for a better one; above 1 if it is not allowed."""
        excess = self.excess(baseline, tried)
        return 1 + excess if excess else 1 + _rise(self.rate(baseline), self.rate(tried))

    def _watched(self, baseline: Sequence[Figures], tried: Sequence[Figures]) -> list[tuple[float, float]]:
        if self.objective in _COSTS:
            return [(_sum(baseline, "missed"), _sum(tried, "missed"))]
        if all(figures.picodollars is not None for figures in (*baseline, *tried)):
            return [(_sum(baseline, "picodollars"), _sum(tried, "picodollars"))]
        # Without prices, watch both the tokens sent and those that no cache can serve.
        fresh = [_sum(side, "tokens") - _sum(side, "unchanged") for side in (baseline, tried)]
        return [(_sum(baseline, "tokens"), _sum(tried, "tokens")), (fresh[0], fresh[1])]


def cost_rise(baseline: Sequence[Figures], tried: Sequence[Figures]) -> float:
    """Returns the share by which prompts cost more: in dollars if prices are known, else in tokens."""
    known = all(figures.picodollars is not None for figures in (*baseline, *tried))
    name = "picodollars" if known else "tokens"
    return _rise(_sum(baseline, name), _sum(tried, name))


def single_changes(space: Sequence[Dimension]) -> list[dict[str, Value]]:
    """Returns candidates that change one setting each: the first that are tried.

    They come in rounds, so that each setting has its turn even if there is time for few.
    """
    current = {dimension.name: dimension.current for dimension in space}
    candidates: list[dict[str, Value]] = []
    changes = [
        [(dimension, value) for value in _other_values(dimension)] for dimension in space if dimension.only_with is None
    ]
    for place in range(max((len(options) for options in changes), default=0)):
        for options in changes:
            if place < len(options):
                dimension, value = options[place]
                values = {**current, dimension.name: value}
                candidates.append({other.name: values[other.name] for other in space if other.applies(values)})
    return candidates


def _other_values(dimension: Dimension) -> list[Value]:
    """Returns other values worth trying: each option, or the middle between the current value and either bound."""
    if dimension.options:
        return [option for option in dimension.options if option != dimension.current]
    current = float(dimension.current)
    return [
        value
        for value in (dimension.nearest((current + end) / 2) for end in (dimension.high, dimension.low))
        if value != dimension.current
    ]


def changed_values(space: Sequence[Dimension], values: Candidate) -> dict[str, Value]:
    """Returns the values of a candidate that differ from the current ones, with all that matter only together with
    them.
    """
    current = {dimension.name: dimension.current for dimension in space}
    changed = {
        dimension.name
        for dimension in space
        if dimension.name in values and values[dimension.name] != current[dimension.name]
    }
    conditions = {
        dimension.only_with for dimension in space if dimension.only_with is not None and dimension.name in changed
    }
    return {
        dimension.name: values[dimension.name]
        for dimension in space
        if dimension.name in values and (dimension.name in changed or _goes_with(dimension, changed, conditions))
    }


def _goes_with(dimension: Dimension, changed: set[str], conditions: set[tuple[str, str]]) -> bool:
    """Returns whether a value is reported with others: weights count together, so if one changed, all are reported."""
    return dimension.only_with is not None and (dimension.only_with[0] in changed or dimension.only_with in conditions)


def _sum(sessions: Iterable[Figures], name: str) -> int:
    return sum(getattr(figures, name) or 0 for figures in sessions)


def _rise(before: float, after: float) -> float:
    """Returns the relative rise; from 0, the absolute value."""
    return (after - before) / before if before else float(after)
