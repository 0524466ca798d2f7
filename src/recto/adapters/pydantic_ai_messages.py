"""Pydantic AI's messages in Recto's words. What is not said to a model in words is kept as JSON beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

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
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_json

from recto.adapters.chat import Blocks, calls_in, schema, text_in
from recto.engine.following import ChatMessage


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
