"""A neutral form of agent sessions: flat lines with `type`, `role`, `ts`, `content` in Anthropic's blocks, `usage`.

The message has no object of its own in such a line, so its content is put together from the exact `role` and `content`
members, and the layout knows which slices of it the line was made of.
"""

from __future__ import annotations

from typing import Final

from recto.formats.anthropic import ANTHROPIC
from recto.formats.anthropic.message import role_of
from recto.formats.json_spans import Json, Member, text_of
from recto.formats.request_body import envelope
from recto.formats.session_files.jsonl import JsonlLine, Take
from recto.formats.session_files.types import Piece, SourceEntry, layout_of, microseconds, told
from recto.transcript.entries import MESSAGE

NAME: Final = "session_lines"

_TOLD = ("i", "model", "usage", "compact_summary", "injected", "trigger", "pre_tokens", "session_id")


def is_line(fields: dict[str, Json]) -> bool:
    """Whether a line is of this form."""
    if fields.get("type") == "message":
        return "role" in fields and ("ts" in fields or "i" in fields)
    return fields.get("type") == "meta" and "session_id" in fields


def session_in(fields: dict[str, Json]) -> Json:
    """The name a line gives to its session."""
    return fields.get("session_id")


def reader(session: str) -> Take:
    """Reads the lines of one file."""

    def take(line: JsonlLine) -> list[SourceEntry]:
        text = text_of(line.body)
        members = envelope(text)
        fields = {key: member.value.value for key, member in members.items()}
        ts = microseconds(fields.get("ts"))
        meta = told(fields, *_TOLD)
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

    return take


def _joined(line: JsonlLine, text: str, role: Member, content: Member) -> tuple[bytes, tuple[Piece, ...]]:
    """`{role, content}` from the two members, and the line as slices of it with everything else between."""
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
