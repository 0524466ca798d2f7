"""What telling how turns go costs: the same turns with nobody measuring, and with everything that can be told.

Two sessions of the same messages take their turns one after the other, so that whatever else the machine does meets
both alike; which one goes first changes with every turn. The share is the median of what a turn costs more, over the
median of what it costs.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

from bench.measure import percentile, row
from bench.turns import MODEL, counted, exchanges, filled
from recto import Session
from recto import open as open_session
from recto.telemetry.logs import Log
from recto.telemetry.metrics import Metrics

WARM = 10
"""Turns before anything is measured."""


def run(quick: bool) -> list[dict]:
    size, turns = (300, 60) if quick else (2_000, 1_000)
    following = list(exchanges(60 if quick else 600))
    with tempfile.TemporaryDirectory() as folder:
        quiet, told, bytes_logged = _measured(Path(folder), size, turns, following)
    more = [with_it - without for with_it, without in zip(told, quiet, strict=True)]
    alone = percentile(quiet, 0.5)
    cost = percentile(more, 0.5)
    note = "measured, alerts, Prometheus and the log; the target is below 5"
    return [
        row("turn, nobody told, p50", alone * 1e3, "ms", f"{turns} turns of a session of {size:,} messages", 2),
        row("turn, everything told, p50", percentile(told, 0.5) * 1e3, "ms", "monitor, Prometheus, a file of JSON", 2),
        row("what telling adds to a turn, p50", cost * 1e6, "µs", "of the differences, turn by turn"),
        row("what telling adds, share of the turn", 100 * cost / alone, "%", note, 1),
        row("what telling adds, of all turns together", 100 * (sum(told) / sum(quiet) - 1), "%", "relief included", 1),
        row("log of a turn", bytes_logged / (turns + WARM), "bytes", "events included"),
    ]


def _measured(folder: Path, size: int, turns: int, following: list[list[dict]]) -> tuple[list[float], list[float], int]:
    drafts = counted(following)
    log = folder / "health.jsonl"
    times: dict[str, list[float]] = {"quiet": [], "told": []}
    with ExitStack() as stack:
        running: dict[str, Iterator[float]] = {}
        for name in times:
            ((path, session),) = filled(folder / f"{name}.db", size, 1, drafts)
            enabled = {"enabled": name == "told"}
            opened = stack.enter_context(open_session(path, session=session, model=MODEL, health=enabled))
            if name == "told":
                opened.watch(Metrics())
                opened.watch(Log(str(log)))
            running[name] = _turns(opened, following)
        os.sync()
        for number in range(WARM + turns):
            for name in sorted(times, reverse=bool(number % 2)):
                took = next(running[name])
                if number >= WARM:
                    times[name].append(took)
    return times["quiet"], times["told"], log.stat().st_size


def _turns(session: Session, following: list[list[dict]]) -> Iterator[float]:
    """One turn after the other: a question, its prompt, and everything up to the answer."""
    for question, *rest in cycle(following):
        began = time.perf_counter()
        session.append(question)
        session.prompt()
        session.append_all(rest)
        yield time.perf_counter() - began
