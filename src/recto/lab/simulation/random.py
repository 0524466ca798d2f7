"""Random numbers that are the same on every Python: drawn from `Random(seed).random()` alone, with integer arithmetic.

Python guarantees that the sequence of `random()` never changes for a seed, but not that of its other methods.
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
"""Quantiles of a log-normal distribution with median 1,000 and a spread of 1.6 (real tool results: 1.85)."""


class Dice:
    """Draws random values in sequence."""

    __slots__ = ("_next",)

    def __init__(self, seed: int) -> None:
        self._next = random.Random(seed).random  # noqa: S311  # reproducible on purpose

    def below(self, end: int) -> int:
        """Returns an integer from 0 to `end - 1`."""
        return int(self._next() * end)

    def between(self, least: int, most: int) -> int:
        """Returns an integer, both ends included."""
        return least + int(self._next() * (most - least + 1))

    def pick(self, items: Sequence[T]) -> T:
        """Returns one of the items."""
        return items[int(self._next() * len(items))]

    def happens(self, percent: int) -> bool:
        """Returns True with a probability in percent."""
        return self._next() * 100 < percent

    def length(self, median: int) -> int:
        """Returns a length distributed like tool results: most are short, some are very long."""
        position = self.below((len(_LENGTHS) - 1) * 1000)
        place, part = divmod(position, 1000)
        return median * (_LENGTHS[place] * (1000 - part) + _LENGTHS[place + 1] * part) // 1_000_000

    def steps(self, percent: int, most: int) -> int:
        """Returns how often something repeats that goes on with a probability in percent; at least 1."""
        count = 1
        while count < most and self.happens(percent):
            count += 1
        return count

    def gap(self, most: int) -> int:
        """Returns a distance of 2 or more, uniform over powers of two."""
        power = self.between(1, max(most.bit_length() - 2, 1))
        return (1 << power) + self.below(1 << power)
