"""Google ADK: a plugin whose models get a working set, while the session's events stay as they are.

    app = App(name="shop", root_agent=agent, plugins=[RectoPlugin("agent.db", model="gemini-2.5-flash")])

A conversation is a session of ADK's, by application, user and id; agents below the first one have conversations of
their own, because ADK tells each of them another story.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.genai import types

from recto.adapters._messages import Blocks, as_text, calls_in, text_in
from recto.adapters.conversations import Conversations, follow
from recto.engine.async_session import on_a_thread
from recto.engine.history_sync import ChatMessage, Following

_OWN = "recto-call-"
"""How ids begin that are made here; they are never sent."""
_RESULT = "result"


class ContentsReader:
    """One request's contents, told in their order."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._open: dict[str, deque[str]] = {}
        """The ids of calls that wait for their response, by the name of the function."""

    def written(self, content: types.Content) -> Iterator[ChatMessage]:
        """A content in Chat messages."""
        blocks = Blocks(role="assistant" if content.role == "model" else "user")
        for part in content.parts or ():
            self._write(part, blocks)
        return blocks.messages()

    def _write(self, part: types.Part, blocks: Blocks) -> None:
        if call := part.function_call:
            blocks.call(self._called(call), call.name or "", call.args)
        elif response := part.function_response:
            blocks.result(self._answered(response), response.name or "", _output(response))
        elif part.text is not None and part.thought:
            blocks.thinking.append(part.text)
        elif part.text is not None:
            blocks.text(part.text)
        elif part.inline_data and part.inline_data.data is not None:
            blocks.media(part.inline_data.mime_type or "", part.inline_data.data)
        elif part.file_data:
            blocks.media(part.file_data.mime_type or "", part.file_data.file_uri or "")
        else:
            blocks.text(as_text(part.model_dump(mode="json", exclude_none=True)))

    def _called(self, call: types.FunctionCall) -> str:
        name = call.name or ""
        told = hashlib.sha256(f"{name} {as_text(call.args or {})}".encode()).hexdigest()[:12]
        self._seen[told] += 1
        call_id = call.id or f"{_OWN}{told}-{self._seen[told]}"
        self._open.setdefault(name, deque()).append(call_id)
        return call_id

    def _answered(self, response: types.FunctionResponse) -> str:
        waiting = self._open.get(response.name or "", deque())
        if response.id:
            if response.id in waiting:
                waiting.remove(response.id)
            return str(response.id)
        return waiting.popleft() if waiting else f"{_OWN}unknown"


def read(made: list[ChatMessage]) -> Iterator[types.Content]:
    """Contents for some messages that Recto wrote or changed; responses that stand together belong together."""
    for is_result, run in groupby(made, key=lambda one: one["role"] == "tool"):
        if is_result:
            yield types.Content(role="user", parts=[_response(one) for one in run])
            continue
        for one in run:
            role = "model" if one["role"] == "assistant" else "user"
            yield types.Content(role=role, parts=list(_parts(one)))


def is_whole(content: types.Content) -> bool:
    """Whether a content comes with the ids that it will have when it is told again."""
    calls = [part.function_call for part in content.parts or () if part.function_call]
    return all(call.id for call in calls)


def _parts(message: ChatMessage) -> Iterator[types.Part]:
    if text := text_in(message):
        yield types.Part(text=text)
    for call_id, name, arguments in calls_in(message):
        yield types.Part(function_call=types.FunctionCall(id=_sent(call_id), name=name, args=arguments))


def _response(message: ChatMessage) -> types.Part:
    answer = types.FunctionResponse(
        id=_sent(message["tool_call_id"]), name=message.get("name", ""), response={_RESULT: text_in(message)}
    )
    return types.Part(function_response=answer)


def _sent(call_id: str) -> str | None:
    return None if call_id.startswith(_OWN) else call_id


def _output(response: types.FunctionResponse) -> object:
    given = response.response or {}
    return given[_RESULT] if list(given) == [_RESULT] and isinstance(given[_RESULT], str) else given


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
            said = [*ContentsReader().written(content)]
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
    return following.working_set(request.contents, ContentsReader().written, read, tools=tools, beside=beside)


def _usage(told: types.GenerateContentResponseUsageMetadata | None) -> dict[str, Any] | None:
    if told is None or not told.prompt_token_count:
        return None
    cached = {"cached_tokens": told.cached_content_token_count or 0}
    counted = {"prompt_tokens": told.prompt_token_count, "completion_tokens": told.candidates_token_count or 0}
    return {**counted, "prompt_tokens_details": cached}
