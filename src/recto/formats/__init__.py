"""Provider JSON to messages and back, pure. Bytes that were not touched go out as they came in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from recto.errors import MalformedMessage
from recto.formats import anthropic, openai_chat, openai_responses
from recto.formats.canonical import canonical, fingerprint
from recto.formats.json_spans import Json
from recto.formats.message import ANTHROPIC, CHAT, RESPONSES, Message, fields_of, stated_role
from recto.formats.request_body import Body, open_body, render
from recto.formats.response import ProviderReply, Usage, read_reply
from recto.transcript.entries import Role

__all__ = [
    "FORMATS",
    "Body",
    "ProviderReply",
    "Usage",
    "canonical",
    "detect",
    "fingerprint",
    "mark_of",
    "open_body",
    "read",
    "read_reply",
    "render",
    "role_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How one provider's messages are read."""

    read: Callable[[bytes], Message]
    role_of: Callable[[dict[str, Json]], Role]


FORMATS: Final[Mapping[str, Format]] = {
    CHAT: Format(read=openai_chat.read, role_of=stated_role),
    RESPONSES: Format(read=openai_responses.read, role_of=openai_responses.role_of),
    ANTHROPIC: Format(read=anthropic.read, role_of=anthropic.role_of),
}
"""The wire formats, by the name that entries carry."""

_ANTHROPIC_BLOCKS = frozenset({"tool_use", "tool_result", "redacted_thinking", "server_tool_use", "document"})
_RESPONSES_PARTS = frozenset({"input_text", "output_text", "input_image", "input_file"})


def read(raw: bytes, wire: str) -> Message:
    """What a message says. Raises `MalformedJson` or `MalformedMessage` where it is none."""
    return _format(wire).read(raw)


def role_of(fields: dict[str, Json], wire: str) -> Role:
    """The role of a message that is read already."""
    return _format(wire).role_of(fields)


def detect(raw: bytes) -> str:
    """The wire format of one message. What every format would write alike is taken for Chat."""
    fields = fields_of(raw)
    wire = mark_of(fields) or CHAT
    role_of(fields, wire)
    return wire


def mark_of(fields: dict[str, Json]) -> str | None:
    """The wire format that a message can only be in; nothing where it could be in several."""
    kind = fields.get("type")
    if openai_responses.is_item(kind):
        return RESPONSES
    if "tool_calls" in fields or "tool_call_id" in fields or fields.get("role") in ("tool", "function", "developer"):
        return CHAT if kind is None else RESPONSES
    content = fields.get("content")
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and (wire := _mark_of_block(block)):
            return wire
    if kind == "message":
        return ANTHROPIC if anthropic.REPLY_ONLY & (fields.keys() - {"id", "type"}) else RESPONSES
    return None


def _mark_of_block(block: dict[str, Json]) -> str | None:
    match block:
        case {"type": str(kind)} if kind in _ANTHROPIC_BLOCKS:
            return ANTHROPIC
        case {"type": "thinking", "thinking": str()} | {"type": "image", "source": {}}:
            return ANTHROPIC
        case {"type": str(kind)} if kind in _RESPONSES_PARTS:
            return RESPONSES
        case {"type": "image_url" | "input_audio" | "file"}:
            return CHAT
        case _:
            return None


def _format(wire: str) -> Format:
    found = FORMATS.get(wire)
    if found is None:
        raise MalformedMessage(f"'{wire}' is not a wire format; known are {', '.join(FORMATS)}")
    return found
