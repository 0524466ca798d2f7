"""Converts LangChain's messages, tools, token counters and models, for its middleware and for `trim_messages`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from langchain_core.language_models import BaseChatModel, BaseLanguageModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_messages
from langchain_core.messages.utils import convert_to_openai_messages, count_tokens_approximately
from langchain_core.runnables.config import ensure_config
from langchain_core.utils.function_calling import convert_to_openai_tool

from recto.adapters.options import Size
from recto.engine.history_sync import ChatMessage
from recto.errors import SettingsError


def written(message: BaseMessage) -> list[ChatMessage]:
    """Convert a message to Chat messages: one, or several if it contains tool results."""
    chats: list[ChatMessage]
    try:
        chats = convert_to_openai_messages([message])
    except ValueError:  # a block that Chat does not have: stored as JSON
        encoded = json.dumps(message.content, ensure_ascii=False, default=str)
        chats = convert_to_openai_messages([message.model_copy(update={"content": encoded})])
    return chats


def read(chats: Sequence[ChatMessage]) -> list[BaseMessage]:
    """Convert Chat messages that Recto wrote or changed to LangChain messages."""
    messages: list[BaseMessage] = convert_to_messages(chats)
    return messages


def schemas(tools: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the schemas of tools; tools that a provider runs itself are schemas already."""
    return [dict(tool) if isinstance(tool, Mapping) else convert_to_openai_tool(tool) for tool in tools]


def usage_of(message: BaseMessage) -> dict[str, Any] | None:
    """Return the usage that a provider reported for a response."""
    reported = message.usage_metadata if isinstance(message, AIMessage) else None
    if not reported:
        return None
    cached = reported.get("input_token_details", {}).get("cache_read", 0)
    return {
        "prompt_tokens": reported["input_tokens"],
        "completion_tokens": reported["output_tokens"],
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def thread_here() -> str:
    """Return the thread of the running graph or chain."""
    configurable = ensure_config().get("configurable", {})
    return str(configurable.get("thread_id") or configurable.get("session_id") or "")


def size(name: str, value: Any) -> Size | None:  # noqa: ANN401  # LangChain takes tuples, dicts and lists of them
    """Parse one threshold in any of LangChain's notations."""
    if value is None or isinstance(value, tuple):
        return value
    if isinstance(value, Mapping) and len(value) == 1:
        return next(iter(value.items()))
    if isinstance(value, list) and len(value) == 1:
        return size(name, value[0])
    raise SettingsError(name, 'is one threshold here: ("tokens", 4000) or ("fraction", 0.8)')


def counter_of_lists(counter: Any) -> Callable[[list[BaseMessage]], int]:  # noqa: ANN401  # all that LangChain takes
    """Convert a `token_counter` to a function of a list of messages."""
    if counter == "approximate":
        counter = count_tokens_approximately
    if isinstance(counter, BaseLanguageModel):
        return counter.get_num_tokens_from_messages  # type: ignore[no-any-return]
    first = next(iter(inspect.signature(counter).parameters.values()), None)
    if first is not None and first.annotation in (BaseMessage, "BaseMessage"):
        return lambda messages: sum(counter(message) for message in messages)
    return counter  # type: ignore[no-any-return]


def counter_of_texts(counter: Any) -> Callable[[str], int] | None:  # noqa: ANN401  # all that LangChain takes
    """Convert a `token_counter` to a function of one text."""
    if counter is None:
        return None
    count = counter_of_lists(counter)

    @wraps(count)
    def text_counter(text: str) -> int:
        return count([HumanMessage(text)]) if text else 0

    return text_counter


def writer_of(summarizer: Any) -> Any:  # noqa: ANN401  # a model of LangChain's, or what `follow` takes
    """Convert a LangChain chat model to a function from text to text."""
    if not isinstance(summarizer, BaseChatModel):
        return summarizer
    return lambda text: str(summarizer.invoke(text).text)


def name_of(model: Any) -> str:  # noqa: ANN401  # a name, or a model of LangChain's
    """Return a model's name as in the registry: LangChain writes `provider:model`."""
    if not isinstance(model, str):
        return str(getattr(model, "model_name", "") or getattr(model, "model", ""))
    provider, _, own = model.partition(":")
    return f"{provider}/{own}" if own and provider.replace("_", "").isalpha() else model
