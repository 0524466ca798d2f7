"""Session files of pi: one object per line, with a message in pi's own format in `message`.

The messages are converted to Anthropic's format, which has the same blocks under other names. Summaries of compacted
history are no messages. Branches of one session are in one file, in the order in which they were written.
"""

from __future__ import annotations

from typing import Final

from recto.formats.anthropic import ANTHROPIC
from recto.formats.json_spans import Json
from recto.formats.message import object_in, text_in
from recto.formats.session_files.jsonl import ConvertedMessage, JsonlLine, LineReader
from recto.formats.session_files.types import SourceEntry, microseconds, present_members

NAME: Final = "pi"

_TYPES = frozenset(
    {"message", "custom_message", "model_change", "thinking_level_change", "compaction", "branch_summary"}
)
_SUMMARIES = ("branchSummary", "compactionSummary")


def is_line(fields: dict[str, Json]) -> bool:
    """Whether only pi writes such a line."""
    if fields.get("type") == "session":
        return {"id", "cwd"} <= fields.keys()
    return text_in(fields.get("type")) in _TYPES and {"id", "parentId"} <= fields.keys() and "role" not in fields


def session_in(fields: dict[str, Json]) -> Json:
    """Returns the session name in a line."""
    return fields.get("id") if fields.get("type") == "session" else None


def reader(session: str) -> LineReader:
    """Creates a reader for the lines of one file."""

    def read(line: JsonlLine) -> list[SourceEntry]:
        fields = line.parse().fields
        ts = microseconds(fields.get("timestamp"))
        meta = present_members(fields, "id", "parentId", "cwd")
        is_injected = fields.get("type") == "custom_message"
        message = {"role": "custom", **fields} if is_injected else object_in(fields.get("message"))
        converted = _converted(message) if is_injected or fields.get("type") == "message" else None
        if converted is None:
            return [line.as_event(session, ts=ts, meta=meta, is_known=message.get("role") in _SUMMARIES)]
        meta |= present_members(message, "model", "provider", "usage", "stopReason", "customType")
        return line.as_conversions(session, [ConvertedMessage(converted, ts, meta)], wire=ANTHROPIC)

    return read


def _converted(message: dict[str, Json]) -> dict[str, Json] | None:
    """Returns a message in Anthropic's format; `None` for one that is not understood."""
    blocks = _blocks(message.get("content"))
    match message.get("role"):
        case "user" | "custom" | "hookMessage" if blocks:
            return {"role": "user", "content": blocks}
        case "assistant" if blocks:
            return {"role": "assistant", "content": blocks}
        case "toolResult" if isinstance(message.get("toolCallId"), str) and blocks is not None:
            result: dict[str, Json] = {"type": "tool_result", "tool_use_id": message["toolCallId"], "content": blocks}
            if message.get("isError") is True:
                result["is_error"] = True
            return {"role": "user", "content": [result]}
        case "bashExecution":
            output = f"$ {text_in(message.get('command'))}\n{text_in(message.get('output'))}"
            return {"role": "user", "content": [{"type": "text", "text": output}]}
        case _:
            return None


def _blocks(content: Json) -> list[Json] | None:
    """Returns content in Anthropic's blocks; `None` if a block is not understood."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        return None
    blocks = [_block(object_in(block)) for block in content]
    return None if None in blocks else [block for block in blocks if block]


def _block(block: dict[str, Json]) -> dict[str, Json] | None:
    """Returns a block; an empty one for blank text, which Anthropic refuses; `None` for one that is not understood."""
    match block.get("type"):
        case "text":
            text = text_in(block.get("text"))
            return {"type": "text", "text": text} if text else {}
        case "thinking":
            signature = text_in(block.get("thinkingSignature"))
            return {"type": "thinking", "thinking": text_in(block.get("thinking")), "signature": signature}
        case "toolCall":
            return {
                "type": "tool_use",
                "id": text_in(block.get("id")),
                "name": text_in(block.get("name")),
                "input": object_in(block.get("arguments")),
            }
        case "image":
            source: dict[str, Json] = {"type": "base64"}
            source |= {"media_type": text_in(block.get("mimeType")), "data": text_in(block.get("data"))}
            return {"type": "image", "source": source}
        case _:
            return None
