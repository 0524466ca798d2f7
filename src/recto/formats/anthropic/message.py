"""Messages of Anthropic's Messages API: a role and content blocks, with tool results inside user messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from recto.formats.json_spans import Json
from recto.formats.message import (
    CACHE_MARKS,
    REPLY_ONLY,
    Message,
    Part,
    as_json,
    fields_of,
    image_part,
    object_in,
    result_parts,
    stated_role,
    text_in,
    unknown_members,
    unknown_part,
    weight_in,
)
from recto.transcript.entries import Role

_OWN_BLOCKS: Final = ("tool_use", "tool_result", "redacted_thinking", "server_tool_use", "document")
_KNOWN = frozenset({"role", "content", "clear_at"}) | REPLY_ONLY | CACHE_MARKS


def read(raw: bytes) -> Message:
    """Parses a message."""
    fields = fields_of(raw)
    parts = [*content_parts(fields.get("content")), *unknown_members(fields, _KNOWN)]
    return Message(role=role_of(fields), parts=tuple(parts))


def role_of(fields: dict[str, Json]) -> Role:
    """Returns the role of a message; `tool` for a user message with a tool result in it."""
    role = stated_role(fields)
    content = fields.get("content")
    if role == "user" and isinstance(content, list):
        for block in content:
            if isinstance(block, dict) and block.get("type") == "tool_result":
                return "tool"
    return role


def is_own_message(fields: dict[str, Json]) -> bool:
    """Never: outside its content, a message has no members that other formats lack."""
    return False


def is_own_block(block: dict[str, Json]) -> bool:
    """Whether only Anthropic has such a block."""
    match block:
        case {"type": "thinking", "thinking": str()} | {"type": "image", "source": {}}:
            return True
        case _:
            return block.get("type") in _OWN_BLOCKS


def is_own_wrapper(fields: dict[str, Json]) -> bool:
    """Whether a message with `"type": "message"` has other members that only a response has."""
    return bool(REPLY_ONLY & (fields.keys() - {"id", "type"}))


def canonical_fields(fields: dict[str, Json]) -> dict[str, Json]:
    """Drops the members of a response that are not part of the message."""
    return {key: value for key, value in fields.items() if key not in REPLY_ONLY}


def content_parts(content: Json) -> Iterator[Part]:
    """Parses the content of a message: a string, a list of blocks, or null."""
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
        yield unknown_part(block)
        return
    match block:
        case {"type": "text", "text": str(text)}:
            yield Part(kind="text", text=text)
        case {"type": "thinking", "thinking": str(text)}:
            yield Part(kind="thinking", text=text, weight=weight_in(block.get("signature")))
        case {"type": "redacted_thinking"}:
            yield Part(kind="thinking", weight=weight_in(block.get("data")))
        case {"type": str(kind), "tool_use_id": call_id} if kind.endswith("tool_result"):
            yield from result_parts(text_in(call_id), "", content_parts(block.get("content")))
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
            yield unknown_part(block)


def _image(source: dict[str, Json]) -> Part:
    match source:
        case {"type": "base64", "data": data}:
            return image_part(data)
        case {"type": "url", "url": url}:
            return image_part(url)
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
