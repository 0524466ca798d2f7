"""Near-duplicates: of two units with the same content the older is merged into the newer; the rest oldest first.

Two units are alike by the vectors of recall where these represent them whole, so that paraphrases are found. Where
recall has none, and for long texts and tool results, they are alike by their words.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

from recto.context.policies.features import REPEATS, TOTAL, PolicyFeatures, ScoreParts
from recto.text.identifiers import find_terms
from recto.text.lazy_re import lazy_re
from recto.text.similarity import Vector, cosine, text_vector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MAX_COMPARED_CHARS = 2_000_000
"""Characters compared in one plan, over all units."""
_MIN_ENTRY_CHARS = 400
"""Minimum characters compared per entry, however many there are."""
_REST_SHARE = 0.6
"""Stop collecting candidates once the unseen features weigh less than this share of the squared threshold."""
_ROUNDING = 1e-9
"""Rounding error allowed in a cosine."""
_MAX_VECTORS = 4_096
"""Vectors compared in one plan, those of the newest units: every one is compared with every other."""
_CHUNK = 256
"""Vectors that are compared with all others at once."""
_NUMBER = lazy_re(r"\d[\d.,:]*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticMerge:
    """Units repeated by a newer one score below 0, by similarity; all others score 0."""

    threshold: float = 0.85
    """Cosine similarity of words above which the older of two units counts as repeated."""
    meaning: float = 0.9
    """Cosine similarity of vectors above which it counts as repeated. Names and numbers of the older unit must occur in
    the newer one as well: vectors hardly tell them apart."""
    least_words: int = 8
    """Distinct words and word pairs a unit needs to be compared: short answers are similar by chance."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1 or not 0 < self.meaning <= 1:
            raise ValueError("semantic_merge.threshold and semantic_merge.meaning must be above 0 and at most 1")
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
        by_meaning = self._alike_by_meaning(view_features)
        spread = Counter(code for features in vectors for code in features)
        eligible = {view_features.index_of[unit.first] for unit in view_features.view.eligible}
        indexes_by_code: dict[int, list[int]] = defaultdict(list)
        repeats: dict[int, tuple[float, int]] = {}
        for index in range(len(vectors) - 1, -1, -1):
            features = vectors[index]
            if len(features) < self.least_words:
                continue
            candidates = self._candidates(features, spread, indexes_by_code, vectors) if index in eligible else []
            found = [(cosine(features, vectors[other]), other) for other in candidates]
            alike = [pair for pair in found if pair[0] > self.threshold]
            if index in eligible:
                # Of a chain of repeats the newest stays: what is itself repeated is no candidate.
                alike += [
                    (near, other)
                    for near, other in by_meaning.get(index, ())
                    if other not in repeats and len(vectors[other]) >= self.least_words
                ]
            if alike:
                repeats[index] = max(alike)
                continue
            for code in features:
                indexes_by_code[code].append(index)
        return repeats

    def _alike_by_meaning(self, features: PolicyFeatures) -> dict[int, list[tuple[float, int]]]:
        """For each index, the newer units that say the same by their vectors, with the similarity."""
        rows, owners = _unit_vectors(features)
        if len(set(owners)) < 2:
            return {}
        names: dict[int, frozenset[str]] = {}

        def names_of(index: int) -> frozenset[str]:
            if index not in names:
                names[index] = _names_in(features.text(features.units[index], features.vectors.characters))
            return names[index]

        alike: dict[int, list[tuple[float, int]]] = {}
        for older, newer, similarity in _similar_units(rows, owners, self.meaning):
            if names_of(older) <= names_of(newer):
                alike.setdefault(older, []).append((similarity, newer))
        return alike

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


def _unit_vectors(features: PolicyFeatures) -> tuple[list[NDArray[np.float32]], list[int]]:
    """The vectors of the units that they represent whole, and the index of the unit of each; oldest first.

    A tool result without a vector, or a text of which only the beginning was embedded, may differ where no vector
    shows it.
    """
    rows: list[NDArray[np.float32]] = []
    owners: list[int] = []
    entries, characters = features.vectors.entries, features.vectors.characters
    for index in range(len(features.units) - 1, -1, -1) if entries else ():
        unit = features.units[index]
        if all(seq in entries for seq in unit.seqs) and all(
            len(features.whole_text(message)) <= characters for message in unit.messages
        ):
            own = [row for seq in unit.seqs for row in entries[seq]]
            if len(rows) + len(own) > _MAX_VECTORS:
                break
            rows[:0], owners[:0] = own, [index] * len(own)
    return rows, owners


def _similar_units(
    rows: list[NDArray[np.float32]], owners: list[int], threshold: float
) -> Iterable[tuple[int, int, float]]:
    """Pairs of an older and a newer unit in which every vector of the older is near to one of the newer."""
    import numpy as np  # noqa: PLC0415  # loaded already where there are vectors

    matrix = np.stack(rows)
    indexes, starts = np.unique(np.array(owners), return_index=True)
    nearest = np.concatenate(
        [
            np.maximum.reduceat(matrix[at : at + _CHUNK] @ matrix.T, starts, axis=1)
            for at in range(0, len(matrix), _CHUNK)
        ]
    )
    similarities = np.minimum.reduceat(nearest, starts, axis=0)
    older, newer = np.nonzero(np.triu(similarities > threshold, k=1))
    for one, other in zip(older.tolist(), newer.tolist(), strict=True):
        yield int(indexes[one]), int(indexes[other]), round(min(float(similarities[one, other]), 1.0), 4)


def _names_in(text: str) -> frozenset[str]:
    """Numbers, and terms that are no plain words: identifiers, paths, codes, quoted names."""
    names = (term for term in find_terms(text) if not (term.isalpha() and term.islower()))
    return frozenset({*names, *(number.rstrip(".,:") for number in _NUMBER.findall(text))})
