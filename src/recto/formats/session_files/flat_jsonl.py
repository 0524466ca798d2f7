"""Flat session lines: `type`, `role`, `ts`, `content` in Anthropic's blocks, and `usage`.

Such a line has no object for the message alone. So its content is built from the exact `role` and `content` members,
and the layout restores the line from slices of it.
"""

from __future__ import annotations

from typing import Final

from recto.formats.anthropic import ANTHROPIC
from recto.formats.anthropic.message import role_of
from recto.formats.json_spans import Json, Member
from recto.formats.session_files.jsonl import JsonlLine, LineReader
from recto.formats.session_files.types import LayoutPiece, SourceEntry, layout_of, microseconds, present_members
from recto.transcript.entries import MESSAGE

NAME: Final = "session_lines"

_META_KEYS = ("i", "model", "usage", "compact_summary", "injected", "trigger", "pre_tokens", "session_id")


def is_line(fields: dict[str, Json]) -> bool:
    """Whether a line is in this format."""
    if fields.get("type") == "message":
        return "role" in fields and ("ts" in fields or "i" in fields)
    return fields.get("type") == "meta" and "session_id" in fields


def session_in(fields: dict[str, Json]) -> Json:
    """Returns the session name in a line."""
    return fields.get("session_id")


def reader(session: str) -> LineReader:
    """Creates a reader for the lines of one file."""

    def read(line: JsonlLine) -> list[SourceEntry]:
        text, members, fields = line.parse()
        ts = microseconds(fields.get("ts"))
        meta = present_members(fields, *_META_KEYS)
        is_message = fields.get("type") == "message" and isinstance(fields.get("role"), str)
        if not is_message or "content" not in members:
            return [line.as_event(session, ts=ts, meta=meta)]
        content, layout = _joined(line, text, members["role"], members["content"])
        return [
            SourceEntry(
                session=session,
                role=role_of(fields),
                kind=MESSAGE,
                wire=ANTHROPIC,
                content=content,
                ts=ts,
                meta={"line": line.number, **meta},
                layout=layout,
            )
        ]

    return read


def _joined(line: JsonlLine, text: str, role: Member, content: Member) -> tuple[bytes, tuple[LayoutPiece, ...]]:
    """Builds `{role, content}` from the two members, and the layout of the line."""
    role_bytes = text[role.start : role.value.end].encode()
    content_bytes = text[content.start : content.value.end].encode()
    built = b"{" + role_bytes + b", " + content_bytes + b"}"
    slices = {
        role.start: (1, 1 + len(role_bytes)),
        content.start: (len(role_bytes) + 3, len(built) - 1),
    }
    first, second = sorted((role, content), key=lambda member: member.start)
    layout = layout_of(
        line.before + text[: first.start],
        slices[first.start],
        text[first.value.end : second.start],
        slices[second.start],
        text[second.value.end :] + line.after,
    )
    return built, layout
