"""Near-duplicates: of two units with the same content the older is evicted first; the rest oldest first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

from recto.context.policies.features import REPEATS, TOTAL, PolicyFeatures, ScoreParts
from recto.text.similarity import Vector, cosine, text_vector

_MAX_COMPARED_CHARS = 2_000_000
"""Characters compared in one plan, over all units."""
_MIN_ENTRY_CHARS = 400
"""Minimum characters compared per entry, however many there are."""
_REST_SHARE = 0.6
"""Stop collecting candidates once the unseen features weigh less than this share of the squared threshold."""
_ROUNDING = 1e-9
"""Rounding error allowed in a cosine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticMerge:
    """Units repeated by a newer one score below 0, by similarity; all others score 0."""

    threshold: float = 0.85
    """Cosine similarity above which the older of two units counts as repeated."""
    least_words: int = 8
    """Distinct words and word pairs a unit needs to be compared: short answers are similar by chance."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ValueError("semantic_merge.threshold must be above 0 and at most 1")
        if self.least_words < 1:
            raise ValueError("semantic_merge.least_words must be at least 1")

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        return "semantic_merge"

    def score(self, features: PolicyFeatures) -> list[ScoreParts]:
        """Below 0 for units repeated by a newer one, which is named by its first entry."""
        repeats = self._repeats(features)
        scores: list[ScoreParts] = []
        for unit in features.view.eligible:
            similarity, newer = repeats.get(features.index_of[unit.first], (0.0, -1))
            if newer < 0:
                scores.append({TOTAL: 0.0})
            else:
                scores.append({TOTAL: -similarity, "alike": similarity, REPEATS: float(features.units[newer].first)})
        return scores

    def _repeats(self, view_features: PolicyFeatures) -> dict[int, tuple[float, int]]:
        """For each index whose unit is repeated: the similarity, and the index of the newer unit that stays."""
        share = max(_MIN_ENTRY_CHARS, _MAX_COMPARED_CHARS // max(1, len(view_features.units)))
        vectors = [text_vector(view_features.text(unit, share)) for unit in view_features.units]
        spread = Counter(code for features in vectors for code in features)
        eligible = {view_features.index_of[unit.first] for unit in view_features.view.eligible}
        indexes_by_code: dict[int, list[int]] = defaultdict(list)
        repeats: dict[int, tuple[float, int]] = {}
        for index in range(len(vectors) - 1, -1, -1):
            features = vectors[index]
            if len(features) < self.least_words:
                continue
            candidates = self._candidates(features, spread, indexes_by_code, vectors) if index in eligible else []
            similarity, other = max(
                ((cosine(features, vectors[other]), other) for other in candidates), default=(0.0, -1)
            )
            if similarity > self.threshold:
                repeats[index] = (similarity, other)
                continue
            for code in features:
                indexes_by_code[code].append(index)
        return repeats

    def _candidates(
        self,
        features: Vector,
        spread: Mapping[int, int],
        indexes_by_code: Mapping[int, list[int]],
        vectors: list[Vector],
    ) -> list[int]:
        """Units that may be similar enough.

        Both vectors have length 1, so the features not yet seen can add at most their own length. The rarest features
        come first, until that bound is so small that few units remain for a full comparison.
        """
        unseen_weight = 1.0
        partial_cosines: dict[int, float] = {}
        for code in sorted(features, key=lambda code: (spread[code], code)):
            if unseen_weight < _REST_SHARE * self.threshold**2:
                break
            weight = features[code]
            unseen_weight -= weight * weight
            for other in indexes_by_code.get(code, ()):
                partial_cosines[other] = partial_cosines.get(other, 0.0) + weight * vectors[other][code]
        bound = sqrt(max(unseen_weight, 0.0)) + _ROUNDING
        return [other for other, partial in partial_cosines.items() if partial + bound > self.threshold]
