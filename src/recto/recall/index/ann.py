"""The nearest vectors of a long session, by a graph that the index keeps beside its rows, where it keeps one.

The graph chooses, and every likeness is told exactly. What is not in it yet is compared here: fresh rows, and blocks
that were sealed since. Where it cannot tell, whoever asks searches without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recto.recall.index.cache import BoundedCache, decoding
from recto.recall.index.quantization import QuantizedVectors
from recto.recall.index.rows import GraphVector, IndexRow, UnlinkedBlocks
from recto.recall.index.vector_blocks import (
    SealedVectors,
    block_parts,
    blocks_from_signs,
    sign_part,
    sign_parts,
    vectors_per_block,
)
from recto.recall.protocols import RecallIndex, VectorGraphs

if TYPE_CHECKING:
    from recto.recall.protocols import Matrix

MIN_GRAPH_VECTORS = 30_000
"""So many vectors a session has before they are taken into a graph: fewer are compared as quickly one by one."""
_MAX_OUTSIDE_GRAPH = 4_096
"""Vectors that are not in the graph and are compared beside it, at most."""
_MAX_ATTEMPTS = 4
_MAX_SESSIONS = 4_096


class OutsideGraph(NamedTuple):
    """What a graph does not have of a session, at one moment."""

    sealed: QuantizedVectors
    fresh: Sequence[IndexRow]


class VectorGraph:
    """The graph of one lane, over all sessions. Any number of threads may use it."""

    long = MIN_GRAPH_VECTORS

    def __init__(self, index: RecallIndex, lane: str, dims: int) -> None:
        self._index = index
        self._lane = lane
        self._dims = dims
        graphs: VectorGraphs | None = getattr(index, "graphs", None)
        self._graphs = graphs
        self._known: BoundedCache[UnlinkedBlocks] = BoundedCache(_MAX_SESSIONS)
        """What the graph lacked of sessions, by what was looked up last."""
        self._seen: BoundedCache[bool] = BoundedCache(_MAX_SESSIONS)
        """Sessions that nothing was sealed of here since all of it was in the graph."""

    def is_there(self) -> bool:
        """Whether the index has graphs for such vectors."""
        return self._graphs is not None and self._graphs.takes(self._dims)

    def nearest(
        self, session: str, asked: Matrix, most: int, only: Collection[int] | None
    ) -> tuple[NDArray[np.uint32], NDArray[np.float32], OutsideGraph] | None:
        """Entries with their likeness to a vector, of all or of some; and what has to be compared beside them.

        None where the session is not long, or the graph does not know enough of it.
        """
        if not self.is_there() or self._graphs is None:
            return None
        beside = self._beside(session)
        if beside is None:
            return None
        query: list[float] = asked.tolist()
        if only is not None:
            found = self._graphs.among(session, self._lane, query, only)
        else:
            found = self._graphs.nearest(session, self._lane, query, most)
            if len(found) < most:
                return None  # it gave up: too many others are in the same graph
        keys = np.fromiter((seq for seq, _ in found), np.uint32, len(found))
        return keys, np.fromiter((cosine for _, cosine in found), np.float32, len(found)), beside

    def was_sealed(self, session: str) -> None:
        """There is more to take in."""
        self._seen.drop(session)

    def link(self, session: str, goes_on: Callable[[], bool]) -> None:
        """Takes what is sealed of a long session into the graph, a block at a time, while there is time for it."""
        if self._seen.get(session) or not self.is_there() or self._graphs is None:
            return
        lacks = self._lacks(session)
        if self._is_long(lacks) and lacks.firsts:
            for first in lacks.firsts:
                if not goes_on():
                    return
                generation, block, _ = self._read(session, [first])
                self._graphs.link(session, self._lane, generation, self._dims, _graph_vectors(first, block))
            lacks = self._lacks(session)
        if not self._is_long(lacks) or not lacks.firsts:
            self._seen.keep(session, True)

    def _beside(self, session: str) -> OutsideGraph | None:
        """What is compared beside the graph; None where that is too much, or the session is not long."""
        for _ in range(_MAX_ATTEMPTS):
            lacks = self._known.get(session)
            fresh = self._index.glance(session, self._lane)
            if lacks is None or lacks.firsts or lacks.generation != fresh.generation:
                lacks = self._lacks(session)
            if not self._is_long(lacks) or len(lacks.firsts) * vectors_per_block(self._dims) > _MAX_OUTSIDE_GRAPH:
                return None
            if not lacks.firsts and lacks.generation == fresh.generation:
                return OutsideGraph(SealedVectors.empty(self._dims, with_codes=True).coded(None), fresh.fresh)
            generation, sealed, rows = self._read(session, lacks.firsts)
            if generation == lacks.generation:
                return OutsideGraph(sealed, rows)
        return None

    def _lacks(self, session: str) -> UnlinkedBlocks:
        assert self._graphs is not None  # noqa: S101  # asked only where there are graphs
        lacks = self._graphs.unlinked(session, self._lane, *sign_parts())
        self._known.keep(session, lacks)
        return lacks

    def _is_long(self, lacks: UnlinkedBlocks) -> bool:
        return lacks.blocks * vectors_per_block(self._dims) >= self.long

    def _read(self, session: str, firsts: Sequence[int]) -> tuple[int, QuantizedVectors, Sequence[IndexRow]]:
        """Blocks with the generation they were read at, and the fresh rows of that moment."""
        signs = self._index.glance(session, self._lane, [sign_part(first) for first in firsts])
        with decoding(self._index.location):
            blocks = blocks_from_signs(signs.sealed, self._dims)
            glance = self._index.glance(session, self._lane, sorted(block_parts(blocks, self._dims, with_codes=True)))
            if glance.generation != signs.generation:
                return 0, SealedVectors.empty(self._dims, with_codes=True).coded(None), glance.fresh
            held = SealedVectors.empty(self._dims, with_codes=True).grown(glance.generation, blocks, glance.sealed)
            return glance.generation, held.coded(None), glance.fresh


def _graph_vectors(first: int, block: QuantizedVectors) -> list[GraphVector]:
    """The vectors of a block; those of one entry stand together."""
    found: list[GraphVector] = []
    for seq, scale, code in zip(block.keys.tolist(), block.scales.tolist(), block.codes, strict=True):
        piece = found[-1].piece + 1 if found and found[-1].seq == seq else 0
        found.append(GraphVector(first, seq, piece, scale, code.tobytes()))
    return found
