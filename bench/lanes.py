"""The recall index: what a message costs to take in, how large it is, how long a question takes, at several sizes.

Messages are made up: about 70 distinct terms each out of 200,000 by Zipf's law, and two vectors of 384 numbers.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from bench.measure import percentile, row, seconds
from recto.core.lanes import Covered
from recto.core.recall import Document, Mark
from recto.engine.lanes.vectors import Vectors
from recto.engine.lanes.words import Words
from recto.stores.sqlite.recall import SqliteIndex

SIZES = (10_000, 100_000, 1_000_000)
VOCABULARY = 200_000
DIMS = 384
DRAWS = 110
BATCH = 256
SINGLE = 3_000
QUESTIONS = 50
DAY = 86_400_000_000


class Made:
    """Messages and questions, the same ones every time."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        chances = 1 / np.arange(2, VOCABULARY + 2) ** 1.05
        self.edges = np.cumsum(chances / chances.sum())
        self.names = np.random.default_rng(7).choice(2**32, VOCABULARY, replace=False)
        self.topics = np.random.default_rng(8).normal(size=(300, DIMS)).astype(np.float32)

    def documents(self, first: int, count: int) -> list[Document]:
        ranks = np.searchsorted(self.edges, self.rng.random((count, DRAWS)))
        found = []
        for place, terms in enumerate(self.names[ranks]):
            distinct, often = np.unique(terms, return_counts=True)
            counts = dict(zip(distinct.tolist(), often.tolist(), strict=True))
            found.append(
                Document(seq=first + place, ts=(first + place) * DAY // 50, role="user", marks=Mark.NONE, terms=counts)
            )
        return found

    def vectors(self, first: int, count: int) -> list[tuple[int, np.ndarray]]:
        near = self.topics[self.rng.integers(0, len(self.topics), count)]
        drawn = near[:, None] + self.rng.normal(size=(count, 2, DIMS)).astype(np.float32)
        drawn /= np.linalg.norm(drawn, axis=2, keepdims=True)
        return list(zip(range(first, first + count), drawn, strict=True))

    def question(self, low: int, high: int) -> dict[int, float]:
        return dict.fromkeys(self.names[self.rng.choice(np.arange(low, high), 8, replace=False)].tolist(), 1.0)

    def meaning(self) -> np.ndarray:
        return self.vectors(1, 1)[0][1][0]


QUESTION_KINDS = {"8 words of middling frequency": (300, 3000), "8 frequent words": (5, 60)}


def run(quick: bool) -> list[dict]:
    rows = []
    for size in (one // 10 if quick else one for one in SIZES):
        with tempfile.TemporaryDirectory() as folder:
            rows += of_size(Path(folder) / "recall", size, with_small=size == 1_000_000)
    return rows


def of_size(path: Path, size: int, *, with_small: bool) -> list[dict]:
    made = Made(size)
    with closing(SqliteIndex(path)) as index:
        words, vectors = Words(index, "words"), Vectors(index, "vectors", DIMS)
        took = seconds(lambda: fill(made, words, vectors, "large", 1, size - SINGLE))
        singles = one_by_one(made, words, vectors, "large", size - SINGLE)
        if with_small:
            fill(made, words, vectors, "small", 1, 3_000)
        lanes = {lane.lane: lane.bytes / lane.entries for lane in index.lanes()}
    name = f"{size:,} entries"
    rows = [row(f"{name}: take in, {BATCH} at a time", size / took, "entries/s")]
    for what, times in singles.items():
        rows.append(row(f"{name}: {what} of one message, p50", percentile(times, 0.5) * 1e3, "ms", "", 2))
        rows.append(row(f"{name}: {what} of one message, p99", percentile(times, 0.99) * 1e3, "ms", "", 2))
        rows.append(row(f"{name}: {what} of one message, worst", max(times) * 1e3, "ms", "", 1))
    on_disk = sum(file.stat().st_size for file in path.parent.iterdir()) / (size + 3_000 * with_small)
    rows += [row(f"{name}: {lane}", value, "bytes/entry") for lane, value in lanes.items()]
    rows.append(row(f"{name}: on disk", on_disk, "bytes/entry", "both lanes, after closing"))
    rows += questions(path, made, "large", name)
    if with_small:
        rows += questions(path, made, "small", f"3,000 entries beside {size:,}")
    return rows


def fill(made: Made, words: Words, vectors: Vectors, session: str, first: int, count: int) -> None:
    for start in range(first, first + count, BATCH):
        some = min(BATCH, first + count - start)
        covers = Covered(start, start + some - 1, b"")
        words.add(session, made.documents(start, some), covers)
        vectors.add(session, made.vectors(start, some), covers)


def one_by_one(made: Made, words: Words, vectors: Vectors, session: str, after: int) -> dict[str, list[float]]:
    documents, meanings = made.documents(after + 1, SINGLE), made.vectors(after + 1, SINGLE)
    times: dict[str, list[float]] = {"words": [], "vectors": []}
    for document, meaning in zip(documents, meanings, strict=True):
        covers = Covered(document.seq, document.seq, b"")
        times["words"].append(seconds(lambda one=document, c=covers: words.add(session, [one], c)))
        times["vectors"].append(seconds(lambda one=meaning, c=covers: vectors.add(session, [one], c)))
    return times


def questions(path: Path, made: Made, session: str, name: str) -> list[dict]:
    rows = []
    with closing(SqliteIndex(path)) as index:
        words, vectors = Words(index, "words"), Vectors(index, "vectors", DIMS)

        def by_words(query: dict[int, float]) -> None:
            words.score(session, query, words.tally(session, list(query))).best(200)

        asked = made.question(*QUESTION_KINDS["8 words of middling frequency"])
        rows.append(row(f"{name}: words, first question", seconds(lambda: by_words(asked)) * 1e3, "ms", "", 1))
        first = seconds(lambda: vectors.nearest(session, made.meaning(), 200))
        rows.append(row(f"{name}: vectors, first question", first * 1e3, "ms", "", 1))
        for kind, (low, high) in QUESTION_KINDS.items():
            asked = [made.question(low, high) for _ in range(QUESTIONS)]
            rows += timed(f"{name}: words, {kind}", by_words, asked)
        meant = [made.meaning() for _ in range(QUESTIONS)]
        rows += timed(f"{name}: vectors", lambda vector: vectors.nearest(session, vector, 200), meant)
        rows += timed(f"{name}: facts", words.facts, [session] * QUESTIONS)
    return rows


def timed(what: str, ask: Callable[[Any], object], questions: list) -> list[dict]:
    """By the clock, and by the processor: the second is the same on a busy machine."""
    times, worked = [], []
    for one in questions:
        start = process_time()
        times.append(seconds(lambda one=one: ask(one)) * 1e3)
        worked.append((process_time() - start) * 1e3)
    return [
        row(f"{what}, p50", percentile(times, 0.5), "ms", "", 1),
        row(f"{what}, p99", percentile(times, 0.99), "ms", "", 1),
        row(f"{what}, processor, p50", percentile(worked, 0.5), "ms", "", 1),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.lanes", description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, help="entries in one session (default: 10,000 to a million)")
    given = parser.parse_args()
    for size in given.sizes or SIZES:
        with tempfile.TemporaryDirectory() as folder:
            for one in of_size(Path(folder) / "recall", size, with_small=True):
                print(f"{one['what']:<75}{one['value']:>14,.{one['digits']}f} {one['unit']}", flush=True)


if __name__ == "__main__":
    main()
