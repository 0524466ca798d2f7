"""Checks Recto's estimates for Claude on real messages.

    python tools/check_claude_estimate.py DATA [--every 10]

First table, where `ctok` is installed (Python 3.12 or newer): the formulas against the reconstructed tokenizer, text
by text. Second table: running counts of agent sessions against the prompt sizes the provider reported, before and
after calibration. DATA is a folder with `agent_sessions`, `taubench`, `longmemeval_oracle` and `beam_100K`; sets that
are missing are left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from recto.formats.message import Message, Part
from recto.tokens.calibration import Calibration, prompt_tokens
from recto.tokens.meter import CLAUDE, CLAUDE_4_7, ClaudeFormula, Meter, counter_named, frame_of

Row = tuple[int, int]


def main() -> None:
    """Prints both tables."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("data", type=Path)
    arguments.add_argument("--every", type=int, default=1, help="take only each n-th text for the first table")
    given = arguments.parse_args()
    try:
        from ctok import token_count  # noqa: PLC0415
    except ImportError:
        say("ctok is not installed: the first table is left out\n")
    else:
        for family, formula, version in (("claude", CLAUDE, "3.0"), ("claude-4.7", CLAUDE_4_7, "4.8")):
            table_of_texts(given.data, given.every, family, formula, lambda text, v=version: token_count(text, v))
    table_of_prompts(given.data)


def table_of_texts(data: Path, every: int, family: str, formula: ClaudeFormula, ask: Callable[[str], int]) -> None:
    """How often and how far a formula is below and above the reconstructed tokenizer."""
    cl100k = counter_named("cl100k")
    frame = ask("a") - 1
    rows: dict[str, list[Row]] = {}
    seen: set[str] = set()
    for number, (group, text) in enumerate(texts(data)):
        if number % every or not text or text in seen:
            continue
        seen.add(text)
        rows.setdefault(group, []).append((formula.estimate(text, cl100k.count(text)), ask(text) - frame))
    say(f"{family}: estimate against ctok, text by text")
    for group, found in rows.items():
        say(line(group, found))
    say(line("all", [row for found in rows.values() for row in found]))
    say("")


def table_of_prompts(data: Path) -> None:
    """How counted prompts compare with reported ones, session by session, raw and calibrated."""
    counter = counter_named("claude")
    meter = Meter(name=counter.name, count=counter.count, frame=frame_of("claude"), images="claude")
    raw: list[Row] = []
    calibrated: list[Row] = []
    for file in sorted((data / "agent_sessions").glob("**/*.jsonl")):
        for counted, reported, step in prompts(file, meter):
            if not step:
                calibration = Calibration()
            elif step > 0:
                raw.append((counted, reported))
                calibrated.append((calibration.apply(counted), reported))
            calibration = calibration.observe(counted, reported)
    say(f"prompts of agent sessions, {counter.name}, against the provider's usage")
    say(line("raw", raw))
    say(line("calibrated", calibrated))


def prompts(file: Path, meter: Meter) -> Iterator[tuple[int, int, int]]:
    """Counted and reported size of each prompt of a session, and its number since the last compaction.

    The system text and the tools are not in the file: what the first prompt costs beyond its messages stands for them.
    """
    counted = base = step = 0
    last = None
    for row in map(json.loads, file.open(encoding="utf-8")):
        if row["type"] == "compact_boundary":
            counted = base = step = 0
            last = None
        if row["type"] != "message":
            continue
        reported = prompt_tokens(row.get("usage") or {})
        if row["role"] == "assistant" and reported and reported != last:
            base = base or reported - counted
            yield base + counted, reported, step
            step += 1
            last = reported
        counted += meter.message(message(row))


def message(row: dict[str, Any]) -> Message:
    """One line of an agent session, read."""
    blocks = row["content"] if isinstance(row["content"], list) else [{"type": "text", "text": row["content"]}]
    return Message(role=row["role"], parts=tuple(part for block in blocks for part in parts(block)))


def parts(block: dict[str, Any]) -> Iterator[Part]:
    """What one block says."""
    match block["type"]:
        case "thinking":
            yield Part(kind="thinking", text=block["thinking"])
        case "tool_use":
            yield Part(kind="call", name=block["name"], text=json.dumps(block["input"], ensure_ascii=False))
        case "tool_result":
            content = block.get("content") or ""
            inner = [content] if isinstance(content, str) else [each.get("text", "") for each in content]
            yield Part(kind="result", text="\n".join(inner))
        case _:
            yield Part(kind="text", text=block.get("text", ""))


def texts(data: Path) -> Iterator[tuple[str, str]]:
    """Every text of the data, with the name of its set."""
    for file in sorted((data / "agent_sessions").glob("**/*.jsonl")):
        yield from (("agent", text) for text in texts_of_session(file))
    for file in sorted((data / "taubench").glob("*.json")):
        yield from (("tau-bench", text) for text in texts_of_runs(file))
    for file in sorted((data / "longmemeval_oracle").glob("longmemeval*.json")):
        for question in json.loads(file.read_text(encoding="utf-8")):
            yield from (
                ("longmemeval", turn["content"]) for session in question["haystack_sessions"] for turn in session
            )
    for file in sorted((data / "beam_100K").glob("*/chat.json")):
        for batch in json.loads(file.read_text(encoding="utf-8")):
            yield from (("beam", turn["content"]) for turns in batch["turns"] for turn in turns)


def texts_of_session(file: Path) -> Iterator[str]:
    """The texts of an agent session."""
    for row in map(json.loads, file.open(encoding="utf-8")):
        if row["type"] == "message":
            yield from (part.text for part in message(row).parts)


def texts_of_runs(file: Path) -> Iterator[str]:
    """The texts of a file of chat runs."""
    for run in json.loads(file.read_text(encoding="utf-8")):
        for turn in run["traj"]:
            yield turn.get("content") or ""
            yield from (call["function"]["arguments"] for call in turn.get("tool_calls") or [])


def line(name: str, rows: list[Row]) -> str:
    """Number, share below the truth, mean and total overshoot."""
    rows = [row for row in rows if row[1] > 0]
    if not rows:
        return f"  {name:12} nothing"
    below = sum(estimate < truth for estimate, truth in rows)
    mean = sum(estimate / truth - 1 for estimate, truth in rows) / len(rows)
    total = sum(estimate for estimate, _ in rows) / sum(truth for _, truth in rows) - 1
    worst = min(estimate / truth - 1 for estimate, truth in rows)
    return (
        f"  {name:12} {len(rows):6,}  below {below / len(rows):8.4%}  worst {worst:+7.1%}  "
        f"mean {mean:+6.1%}  total {total:+6.1%}"
    )


def say(text: str) -> None:
    """Prints a line."""
    print(text)  # noqa: T201


if __name__ == "__main__":
    main()
