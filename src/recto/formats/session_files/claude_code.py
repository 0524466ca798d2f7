"""Session files of Claude Code: one object per line, the provider's message inside under `message`.

Sub-agents ("sidechains") may write into the same file; theirs is a conversation of its own.
"""

from __future__ import annotations

from typing import Final

from recto.formats.anthropic import ANTHROPIC
from recto.formats.anthropic.message import role_of
from recto.formats.json_spans import Json, text_of
from recto.formats.message import object_in
from recto.formats.request_body import envelope
from recto.formats.session_files.jsonl import JsonlLine, Take
from recto.formats.session_files.types import SourceEntry, microseconds, session_name, told

NAME: Final = "claude_code"

_MARKS = frozenset({"parentUuid", "leafUuid", "isSidechain", "isSnapshotUpdate"})
_TOLD = ("uuid", "parentUuid", "logicalParentUuid", "sessionId", "agentId", "requestId", "isSidechain", "isMeta")
_TOLD_TOO = ("isCompactSummary", "subtype", "leafUuid")


def is_line(fields: dict[str, Json]) -> bool:
    """Whether only Claude Code writes such a line."""
    kind = fields.get("type")
    if _MARKS & fields.keys() or (isinstance(kind, str) and "sessionId" in fields):
        return True
    return kind == "file-history-snapshot" or (kind in ("user", "assistant") and "role" not in fields)


def session_in(fields: dict[str, Json]) -> Json:
    """The name a line gives to its session."""
    return fields.get("sessionId") or fields.get("session_id")


def reader(session: str) -> Take:
    """Reads the lines of one file."""

    def take(line: JsonlLine) -> list[SourceEntry]:
        text = text_of(line.body)
        members = envelope(text)
        fields = {key: member.value.value for key, member in members.items()}
        ts = microseconds(fields.get("timestamp"))
        meta = told(fields, *_TOLD, *_TOLD_TOO)
        name = _session(session, fields)
        message = object_in(fields.get("message"))
        if fields.get("type") not in ("user", "assistant") or not isinstance(message.get("role"), str):
            return [line.as_event(name, ts=ts, meta=meta)]
        meta |= told(message, "model", "usage", "stop_reason")
        if isinstance(message_id := message.get("id"), str):
            meta |= told({"message_id": message_id}, "message_id")
        role = role_of(message)
        span = members["message"].value
        return [line.as_message(name, text, span, role=role, wire=ANTHROPIC, ts=ts, meta=meta)]

    return take


def _session(session: str, fields: dict[str, Json]) -> str:
    if fields.get("isSidechain") is not True:
        return session
    return session_name(session, fields.get("agentId") or "sidechain") or session
