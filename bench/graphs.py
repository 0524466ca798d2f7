"""Vectors distributed like those of texts, and the share of the true nearest ones that a search finds.

The vectors are drawn, not embedded: around 5,000 topics, each message is offset from its topic a little in 32
directions that all topics share, and a little in any direction. The true nearest vectors are found by comparing all of
them, a page at a time while they are generated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from bench.measure import percentile, row, seconds
from bench.recall_scale import DIMS, SESSION
from recto.recall.index.vectors import VectorIndex
from recto.recall.search import MAX_CANDIDATES

if TYPE_CHECKING:
    from recto.recall.protocols import Matrix

TOPICS, DIRECTIONS = 5_000, 32
_BESIDE, _ANYWHERE = 0.5, 0.3
ASKED, BEST = 50, 10


class Topics:
    """Where vectors lie, the same every time."""

    def __init__(self) -> None:
        rng = np.random.default_rng(7)
        self._centres = rng.standard_normal((TOPICS, DIMS), np.float32)
        self._directions = rng.standard_normal((DIRECTIONS, DIMS), np.float32) * np.sqrt(1 / DIRECTIONS)

    def drawn(self, rng: np.random.Generator, count: int) -> Matrix:
        """So many vectors of length 1."""
        rows = self._centres[rng.integers(0, TOPICS, count)]
        beside = rng.standard_normal((count, DIRECTIONS), np.float32) @ self._directions * DIRECTIONS**0.5
        rows = rows + _BESIDE * beside + _ANYWHERE * rng.standard_normal((count, DIMS), np.float32)
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Topical:
    """An embedder that draws a vector for each text, in no time; the same one for the same text."""

    name: str = "topical/1"
    dims: int = DIMS
    weight: float = 0.5
    topics: Topics = field(default_factory=Topics)

    def documents(self, texts: Sequence[str]) -> Matrix:
        drawn = [self.topics.drawn(np.random.default_rng(crc32(text.encode())), 1) for text in texts]
        return np.concatenate(drawn)

    def query(self, text: str) -> Matrix:
        return self.documents([text])


class Nearest:
    """Questions, and the messages that are truly nearest to each."""

    def __init__(self, topics: Topics) -> None:
        self.asked = topics.drawn(np.random.default_rng(11), ASKED)
        self._seqs = np.zeros((ASKED, BEST), np.int64)
        self._cosines = np.full((ASKED, BEST), -2.0, np.float32)

    def look_at(self, first: int, vectors: Matrix) -> None:
        """Takes a page of messages into account, one vector each."""
        seqs = np.broadcast_to(np.arange(first, first + len(vectors)), (ASKED, len(vectors)))
        every = np.concatenate([self._cosines, self.asked @ vectors.T], axis=1)
        seqs = np.concatenate([self._seqs, seqs], axis=1)
        best = np.argpartition(-every, BEST, axis=1)[:, :BEST]
        self._cosines = np.take_along_axis(every, best, axis=1)
        self._seqs = np.take_along_axis(seqs, best, axis=1)

    def found_by(self, lane: VectorIndex) -> tuple[float, list[float]]:
        """The share that a lane finds of them when it is asked as recall asks it, and how many ms that takes each."""
        times, hits = [], 0
        lane.nearest(SESSION, self.asked[0], MAX_CANDIDATES)
        for asked, truly in zip(self.asked, self._seqs, strict=True):
            found = []
            times.append(
                seconds(lambda asked=asked, to=found: to.append(lane.nearest(SESSION, asked, MAX_CANDIDATES))) * 1e3
            )
            hits += len(set(found[0].seqs[:BEST].tolist()) & set(truly.tolist()))
        return hits / (ASKED * BEST), times


def rows_of(nearest: Nearest, lane: VectorIndex, label: str) -> list[dict]:
    share, times = nearest.found_by(lane)
    note = f"{share:.3f} of the {BEST} that comparing all finds; {DIMS} numbers each"
    return [
        row(f"nearest vectors, {label}, p50", percentile(times, 0.5), "ms", note, 1),
        row(f"nearest vectors, {label}, p99", percentile(times, 0.99), "ms", "", 1),
    ]
