"""Values shared by all parts of recall: the query, the hits with the reasons for each, and what is injected.

The rows and ranges an index stores are another matter: see `recto.recall.index.rows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import shorten
from typing import Literal

from msgspec import Struct, field

from recto.context.facts.types import Mark
from recto.text.lazy_re import lazy_re
from recto.transcript.entries import MAX_SEQ, Role
from recto.transcript.session_keys import Scope
from recto.transcript.sources import SessionSource

USED = "recall_used"
"""Kind of the event that records which recalled entries an answer used."""
JUDGED = "recall_judged"
"""Kind of the event that records whether a person found a recalled entry helpful."""

Verdict = Literal["helpful", "not_helpful", "withdrawn"]
"""What a person said about a recalled entry; `withdrawn` takes an earlier verdict back."""
VERDICTS: tuple[Verdict, ...] = ("helpful", "not_helpful", "withdrawn")


def verdict_of(helpful: bool | None) -> Verdict | None:
    """The verdict of a judgement; None where there is none."""
    return None if helpful is None else "helpful" if helpful else "not_helpful"


class Confirmation(Struct, frozen=True, kw_only=True):
    """Whether entries are in the index; relief evicts nothing that recall could not find again.

    Words suffice. Vectors that are missing are made later.
    """

    words: bool
    vectors: bool
    reason: str = ""
    """Why words are missing, or why vectors are not being made. Empty while vectors are only late."""

    @property
    def summary(self) -> str:
        """What is indexed, for the decision that evicts the entries."""
        if not self.words:
            return f"nothing may leave: {self.reason}"
        if self.vectors:
            return "words and vectors"
        return f"words alone: {self.reason}" if self.reason else "words; vectors to follow"


class Query(Struct, frozen=True, kw_only=True):
    """A search query and the state of the session it is run for."""

    text: str
    now: int
    """Time of the query, in microseconds since 1970."""
    before: int = MAX_SEQ
    """Entries after this one are ignored, so that repeating a query gives the same result."""
    context: str = ""
    """Text around the query that may help: the step in flight, or the exchange before a short question."""
    judged: Mapping[tuple[str, int], bool] = field(default_factory=dict)
    """Entries by session and number that were judged helpful or not when they were recalled before."""
    source: SessionSource | None = None
    """Whose sessions are searched besides this one, where not the scope decides: a project's, an agent's."""
    seconds: float = 10.0
    """Time limit for embedding the query. After that only words are searched."""


class Hit(Struct, frozen=True, kw_only=True):
    """One message that matched, and why."""

    session: str
    seq: int
    pointer: str
    role: Role
    ts: int
    text: str
    """Full text of the message."""
    score: float
    """Sort key of the hits."""
    chance: float
    """Estimated relevance from 0 to 1. A prompt gets no hit below the threshold."""
    parts: Mapping[str, float]
    """Components of the score, by name."""
    marks: Mark
    in_prompt: bool = False
    superseded_by: int | None = None
    """A later message that corrects this one; both are shown together."""
    supersedes: tuple[int, ...] = ()
    note: str = ""
    """Caption quoted with the text: that it is approved memory, its date and its source."""
    agent: str = ""
    """The program that wrote its session, where that is known and others were searched."""
    project: str = ""
    """The folder in which that program worked."""
    helpful: bool | None = None
    """Whether it was judged helpful when it was recalled before; None where it was not judged."""
    context: tuple[int, ...] = ()
    """Related messages: the question of an answer, or the answer to a question."""

    def __repr__(self) -> str:
        """A line: pointer, role, relevance and the beginning of the text."""
        text = shorten(self.text, 60, placeholder=" …")
        return f"<Hit {self.pointer} {self.role}, chance {self.chance:.2f}: {text!r}>"


class Injection(Struct, frozen=True, kw_only=True):
    """The quotation that is added to one prompt."""

    text: str
    tokens: int
    hits: tuple[Hit, ...]
    characters: tuple[int, ...]
    """How long the excerpt of each hit may be; below 0 if it is quoted without the question it answers."""
    threshold: float = 0.0
    """The relevance that hits had to have: more than the settings ask for where the budget was too small for all."""


class SearchResult(Struct, frozen=True, kw_only=True):
    """The result of a search, with the state of the index it was made from."""

    query: str
    scope: Scope
    hits: tuple[Hit, ...]
    searched: int
    """Number of messages searched."""
    candidates: int = 0
    """Number of messages that were ranked."""
    best: float = 0.0
    """The highest relevance among the best of them."""
    behind: int = 0
    """Entries that are not in the word index yet."""
    without_vectors: int = 0
    """Entries that are in the word index but have no vectors yet."""
    notes: tuple[str, ...] = ()
    """Problems, and how dates in the query were interpreted, as sentences."""

    def __repr__(self) -> str:
        """The query, and how much was found."""
        query = shorten(self.query, 60, placeholder=" …")
        return f"<SearchResult {query!r}: {len(self.hits)} hits, best {self.best:.2f}>"


_WORD = lazy_re(r"\w[\w.:/-]*\w|\w")
_MIN_WORD = 4
"""Characters of a word that says something; of shorter ones, those with a digit do."""
_MAX_WORDS = 3
_MAX_REASONS = 2
_PHRASES = {
    "meaning": "close in meaning to the question",
    "date": "from the days that the question names",
    "standing": "states a rule or a preference of the user",
    "comes along": "belongs to a message that matched",
    "takes back": "corrects an earlier statement that matched",
    "taken back": "was corrected later; the correction is quoted with it",
    "judged": "was judged helpful before",
}


def reasons_in_words(parts: Mapping[str, float], question: str, text: str) -> tuple[str, ...]:
    """The two strongest reasons, the strongest first.

    Args:
        parts: The parts of the score, by name.
        question: What was searched for.
        text: The message, or what is quoted of it.
    """
    weights = {name: abs(value) for name, value in parts.items() if value > 0 or name == "taken back"}
    # Parts are standardized over the candidates: words that match may weigh 0 where there are few others.
    weights.setdefault("words", 0.0)
    if "takes back" in parts:  # its weight is 0: the rank is that of the corrected statement
        weights["takes back"] = max(weights.values())
    strongest = sorted(weights, key=lambda name: -weights[name])
    phrases = [_words(question, text) if name == "words" else _PHRASES.get(name, "") for name in strongest]
    found = [phrase for phrase in phrases if phrase][:_MAX_REASONS]
    return tuple(found) or ("shares words with the question",)


def _words(question: str, text: str) -> str:
    """Name the longest words that both have; empty where only stems are the same."""
    has = set(map(str.casefold, _WORD.findall(text)))
    asked = dict.fromkeys(map(str.casefold, _WORD.findall(question)))
    shared = [word for word in asked if word in has and (len(word) >= _MIN_WORD or any(map(str.isdigit, word)))]
    if not shared:
        return ""
    named = sorted(shared, key=len, reverse=True)[:_MAX_WORDS]
    quoted = ", ".join(f"“{word}”" for word in shared if word in named)
    return f"shares the word{'s' if len(named) > 1 else ''} {quoted} with the question"
