"""First in, first out: age alone."""

from __future__ import annotations

from dataclasses import dataclass

from recto.context.policies.features import TOTAL, Parts, PolicyFeatures


@dataclass(frozen=True, slots=True, kw_only=True)
class Fifo:
    """A unit is worth its place in the order of leaving."""

    @property
    def name(self) -> str:
        """As it is configured and recorded."""
        return "fifo"

    def weigh(self, survey: PolicyFeatures) -> list[Parts]:
        """0 for the first to leave, 1 for the last."""
        last = max(1, len(survey.view.eligible) - 1)
        return [{TOTAL: place / last} for place in range(len(survey.view.eligible))]
