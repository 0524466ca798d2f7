"""Reads the recorded compactions of agent sessions: what preceded each, its summary, and what followed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(os.environ.get("RECTO_TEST_DATA", "../shared/data"))
_PATHS = ("file_path", "notebook_path", "path")
_READS = frozenset({"Read", "View", "NotebookRead"})
_EDITS = frozenset({"Edit", "Write", "MultiEdit", "NotebookEdit"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """A tool call after a compaction, and the tokens it brought."""

    path: str
    reads: bool
    edits: bool
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """One recorded compaction."""

    name: str
    before: tuple[dict[str, Any], ...]
    """Messages since the compaction before it, or since the beginning; recorded summaries are not among them."""
    summary: str
    after: tuple[Later, ...]
    """Files that were touched from here to the next compaction or the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A session with its compactions, in order."""

    name: str
    compactions: tuple[Compaction, ...]


def recorded() -> Iterator[Recorded]:
    """Every session that was compacted."""
    for about in json.loads((DATA / "agent_sessions" / "index.json").read_text(encoding="utf-8")):
        if about["compactions"]:
            file = DATA / "agent_sessions" / about["path"]
            rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            yield Recorded(name=file.stem, compactions=tuple(_compactions(file.stem, rows)))


def sessions() -> Iterator[list[dict[str, Any]]]:
    """The messages of every session, without recorded summaries."""
    for about in json.loads((DATA / "agent_sessions" / "index.json").read_text(encoding="utf-8")):
        lines = (DATA / "agent_sessions" / about["path"]).read_text(encoding="utf-8").splitlines()
        yield list(_messages([json.loads(line) for line in lines]))


def _compactions(name: str, rows: Sequence[dict[str, Any]]) -> Iterator[Compaction]:
    places = [place for place, row in enumerate(rows) if row["type"] == "compact_boundary"]
    start = 0
    for number, place in enumerate(places):
        stop = places[number + 1] if number + 1 < len(places) else len(rows)
        summary = next((_text(row) for row in rows[place:stop] if row.get("compact_summary")), "")
        if summary:
            yield Compaction(
                name=f"{name[:8]}/{number + 1}",
                before=tuple(_messages(rows[start:place])),
                summary=summary,
                after=tuple(_later(rows[place:stop])),
            )
            start = place


def _messages(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        if row["type"] == "message" and not row.get("compact_summary") and row["content"]:
            yield {"role": row["role"], "content": row["content"]}


def _text(row: dict[str, Any]) -> str:
    content = row["content"]
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def _later(rows: Sequence[dict[str, Any]]) -> Iterator[Later]:
    outputs: dict[str, str] = {}
    calls: list[tuple[str, str, str]] = []
    for row in rows:
        for part in row.get("content", ()) if isinstance(row.get("content"), list) else ():
            if part.get("type") == "tool_use":
                path = next((part["input"][key] for key in _PATHS if isinstance(part["input"].get(key), str)), "")
                if path:
                    calls.append((part["id"], part["name"], path))
            elif part.get("type") == "tool_result":
                outputs[part["tool_use_id"]] = json.dumps(part.get("content", ""))
    for call, tool, path in calls:
        if re.search(r"\.\w{1,8}$", path):  # files, not folders that were searched
            yield Later(path=path, reads=tool in _READS, edits=tool in _EDITS, output=outputs.get(call, ""))
