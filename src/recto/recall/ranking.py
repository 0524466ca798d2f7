"""Ranks the candidates of a query in columns, and explains every score as a sum of named parts.

Word scores and cosines are standardized over the candidates and fused. Added to that are the days the query names and,
unless it asks for a fact, the rules and preferences that the user stated. Nothing else is: role, age, the task and
other kinds of statements brought nothing on the public sets that the constants were tuned on (docs/recall.md has the
figures).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from recto.context.facts.types import Mark
from recto.recall.term_rows import ROLES

Floats: TypeAlias = NDArray[np.float64]

ASSISTANT_WEIGHT = 0.6
"""Weight of words in assistant messages: they repeat the question and are verbose."""
PASSAGE_PENALTY = 0.02
"""Penalty on the best cosine per log of the number of passages: the best of many is always near by chance."""
_USER, _ASSISTANT = ROLES.index("user"), ROLES.index("assistant")
_MAX_MATCHED = 6


class Candidates(Struct, frozen=True, kw_only=True):
    """Messages proposed by words, vectors or a date: one array per property, one position per message."""

    sessions: NDArray[np.intp]
    """Positions in the list of searched sessions."""
    seqs: NDArray[np.int64]
    ts: NDArray[np.int64]
    roles: NDArray[np.uint8]
    """Positions in `ROLES`."""
    marks: NDArray[np.uint32]
    exchanges: NDArray[np.int64]
    """The user messages that opened the exchanges they belong to; 0 if there is none."""
    bm25: Floats
    strength: Floats
    """The BM25 score as a share of the best score the query could reach, from 0 to 1."""
    matched: Floats
    """Number of query terms in the message, approximately."""
    cosines: Floats
    """Cosine to the query; NaN if the message has no comparable vector."""
    passages: Floats
    """Number of passages the nearest one was chosen from, approximately."""
    in_span: NDArray[np.bool]
    """Whether it dates from the days the query names."""

    def __len__(self) -> int:
        return len(self.seqs)

    @property
    def words(self) -> Floats:
        """BM25 scores, weighted by role."""
        return np.where(self.roles == _ASSISTANT, ASSISTANT_WEIGHT, 1.0) * self.bm25

    @property
    def is_standing(self) -> NDArray[np.bool]:
        """Whether the user states a rule or a preference in the message."""
        is_marked = (self.marks & np.uint32(Mark.CONSTRAINT | Mark.PREFERENCE)) != 0
        found: NDArray[np.bool] = is_marked & (self.roles == _USER)
        return found

    @property
    def likeness(self) -> Floats:
        """Cosines, corrected for the number of passages; NaN where there is none."""
        corrected: Floats = self.cosines - PASSAGE_PENALTY * np.log(np.maximum(self.passages, 1))
        return corrected


class RankingWeights(Struct, frozen=True, kw_only=True):
    """Weight of each part, in standard deviations of similarity over the candidates."""

    meaning: float = 0.5
    """Share of vectors in the similarity; words have the rest."""
    words_alone: float = 1.0
    """Share of words in the similarity of a message without a vector, such as a tool result."""
    date: float = 1.0
    standing: float = 0.8
    """Of a rule or a preference that the user stated: it is brief, and a request it applies to has other words."""
    superseded: float = -1.0
    judged: float = 1.0
    """Of an entry that was judged helpful; as much is taken from one that was judged not helpful."""
    unhelpful: float = 0.5
    """Factor of the relevance of the latter: quoted again only where it matches well."""

    def with_meaning(self, share: float) -> RankingWeights:
        """Return a copy with another share for vectors, as configured by the embedder."""
        return replace(self, meaning=share)


class RelevanceCalibration(Struct, frozen=True, kw_only=True):
    """Maps absolute similarity to the relevance of a message: a logistic curve, fitted on labelled questions.

    This is a gate and not a probability: one in six questions about something that was never mentioned passes it.
    """

    base: float
    strength: float
    matched: float = 0.0
    likeness: float = 0.0
    assistant: float = 0.7
    """Factor of the strength of assistant messages."""

    def chances(self, candidates: Candidates) -> Floats:
        """Return the relevance of each candidate, from 0 to 1."""
        factor = np.where(candidates.roles == _ASSISTANT, self.assistant, 1.0)
        lexical = self.base + self.strength * factor * candidates.strength
        lexical += self.matched * np.minimum(candidates.matched, _MAX_MATCHED)
        if self.likeness:
            lexical += self.likeness * np.nan_to_num(candidates.likeness)
        chances: Floats = 1 / (1 + np.exp(-lexical))
        return chances


WORDS_ONLY = RelevanceCalibration(base=-2.75, strength=10.0, matched=1 / 6)
"""For candidates without a cosine, or with one of an embedder that has no calibration."""
CALIBRATIONS: Mapping[str, RelevanceCalibration] = MappingProxyType(
    {"arctic-embed-s": RelevanceCalibration(base=-7.3, strength=7.5, likeness=9.0)}
)
"""By prefix of the embedder's name: the scale of a cosine depends on the model."""


def calibration_for(embedder: str) -> RelevanceCalibration:
    """Return the calibration of an embedder."""
    return next((curve for name, curve in CALIBRATIONS.items() if embedder.startswith(name)), WORDS_ONLY)


class Scores(Struct, frozen=True, kw_only=True):
    """The scores of candidates, in the same positions."""

    parts: Mapping[str, Floats]
    """What a score is the sum of, by name."""
    total: Floats
    chances: Floats
    """Estimated relevance from 0 to 1."""

    def parts_of(self, at: NDArray[np.intp]) -> list[dict[str, float]]:
        """Return the parts of some scores. Parts other than similarity are left out where they are 0."""
        rows = zip(*(column[at].tolist() for column in self.parts.values()), strict=True)
        return [
            {name: value for name, value in zip(self.parts, row, strict=True) if value or name in _SIMILARITY_PARTS}
            for row in rows
        ]

    def with_judged(self, weights: RankingWeights, at: NDArray[np.intp], helpful: NDArray[np.bool]) -> Scores:
        """Return these with what judgements of earlier quotations add or take.

        Helpful ones rank higher but are not more relevant: a judgement lets nothing through the gate.
        """
        chances = self.chances.copy()
        chances[at[~helpful]] *= weights.unhelpful
        values = np.where(helpful, weights.judged, -weights.judged)
        return replace(self.with_part("judged", at, values), chances=chances)

    def with_part(self, name: str, at: NDArray[np.intp], values: Floats) -> Scores:
        """Return these with one more part, which some of the candidates have."""
        part = np.zeros(len(self.total))
        part[at] = values
        return replace(self, parts={**self.parts, name: part}, total=self.total + part)


_SIMILARITY_PARTS = ("words", "meaning")


def score_candidates(candidates: Candidates, weights: RankingWeights, curve: RelevanceCalibration) -> Scores:
    """Score candidates. Similarity is standardized over all of them."""
    known = ~np.isnan(candidates.cosines)
    share = weights.meaning if known.any() else 0.0
    meaning = np.zeros(len(candidates))
    if share:
        meaning[known] = standardized(candidates.likeness[known])
    words = np.where(known, 1 - share, weights.words_alone if share else 1.0) * standardized(candidates.words)
    parts = {"words": words, "meaning": share * meaning}
    if candidates.in_span.any():
        # The query names these days, so they count whatever the relevance.
        parts["date"] = weights.date * candidates.in_span.astype(np.float64)
    if (standing := candidates.is_standing).any():
        parts["standing"] = weights.standing * standing.astype(np.float64)
    chances: Floats = WORDS_ONLY.chances(candidates)
    if curve is not WORDS_ONLY:
        chances = np.where(known, curve.chances(candidates), chances)
    total: Floats = sum(parts.values(), np.zeros(len(candidates)))
    return Scores(parts=parts, total=total, chances=chances)


def best_first(candidates: Candidates, total: Floats) -> NDArray[np.intp]:
    """Return the positions of candidates by score, best first; newer ones first among equals."""
    return np.lexsort((candidates.sessions, -candidates.seqs, -candidates.ts, -total))


def standardized(values: Floats) -> Floats:
    """Return the deviation of each value from the mean in standard deviations; 0 if all are equal."""
    if not len(values):
        return values
    centred: Floats = values - values.mean()
    return centred / (float(np.sqrt((centred * centred).mean())) or 1.0)
