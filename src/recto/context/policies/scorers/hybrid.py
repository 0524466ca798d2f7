"""Weighted combination of several scorers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, cast

from recto.context.policies.features import REPEATS, TOTAL, PolicyFeatures, ScoreParts, Scorer
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
    """Weighted mean of other scorers' scores, each scaled to 0 to 1 over the units of the view."""

    weights: Mapping[str, float] = field(
        default_factory=lambda: {"fifo": 0.30, "priority": 0.25, "type_ttl": 0.20, "lru": 0.15, "semantic_merge": 0.10}
    )
    """Weight of each scorer. A scorer that is not named or has weight 0 is not used."""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings of the scorers by name, such as `{"type_ttl": {"tool": 8}}`."""
    scorers: Mapping[str, Scorer] = field(default_factory=_scorers)
    """The scorers by name."""

    def __post_init__(self) -> None:
        for name, values in self.settings.items():
            if name not in self.scorers:
                raise ValueError(f"hybrid.settings: no scorer '{name}'; known are {', '.join(self.scorers)}")
            made = replace(cast("Fifo", self.scorers[name]), **values)
            object.__setattr__(self, "scorers", {**self.scorers, name: made})
        unknown = self.weights.keys() - self.scorers.keys()
        if unknown:
            raise ValueError(f"hybrid.weights: no scorer '{min(unknown)}'; known are {', '.join(self.scorers)}")
        weights = self.weights.values()
        if not all(isfinite(weight) and weight >= 0 for weight in weights) or not 0 < sum(weights) < float("inf"):
            raise ValueError("hybrid.weights must not be below zero, and one must be above")

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        return "hybrid"

    def score(self, features: PolicyFeatures) -> list[ScoreParts]:
        """Between 0 and 1."""
        weights = {name: weight for name, weight in sorted(self.weights.items()) if weight > 0}
        total_weight = sum(weights.values())
        scores: list[ScoreParts] = [{TOTAL: 0.0} for _ in features.view.eligible]
        for name, weight in weights.items():
            part_lists = self.scorers[name].score(features)
            for unit_score, parts, share in zip(scores, part_lists, _scale_totals(part_lists), strict=True):
                unit_score[TOTAL] += weight / total_weight * share
                unit_score |= {f"{name}.{part}" if part != REPEATS else part: value for part, value in parts.items()}
        return scores


def _scale_totals(part_lists: list[ScoreParts]) -> list[float]:
    totals = [parts[TOTAL] for parts in part_lists]
    lowest = min(totals, default=0.0)
    width = max(totals, default=0.0) - lowest
    return [(total - lowest) / width if width > 0 else 0.0 for total in totals]
