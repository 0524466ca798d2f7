"""LangChain and LangGraph: a middleware whose model sees a working set, while the state stays as the graph keeps it.

agent = create_agent(model, tools, middleware=[RectoMiddleware("agent.db", model="gpt-4o")], checkpointer=saver)

A conversation is a thread. Subagents that are called by tools have conversations of their own.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel

from recto.adapters._langchain_messages import (
    counter_of_texts,
    name_of,
    read,
    schemas,
    size,
    thread_here,
    usage_of,
    writer_of,
    written,
)
from recto.adapters.conversations import ClosingAdapter, Conversations, follow
from recto.adapters.langchain_trim import trim_messages
from recto.engine.async_session import on_a_thread
from recto.engine.history_sync import Following
from recto.transcript.protocols import TranscriptStore

__all__ = ["RectoMiddleware", "trim_messages"]

SessionOf: TypeAlias = str | Callable[[ModelRequest], str]


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
