"""Each kind of unit has its time to live; what is furthest past its time leaves first."""

from __future__ import annotations

from dataclasses import dataclass

from recto.context.policies.features import TOTAL, Parts, PolicyFeatures
from recto.context.window.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeTtl:
    """Times to live in turns: exchanges, or the steps of a long tool loop."""

    tool: int = 6
    """Steps that are calls and their results."""
    assistant: int = 16
    """What the model said without calling anything."""
    error: int = 24
    """Results that tell of a failure: it should not be run into twice."""
    decision: int = 40
    """Steps in which something was decided."""
    user: int = 60
    """Units with what the user said."""

    def __post_init__(self) -> None:
        for kind in ("tool", "assistant", "error", "decision", "user"):
            if getattr(self, kind) < 1:
                raise ValueError(f"type_ttl.{kind} must be at least 1 turn")

    @property
    def name(self) -> str:
        """As it is configured and recorded."""
        return "type_ttl"

    def weigh(self, survey: PolicyFeatures) -> list[Parts]:
        """The share of its time that a unit has left: below 0 when it has expired."""
        return [self._parts(survey, unit) for unit in survey.view.eligible]

    def _parts(self, survey: PolicyFeatures, unit: Unit) -> Parts:
        lives = float(getattr(self, survey.kind(unit)))
        age = float(survey.age(unit))
        return {TOTAL: 1.0 - age / lives, "age": age, "ttl": lives}
