"""What recorded sessions came to in several ways of keeping them, beside each other.

A way is a mode with a policy, or a baseline. Here results are added up over files and set against the baseline; how
they were come by, and how they are drawn, is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from recto.lab.backtest import Backtest, ReplayedTurn

MOST_POINTS = 400
"""Points of a curve; of more turns, each point is the largest of a stretch."""
_SHARES = ("share", "regret_rate", "survival")
_COUNTS = ("regret", "met", "missed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to keep a session inside a window."""

    name: str
    mode: str | None = None
    """None for a baseline that is not Recto's."""
    policy: str | None = None
    """None where the mode asks no policy."""
    is_baseline: bool = False
    """Whether the others are set against it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """How large the prompts of one session were, from its first turn to its last."""

    turns: int
    room: int
    tokens: tuple[int | None, ...]
    """At most `MOST_POINTS`, evenly over the turns; None where a stretch has no prompt, because all were refused."""

    @property
    def largest(self) -> int:
        """The largest prompt."""
        return max((one for one in self.tokens if one is not None), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantOutcome:
    """One file in one way."""

    place: int
    """Which of the files it is: two may have one name."""
    file: str
    way: Way
    result: Backtest
    curve: Curve | None = None
    """Of the file's longest session, where it was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantSummary:
    """All files in one way."""

    way: Way
    result: Backtest
    against: Backtest | None = None
    """What the baseline came to, where there is one and this is not it."""


class PromptSizes:
    """The sizes of a session's prompts as they come: a few bytes a turn, however long it is."""

    def __init__(self) -> None:
        self._tokens: list[int | None] = []
        self._room = 0

    def __len__(self) -> int:
        return len(self._tokens)

    def take(self, turn: ReplayedTurn) -> None:
        """One more turn."""
        self._tokens.append(None if turn.refused else turn.tokens)
        self._room = max(self._room, turn.room)

    def curve(self) -> Curve | None:
        """What they come to; None where the model was never asked."""
        if not self._tokens:
            return None
        points = min(len(self), MOST_POINTS)
        edges = [len(self) * place // points for place in range(points + 1)]
        tokens = tuple(_largest(self._tokens[begin:end]) for begin, end in pairwise(edges))
        return Curve(turns=len(self), room=self._room, tokens=tokens)


def _largest(sizes: Iterable[int | None]) -> int | None:
    return max((size for size in sizes if size is not None), default=None)


def standings(outcomes: Sequence[VariantOutcome]) -> list[VariantSummary]:
    """Each way over all files, in the order in which they first come."""
    sums: dict[Way, Backtest] = {}
    for one in outcomes:
        sums[one.way] = sums[one.way] + one.result if one.way in sums else one.result
    baseline = next((result for way, result in sums.items() if way.is_baseline), None)
    return [
        VariantSummary(way=way, result=result, against=None if way.is_baseline else baseline)
        for way, result in sums.items()
    ]


def did_not_fit(outcomes: Iterable[VariantOutcome]) -> bool:
    """Whether a prompt was over the window or refused; baselines are not asked."""
    return any(one.result.over or one.result.refused for one in outcomes if not one.way.is_baseline)


def dollars(result: Backtest) -> float | None:
    """What it cost; None where prices are not known."""
    return None if result.picodollars is None else round(result.picodollars / 1e12, 6)


def told(result: Backtest) -> dict[str, Any]:
    """Every measure by its name."""
    shares = {name: round(getattr(result, name), 4) for name in _SHARES}
    counts = {name: getattr(result, name) for name in _COUNTS}
    return asdict(result) | counts | shares | {"dollars": dollars(result)}


def difference(result: Backtest, baseline: Backtest) -> dict[str, Any]:
    """Every measure, less what the baseline has of it; None where one of the two is not known."""
    mine, others = told(result), told(baseline)
    return {
        name: None if value is None or others[name] is None else _rounded(value - others[name])
        for name, value in mine.items()
    }


def _rounded(value: float) -> float:
    return value if isinstance(value, int) else round(value, 6)


def best(sums: Sequence[VariantSummary], name: str, *, most: bool = False) -> VariantSummary | None:
    """The way that has least of a measure, or most; None where it is not known, or the same in all."""
    values = {one.way: told(one.result)[name] for one in sums}
    if None in values.values() or len(set(values.values())) < 2:
        return None
    return (max if most else min)(sums, key=lambda one: values[one.way])
