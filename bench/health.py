"""Measures what monitoring adds to a turn: the same turns without monitoring, and with all of it switched on.
Monitoring consists of metrics, alerts, the Prometheus exporter and the JSON log. The data are two sessions of the same
2,000 made-up messages, which take 1,000 turns each.

The two sessions take their turns alternately, so that other work on the machine affects both alike; which one goes
first changes with every turn. What monitoring adds is the median of the differences, turn by turn. *processor* is the
CPU time of the thread that waits for the turn. *wall* includes the disk, so that the share is smaller there.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from bench.measure import percentile, row
from bench.turns import MODEL, counted, exchanges, filled
from recto import Session
from recto import open as open_session
from recto.health.exporters.json_log import JsonLog
from recto.health.exporters.prometheus import Metrics

WARM = 10
"""Turns before anything is measured."""
RECALL = {"embedder": {"use": "none"}}
"""An embedding model would make a turn dearer, and what telling adds a smaller share of it."""


@dataclass(frozen=True, slots=True)
class Took:
    wall: float
    processor: float


def run(quick: bool) -> list[dict]:
    size, turns = (300, 60) if quick else (2_000, 1_000)
    following = list(exchanges(60 if quick else 600))
    with tempfile.TemporaryDirectory() as folder:
        quiet, told, logged = _measured(Path(folder), size, turns, following)
    about = f"{turns} turns of a session of {size:,} messages"
    rows = []
    for name, note in (("processor", "of the turn's thread"), ("wall", "on the clock, disk included")):
        before = [getattr(one, name) for one in quiet]
        after = [getattr(one, name) for one in told]
        alone, more = percentile(before, 0.5), percentile([b - a for a, b in zip(before, after, strict=True)], 0.5)
        rows += [
            row(f"turn, nobody told, p50, {name}", alone * 1e3, "ms", f"{note}; {about}", 2),
            row(f"turn, everything told, p50, {name}", percentile(after, 0.5) * 1e3, "ms", note, 2),
            row(f"telling adds to a turn, p50, {name}", more * 1e6, "µs", "measures, alerts, Prometheus, log"),
            row(f"telling adds, share of the turn, {name}", 100 * more / alone, "%", "the target is below 5", 1),
        ]
    rows.append(row("log of a turn", logged / (turns + WARM), "bytes", "events included"))
    return rows


def _measured(folder: Path, size: int, turns: int, following: list[list[dict]]) -> tuple[list[Took], list[Took], int]:
    drafts = counted(following)
    log = folder / "health.jsonl"
    times: dict[str, list[Took]] = {"quiet": [], "told": []}
    with ExitStack() as stack:
        running: dict[str, Iterator[Took]] = {}
        for name in times:
            ((path, session),) = filled(folder / f"{name}.db", size, 1, drafts)
            health = {"enabled": name == "told"}
            opening = open_session(path, session=session, model=MODEL, recall=RECALL, health=health)
            opened = stack.enter_context(opening)
            if name == "told":
                opened.health.watch(Metrics())
                opened.health.watch(JsonLog(str(log)))
            running[name] = _turns(opened, following)
        os.sync()
        for number in range(WARM + turns):
            for name in sorted(times, reverse=bool(number % 2)):
                took = next(running[name])
                if number >= WARM:
                    times[name].append(took)
    return times["quiet"], times["told"], log.stat().st_size


def _turns(session: Session, following: list[list[dict]]) -> Iterator[Took]:
    """One turn after the other: a question, its prompt, and everything up to the answer."""
    for question, *rest in cycle(following):
        wall, processor = time.perf_counter(), time.thread_time()
        session.append(question)
        session.prompt()
        session.append_all(rest)
        yield Took(time.perf_counter() - wall, time.thread_time() - processor)
