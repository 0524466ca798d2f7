"""Scorers: in which order `Evict` evicts units. A setting selects one by its name in `SCORERS`.

First in, first out; least recently used; by priority; by time to live; near-duplicates first; or a weighted combination
of these. A new one is a frozen dataclass and a line in `SCORERS`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from heapq import nlargest
from math import isfinite, sqrt
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from recto.context.policies.features import REPEATS, TOTAL, PolicyFeatures, ScoreParts, Scorer, UnitKind
from recto.context.window.units import Unit
from recto.errors import SettingsError
from recto.text.lazy_re import lazy_re
from recto.text.similarity import Vector, cosine, text_vector
from recto.text.terms import find_terms

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
"""Rounding error allowed in a cosine and in a sum of weights."""
_MAX_VECTORS = 4_096
"""Vectors compared in one plan, those of the newest units: every one is compared with every other."""
_CHUNK = 256
"""Vectors that are compared with all others at once."""
_NUMBER = lazy_re(r"\d[\d.,:]*", re.ASCII)


class SemanticMerge(Struct, frozen=True, kw_only=True):
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


class Fifo(Struct, frozen=True, kw_only=True):
    """A unit's score is its place in eviction order."""

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        return "fifo"

    def score(self, features: PolicyFeatures) -> list[ScoreParts]:
        """0 for the first to be evicted, 1 for the last."""
        last = max(1, len(features.view.eligible) - 1)
        return [{TOTAL: index / last} for index in range(len(features.view.eligible))]


class Lru(Struct, frozen=True, kw_only=True):
    """A unit's score is the time of its last use: its own, or that of the newest unit that repeats its terms.

    A formula in circulation gives idle blocks the high score; here, as the name says, they get the low one.
    """

    shared: int = 2
    """How many terms that the unit brought up must occur again to count as a use. A term that others had before it
    counts as a part: a half for the second unit that has it, a third for the third."""

    def __post_init__(self) -> None:
        if self.shared < 1:
            raise ValueError("lru.shared must be at least 1")

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        return "lru"

    def score(self, features: PolicyFeatures) -> list[ScoreParts]:
        """0 for units last used at the beginning, 1 for units used just now."""
        return [self._parts(features, unit) for unit in features.view.eligible]

    def _parts(self, features: PolicyFeatures, unit: Unit) -> ScoreParts:
        used = self._last_used(features, unit)
        newest = len(features.units) - 1
        return {
            TOTAL: used / max(1, newest),
            "last_used": float(features.units[used].first),
            "idle": float(newest - used),
        }

    def _last_used(self, features: PolicyFeatures, unit: Unit) -> int:
        """Index of the newest unit by which enough of the unit's terms have occurred again; its own if none."""
        uses = features.later_uses(unit)
        # A unit with a single term of its own is used when that one comes up.
        required = min(float(self.shared), max(1.0, sum(use.weight for use in uses))) - _ROUNDING
        own, found = features.index_of[unit.first], 0.0
        for use in sorted(uses, key=lambda use: use.last, reverse=True):
            found += use.weight
            if found >= required:
                return use.last
        return own


class TypeTtl(Struct, frozen=True, kw_only=True):
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


_USED_TERMS = 2
_WEIGHTS = ("recency", "relevance", "source", "reuse", "mark")


class Priority(Struct, frozen=True, kw_only=True):
    """Each part is between 0 and 1; the total is their weighted mean."""

    recency: float = 0.3
    """Weight of recency."""
    relevance: float = 0.25
    """Weight of relevance to the goal: by the vectors of recall, or by shared terms where there are none."""
    source: float = 0.2
    """Weight of the unit's kind."""
    reuse: float = 0.15
    """Weight of the share of later units that use its terms."""
    mark: float = 0.1
    """Weight of the word IMPORTANT in what the user or the assistant says."""
    worth: dict[UnitKind, float] = field(
        default_factory=lambda: {"tool": 0.2, "assistant": 0.5, "error": 0.7, "decision": 0.9, "user": 1.0}
    )
    """Value of each kind of unit, from 0 to 1."""

    def __post_init__(self) -> None:
        weights = [getattr(self, name) for name in _WEIGHTS]
        if not all(isfinite(weight) and weight >= 0 for weight in weights) or not 0 < sum(weights) < float("inf"):
            raise ValueError(f"priority: {', '.join(_WEIGHTS)} must not be below zero, and one must be above")
        if self.worth.keys() != {"tool", "assistant", "error", "decision", "user"}:
            raise ValueError("priority.worth must name tool, assistant, error, decision and user")
        if not all(0 <= worth <= 1 for worth in self.worth.values()):
            raise ValueError("priority.worth must be between 0 and 1")

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        return "priority"

    def score(self, features: PolicyFeatures) -> list[ScoreParts]:
        """Between 0 and 1."""
        return [self._parts(features, unit) for unit in features.view.eligible]

    def _parts(self, features: PolicyFeatures, unit: Unit) -> ScoreParts:
        parts = {
            "recency": features.recency(unit),
            "relevance": features.relevance(unit),
            "source": self.worth[features.kind(unit)],
            "reuse": _reuse(features, unit),
            "mark": float(features.is_important(unit)),
        }
        weights = {name: float(getattr(self, name)) for name in _WEIGHTS}
        total = sum(weights[name] * part for name, part in parts.items()) / sum(weights.values())
        return {TOTAL: total, **parts}


def _reuse(features: PolicyFeatures, unit: Unit) -> float:
    """The share of later units that use the unit, by the two of its terms that are used most.

    One word in common is chance, and a unit of a hundred terms is used although most of them never occur again.
    """
    later = len(features.units) - 1 - features.index_of[unit.first]
    most = nlargest(_USED_TERMS, (use.weight * use.later for use in features.later_uses(unit)))
    return sum(most) / (_USED_TERMS * later) if later else 0.0


def _scorers() -> dict[str, Scorer]:
    scorers: tuple[Scorer, ...] = (Fifo(), Lru(), Priority(), TypeTtl(), SemanticMerge())
    return {scorer.name: scorer for scorer in scorers}


class Hybrid(Struct, frozen=True, kw_only=True):
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
            force_setattr(self, "scorers", {**self.scorers, name: made})
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


SCORERS: Final[Mapping[str, Callable[..., Scorer]]] = {
    "fifo": Fifo,
    "lru": Lru,
    "priority": Priority,
    "semantic_merge": SemanticMerge,
    "type_ttl": TypeTtl,
    "hybrid": Hybrid,
}
"""Scorers by their name in settings; their own settings are keyword arguments."""


def scorer_named(name: str, **settings: object) -> Scorer:
    """Create a scorer from its name and settings. Raises `SettingsError` if either is unknown or out of range."""
    make = SCORERS.get(name)
    if make is None:
        nearest = get_close_matches(name, SCORERS, n=1)
        raise SettingsError("scorer", f"'{name}' is none of {', '.join(SCORERS)}", nearest[0] if nearest else None)
    try:
        return make(**settings)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"scorer.{name}", str(error)) from None
