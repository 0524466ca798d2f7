"""First in, first out: age alone."""

from __future__ import annotations

from dataclasses import dataclass

from recto.context.policies.features import TOTAL, PolicyFeatures, ScoreParts


@dataclass(frozen=True, slots=True, kw_only=True)
class Fifo:
    """A unit's score is its place in eviction order."""

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        return "fifo"

    def score(self, features: PolicyFeatures) -> list[ScoreParts]:
        """0 for the first to be evicted, 1 for the last."""
        last = max(1, len(features.view.eligible) - 1)
        return [{TOTAL: index / last} for index in range(len(features.view.eligible))]
