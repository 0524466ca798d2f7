"""Least recently used: a unit is used when its names come up again; what has long been idle leaves first."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest

from recto.context.policies.features import TOTAL, Parts, PolicyFeatures
from recto.context.window.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Lru:
    """A unit is worth the time of its last use: its own, or that of the newest unit that takes up its terms.

    A formula in circulation gives idle blocks the high score; here, as the name says, they get the low one.
    """

    shared: int = 2
    """How many of a unit's own terms must have come up again before that counts as a use."""
    common: float = 0.2
    """A term that more than this share of all units have belongs to none of them."""

    def __post_init__(self) -> None:
        if self.shared < 1:
            raise ValueError("lru.shared must be at least 1")
        if not 0 < self.common <= 1:
            raise ValueError("lru.common must be above 0 and at most 1")

    @property
    def name(self) -> str:
        """As it is configured and recorded."""
        return "lru"

    def weigh(self, survey: PolicyFeatures) -> list[Parts]:
        """0 for what was last used at the beginning, 1 for what was used just now."""
        return [self._parts(survey, unit) for unit in survey.view.eligible]

    def _parts(self, survey: PolicyFeatures, unit: Unit) -> Parts:
        again, own = survey.seen_again(unit, self.common)
        place = survey.places[unit.first]
        # A unit with a single term of its own is used when that one comes up.
        asked = min(self.shared, max(1, own))
        used = nlargest(asked, again)[-1] if len(again) >= asked else place
        newest = len(survey.units) - 1
        return {
            TOTAL: used / max(1, newest),
            "last_used": float(survey.units[used].first),
            "idle": float(newest - used),
        }
