"""Strands Agents: a conversation manager that sends models a working set, while the agent's messages stay complete.

```
    agent = Agent(model, tools=tools, conversation_manager=RectoConversationManager("agent.db", model="gpt-4o"))
```

A conversation is the agent's session. What its session manager stores is not changed.
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
from recto.adapters.conversations import ClosingAdapter, Conversations
from recto.engine.async_session import on_a_thread
from recto.engine.history_sync import ChatMessage, Following
from recto.formats.anthropic import ANTHROPIC_MESSAGES

Message = dict[str, Any]
_MEDIA_TYPES = {"image": "image", "document": "application", "video": "video", "audio": "audio"}
_COMPLETE_REASONS = ("end_turn", "tool_use", "stop_sequence")
"""Stop reasons after which an answer is added to the agent's messages unchanged."""
_TOO_LONG = "context_length_exceeded"


class RectoConversationManager(ClosingAdapter, ConversationManager):
    """Keeps every model call within the context window; evicted messages are stored and recalled when relevant."""

    def __init__(
        self,
        store: Any = None,  # noqa: ANN401  # as `recto.follow` takes it
        *,
        session_id: str = "",
        conversations: Conversations | None = None,
        **names: Any,  # noqa: ANN401  # those of `recto.follow`
    ) -> None:
        super().__init__()
        self._is_shared = conversations is not None
        self.conversations = speaking(ANTHROPIC_MESSAGES.name, conversations, store=store, **names)
        self._session_id = session_id

    def conversation(self, agent: Any) -> Following:  # noqa: ANN401  # an agent of theirs
        """Return the conversation of an agent."""
        if self._session_id:
            return self.conversations.of(self._session_id)
        suffix = "" if agent.agent_id == "default" else f"/{agent.agent_id}"
        return self.conversations.of(f"{agent.session_id}{suffix}")

    def register_hooks(self, registry: HookRegistry, **kwargs: Any) -> None:  # noqa: ANN401
        """Wrap the agent's model calls."""
        super().register_hooks(registry, **kwargs)
        registry.add_callback(AgentInitializedEvent, self._join)

    def _join(self, event: AgentInitializedEvent) -> None:
        event.agent.add_middleware(InvokeModelStage, self.around_model)

    async def around_model(
        self, context: InvokeModelContext, call_next: Callable[[InvokeModelContext], AsyncIterator[Any]]
    ) -> AsyncIterator[Any]:
        """Send a working set and store the answer."""
        following = await on_a_thread(self.conversation, context.agent)
        messages = await on_a_thread(_fitted, following, context)
        async for event in call_next(context.replace(messages=messages)):
            if isinstance(event, ModelStopReason):
                await on_a_thread(_store_answer, following, event)
            yield event

    def apply_management(self, agent: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Store the newest messages; the agent's messages stay unchanged."""
        self.conversation(agent).store([chat for message in agent.messages for chat in written(message)])

    def reduce_context(self, agent: Any, e: Exception | None = None, **kwargs: Any) -> None:  # noqa: ANN401
        """After a prompt was rejected as too long, adopt the limit for the next one. Without an error, compact."""
        following = self.conversation(agent)
        if e is None:
            following.compact()
        elif not following.overflowed(e):
            following.overflowed({"error": {"code": _TOO_LONG, "message": str(e)}})


def written(message: Message) -> Iterator[ChatMessage]:
    """Convert a Strands message to an Anthropic message; results come first."""
    blocks = [converted for block in message["content"] for converted in _written(block)]
    blocks.sort(key=lambda block: block["type"] != "tool_result")
    if blocks:
        yield {"role": message["role"], "content": blocks}


def read(messages: list[ChatMessage]) -> Iterator[Message]:
    """Convert Anthropic messages that Recto wrote or changed."""
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        yield {"role": message["role"], "content": [_read(block) for block in blocks]}


def taking_turns(messages: Iterable[Message]) -> list[Message]:
    """Merge adjacent messages of one role."""
    merged: list[Message] = []
    for role, run in groupby(messages, key=lambda message: message["role"]):
        first, *more = run
        content = [block for message in (first, *more) for block in message["content"]]
        merged.append({"role": role, "content": content} if more else first)
    return merged


def _written(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "text" in block:
        if block["text"].strip():
            yield {"type": "text", "text": block["text"]}
    elif call := block.get("toolUse"):
        yield {"type": "tool_use", "id": call["toolUseId"], "name": call["name"], "input": call["input"]}
    elif result := block.get("toolResult"):
        content = [converted for part in result["content"] for converted in _result(part)]
        failed = {"is_error": True} if result.get("status") == "error" else {}
        yield {"type": "tool_result", "tool_use_id": result["toolUseId"], "content": content, **failed}
    elif thought := block.get("reasoningContent"):
        reasoning = thought.get("reasoningText") or {}
        yield {"type": "thinking", "thinking": reasoning.get("text", ""), "signature": reasoning.get("signature") or ""}
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
    """Convert an image or a file with its bytes; anything else to text."""
    kind = next((kind for kind in _MEDIA_TYPES if kind in block), "")
    media = block.get(kind, {})
    raw = media.get("source", {}).get("bytes")
    if raw is None:
        return {"type": "text", "text": as_text(block)}
    mime = f"{_MEDIA_TYPES[kind]}/{media.get('format', '')}"
    source = {"type": "base64", "media_type": mime, "data": base64.b64encode(raw).decode()}
    return {"type": "image" if kind == "image" else "document", "source": source}


def _read(block: dict[str, Any]) -> dict[str, Any]:
    match block:
        case {"type": "text", "text": text}:
            return {"text": text}
        case {"type": "tool_use", "id": call_id, "name": name, "input": input_}:
            return {"toolUse": {"toolUseId": call_id, "name": name, "input": input_}}
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


def _fitted(following: Following, context: InvokeModelContext) -> list[Message]:
    messages: list[Any] = list(context.messages)
    extra: list[Any] = []
    if context.dynamic_trailing_blocks and messages:  # added for this call only: counted, but not history
        cut = len(messages[-1]["content"]) - context.dynamic_trailing_blocks
        extra = messages[-1]["content"][cut:]
        messages[-1] = {**messages[-1], "content": messages[-1]["content"][:cut]}
    beside = as_text(context.system_prompt or "") + (as_text(extra) if extra else "")
    sent = taking_turns(following.working_set(messages, written, read, tools=context.tool_specs, beside=beside))
    return [*sent[:-1], {**sent[-1], "content": [*sent[-1]["content"], *extra]}] if extra else sent


def _store_answer(following: Following, event: ModelStopReason) -> None:
    stop_reason, message, usage, _ = event["stop"]
    if stop_reason in _COMPLETE_REASONS:
        cached = {"cache_read_input_tokens": usage.get("cacheReadInputTokens", 0)}
        cached["cache_creation_input_tokens"] = usage.get("cacheWriteInputTokens", 0)
        reported = {"input_tokens": usage["inputTokens"], "output_tokens": usage["outputTokens"], **cached}
        following.heard(*written(message), usage=reported if usage["inputTokens"] else None)
