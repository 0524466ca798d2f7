"""Session files of Claude Code: one object per line, with the provider's message in `message`.

Sub-agents ("sidechains") may write into the same file; their messages are a separate conversation.
"""

from __future__ import annotations

from typing import Final

from recto.formats.anthropic import ANTHROPIC
from recto.formats.anthropic.message import role_of
from recto.formats.json_spans import Json
from recto.formats.message import object_in, text_in
from recto.formats.session_files.jsonl import JsonlLine, LineReader
from recto.formats.session_files.types import SourceEntry, microseconds, present_members, session_name

NAME: Final = "claude_code"

_MARKS = frozenset({"parentUuid", "leafUuid", "isSidechain", "isSnapshotUpdate"})
_META_KEYS = ("uuid", "parentUuid", "logicalParentUuid", "sessionId", "agentId", "requestId", "isSidechain", "isMeta")
_MORE_META_KEYS = ("isCompactSummary", "subtype", "leafUuid")
_REQUEST_PARTS = frozenset({"api-request-blob"})
"""Lines with a part of a request as it was sent, which has a role and content; the messages have lines of their own."""


def is_line(fields: dict[str, Json]) -> bool:
    """Whether only Claude Code writes such a line."""
    kind = fields.get("type")
    if _MARKS & fields.keys() or (isinstance(kind, str) and "sessionId" in fields):
        return True
    return kind == "file-history-snapshot" or (kind in ("user", "assistant") and "role" not in fields)


def session_in(fields: dict[str, Json]) -> Json:
    """Returns the session name in a line."""
    return fields.get("sessionId") or fields.get("session_id")


def reader(session: str) -> LineReader:
    """Creates a reader for the lines of one file."""

    def read(line: JsonlLine) -> list[SourceEntry]:
        text, members, fields = line.parse()
        ts = microseconds(fields.get("timestamp"))
        meta = present_members(fields, *_META_KEYS, *_MORE_META_KEYS)
        name = _session(session, fields)
        message = object_in(fields.get("message"))
        if fields.get("type") not in ("user", "assistant") or not isinstance(message.get("role"), str):
            return [line.as_event(name, ts=ts, meta=meta, is_known=text_in(fields.get("type")) in _REQUEST_PARTS)]
        meta |= present_members(message, "model", "usage", "stop_reason")
        if isinstance(message_id := message.get("id"), str):
            meta |= present_members({"message_id": message_id}, "message_id")
        role = role_of(message)
        span = members["message"].value
        return [line.as_message(name, text, span, role=role, wire=ANTHROPIC, ts=ts, meta=meta)]

    return read


def _session(session: str, fields: dict[str, Json]) -> str:
    if fields.get("isSidechain") is not True:
        return session
    return session_name(session, fields.get("agentId") or "sidechain") or session
