"""When two messages are the same message, though written differently.

Agents send their history again each turn, and not always as they sent it before: cache marks move, a text becomes a
list with one text block, a provider's nulls and ids come and go. The canonical form forgets these and nothing else.
It is for comparing. It is never stored as content and never sent.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

from recto.formats.anthropic import REPLY_ONLY
from recto.formats.json_spans import Json
from recto.formats.message import ANTHROPIC, CACHE_MARKS, RESPONSES, fields_of

_TEXT_TYPES: Final = frozenset({"text", "input_text", "output_text"})
_EMPTY_IS_ABSENT: Final = frozenset({"annotations", "tool_calls", "citations", "logprobs"})


def canonical(raw: bytes, wire: str) -> bytes:
    """The message without what does not matter, in one fixed spelling. Bytes with no such spelling stay as they are."""
    fields = _members(fields_of(raw))
    if wire == ANTHROPIC:
        fields = {key: value for key, value in fields.items() if key not in REPLY_ONLY}
    elif wire == RESPONSES:
        fields = _item(fields)
    try:
        # ASCII escapes carry lone surrogates too; a number beyond every float would make two messages look alike
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return raw
    return text.encode()


def fingerprint(raw: bytes, wire: str) -> bytes:
    """32 bytes that are equal where the canonical forms are."""
    return hashlib.sha256(b"recto message 1\0" + wire.encode() + b"\0" + canonical(raw, wire)).digest()


def _item(fields: dict[str, Json]) -> dict[str, Json]:
    kind = fields.get("type", "message")
    dropped = {"status"}
    if kind == "message":
        dropped |= {"type", "id"}
    elif "call_id" in fields or not str(kind).endswith(("_output", "_reference")):
        dropped |= {"id"}  # in the others the id is the tie to the call, or all there is
    return {key: value for key, value in fields.items() if key not in dropped}


def _members(fields: dict[str, Json]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for key, value in fields.items():
        if value is None or key in CACHE_MARKS or (key in _EMPTY_IS_ABSENT and value == []):
            continue
        found[key] = _content(value) if key == "content" else value
    return found


def _content(content: Json) -> Json:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list):
        return [_block(block) for block in content]
    return content


def _block(block: Json) -> Json:
    if not isinstance(block, dict):
        return block
    found = _members(block)
    if isinstance(kind := found.get("type"), str) and kind in _TEXT_TYPES:
        found["type"] = "text"
    return found
