"""Weighted sum of recency, relevance to the goal, kind, reuse and the word IMPORTANT."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import nlargest
from math import isfinite

from recto.context.policies.features import TOTAL, PolicyFeatures, ScoreParts, UnitKind
from recto.context.window.units import Unit

_USED_TERMS = 2
_WEIGHTS = ("recency", "relevance", "source", "reuse", "mark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """Each part is between 0 and 1; the total is their weighted mean."""

    recency: float = 0.3
    """Weight of recency."""
    relevance: float = 0.25
    """Weight of relevance to the goal: by the vectors of recall, or by shared terms where there are none."""
    source: float = 0.2
    """Weight of the unit's kind."""
    reuse: float = 0.15
    """Weight of the share of later units that use its terms."""
    mark: float = 0.1
    """Weight of the word IMPORTANT in what the user or the assistant says."""
    worth: dict[UnitKind, float] = field(
        default_factory=lambda: {"tool": 0.2, "assistant": 0.5, "error": 0.7, "decision": 0.9, "user": 1.0}
    )
    """Value of each kind of unit, from 0 to 1."""

    def __post_init__(self) -> None:
        weights = [getattr(self, name) for name in _WEIGHTS]
        if not all(isfinite(weight) and weight >= 0 for weight in weights) or not 0 < sum(weights) < float("inf"):
            raise ValueError(f"priority: {', '.join(_WEIGHTS)} must not be below zero, and one must be above")
        if self.worth.keys() != {"tool", "assistant", "error", "decision", "user"}:
            raise ValueError("priority.worth must name tool, assistant, error, decision and user")
        if not all(0 <= worth <= 1 for worth in self.worth.values()):
            raise ValueError("priority.worth must be between 0 and 1")

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        return "priority"

    def score(self, features: PolicyFeatures) -> list[ScoreParts]:
        """Between 0 and 1."""
        return [self._parts(features, unit) for unit in features.view.eligible]

    def _parts(self, features: PolicyFeatures, unit: Unit) -> ScoreParts:
        parts = {
            "recency": features.recency(unit),
            "relevance": features.relevance(unit),
            "source": self.worth[features.kind(unit)],
            "reuse": _reuse(features, unit),
            "mark": float(features.is_important(unit)),
        }
        weights = {name: float(getattr(self, name)) for name in _WEIGHTS}
        total = sum(weights[name] * part for name, part in parts.items()) / sum(weights.values())
        return {TOTAL: total, **parts}


def _reuse(features: PolicyFeatures, unit: Unit) -> float:
    """The share of later units that use the unit, by the two of its terms that are used most.

    One word in common is chance, and a unit of a hundred terms is used although most of them never occur again.
    """
    later = len(features.units) - 1 - features.index_of[unit.first]
    most = nlargest(_USED_TERMS, (use.weight * use.later for use in features.later_uses(unit)))
    return sum(most) / (_USED_TERMS * later) if later else 0.0
