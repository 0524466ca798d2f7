"""Replays every real agent session in every mode, as `recto lab replay` does.
It measures how long that takes, whether memory stays flat, and how Recto's modes compare with plain trimming and with
sending the whole history, in a window of 32 K tokens.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path

from bench.measure import figures, peak_memory_mb, row
from recto.cli.console import Advance
from recto.config import load
from recto.lab.commands.replay import Replay
from recto.lab.process_pool import in_processes
from recto.lab.recordings import ReplayTask, run_task
from recto.lab.results import VariantOutcome, VariantSummary, dollars, summarize
from recto.lab.variants import variants

DATA = Path(os.environ.get("RECTO_TEST_DATA", "../shared/data"))
MODEL = "claude-sonnet-4-5"
WINDOW = 32_000
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a task came to, and how its process stood when it was done."""

    outcome: VariantOutcome
    done: float
    """When."""
    peak_mb: float
    """The most memory that the process ever had, up to then."""
    seconds: float
    """How long the processor was at work for it."""


def measured(task: ReplayTask, advance: Advance) -> Measured:
    began = time.process_time()
    outcome = run_task(task, advance)
    return Measured(outcome=outcome, done=time.time(), peak_mb=_peak(), seconds=time.process_time() - began)


def run(quick: bool) -> list[dict]:
    files = tuple(sorted(DATA.glob("agent_sessions/*/*.jsonl"))[:: 14 if quick else 1])
    if not files:
        return [row("real agent sessions", 0, "sessions", "none found: name the folder in RECTO_TEST_DATA")]
    settings = load(environ={})
    none, *_ = variants(settings, model=MODEL, window=WINDOW, against="none")
    compared = [none, *variants(settings, model=MODEL, window=WINDOW, against="trim")]
    tasks = Replay(files=files, variants=compared).tasks()
    jobs = os.cpu_count() or 1
    began = time.time()
    done = list(in_processes(measured, tasks, jobs, lambda by: None, size=lambda task: task.size))
    took = time.time() - began
    return [*_course(done, files, began, took, jobs), *(_figures(one) for one in _sums(done))]


def _course(done: list[Measured], files: tuple[Path, ...], began: float, took: float, jobs: int) -> list[dict]:
    """How it went: time, and memory on the way."""
    size = sum(file.stat().st_size for file in files) / 1e6
    ways = len({one.outcome.way for one in done})
    turns = sum(one.outcome.result.turns for one in done)
    said = f"{size:.1f} MB, {turns // ways:,} turns in each of {ways} ways, counted and priced for {MODEL}"
    worked = sum(one.seconds for one in done)
    alone = f"{worked / jobs / 60:.1f} minutes where nothing else runs; {turns / worked:,.0f} turns a second of work"
    rows = [
        row("real agent sessions", len(files), "sessions", said),
        row("replay of all of them", took, "seconds", f"'none', 'trim' and the three modes, {jobs} processes"),
        row("replay of all of them, processor at work", worked, "seconds", alone),
    ]
    for share, name in ((0.25, "a quarter"), (0.5, "half"), (1.0, "all")):
        so_far = [one.peak_mb for one in done if one.done <= began + share * took] or [0.0]
        rows.append(row(f"peak memory of a process, {name} of the time", max(so_far), "MB"))
    return rows


def _sums(done: list[Measured]) -> list[VariantSummary]:
    # only one baseline is set against the others elsewhere; here each is a way like any other
    plain = [replace(one.outcome, way=replace(one.outcome.way, is_baseline=False)) for one in done]
    return summarize(plain)


def _figures(one: VariantSummary) -> dict:
    result = one.result
    values = {
        "over": result.over,
        "refused": result.refused,
        "M tokens": result.tokens / 1e6,
        "dollars": dollars(result) or 0.0,
        "unchanged": result.share,
        "decisions": result.decisions,
        "fetched again": result.fetched_again,
        "referred": result.referred,
        "met": result.met,
        "missed": result.missed,
        "survival": result.survival,
    }
    return figures(one.way.name, values, f"{WINDOW // 1000} K")


def _peak() -> float:
    """Of this process since it began, not of the one that it was started from."""
    try:
        found = _PEAK.search(Path("/proc/self/status").read_text(encoding="utf-8"))
    except OSError:
        found = None
    return int(found[1]) / 1024 if found else peak_memory_mb()
