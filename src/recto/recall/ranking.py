"""Ranks the candidates of a query and explains every score as a sum of named parts.

Word scores and cosines are standardized over the candidates and fused. Metadata is added to that: the role, the kind of
statement and the age. These parts are multiplied by the relevance of the
message, so that an emphatic message about another subject does not move up.

The constants were tuned on two public sets of labelled questions and are not sensitive to small changes: see
docs/recall.md.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log, sqrt
from types import MappingProxyType

from recto.context.facts.types import Mark
from recto.transcript.entries import Role

DAY = 86_400 * 1_000_000
ASSISTANT_WEIGHT = 0.7
"""Weight of words in assistant messages: they repeat the question and are verbose."""
PASSAGE_PENALTY = 0.02
"""Penalty on the best cosine per log of the number of passages: the best of many is always near by chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A message proposed by words, vectors or a date."""

    session: str
    seq: int
    ts: int
    role: Role
    marks: Mark
    exchange: int = 0
    """The user message that opened the exchange it belongs to."""
    bm25: float = 0.0
    strength: float = 0.0
    """The BM25 score as a share of the best score the query could reach, from 0 to 1."""
    matched: int = 0
    """Number of query terms in the message, approximately."""
    cosine: float | None = None
    """Cosine to the query; None if the message has no comparable vector."""
    passages: int = 1
    """Number of passages the nearest one was chosen from, approximately."""
    phrases: float = 0.0
    """Weight of adjacent query terms that are adjacent in the message too, from 0 to 2."""
    task: float = 0.0
    """Share of the terms of the task that are in the message, from 0 to 1."""
    in_span: bool = False
    """Whether it dates from the days the query names."""

    @property
    def words(self) -> float:
        """BM25 score, weighted by role."""
        return self.bm25 * (ASSISTANT_WEIGHT if self.role == "assistant" else 1.0)

    @property
    def likeness(self) -> float | None:
        """Cosine, corrected for the number of passages."""
        return None if self.cosine is None else self.cosine - PASSAGE_PENALTY * log(max(self.passages, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingWeights:
    """Weight of each part, in standard deviations of similarity over the candidates."""

    meaning: float = 0.5
    """Share of vectors in the similarity; words have the rest."""
    phrases: float = 0.5
    date: float = 1.0
    recency: float = 0.1
    half_life_days: float = 30.0
    task: float = 0.2
    superseded: float = -1.0
    secret: float = -0.3
    roles: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({"user": 0.1, "tool": -0.1}))
    marks: Mapping[Mark, float] = field(
        default_factory=lambda: MappingProxyType(
            {
                Mark.CORRECTION: 0.5,
                Mark.CONSTRAINT: 0.25,
                Mark.DECISION: 0.25,
                Mark.PREFERENCE: 0.15,
                Mark.CRITICAL: 0.3,
            }
        )
    )

    def with_meaning(self, share: float) -> RankingWeights:
        """Return a copy with another share for vectors, as configured by the embedder."""
        return replace(self, meaning=share)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelevanceCalibration:
    """Maps absolute similarity to the relevance of a message: a logistic curve, fitted on labelled questions.

    This is a gate and not a probability: one in six questions about something that was never mentioned passes it.
    """

    base: float
    strength: float
    matched: float = 0.0
    likeness: float = 0.0

    def chance(self, candidate: Candidate) -> float:
        """Return the relevance, from 0 to 1."""
        strength = candidate.strength * (ASSISTANT_WEIGHT if candidate.role == "assistant" else 1.0)
        lexical = self.base + self.strength * strength + self.matched * min(candidate.matched, 6)
        return 1 / (1 + exp(-(lexical + self.likeness * (candidate.likeness or 0.0))))


WORDS_ONLY = RelevanceCalibration(base=-2.75, strength=10.0, matched=1 / 6)
"""For candidates without a cosine, or with one of an embedder that has no calibration."""
CALIBRATIONS: Mapping[str, RelevanceCalibration] = MappingProxyType(
    {"arctic-embed-s": RelevanceCalibration(base=-7.2, strength=7.5, likeness=9.0)}
)
"""By prefix of the embedder's name: the scale of a cosine depends on the model."""


def calibration_for(embedder: str) -> RelevanceCalibration:
    """Return the calibration of an embedder."""
    return next((curve for name, curve in CALIBRATIONS.items() if embedder.startswith(name)), WORDS_ONLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A candidate with its score and the parts of it."""

    candidate: Candidate
    score: float
    chance: float
    parts: Mapping[str, float]


class Ranker:
    """Ranks the candidates of one query. Similarity is standardized over all of them."""

    def __init__(
        self, candidates: Sequence[Candidate], *, weights: RankingWeights, curve: RelevanceCalibration, now: int
    ) -> None:
        self._candidates = candidates
        self._weights = weights
        self._curve = curve
        self._now = now
        self._words = _StandardScale.of([one.words for one in candidates])
        near = [one.likeness for one in candidates if one.likeness is not None]
        self._meaning, self._share = _StandardScale.of(near), weights.meaning if near else 0.0

    def ranked(self) -> list[Ranked]:
        """Rank all candidates, best first; newer ones first among equals."""
        return _sort_best_first([self._ranked(one) for one in self._candidates])

    def ranked_again(self, candidates: Sequence[Candidate], rest: Sequence[Ranked]) -> list[Ranked]:
        """Rank again after some candidates gained phrases and task terms.

        The scales stay those of the first pass, since words and vectors did not change; so `rest` keeps its scores.
        """
        return _sort_best_first([*map(self._ranked, candidates), *rest])

    def _ranked(self, one: Candidate) -> Ranked:
        weights = self._weights
        chance = (WORDS_ONLY if one.likeness is None else self._curve).chance(one)
        like = 0.0 if one.likeness is None else self._meaning(one.likeness)
        parts = {"words": (1 - self._share) * self._words(one.words), "meaning": self._share * like}
        parts |= {name: value * chance for name, value in _metadata_parts(one, weights, self._now).items() if value}
        # Phrases and dates are explicit in the query, so they count whatever the relevance.
        if one.phrases:
            parts["phrases"] = weights.phrases * one.phrases
        if one.in_span:
            parts["date"] = weights.date
        return Ranked(candidate=one, score=sum(parts.values()), chance=chance, parts=MappingProxyType(parts))


def _sort_best_first(ranked: Sequence[Ranked]) -> list[Ranked]:
    return sorted(ranked, key=lambda one: (-one.score, -one.candidate.ts, -one.candidate.seq))


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Candidates that belong together: of one exchange, or of one session."""

    key: Hashable
    members: tuple[Ranked, ...]
    """Best first."""
    score: float


def group_candidates(
    ranked: Sequence[Ranked],
    key: Callable[[Candidate], Hashable],
    *,
    share: float,
    session_scores: Mapping[Hashable, float] = MappingProxyType({}),
) -> list[Group]:
    """Group candidates and rank the groups by their best members; the second and third best count less.

    `session_scores` are word scores of a group taken as one long message, where known.
    """
    members: dict[Hashable, list[Ranked]] = {}
    for one in ranked:
        members.setdefault(key(one.candidate), []).append(one)
    words = {
        name: session_scores.get(name, 0.0) + _decayed_sum([one.candidate.words for one in of])
        for name, of in members.items()
    }
    near = {name: like for name, of in members.items() if (like := _group_similarity(of)) is not None}
    word_scale, near_scale = _StandardScale.of(list(words.values())), _StandardScale.of(list(near.values()))
    share = share if near else 0.0
    found = []
    for name, of in members.items():
        like = near_scale(near[name]) if name in near else 0.0
        beside = max(sum(value for part, value in one.parts.items() if part not in _SIMILARITY_PARTS) for one in of)
        score = (1 - share) * word_scale(words[name]) + share * like + beside
        found.append(Group(key=name, members=tuple(of), score=score))
    return sorted(found, key=lambda group: -group.score)


_SIMILARITY_PARTS = ("words", "meaning")


def _group_similarity(members: Sequence[Ranked]) -> float | None:
    """Return the weighted mean of the best and second cosine: one message that is near by chance has no second."""
    best = sorted((one.candidate.likeness for one in members if one.candidate.likeness is not None), reverse=True)
    if not best:
        return None
    return best[0] if len(best) == 1 else (best[0] + best[1] / 2) / 1.5


def _decayed_sum(values: Sequence[float]) -> float:
    return sum(value * 0.5**place for place, value in enumerate(sorted(values, reverse=True)[:3]))


def _metadata_parts(one: Candidate, weights: RankingWeights, now: int) -> dict[str, float]:
    """Return the parts of a score that do not depend on similarity."""
    parts = {"authority": weights.roles.get(one.role, 0.0)}
    parts["task"] = weights.task * one.task
    parts |= {str(mark.name).lower(): value for mark, value in weights.marks.items() if mark in one.marks}
    if one.marks & (Mark.EVERGREEN | Mark.CRITICAL):
        parts["recency"] = weights.recency  # evergreen and critical messages do not age
    else:
        parts["recency"] = weights.recency * 0.5 ** (max(now - one.ts, 0) / DAY / weights.half_life_days)
    if Mark.SECRET in one.marks:
        parts["secret"] = weights.secret
    return parts


@dataclass(frozen=True, slots=True)
class _StandardScale:
    """Standardizes values: deviation from the mean in standard deviations; 0 if all are equal."""

    centre: float
    spread: float

    @classmethod
    def of(cls, values: Sequence[float]) -> _StandardScale:
        centre = sum(values) / max(len(values), 1)
        spread = sqrt(sum((value - centre) ** 2 for value in values) / max(len(values), 1))
        return cls(centre, spread or 1.0)

    def __call__(self, value: float) -> float:
        return (value - self.centre) / self.spread
