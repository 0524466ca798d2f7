"""Codex's hooks: where they stand, and which of them Recto wants. Held against Codex 0.166, November 2026."""

from __future__ import annotations

from recto.adapters.coding_agents import BEFORE_COMPACTION, BEGIN, TURN_END, CodingAgent

AGENT = CodingAgent(
    name="codex",
    title="Codex",
    home=".codex",
    home_variable="CODEX_HOME",
    user_file="hooks.json",
    project_file="hooks.json",
    hooks={
        BEFORE_COMPACTION: {"timeout": 60},
        BEGIN: {"matcher": "startup|resume|compact", "timeout": 15},
        TURN_END: {"timeout": 60},
    },
    then="Codex runs a new hook only after you have looked at it: /hooks shows it and asks whether to trust it.",
)
