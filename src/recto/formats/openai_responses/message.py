"""Items of OpenAI's Responses API (and of Open Responses): messages, calls, results and reasoning are separate items.

OpenAI adds item types every few months. An unknown type is parsed by the form of its name, and its full size counts.
"""

from __future__ import annotations

from collections.abc import Iterator

from recto.errors import MalformedMessage
from recto.formats.json_spans import Json
from recto.formats.message import (
    CACHE_MARKS,
    REPLY_ONLY,
    Message,
    Part,
    as_json,
    fields_of,
    image_part,
    result_parts,
    stated_role,
    text_in,
    unknown_members,
    unknown_part,
    weight_in,
)
from recto.formats.openai_chat.message import has_chat_members
from recto.transcript.entries import Role

_PLAIN_ITEMS = frozenset(
    {"reasoning", "compaction", "compaction_trigger", "item_reference", "program", "additional_tools"}
) | frozenset({"configuration_update", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"})
_OWN_PARTS = ("input_text", "output_text", "input_image", "input_file")
_KNOWN = frozenset({"type", "role", "content", "id", "status", "phase", "name"}) | CACHE_MARKS
_CALL_KNOWN = frozenset({"type", "id", "call_id", "status", "name", "namespace"}) | CACHE_MARKS


def is_item(kind: Json) -> bool:
    """Whether a `type` is an item type that only this format has."""
    return isinstance(kind, str) and (kind in _PLAIN_ITEMS or kind.endswith(("_call", "_output")))


def read(raw: bytes) -> Message:
    """Parses an item."""
    fields = fields_of(raw)
    role = role_of(fields)
    kind = fields.get("type", "message")
    if kind == "message":
        parts = [*content_parts(fields.get("content")), *unknown_members(fields, _KNOWN)]
        return Message(role=role, parts=tuple(parts), name=text_in(fields.get("name")))
    return Message(role=role, parts=tuple(_item_parts(str(kind), fields)))


def role_of(fields: dict[str, Json]) -> Role:
    """Returns the role of an item: its own one, `tool` for outputs of calls, else `assistant`."""
    kind = fields.get("type")
    if kind is None or kind == "message":
        return stated_role(fields)
    if not isinstance(kind, str):
        raise MalformedMessage("its 'type' is not a word")
    if kind.endswith("_output"):
        return "tool"
    if kind == "mcp_approval_response":
        return "user"
    return stated_role(fields) if isinstance(fields.get("role"), str) else "assistant"


def is_own_message(fields: dict[str, Json]) -> bool:
    """Whether only Responses has such an item: one of its types, or a Chat role together with a `type`."""
    kind = fields.get("type")
    return is_item(kind) or (kind is not None and has_chat_members(fields))


def is_own_block(block: dict[str, Json]) -> bool:
    """Whether only Responses has such a content part."""
    return block.get("type") in _OWN_PARTS


def is_own_wrapper(fields: dict[str, Json]) -> bool:
    """Whether a message with `"type": "message"` is an item and not an Anthropic response."""
    return not REPLY_ONLY & (fields.keys() - {"id", "type"})


def canonical_fields(fields: dict[str, Json]) -> dict[str, Json]:
    """Drops the status, and the id unless it is the only link to a call or the only content."""
    kind = fields.get("type", "message")
    dropped = {"status"}
    if kind == "message":
        dropped |= {"type", "id"}
    elif "call_id" in fields or not str(kind).endswith(("_output", "_reference")):
        dropped |= {"id"}
    return {key: value for key, value in fields.items() if key not in dropped}


def content_parts(content: Json) -> Iterator[Part]:
    """Parses the content of a message or the output of a call: a string, a list of parts, or null."""
    if isinstance(content, str):
        yield Part(kind="text", text=content)
    elif isinstance(content, list):
        for item in content:
            yield _content_part(item)
    elif content is not None:
        yield _content_part(content)


def _content_part(item: Json) -> Part:
    if isinstance(item, str):
        return Part(kind="text", text=item)
    if not isinstance(item, dict):
        return unknown_part(item)
    match item:
        case {"type": "input_image" | "computer_screenshot"}:
            source = item.get("image_url") or item.get("file_id")
            return image_part(source, item.get("detail"))
        case {"type": "input_file"}:
            label = text_in(item.get("filename")) or text_in(item.get("file_url")) or text_in(item.get("file_id"))
            return Part(kind="media", text=label, weight=weight_in(item.get("file_data")))
        case {"type": "input_audio", "input_audio": {"data": data}}:
            return Part(kind="media", weight=weight_in(data))
        case {"type": "refusal", "refusal": str(text)} | {"type": str(), "text": str(text)}:
            return Part(kind="text", text=text)
        case _:
            return unknown_part(item)


def _item_parts(kind: str, fields: dict[str, Json]) -> Iterator[Part]:
    if kind == "reasoning":
        yield _reasoning(fields)
    elif kind == "compaction":
        yield Part(kind="other", weight=weight_in(fields.get("encrypted_content")))
    elif kind == "image_generation_call":
        yield image_part(fields.get("result"))
    elif kind.endswith("_output"):
        call_id = text_in(fields.get("call_id")) or text_in(fields.get("id"))
        yield from result_parts(call_id, text_in(fields.get("name")), content_parts(fields.get("output")))
        yield from unknown_members(fields, _CALL_KNOWN | {"output"})
    elif kind in ("function_call", "custom_tool_call") or _expects_output(kind, fields):
        yield _call(kind, fields)
    else:
        # Run by the provider, or unknown: call and result are in one item, so it needs no partner.
        yield unknown_part({key: value for key, value in fields.items() if key not in ("id", "status", "role")})


def _expects_output(kind: str, fields: dict[str, Json]) -> bool:
    return kind.endswith("_call") and isinstance(fields.get("call_id"), str)


def _call(kind: str, fields: dict[str, Json]) -> Part:
    name = text_in(fields.get("name")) or kind.removesuffix("_call")
    arguments = fields.get("arguments", fields.get("input"))
    if arguments is None:
        arguments = {key: value for key, value in fields.items() if key not in _CALL_KNOWN} or ""
    text = arguments if isinstance(arguments, str) else as_json(arguments)
    return Part(kind="call", name=name, text=text, call_id=text_in(fields.get("call_id")))


def _reasoning(fields: dict[str, Json]) -> Part:
    texts = [part.text for key in ("summary", "content") for part in content_parts(fields.get(key))]
    return Part(kind="thinking", text="\n".join(texts), weight=weight_in(fields.get("encrypted_content")))
