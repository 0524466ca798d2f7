"""Recorded sessions as message views, and the token counter of these tests."""

from __future__ import annotations

import json
from pathlib import Path

from recto.context.facts.types import MessageView, ToolCall


def count(text: str) -> int:
    return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4


def sessions(data: Path, most: int) -> list[Path]:
    """Returns the first sessions that contain a compaction."""
    found = [
        path for path in sorted((data / "agent_sessions").rglob("*.jsonl")) if '"compact_boundary"' in path.read_text()
    ]
    return found[:most]


def lines_of(path: Path) -> list[tuple[str, MessageView]]:
    """Returns each line of a session as its kind (`message`, `summary` or `boundary`) and its view."""
    calls: dict[str, ToolCall] = {}
    found = []
    for number, line in enumerate(path.read_text().splitlines()):
        fields = json.loads(line)
        if fields["type"] == "compact_boundary":
            found.append(("boundary", MessageView(seq=number, role="event", text="")))
        elif fields["type"] == "message":
            kind = "summary" if fields.get("compact_summary") else "message"
            found.append((kind, _view_of(number, fields, calls)))
    return found


def _view_of(number: int, fields: dict, calls: dict[str, ToolCall]) -> MessageView:
    content = fields["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts, made, answered = [], [], []
    for block in blocks:
        if block["type"] == "text":
            texts.append(block["text"])
        elif block["type"] == "tool_use":
            calls[block["id"]] = ToolCall(block["name"], json.dumps(block["input"]))
            made.append(calls[block["id"]])
        elif block["type"] == "tool_result":
            inner = block.get("content") or ""
            texts.append(inner if isinstance(inner, str) else "\n".join(part.get("text", "") for part in inner))
            answered.append(calls.get(block["tool_use_id"], ToolCall("", "")))
    role = "tool" if answered else fields["role"]
    return MessageView(seq=number, role=role, text="\n".join(texts), calls=tuple(made or answered))


def views_of(path: Path) -> list[MessageView]:
    return [view for kind, view in lines_of(path) if kind != "boundary"]


def exchanges(views: list[MessageView]) -> list[list[MessageView]]:
    found: list[list[MessageView]] = []
    for view in views:
        if view.role == "user" or not found:
            found.append([])
        found[-1].append(view)
    return found
