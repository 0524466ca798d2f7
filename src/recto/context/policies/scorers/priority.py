"""Weighted sum of recency, relevance to the goal, kind, reuse and protection mark."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

from recto.context.policies.features import TOTAL, PolicyFeatures, ScoreParts, UnitKind
from recto.context.window.units import Unit

_WEIGHTS = ("recency", "relevance", "source", "reuse", "mark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """Each part is between 0 and 1; the total is their weighted mean."""

    recency: float = 0.3
    """Weight of recency."""
    relevance: float = 0.25
    """Weight of sharing terms with the goal."""
    source: float = 0.2
    """Weight of the unit's kind."""
    reuse: float = 0.15
    """Weight of the share of its own terms that occur again."""
    mark: float = 0.1
    """Weight of a mark in its text that protects it from eviction."""
    common: float = 0.2
    """A term in more than this share of all units belongs to none of them."""
    worth: dict[UnitKind, float] = field(
        default_factory=lambda: {"tool": 0.2, "assistant": 0.5, "error": 0.7, "decision": 0.9, "user": 1.0}
    )
    """Value of each kind of unit, from 0 to 1."""

    def __post_init__(self) -> None:
        weights = [getattr(self, name) for name in _WEIGHTS]
        if not all(isfinite(weight) and weight >= 0 for weight in weights) or not 0 < sum(weights) < float("inf"):
            raise ValueError(f"priority: {', '.join(_WEIGHTS)} must not be below zero, and one must be above")
        if not 0 < self.common <= 1:
            raise ValueError("priority.common must be above 0 and at most 1")
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
        later_uses, own_terms = features.seen_again(unit, self.common)
        shared = features.goal & features.terms[features.index_of[unit.first]]
        parts = {
            "recency": features.recency(unit),
            "relevance": len(shared) / len(features.goal) if features.goal else 0.0,
            "source": self.worth[features.kind(unit)],
            "reuse": len(later_uses) / own_terms if own_terms else 0.0,
            "mark": float(any(message.marked for message in unit.messages)),
        }
        weights = {name: float(getattr(self, name)) for name in _WEIGHTS}
        total = sum(weights[name] * part for name, part in parts.items()) / sum(weights.values())
        return {TOTAL: total, **parts}
