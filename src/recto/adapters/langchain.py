"""LangChain and LangGraph: a middleware whose model sees a working set, while the state stays as the graph keeps it.

agent = create_agent(model, tools, middleware=[RectoMiddleware("agent.db", model="gpt-4o")], checkpointer=saver)

A conversation is a thread. Subagents that are called by tools have conversations of their own.

`trim_messages` has the signature of LangChain: its result is valid, keeps the task, and states how much was evicted.
It is stateless, unless it is passed conversations: then evicted messages are stored and recalled when relevant.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Literal, TypeAlias

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel, BaseLanguageModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, convert_to_messages
from langchain_core.messages.utils import convert_to_openai_messages, count_tokens_approximately
from langchain_core.messages.utils import trim_messages as langchains_own
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.config import ensure_config
from langchain_core.utils.function_calling import convert_to_openai_tool

from recto.adapters.conversations import ClosingAdapter, Conversations, follow
from recto.adapters.options import Size
from recto.config import load
from recto.config.factory import make_meter
from recto.engine.async_session import on_a_thread
from recto.engine.fit import fit_messages
from recto.engine.history_sync import ChatMessage, Following
from recto.errors import SettingsError
from recto.tokens.meter import Frame, Meter
from recto.transcript.protocols import TranscriptStore


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


__all__ = ["RectoMiddleware", "trim_messages"]

SessionOf: TypeAlias = str | Callable[[ModelRequest], str]
_NO_FRAME = Frame(message=0, prompt=0, name=0, thinking=0, call=0, result=0, tools=0, tool=0)
_ONE_PER_MESSAGE = Frame(message=1, prompt=0, name=0, thinking=0, call=0, result=0, tools=0, tool=0)
_MAX_ATTEMPTS = 8
Kinds = str | type[BaseMessage] | Sequence[str | type[BaseMessage]] | None


class RectoMiddleware(ClosingAdapter, AgentMiddleware):
    """Keeps every model call within the context window; evicted messages are stored and recalled when relevant."""

    def __init__(
        self,
        store: str | os.PathLike[str] | TranscriptStore | None = None,
        *,
        model: str | BaseChatModel = "",
        trigger: Any = None,  # noqa: ANN401  # as `SummarizationMiddleware` takes them
        keep: Any = None,  # noqa: ANN401
        token_counter: Any = None,  # noqa: ANN401
        summarizer: Any = None,  # noqa: ANN401
        session_id: SessionOf = "",
        conversations: Conversations | None = None,
        **names: Any,  # noqa: ANN401  # those of `recto.follow`
    ) -> None:
        super().__init__()
        self._session_id = session_id
        self._is_shared = conversations is not None
        self.conversations = conversations or follow(
            store,
            model=name_of(model),
            trigger=size("trigger", trigger),
            keep=size("keep", keep),
            token_counter=counter_of_texts(token_counter),
            summarizer=writer_of(summarizer),
            **names,
        )
        """By the ids of their threads: `conversations.of(thread_id).session` is all that Recto can do with one."""

    def wrap_model_call(self, request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse]) -> ModelResponse:
        """Sends a working set, and stores the answer. A provider that finds it too long is believed once."""
        following = self.conversations.of(self.session_of(request))
        try:
            response = handler(_fitted(request, following))
        except Exception as error:
            if not following.overflowed(error):
                raise
            response = handler(_fitted(request, following))
        _store_answer(request, response, following)
        return response

    async def awrap_model_call(
        self, request: ModelRequest, handler: Callable[[ModelRequest], Awaitable[ModelResponse]]
    ) -> ModelResponse:
        """The same, for agents that await."""
        following = await on_a_thread(self.conversations.of, self.session_of(request))
        try:
            response = await handler(await on_a_thread(_fitted, request, following))
        except Exception as error:
            if not await on_a_thread(following.overflowed, error):
                raise
            response = await handler(await on_a_thread(_fitted, request, following))
        await on_a_thread(_store_answer, request, response, following)
        return response

    def session_of(self, request: ModelRequest) -> str:
        """The thread of a call, and the part of the graph that it is made in."""
        if self._session_id:
            return self._session_id if isinstance(self._session_id, str) else self._session_id(request)
        info = getattr(request.runtime, "execution_info", None)
        thread = (info and info.thread_id) or thread_here()
        above = info.checkpoint_ns.split("|")[:-1] if info and info.checkpoint_ns else []
        # A node of a graph is the same from turn to turn; each call of a tool is a new caller.
        parts = [part if part.startswith("tools:") else part.partition(":")[0] for part in above]
        return "/".join([thread, *parts])


def _fitted(request: ModelRequest, following: Following) -> ModelRequest:
    beside = request.system_message.text if request.system_message else ""
    sent = following.working_set(request.messages, written, read, tools=schemas(request.tools), beside=str(beside))
    return request.override(messages=sent)


def _store_answer(request: ModelRequest, response: ModelResponse, following: Following) -> None:
    chats = [chat for message in response.result for chat in written(message)]
    before = [chat for message in request.messages for chat in written(message)]
    usage = next((usage for message in response.result if (usage := usage_of(message))), None)
    following.heard(*chats, usage=usage, after=before)


def trim_messages(  # noqa: PLR0913  # LangChain's own signature
    messages: Iterable[Any] | None = None,
    *,
    max_tokens: int | None = None,
    token_counter: Any = None,  # noqa: ANN401  # everything that LangChain takes
    strategy: Literal["first", "last"] = "last",
    allow_partial: bool = False,
    end_on: Kinds = None,
    start_on: Kinds = None,
    include_system: bool = True,
    text_splitter: Any = None,  # noqa: ANN401
    model: str = "",
    conversations: Conversations | None = None,
    session_id: str = "",
) -> Any:  # noqa: ANN401  # a list, or a runnable where no messages are given
    """Return the newest messages that fit `max_tokens`; without messages, a runnable that does it.

    Without a `token_counter`, tokens are counted as `model` counts them. With `conversations`, their window is the
    limit, and the conversation is `session_id` or the running thread.
    """
    names: dict[str, Any] = {
        "strategy": strategy,
        "allow_partial": allow_partial,
        "end_on": end_on,
        "start_on": start_on,
    }
    names |= {"include_system": include_system, "text_splitter": text_splitter, "token_counter": token_counter}
    if messages is None:
        later = {**names, "max_tokens": max_tokens, "model": model}
        later |= {"conversations": conversations, "session_id": session_id}
        return RunnableLambda(lambda converted: trim_messages(converted, **later), name="trim_messages")
    if (conversations is None) == (max_tokens is None):
        raise SettingsError("trim_messages", "takes max_tokens, or conversations, whose window is the bound")
    converted = convert_to_messages(messages)
    if end_on is not None:
        converted = _until(converted, end_on)
    if conversations is not None:
        return conversations.of(session_id or thread_here()).working_set(converted, written, read)
    if strategy == "first" or allow_partial:
        counter = token_counter if token_counter is not None else "approximate"
        names |= {"token_counter": counter, "include_system": include_system and strategy == "last"}
        return langchains_own(converted, max_tokens=max_tokens, **names)
    trimmed = _trimmed(converted, max_tokens or 0, token_counter, model)
    if not include_system and len(trimmed) < len(converted):
        trimmed = [message for message in trimmed if not isinstance(message, SystemMessage)]
    return trimmed if start_on is None else _since(trimmed, start_on)


def _trimmed(messages: list[BaseMessage], limit: int, token_counter: Any, model: str) -> list[BaseMessage]:  # noqa: ANN401
    if token_counter is None:
        return _pruned(messages, limit, make_meter(load(arguments={"model": model or None})))
    count = counter_of_lists(token_counter)
    if count(messages) <= limit:
        return messages
    by_text = counter_of_texts(token_counter)
    assert by_text is not None  # noqa: S101  # there is a counter
    each = Meter(name="messages", count=lambda _: 0, frame=_ONE_PER_MESSAGE)
    meter = each if token_counter is len else Meter(name="own", count=by_text, frame=_NO_FRAME)
    budget = limit
    for _ in range(_MAX_ATTEMPTS):
        trimmed = _pruned(messages, budget, meter)
        over = count(trimmed) - limit
        if over <= 0 or over >= budget:
            break
        budget -= over  # a list counter may count more than the sum of its texts
    return trimmed


def _pruned(messages: list[BaseMessage], limit: int, meter: Meter) -> list[BaseMessage]:
    chats = [(chat, message) for message in messages for chat in written(message)]
    owners = {id(chat): message for chat, message in chats}
    trimmed: list[BaseMessage] = []
    for chat in fit_messages([chat for chat, _ in chats], max_tokens=limit, meter=meter, threshold=1.0):
        owner = owners.get(id(chat)) or read([chat])[0]
        if not trimmed or trimmed[-1] is not owner:
            trimmed.append(owner)
    return trimmed


def _is(message: BaseMessage, kinds: Kinds) -> bool:
    each = [kinds] if isinstance(kinds, str | type) else list(kinds or ())
    return any(message.type == kind if isinstance(kind, str) else isinstance(message, kind) for kind in each)


def _until(messages: list[BaseMessage], kinds: Kinds) -> list[BaseMessage]:
    last = max((place for place, message in enumerate(messages) if _is(message, kinds)), default=-1)
    return messages[: last + 1]


def _since(messages: list[BaseMessage], kinds: Kinds) -> list[BaseMessage]:
    system = [message for message in messages[:1] if isinstance(message, SystemMessage)]
    rest = messages[len(system) :]
    first = next((place for place, message in enumerate(rest) if _is(message, kinds)), len(rest))
    return system + rest[first:]
