"""Chance that is the same on every Python: drawn from a seed, by `random()` alone and whole numbers.

Python promises that the numbers of `Random(seed).random()` never change; of its other ways to draw it promises nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_LENGTHS: Final = (
    31, 67, 101, 136, 173, 213, 256, 302, 353, 408, 469, 536, 610, 692, 783, 885, 1000,
    1129, 1276, 1445, 1639, 1865, 2131, 2448, 2833, 3309, 3912, 4701, 5783, 7363, 9922, 14954, 32001,
)  # fmt: skip
"""Quantiles of a log-normal distribution with median 1,000 and a spread of 1.6: real tool results have one of 1.85."""


class Dice:
    """Draws, one after the other."""

    __slots__ = ("_next",)

    def __init__(self, seed: int) -> None:
        self._next = random.Random(seed).random  # noqa: S311  # repeatable on purpose

    def below(self, end: int) -> int:
        """A whole number from 0 on, below the end."""
        return int(self._next() * end)

    def between(self, least: int, most: int) -> int:
        """A whole number, both ends included."""
        return least + int(self._next() * (most - least + 1))

    def pick(self, among: Sequence[T]) -> T:
        """One of them."""
        return among[int(self._next() * len(among))]

    def happens(self, percent: int) -> bool:
        """Whether something happens that does so often of a hundred times."""
        return self._next() * 100 < percent

    def length(self, median: int) -> int:
        """A length as tool results have it: most are short, some are very long."""
        at = self.below((len(_LENGTHS) - 1) * 1000)
        place, part = divmod(at, 1000)
        return median * (_LENGTHS[place] * (1000 - part) + _LENGTHS[place + 1] * part) // 1_000_000

    def steps(self, percent: int, most: int) -> int:
        """How often something goes on that goes on with that chance each time; at least once."""
        count = 1
        while count < most and self.happens(percent):
            count += 1
        return count

    def gap(self, most: int) -> int:
        """A distance of 2 or more: as many near ones as far ones, by powers of two."""
        power = self.between(1, max(most.bit_length() - 2, 1))
        return (1 << power) + self.below(1 << power)
