"""What is tried when settings are tuned, and what counts as better. Pure.

A candidate is a value for each setting that is tried, by its name. It is judged by what recorded sessions came to under
it, beside what they came to under the settings as they are. Which settings there are is not known here.
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
    "regret": "needs per turn for what had left",
    "lost": "share of the names in answers that no longer stood in the prompt",
    "tokens": "tokens per turn",
    "dollars": "dollars per turn",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """A setting that may be tried with other values."""

    name: str
    """As in a file of settings, with dots between levels."""
    given: Value
    """What it is as things stand."""
    low: float = 0.0
    high: float = 0.0
    step: float = 0.0
    """Between two values; 0: any, closer together the smaller they are."""
    options: tuple[str, ...] = ()
    """What it may be, where it is no number."""
    only_with: tuple[str, str] | None = None
    """Another setting and the value of it without which this one means nothing."""

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole number."""
        return isinstance(self.given, int)

    def applies(self, values: Candidate) -> bool:
        """Whether it means something beside these values."""
        return self.only_with is None or values.get(self.only_with[0]) == self.only_with[1]

    def nearest(self, value: float) -> Value:
        """The number that is tried in place of one: on a step and between the ends; what is given stays as it is."""
        if value == self.given:
            return self.given
        if self.step:
            value = self.low + round((value - self.low) / self.step) * self.step
        value = min(max(value, self.low), self.high)
        return round(value) if self.is_whole else round(value, 6)


class Figures(Protocol):
    """What sessions came to: the measures of a backtest that are tuned for or watched."""

    @property
    def turns(self) -> int:
        """How often the model was asked."""

    @property
    def over(self) -> int:
        """Prompts over what they may have."""

    @property
    def refused(self) -> int:
        """Turns without a prompt."""

    @property
    def tokens(self) -> int:
        """Of all prompts."""

    @property
    def unchanged(self) -> int:
        """Of these, what stood as before."""

    @property
    def picodollars(self) -> int | None:
        """What they cost, where that is known."""

    @property
    def regret(self) -> int:
        """Needs for what had left."""

    @property
    def missed(self) -> int:
        """Of these, what nothing brought back."""

    @property
    def entities_used(self) -> int:
        """Names in answers that were known before."""

    @property
    def entities_there(self) -> int:
        """Of these, what stood in the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What should become less, and what must not become more for it."""

    objective: Objective = "missed"
    allowance: float = 0.05
    """The share by which what is watched may rise: what prompts cost, or where the goal is to save, what is missed."""

    @property
    def watches(self) -> str:
        """What must not rise beyond the allowance."""
        return "needs missed" if self.objective in _COSTS else "cost"

    def part(self, figures: Figures) -> float:
        """What should become less, in one session."""
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

    def whole(self, figures: Figures) -> float:
        """Over what it is counted."""
        return figures.entities_used if self.objective == "lost" else figures.turns

    def rate(self, sessions: Iterable[Figures]) -> float:
        """What should become less, over all of these sessions."""
        found = [(self.part(one), self.whole(one)) for one in sessions]
        return sum(part for part, _ in found) / max(sum(whole for _, whole in found), 1)

    def excess(self, given: Sequence[Figures], tried: Sequence[Figures]) -> float:
        """By how much more than allowed what is watched has risen: 0 where it is as it should be."""
        if any(_sum(tried, name) > _sum(given, name) for name in ("over", "refused")):
            return 1.0
        rises = (_rise(before, after) for before, after in self._watched(given, tried))
        return max(0.0, *(rise - self.allowance for rise in rises))

    def score(self, given: Sequence[Figures], tried: Sequence[Figures]) -> float:
        """1 for what is as good as the settings as they are, less for what is better; above 1 where it is no choice."""
        excess = self.excess(given, tried)
        return 1 + excess if excess else 1 + _rise(self.rate(given), self.rate(tried))

    def _watched(self, given: Sequence[Figures], tried: Sequence[Figures]) -> list[tuple[float, float]]:
        if self.objective in _COSTS:
            return [(_sum(given, "missed"), _sum(tried, "missed"))]
        if all(one.picodollars is not None for one in (*given, *tried)):
            return [(_sum(given, "picodollars"), _sum(tried, "picodollars"))]
        # Without prices, both what is sent and what no cache can hold.
        fresh = [_sum(side, "tokens") - _sum(side, "unchanged") for side in (given, tried)]
        return [(_sum(given, "tokens"), _sum(tried, "tokens")), (fresh[0], fresh[1])]


def cost_rise(given: Sequence[Figures], tried: Sequence[Figures]) -> float:
    """The share by which prompts cost more: in dollars where prices are known, else in tokens."""
    known = all(one.picodollars is not None for one in (*given, *tried))
    name = "picodollars" if known else "tokens"
    return _rise(_sum(given, name), _sum(tried, name))


def one_at_a_time(space: Sequence[Dimension]) -> list[dict[str, Value]]:
    """Candidates that change one setting each, and leave the others: the first that are tried.

    In rounds, so that where there is time for few, each setting has had its turn.
    """
    usual = {one.name: one.given for one in space}
    found: list[dict[str, Value]] = []
    changes = [[(one, value) for value in _others(one)] for one in space if one.only_with is None]
    for place in range(max((len(some) for some in changes), default=0)):
        for some in changes:
            if place < len(some):
                one, value = some[place]
                values = {**usual, one.name: value}
                found.append({other.name: values[other.name] for other in space if other.applies(values)})
    return found


def _others(one: Dimension) -> list[Value]:
    """Other values worth a look: each option, or a number halfway to either end."""
    if one.options:
        return [option for option in one.options if option != one.given]
    given = float(one.given)
    return [value for value in (one.nearest((given + end) / 2) for end in (one.high, one.low)) if value != one.given]


def changed(space: Sequence[Dimension], values: Candidate) -> dict[str, Value]:
    """Those values of a candidate that are not what they were, with all that mean something only beside one of them."""
    usual = {one.name: one.given for one in space}
    own = {one.name for one in space if one.name in values and values[one.name] != usual[one.name]}
    beside = {one.only_with for one in space if one.only_with is not None and one.name in own}
    return {
        one.name: values[one.name]
        for one in space
        if one.name in values and (one.name in own or _goes_with(one, own, beside))
    }


def _goes_with(one: Dimension, own: set[str], beside: set[tuple[str, str]]) -> bool:
    """Weights count together: where one of them changed, or what they belong to, all are told."""
    return one.only_with is not None and (one.only_with[0] in own or one.only_with in beside)


def _sum(sessions: Iterable[Figures], name: str) -> int:
    return sum(getattr(one, name) or 0 for one in sessions)


def _rise(before: float, after: float) -> float:
    """By what share it rose; from nothing, as much as there is now."""
    return (after - before) / before if before else float(after)
