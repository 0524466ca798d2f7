"""Claude Code's hooks: where they stand, and which of them Recto wants. Held against Claude Code 2.1, November 2026."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from recto.adapters.coding_agents import BEFORE_COMPACTION, BEGIN, END, TURN_END, CodingAgent


def _earlier(transcript: Path) -> Iterable[Path]:
    """All sessions of a project have their transcripts in one folder, by their ids."""
    try:
        dated = [(file.stat().st_mtime, file) for file in transcript.parent.glob("*.jsonl") if file != transcript]
    except OSError:
        return ()
    return [file for _, file in sorted(dated, reverse=True)]


AGENT = CodingAgent(
    name="claude-code",
    title="Claude Code",
    home=".claude",
    home_variable="CLAUDE_CONFIG_DIR",
    user_file="settings.json",
    project_file="settings.local.json",  # the other one is shared, and a path to this Recto is not for everybody
    hooks={
        BEFORE_COMPACTION: {"timeout": 60},
        BEGIN: {"matcher": "startup|resume|compact", "timeout": 15},
        TURN_END: {"timeout": 60, "async": True},
        END: {"timeout": 60},
    },
    earlier=_earlier,
)
