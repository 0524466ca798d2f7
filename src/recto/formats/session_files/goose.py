"""Sessions of goose: a line about the session, then a message per line in goose's own format.

Older versions wrote such files; `adapters.agent_databases` writes them from the database of newer ones; and
`goose session export --format json` writes one document. Tried with the database and the export of goose 1.52.0; the
files of older versions after the published format only.

The messages are converted to Anthropic's format. What goose adds for the model alone (the time, summaries of compacted
history) and notices for the user alone are no messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from recto.formats.anthropic import ANTHROPIC
from recto.formats.json_spans import Json, parse, text_of
from recto.formats.message import object_in, text_in
from recto.formats.session_files.jsonl import ConvertedMessage, JsonlLine, LineReader
from recto.formats.session_files.types import SourceEntry, microseconds, present_members

NAME: Final = "goose"

_NOTICES = frozenset(
    {
        "actionRequired",
        "contextLengthExceeded",
        "conversationCompacted",
        "summarizationRequested",
        "systemNotification",
        "toolConfirmationRequest",
    }
)
"""Blocks that are not sent to the model."""
_BLOCKS = _NOTICES | {
    "frontendToolRequest",
    "image",
    "redactedThinking",
    "text",
    "thinking",
    "toolRequest",
    "toolResponse",
}
_SESSION_KEYS = frozenset({"created_at", "description", "message_count", "session_type"})


def is_line(fields: dict[str, Json]) -> bool:
    """Whether only goose writes such a line, or a document that begins so."""
    if isinstance(fields.get("working_dir"), str):
        return bool(_SESSION_KEYS & fields.keys())
    content = fields.get("content")
    if fields.get("role") not in ("user", "assistant") or not isinstance(content, list) or not content:
        return False
    return isinstance(fields.get("created"), int) and object_in(content[0]).get("type") in _BLOCKS


def session_in(fields: dict[str, Json]) -> Json:
    """Returns the session name in a line."""
    return fields.get("id") if "working_dir" in fields else None


def reader(session: str) -> LineReader:
    """Creates a reader for the lines of one file."""

    def read(line: JsonlLine) -> list[SourceEntry]:
        return _entries(line, line.parse().fields, session)

    return read


def read_document(line: JsonlLine, session: str) -> list[SourceEntry]:
    """Reads what `goose session export --format json` writes, passed as one line."""
    return _entries(line, object_in(parse(text_of(line.body))), session)


def _entries(line: JsonlLine, fields: dict[str, Json], session: str) -> list[SourceEntry]:
    messages = fields.get("conversation")
    found = [_conversion(object_in(message)) for message in (messages if isinstance(messages, list) else [fields])]
    conversions = [conversion for conversion in found if conversion is not None]
    if conversions:
        return line.as_conversions(session, conversions, wire=ANTHROPIC)
    meta = present_members(fields, "id", "working_dir", "parent_session_id")
    is_known = _blocks(fields.get("content")) == [] or _is_hidden(fields)
    return [line.as_event(session, ts=microseconds(fields.get("created")), meta=meta, is_known=is_known)]


def _is_hidden(message: dict[str, Json]) -> bool:
    """Whether goose wrote the message for the model alone, or keeps it for neither."""
    return object_in(message.get("metadata")).get("userVisible") is False


def _conversion(message: dict[str, Json]) -> ConvertedMessage | None:
    """Returns a message in Anthropic's format; `None` for one that is none, or is not understood."""
    blocks = None if _is_hidden(message) else _blocks(message.get("content"))
    if not blocks or message.get("role") not in ("user", "assistant"):
        return None
    metadata = object_in(message.get("metadata"))
    inference = object_in(metadata.get("inference"))
    meta = present_members({**message, "model": inference.get("requestedModel")}, "id", "model")
    meta |= present_members(metadata, "usage")
    return ConvertedMessage({"role": message["role"], "content": blocks}, microseconds(message.get("created")), meta)


def _blocks(content: Json) -> list[Json] | None:
    """Returns content in Anthropic's blocks; `None` if a block is not understood."""
    if not isinstance(content, list):
        return None
    blocks = [_block(object_in(block)) for block in content]
    return None if None in blocks else [block for block in blocks if block]


def _block(block: dict[str, Json]) -> dict[str, Json] | None:
    """Returns a block; an empty one for what the model is not sent; `None` for one that is not understood."""
    kind = text_in(block.get("type"))
    match kind:
        case "text":
            text = text_in(block.get("text"))
            return {"type": "text", "text": text} if text else {}
        case "thinking":
            return {"type": "thinking", **{key: text_in(block.get(key)) for key in ("thinking", "signature")}}
        case "redactedThinking":
            return {"type": "redacted_thinking", "data": text_in(block.get("data"))}
        case "image":
            source: dict[str, Json] = {"type": "base64"}
            source |= {"media_type": text_in(block.get("mimeType")), "data": text_in(block.get("data"))}
            return {"type": "image", "source": source}
        case "toolRequest" | "frontendToolRequest":
            return _call(text_in(block.get("id")), object_in(block.get("toolCall")))
        case "toolResponse":
            return _result(text_in(block.get("id")), object_in(block.get("toolResult")))
        case _:
            return {} if kind in _NOTICES else None


def _call(name: str, call: dict[str, Json]) -> dict[str, Json]:
    value = object_in(call.get("value"))
    if "error" in call:  # the model wrote a call that goose could not read; its result says so too
        value = {"name": "invalid_call", "arguments": {"error": text_in(call.get("error"))}}
    tool, arguments = text_in(value.get("name")), object_in(value.get("arguments"))
    return {"type": "tool_use", "id": name, "name": tool, "input": arguments}


def _result(call: str, result: dict[str, Json]) -> dict[str, Json] | None:
    made: dict[str, Json] = {"type": "tool_result", "tool_use_id": call}
    if "error" in result:
        return {**made, "content": text_in(result.get("error")), "is_error": True}
    value = result.get("value")
    contents = value if isinstance(value, list) else object_in(value).get("content")
    blocks = list(_contents(contents if isinstance(contents, list) else []))
    if None in blocks:
        return None
    made["content"] = [block for block in blocks if block]
    return {**made, "is_error": True} if object_in(value).get("isError") is True else made


def _contents(contents: list[Json]) -> Iterator[dict[str, Json] | None]:
    """Yields the contents of a tool's result, which are those of MCP."""
    for content in map(object_in, contents):
        resource = object_in(content.get("resource"))
        match content.get("type"):
            case "text" | "image":
                yield _block(content)
            case "resource" if isinstance(resource.get("text"), str):
                yield {"type": "text", "text": resource["text"]}
            case "resource" | "resource_link" | "audio":
                named = text_in(resource.get("uri")) or text_in(content.get("uri"))
                yield {"type": "text", "text": f"[{content['type']} {named}]".replace(" ]", "]")}
            case _:
                yield None
