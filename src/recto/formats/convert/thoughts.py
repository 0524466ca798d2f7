"""Signed or encrypted reasoning, carried through other formats and back without changing a byte.

The provider that issued it requires it back unchanged; no other can read it. Clients of Responses store
`encrypted_content` unread, and clients of Anthropic store signatures. Chat has `reasoning_details`, as routers such as
OpenRouter write them and their clients send them back.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final

from recto.errors import InputError
from recto.formats.convert.types import Conversion, Thought
from recto.formats.json_spans import Json
from recto.formats.message import json_of, text_in, value_in

_MARK: Final = "recto.sealed.1."
_ANTHROPIC: Final = "anthropic-claude-v1"
_RESPONSES: Final = "openai-responses-v1"
_GEMINI: Final = "google-gemini-v1"
SIGNATURE: Final = "gemini_signature"
"""The type of the block that represents one of Gemini's signatures, which its API has on other parts."""


def seal(block: Mapping[str, Json]) -> str:
    """Encodes a block or an item as one opaque string."""
    return _MARK + base64.urlsafe_b64encode(json_of(dict(block)).encode()).decode()


def unseal(text: str) -> dict[str, Json] | None:
    """Decodes the block or item of an opaque string; `None` if `seal` did not create it."""
    if not text.startswith(_MARK):
        return None
    try:
        value = value_in(base64.urlsafe_b64decode(text.removeprefix(_MARK).encode()).decode())
    except (InputError, binascii.Error, ValueError):
        return None
    return value if isinstance(value, dict) else None


def sealed_in(item: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """Returns what must be sent back for a reasoning item: the block sealed in it, or the item; `None` if neither."""
    sealed = text_in(item.get("encrypted_content"))
    if not sealed:
        return None
    return unseal(sealed) or {key: value for key, value in item.items() if key != "status"}


def write_detail(block: Mapping[str, Json], index: int) -> dict[str, Json]:
    """Writes a block or an item as one of Chat's reasoning details."""
    if block.get("type") == "reasoning":
        encrypted: dict[str, Json] = {"data": block.get("encrypted_content"), "id": block.get("id")}
        return {"type": "reasoning.encrypted", **encrypted, "format": _RESPONSES, "index": index}
    if block.get("type") == SIGNATURE:
        return {"type": "reasoning.encrypted", "data": block.get("signature"), "format": _GEMINI, "index": index}
    origin: dict[str, Json] = {"format": _ANTHROPIC, "index": index}
    if block.get("type") == "redacted_thinking":
        return {"type": "reasoning.encrypted", "data": block.get("data"), **origin}
    return {"type": "reasoning.text", "text": block.get("thinking"), "signature": block.get("signature"), **origin}


def signs_earlier_text(fields: Mapping[str, Json]) -> bool:
    """Whether a detail is only a signature, of text that came in earlier details."""
    return bool(fields.get("signature")) and not fields.get("text")


def read_detail(fields: Mapping[str, Json], conversion: Conversion, where: str, before: str = "") -> Thought:
    """Reads one of Chat's reasoning details. Raises `CannotCross` for reasoning sealed by any other vendor.

    `before` is the text of earlier details that this one signs.
    """
    text = before + (text_in(fields.get("text")) or text_in(fields.get("summary")))
    signature, data = text_in(fields.get("signature")), text_in(fields.get("data"))
    match fields.get("format"):
        case _ if not signature and not data:
            return Thought(text=text)
        case "anthropic-claude-v1" if data:
            return Thought(text="", block={"type": "redacted_thinking", "data": data})
        case "anthropic-claude-v1":
            return Thought(text=text, block={"type": "thinking", "thinking": text, "signature": signature})
        case "openai-responses-v1" if data:
            named: dict[str, Json] = {"id": fields["id"]} if fields.get("id") else {}
            return Thought(text="", block={"type": "reasoning", **named, "summary": [], "encrypted_content": data})
        case "google-gemini-v1" if data:
            return Thought(text="", block={"type": SIGNATURE, "signature": data})
        case _:
            raise conversion.unsupported(where)
