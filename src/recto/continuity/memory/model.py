"""One thing that is remembered for good: what it is, how much it still counts, and what it repeats or contradicts.

Nothing here decides that something is remembered, and nothing is merged or let go: likeness is arithmetic on words, and
what it finds is told to somebody who decides.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log
from typing import Literal, get_args

from recto.context.facts.classifier import supersession_score
from recto.context.facts.grounding import fold_words
from recto.text.similarity import cosine, text_vector

MemoryKind = Literal["decision", "lesson", "correction", "preference", "fact", "procedure"]
KINDS: tuple[MemoryKind, ...] = get_args(MemoryKind)


State = Literal["approved", "retired"]
STATES: tuple[State, ...] = get_args(State)

LONGEST_TEXT, LONGEST_TITLE, LONGEST_TAG = 8_000, 200, 50
MOST_TAGS, MOST_SOURCES, MOST_REPLACED = 20, 50, 50
HALF_LIFE_DAYS = 90.0
_DAY = 86_400_000_000
_CRITICAL = 4.0
"""How many times slower something critical ages."""
_PREVENTED = 3
"""How many uses one mistake that was prevented is worth."""
_COMPARED = 2_000
"""Memories that one is compared with."""
_SAME, _LIKE, _NEAR = 0.8, 0.5, 0.3
_CONTRADICTS = 0.5
_VALUE = re.compile(r"\d[\w.:/-]{0,40}")
_DENIES = re.compile(r"\b(?:not|never|no|don't|doesn't|cannot|can't|without|avoid|stop)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Something remembered, as its file says it."""

    id: str
    kind: MemoryKind
    title: str
    text: str
    created: int
    """Microseconds since 1970, to the second."""
    tags: tuple[str, ...] = ()
    half_life_days: float = HALF_LIFE_DAYS
    """After how long without use it counts half."""
    critical: bool = False
    """Ages slower, and is never retired without being asked."""
    evergreen: bool = False
    """Does not age."""
    hits: int = 0
    """How often it was recalled or applied."""
    prevented: int = 0
    """How often it kept somebody from repeating a mistake."""
    last_applied: int = 0
    sources: tuple[str, ...] = ()
    """Pointers to the entries it was learnt from."""
    replaces: tuple[str, ...] = ()
    """Ids of memories that it takes the place of."""
    state: State = "approved"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFlag:
    """That one memory repeats or contradicts another."""

    kind: Literal["duplicate", "conflict"]
    id: str
    """The other one."""
    score: float


def memory_id(kind: str, text: str, sources: Sequence[str] = ()) -> str:
    """The id of a memory: the same thing learnt from the same entries has the same one."""
    told = "\x1f".join((kind, " ".join(text.split()), *sources))
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def digest_of(text: str) -> str:
    """The SHA-256 of the exact bytes of a text, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def title_of(text: str, most: int = 60) -> str:
    """A title made of the first words."""
    words = " ".join(text[:400].split())
    if len(words) <= most:
        return words
    cut = words[: most - 1]
    return f"{cut[: cut.rfind(' ')] if ' ' in cut[most // 2 :] else cut}…"


def strength(memory: Memory, now: int) -> float:
    """How much it still counts, from 0 to 1: halves with every half-life since it was made or last used.

    Use makes it live longer, and what is critical ages slower. What is evergreen does not age.
    """
    if memory.evergreen:
        return 1.0
    uses = memory.hits + _PREVENTED * memory.prevented
    life = max(memory.half_life_days, 0.01) * (1 + log(1 + uses)) * (_CRITICAL if memory.critical else 1.0)
    idle = max(now - max(memory.created, memory.last_applied), 0) / _DAY
    return float(0.5 ** min(idle / life, 1_000.0))


def flags_of(text: str, others: Iterable[Memory], without: str = "") -> tuple[MemoryFlag, ...]:
    """Which memories a text repeats or contradicts, the surest first."""
    own, found = text_vector(text.lower()), []
    key, values, denies = fold_words(text), _values(text), bool(_DENIES.search(text))
    for other in list(others)[:_COMPARED]:
        if other.id == without or other.state != "approved":
            continue
        like = 1.0 if fold_words(other.text) == key else cosine(own, text_vector(other.text.lower()))
        theirs = _values(other.text)
        differs = (values and theirs and values != theirs) or denies != bool(_DENIES.search(other.text))
        taken_back = supersession_score(text, other.text) if like >= _NEAR or values != theirs else 0.0
        if taken_back >= _CONTRADICTS or (like >= _LIKE and differs):
            found.append(MemoryFlag(kind="conflict", id=other.id, score=round(max(taken_back, like), 3)))
        elif like >= _SAME:
            found.append(MemoryFlag(kind="duplicate", id=other.id, score=round(like, 3)))
    return tuple(sorted(found, key=lambda flag: (-flag.score, flag.id)))


def is_known(text: str, others: Iterable[Memory]) -> bool:
    """Whether one of the memories says the same, word for word; case, marks and white space aside."""
    key = fold_words(text)
    return any(fold_words(other.text) == key for other in others)


def _values(text: str) -> frozenset[str]:
    return frozenset(one.rstrip(".:/-").lower() for one in _VALUE.findall(text[:LONGEST_TEXT]))
