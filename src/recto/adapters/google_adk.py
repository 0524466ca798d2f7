"""Google ADK: a plugin that sends models a working set, while the session's events stay unchanged.

```
    app = App(name="shop", root_agent=agent, plugins=[RectoPlugin("agent.db", model="gemini-3.8-flash")])
```

A conversation is an ADK session, by application, user and id. Sub-agents have conversations of their own, because ADK
sends each of them a different history.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import groupby
from types import TracebackType
from typing import Any, Self

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.genai import types

from recto.adapters._messages import Blocks, as_text, calls_in, text_in
from recto.adapters.conversations import Conversations, follow
from recto.engine.async_session import on_a_thread
from recto.engine.history_sync import ChatMessage, Following

_OWN_ID_PREFIX = "recto-call-"
"""Prefix of ids that are generated here; they are never sent."""
_RESULT_KEY = "result"


class RectoPlugin(BasePlugin):
    """Keeps every model call within the context window; evicted messages are stored and recalled when relevant.

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
        self._original: dict[str, list[types.Content]] = {}
        """The original contents of a request while its model call is in progress."""

    def session_of(self, context: CallbackContext) -> str:
        """Return the conversation of a call."""
        if self._session_id is not None:
            return self._session_id(context)
        session, root = context.session, context.get_invocation_context().agent.root_agent.name
        agent = [] if context.agent_name == root else [context.agent_name, context.isolation_scope or ""]
        return "/".join([session.app_name, session.user_id, session.id, *agent])

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Send a working set. If the service stores the history itself, do nothing."""
        if not llm_request.previous_interaction_id:
            name = self.session_of(callback_context)
            following = await on_a_thread(self.conversations.of, name)
            self._original[name] = llm_request.contents
            llm_request.contents = await on_a_thread(_fitted, following, llm_request)
        return None

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        """Store the answer. One whose calls get their ids later is stored with their results."""
        name = self.session_of(callback_context)
        content = llm_response.content
        if not llm_response.partial and content and name in self._original and is_whole(content):
            del self._original[name]
            following = await on_a_thread(self.conversations.of, name)
            chats = [*ContentsReader().written(content)]
            await on_a_thread(following.heard, *chats, usage=_usage(llm_response.usage_metadata))
        return None

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> LlmResponse | None:
        """If the model rejects a prompt as too long, adopt its limit and retry once."""
        name = self.session_of(callback_context)
        following = await on_a_thread(self.conversations.of, name)
        if name not in self._original or not await on_a_thread(following.overflowed, error):
            return None
        llm_request.contents = self._original.pop(name)
        llm_request.contents = await on_a_thread(_fitted, following, llm_request)
        model = callback_context.get_invocation_context().agent.canonical_model
        answers = [response async for response in model.generate_content_async(llm_request, stream=False)]
        return answers[-1] if answers else None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the conversations that were opened here; the runner calls it."""
        if self._owns:
            await on_a_thread(self.conversations.close)


class ContentsReader:
    """Converts the contents of one request, in order."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._open: dict[str, deque[str]] = {}
        """The ids of calls without a response, by function name."""

    def written(self, content: types.Content) -> Iterator[ChatMessage]:
        """Convert a content to Chat messages."""
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
        digest = hashlib.sha256(f"{name} {as_text(call.args or {})}".encode()).hexdigest()[:12]
        self._seen[digest] += 1
        call_id = call.id or f"{_OWN_ID_PREFIX}{digest}-{self._seen[digest]}"
        self._open.setdefault(name, deque()).append(call_id)
        return call_id

    def _answered(self, response: types.FunctionResponse) -> str:
        waiting = self._open.get(response.name or "", deque())
        if response.id:
            if response.id in waiting:
                waiting.remove(response.id)
            return str(response.id)
        return waiting.popleft() if waiting else f"{_OWN_ID_PREFIX}unknown"


def read(chats: list[ChatMessage]) -> Iterator[types.Content]:
    """Convert Chat messages that Recto wrote or changed to contents; adjacent responses form one content."""
    for is_result, run in groupby(chats, key=lambda chat: chat["role"] == "tool"):
        if is_result:
            yield types.Content(role="user", parts=[_response(chat) for chat in run])
            continue
        for chat in run:
            role = "model" if chat["role"] == "assistant" else "user"
            yield types.Content(role=role, parts=list(_parts(chat)))


def is_whole(content: types.Content) -> bool:
    """Whether every call in a content already has its final id."""
    calls = [part.function_call for part in content.parts or () if part.function_call]
    return all(call.id for call in calls)


def _parts(message: ChatMessage) -> Iterator[types.Part]:
    if text := text_in(message):
        yield types.Part(text=text)
    for call_id, name, arguments in calls_in(message):
        yield types.Part(function_call=types.FunctionCall(id=_sent(call_id), name=name, args=arguments))


def _response(message: ChatMessage) -> types.Part:
    answer = types.FunctionResponse(
        id=_sent(message["tool_call_id"]), name=message.get("name", ""), response={_RESULT_KEY: text_in(message)}
    )
    return types.Part(function_response=answer)


def _sent(call_id: str) -> str | None:
    return None if call_id.startswith(_OWN_ID_PREFIX) else call_id


def _output(response: types.FunctionResponse) -> object:
    output = response.response or {}
    return output[_RESULT_KEY] if list(output) == [_RESULT_KEY] and isinstance(output[_RESULT_KEY], str) else output


def _fitted(following: Following, request: LlmRequest) -> list[types.Content]:
    instruction = request.config.system_instruction or ""
    beside = (
        instruction if isinstance(instruction, str) else as_text(instruction.model_dump(mode="json", exclude_none=True))
    )
    tools = [tool.model_dump(mode="json", exclude_none=True) for tool in request.config.tools or ()]
    return following.working_set(request.contents, ContentsReader().written, read, tools=tools, beside=beside)


def _usage(reported: types.GenerateContentResponseUsageMetadata | None) -> dict[str, Any] | None:
    if reported is None or not reported.prompt_token_count:
        return None
    cached = {"cached_tokens": reported.cached_content_token_count or 0}
    counted = {"prompt_tokens": reported.prompt_token_count, "completion_tokens": reported.candidates_token_count or 0}
    return {**counted, "prompt_tokens_details": cached}
