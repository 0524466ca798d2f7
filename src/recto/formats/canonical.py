"""The canonical form of a message, which is equal for two copies of one message that are written differently.

Agents resend their history with every request, and not always in the same bytes: cache marks move, a string becomes a
list with one text block, nulls and ids come and go. The canonical form drops these differences and no others. It is
only compared: never stored as content, and never sent.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

from recto.formats.json_spans import Json
from recto.formats.message import CACHE_MARKS, fields_of
from recto.formats.registry import format_named

_TEXT_TYPES: Final = frozenset({"text", "input_text", "output_text"})
_EMPTY_IS_ABSENT: Final = frozenset({"annotations", "tool_calls", "citations", "logprobs"})


def canonical(raw: bytes, wire: str) -> bytes:
    """Returns the canonical form of a message; the message itself if it cannot be serialised."""
    fields = format_named(wire).messages.canonical_fields(_members(fields_of(raw)))
    try:
        # ASCII escapes keep lone surrogates; numbers beyond the float range would make different messages look equal
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return raw
    return text.encode()


def fingerprint(raw: bytes, wire: str) -> bytes:
    """Returns a hash of 32 bytes that is equal if the canonical forms are."""
    return hashlib.sha256(b"recto message 1\0" + wire.encode() + b"\0" + canonical(raw, wire)).digest()


def _members(fields: dict[str, Json]) -> dict[str, Json]:
    members: dict[str, Json] = {}
    for key, value in fields.items():
        if value is None or key in CACHE_MARKS or (key in _EMPTY_IS_ABSENT and value == []):
            continue
        members[key] = _content(value) if key == "content" else value
    return members


def _content(content: Json) -> Json:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list):
        return [_block(block) for block in content]
    return content


def _block(block: Json) -> Json:
    if not isinstance(block, dict):
        return block
    members = _members(block)
    if isinstance(kind := members.get("type"), str) and kind in _TEXT_TYPES:
        members["type"] = "text"
    return members
