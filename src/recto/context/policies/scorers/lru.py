"""Least recently used: a unit is used when its terms occur again; units idle for longest are evicted first."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest

from recto.context.policies.features import TOTAL, PolicyFeatures, ScoreParts
from recto.context.window.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Lru:
    """A unit's score is the time of its last use: its own, or that of the newest unit that repeats its terms.

    A formula in circulation gives idle blocks the high score; here, as the name says, they get the low one.
    """

    shared: int = 2
    """How many of a unit's own terms must occur again to count as a use."""
    common: float = 0.2
    """A term in more than this share of all units belongs to none of them."""

    def __post_init__(self) -> None:
        if self.shared < 1:
            raise ValueError("lru.shared must be at least 1")
        if not 0 < self.common <= 1:
            raise ValueError("lru.common must be above 0 and at most 1")

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        return "lru"

    def score(self, features: PolicyFeatures) -> list[ScoreParts]:
        """0 for units last used at the beginning, 1 for units used just now."""
        return [self._parts(features, unit) for unit in features.view.eligible]

    def _parts(self, features: PolicyFeatures, unit: Unit) -> ScoreParts:
        later_uses, own_terms = features.seen_again(unit, self.common)
        index = features.index_of[unit.first]
        # A unit with a single term of its own is used when that one comes up.
        required = min(self.shared, max(1, own_terms))
        used = nlargest(required, later_uses)[-1] if len(later_uses) >= required else index
        newest = len(features.units) - 1
        return {
            TOTAL: used / max(1, newest),
            "last_used": float(features.units[used].first),
            "idle": float(newest - used),
        }
