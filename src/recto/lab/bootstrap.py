"""Splits sessions, and estimates by resampling how certain a gain or an equivalence is. Pure functions of a seed.

Whole sessions are resampled, with both sides of a comparison together: turns of one session are alike, sessions of one
user may not be.

Equivalence, whether one prompt is as good as another, is tested from paired differences by two one-sided tests. A
difference above 0 is a loss. The interval is resampled by run, because moments of one run are alike. At 90 %
confidence, an interval inside of the margin means that both one-sided tests at 5 % reject a larger difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import inf, sqrt
from statistics import NormalDist
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
MIN_SESSIONS = 8
"""Sessions needed on each side: from here on the interval covers the true value as often as it claims."""
CONFIDENCE = 0.95

_BATCH = 1_000_000
"""Drawn indices in memory at a time."""
_GAMMA, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Constants of SplitMix64, which gives the same draws on every machine and with every version of numpy."""
_NORMAL = NormalDist()
_Numbers: TypeAlias = NDArray[np.float64]
Verdict = Literal["equivalent", "better", "no worse", "worse", "undecided"]
"""Equivalent: the difference is within the margin. Better, worse: it is beyond the margin. No worse: it is below the
margin, on which side of the other end is open. Undecided: the interval contains the margin.
"""
MARGIN = 0.05
"""Nats per token."""
_CONFIDENCE = 0.90
_MIN_RUNS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A value and its 95 % confidence interval."""

    value: float
    low: float
    high: float

    @property
    def above_zero(self) -> bool:
        """Whether the interval is above 0."""
        return self.low > 0

    @property
    def below_zero(self) -> bool:
        """Whether the interval is below 0."""
        return self.high < 0


def held_out(keys: Iterable[str], share: float, seed: int, least: int = MIN_SESSIONS) -> frozenset[str]:
    """Returns the keys on which nothing is tried, whatever their order and number of occurrences.

    At least `least` keys are on either side, if there are enough for both.
    """
    distinct = shuffled(keys, seed)
    count = min(max(round(share * len(distinct)), least), max(len(distinct) - least, 0))
    return frozenset(distinct[:count])


def shuffled(keys: Iterable[str], seed: int) -> list[str]:
    """Returns each key once, in an order that depends only on the seed."""
    return sorted(set(keys), key=lambda key: sha256(f"{seed}\n{key}".encode("utf-8", "surrogatepass")).digest())


def ratio_interval(
    parts: Sequence[float],
    wholes: Sequence[float],
    *,
    seed: int,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Interval:
    """Returns the sum of the parts over the sum of the wholes, with a bootstrap interval over sessions.

    It is the percentile interval, widened like a t-interval: with a dozen sessions the plain one is too narrow and
    finds a gain in one of twelve cases where there is none.
    """
    numerators, denominators = np.asarray(parts, np.float64), np.asarray(wholes, np.float64)
    count = len(numerators)
    value = _ratio(numerators.sum(keepdims=True), denominators.sum(keepdims=True))[0]
    if count < 2:
        return Interval(value=float(value), low=-inf, high=inf)
    ratios = np.concatenate(
        [
            _ratio(numerators[rows].sum(axis=1), denominators[rows].sum(axis=1))
            for rows in _draws(seed, resamples, count)
        ]
    )
    tail = _widened((1 - confidence) / 2, count)
    low, high = np.quantile(ratios, (tail, 1 - tail))
    return Interval(value=float(value), low=float(low), high=float(high))


def _ratio(numerators: _Numbers, denominators: _Numbers) -> _Numbers:
    return np.divide(numerators, denominators, out=np.zeros_like(numerators), where=denominators != 0)


def _draws(seed: int, resamples: int, count: int) -> Iterator[NDArray[np.intp]]:
    """Yields indices drawn with replacement, one resample per row."""
    rows = max(_BATCH // count, 1)
    start = np.array([int.from_bytes(sha256(str(seed).encode()).digest()[:8])], np.uint64)
    for first in range(0, resamples, rows):
        size = (min(first + rows, resamples) - first) * count
        state = start + np.arange(first * count + 1, first * count + size + 1, dtype=np.uint64) * np.uint64(_GAMMA)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(_FIRST)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(_SECOND)
        upper = (state ^ (state >> np.uint64(31))) >> np.uint64(32)
        yield ((upper * np.uint64(count)) >> np.uint64(32)).astype(np.intp).reshape(-1, count)


def _widened(tail: float, count: int) -> float:
    """Returns the tail at which the interval is as wide as Student's t interval (Hesterberg, 2015)."""
    return _NORMAL.cdf(-sqrt(count / (count - 1)) * _student(1 - tail, count - 1))


def _student(share: float, freedom: int) -> float:
    """Returns Student's quantile by its expansion around the normal one; within 0.01 from seven degrees on."""
    z = _NORMAL.inv_cdf(share)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


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
