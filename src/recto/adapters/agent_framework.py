"""Microsoft Agent Framework: a chat middleware that sends the model a working set; history providers stay unchanged.

```
    agent = Agent(client, tools=tools, middleware=[RectoMiddleware("agent.db", model="gpt-4o")])
```

A conversation is an `AgentSession`, by its id. If the service stores the history itself, nothing is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from agent_framework import ChatContext, ChatMiddleware, ChatResponse, Content, Message

from recto.adapters._messages import Blocks, as_text, calls_in, text_in
from recto.adapters.conversations import ClosingAdapter, Conversations, follow
from recto.engine.async_session import on_a_thread
from recto.engine.history_sync import ChatMessage, Following

_COUNTS = {"prompt_tokens": "input_token_count", "completion_tokens": "output_token_count"}


class RectoMiddleware(ClosingAdapter, ChatMiddleware):
    """Keeps every model call within the context window; evicted messages are stored and recalled when relevant."""

    def __init__(
        self,
        store: Any = None,  # noqa: ANN401  # as `recto.follow` takes it
        *,
        session_id: str | Callable[[ChatContext], str] = "",
        context_sources: Sequence[str] = (),
        conversations: Conversations | None = None,
        **names: Any,  # noqa: ANN401  # those of `recto.follow`
    ) -> None:
        self._is_shared = conversations is not None
        self.conversations = conversations or follow(store, **names)
        self._session_id = session_id
        self._context_sources = frozenset(context_sources)
        """Context providers whose messages are rebuilt for each run: they are counted but are not history."""

    def session_of(self, context: ChatContext) -> str:
        """Return the conversation of a call."""
        if self._session_id:
            return self._session_id if isinstance(self._session_id, str) else self._session_id(context)
        return context.session.session_id if context.session is not None else ""

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Send a working set and store the answer. If the service rejects it as too long, retry once."""
        if (context.options or {}).get("conversation_id"):
            return await call_next()
        following = await on_a_thread(self.conversations.of, self.session_of(context))
        original = list(context.messages)
        context.messages = await on_a_thread(self._fitted, following, original, context.options or {})
        if context.stream:
            context.stream_result_transforms.append(lambda response: _store_answer(following, response))
            return await call_next()
        try:
            await call_next()
        except Exception as error:
            if not await on_a_thread(following.overflowed, error):
                raise
            context.messages = await on_a_thread(self._fitted, following, original, context.options or {})
            await call_next()
        if isinstance(context.result, ChatResponse):
            await _store_answer(following, context.result)
        return None

    def _fitted(self, following: Following, messages: list[Message], options: Any) -> list[Message]:  # noqa: ANN401
        history = [message for message in messages if _source(message) not in self._context_sources]
        context = [message for message in messages if _source(message) in self._context_sources]
        beside = "\n".join([as_text(options.get("instructions") or ""), *(message.text for message in context)]).strip()
        tools = options.get("tools") or ()
        schemas = [_schema(tool) for tool in (tools if isinstance(tools, Sequence) else [tools])]
        sent = following.working_set(history, written, read, tools=schemas, beside=beside)
        current = {id(message) for message in history if not _source(message)}
        place = next((index for index, message in enumerate(sent) if id(message) in current), len(sent))
        return [*sent[:place], *context, *sent[place:]]


async def _store_answer(following: Following, response: ChatResponse[Any]) -> None:
    reported = response.usage_details or {}
    usage: dict[str, Any] = {ours: reported.get(theirs) or 0 for ours, theirs in _COUNTS.items()}
    usage["prompt_tokens_details"] = {"cached_tokens": reported.get("cache_read_input_token_count") or 0}
    chats = [chat for message in response.messages for chat in written(message)]
    await on_a_thread(following.heard, *chats, usage=usage if usage["prompt_tokens"] else None)


def written(message: Message) -> Iterator[ChatMessage]:
    """Convert a framework message to Chat messages."""
    blocks = Blocks(role=str(message.role))
    for content in message.contents:
        match content.type:
            case "text":
                blocks.text(content.text or "")
            case "text_reasoning":
                blocks.thinking.append(content.text or content.protected_data or "")
            case "function_call" if not content.informational_only:
                blocks.call(content.call_id or "", content.name or "", content.arguments)
            case "function_result":
                blocks.result(content.call_id or "", "", content.result if _plain(content) else content.to_dict())
            case "data" | "uri":
                blocks.media(content.media_type or "", content.uri or "")
            case "usage":
                pass
            case _:
                blocks.text(as_text(content.to_dict()))
    return blocks.messages()


def read(chats: list[ChatMessage]) -> Iterator[Message]:
    """Convert Chat messages that Recto wrote or changed; adjacent results form one message."""
    for is_result, run in groupby(chats, key=lambda chat: chat["role"] == "tool"):
        if is_result:
            results = [Content.from_function_result(chat["tool_call_id"], result=text_in(chat)) for chat in run]
            yield Message("tool", results)
        else:
            yield from (Message(chat["role"], list(_contents(chat))) for chat in run)


def _contents(message: ChatMessage) -> Iterable[Content]:
    if text := text_in(message):
        yield Content.from_text(text)
    for call_id, name, arguments in calls_in(message):
        yield Content.from_function_call(call_id, name, arguments=arguments)


def _plain(content: Content) -> bool:
    return all(item.type == "text" for item in content.items or ())


def _source(message: Message) -> str:
    return str((message.additional_properties.get("_attribution") or {}).get("source_id") or "")


def _schema(tool: Any) -> Any:  # noqa: ANN401  # a function, or what a service runs itself
    return tool.to_json_schema_spec() if hasattr(tool, "to_json_schema_spec") else as_text(tool)
