"""Messages of Anthropic's Messages API: a role and blocks, with tool results inside user messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from recto.formats.json_spans import Json
from recto.formats.message import (
    CACHE_MARKS,
    Message,
    Part,
    as_json,
    fields_of,
    image,
    leftovers,
    object_in,
    other,
    result,
    stated_role,
    text_in,
    weight_in,
)
from recto.transcript.entries import Role

REPLY_ONLY: Final = frozenset(
    {"id", "type", "model", "stop_reason", "stop_sequence", "stop_details", "usage", "container", "context_management"}
)
"""Members of a reply that are not part of the message: nobody sends them back."""

_KNOWN = frozenset({"role", "content", "clear_at"}) | REPLY_ONLY | CACHE_MARKS


def read(raw: bytes) -> Message:
    """What a message says."""
    fields = fields_of(raw)
    parts = [*content_parts(fields.get("content")), *leftovers(fields, _KNOWN)]
    return Message(role=role_of(fields), parts=tuple(parts))


def role_of(fields: dict[str, Json]) -> Role:
    """A user message with a tool's result in it is the tool's."""
    role = stated_role(fields)
    content = fields.get("content")
    if role == "user" and isinstance(content, list):
        for block in content:
            if isinstance(block, dict) and block.get("type") == "tool_result":
                return "tool"
    return role


def content_parts(content: Json) -> Iterator[Part]:
    """The parts of a message's content, which is a text, a list of blocks, or nothing."""
    if isinstance(content, str):
        yield Part(kind="text", text=content)
    elif isinstance(content, list):
        for block in content:
            yield from _block_parts(block)
    elif content is not None:
        yield from _block_parts(content)


def _block_parts(block: Json) -> Iterator[Part]:
    if isinstance(block, str):
        yield Part(kind="text", text=block)
        return
    if not isinstance(block, dict):
        yield other(block)
        return
    match block:
        case {"type": "text", "text": str(text)}:
            yield Part(kind="text", text=text)
        case {"type": "thinking", "thinking": str(text)}:
            yield Part(kind="thinking", text=text, weight=weight_in(block.get("signature")))
        case {"type": "redacted_thinking"}:
            yield Part(kind="thinking", weight=weight_in(block.get("data")))
        case {"type": str(kind), "tool_use_id": call_id} if kind.endswith("tool_result"):
            yield from result(text_in(call_id), "", content_parts(block.get("content")))
        case {"type": str(kind), "name": str(name)} if kind.endswith("tool_use"):
            arguments = as_json(block.get("input")) if "input" in block else ""
            yield Part(kind="call", name=name, text=arguments, call_id=text_in(block.get("id")))
        case {"type": "image", "source": dict()}:
            yield _image(object_in(block["source"]))
        case {"type": "document", "source": dict()}:
            yield from _document(block, object_in(block["source"]))
        case {"type": "search_result"}:
            yield Part(kind="text", text=text_in(block.get("title")))
            yield from content_parts(block.get("content"))
        case {"type": "compaction"}:
            sealed = weight_in(block.get("encrypted_content")) + weight_in(block.get("signature"))
            yield Part(kind="text", text=text_in(block.get("content")), weight=sealed)
        case _:
            yield other(block)


def _image(source: dict[str, Json]) -> Part:
    match source:
        case {"type": "base64", "data": data}:
            return image(data)
        case {"type": "url", "url": url}:
            return image(url)
        case _:
            return Part(kind="image", text=text_in(source.get("file_id")))


def _document(block: dict[str, Json], source: dict[str, Json]) -> Iterator[Part]:
    title = text_in(block.get("title"))
    match source:
        case {"type": "text", "data": str(text)}:
            yield Part(kind="text", text=f"{title}\n{text}" if title else text)
        case {"type": "content", "content": content}:
            yield from content_parts(content)
        case _:
            label = title or text_in(source.get("url")) or text_in(source.get("file_id"))
            yield Part(kind="media", text=label, weight=weight_in(source.get("data")))
