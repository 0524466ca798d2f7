"""LlamaIndex: a memory for its agents and chat engines, stored in a Recto transcript.

```
memory = RectoMemory.from_defaults(session_id="1", token_limit=30_000, store="agent.db", model="gpt-4o")
response = await agent.run("Hello", memory=memory)
```

An agent adds its tool calls to the memory only with its final answer. Until then it keeps them itself, after the
messages of the memory, so the memory leaves tokens for them.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from llama_index.core.base.llms.types import (
    CachePoint,
    ChatMessage,
    ContentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.memory import BaseMemory
from pydantic import Field, PrivateAttr, TypeAdapter

from recto.adapters._messages import Blocks, calls_in, move, place_of, text_in, told_in
from recto.adapters.conversations import ClosingBlock, Conversations, follow
from recto.engine.history_sync import ChatMessage as Written
from recto.engine.history_sync import Following
from recto.transcript.entries import to_json
from recto.transcript.session_keys import session_in

__all__ = ["RectoMemory"]
_ROLES = {"function": "tool", "chatbot": "assistant", "model": "assistant", "developer": "system"}
_BLOCK: TypeAdapter[Any] = TypeAdapter(ContentBlock)


class RectoMemory(ClosingBlock, BaseMemory):
    """The conversation as far as it fits; all of it stays stored and is recalled when relevant."""

    session_id: str = Field(default="", description="The conversation.")
    store: str | None = Field(default=None, description="Where it is kept, as `recto.follow` takes it.")
    model: str = Field(default="", description="The model whose tokens are counted.")
    token_limit: int = Field(default=30_000, gt=0, description="What a prompt may have.")
    chat_history_token_ratio: float = Field(default=0.7, gt=0, le=1, description="How much of it the memory may use.")
    _names: dict[str, Any] = PrivateAttr(default_factory=dict)
    _conversations: Conversations | None = PrivateAttr(default=None)
    _is_shared: bool = PrivateAttr(default=False)
    _place: str = PrivateAttr(default="")
    """The current session; it never goes back."""
    _opened: Any = PrivateAttr(default=None)
    """An open store."""
    _own: dict[bytes, ChatMessage] = PrivateAttr(default_factory=dict)
    """Messages as they were put, while they are in the prompt."""

    @classmethod
    def class_name(cls) -> str:
        """The name under which a context is serialised."""
        return "RectoMemory"

    @classmethod
    def from_defaults(
        cls,
        session_id: str = "",
        chat_history: list[ChatMessage] | None = None,
        token_limit: int = 30_000,
        *,
        store: Any = None,  # noqa: ANN401  # as `recto.follow` takes it
        tokenizer_fn: Callable[[str], list[Any]] | None = None,
        conversations: Conversations | None = None,
        **names: Any,  # noqa: ANN401  # those of `recto.follow`
    ) -> RectoMemory:
        """Create a memory like LlamaIndex's own; `conversations` can be shared."""
        fields = {name: names.pop(name) for name in ("model", "chat_history_token_ratio") if name in names}
        path = os.fspath(store) if isinstance(store, str | os.PathLike) else None
        memory = cls(session_id=session_id, store=path, token_limit=token_limit, **fields)
        if tokenizer_fn is not None:
            names["token_counter"] = lambda text: len(tokenizer_fn(text))
        memory._names, memory._conversations, memory._opened = names, conversations, None if path else store
        memory._is_shared = conversations is not None
        if chat_history:
            memory.set(chat_history)
        return memory

    @property
    def conversations(self) -> Conversations:
        """The conversations of the store; opened on first use."""
        if self._conversations is None:
            max_tokens = int(self.token_limit * self.chat_history_token_ratio)
            self._conversations = follow(
                self._opened or self.store, model=self.model, max_tokens=max_tokens, **self._names
            )
        return self._conversations

    def close(self) -> None:
        """Closes the conversations and the store that were opened for this memory."""
        if self._conversations is not None and not self._is_shared:
            self._conversations.close()

    @property
    def conversation(self) -> Following:
        """The current conversation: `compact(focus)`, and every call of a Recto session."""
        following = place_of(self.conversations, self._place or self.session_id)
        self._place = session_in(following.session.key)
        return following

    def get(self, input: str | None = None, **kwargs: Any) -> list[ChatMessage]:  # noqa: ANN401
        """Return the messages to send now."""
        prompt = self.conversation.session.prompt()
        raws = [*prompt.built.system, *prompt.raw]
        self._own = {raw: self._own[raw] for raw in raws if raw in self._own}
        return [self._to_message(raw) for raw in raws]

    def get_all(self) -> list[ChatMessage]:
        """Return all messages."""
        return [read(chat) for _, chat in told_in(self.conversation)]

    def put(self, message: ChatMessage) -> None:
        """Store a message durably."""
        self.put_messages([message])

    def put_messages(self, messages: list[ChatMessage]) -> None:
        """Store messages, all or none."""
        chats = [written(message) for message in messages]
        self.conversation.heard(*chats)
        for chat, message in zip(chats, messages, strict=True):
            self._own[to_json(chat)] = message.model_copy(deep=True)

    def set(self, messages: list[ChatMessage]) -> None:
        """Makes this the history. What does not belong to it any more stays in the session that it leaves."""
        here, chats = self.conversation, [written(message) for message in messages]
        stored = told_in(here)
        pairs = zip(stored, chats, strict=False)
        same = next(
            (place for place, (one, other) in enumerate(pairs) if one[1] != other), min(len(stored), len(chats))
        )
        if same < len(stored):
            move(here, stored[same - 1][0] if same else 0)
        self.put_messages(messages[same:])

    def reset(self) -> None:
        """Start over. Stored messages remain in the store."""
        move(self.conversation)

    def _to_message(self, raw: bytes) -> ChatMessage:
        own = self._own.get(raw)
        return own.model_copy(deep=True) if own is not None else read(json.loads(raw))


def written(message: ChatMessage) -> Written:
    """Convert a message to a Chat message."""
    role = _ROLES.get(message.role.value, message.role.value)
    blocks = Blocks(role=role)
    for block in message.blocks:
        _add_block(blocks, block)
    for call in () if blocks.calls else message.additional_kwargs.get("tool_calls") or ():
        data = call if isinstance(call, dict) else call.model_dump()
        blocks.call(data["id"], data["function"]["name"], data["function"]["arguments"])
    chat = next(blocks.messages(), {"role": role, "content": ""})
    if role == "tool":
        chat["tool_call_id"] = message.additional_kwargs.get("tool_call_id") or ""
        chat |= {"name": name} if (name := message.additional_kwargs.get("name")) else {}
    return chat


def read(chat: Written) -> ChatMessage:
    """Convert a Chat message that is stored or was written by Recto."""
    additional = {key: chat[key] for key in ("tool_call_id", "name") if chat.get(key)}
    content = chat.get("content")
    blocks = list(_blocks(content)) if isinstance(content, list) else [TextBlock(text=text_in(chat))]
    calls = [
        ToolCallBlock(tool_call_id=call, tool_name=name, tool_kwargs=given) for call, name, given in calls_in(chat)
    ]
    if calls and blocks == [TextBlock(text="")]:
        blocks = []
    return ChatMessage(role=chat["role"], blocks=[*blocks, *calls], additional_kwargs=additional)


def _add_block(blocks: Blocks, block: Any) -> None:  # noqa: ANN401  # any block of LlamaIndex's
    if isinstance(block, TextBlock):
        blocks.text(block.text)
    elif isinstance(block, ToolCallBlock):
        blocks.call(block.tool_call_id or f"call_{len(blocks.calls)}", block.tool_name, block.tool_kwargs)
    elif isinstance(block, ThinkingBlock):
        blocks.thinking += [block.content] if block.content else []
    elif isinstance(block, ImageBlock):
        image = block.resolve_image().read() if block.url is None else str(block.url)
        blocks.media(block.image_mimetype or "image/png", image)
    elif not isinstance(block, CachePoint):
        blocks.parts.append({"type": "file", "file": {"filename": block.block_type, "file_data": _json(block)}})


def _json(block: Any) -> str:  # noqa: ANN401
    return json.dumps(block.model_dump(mode="json", exclude_none=True), ensure_ascii=False)


def _blocks(content: list[dict[str, Any]]) -> Iterator[Any]:
    for part in content:
        if part.get("type") == "text":
            yield TextBlock(text=part["text"])
        elif part.get("type") == "image_url":
            url = part["image_url"]["url"]
            mime, _, encoded = url.removeprefix("data:").partition(";base64,")
            picture = {"image": base64.b64decode(encoded), "image_mimetype": mime} if encoded else {"url": url}
            yield ImageBlock(**picture)
        elif part.get("type") == "file":
            yield _BLOCK.validate_json(part["file"]["file_data"])
