"""What comes first among messages that were found: more than likeness, and every part of the score can be told.

Words and vectors are brought to one scale over the candidates of a question and fused. To that comes what is known of
a message beside its likeness: who said it, what kind of thing it says, how old it is, whether it helped before. Those
count the more the likelier the message matters at all, so that a loud message about something else stays where it is.

The constants were chosen on two public sets of labelled questions, with room around them: see docs/recall.md.
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
"""What a word counts that the assistant said: it repeats the question and says much beside."""
PASSAGE_PENALTY = 0.02
"""What the best of several passages loses with their number: the best of many is always near."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One message that words, vectors or a date found."""

    session: str
    seq: int
    ts: int
    role: Role
    marks: Mark
    exchange: int = 0
    """The user message that opened the exchange it belongs to."""
    bm25: float = 0.0
    strength: float = 0.0
    """The same as a share of the best score that the question's words could give, from 0 to 1."""
    matched: int = 0
    """How many of the question's words it has, about."""
    cosine: float | None = None
    """How near the meaning is; none where the message has no vector that could be compared."""
    passages: int = 1
    """How many passages the nearest one was chosen from, about."""
    phrases: float = 0.0
    """How much of what stands side by side in the question stands so in the message, from 0 to 2."""
    task: float = 0.0
    """How much of what the task is about is in the message, from 0 to 1."""
    shown: int = 0
    used: int = 0
    """How often it was recalled, and how often an answer made use of it."""
    in_span: bool = False
    """Whether it was said on the days the question means."""

    @property
    def words(self) -> float:
        """What its words are worth."""
        return self.bm25 * (ASSISTANT_WEIGHT if self.role == "assistant" else 1.0)

    @property
    def likeness(self) -> float | None:
        """How near the meaning is, less what is owed to many tries."""
        return None if self.cosine is None else self.cosine - PASSAGE_PENALTY * log(max(self.passages, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingWeights:
    """How much each part counts, in standard deviations of likeness over the candidates."""

    meaning: float = 0.5
    """The share of vectors in likeness; the rest is that of words."""
    phrases: float = 0.5
    date: float = 1.0
    recency: float = 0.1
    half_life_days: float = 30.0
    usefulness: float = 0.3
    task: float = 0.2
    taken_back: float = -1.0
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
        """With another share for vectors, as the embedder deserves it."""
        return replace(self, meaning=share)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelevanceCalibration:
    """From absolute likeness to how likely a message matters: a logistic curve, fitted on labelled questions.

    It is a gate and no probability: a question about something that was never said passes it in one case of six.
    """

    base: float
    strength: float
    matched: float = 0.0
    likeness: float = 0.0

    def chance(self, one: Candidate) -> float:
        """From 0 to 1."""
        strength = one.strength * (ASSISTANT_WEIGHT if one.role == "assistant" else 1.0)
        known = self.base + self.strength * strength + self.matched * min(one.matched, 6)
        return 1 / (1 + exp(-(known + self.likeness * (one.likeness or 0.0))))


WORDS_ONLY = RelevanceCalibration(base=-2.75, strength=10.0, matched=1 / 6)
"""Where no meaning was compared, or by an embedder whose scale is not known."""
CALIBRATIONS: Mapping[str, RelevanceCalibration] = MappingProxyType(
    {"arctic-embed-s": RelevanceCalibration(base=-7.2, strength=7.5, likeness=9.0)}
)
"""By the beginning of an embedder's name: a cosine means something else with each of them."""


def calibration_for(embedder: str) -> RelevanceCalibration:
    """The curve for an embedder."""
    return next((curve for name, curve in CALIBRATIONS.items() if embedder.startswith(name)), WORDS_ONLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A candidate with its score, taken apart."""

    candidate: Candidate
    score: float
    chance: float
    parts: Mapping[str, float]


class Ranker:
    """Ranks the candidates of one question. Likeness is on one scale over all of them."""

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
        """All of them, best first. Of equal ones the newer comes first."""
        return _sort_best_first([self._ranked(one) for one in self._candidates])

    def ranked_again(self, known: Sequence[Candidate], rest: Sequence[Ranked]) -> list[Ranked]:
        """The same, where of some candidates more is known now; their words and their meaning are as they were."""
        return _sort_best_first([*map(self._ranked, known), *rest])

    def _ranked(self, one: Candidate) -> Ranked:
        weights = self._weights
        chance = (WORDS_ONLY if one.likeness is None else self._curve).chance(one)
        like = 0.0 if one.likeness is None else self._meaning(one.likeness)
        parts = {"words": (1 - self._share) * self._words(one.words), "meaning": self._share * like}
        parts |= {name: value * chance for name, value in _metadata_parts(one, weights, self._now).items() if value}
        if one.phrases:
            parts["phrases"] = weights.phrases * one.phrases
        if one.in_span:
            parts["date"] = weights.date
        return Ranked(candidate=one, score=sum(parts.values()), chance=chance, parts=MappingProxyType(parts))


def _sort_best_first(ranked: Sequence[Ranked]) -> list[Ranked]:
    return sorted(ranked, key=lambda one: (-one.score, -one.candidate.ts, -one.candidate.seq))


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Candidates that belong together: those of one exchange, or of one session."""

    key: Hashable
    members: tuple[Ranked, ...]
    """Best first."""
    score: float


def group_candidates(
    ranked: Sequence[Ranked],
    key: Callable[[Candidate], Hashable],
    *,
    share: float,
    whole: Mapping[Hashable, float] = MappingProxyType({}),
) -> list[Group]:
    """The groups of candidates, best first: by the best of their members, less by the second and third.

    `whole` is what the words of a group are worth taken together as one long message, where that is known.
    """
    members: dict[Hashable, list[Ranked]] = {}
    for one in ranked:
        members.setdefault(key(one.candidate), []).append(one)
    words = {
        name: whole.get(name, 0.0) + _decayed_sum([one.candidate.words for one in of]) for name, of in members.items()
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
    """The mean of the best and half the second: a long message that is near by chance stands alone."""
    best = sorted((one.candidate.likeness for one in members if one.candidate.likeness is not None), reverse=True)
    if not best:
        return None
    return best[0] if len(best) == 1 else (best[0] + best[1] / 2) / 1.5


def _decayed_sum(values: Sequence[float]) -> float:
    return sum(value * 0.5**place for place, value in enumerate(sorted(values, reverse=True)[:3]))


def _metadata_parts(one: Candidate, weights: RankingWeights, now: int) -> dict[str, float]:
    """What counts beside likeness."""
    parts = {"authority": weights.roles.get(one.role, 0.0)}
    parts["task"] = weights.task * one.task
    parts |= {str(mark.name).lower(): value for mark, value in weights.marks.items() if mark in one.marks}
    if one.marks & (Mark.EVERGREEN | Mark.CRITICAL):
        parts["recency"] = weights.recency  # what does not age is always as good as new
    else:
        parts["recency"] = weights.recency * 0.5 ** (max(now - one.ts, 0) / DAY / weights.half_life_days)
    if one.shown:
        parts["usefulness"] = weights.usefulness * (one.used / one.shown - 0.5)
    if Mark.SECRET in one.marks:
        parts["secret"] = weights.secret
    return parts


@dataclass(frozen=True, slots=True)
class _StandardScale:
    """Standard deviations from the mean; where all are the same, nothing."""

    centre: float
    spread: float

    @classmethod
    def of(cls, values: Sequence[float]) -> _StandardScale:
        centre = sum(values) / max(len(values), 1)
        spread = sqrt(sum((value - centre) ** 2 for value in values) / max(len(values), 1))
        return cls(centre, spread or 1.0)

    def __call__(self, value: float) -> float:
        return (value - self.centre) / self.spread
