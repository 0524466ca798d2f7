"""LlamaIndex's chat messages in Recto's words, and back: they are kept in no other place."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
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
from pydantic import TypeAdapter

from recto.adapters.chat import Blocks, calls_in, text_in
from recto.engine.following import ChatMessage as Written

_ROLES = {"function": "tool", "chatbot": "assistant", "model": "assistant", "developer": "system"}
_BLOCK: TypeAdapter[Any] = TypeAdapter(ContentBlock)


def written(message: ChatMessage) -> Written:
    """A message as a Chat message."""
    role = _ROLES.get(message.role.value, message.role.value)
    blocks = Blocks(role=role)
    for block in message.blocks:
        _take(blocks, block)
    for call in () if blocks.calls else message.additional_kwargs.get("tool_calls") or ():
        given = call if isinstance(call, dict) else call.model_dump()
        blocks.call(given["id"], given["function"]["name"], given["function"]["arguments"])
    said = next(blocks.messages(), {"role": role, "content": ""})
    if role == "tool":
        said["tool_call_id"] = message.additional_kwargs.get("tool_call_id") or ""
        said |= {"name": name} if (name := message.additional_kwargs.get("name")) else {}
    return said


def read(chat: Written) -> ChatMessage:
    """A message of what is stored, or of what Recto wrote."""
    more = {key: chat[key] for key in ("tool_call_id", "name") if chat.get(key)}
    content = chat.get("content")
    blocks = list(_blocks(content)) if isinstance(content, list) else [TextBlock(text=text_in(chat))]
    calls = [
        ToolCallBlock(tool_call_id=call, tool_name=name, tool_kwargs=given) for call, name, given in calls_in(chat)
    ]
    if calls and blocks == [TextBlock(text="")]:
        blocks = []
    return ChatMessage(role=chat["role"], blocks=[*blocks, *calls], additional_kwargs=more)


def _take(blocks: Blocks, block: Any) -> None:  # noqa: ANN401  # any block of LlamaIndex's
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
