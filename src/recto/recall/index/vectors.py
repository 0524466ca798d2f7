"""The vector index: finds the messages nearest to a query vector, by the vectors of one embedder.

Texts are never seen here. A session of moderate length is searched exhaustively. In a longer one the vector graph of
the index selects candidates; without a graph, the sign bits of all vectors select a thousand, whose codes are then
read and compared exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recto.errors import IndexUnavailable, StoreError
from recto.recall.index._graph import VectorGraph
from recto.recall.index.cache import BoundedCache, DecodedRows, UnsealedCounter, decoding
from recto.recall.index.quantization import (
    QuantizedVectors,
    hamming_distances,
    pack_message,
    sign_bits,
    smallest,
    unpack_messages,
)
from recto.recall.index.rows import CoveredRange, LaneSnapshot
from recto.recall.index.vector_blocks import DIRECTORY, SealedVectors, block_parts, read_directory, seal_blocks
from recto.recall.protocols import RecallIndex

if TYPE_CHECKING:
    from recto.recall.protocols import Matrix

SEAL_AT = 512
"""Fresh vectors from which they are sealed."""
CACHE_BYTES = 384 * 2**20
"""Cache over all sessions. The sign bits of a million messages with two vectors each need about 110 MB."""

_MAX_ATTEMPTS = 16
_Only: TypeAlias = "NDArray[np.bool] | Collection[int] | None"


@dataclass(frozen=True, slots=True)
class NearestMessages:
    """Messages by cosine, nearest first."""

    seqs: NDArray[np.uint32]
    cosines: NDArray[np.float32]

    def pairs(self) -> Iterator[tuple[int, float]]:
        """Iterate over messages with their cosines."""
        return zip(self.seqs.tolist(), self.cosines.tolist(), strict=True)


class VectorIndex:
    """The vectors of all sessions, stored in one lane. Thread-safe."""

    max_exhaustive = 65_536
    """Vectors up to which a session is searched exhaustively."""
    rescored = 1000
    """Vectors that sign bits select for exact comparison in a longer session."""

    def __init__(self, index: RecallIndex, lane: str, dims: int) -> None:
        self.index = index
        self.lane = lane
        self.dims = dims
        self._sealed: BoundedCache[SealedVectors] = BoundedCache(CACHE_BYTES)
        self._fresh = DecodedRows(lambda rows: unpack_messages(rows, dims))
        self._unsealed = UnsealedCounter()
        self.graph = VectorGraph(index, lane, dims)

    def covered(self, session: str) -> list[CoveredRange]:
        """Return the ranges of entries that are indexed."""
        return self.index.covered(session, self.lane)

    def add(self, session: str, rows: Sequence[tuple[int, Matrix]], covers: CoveredRange) -> None:
        """Index messages with one or several unit vectors each. Returns once they are durable."""
        packed = [pack_message(seq, vectors, self.dims) for seq, vectors in rows if len(vectors)]
        self.index.put(session, self.lane, packed, covers)
        added = sum(len(vectors) for _, vectors in rows)
        if self._unsealed.add(session, added, lambda: self._count_fresh(session)) >= SEAL_AT:
            self._unsealed.set(session, 0)
            with suppress(StoreError):  # what was added is durable; it is sealed another time
                self.maintain(session)

    def maintain(self, session: str) -> None:
        """Seal fresh rows as far as they fill blocks. `add` calls this too."""
        snapshot = self.index.snapshot(session, self.lane, [DIRECTORY])
        with decoding(self.index.location):
            seqs, rows, merged = seal_blocks(snapshot, self.dims)
        if seqs:
            self.index.seal(session, self.lane, seqs, rows, merged)
            self.graph.mark_sealed(session)

    def nearest(self, session: str, query: Matrix, limit: int, *, only: _Only = None) -> NearestMessages:
        """Return the messages nearest to a unit vector, each by the nearest of its own vectors.

        `only` restricts the search: a collection of entry numbers, or a mask indexed by entry number.
        """
        vector = np.asarray(query, np.float32).reshape(-1)
        if vector.shape != (self.dims,):
            raise ValueError(f"a vector of {vector.size} numbers, expected {self.dims}")
        if limit <= 0 or (only is not None and not len(only)):
            return NearestMessages(np.empty(0, np.uint32), np.empty(0, np.float32))
        if (nearest := self._by_graph(session, vector, limit, only)) is not None:
            return nearest
        sealed, fresh = self._select(session, lambda state: self._positions_to_compare(state, vector, only))
        if only is not None:
            fresh = fresh.at(_mask_of(fresh.keys, only))
        keys = np.concatenate([sealed.keys, fresh.keys])
        return _rank_messages(keys, np.concatenate([sealed.cosines(vector), fresh.cosines(vector)]), limit)

    def _by_graph(self, session: str, vector: Matrix, limit: int, only: _Only) -> NearestMessages | None:
        """Search by the graph of the index; None if the session is too short or there is no graph."""
        cached = self._sealed.get(session)
        if isinstance(only, np.ndarray):
            return None
        if cached is not None and cached.has_codes and len(cached.keys) < self.graph.min_vectors:
            return None  # all of it is in memory, which is faster
        # A message has several vectors: ask for more of them, so that enough distinct messages remain.
        found = self.graph.nearest(session, vector, limit + limit // 2 + 16, only)
        if found is None:
            return None
        keys, cosines, outside = found
        rest = [outside.sealed, self._fresh.of(session, outside.fresh)]
        if only is not None:
            rest = [vectors.at(_mask_of(vectors.keys, only)) for vectors in rest]
        every = np.concatenate([keys, *(vectors.keys for vectors in rest)])
        return _rank_messages(every, np.concatenate([cosines, *(vectors.cosines(vector) for vectors in rest)]), limit)

    def of(self, session: str, seqs: Collection[int]) -> dict[int, Matrix]:
        """Return the vectors of entries as matrices, without entries that have none."""
        sealed, fresh = self._select(session, lambda state: state.positions_of(seqs))
        by_entry: dict[int, list[Matrix]] = {}
        for vectors in (sealed, fresh.at(_mask_of(fresh.keys, seqs))):
            for key, vector in zip(vectors.keys.tolist(), vectors.vectors(), strict=True):
                by_entry.setdefault(key, []).append(vector)
        return {key: np.stack(vectors) for key, vectors in by_entry.items()}

    def _select(
        self, session: str, select: Callable[[SealedVectors], NDArray[np.intp] | None]
    ) -> tuple[QuantizedVectors, QuantizedVectors]:
        """Return the selected sealed vectors, and all fresh ones, of one moment.

        Codes that are not in memory need a second read. If a seal came in between, the positions no longer fit and both
        reads are repeated.
        """
        for _ in range(_MAX_ATTEMPTS):
            sealed, fresh = self._load(session)
            positions = select(sealed)
            if sealed.has_codes:
                return sealed.quantized(positions), fresh
            if positions is None:
                positions = np.arange(len(sealed.keys))
            parts = sealed.code_parts(positions)
            snapshot = self.index.snapshot(session, self.lane, parts)
            if snapshot.generation == sealed.generation:
                with decoding(self.index.location):
                    rows = {row.part: row.data for row in snapshot.sealed}
                    return sealed.from_rows(positions, parts, rows), self._fresh.of(session, snapshot.fresh)
        raise IndexUnavailable(self.index.location, f"session '{session}' changes faster than it can be read")

    def _load(self, session: str) -> tuple[SealedVectors, QuantizedVectors]:
        """Return the sealed vectors, from the cache as far as possible, and the fresh ones, of one moment."""
        sealed = self._sealed.get(session) or SealedVectors.empty(self.dims, with_codes=True)
        parts: set[int] = set()
        while True:
            snapshot = self.index.snapshot(session, self.lane, sorted(parts))
            with decoding(self.index.location):
                if snapshot.generation == sealed.generation:
                    return sealed, self._fresh.of(session, snapshot.fresh)
                sealed, missing = self._update(sealed, snapshot, parts)
                if not missing:
                    self._sealed.put(session, sealed, sealed.size)
                    return sealed, self._fresh.of(session, snapshot.fresh)
                parts |= missing

    def _update(self, sealed: SealedVectors, snapshot: LaneSnapshot, parts: set[int]) -> tuple[SealedVectors, set[int]]:
        """Add new blocks to the cached vectors, or return the parts that must be read first."""
        if DIRECTORY not in parts:
            return sealed, {DIRECTORY}
        blocks = read_directory(snapshot)
        with_codes = int(blocks["count"].sum()) <= self.max_exhaustive
        # A block that no longer exists means that the lane was rebuilt: start again from nothing.
        if not np.isin(sealed.blocks["number"], blocks["number"]).all() or (with_codes and not sealed.has_codes):
            sealed = SealedVectors.empty(self.dims, with_codes=with_codes)
        if sealed.has_codes and not with_codes:
            sealed = sealed.without_codes()
        new = blocks[~np.isin(blocks["number"], sealed.blocks["number"])]
        missing = block_parts(new, self.dims, with_codes=with_codes) - parts
        return (sealed, missing) if missing else (sealed.extended(snapshot.generation, new, snapshot.sealed), missing)

    def _positions_to_compare(self, sealed: SealedVectors, vector: Matrix, only: _Only) -> NDArray[np.intp] | None:
        """Return the positions of the sealed vectors to compare exactly; None for all."""
        positions = None
        if isinstance(only, np.ndarray):
            positions = np.flatnonzero(_mask_of(sealed.keys, only))
        elif only is not None:
            positions = sealed.positions_of(only)
        count = len(sealed.keys) if positions is None else len(positions)
        if sealed.has_codes or count <= self.rescored:
            return positions
        signs = sealed.signs if positions is None else sealed.signs[:, positions]
        chosen = smallest(hamming_distances(signs, sign_bits(vector[None])), self.rescored)
        return chosen if positions is None else positions[chosen]

    def _count_fresh(self, session: str) -> float:
        fresh = self.index.snapshot(session, self.lane).fresh
        return sum(len(row.data) for row in fresh) / (4 + self.dims)


def _mask_of(keys: NDArray[np.uint32], only: NDArray[np.bool] | Collection[int]) -> NDArray[np.bool]:
    """Return the mask of vectors whose entries are searched."""
    if isinstance(only, np.ndarray):
        inside = keys < len(only)
        inside[inside] = only[keys[inside]]
        return inside
    return np.isin(keys, np.fromiter(only, np.int64, len(only)))


def _rank_messages(keys: NDArray[np.uint32], cosines: NDArray[np.float32], limit: int) -> NearestMessages:
    """Return the nearest messages; newer ones first among equals."""
    # Several vectors of one message may be near, so more vectors than messages are needed: the cut grows until it has
    # enough distinct messages.
    size = 2 * limit + 16
    while True:
        near = np.arange(len(keys))
        if size < len(keys):
            near = np.flatnonzero(cosines >= np.partition(cosines, -size)[-size])
        order = near[np.lexsort((keys[near], cosines[near]))[::-1]]
        _, firsts = np.unique(keys[order], return_index=True)
        if len(firsts) >= limit or size >= len(keys):
            chosen = order[np.sort(firsts)[:limit]]
            return NearestMessages(keys[chosen], cosines[chosen])
        size *= 4
