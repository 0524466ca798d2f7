"""Pydantic AI: a capability whose model sees a working set, while the message history stays the run's own.

agent = Agent("openai:gpt-4o", capabilities=[RectoHistory("agent.db", model="gpt-4o")])

A conversation is what Pydantic AI calls one: `conversation_id`, which goes along with the message history.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import RetryModelRequest
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import ModelRequestContext

from recto.adapters.pydantic_ai_messages import read, schemas, usage_of, written
from recto.conversations import Conversations, follow
from recto.engine.async_session import on_a_thread
from recto.engine.following import ChatMessage, Following
from recto.ports import TranscriptStore

__all__ = ["RectoHistory"]


class RectoHistory(AbstractCapability[Any]):
    """Keeps every request within the model's window; what leaves is stored and comes back when it matters."""

    def __init__(
        self,
        store: str | os.PathLike[str] | TranscriptStore | None = None,
        *,
        session_id: str | Callable[[RunContext[Any]], str] = "",
        conversations: Conversations | None = None,
        id: str | None = None,
        **names: Any,  # noqa: ANN401  # those of `recto.follow`
    ) -> None:
        self.id = id
        self._session_id = session_id
        self.conversations = conversations or follow(store, **names)
        """By their ids: `conversations.of(conversation_id).session` is all that Recto can do with one."""
        self._given: list[ModelMessage] = []
        """What the request was that is being answered."""
        self._returned: dict[str, tuple[list[ChatMessage], list[ModelMessage]]] = {}
        """For `process`: what it returned last, and all of what that stands for."""

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """It holds an open store, and cannot be written into a specification."""
        return None

    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        """Runs go on at the same time; each has its own request."""
        return copy(self)

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """What is sent this time. The history of the run is not touched."""
        self._given = list(request_context.messages)
        told = request_context.model_request_parameters
        tools = schemas([*told.function_tools, *told.output_tools])
        beside = "\n\n".join(part.content for part in told.instruction_parts or ())
        sent = await on_a_thread(self._fitted, self.session_of(ctx), self._given, tools, beside)
        return replace(request_context, messages=sent)

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Stores the answer."""
        before, usage = _chats(self._given), usage_of(response.usage)
        following = await on_a_thread(self._following, self.session_of(ctx))
        await on_a_thread(following.heard, *written(response), usage=usage, after=before)
        return response

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """A provider that finds the prompt too long is believed once, and asked again."""
        following = await on_a_thread(self._following, self.session_of(ctx))
        if request_context.attempt == 1 and await on_a_thread(following.overflowed, error):
            raise RetryModelRequest from error
        raise error

    async def process(self, ctx: RunContext[Any], messages: list[ModelMessage]) -> list[ModelMessage]:
        """The same as a history processor, `ProcessHistory(history.process)`.

        Pydantic AI makes what a processor returns the run's history. What it stands for is remembered here as long as
        this object lives, and in the transcript for good.
        """
        name = self.session_of(ctx)
        whole = self._stands_for(name, messages)
        sent: list[ModelMessage] = await on_a_thread(self._fitted, name, whole, [], "")
        self._returned[name] = (_chats(sent), whole)
        return sent

    def session_of(self, ctx: RunContext[Any]) -> str:
        """The conversation that a run belongs to."""
        if self._session_id:
            return self._session_id if isinstance(self._session_id, str) else self._session_id(ctx)
        return ctx.conversation_id or ""

    def _following(self, name: str) -> Following:
        return self.conversations.of(name)

    def _fitted(
        self, name: str, given: Sequence[ModelMessage], tools: Sequence[Any], beside: str
    ) -> list[ModelMessage]:
        return self._following(name).working_set(given, written, read, tools=tools, beside=beside)

    def _stands_for(self, name: str, messages: list[ModelMessage]) -> list[ModelMessage]:
        returned, whole = self._returned.get(name, ([], []))
        if not returned or _chats(messages)[: len(returned)] != returned:
            return messages
        place = told = 0
        while told < len(returned):
            told += len(written(messages[place]))
            place += 1
        return [*whole, *messages[place:]]


def _chats(messages: Sequence[ModelMessage]) -> list[ChatMessage]:
    return [chat for message in messages for chat in written(message)]
