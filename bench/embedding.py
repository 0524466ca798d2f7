"""Embedding: how long one text takes at several lengths, with a model and without one, and what it holds in memory."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from bench.measure import percentile, row, seconds
from recto.models import weights
from recto.models.embedders import ARCTIC, EmbedderChoice, embedder_for

LENGTHS = (20, 60, 200, 500)
TEXT = "the ledger is written before the queue is told so that a crash between the two loses nothing of it"


def run(quick: bool) -> list[dict]:
    if weights.find(ARCTIC) is None:
        return [row("arctic", 0, "", f"its weights are not here: recto models get {ARCTIC}")]
    before = resident_mb()
    embedder = embedder_for(EmbedderChoice(use="arctic"))
    first = seconds(partial(embedder.query, "a"))
    rows = [row("arctic: first text", first * 1e3, "ms", "with loading", 1)]
    for length in LENGTHS:
        times = [seconds(partial(embedder.documents, [text])) for text in texts(length, 5 if quick else 40)]
        rows.append(row(f"arctic: text of {length} tokens, p50", percentile(times, 0.5) * 1e3, "ms", "", 2))
    rows.append(row("arctic: resident memory", resident_mb() - before, "MB", "added to the process"))
    return rows


def texts(tokens: int, count: int) -> list[str]:
    """Texts of so many tokens, each word of which is one; two more stand at the ends of every text."""
    words = TEXT.split()
    return [" ".join(words[(start + place) % len(words)] for place in range(tokens - 2)) for start in range(count)]


def resident_mb() -> float:
    """What the process holds in memory now; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
