"""Features of a view that scorers use: texts, terms and reuse, computed on first access.

One `PolicyFeatures` lives as long as its plan is computed and is the only place where policies cache anything. The
characters read for terms are bounded, so a plan over thousands of units stays fast.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from recto.context.window.units import EntryVectors, PolicyView, Unit, WindowMessage
from recto.text.lazy_re import lazy_re
from recto.text.terms import MAX_TERM_CHARS, TermCache, clip_middle, find_terms

TOTAL: Final = "total"
"""The part of a score that decides."""
REPEATS: Final = "repeats"
"""The part of a score that names another unit with the same content, by its first entry."""

ScoreParts: TypeAlias = dict[str, float]
"""A score with its parts: `TOTAL` and everything that went into it."""

UnitKind: TypeAlias = Literal["tool", "assistant", "error", "decision", "user"]

MAX_FEATURE_CHARS = 240_000
"""Characters read for terms in one plan, over all units."""
_MIN_ENTRY_CHARS = 60
"""Minimum characters read per entry, however many there are."""

_MIN_COSINE_SPREAD = 0.25
"""Difference of cosines that counts as the whole range from irrelevant to relevant, at least: where all units are about
equally far from the goal, the differences are noise."""

_ERRORS = ("rror:", "xception:", "Traceback (", "FAIL", "panic:", "fatal:", "tool_use_error", "ermission denied")
_FAILED = lazy_re(r"xit (?:code|status):? [1-9]")
_IMPORTANT = lazy_re(r"\bIMPORTANT\b")
_DECISIONS = ("decided", "ecision:", "e will use", "e'll use", "o with ", "instead of", "must not", "must never")


class LaterUse(NamedTuple):
    """How one term of a unit is used after it."""

    weight: float
    """How much the term says about the unit, above 0 and at most 1."""
    later: int
    """Number of later units that contain it."""
    last: int
    """Index of the newest unit that contains it: the unit itself if no later one does."""


class Scorer(Protocol):
    """Scores the units of a view. Pure and total: it returns a finite score for every unit."""

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        ...

    def score(self, features: PolicyFeatures) -> list[ScoreParts]:
        """The score of each evictable unit, in order. The lowest `TOTAL` is evicted first."""
        ...


class PolicyFeatures:
    """Lazily computed features of a view."""

    def __init__(self, view: PolicyView) -> None:
        self.view = view
        self.units: list[Unit] = sorted((*view.eligible, *view.protected), key=lambda unit: unit.first)
        """All units in the prompt, oldest first."""
        self.index_of: dict[int, int] = {unit.first: index for index, unit in enumerate(self.units)}
        """Index of each unit in `units`, by its first entry."""
        self._newest = max((unit.exchange for unit in self.units), default=0)
        self._later_uses: dict[int, list[LaterUse]] = {}
        self._kinds: dict[int, UnitKind] = {}
        self._texts: dict[int, tuple[str, ...]] = {}
        self._whole_texts: dict[int, str] = {}

    def age(self, unit: Unit) -> int:
        """Age in turns: exchanges, or inside a long tool loop the steps after the unit."""
        return max(self._newest - unit.exchange, len(self.units) - 1 - self.index_of[unit.first])

    def recency(self, unit: Unit) -> float:
        """From 0 for the oldest unit in the prompt to 1 for the newest."""
        return self.index_of[unit.first] / max(1, len(self.units) - 1)

    def kind(self, unit: Unit) -> UnitKind:
        """Kind of a unit. A unit is evicted as a whole, so its most durable content decides."""
        kind = self._kinds.get(unit.first)
        if kind is None:
            kind = self._kinds[unit.first] = self._kind(unit)
        return kind

    def _kind(self, unit: Unit) -> UnitKind:
        if any(message.role in ("user", "system") for message in unit.messages):
            return "user"
        texts = list(zip((message.role for message in unit.messages), self._clipped_texts(unit), strict=True))
        if any(role == "assistant" and _contains_any(_DECISIONS, text) for role, text in texts):
            return "decision"
        if any(role == "tool" and _is_error(text) for role, text in texts):
            return "error"
        return "tool" if any(message.role == "tool" for message in unit.messages) else "assistant"

    def text(self, unit: Unit, max_chars: int) -> str:
        """Text of the unit, at most `max_chars` of each entry."""
        return "\n".join(self._clip(message, max_chars) for message in unit.messages)

    @cached_property
    def terms(self) -> list[frozenset[str]]:
        """Terms of each unit in `units`."""
        known: TermCache = {}
        return [find_terms("\n".join(self._clipped_texts(unit)), MAX_TERM_CHARS, known) for unit in self.units]

    @cached_property
    def goal(self) -> frozenset[str]:
        """Terms of the task."""
        return find_terms(self.view.goal)

    @cached_property
    def vectors(self) -> EntryVectors:
        """The vectors of the entries, as far as recall has any."""
        return self.view.vectors()

    def relevance(self, unit: Unit) -> float:
        """Relevance to the goal, from 0 to 1: by vectors, or by shared terms where a unit has no vector."""
        by_vectors = self._relevance_by_vectors.get(unit.first)
        if by_vectors is not None:
            return by_vectors
        shared = self.goal & self.terms[self.index_of[unit.first]]
        return len(shared) / len(self.goal) if self.goal else 0.0

    @cached_property
    def _relevance_by_vectors(self) -> dict[int, float]:
        """Relevance by the cosine of a unit's nearest entry to the goal, without units that have no vector.

        The scale of a cosine depends on the embedder, so each is taken relative to the other units that may be evicted.
        Protected ones are not compared: the task is one of them, and everything is far from the goal beside it.
        """
        goal, entries = self.vectors.goal, self.vectors.entries
        if goal is None:
            return {}
        known = ((unit, [entries[seq] for seq in unit.seqs if seq in entries]) for unit in self.view.eligible)
        cosines = {unit.first: max(float((rows @ goal).max()) for rows in found) for unit, found in known if found}
        lowest, highest = min(cosines.values(), default=0.0), max(cosines.values(), default=0.0)
        width = max(highest - lowest, _MIN_COSINE_SPREAD)
        return {first: (cosine - lowest) / width for first, cosine in cosines.items()}

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Indexes of the units that contain a term, oldest first, by term."""
        places: dict[str, list[int]] = {}
        for index, unit_terms in enumerate(self.terms):
            for term in unit_terms:
                places.setdefault(term, []).append(index)
        return places

    def later_uses(self, unit: Unit) -> list[LaterUse]:
        """How the unit's terms are used after it.

        A term weighs what it said about the unit when it appeared: 1 if the unit brought it up, a half if one unit
        before it had it, and so on. So a unit that all later turns refer to keeps the weight of its terms, and a term
        that every unit repeats weighs next to nothing.
        """
        uses = self._later_uses.get(unit.first)
        if uses is None:
            index = self.index_of[unit.first]
            uses = []
            for term in self.terms[index]:
                places = self.places[term]
                rank = bisect_right(places, index)
                uses.append(LaterUse(1 / rank, len(places) - rank, places[-1]))
            self._later_uses[unit.first] = uses
        return uses

    def is_important(self, unit: Unit) -> bool:
        """Whether its user, assistant or system text says IMPORTANT. Tool output is not believed."""
        texts = zip((message.acts_as for message in unit.messages), self._clipped_texts(unit), strict=True)
        return any(role != "tool" and _IMPORTANT.search(text) for role, text in texts)

    def _clipped_texts(self, unit: Unit) -> tuple[str, ...]:
        """The text of each message of a unit, as far as it is read."""
        texts = self._texts.get(unit.first)
        if texts is None:
            max_chars = min(MAX_TERM_CHARS, MAX_FEATURE_CHARS // len(self.units)) // len(unit.messages)
            texts = tuple(self._clip(message, max(_MIN_ENTRY_CHARS, max_chars)) for message in unit.messages)
            self._texts[unit.first] = texts
        return texts

    def whole_text(self, message: WindowMessage) -> str:
        """The whole text of a message."""
        text = self._whole_texts.get(message.seq)
        if text is None:
            text = self._whole_texts[message.seq] = self.view.text_of(message.seq)
        return text

    def _clip(self, message: WindowMessage, max_chars: int) -> str:
        return clip_middle(self.whole_text(message), max_chars)


def _contains_any(substrings: tuple[str, ...], text: str) -> bool:
    return any(substring in text for substring in substrings)


def _is_error(text: str) -> bool:
    return _contains_any(_ERRORS, text) or _FAILED.search(text) is not None
