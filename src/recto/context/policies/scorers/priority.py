"""A weighted sum: how new a unit is, how near to the goal, what it is, how much it is used again, whether marked."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

from recto.context.policies.features import TOTAL, Kind, Parts, PolicyFeatures
from recto.context.window.units import Unit

_WEIGHTS = ("recency", "relevance", "source", "reuse", "mark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """Each part is between 0 and 1; the total is their mean by weight."""

    recency: float = 0.3
    """Weight of being new."""
    relevance: float = 0.25
    """Weight of sharing terms with the goal."""
    source: float = 0.2
    """Weight of what the unit is."""
    reuse: float = 0.15
    """Weight of the share of its own terms that came up again."""
    mark: float = 0.1
    """Weight of a mark in its text that it should not leave."""
    common: float = 0.2
    """A term that more than this share of all units have belongs to none of them."""
    worth: dict[Kind, float] = field(
        default_factory=lambda: {"tool": 0.2, "assistant": 0.5, "error": 0.7, "decision": 0.9, "user": 1.0}
    )
    """What each kind of unit is worth, from 0 to 1."""

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
        """As it is configured and recorded."""
        return "priority"

    def weigh(self, survey: PolicyFeatures) -> list[Parts]:
        """Between 0 and 1."""
        return [self._parts(survey, unit) for unit in survey.view.eligible]

    def _parts(self, survey: PolicyFeatures, unit: Unit) -> Parts:
        again, own = survey.seen_again(unit, self.common)
        shared = survey.goal & survey.terms[survey.places[unit.first]]
        parts = {
            "recency": survey.recency(unit),
            "relevance": len(shared) / len(survey.goal) if survey.goal else 0.0,
            "source": self.worth[survey.kind(unit)],
            "reuse": len(again) / own if own else 0.0,
            "mark": float(any(line.marked for line in unit.lines)),
        }
        weights = {name: float(getattr(self, name)) for name in _WEIGHTS}
        total = sum(weights[name] * part for name, part in parts.items()) / sum(weights.values())
        return {TOTAL: total, **parts}
