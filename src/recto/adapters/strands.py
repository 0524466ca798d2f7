"""Strands Agents: a conversation manager whose models get a working set, while the agent's messages stay whole.

    agent = Agent(model, tools=tools, conversation_manager=RectoConversationManager("agent.db", model="gpt-4o"))

A conversation is the agent's session. What its session manager keeps is not touched.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

from strands.agent.conversation_manager import ConversationManager
from strands.hooks import AgentInitializedEvent, HookRegistry
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.types.events import ModelStopReason

from recto.adapters._messages import as_text, speaking
from recto.adapters.conversations import Conversations
from recto.engine.async_session import on_a_thread
from recto.engine.history_sync import ChatMessage, Following
from recto.formats.anthropic import ANTHROPIC_MESSAGES

Message = dict[str, Any]
_FILES = {"image": "image", "document": "application", "video": "video", "audio": "audio"}


def written(message: Message) -> Iterator[ChatMessage]:
    """A message of theirs; results come first."""
    blocks = [one for block in message["content"] for one in _written(block)]
    blocks.sort(key=lambda one: one["type"] != "tool_result")
    if blocks:
        yield {"role": message["role"], "content": blocks}


def read(made: list[ChatMessage]) -> Iterator[Message]:
    """Messages of theirs for some that Recto wrote or changed."""
    for one in made:
        content = one["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        yield {"role": one["role"], "content": [_read(block) for block in blocks]}


def taking_turns(messages: Iterable[Message]) -> list[Message]:
    """Neighbours of one speaker as one message."""
    found: list[Message] = []
    for role, run in groupby(messages, key=lambda one: one["role"]):
        first, *more = run
        content = [block for one in (first, *more) for block in one["content"]]
        found.append({"role": role, "content": content} if more else first)
    return found


def _written(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "text" in block:
        if block["text"].strip():
            yield {"type": "text", "text": block["text"]}
    elif call := block.get("toolUse"):
        yield {"type": "tool_use", "id": call["toolUseId"], "name": call["name"], "input": call["input"]}
    elif result := block.get("toolResult"):
        content = [one for part in result["content"] for one in _result(part)]
        failed = {"is_error": True} if result.get("status") == "error" else {}
        yield {"type": "tool_result", "tool_use_id": result["toolUseId"], "content": content, **failed}
    elif thought := block.get("reasoningContent"):
        told = thought.get("reasoningText") or {}
        yield {"type": "thinking", "thinking": told.get("text", ""), "signature": told.get("signature") or ""}
    elif "cachePoint" not in block:
        yield _other(block)


def _result(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "json" in part:
        yield {"type": "text", "text": as_text(part["json"])}
    elif "text" in part:
        yield {"type": "text", "text": part["text"]}
    else:
        yield _other(part)


def _other(block: dict[str, Any]) -> dict[str, Any]:
    """A picture or a file by its bytes; anything else by what it says."""
    kind = next((kind for kind in _FILES if kind in block), "")
    given = block.get(kind, {})
    raw = given.get("source", {}).get("bytes")
    if raw is None:
        return {"type": "text", "text": as_text(block)}
    mime = f"{_FILES[kind]}/{given.get('format', '')}"
    source = {"type": "base64", "media_type": mime, "data": base64.b64encode(raw).decode()}
    return {"type": "image" if kind == "image" else "document", "source": source}


def _read(block: dict[str, Any]) -> dict[str, Any]:
    match block:
        case {"type": "text", "text": text}:
            return {"text": text}
        case {"type": "tool_use", "id": call_id, "name": name, "input": given}:
            return {"toolUse": {"toolUseId": call_id, "name": name, "input": given}}
        case {"type": "tool_result", "tool_use_id": call_id}:
            content = block.get("content") or ""
            parts = [{"text": content}] if isinstance(content, str) else [_read(part) for part in content]
            status = "error" if block.get("is_error") else "success"
            return {"toolResult": {"toolUseId": call_id, "status": status, "content": parts}}
        case {"type": "image" | "document" as kind, "source": {"media_type": mime, "data": raw}}:
            source = {"bytes": base64.b64decode(raw)}
            named = {} if kind == "image" else {"name": "document"}
            return {kind: {"format": mime.partition("/")[2], "source": source, **named}}
        case {"type": "thinking", "thinking": text}:
            signed = {"signature": block["signature"]} if block.get("signature") else {}
            return {"reasoningContent": {"reasoningText": {"text": text, **signed}}}
        case _:
            return {"text": as_text(block)}


_AS_SAID = ("end_turn", "tool_use", "stop_sequence")
"""Endings after which an answer goes into the agent's messages as the model gave it."""
_TOO_LONG = "context_length_exceeded"


class RectoConversationManager(ConversationManager):
    """Keeps every call of the model within its window; what leaves is stored and comes back when it matters."""

    def __init__(
        self,
        store: Any = None,  # noqa: ANN401  # as `recto.follow` takes it
        *,
        session_id: str = "",
        conversations: Conversations | None = None,
        **names: Any,  # noqa: ANN401  # those of `recto.follow`
    ) -> None:
        super().__init__()
        self.conversations = speaking(ANTHROPIC_MESSAGES.name, conversations, store=store, **names)
        self._session_id = session_id

    def conversation(self, agent: Any) -> Following:  # noqa: ANN401  # an agent of theirs
        """What an agent's conversation is kept in."""
        if self._session_id:
            return self.conversations.of(self._session_id)
        one_of_many = "" if agent.agent_id == "default" else f"/{agent.agent_id}"
        return self.conversations.of(f"{agent.session_id}{one_of_many}")

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:  # noqa: ANN401
        """Puts itself around the agent's calls of its model."""
        super().register_hooks(registry, **kwargs)
        registry.add_callback(AgentInitializedEvent, self._join)

    def _join(self, event: AgentInitializedEvent) -> None:
        event.agent.add_middleware(InvokeModelStage, self.around_model)

    async def around_model(
        self, context: InvokeModelContext, call_next: Callable[[InvokeModelContext], AsyncIterator[Any]]
    ) -> AsyncIterator[Any]:
        """Sends a working set, and stores the answer."""
        following = await on_a_thread(self.conversation, context.agent)
        messages = await on_a_thread(_fitted, following, context)
        async for event in call_next(context.replace(messages=messages)):
            if isinstance(event, ModelStopReason):
                await on_a_thread(_hear, following, event)
            yield event

    def apply_management(self, agent: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Stores what came last; the agent's messages stay as they are."""
        self.conversation(agent).store([one for message in agent.messages for one in written(message)])

    def reduce_context(self, agent: Any, e: Exception | None = None, **kwargs: Any) -> None:  # noqa: ANN401
        """A model that finds a prompt too long is believed: the next one is shorter. Without an error, it compacts."""
        following = self.conversation(agent)
        if e is None:
            following.compact()
        elif not following.overflowed(e):
            following.overflowed({"error": {"code": _TOO_LONG, "message": str(e)}})


def _fitted(following: Following, context: InvokeModelContext) -> list[Message]:
    given: list[Any] = list(context.messages)
    extra: list[Any] = []
    if context.dynamic_trailing_blocks and given:  # put there for this call alone: they take room and are no history
        cut = len(given[-1]["content"]) - context.dynamic_trailing_blocks
        extra = given[-1]["content"][cut:]
        given[-1] = {**given[-1], "content": given[-1]["content"][:cut]}
    beside = as_text(context.system_prompt or "") + (as_text(extra) if extra else "")
    sent = taking_turns(following.working_set(given, written, read, tools=context.tool_specs, beside=beside))
    return [*sent[:-1], {**sent[-1], "content": [*sent[-1]["content"], *extra]}] if extra else sent


def _hear(following: Following, event: ModelStopReason) -> None:
    ending, message, usage, _ = event["stop"]
    if ending in _AS_SAID:
        cached = {"cache_read_input_tokens": usage.get("cacheReadInputTokens", 0)}
        cached["cache_creation_input_tokens"] = usage.get("cacheWriteInputTokens", 0)
        told = {"input_tokens": usage["inputTokens"], "output_tokens": usage["outputTokens"], **cached}
        following.heard(*written(message), usage=told if usage["inputTokens"] else None)
