"""Messages of Strands in Anthropic's format, and back: both are lists of blocks, one message for one.

So the rules that Strands' models hold to are kept: results stand together and come first. That speakers take turns,
which Bedrock wants, is seen to here.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from recto.adapters.chat import as_text
from recto.engine.following import ChatMessage

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
