"""Session files of Copilot CLI: one event per line, with what happened in `data`.

Written after public descriptions of the format; the program needs an account, and no file that it wrote was read. The
messages are converted to Anthropic's format.
"""

from __future__ import annotations

from typing import Final

from recto.formats.anthropic import ANTHROPIC
from recto.formats.json_spans import Json
from recto.formats.message import object_in, text_in
from recto.formats.session_files.jsonl import ConvertedMessage, JsonlLine, LineReader
from recto.formats.session_files.types import SourceEntry, microseconds, present_members

NAME: Final = "copilot_cli"

_BEGINNINGS = ("session.", "user.", "assistant.", "tool.")


def is_line(fields: dict[str, Json]) -> bool:
    """Whether only Copilot CLI writes such a line."""
    is_event = text_in(fields.get("type")).startswith(_BEGINNINGS)
    return is_event and isinstance(fields.get("data"), dict) and {"id", "timestamp"} <= fields.keys()


def session_in(fields: dict[str, Json]) -> Json:
    """Returns the session name in a line."""
    return object_in(fields.get("data")).get("sessionId") if fields.get("type") == "session.start" else None


def reader(session: str) -> LineReader:
    """Creates a reader for the lines of one file."""

    def read(line: JsonlLine) -> list[SourceEntry]:
        fields = line.parse().fields
        data = object_in(fields.get("data"))
        ts = microseconds(fields.get("timestamp"))
        meta = present_members(fields, "id", "parentId")
        message = _message(text_in(fields.get("type")), data)
        if message is None:
            return [line.as_event(session, ts=ts, meta=meta, is_known=True)]
        meta |= present_members(data, "model")
        return line.as_conversions(session, [ConvertedMessage(message, ts, meta)], wire=ANTHROPIC)

    return read


def _message(kind: str, data: dict[str, Json]) -> dict[str, Json] | None:
    """Returns the message of an event; `None` where it has none."""
    text = text_in(data.get("content"))
    said: list[Json] = [{"type": "text", "text": text}] if text.strip() else []
    match kind:
        case "user.message" if said:
            return {"role": "user", "content": said}
        case "assistant.message":
            requests = data.get("toolRequests")
            content = [*said, *map(_call, requests if isinstance(requests, list) else [])]
            return {"role": "assistant", "content": content} if content else None
        case "tool.execution_complete":
            result: dict[str, Json] = {"type": "tool_result", "tool_use_id": text_in(data.get("toolCallId"))}
            error = data.get("error")
            output = object_in(data.get("result")).get("content") or object_in(error).get("message") or error
            result["content"] = text_in(output)
            if data.get("success") is False:
                result["is_error"] = True
            return {"role": "user", "content": [result]}
        case _:
            return None


def _call(request: Json) -> Json:
    fields = object_in(request)
    name, id = text_in(fields.get("name")), text_in(fields.get("toolCallId"))
    return {"type": "tool_use", "id": id, "name": name, "input": object_in(fields.get("arguments"))}
