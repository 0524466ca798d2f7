"""Near-duplicates: of two units that say the same the older leaves; the rest leaves oldest first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

from recto.context.policies.features import REPEATS, TOTAL, Parts, PolicyFeatures
from recto.text.similarity import Vector, cosine, vector

_CHARACTERS = 2_000_000
"""Characters that are compared in one plan, all units together."""
_LEAST = 400
"""Characters of an entry that are compared, however many there are."""
_ENOUGH = 0.6
"""Below this share of what alikeness takes, the features not looked at yet no longer matter much."""
_SLACK = 1e-9
"""What rounding may take from a cosine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticMerge:
    """Units that a newer one repeats have a score below 0, by how alike they are; all others have 0."""

    threshold: float = 0.85
    """How alike two units must be, as a cosine, for the older to leave."""
    least_words: int = 8
    """Different words and pairs of words from which on a unit is compared: short answers are alike by chance."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ValueError("semantic_merge.threshold must be above 0 and at most 1")
        if self.least_words < 1:
            raise ValueError("semantic_merge.least_words must be at least 1")

    @property
    def name(self) -> str:
        """As it is configured and recorded."""
        return "semantic_merge"

    def weigh(self, survey: PolicyFeatures) -> list[Parts]:
        """Below 0 for what a newer unit repeats; that one is named by its first entry."""
        repeats = self._repeats(survey)
        scores: list[Parts] = []
        for unit in survey.view.eligible:
            alike, kept = repeats.get(survey.places[unit.first], (0.0, -1))
            if kept < 0:
                scores.append({TOTAL: 0.0})
            else:
                scores.append({TOTAL: -alike, "alike": alike, REPEATS: float(survey.units[kept].first)})
        return scores

    def _repeats(self, survey: PolicyFeatures) -> dict[int, tuple[float, int]]:
        """For each place whose unit is repeated: how alike, and the place of the newer unit that is kept."""
        share = max(_LEAST, _CHARACTERS // max(1, len(survey.units)))
        vectors = [vector(survey.text(unit, share)) for unit in survey.units]
        spread = Counter(code for features in vectors for code in features)
        eligible = {survey.places[unit.first] for unit in survey.view.eligible}
        kept: dict[int, list[int]] = defaultdict(list)
        found: dict[int, tuple[float, int]] = {}
        for place in range(len(vectors) - 1, -1, -1):
            features = vectors[place]
            if len(features) < self.least_words:
                continue
            near = self._near(features, spread, kept, vectors) if place in eligible else []
            alike, other = max(((cosine(features, vectors[other]), other) for other in near), default=(0.0, -1))
            if alike > self.threshold:
                found[place] = (alike, other)
                continue
            for code in features:
                kept[code].append(place)
        return found

    def _near(
        self, features: Vector, spread: Mapping[int, int], kept: Mapping[int, list[int]], vectors: list[Vector]
    ) -> list[int]:
        """The kept units that may be alike enough.

        Both vectors have length 1, so what the features not looked at yet can add is at most their own length. The
        rarest are looked at first, until that is so little that few units are left to compare in full.
        """
        rest = 1.0
        told: dict[int, float] = {}
        for code in sorted(features, key=lambda code: (spread[code], code)):
            if rest < _ENOUGH * self.threshold**2:
                break
            weight = features[code]
            rest -= weight * weight
            for other in kept.get(code, ()):
                told[other] = told.get(other, 0.0) + weight * vectors[other][code]
        most = sqrt(max(rest, 0.0)) + _SLACK
        return [other for other, so_far in told.items() if so_far + most > self.threshold]
