"""What recall indexes, finds and brings back: values that every part of it agrees on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recto.context.facts.types import Mark
from recto.transcript.entries import MAX_SEQ, Role
from recto.transcript.session_keys import Scope

USED = "recall_used"
"""The event that says which recalled entries an answer made use of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """Whether entries are in the index."""

    words: bool
    vectors: bool
    reason: str = ""
    """Why not, where one of them is not."""

    @property
    def whole(self) -> bool:
        """Whether nothing is missing."""
        return self.words and self.vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A question as it is searched for."""

    text: str
    now: int
    """When it is asked, in microseconds since 1970."""
    before: int = MAX_SEQ
    """What was learnt after this entry does not count, so that the same question finds the same again."""
    task: str = ""
    """What all of it is about: what serves the task comes before what does not."""
    beside: str = ""
    """What stands beside it and may help: the step in flight, the exchange before a short question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedDocument:
    """One message as the words index takes it in."""

    seq: int
    ts: int
    """When it was said, in microseconds since 1970."""
    role: Role
    marks: Mark
    terms: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One message that was found, and why."""

    session: str
    seq: int
    pointer: str
    role: Role
    ts: int
    text: str
    """What it says, whole."""
    score: float
    """What hits are ordered by."""
    chance: float
    """How likely it is that it matters, from 0 to 1; what is below the threshold is not put into a prompt."""
    parts: Mapping[str, float]
    """What the score is made of."""
    marks: Mark
    in_prompt: bool = False
    superseded_by: int | None = None
    """A later message that takes it back; it is shown with it."""
    supersedes: tuple[int, ...] = ()
    note: str = ""
    """What must be known beside it: that it is approved memory, of when and from where."""
    context: tuple[int, ...] = ()
    """Neighbours that belong to it: the question of an answer, the answer to a question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """What is put into one prompt."""

    text: str
    tokens: int
    hits: tuple[Hit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The answer to a question, with what is needed to understand it."""

    query: str
    scope: Scope
    hits: tuple[Hit, ...]
    searched: int
    """Entries that were searched."""
    behind: int = 0
    """Entries that are not in the words index yet."""
    without_vectors: int = 0
    """Entries that are in the words index alone."""
    notes: tuple[str, ...] = ()
    """What did not work, and what was read into the question, in words."""
