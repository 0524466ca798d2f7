"""Time to live per kind of unit; the unit furthest past its time is evicted first."""

from __future__ import annotations

from dataclasses import dataclass

from recto.context.policies.features import TOTAL, PolicyFeatures, ScoreParts
from recto.context.window.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeTtl:
    """Times to live in turns: exchanges, or the steps of a long tool loop."""

    tool: int = 6
    """Calls and their results."""
    assistant: int = 16
    """Assistant messages without calls."""
    error: int = 24
    """Results that report a failure, so that it is not repeated."""
    decision: int = 40
    """Steps that contain a decision."""
    user: int = 60
    """Units with user messages."""

    def __post_init__(self) -> None:
        for kind in ("tool", "assistant", "error", "decision", "user"):
            if getattr(self, kind) < 1:
                raise ValueError(f"type_ttl.{kind} must be at least 1 turn")

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        return "type_ttl"

    def score(self, features: PolicyFeatures) -> list[ScoreParts]:
        """The share of its time that a unit has left: below 0 when expired."""
        return [self._parts(features, unit) for unit in features.view.eligible]

    def _parts(self, features: PolicyFeatures, unit: Unit) -> ScoreParts:
        ttl = float(getattr(self, features.kind(unit)))
        age = float(features.age(unit))
        return {TOTAL: 1.0 - age / ttl, "age": age, "ttl": ttl}
