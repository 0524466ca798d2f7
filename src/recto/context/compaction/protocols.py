"""Protocols of a chat model, of a sub-agent dispatcher and of cancellation, with the values they exchange."""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec import Struct

from recto.context.facts.types import MessageView

Ending = Literal["stop", "length", "refused", "unknown"]
"""Why a model stopped: finished, out of tokens, refused, or not stated."""


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One request to a model: instructions, and the text they apply to."""

    system: str
    text: str
    max_tokens: int
    """Maximum tokens of the answer."""
    seconds: float
    """Total time limit, including retries."""


class ModelReply(Struct, frozen=True, kw_only=True):
    """A model's answer."""

    text: str
    ending: Ending
    prompt_tokens: int = 0
    answer_tokens: int = 0
    """As counted by the provider; 0 if it does not say."""


class Delegation(Struct, frozen=True, kw_only=True):
    """A task for a sub-agent."""

    task: str
    goal: str
    """The task of the delegating session, for orientation."""
    messages: tuple[MessageView, ...]
    """The messages it is about. They are material, not instructions."""
    max_tokens: int
    """Maximum tokens of the answer; a longer one is cut."""
    session: str
    """The session that stores the sub-agent's own transcript; the dispatcher may write to it."""


class Delegated(Struct, frozen=True, kw_only=True):
    """A sub-agent's answer."""

    answer: str
    """At most as long as requested."""
    session: str
    """The session with the sub-agent's own transcript."""
    seq: int
    """The entry of the delegating session that records it."""
    cut: bool
    """Whether the answer was cut; the full answer is in the sub-agent's transcript."""


class Cancelled(Protocol):
    """Signals that an answer is no longer needed; a `threading.Event` is one."""

    def is_set(self) -> bool:
        """Whether the request is cancelled."""
        ...


class ChatModel(Protocol):
    """Writes text: a local model or one behind an endpoint."""

    @property
    def name(self) -> str:
        """Name in records and price lists."""
        ...

    @property
    def window(self) -> int:
        """Tokens of request and answer together; 0 if unknown."""
        ...

    def complete(self, request: ModelRequest, cancelled: Cancelled | None = None) -> ModelReply:
        """Answer a request. Raises `ModelFailed` if the model is late, unreachable, refuses, returns nothing, or is
        cancelled."""
        ...

    def close(self) -> None:
        """Release resources; the next use acquires them again."""
        ...


class Dispatcher(Protocol):
    """Executes a task with a sub-agent, in whatever way the caller runs one."""

    def __call__(self, task: Delegation) -> str:
        """The sub-agent's answer. Any exception means that the task has failed."""
        ...
