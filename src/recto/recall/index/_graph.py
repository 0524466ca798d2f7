"""Approximate nearest neighbours of a long session, by a vector graph that the index may offer.

The graph selects, and every cosine is exact. What the graph lacks is compared exhaustively next to it: fresh rows, and
blocks sealed since. If the graph cannot answer, the caller searches without it.
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
"""Vectors of a session from which a graph is built. Fewer are compared as quickly one by one."""
_MAX_OUTSIDE_GRAPH = 4_096
"""Vectors outside the graph that are compared exhaustively, at most."""
_MAX_ATTEMPTS = 4
_MAX_SESSIONS = 4_096


class OutsideGraph(NamedTuple):
    """The vectors of a session that its graph lacks, at one moment."""

    sealed: QuantizedVectors
    fresh: Sequence[IndexRow]


class VectorGraph:
    """The graph of one lane, over all sessions. Thread-safe."""

    min_vectors = MIN_GRAPH_VECTORS

    def __init__(self, index: RecallIndex, lane: str, dims: int) -> None:
        self._index = index
        self._lane = lane
        self._dims = dims
        graphs: VectorGraphs | None = getattr(index, "graphs", None)
        self._graphs = graphs
        self._unlinked: BoundedCache[UnlinkedBlocks] = BoundedCache(_MAX_SESSIONS)
        """What the graph lacked of sessions when last read."""
        self._complete: BoundedCache[bool] = BoundedCache(_MAX_SESSIONS)
        """Sessions that are completely in the graph, or too short for one, as long as nothing is sealed here."""

    def is_available(self) -> bool:
        """Whether the index has graphs for vectors of this length."""
        return self._graphs is not None and self._graphs.supports(self._dims)

    def nearest(
        self, session: str, vector: Matrix, limit: int, only: Collection[int] | None
    ) -> tuple[NDArray[np.uint32], NDArray[np.float32], OutsideGraph] | None:
        """Return entries with their cosine to a vector, of all or of `only`, and the vectors outside the graph.

        None if the session is too short for a graph or if the graph lacks too much of it.
        """
        if not self.is_available() or self._graphs is None:
            return None
        outside = self._read_outside(session)
        if outside is None:
            return None
        query: list[float] = vector.tolist()
        if only is not None:
            pairs = self._graphs.similarities(session, self._lane, query, only)
        else:
            pairs = self._graphs.nearest(session, self._lane, query, limit)
            if len(pairs) < limit:
                return None  # the scan gave up: the graph holds too many vectors of other sessions
        keys = np.fromiter((seq for seq, _ in pairs), np.uint32, len(pairs))
        return keys, np.fromiter((cosine for _, cosine in pairs), np.float32, len(pairs)), outside

    def mark_sealed(self, session: str) -> None:
        """Note that a session has new blocks to add."""
        self._complete.discard(session)

    def link(self, session: str, may_continue: Callable[[], bool]) -> None:
        """Add the sealed blocks of a long session to the graph, one at a time, while `may_continue` returns true."""
        if self._complete.get(session) or not self.is_available() or self._graphs is None:
            return
        unlinked = self._read_unlinked(session)
        if self._is_long(unlinked) and unlinked.firsts:
            for first in unlinked.firsts:
                if not may_continue():
                    return
                generation, block, _ = self._read(session, [first])
                self._graphs.link(session, self._lane, generation, self._dims, _graph_vectors(first, block))
            unlinked = self._read_unlinked(session)
        if not self._is_long(unlinked) or not unlinked.firsts:
            self._complete.put(session, True)

    def _read_outside(self, session: str) -> OutsideGraph | None:
        """Read what must be compared next to the graph; None if that is too much or the session is too short."""
        # The state of the graph and the rows come from separate reads. They fit together only if the generation is the
        # same, so the read is repeated when a seal came in between.
        for _ in range(_MAX_ATTEMPTS):
            unlinked = self._unlinked.get(session)
            fresh = self._index.snapshot(session, self._lane)
            if unlinked is None or unlinked.firsts or unlinked.generation != fresh.generation:
                unlinked = self._read_unlinked(session)
            missing = len(unlinked.firsts) * vectors_per_block(self._dims)
            if not self._is_long(unlinked) or missing > _MAX_OUTSIDE_GRAPH:
                return None
            if not unlinked.firsts and unlinked.generation == fresh.generation:
                return OutsideGraph(SealedVectors.empty(self._dims, with_codes=True).quantized(None), fresh.fresh)
            generation, sealed, rows = self._read(session, unlinked.firsts)
            if generation == unlinked.generation:
                return OutsideGraph(sealed, rows)
        return None

    def _read_unlinked(self, session: str) -> UnlinkedBlocks:
        assert self._graphs is not None  # noqa: S101  # callers check that there are graphs
        unlinked = self._graphs.unlinked_blocks(session, self._lane, *sign_parts())
        self._unlinked.put(session, unlinked)
        return unlinked

    def _is_long(self, unlinked: UnlinkedBlocks) -> bool:
        return unlinked.blocks * vectors_per_block(self._dims) >= self.min_vectors

    def _read(self, session: str, firsts: Sequence[int]) -> tuple[int, QuantizedVectors, Sequence[IndexRow]]:
        """Read blocks, with the generation they were read at (0 if it changed) and the fresh rows of that moment."""
        signs = self._index.snapshot(session, self._lane, [sign_part(first) for first in firsts])
        with decoding(self._index.location):
            blocks = blocks_from_signs(signs.sealed, self._dims)
            parts = sorted(block_parts(blocks, self._dims, with_codes=True))
            snapshot = self._index.snapshot(session, self._lane, parts)
            empty = SealedVectors.empty(self._dims, with_codes=True)
            if snapshot.generation != signs.generation:
                return 0, empty.quantized(None), snapshot.fresh
            vectors = empty.extended(snapshot.generation, blocks, snapshot.sealed)
            return snapshot.generation, vectors.quantized(None), snapshot.fresh


def _graph_vectors(first: int, block: QuantizedVectors) -> list[GraphVector]:
    """Return the vectors of a block for the graph; those of one entry are adjacent."""
    vectors: list[GraphVector] = []
    for seq, scale, code in zip(block.keys.tolist(), block.scales.tolist(), block.codes, strict=True):
        passage = vectors[-1].passage + 1 if vectors and vectors[-1].seq == seq else 0
        vectors.append(GraphVector(first, seq, passage, scale, code.tobytes()))
    return vectors
