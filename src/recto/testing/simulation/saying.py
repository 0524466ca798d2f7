"""What is said in a made-up session, before it is written in any format: exchanges of messages, calls and results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from recto.core.known_needs import NeedKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool that is called, and what it gives back."""

    tool: str
    given: tuple[tuple[str, str], ...]
    output: str
    fact: int = 0
    """The fact that stands in what it gives back; 0 where none does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Something that is said, with the tools that are called at once."""

    by: Literal["system", "user", "assistant"]
    text: str = ""
    calls: tuple[Call, ...] = ()
    fact: int = 0
    """The fact that stands in the text; 0 where none does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What an exchange asks for."""

    kind: NeedKind
    fact: int
    expect: tuple[str, ...]
    outdated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A user message and all that follows it."""

    said: tuple[Said, ...]
    question: Question | None = None


Life: TypeAlias = Iterator[Exchange | int]
"""What becomes of a fact: exchanges, and between two of them how many turns pass."""


def user(text: str, *, fact: int = 0) -> Said:
    """The user says something."""
    return Said(by="user", text=text, fact=fact)


def assistant(text: str, *calls: Call, fact: int = 0) -> Said:
    """The assistant says something, or calls tools, or both."""
    return Said(by="assistant", text=text, calls=calls, fact=fact)
