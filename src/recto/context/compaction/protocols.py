"""Protocols of a chat model and of a sub-agent dispatcher, and the values they exchange."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from recto.context.facts.types import MessageView

Ending = Literal["stop", "length", "refused", "unknown"]
"""Why a model stopped: it was done, it ran out of room, it would not, or nobody said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One question to a model: instructions, and the text they are about."""

    system: str
    text: str
    max_tokens: int
    """What the answer may have."""
    seconds: float
    """How long it may take in all, other attempts included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """What a model wrote."""

    text: str
    ending: Ending
    prompt_tokens: int = 0
    answer_tokens: int = 0
    """What the provider counted; 0 where it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """What a sub-agent is asked to do."""

    task: str
    goal: str
    """The task of the session that asks, for orientation."""
    told: tuple[MessageView, ...]
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


class Cancelled(Protocol):
    """Tells whether an answer is still wanted; a `threading.Event` is one."""

    def is_set(self) -> bool:
        """Whether it is not."""
        ...


class ChatModel(Protocol):
    """Writes text: a model on this machine or behind an endpoint."""

    @property
    def name(self) -> str:
        """As it is recorded, and as prices are known under."""
        ...

    @property
    def window(self) -> int:
        """Tokens of a question and its answer together; 0 where nobody knows."""
        ...

    def complete(self, request: ModelRequest, cancelled: Cancelled | None = None) -> ModelReply:
        """The answer to a request. Raises `ModelFailed`: late, refused, unreachable, empty, or no longer wanted."""
        ...

    def close(self) -> None:
        """Lets go of what it holds; the next use takes it up again."""
        ...


class Dispatcher(Protocol):
    """Carries a task out with a sub-agent, however the caller runs one."""

    def __call__(self, task: Delegation) -> str:
        """The sub-agent's answer. It may raise what it likes: then the task has failed, and nothing else."""
        ...
