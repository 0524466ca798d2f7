"""Several scorers at once, by weight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from recto.context.policies.features import REPEATS, TOTAL, Parts, PolicyFeatures, Scorer
from recto.context.policies.scorers.fifo import Fifo
from recto.context.policies.scorers.lru import Lru
from recto.context.policies.scorers.priority import Priority
from recto.context.policies.scorers.semantic_merge import SemanticMerge
from recto.context.policies.scorers.type_ttl import TypeTtl


def _scorers() -> dict[str, Scorer]:
    scorers: tuple[Scorer, ...] = (Fifo(), Lru(), Priority(), TypeTtl(), SemanticMerge())
    return {scorer.name: scorer for scorer in scorers}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid:
    """The mean by weight of what other scorers say, each brought between 0 and 1 over the units of the view."""

    weights: Mapping[str, float] = field(default_factory=lambda: {"lru": 0.4, "priority": 0.4, "type_ttl": 0.2})
    """How much each scorer counts. One that is not named, or has weight 0, is not asked."""
    scorers: Mapping[str, Scorer] = field(default_factory=_scorers)
    """The scorers by name, with their settings."""

    def __post_init__(self) -> None:
        unknown = self.weights.keys() - self.scorers.keys()
        if unknown:
            raise ValueError(f"hybrid.weights: no scorer '{min(unknown)}'; known are {', '.join(self.scorers)}")
        weights = self.weights.values()
        if not all(isfinite(weight) and weight >= 0 for weight in weights) or not 0 < sum(weights) < float("inf"):
            raise ValueError("hybrid.weights must not be below zero, and one must be above")

    @property
    def name(self) -> str:
        """As it is configured and recorded."""
        return "hybrid"

    def weigh(self, survey: PolicyFeatures) -> list[Parts]:
        """Between 0 and 1."""
        asked = {name: weight for name, weight in sorted(self.weights.items()) if weight > 0}
        whole = sum(asked.values())
        scores: list[Parts] = [{TOTAL: 0.0} for _ in survey.view.eligible]
        for name, weight in asked.items():
            weighed = self.scorers[name].weigh(survey)
            for score, parts, share in zip(scores, weighed, _between_0_and_1(weighed), strict=True):
                score[TOTAL] += weight / whole * share
                score |= {f"{name}.{part}" if part != REPEATS else part: value for part, value in parts.items()}
        return scores


def _between_0_and_1(weighed: list[Parts]) -> list[float]:
    totals = [parts[TOTAL] for parts in weighed]
    lowest = min(totals, default=0.0)
    width = max(totals, default=0.0) - lowest
    return [(total - lowest) / width if width > 0 else 0.0 for total in totals]
