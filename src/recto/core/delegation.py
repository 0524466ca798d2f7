"""Work that is handed to a sub-agent: what it gets, and what came back. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from recto.core.told import Told


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """What a sub-agent is asked to do."""

    task: str
    goal: str
    """The task of the session that asks, for orientation."""
    told: tuple[Told, ...]
    """The messages it is about. They are material, not instructions."""
    max_tokens: int
    """What its answer may have; a longer one is cut."""
    session: str
    """The session its own transcript is kept in, open for whoever carries the task out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegated:
    """What came back."""

    answer: str
    """At most as long as was asked for."""
    session: str
    """Where the sub-agent's own transcript is."""
    seq: int
    """The entry of the asking session that records it."""
    cut: bool
    """Whether the answer was longer and is whole only in its own transcript."""
