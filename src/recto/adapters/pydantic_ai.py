"""Pydantic AI: a capability whose model sees a working set, while the message history stays the run's own.

agent = Agent("openai:gpt-4o", capabilities=[RectoHistory("agent.db", model="gpt-4o")])

A conversation is what Pydantic AI calls one: `conversation_id`, which goes along with the message history.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from itertools import groupby
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import RetryModelRequest
from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    FileUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_json

from recto.adapters._messages import Blocks, calls_in, schema, text_in
from recto.adapters.conversations import Conversations, follow
from recto.engine.async_session import on_a_thread
from recto.engine.history_sync import ChatMessage, Following
from recto.transcript.protocols import TranscriptStore


def written(message: ModelMessage) -> list[ChatMessage]:
    """A request or a response as Chat messages; results come first, where a provider wants them."""
    if isinstance(message, ModelResponse):
        return [_answer(message)]
    results = [part for part in message.parts if isinstance(part, ToolReturnPart)]
    others = [part for part in message.parts if not isinstance(part, ToolReturnPart)]
    return [_result(part) for part in results] + [_said(part) for part in others]


def read(made: Sequence[ChatMessage]) -> list[ModelMessage]:
    """Messages that Recto wrote or changed."""
    found: list[ModelMessage] = []
    for answers, run in groupby(made, key=lambda message: message["role"] == "assistant"):
        if answers:
            found += [ModelResponse(parts=list(_answered(message))) for message in run]
        else:
            found.append(ModelRequest(parts=[_asked(message) for message in run]))
    return found


def schemas(tools: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
    """Tools as they are sent."""
    return [schema(tool.name, tool.description or "", tool.parameters_json_schema) for tool in tools]


def usage_of(usage: RequestUsage) -> dict[str, Any] | None:
    """What a provider said that an answer cost; nothing where it said nothing."""
    if not usage.input_tokens:
        return None
    cached = {"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "prompt_tokens_details": cached,
    }


def _answer(message: ModelResponse) -> ChatMessage:
    blocks, others = Blocks(role="assistant"), []
    for part in message.parts:
        if isinstance(part, TextPart):
            blocks.text(part.content)
        elif isinstance(part, ToolCallPart):
            blocks.call(part.tool_call_id, part.tool_name, part.args_as_json_str())
        elif isinstance(part, ThinkingPart):
            blocks.thinking += [part.content] if part.content else []
        else:  # what a provider ran itself, and files that it made
            others.append(json.loads(to_json(part, bytes_mode="base64")))
    said = next(iter(blocks.messages()), {"role": "assistant", "content": ""})
    return said | ({"other_parts": others} if others else {})


def _result(part: ToolReturnPart) -> ChatMessage:
    text = part.model_response_str()
    content: Any = [{"type": "text", "text": text}, *_parts(part.files)] if part.files else text
    return {"role": "tool", "tool_call_id": part.tool_call_id, "name": part.tool_name, "content": content}


def _said(part: Any) -> ChatMessage:  # noqa: ANN401  # any part of a request
    if isinstance(part, SystemPromptPart):
        return {"role": "system", "content": part.content}
    if isinstance(part, UserPromptPart):
        content = part.content if isinstance(part.content, str) else list(_parts(part.content))
        return {"role": "user", "content": content}
    if isinstance(part, RetryFeedbackPart):
        return {"role": "user", "content": part.model_response()}
    # Changes of instructions and of tools on the way: models are told them in words of the framework's own.
    return {"role": "system", "content": to_json(part, bytes_mode="base64").decode()}


def _parts(content: Sequence[Any]) -> Iterator[dict[str, Any]]:
    blocks = Blocks(role="user")
    for one in content:
        if isinstance(one, str | TextContent):
            blocks.text(one if isinstance(one, str) else one.content)
        elif isinstance(one, BinaryContent):
            blocks.media(one.media_type, one.data, one.identifier)
        elif isinstance(one, FileUrl):
            blocks.media("image/*" if isinstance(one, ImageUrl) else "file", one.url, one.identifier)
        elif not isinstance(one, CachePoint):
            blocks.text(to_json(one, bytes_mode="base64").decode())
    yield from blocks.parts


def _answered(message: ChatMessage) -> Iterator[TextPart | ToolCallPart]:
    if text := text_in(message):
        yield TextPart(text)
    for call_id, name, arguments in calls_in(message):
        yield ToolCallPart(name, arguments, call_id)


def _asked(message: ChatMessage) -> SystemPromptPart | UserPromptPart | ToolReturnPart:
    text = text_in(message)
    if message["role"] == "tool":
        return ToolReturnPart(message.get("name") or "tool", text, message["tool_call_id"])
    return SystemPromptPart(text) if message["role"] == "system" else UserPromptPart(text)


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
