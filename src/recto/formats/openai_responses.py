"""Items of OpenAI's Responses API (and of Open Responses): messages, calls, results and reasoning, each by itself.

New kinds of items appear every few months. A kind not known here is read by the shape of its name and weighed in full.
"""

from __future__ import annotations

from collections.abc import Iterator

from recto.errors import MalformedMessage
from recto.formats.json_spans import Json
from recto.formats.message import (
    CACHE_MARKS,
    Message,
    Part,
    as_json,
    fields_of,
    image,
    leftovers,
    other,
    result,
    stated_role,
    text_in,
    weight_in,
)
from recto.transcript.entries import Role

_PLAIN_ITEMS = frozenset(
    {"reasoning", "compaction", "compaction_trigger", "item_reference", "program", "additional_tools"}
) | frozenset({"configuration_update", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"})
_KNOWN = frozenset({"type", "role", "content", "id", "status", "phase", "name"}) | CACHE_MARKS
_CALL_KNOWN = frozenset({"type", "id", "call_id", "status", "name", "namespace"}) | CACHE_MARKS


def is_item(kind: Json) -> bool:
    """Whether this is the `type` of an item that only this format has."""
    return isinstance(kind, str) and (kind in _PLAIN_ITEMS or kind.endswith(("_call", "_output")))


def read(raw: bytes) -> Message:
    """What an item says."""
    fields = fields_of(raw)
    role = role_of(fields)
    kind = fields.get("type", "message")
    if kind == "message":
        parts = [*content_parts(fields.get("content")), *leftovers(fields, _KNOWN)]
        return Message(role=role, parts=tuple(parts), name=text_in(fields.get("name")))
    return Message(role=role, parts=tuple(_item_parts(str(kind), fields)))


def role_of(fields: dict[str, Json]) -> Role:
    """Who an item comes from: its own role, the tool for what a tool gave back, else the assistant."""
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


def content_parts(content: Json) -> Iterator[Part]:
    """The parts of a message's content or of a call's output: a text, a list of parts, or nothing."""
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
        return other(item)
    match item:
        case {"type": "input_image" | "computer_screenshot"}:
            source = item.get("image_url") or item.get("file_id")
            return image(source, item.get("detail"))
        case {"type": "input_file"}:
            label = text_in(item.get("filename")) or text_in(item.get("file_url")) or text_in(item.get("file_id"))
            return Part(kind="media", text=label, weight=weight_in(item.get("file_data")))
        case {"type": "input_audio", "input_audio": {"data": data}}:
            return Part(kind="media", weight=weight_in(data))
        case {"type": "refusal", "refusal": str(text)} | {"type": str(), "text": str(text)}:
            return Part(kind="text", text=text)
        case _:
            return other(item)


def _item_parts(kind: str, fields: dict[str, Json]) -> Iterator[Part]:
    if kind == "reasoning":
        yield _reasoning(fields)
    elif kind == "compaction":
        yield Part(kind="other", weight=weight_in(fields.get("encrypted_content")))
    elif kind == "image_generation_call":
        yield image(fields.get("result"))
    elif kind.endswith("_output"):
        call_id = text_in(fields.get("call_id")) or text_in(fields.get("id"))
        yield from result(call_id, text_in(fields.get("name")), content_parts(fields.get("output")))
        yield from leftovers(fields, _CALL_KNOWN | {"output"})
    elif kind in ("function_call", "custom_tool_call") or _asks_for_output(kind, fields):
        yield _call(kind, fields)
    else:
        # Run by the provider, or unknown: question and answer are in one item, so it needs no partner.
        yield other({key: value for key, value in fields.items() if key not in ("id", "status", "role")})


def _asks_for_output(kind: str, fields: dict[str, Json]) -> bool:
    return kind.endswith("_call") and isinstance(fields.get("call_id"), str)


def _call(kind: str, fields: dict[str, Json]) -> Part:
    name = text_in(fields.get("name")) or kind.removesuffix("_call")
    given = fields.get("arguments", fields.get("input"))
    if given is None:
        given = {key: value for key, value in fields.items() if key not in _CALL_KNOWN}
        given = given or ""
    text = given if isinstance(given, str) else as_json(given)
    return Part(kind="call", name=name, text=text, call_id=text_in(fields.get("call_id")))


def _reasoning(fields: dict[str, Json]) -> Part:
    texts = [part.text for key in ("summary", "content") for part in content_parts(fields.get(key))]
    return Part(kind="thinking", text="\n".join(texts), weight=weight_in(fields.get("encrypted_content")))
