"""Session files of Qwen Code: one object per line, with a content of the Gemini API in `message`."""

from __future__ import annotations

from typing import Final

from recto.formats.gemini import GEMINI
from recto.formats.gemini.message import role_of
from recto.formats.json_spans import Json
from recto.formats.message import object_in
from recto.formats.session_files.jsonl import JsonlLine, LineReader
from recto.formats.session_files.types import SourceEntry, microseconds, present_members

NAME: Final = "qwen_code"

_MESSAGES = ("user", "assistant", "tool_result")
_META_KEYS = ("uuid", "parentUuid", "sessionId", "model", "subtype", "provenance")


def is_line(fields: dict[str, Json]) -> bool:
    """Whether only Qwen Code writes such a line."""
    return {"provenance", "parentUuid", "sessionId"} <= fields.keys()


def session_in(fields: dict[str, Json]) -> Json:
    """Returns the session name in a line."""
    return fields.get("sessionId")


def reader(session: str) -> LineReader:
    """Creates a reader for the lines of one file."""

    def read(line: JsonlLine) -> list[SourceEntry]:
        text, members, fields = line.parse()
        ts = microseconds(fields.get("timestamp"))
        meta = present_members(fields, *_META_KEYS)
        message = object_in(fields.get("message"))
        if fields.get("type") not in _MESSAGES or not isinstance(message.get("parts"), list):
            return [line.as_event(session, ts=ts, meta=meta)]
        span, role = members["message"].value, role_of(message)
        return [line.as_message(session, text, span, role=role, wire=GEMINI.name, ts=ts, meta=meta)]

    return read
