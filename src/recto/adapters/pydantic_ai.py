"""Pydantic AI: a capability that sends the model a working set, while the message history of the run stays unchanged.

```
agent = Agent("openai:gpt-4o", capabilities=[RectoHistory("agent.db", model="gpt-4o")])
```

A conversation is identified by Pydantic AI's `conversation_id`, which travels with the message history.
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
from recto.adapters.conversations import ClosingAdapter, Conversations, follow
from recto.engine.async_session import on_a_thread
from recto.engine.history_sync import ChatMessage, Following
from recto.transcript.protocols import TranscriptStore

__all__ = ["RectoHistory"]


class RectoHistory(ClosingAdapter, AbstractCapability[Any]):
    """Keeps every request within the model's context window; evicted messages are stored and recalled when relevant."""

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
        self._is_shared = conversations is not None
        self.conversations = conversations or follow(store, **names)
        """By id: `conversations.of(conversation_id).session` is the Recto session of a conversation."""
        self._request: list[ModelMessage] = []
        """The messages of the request in progress."""
        self._returned: dict[str, tuple[list[ChatMessage], list[ModelMessage]]] = {}
        """For `process`: the last result, and the full history it represents."""

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """It holds an open store, so it cannot be serialised."""
        return None

    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        """Runs may be concurrent; each has its own request."""
        return copy(self)

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Return what is sent this time. The history of the run is not changed."""
        self._request = list(request_context.messages)
        parameters = request_context.model_request_parameters
        tools = schemas([*parameters.function_tools, *parameters.output_tools])
        beside = "\n\n".join(part.content for part in parameters.instruction_parts or ())
        sent = await on_a_thread(self._fitted, self.session_of(ctx), self._request, tools, beside)
        return replace(request_context, messages=sent)

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Store the answer."""
        before, usage = _chats(self._request), usage_of(response.usage)
        following = await on_a_thread(self._following, self.session_of(ctx))
        await on_a_thread(following.heard, *written(response), usage=usage, after=before)
        return response

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """If the provider rejects the prompt as too long, adopt its limit and retry once."""
        following = await on_a_thread(self._following, self.session_of(ctx))
        if request_context.attempt == 1 and await on_a_thread(following.overflowed, error):
            raise RetryModelRequest from error
        raise error

    async def process(self, ctx: RunContext[Any], messages: list[ModelMessage]) -> list[ModelMessage]:
        """The same as a history processor, `ProcessHistory(history.process)`.

        Pydantic AI replaces the run's history by the result of a processor. The full history is remembered as long as
        this object exists, and in the transcript permanently.
        """
        name = self.session_of(ctx)
        full = self._full_history(name, messages)
        sent: list[ModelMessage] = await on_a_thread(self._fitted, name, full, [], "")
        self._returned[name] = (_chats(sent), full)
        return sent

    def session_of(self, ctx: RunContext[Any]) -> str:
        """Return the conversation of a run."""
        if self._session_id:
            return self._session_id if isinstance(self._session_id, str) else self._session_id(ctx)
        return ctx.conversation_id or ""

    def _following(self, name: str) -> Following:
        return self.conversations.of(name)

    def _fitted(
        self, name: str, messages: Sequence[ModelMessage], tools: Sequence[Any], beside: str
    ) -> list[ModelMessage]:
        return self._following(name).working_set(messages, written, read, tools=tools, beside=beside)

    def _full_history(self, name: str, messages: list[ModelMessage]) -> list[ModelMessage]:
        returned, full = self._returned.get(name, ([], []))
        if not returned or _chats(messages)[: len(returned)] != returned:
            return messages
        place = matched = 0
        while matched < len(returned):
            matched += len(written(messages[place]))
            place += 1
        return [*full, *messages[place:]]


def written(message: ModelMessage) -> list[ChatMessage]:
    """Convert a request or a response to Chat messages; results come first, as providers require."""
    if isinstance(message, ModelResponse):
        return [_response_message(message)]
    results = [part for part in message.parts if isinstance(part, ToolReturnPart)]
    others = [part for part in message.parts if not isinstance(part, ToolReturnPart)]
    return [_result(part) for part in results] + [_request_message(part) for part in others]


def read(chats: Sequence[ChatMessage]) -> list[ModelMessage]:
    """Convert Chat messages that Recto wrote or changed."""
    messages: list[ModelMessage] = []
    for answers, run in groupby(chats, key=lambda message: message["role"] == "assistant"):
        if answers:
            messages += [ModelResponse(parts=list(_response_parts(message))) for message in run]
        else:
            messages.append(ModelRequest(parts=[_request_part(message) for message in run]))
    return messages


def schemas(tools: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
    """Return the schemas of tools."""
    return [schema(tool.name, tool.description or "", tool.parameters_json_schema) for tool in tools]


def usage_of(usage: RequestUsage) -> dict[str, Any] | None:
    """Return the usage that a provider reported; None if it reported none."""
    if not usage.input_tokens:
        return None
    cached = {"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "prompt_tokens_details": cached,
    }


def _response_message(message: ModelResponse) -> ChatMessage:
    blocks, others = Blocks(role="assistant"), []
    for part in message.parts:
        if isinstance(part, TextPart):
            blocks.text(part.content)
        elif isinstance(part, ToolCallPart):
            blocks.call(part.tool_call_id, part.tool_name, part.args_as_json_str())
        elif isinstance(part, ThinkingPart):
            blocks.thinking += [part.content] if part.content else []
        else:  # tools that the provider ran, and files that it created
            others.append(json.loads(to_json(part, bytes_mode="base64")))
    chat = next(iter(blocks.messages()), {"role": "assistant", "content": ""})
    return chat | ({"other_parts": others} if others else {})


def _result(part: ToolReturnPart) -> ChatMessage:
    text = part.model_response_str()
    content: Any = [{"type": "text", "text": text}, *_parts(part.files)] if part.files else text
    return {"role": "tool", "tool_call_id": part.tool_call_id, "name": part.tool_name, "content": content}


def _request_message(part: Any) -> ChatMessage:  # noqa: ANN401  # any part of a request
    if isinstance(part, SystemPromptPart):
        return {"role": "system", "content": part.content}
    if isinstance(part, UserPromptPart):
        content = part.content if isinstance(part.content, str) else list(_parts(part.content))
        return {"role": "user", "content": content}
    if isinstance(part, RetryFeedbackPart):
        return {"role": "user", "content": part.model_response()}
    # Changed instructions and tools: the framework renders them in its own words.
    return {"role": "system", "content": to_json(part, bytes_mode="base64").decode()}


def _parts(content: Sequence[Any]) -> Iterator[dict[str, Any]]:
    blocks = Blocks(role="user")
    for item in content:
        if isinstance(item, str | TextContent):
            blocks.text(item if isinstance(item, str) else item.content)
        elif isinstance(item, BinaryContent):
            blocks.media(item.media_type, item.data, item.identifier)
        elif isinstance(item, FileUrl):
            blocks.media("image/*" if isinstance(item, ImageUrl) else "file", item.url, item.identifier)
        elif not isinstance(item, CachePoint):
            blocks.text(to_json(item, bytes_mode="base64").decode())
    yield from blocks.parts


def _response_parts(message: ChatMessage) -> Iterator[TextPart | ToolCallPart]:
    if text := text_in(message):
        yield TextPart(text)
    for call_id, name, arguments in calls_in(message):
        yield ToolCallPart(name, arguments, call_id)


def _request_part(message: ChatMessage) -> SystemPromptPart | UserPromptPart | ToolReturnPart:
    text = text_in(message)
    if message["role"] == "tool":
        return ToolReturnPart(message.get("name") or "tool", text, message["tool_call_id"])
    return SystemPromptPart(text) if message["role"] == "system" else UserPromptPart(text)


def _chats(messages: Sequence[ModelMessage]) -> list[ChatMessage]:
    return [chat for message in messages for chat in written(message)]
