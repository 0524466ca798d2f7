"""Reasoning that a model signed or sealed, carried through other formats and back without a byte changed.

Whoever wrote it wants it back unchanged, and to everybody else it says nothing. Clients of Responses keep
`encrypted_content` unread, clients of Anthropic keep signatures; Chat has `reasoning_details`, as routers write it and
their clients send it back.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final

from recto.errors import InputError
from recto.formats.convert.types import Road, Thought
from recto.formats.json_spans import Json
from recto.formats.message import json_of, text_in, value_in

_MARK: Final = "recto.sealed.1."
_ANTHROPIC: Final = "anthropic-claude-v1"
_RESPONSES: Final = "openai-responses-v1"


def seal(block: Mapping[str, Json]) -> str:
    """A block or an item as one opaque text."""
    return _MARK + base64.urlsafe_b64encode(json_of(dict(block)).encode()).decode()


def unseal(text: str) -> dict[str, Json] | None:
    """The block or item that an opaque text holds; nothing where the text is not ours."""
    if not text.startswith(_MARK):
        return None
    try:
        value = value_in(base64.urlsafe_b64decode(text.removeprefix(_MARK).encode()).decode())
    except (InputError, binascii.Error, ValueError):
        return None
    return value if isinstance(value, dict) else None


def sealed_in(item: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """What has to go back of an item of reasoning: what is sealed in it, or itself; nothing where nothing is."""
    sealed = text_in(item.get("encrypted_content"))
    if not sealed:
        return None
    return unseal(sealed) or {key: value for key, value in item.items() if key != "status"}


def detail(block: Mapping[str, Json], index: int) -> dict[str, Json]:
    """A block or an item as one of Chat's reasoning details."""
    if block.get("type") == "reasoning":
        told: dict[str, Json] = {"data": block.get("encrypted_content"), "id": block.get("id")}
        return {"type": "reasoning.encrypted", **told, "format": _RESPONSES, "index": index}
    made: dict[str, Json] = {"format": _ANTHROPIC, "index": index}
    if block.get("type") == "redacted_thinking":
        return {"type": "reasoning.encrypted", "data": block.get("data"), **made}
    return {"type": "reasoning.text", "text": block.get("thinking"), "signature": block.get("signature"), **made}


def unsaid(found: Mapping[str, Json]) -> bool:
    """Whether a detail has a signature and the text that is signed came before it."""
    return bool(found.get("signature")) and not found.get("text")


def thought(found: Mapping[str, Json], road: Road, where: str, before: str = "") -> Thought:
    """One of Chat's reasoning details, read. What a vendor sealed who is neither of these two is refused."""
    text = before + (text_in(found.get("text")) or text_in(found.get("summary")))
    signature, data = text_in(found.get("signature")), text_in(found.get("data"))
    match found.get("format"):
        case _ if not signature and not data:
            return Thought(text=text)
        case "anthropic-claude-v1" if data:
            return Thought(text="", block={"type": "redacted_thinking", "data": data})
        case "anthropic-claude-v1":
            return Thought(text=text, block={"type": "thinking", "thinking": text, "signature": signature})
        case "openai-responses-v1" if data:
            named: dict[str, Json] = {"id": found["id"]} if found.get("id") else {}
            return Thought(text="", block={"type": "reasoning", **named, "summary": [], "encrypted_content": data})
        case _:
            raise road.lost(where)
