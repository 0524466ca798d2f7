"""Least recently used: a unit is used when its terms occur again; units idle for longest are evicted first."""

from __future__ import annotations

from dataclasses import dataclass

from recto.context.policies.features import TOTAL, PolicyFeatures, ScoreParts
from recto.context.window.units import Unit

_ROUNDING = 1e-9
"""Rounding error allowed in a sum of weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lru:
    """A unit's score is the time of its last use: its own, or that of the newest unit that repeats its terms.

    A formula in circulation gives idle blocks the high score; here, as the name says, they get the low one.
    """

    shared: int = 2
    """How many terms that the unit brought up must occur again to count as a use. A term that others had before it
    counts as a part: a half for the second unit that has it, a third for the third."""

    def __post_init__(self) -> None:
        if self.shared < 1:
            raise ValueError("lru.shared must be at least 1")

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        return "lru"

    def score(self, features: PolicyFeatures) -> list[ScoreParts]:
        """0 for units last used at the beginning, 1 for units used just now."""
        return [self._parts(features, unit) for unit in features.view.eligible]

    def _parts(self, features: PolicyFeatures, unit: Unit) -> ScoreParts:
        used = self._last_used(features, unit)
        newest = len(features.units) - 1
        return {
            TOTAL: used / max(1, newest),
            "last_used": float(features.units[used].first),
            "idle": float(newest - used),
        }

    def _last_used(self, features: PolicyFeatures, unit: Unit) -> int:
        """Index of the newest unit by which enough of the unit's terms have occurred again; its own if none."""
        uses = features.later_uses(unit)
        # A unit with a single term of its own is used when that one comes up.
        required = min(float(self.shared), max(1.0, sum(use.weight for use in uses))) - _ROUNDING
        own, found = features.index_of[unit.first], 0.0
        for use in sorted(uses, key=lambda use: use.last, reverse=True):
            found += use.weight
            if found >= required:
                return use.last
        return own
