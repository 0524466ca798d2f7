"""Rollout files of Codex: `{"timestamp", "type", "payload"}` per line; a `response_item` holds an item of Responses.

In older files each line is an item, after a first line about the session. Both are read.
"""

from __future__ import annotations

from typing import Final

from recto.formats.json_spans import Json, JsonSpan
from recto.formats.message import object_in, text_in
from recto.formats.openai_responses import RESPONSES
from recto.formats.openai_responses.message import is_item, role_of
from recto.formats.session_files.jsonl import JsonlLine, LineReader
from recto.formats.session_files.types import SourceEntry, microseconds, present_members

NAME: Final = "codex"

_LINE_TYPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_NOT_SENT = frozenset({"ghost_snapshot", "other"})
"""Types of payloads that Codex does not send to the model."""


def is_line(fields: dict[str, Json]) -> bool:
    """Whether only Codex writes such a line."""
    if text_in(fields.get("type")) in _LINE_TYPES:
        return "payload" in fields or "role" not in fields
    is_header = {"id", "timestamp"} <= fields.keys() and ("instructions" in fields or "git" in fields)
    return "record_type" in fields or is_header


def session_in(fields: dict[str, Json]) -> Json:
    """Returns the session name in a line."""
    if fields.get("type") == "session_meta":
        return object_in(fields.get("payload")).get("id")
    return fields.get("id") if "type" not in fields else None


def reader(session: str) -> LineReader:
    """Creates a reader for the lines of one file."""
    model: Json = None

    def read(line: JsonlLine) -> list[SourceEntry]:
        nonlocal model
        text, members, fields = line.parse()
        ts = microseconds(fields.get("timestamp"))
        payload = object_in(fields.get("payload"))
        if fields.get("type") == "turn_context":
            model = payload.get("model")
        if fields.get("type") == "response_item" and _is_sent(payload):
            span = members["payload"].value
        elif _is_bare_item(fields):
            span = JsonSpan(text.index("{"), text.rindex("}") + 1, fields)
            payload = fields
        else:
            return [line.as_event(session, ts=ts)]
        role = role_of(payload)
        meta = present_members({"model": model, "item_id": text_in(payload.get("id")) or None}, "model", "item_id")
        return [line.as_message(session, text, span, role=role, wire=RESPONSES, ts=ts, meta=meta)]

    return read


def _is_sent(item: dict[str, Json]) -> bool:
    kind = item.get("type")
    if kind == "message":
        return isinstance(item.get("role"), str)
    return isinstance(kind, str) and kind not in _NOT_SENT


def _is_bare_item(fields: dict[str, Json]) -> bool:
    return "payload" not in fields and (
        is_item(fields.get("type")) or (fields.get("type") == "message" and _is_sent(fields))
    )
