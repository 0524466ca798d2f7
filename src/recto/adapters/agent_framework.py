"""Microsoft Agent Framework: a chat middleware whose model gets a working set, while history providers keep theirs.

    agent = Agent(client, tools=tools, middleware=[RectoMiddleware("agent.db", model="gpt-4o")])

A conversation is an `AgentSession`, by its id. Where the service keeps the history itself, nothing is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from agent_framework import ChatContext, ChatMiddleware, ChatResponse, Content, Message

from recto.adapters._messages import Blocks, as_text, calls_in, text_in
from recto.adapters.conversations import Conversations, follow
from recto.engine.async_session import on_a_thread
from recto.engine.history_sync import ChatMessage, Following

_COUNTS = {"prompt_tokens": "input_token_count", "completion_tokens": "output_token_count"}


class RectoMiddleware(ChatMiddleware):
    """Keeps every call of the model within its window; what leaves is stored and comes back when it matters."""

    def __init__(
        self,
        store: Any = None,  # noqa: ANN401  # as `recto.follow` takes it
        *,
        session_id: str | Callable[[ChatContext], str] = "",
        context_sources: Sequence[str] = (),
        conversations: Conversations | None = None,
        **names: Any,  # noqa: ANN401  # those of `recto.follow`
    ) -> None:
        self.conversations = conversations or follow(store, **names)
        self._session_id = session_id
        self._context_sources = frozenset(context_sources)
        """Context providers whose messages are made anew for each run: they take room and are no history."""

    def session_of(self, context: ChatContext) -> str:
        """The conversation that a call belongs to."""
        if self._session_id:
            return self._session_id if isinstance(self._session_id, str) else self._session_id(context)
        return context.session.session_id if context.session is not None else ""

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Sends a working set, and stores the answer. A service that finds it too long is believed once."""
        if (context.options or {}).get("conversation_id"):
            return await call_next()
        following = await on_a_thread(self.conversations.of, self.session_of(context))
        given = list(context.messages)
        context.messages = await on_a_thread(self._fitted, following, given, context.options or {})
        if context.stream:
            context.stream_result_transforms.append(lambda response: _hear(following, response))
            return await call_next()
        try:
            await call_next()
        except Exception as error:
            if not await on_a_thread(following.overflowed, error):
                raise
            context.messages = await on_a_thread(self._fitted, following, given, context.options or {})
            await call_next()
        if isinstance(context.result, ChatResponse):
            await _hear(following, context.result)
        return None

    def _fitted(self, following: Following, given: list[Message], options: Any) -> list[Message]:  # noqa: ANN401
        history = [one for one in given if _source(one) not in self._context_sources]
        context = [one for one in given if _source(one) in self._context_sources]
        beside = "\n".join([as_text(options.get("instructions") or ""), *(one.text for one in context)]).strip()
        tools = options.get("tools") or ()
        schemas = [_schema(tool) for tool in (tools if isinstance(tools, Sequence) else [tools])]
        sent = following.working_set(history, written, read, tools=schemas, beside=beside)
        asked = {id(one) for one in history if not _source(one)}
        place = next((at for at, one in enumerate(sent) if id(one) in asked), len(sent))
        return [*sent[:place], *context, *sent[place:]]


async def _hear(following: Following, response: ChatResponse[Any]) -> None:
    told = response.usage_details or {}
    usage: dict[str, Any] = {ours: told.get(theirs) or 0 for ours, theirs in _COUNTS.items()}
    usage["prompt_tokens_details"] = {"cached_tokens": told.get("cache_read_input_token_count") or 0}
    said = [one for message in response.messages for one in written(message)]
    await on_a_thread(following.heard, *said, usage=usage if usage["prompt_tokens"] else None)


def written(message: Message) -> Iterator[ChatMessage]:
    """A message of theirs in Chat messages."""
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


def read(made: list[ChatMessage]) -> Iterator[Message]:
    """Messages of theirs for some that Recto wrote or changed; results that stand together belong together."""
    for is_result, run in groupby(made, key=lambda one: one["role"] == "tool"):
        if is_result:
            results = [Content.from_function_result(one["tool_call_id"], result=text_in(one)) for one in run]
            yield Message("tool", results)
        else:
            yield from (Message(one["role"], list(_contents(one))) for one in run)


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
