"""Google ADK: a plugin whose models get a working set, while the session's events stay as they are.

    app = App(name="shop", root_agent=agent, plugins=[RectoPlugin("agent.db", model="gemini-2.5-flash")])

A conversation is a session of ADK's, by application, user and id; agents below the first one have conversations of
their own, because ADK tells each of them another story.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.genai import types

from recto.adapters.chat import as_text
from recto.adapters.google_adk_contents import Telling, is_whole, read
from recto.conversations import Conversations, follow
from recto.engine.async_session import on_a_thread
from recto.engine.following import Following


class RectoPlugin(BasePlugin):
    """Keeps every call of a model within its window; what leaves is stored and comes back when it matters.

    Its methods are also callbacks for one agent: `LlmAgent(before_model_callback=recto.before_model_callback, …)`.
    """

    def __init__(
        self,
        store: Any = None,  # noqa: ANN401  # as `recto.follow` takes it
        *,
        name: str = "recto",
        session_id: Callable[[CallbackContext], str] | None = None,
        conversations: Conversations | None = None,
        **names: Any,  # noqa: ANN401  # those of `recto.follow`
    ) -> None:
        super().__init__(name)
        self._owns = conversations is None
        self.conversations = conversations or follow(store, **names)
        self._session_id = session_id
        self._given: dict[str, list[types.Content]] = {}
        """What a request held before, for as long as its model is asked."""

    def session_of(self, context: CallbackContext) -> str:
        """The conversation that a call belongs to."""
        if self._session_id is not None:
            return self._session_id(context)
        session, root = context.session, context.get_invocation_context().agent.root_agent.name
        agent = [] if context.agent_name == root else [context.agent_name, context.isolation_scope or ""]
        return "/".join([session.app_name, session.user_id, session.id, *agent])

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Sends a working set. Where the service keeps the history itself, nothing is done."""
        if not llm_request.previous_interaction_id:
            name = self.session_of(callback_context)
            following = await on_a_thread(self.conversations.of, name)
            self._given[name] = llm_request.contents
            llm_request.contents = await on_a_thread(_fitted, following, llm_request)
        return None

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        """Stores the answer. One whose calls get their ids later is stored with their results."""
        name = self.session_of(callback_context)
        content = llm_response.content
        if not llm_response.partial and content and name in self._given and is_whole(content):
            del self._given[name]
            following = await on_a_thread(self.conversations.of, name)
            said = [*Telling().written(content)]
            await on_a_thread(following.heard, *said, usage=_usage(llm_response.usage_metadata))
        return None

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> LlmResponse | None:
        """A model that finds a prompt too long is believed, and asked once more."""
        name = self.session_of(callback_context)
        following = await on_a_thread(self.conversations.of, name)
        if name not in self._given or not await on_a_thread(following.overflowed, error):
            return None
        llm_request.contents = self._given.pop(name)
        llm_request.contents = await on_a_thread(_fitted, following, llm_request)
        model = callback_context.get_invocation_context().agent.canonical_model
        answers = [one async for one in model.generate_content_async(llm_request, stream=False)]
        return answers[-1] if answers else None

    async def close(self) -> None:
        """Closes the conversations that were opened here; the runner does it."""
        if self._owns:
            await on_a_thread(self.conversations.close)


def _fitted(following: Following, request: LlmRequest) -> list[types.Content]:
    told = request.config.system_instruction or ""
    beside = told if isinstance(told, str) else as_text(told.model_dump(mode="json", exclude_none=True))
    tools = [one.model_dump(mode="json", exclude_none=True) for one in request.config.tools or ()]
    return following.working_set(request.contents, Telling().written, read, tools=tools, beside=beside)


def _usage(told: types.GenerateContentResponseUsageMetadata | None) -> dict[str, Any] | None:
    if told is None or not told.prompt_token_count:
        return None
    cached = {"cached_tokens": told.cached_content_token_count or 0}
    counted = {"prompt_tokens": told.prompt_token_count, "completion_tokens": told.candidates_token_count or 0}
    return {**counted, "prompt_tokens_details": cached}
