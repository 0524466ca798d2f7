"""Compares Recto's modes and eviction policies on real sessions.
It measures what their prompts contain, what they cost, and what was missing when it was needed. The sessions are
recorded coding agents, which use tools, and a long conversation without tools; plain trimming is the baseline for the
modes.

docs/choosing.md shows the same figures.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from bench.measure import figures, row
from recto.config import load
from recto.config.factory import open_session
from recto.lab.backtest import Backtest
from recto.lab.comparison import MEASURES, Share, WayMeasures, compare
from recto.lab.isolation import isolated, read_sessions
from recto.lab.recordings import session_result
from recto.lab.results import dollars
from recto.lab.variants import POLICIES, variants
from recto.stores.memory import MemoryStore
from recto.transcript.entries import MESSAGE, Entry

DATA = Path(os.environ.get("RECTO_TEST_DATA", "../shared/data"))
MODEL = "claude-sonnet-4-5"
WINDOWS = {"coding agents": (16_000, 32_000), "chats": (16_000,)}
_SMALLEST = 16_000
_CODING = (8, 14, 18)
"""Places in the list of agent sessions by size: from 160 KB to 530 KB."""
_CHATS = ("1",)
_COMPARED = tuple(policy for policy in POLICIES if policy != "fifo")
"""In the sliding window, `fifo` evicts what `prune` evicts."""


def run(quick: bool) -> list[dict]:
    settings = load(environ={})
    kinds = {"coding agents": _coding()[: 1 if quick else None], "chats": _chats()[: 1 if quick else None]}
    if not all(kinds.values()):
        return [row("real sessions", 0, "sessions", "none found: name the folder in RECTO_TEST_DATA")]
    rows = [
        row(f"sessions of {kind}", len(sessions), "sessions", f"{sum(map(len, sessions)):,} messages")
        for kind, sessions in kinds.items()
    ]
    for kind, sessions in kinds.items():
        for window in WINDOWS[kind][: 1 if quick else None]:
            ways = variants(settings, model=MODEL, window=window, against="trim")
            by_session = [compare(entries, ways) for entries in sessions]
            rows += [_mode_row(kind, sum(results[1:], results[0])) for results in zip(*by_session, strict=True)]
    for kind, sessions in kinds.items():
        for policy in _COMPARED[: 1 if quick else None]:
            (way,) = variants(settings, model=MODEL, window=_SMALLEST, modes=["sliding_window"], policies=[policy])
            total = sum((session_result(way, entries) for entries in sessions), Backtest())
            rows.append(_policy_row(kind, policy, total))
    return rows


def _coding() -> list[list[Entry]]:
    files = sorted(DATA.glob("agent_sessions/*/*.jsonl"), key=lambda file: file.stat().st_size)
    chosen = [files[place] for place in _CODING if place < len(files)]
    return [next(iter(read_sessions(isolated(load(environ={})), file).values())) for file in chosen]


def _chats() -> list[list[Entry]]:
    return [list(_chat(DATA / "beam_100K" / name / "chat.json")) for name in _CHATS if (DATA / "beam_100K").is_dir()]


def _chat(file: Path) -> Iterator[Entry]:
    batches = json.loads(file.read_text(encoding="utf-8"))
    messages = {message["id"]: message for batch in batches for turn in batch["turns"] for message in turn}
    settings = isolated(load(environ={}), model=MODEL)
    with closing(MemoryStore()) as store, closing(open_session(settings, store)) as session:
        ordered = [messages[id] for id in sorted(messages)]
        session.append_all([{"role": message["role"], "content": message["content"]} for message in ordered])
        yield from (entry for entry in session.read() if entry.kind == MESSAGE)


def _mode_row(kind: str, result: WayMeasures) -> dict:
    shares = {name: result.shares.get(name, Share()) for name in MEASURES}
    values: dict[str, float | None] = {"K tokens a prompt": result.tokens / max(result.prompts, 1) / 1000}
    values |= {MEASURES[name][0]: share.value for name, share in shares.items()}
    counts = {"statements": "facts", "corrections": "corrections", "lines": "traceable", "searched": "reachable"}
    note = ", ".join(f"{shares[name].total:,} {title}" for title, name in counts.items())
    return figures(f"{kind}, {result.window // 1000} K: {result.way}", values, note, 2)


def _policy_row(kind: str, policy: str, result: Backtest) -> dict:
    values = {
        "M tokens": result.tokens / 1e6,
        "dollars": dollars(result) or 0.0,
        "unchanged": result.share,
        "decisions": result.decisions,
        "missed": result.missed,
        "survival": result.survival,
    }
    return figures(f"{kind}, {_SMALLEST // 1000} K: sliding_window, {policy}", values, f"{result.turns:,} calls", 2)
