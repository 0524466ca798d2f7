"""Measures the cost of a turn, and how many needs are met, as the session of a simulated agent becomes longer.
Four kinds of made-up agents, whose needs are known, run for 1,000 to 100,000 turns in a window of 16 K tokens. The same
needs are measured with recall and without it.

A session is filled up to its last turns and indexed. Then every need that is due in these turns is asked for, with the
message that raises it, and the very last turns are run with a prompt at every model call. Facts were stated up to 8,192
turns earlier. Recall searches by words alone here; without it, the same needs are asked for in the same session. Times
are CPU times, which a busy machine changes least.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from time import process_time

from rich.progress import track

from bench.measure import figures, progress
from recto.config import Settings, load
from recto.config.factory import make_indexer, open_session, open_store
from recto.engine.session import Session
from recto.lab.probes import (
    NEED_KINDS,
    NeedKind,
    ProbeCounts,
    ProbeRun,
    SimulatedTurn,
    run_probes,
    total_counts,
    with_tokens,
)
from recto.lab.simulation import AGENTS, simulate

MODEL = "gpt-4o"
WINDOW = 16_000
TAIL = 500
"""Turns at the end whose needs are asked for."""
TIMED = 20
"""Turns at the very end that are gone through prompt by prompt."""
BATCH = 500
Measured = tuple[ProbeRun, ProbeRun, float]
"""The needs of the last turns; the very last turns, prompt by prompt; entries indexed each second of the processor."""
LONGEST = {"chat": 100_000, "monitoring": 100_000, "review": 10_000, "research": 10_000}
"""Turns: agents with large tool results fill a disk sooner."""


def run(quick: bool) -> list[dict]:
    sizes = (100, 400) if quick else (1_000, 10_000, 100_000)
    cases = [(kind, size) for size in sizes for kind in AGENTS if size <= LONGEST[kind]]
    found = []
    for kind, size in track(cases, description="simulating", console=progress()):
        found.append((kind, size, measured(kind, size, recall=True), measured(kind, size, recall=False)))
    return told(found)


def told(found: list[tuple[str, int, Measured, Measured]]) -> list[dict]:
    """The rows of what was measured, with recall and without."""
    rows = [_row(kind, size, recall) for kind, size, recall, _ in found]
    recalled, without = (_by_need(one[place][0] for one in found) for place in (2, 3))
    rows += [_need(kind, recalled[kind], without[kind]) for kind in NEED_KINDS if kind in recalled]
    return [*rows, _need("all", total_counts(recalled), total_counts(without))]


def _by_need(walks: Iterator[ProbeRun]) -> dict[NeedKind, ProbeCounts]:
    fared: dict[NeedKind, ProbeCounts] = {}
    for walked in walks:
        for kind, one in walked.fared.items():
            fared[kind] = fared.get(kind, ProbeCounts()) + one
    return fared


def measured(kind: str, size: int, *, recall: bool) -> Measured:
    turns = simulate(kind, turns=size + TIMED)
    with tempfile.TemporaryDirectory() as folder, _session(Path(folder) / "made-up.db", recall) as (session, index):
        entries = _filled(session, islice(turns, max(size - TAIL, 0)))
        began = process_time()
        index(session.key)
        indexed = entries / max(process_time() - began, 1e-9)
        met = run_probes(session, islice(turns, min(size, TAIL)), needs_only=True)
        return met, run_probes(session, turns), indexed


def settings(path: Path, recall: bool) -> Settings:
    given = {
        "store": str(path),
        "model": MODEL,
        "models": {MODEL: {"window": WINDOW, "max_input": WINDOW}},
        "recall": {"enabled": recall, "embedder": {"use": "none"}, "background": False},
        "compress": {"background": False, "model": {"use": "none"}},
        "health": {"enabled": False},
    }
    return load(environ={}, arguments=given)


@contextmanager
def _session(path: Path, recall: bool) -> Iterator[tuple[Session, Callable[[str], object]]]:
    own = settings(path, recall)
    with (
        closing(open_store(own)) as store,
        closing(make_indexer(own, store)) as indexer,
        closing(open_session(own, store, indexer)) as session,
    ):
        yield session, indexer.catch_up if recall else lambda key: None


def _filled(session: Session, turns: Iterator[SimulatedTurn]) -> int:
    entries = 0
    drafts = (with_tokens(session, draft) for turn in turns for draft in turn.drafts)
    while batch := list(islice(drafts, BATCH)):
        session.store.append(session.key, batch)
        entries += len(batch)
    return entries


def _row(kind: str, size: int, found: Measured) -> dict:
    met, timed, indexed = found
    fared = total_counts(met.fared)
    values = {
        "cpu ms a turn": 1e3 * timed.seconds / max(timed.turns, 1),
        "prompts a turn": timed.prompts / max(timed.turns, 1),
        "tokens a prompt": timed.tokens // max(timed.prompts, 1),
        "over": met.over + timed.over,
        "needs": fared.asked,
        "met": fared.share,
        "of what had left": fared.share_of_evicted,
    }
    note = f"indexed before, {indexed:,.0f} entries/s" if size > TAIL else "all of its turns"
    return figures(f"{kind}, {size:,} turns", values, note)


def _need(kind: str, recall: ProbeCounts, without: ProbeCounts) -> dict:
    values = {
        "needs": recall.asked,
        "in the prompt": recall.prompt,
        "recalled": recall.recalled,
        "met": recall.share,
        "without recall": without.share,
    }
    return figures(f"need: {kind}", values, "all sessions above")
