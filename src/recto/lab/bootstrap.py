"""What some sessions tell about others: which are held out, and how sure a gain over them is. Pure, from a seed.

Sessions are resampled whole, and both sides of a comparison together: turns of one session are alike, sessions of one
user may not be. What was measured, and what a gain is worth, is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import inf, sqrt
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
LEAST = 8
"""Sessions on each side below which nothing is told: from here on an interval holds the truth as often as it says."""
SURE = 0.95

_AT_ONCE = 1_000_000
"""Drawn places held in memory at a time."""
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""The constants of SplitMix64: the same draws on every machine and with every version of numpy."""
_NORMAL = NormalDist()
_Numbers: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A value and the range in which it lies in 95 of 100 cases."""

    value: float
    low: float
    high: float

    @property
    def above_zero(self) -> bool:
        """Whether the whole range is above 0."""
        return self.low > 0

    @property
    def below_zero(self) -> bool:
        """Whether the whole range is below 0."""
        return self.high < 0


def held_out(keys: Iterable[str], share: float, seed: int, least: int = LEAST) -> frozenset[str]:
    """The keys on which nothing is tried. Neither their order nor how often one is there matters.

    At least so many are on either side, where there are enough for both.
    """
    distinct = drawn(keys, seed)
    count = min(max(round(share * len(distinct)), least), max(len(distinct) - least, 0))
    return frozenset(distinct[:count])


def drawn(keys: Iterable[str], seed: int) -> list[str]:
    """Each key once, in an order that depends on the seed and on nothing else."""
    return sorted(set(keys), key=lambda key: sha256(f"{seed}\n{key}".encode("utf-8", "surrogatepass")).digest())


def ratio_interval(
    parts: Sequence[float], wholes: Sequence[float], *, seed: int, resamples: int = RESAMPLES, sure: float = SURE
) -> Interval:
    """The sum of the parts over the sum of the wholes, with an interval from sessions drawn again and again.

    The percentile interval, widened as a t-interval is: with a dozen sessions the plain one is too narrow, and finds a
    gain in one of twelve cases where there is none.
    """
    over, under = np.asarray(parts, np.float64), np.asarray(wholes, np.float64)
    count = len(over)
    value = _over(over.sum(keepdims=True), under.sum(keepdims=True))[0]
    if count < 2:
        return Interval(value=float(value), low=-inf, high=inf)
    found = np.concatenate(
        [_over(over[at].sum(axis=1), under[at].sum(axis=1)) for at in _draws(seed, resamples, count)]
    )
    tail = _widened((1 - sure) / 2, count)
    low, high = np.quantile(found, (tail, 1 - tail))
    return Interval(value=float(value), low=float(low), high=float(high))


def _over(parts: _Numbers, wholes: _Numbers) -> _Numbers:
    return np.divide(parts, wholes, out=np.zeros_like(parts), where=wholes != 0)


def _draws(seed: int, resamples: int, count: int) -> Iterator[NDArray[np.intp]]:
    """Places drawn with replacement, a resample in each row."""
    rows = max(_AT_ONCE // count, 1)
    start = np.array([int.from_bytes(sha256(str(seed).encode()).digest()[:8])], np.uint64)
    for first in range(0, resamples, rows):
        many = (min(first + rows, resamples) - first) * count
        state = start + np.arange(first * count + 1, first * count + many + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(_FIRST)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(_SECOND)
        upper = (state ^ (state >> np.uint64(31))) >> np.uint64(32)
        yield ((upper * np.uint64(count)) >> np.uint64(32)).astype(np.intp).reshape(-1, count)


def _widened(tail: float, count: int) -> float:
    """The tail to take so that the interval is as wide as one by Student's t (Hesterberg, 2015)."""
    return _NORMAL.cdf(-sqrt(count / (count - 1)) * _student(1 - tail, count - 1))


def _student(share: float, freedom: int) -> float:
    """Student's quantile by its expansion around the normal one; within 0.01 from seven degrees of freedom on."""
    z = _NORMAL.inv_cdf(share)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
