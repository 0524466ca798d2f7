"""Measures how much time a gateway adds to a request, and how many requests it serves: Recto, LiteLLM, and no gateway.
Up to 64 sessions at once behave as agents do: each turn sends the whole history again, of 10 or 1,000 messages,
streamed or not. All contestants answer the same load with the same scripted upstream.

The contestants run in rounds, one after the other, so that other work on the machine affects all alike; the upstream
costs next to nothing. Load, upstream and gateways are processes that share the machine's cores, so the figures are
those of a fully loaded machine: compare them with each other. *opening* is a session's first request, with a history
that the gateway has not seen; *CPU ms* is the CPU time of the gateway's process per request, openings included.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import product

from bench import gateway_peer
from bench.gateway_load import Load, Took
from bench.gateway_peer import Running
from bench.measure import figures, percentile, progress, row

DIRECT, RECTO, SMALL, OTHER = "direct", "Recto", "Recto, 16 K window", "LiteLLM"
WINDOW = 16_000
STORED = "every message durable before the answer"
NOTES = {DIRECT: "no gateway", RECTO: STORED, SMALL: f"{STORED}; relief and recall", OTHER: "stores nothing"}
MEMORY_REQUESTS, MEMORY_SECONDS = 100_000, 3 * 3_600
"""Where the second is over first, fewer are made."""
_MARKS = (1_000, 5_000, *range(10_000, MEMORY_REQUESTS + 1, 10_000))
"""Requests after which the memory is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One size of load: as many turns for few clients as for many."""

    clients: int
    messages: int
    stream: bool

    def load(self, quick: bool) -> Load:
        long = self.messages > 100
        turns = {1: 25, 16: 5, 64: 2}[self.clients] if long else {1: 10, 16: 6, 64: 3}[self.clients]
        sessions = {1: 2 if long else 10, 16: 1, 64: 1}[self.clients]
        given = Load(url="", clients=self.clients, messages=self.messages, stream=self.stream)
        return replace(given, sessions=1, turns=2) if quick else replace(given, sessions=sessions, turns=turns)

    def __str__(self) -> str:
        plural = "session" if self.clients == 1 else "sessions"
        streamed = ", streamed" if self.stream else ""
        return f"{self.clients} {plural} of {self.messages:,} messages{streamed}"


@dataclass(slots=True)
class Kept:
    """All rounds of one contestant in one cell."""

    opening: list[float] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    processor: float = 0.0
    """Seconds that the gateway worked."""
    failed: int = 0

    def take(self, took: Took, processor: float) -> None:
        self.processor += processor
        self.opening += took.opening
        self.turns += took.turns
        self.rates.append(len(took.turns) / took.seconds)
        self.failed += took.failed


def run(quick: bool) -> list[dict]:
    rounds = 1 if quick else 2
    cells = [
        Cell(clients=clients, messages=messages, stream=stream)
        for messages in ((10,) if quick else (10, 1_000))
        for stream in (False, True)
        for clients in ((1, 16) if quick else (1, 16, 64))
    ]
    with ExitStack() as stack:
        up = stack.enter_context(gateway_peer.upstream())
        running = {DIRECT: up}
        running |= {name: stack.enter_context(made) for name, made in _recto(up)}
        missing = _other(stack, running, up)
        for name, stream in product(running, (False, True)):  # what is made once is made before
            _asked(running[name], Load(url="", clients=4, turns=3, stream=stream, name=f"warm{stream:d}"))
        rows = [
            one
            for cell in cells
            for one in _rows(cell, _measured(cell, {n: r for n, r in running.items() if _fits(n, cell)}, rounds, quick))
        ]
    return [*rows, *missing]


def memory(quick: bool) -> list[dict]:
    """How much memory the gateway holds, request after request: as many as the time allows."""
    most, seconds = (600, 60) if quick else (MEMORY_REQUESTS, MEMORY_SECONDS)
    lots = [_lot(number, quick) for number in range(4)]
    held: list[tuple[int, float]] = []
    failed = 0
    with gateway_peer.upstream() as up, gateway_peer.recto(up) as gateway:
        before, begun = gateway.resident_mb, time.monotonic()
        while (done := held[-1][0] if held else 0) < most and time.monotonic() - begun < seconds:
            took = _asked(gateway, replace(lots[len(held) % len(lots)], name=f"m{len(held)}"))
            failed += took.failed
            held.append((done + len(took.opening) + len(took.turns) + took.left, gateway.resident_mb))
            progress().print(f"{held[-1][0]:,} requests: {held[-1][1]:.0f} MB")
    return [row("before the first request", before, "MB"), *_held(held, failed)]


def _lot(number: int, quick: bool) -> Load:
    """Two lots of sessions that are gone on with, and two of sessions that are new: streamed, and not."""
    fresh = number >= 2
    sessions = 1 if quick else 16 if fresh else 4
    turns, messages = (1, 2) if fresh else (9, 10)
    return Load(
        url="", clients=16, sessions=sessions, messages=messages, turns=turns, stream=bool(number % 2), leave_every=16
    )


def _held(held: list[tuple[int, float]], failed: int) -> list[dict]:
    done = held[-1][0]
    half = next(one for one in held if one[0] >= done / 2)
    later = [one for one in held if one[0] >= half[0]]
    note = "16 at a time; conversations of 10 turns and of 2; every 16th client goes away unanswered"
    rows = []
    for mark in _MARKS:
        if found := next((one for one in held if one[0] >= mark), None):
            rows.append(row(f"after {mark:,} requests", found[1], "MB", note))
            note = ""
    most = max(one[1] for one in later) - half[1]
    return [
        *rows,
        row("after all requests", held[-1][1], "MB", f"{done:,} requests, {failed} failed"),
        row("growth over the second half", held[-1][1] - half[1], "MB", f"from {half[0]:,} requests on", 1),
        row("most over the second half", most, "MB", "above what it began with", 1),
        row("slope over the second half", 1e4 * slope(later), "MB", "per 10,000 requests", 2),
    ]


def slope(points: list[tuple[int, float]]) -> float:
    """How much the second grows for each of the first."""
    many = len(points)
    x, y = sum(one for one, _ in points) / many, sum(two for _, two in points) / many
    across = sum((one - x) ** 2 for one, _ in points)
    return sum((one - x) * (two - y) for one, two in points) / across if across else 0.0


def _recto(up: Running) -> Iterator[tuple[str, AbstractContextManager[Running]]]:
    yield RECTO, gateway_peer.recto(up)
    yield SMALL, gateway_peer.recto(up, WINDOW)


def _other(stack: ExitStack, running: dict[str, Running], up: Running) -> list[dict]:
    """Starts the other gateway; a row that says why where that is impossible."""
    try:
        running[OTHER] = stack.enter_context(gateway_peer.litellm(up))
    except (subprocess.CalledProcessError, RuntimeError, OSError) as error:
        lines = str(getattr(error, "stderr", "") or error).strip().splitlines()
        return [row(f"{OTHER}: not measured", 0, "", lines[-1] if lines else type(error).__name__)]
    NOTES[OTHER] = f"stores nothing; version {gateway_peer.litellm_version()}"
    return []


def _fits(name: str, cell: Cell) -> bool:
    """A short history is the same in a small window, and a stream of it is no other turn."""
    return name != SMALL or (cell.messages > 100 and cell.clients <= 16 and not cell.stream)


def _measured(cell: Cell, running: dict[str, Running], rounds: int, quick: bool) -> dict[str, Kept]:
    found = {name: Kept() for name in running}
    for number in range(rounds):
        for name in sorted(running, reverse=bool(number % 2)):
            load = replace(cell.load(quick), name=f"{cell.clients}.{cell.messages}.{cell.stream:d}.{number}")
            before = running[name].processor_seconds
            took = _asked(running[name], load)
            found[name].take(took, running[name].processor_seconds - before)
    progress().print(str(cell), {name: round(_at(kept.turns, 0.5), 2) for name, kept in found.items()})
    return found


def _asked(whom: Running, load: Load) -> Took:
    """One load, from a process of its own."""
    given = json.dumps(asdict(replace(load, url=whom.url, key=whom.key)))
    command = [sys.executable, "-m", "bench.gateway_load"]
    done = subprocess.run(command, input=given, stdout=subprocess.PIPE, text=True, check=True)
    return Took(**json.loads(done.stdout))


def _rows(cell: Cell, found: dict[str, Kept]) -> list[dict]:
    direct = found[DIRECT]
    rows = []
    for name, kept in found.items():
        values = {
            "p50 ms": _at(kept.turns, 0.5),
            "p99 ms": _at(kept.turns, 0.99),
            "added p50 ms": _at(kept.turns, 0.5) - _at(direct.turns, 0.5),
            "added p99 ms": _at(kept.turns, 0.99) - _at(direct.turns, 0.99),
            "requests/s": _at(kept.rates, 0.5),
            "opening p50 ms": _at(kept.opening, 0.5),
            "CPU ms": 1e3 * kept.processor / max(len(kept.turns) + len(kept.opening), 1),
            "turns": len(kept.turns),
        }
        failed = f"; {kept.failed} failed" if kept.failed else ""
        rows.append(figures(f"{cell}: {name}", values, NOTES[name] + failed, 1))
    return rows


def _at(times: list[float], share: float) -> float:
    """A percentile; not a number where everything failed."""
    return percentile(times, share) if times else math.nan
