"""Tests whether one prompt is as good as another, from paired differences: two one-sided tests by bootstrap.

A difference above 0 is a loss. The interval is resampled by run, because moments of one run are alike. At 90 %
confidence, an interval inside of the margin means that both one-sided tests at 5 % reject a larger difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from recto.lab.bootstrap import Interval, ratio_interval

Verdict = Literal["equivalent", "better", "no worse", "worse", "undecided"]
"""Equivalent: the difference is within the margin. Better, worse: it is beyond the margin. No worse: it is below the
margin, on which side of the other end is open. Undecided: the interval contains the margin.
"""
MARGIN = 0.05
"""Nats per token."""
_CONFIDENCE = 0.90
_MIN_RUNS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalence:
    """The mean of paired differences, and what can be said of it."""

    interval: Interval
    """Mean of moments with its 90 % interval."""
    pooled: float
    """Mean of tokens: long actions weigh more."""
    margin: float
    within: float
    """Share of the moments whose own loss is at most the margin."""
    moments: int
    runs: int

    @property
    def verdict(self) -> Verdict:
        """What the interval shows."""
        low, high = self.interval.low, self.interval.high
        if low > self.margin:
            return "worse"
        if high < -self.margin:
            return "better"
        if high >= self.margin:
            return "undecided"
        return "equivalent" if low > -self.margin else "no worse"


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The loss of one moment: nats per token, and how many tokens."""

    loss: float
    tokens: int


def judge_equivalence(
    differences: Mapping[str, Sequence[PairedDifference]], *, margin: float = MARGIN, seed: int = 0
) -> Equivalence | None:
    """Returns the verdict on the differences of each run; None if there are fewer than two runs."""
    runs = [moments for moments in differences.values() if moments]
    if len(runs) < _MIN_RUNS:
        return None
    losses = [[moment.loss for moment in moments] for moments in runs]
    flat = [moment for moments in runs for moment in moments]
    return Equivalence(
        interval=ratio_interval(
            [sum(some) for some in losses], [len(some) for some in losses], seed=seed, confidence=_CONFIDENCE
        ),
        pooled=sum(moment.loss * moment.tokens for moment in flat) / max(sum(moment.tokens for moment in flat), 1),
        margin=margin,
        within=sum(moment.loss <= margin for moment in flat) / len(flat),
        moments=len(flat),
        runs=len(runs),
    )
