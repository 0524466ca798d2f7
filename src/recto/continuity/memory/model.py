"""One durable memory: its fields, its strength over time, and what it repeats or contradicts.

Similarity is computed on words and reported to a person, who decides; nothing is merged or removed here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from math import log
from typing import Literal, get_args

from msgspec import Struct

from recto.context.facts.claims import fold_words
from recto.context.facts.classifier import supersession_score
from recto.continuity.memory import MemoryKind
from recto.text.lazy_re import lazy_re
from recto.text.similarity import cosine, text_vector

State = Literal["approved", "retired"]
STATES: tuple[State, ...] = get_args(State)

LONGEST_TEXT, LONGEST_TITLE, LONGEST_TAG = 8_000, 200, 50
MOST_TAGS, MOST_SOURCES, MOST_REPLACED = 20, 50, 50
HALF_LIFE_DAYS = 90.0
_DAY = 86_400_000_000
_CRITICAL_FACTOR = 4.0
"""How many times slower critical memory ages."""
_PREVENTED_WEIGHT = 3
"""How many uses one prevented mistake counts as."""
_MAX_COMPARED = 2_000
"""Maximum number of memories compared with one text."""
_DUPLICATE, _SIMILAR, _RELATED = 0.8, 0.5, 0.3
_CONTRADICTS = 0.5
_VALUE = lazy_re(r"\d[\w.:/-]{0,40}")
_NEGATION = lazy_re(r"\b(?:not|never|no|don't|doesn't|cannot|can't|without|avoid|stop)\b", re.IGNORECASE)


class Memory(Struct, frozen=True, kw_only=True):
    """A memory, as its page states it."""

    id: str
    kind: MemoryKind
    title: str
    text: str
    created: int
    """Microseconds since 1970, to the second."""
    tags: tuple[str, ...] = ()
    half_life_days: float = HALF_LIFE_DAYS
    """After this long without use its strength has halved."""
    critical: bool = False
    """Ages slower, and is never retired automatically."""
    evergreen: bool = False
    """Does not age."""
    hits: int = 0
    """How often it was recalled or applied."""
    prevented: int = 0
    """How often it prevented a repeated mistake."""
    last_applied: int = 0
    sources: tuple[str, ...] = ()
    """Pointers to the entries it was learnt from."""
    replaces: tuple[str, ...] = ()
    """Ids of memories that it replaces."""
    state: State = "approved"


class MemoryFlag(Struct, frozen=True, kw_only=True):
    """That one memory repeats or contradicts another."""

    kind: Literal["duplicate", "conflict"]
    id: str
    """The other memory."""
    score: float


def memory_id(kind: str, text: str, sources: Sequence[str] = ()) -> str:
    """Return the id of a memory: the same text learnt from the same entries has the same id."""
    identity = "\x1f".join((kind, " ".join(text.split()), *sources))
    return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def digest_of(text: str) -> str:
    """Return the SHA-256 of the exact bytes of a text, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def title_of(text: str, limit: int = 60) -> str:
    """Return a title made of the first words."""
    words = " ".join(text[:400].split())
    if len(words) <= limit:
        return words
    cut = words[: limit - 1]
    return f"{cut[: cut.rfind(' ')] if ' ' in cut[limit // 2 :] else cut}…"


def strength(memory: Memory, now: int) -> float:
    """Return the strength of a memory, from 0 to 1: it halves with every half-life since creation or last use.

    Use extends the half-life, and critical memory ages slower. Evergreen memory does not age.
    """
    if memory.evergreen:
        return 1.0
    uses = memory.hits + _PREVENTED_WEIGHT * memory.prevented
    life = max(memory.half_life_days, 0.01) * (1 + log(1 + uses)) * (_CRITICAL_FACTOR if memory.critical else 1.0)
    idle = max(now - max(memory.created, memory.last_applied), 0) / _DAY
    return float(0.5 ** min(idle / life, 1_000.0))


def flags_of(text: str, others: Iterable[Memory], without: str = "") -> tuple[MemoryFlag, ...]:
    """Return the memories that a text repeats or contradicts, the surest first."""
    own_vector, flags = text_vector(text.lower()), []
    key, values, denies = fold_words(text), _values(text), bool(_NEGATION.search(text))
    for other in list(others)[:_MAX_COMPARED]:
        if other.id == without or other.state != "approved":
            continue
        similarity = 1.0 if fold_words(other.text) == key else cosine(own_vector, text_vector(other.text.lower()))
        other_values = _values(other.text)
        differs = (values and other_values and values != other_values) or denies != bool(_NEGATION.search(other.text))
        superseded = supersession_score(text, other.text) if similarity >= _RELATED or values != other_values else 0.0
        if superseded >= _CONTRADICTS or (similarity >= _SIMILAR and differs):
            flags.append(MemoryFlag(kind="conflict", id=other.id, score=round(max(superseded, similarity), 3)))
        elif similarity >= _DUPLICATE:
            flags.append(MemoryFlag(kind="duplicate", id=other.id, score=round(similarity, 3)))
    return tuple(sorted(flags, key=lambda flag: (-flag.score, flag.id)))


def is_known(text: str, others: Iterable[Memory]) -> bool:
    """Whether a memory states the same, ignoring case, punctuation and white space."""
    key = fold_words(text)
    return any(fold_words(other.text) == key for other in others)


def _values(text: str) -> frozenset[str]:
    return frozenset(value.rstrip(".:/-").lower() for value in _VALUE.findall(text[:LONGEST_TEXT]))
