"""Real sessions as compression reads them, and how tokens are counted in these tests."""

from __future__ import annotations

import json
from pathlib import Path

from recto.context.facts.types import MessageView, ToolCall


def count(text: str) -> int:
    return (len(text.encode("utf-8", "surrogatepass")) + 3) // 4


def sessions(data: Path, most: int) -> list[Path]:
    """The first sessions with a compaction in them."""
    found = [
        path for path in sorted((data / "agent_sessions").rglob("*.jsonl")) if '"compact_boundary"' in path.read_text()
    ]
    return found[:most]


def lines_of(path: Path) -> list[tuple[str, MessageView]]:
    """Each line of a session: `message`, `summary` or `boundary`, and what is told in it."""
    calls: dict[str, ToolCall] = {}
    found = []
    for number, line in enumerate(path.read_text().splitlines()):
        fields = json.loads(line)
        if fields["type"] == "compact_boundary":
            found.append(("boundary", MessageView(seq=number, role="event", text="")))
        elif fields["type"] == "message":
            kind = "summary" if fields.get("compact_summary") else "message"
            found.append((kind, _told(number, fields, calls)))
    return found


def _told(number: int, fields: dict, calls: dict[str, ToolCall]) -> MessageView:
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


def told_of(path: Path) -> list[MessageView]:
    return [told for kind, told in lines_of(path) if kind != "boundary"]


def exchanges(told: list[MessageView]) -> list[list[MessageView]]:
    found: list[list[MessageView]] = []
    for one in told:
        if one.role == "user" or not found:
            found.append([])
        found[-1].append(one)
    return found
