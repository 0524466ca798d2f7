"""How well one turn went, in numbers. A turn is a prompt that got its answer.

Everything here is derived from the transcript: whatever was told while it happened can be told again from what is
stored, and is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Grade = Literal["critical", "degradation", "anomaly"]
AlertName = Literal["utilization", "evictions", "fidelity", "ratio", "bloat", "burn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnHealth:
    """The measures of one turn."""

    turn: int
    """Which one it is since measuring began in this transcript: 1, 2, 3, …"""
    seq: int
    """The entry that answered."""
    ts: int
    model: str
    tokens: int
    """What the prompt cost."""
    room: int
    utilization: float
    evicted: int
    """Messages that left for this prompt."""
    freed: int
    """Tokens that decisions freed for it."""
    burn: int
    """Tokens that came in since the turn before."""
    burn_usual: float | None
    """What turns added lately; None before that is known."""
    ratio: float | None
    """How many times shorter text was made for this prompt; None where nothing was."""
    fidelity: float | None
    """The lowest score of what was written or judged for it; None where nothing was."""
    bloat: float
    """The share of the prompt that is tool results."""
    prefix: float
    """The share of the prompt that stood unchanged at the beginning of the one before."""
    recall_hits: int
    recall_misses: int
    regret: int
    """What left within the last turns and was fetched or asked for again."""
    index_lag: int
    """Messages that are not indexed yet."""
    protected: float
    """The share of the room that may not leave."""
    estimate_error: float | None
    """How far the provider's count was off ours: 0.1 is 10 % more; None where it told nothing."""
    cache_read: int
    """Prompt tokens that the provider read from its cache, as it told."""
    cache_write: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something that should be looked at: raised when it begins, and ended when it is over."""

    name: AlertName
    grade: Grade
    session: str
    turn: int
    ts: int
    value: float
    threshold: float
    says: str
    """What is the matter, in one sentence."""
    action: str
    """What to do about it."""
    ended: bool = False
