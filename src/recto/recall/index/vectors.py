"""The vector index: finds the messages nearest to a query vector, by the vectors of one embedder.

Texts are never seen here. A session of moderate length is searched exhaustively. In a longer one the vector graph of
the index selects candidates; without a graph, the sign bits of all vectors select a thousand, whose codes are then
read and compared exactly.
"""

from __future__ import annotations

import secrets
import struct
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from recto.errors import IndexUnavailable, StoreError
from recto.recall.index.rows import (
    BoundedCache,
    CoveredRange,
    DecodedRows,
    GraphVector,
    IndexRow,
    LaneSnapshot,
    SealedRow,
    UnlinkedBlocks,
    UnsealedCounter,
    decoding,
)
from recto.recall.protocols import RecallIndex, VectorGraphs

if TYPE_CHECKING:
    from recto.recall.protocols import Matrix


Codes: TypeAlias = NDArray[np.int8]
Signs: TypeAlias = NDArray[np.uint64]
"""One row per 64 bits of a vector, one column per vector."""

CHUNK = 65_536
_COUNT = struct.Struct("<I")


class QuantizedVectors(NamedTuple):
    """Vectors and the entries they belong to."""

    keys: NDArray[np.uint32]
    scales: NDArray[np.float32]
    codes: Codes

    def cosines(self, query: Matrix) -> NDArray[np.float32]:
        """Return the cosine of each to a unit vector."""
        return cosines(self.codes, self.scales, query)

    def vectors(self) -> Matrix:
        """Return the vectors, up to the precision of eight bits."""
        return self.codes * self.scales[:, None]

    def at(self, chosen: NDArray[np.bool]) -> QuantizedVectors:
        """Return the vectors of a mask."""
        return QuantizedVectors(self.keys[chosen], self.scales[chosen], self.codes[chosen])


def quantize(vectors: Matrix) -> tuple[NDArray[np.float32], Codes]:
    """Return the scales and codes of vectors, one per row."""
    clean = np.nan_to_num(vectors.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    scales = (np.abs(clean).max(axis=1, initial=0.0) / 127).astype(np.float32)
    steps = np.where(scales > 0, scales, np.float32(1))[:, None]
    return scales, np.rint(clean / steps).astype(np.int8)


def pack_message(seq: int, vectors: Matrix, dims: int) -> IndexRow:
    """Encode the vectors of one message as a fresh row."""
    if vectors.ndim != 2 or vectors.shape[1] != dims:
        raise ValueError(f"vectors of shape {vectors.shape}, expected rows of {dims}")
    scales, codes = quantize(vectors)
    return IndexRow(seq, _COUNT.pack(len(codes)) + pack_codes(scales, codes))


def unpack_messages(rows: Sequence[IndexRow], dims: int) -> QuantizedVectors:
    """Decode fresh rows."""
    counts = [_COUNT.unpack_from(row.data)[0] for row in rows]
    pairs = [unpack_codes(row.data[_COUNT.size :], count, dims) for row, count in zip(rows, counts, strict=True)]
    keys = np.repeat(np.fromiter((row.seq for row in rows), np.uint32, len(rows)), counts)
    scales = np.concatenate([np.empty(0, np.float32), *(scales for scales, _ in pairs)])
    return QuantizedVectors(
        keys, scales, np.concatenate([np.empty((0, dims), np.int8), *(codes for _, codes in pairs)])
    )


def pack_codes(scales: NDArray[np.float32], codes: Codes) -> bytes:
    """Encode scales and codes."""
    return scales.astype("<f4").tobytes() + codes.tobytes()


def unpack_codes(data: bytes, count: int, dims: int) -> tuple[NDArray[np.float32], Codes]:
    """Decode `count` vectors. Raises `ValueError` if the bytes do not fit."""
    if len(data) != count * (4 + dims):
        raise ValueError(f"{len(data)} bytes for {count} vectors of {dims}")
    return np.frombuffer(data, "<f4", count), np.frombuffer(data, "i1", count * dims, 4 * count).reshape(count, dims)


def cosines(codes: Codes, scales: NDArray[np.float32], query: Matrix) -> NDArray[np.float32]:
    """Return the cosine of each vector to a unit vector, in chunks: as floats they are four times as large."""
    result = np.empty(len(codes), np.float32)
    buffer = np.empty((min(1024, len(codes)), query.size), np.float32)
    for start in range(0, len(codes), 1024):
        chunk = codes[start : start + 1024]
        np.copyto(buffer[: len(chunk)], chunk)
        np.matmul(buffer[: len(chunk)], query, out=result[start : start + len(chunk)])
    result *= scales
    return result


def sign_bits(vectors: Matrix | Codes) -> Signs:
    """Return one bit per component: one if it is above zero."""
    bits = np.packbits(vectors > 0, axis=1)
    padded = np.zeros((len(bits), sign_bytes(vectors.shape[1])), np.uint8)
    padded[:, : bits.shape[1]] = bits
    return padded.view("<u8").T


def sign_bytes(dims: int) -> int:
    """Return the bytes for the sign bits of one vector: whole 64-bit words."""
    return -(-dims // 64) * 8


def hamming_distances(signs: Signs, query: Signs) -> NDArray[np.uint16]:
    """Return the number of sign bits in which each vector differs from the query."""
    distances = np.zeros(signs.shape[1], np.uint16)
    differ = np.empty(min(CHUNK, signs.shape[1]), np.uint64)
    counts = np.empty(len(differ), np.uint8)
    for start in range(0, signs.shape[1], CHUNK):
        total = distances[start : start + CHUNK]
        xor, ones = differ[: len(total)], counts[: len(total)]
        for word, query_word in zip(signs[:, start : start + CHUNK], query, strict=True):
            np.bitwise_xor(word, query_word, out=xor)
            np.bitwise_count(xor, out=ones)
            total += ones
    return distances


def smallest(numbers: NDArray[np.uint16], count: int) -> NDArray[np.intp]:
    """Return the positions of the `count` smallest numbers; the last ones among equals."""
    if count >= len(numbers):
        return np.arange(len(numbers))
    edge = _estimate_threshold(numbers, count)
    near = np.flatnonzero(numbers <= edge)
    if len(near) < count:
        near = np.arange(len(numbers))  # the sample was not representative
    among = numbers[near]
    edge = int(np.partition(among, count - 1)[count - 1])
    below, at_edge = np.flatnonzero(among < edge), np.flatnonzero(among == edge)
    chosen: NDArray[np.intp] = near[np.concatenate([below, at_edge[len(at_edge) - (count - len(below)) :]])]
    return chosen


def _estimate_threshold(numbers: NDArray[np.uint16], count: int) -> int:
    """Estimate a threshold with somewhat more than `count` numbers below it: partitioning all takes too long."""
    step = max(len(numbers) // 16_384, 1)
    sample = numbers[::step]
    rank = min(4 * count // step + 16, len(sample) - 1)
    return int(np.partition(sample, rank)[rank])


DIRECTORY = -1
"""The part whose rows list the blocks."""
ROW_BYTES = 4000
"""Size of a row of signs or codes: the database reads a row of this size in one page or chunk."""
MERGE_AT = 64
"""Directory rows that are merged into one."""

_SIGNS = 2 << 32
_CODES = 4 << 32
_LINE = np.dtype([("number", "<u8"), ("first", "<u4"), ("count", "<u4")])
"""A block: a random number that no other block has, its first entry, its number of vectors."""
_MIN_SPARE = 4096


def vectors_per_block(dims: int) -> int:
    """Return the approximate number of vectors per block; the vectors of a message are never separated."""
    return max(ROW_BYTES // (4 + sign_bytes(dims)), 1)


def vectors_per_row(dims: int) -> int:
    """Return the number of vectors per row of codes."""
    return max(ROW_BYTES // (4 + dims), 1)


def read_directory(snapshot: LaneSnapshot) -> NDArray[np.void]:
    """Return the blocks of a lane."""
    return np.frombuffer(b"".join([row.data for row in snapshot.sealed if row.part == DIRECTORY]), _LINE)


def block_parts(blocks: NDArray[np.void], dims: int, *, with_codes: bool) -> set[int]:
    """Return the parts with the rows of blocks."""
    size = vectors_per_row(dims)
    parts = {_SIGNS | first for first in blocks["first"].tolist()}
    if with_codes:
        for _, first, count in blocks.tolist():
            parts |= {_CODES + (group << 32) | first for group in range(-(-count // size))}
    return parts


def sign_parts() -> tuple[int, int]:
    """Return the first and last part of sign rows; every block has exactly one row there."""
    return _SIGNS, _SIGNS | 0xFFFFFFFF


def sign_part(first: int) -> int:
    """Return the part with the signs of the block that begins with an entry."""
    return _SIGNS | first


def blocks_from_signs(rows: Iterable[SealedRow], dims: int) -> NDArray[np.void]:
    """Derive blocks from their sign rows. These do not contain the block numbers, which are set to 0."""
    size = 4 + sign_bytes(dims)
    return np.array([(0, row.first, len(row.data) // size) for row in rows if row.part == sign_part(row.first)], _LINE)


def seal_blocks(snapshot: LaneSnapshot, dims: int) -> tuple[list[int], list[SealedRow], list[tuple[int, int]]]:
    """Pack fresh rows into blocks. Returns their entries, the new rows, and the directory rows they replace."""
    seqs: list[int] = []
    rows: list[SealedRow] = []
    lines: list[tuple[int, int, int]] = []
    for fresh_rows in _split_full_blocks(snapshot.fresh, dims):
        block = unpack_messages(fresh_rows, dims)
        first = fresh_rows[0].seq
        seqs += [row.seq for row in fresh_rows]
        lines.append((secrets.randbits(64), first, len(block.keys)))
        signs = np.ascontiguousarray(sign_bits(block.codes).T)
        rows.append(SealedRow(_SIGNS | first, first, block.keys.astype("<u4").tobytes() + signs.tobytes()))
        for group, start in enumerate(range(0, len(block.keys), vectors_per_row(dims))):
            inside = slice(start, start + vectors_per_row(dims))
            data = pack_codes(block.scales[inside], block.codes[inside])
            rows.append(SealedRow(_CODES + (group << 32) | first, first, data))
    if not seqs:
        return [], [], []
    merged = _mergeable_rows([row for row in snapshot.sealed if row.part == DIRECTORY])
    directory = b"".join(row.data for row in merged) + np.array(lines, _LINE).tobytes()
    first = min([lines[0][1], *(row.first for row in merged)])
    rows.append(SealedRow(DIRECTORY, first, directory))
    return seqs, rows, [(row.part, row.first) for row in merged]


class SealedVectors(Struct, frozen=True, kw_only=True):
    """The sealed vectors of a session in memory: all sign bits, and the codes if they are not too many. Immutable."""

    generation: int
    """Generation of the lane that this reflects."""
    blocks: NDArray[np.void]
    """In the order of their vectors in the arrays."""
    keys: NDArray[np.uint32]
    """The entry of each vector."""
    is_ascending: bool
    buffer: _VectorBuffer

    @classmethod
    def empty(cls, dims: int, *, with_codes: bool) -> SealedVectors:
        """Return the state of a session without sealed vectors."""
        buffer = _VectorBuffer(0, dims, with_codes=with_codes)
        return cls(generation=0, blocks=np.empty(0, _LINE), keys=buffer.keys[:0], is_ascending=True, buffer=buffer)

    @property
    def has_codes(self) -> bool:
        """Whether all vectors can be compared without reading more."""
        return self.buffer.codes is not None

    @property
    def signs(self) -> NDArray[np.uint64]:
        """Sign bits of all vectors, one column each."""
        return self.buffer.signs[:, : len(self.keys)]

    @property
    def size(self) -> int:
        """Memory in bytes."""
        return self.buffer.size + self.blocks.nbytes

    def extended(self, generation: int, new: NDArray[np.void], rows: Iterable[SealedRow]) -> SealedVectors:
        """Return a copy with more blocks, sharing the arrays; `rows` must contain the rows of the new blocks."""
        data = {row.part: row.data for row in rows}
        start, end = len(self.keys), len(self.keys) + int(new["count"].sum())
        buffer = self.buffer.reserve(start, end)
        for _, first, count in new.tolist():
            buffer.write(start, count, first, data)
            start += count
        keys = buffer.keys[:end]
        since = keys[max(len(self.keys) - 1, 0) :]
        is_ascending = self.is_ascending and bool((since[1:] >= since[:-1]).all())
        blocks = np.concatenate([self.blocks, new])
        return SealedVectors(generation=generation, blocks=blocks, keys=keys, is_ascending=is_ascending, buffer=buffer)

    def at(self, generation: int) -> SealedVectors:
        """Return the same vectors at a later generation."""
        return replace(self, generation=generation)

    def without_codes(self) -> SealedVectors:
        """Return a copy with sign bits only."""
        return replace(self, buffer=self.buffer.without_codes(len(self.keys)))

    def positions_of(self, seqs: Collection[int]) -> NDArray[np.intp]:
        """Return the positions of the vectors of entries."""
        keys = np.unique(np.fromiter(seqs, np.uint32, len(seqs)))
        if not self.is_ascending:
            return np.flatnonzero(np.isin(self.keys, keys))
        starts = self.keys.searchsorted(keys)
        counts = self.keys.searchsorted(keys, side="right") - starts
        # Expands each run (start, count) to its positions without a Python loop.
        return np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())

    def quantized(self, positions: NDArray[np.intp] | None) -> QuantizedVectors:
        """Return the vectors at these positions, or all. The codes must be in memory."""
        codes, scales, end = self.buffer.codes, self.buffer.scales, len(self.keys)
        if codes is None or scales is None:
            raise TypeError("the codes are not held")
        if positions is None:
            return QuantizedVectors(self.keys, scales[:end], codes[:end])
        return QuantizedVectors(self.keys[positions], scales[positions], codes[positions])

    def code_parts(self, positions: NDArray[np.intp]) -> list[int]:
        """Return, for each position, the part with the code of its vector."""
        first, inside = self._inside(positions)
        parts: list[int] = (_CODES + ((inside // vectors_per_row(self.buffer.dims)) << 32) + first).tolist()
        return parts

    def from_rows(
        self, positions: NDArray[np.intp], parts: Sequence[int], rows: Mapping[int, bytes]
    ) -> QuantizedVectors:
        """Return the vectors at these positions, from rows of codes that were read."""
        dims = self.buffer.dims
        counts = {part: len(data) // (4 + dims) for part, data in rows.items()}
        if any(len(data) != counts[part] * (4 + dims) for part, data in rows.items()):
            raise ValueError("a row of codes of a wrong length")
        inside = (self._inside(positions)[1] % vectors_per_row(dims)).tolist()
        scales, codes = [], []
        for part, place in zip(parts, inside, strict=True):
            at = 4 * counts[part] + place * dims
            scales.append(rows[part][4 * place : 4 * place + 4])
            codes.append(rows[part][at : at + dims])
        return QuantizedVectors(
            self.keys[positions],
            np.frombuffer(b"".join(scales), "<f4", len(positions)),
            np.frombuffer(b"".join(codes), "i1", len(positions) * dims).reshape(len(positions), dims),
        )

    def _inside(self, positions: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first entry of the block of each vector, and its position in the block."""
        counts = self.blocks["count"].astype(np.int64)
        ends = np.cumsum(counts)
        block = ends.searchsorted(positions, side="right")
        return self.blocks["first"][block].astype(np.int64), positions - (ends - counts)[block]


class _VectorBuffer:
    """Arrays with spare capacity at the end, so that one block more does not copy all of them."""

    def __init__(self, size: int, dims: int, *, with_codes: bool) -> None:
        self.dims = dims
        self.used = 0
        self.keys = np.empty(size, np.uint32)
        self.signs = np.empty((sign_bytes(dims) // 8, size), np.uint64)
        self.codes = np.empty((size, dims), np.int8) if with_codes else None
        self.scales = np.empty(size, np.float32) if with_codes else None
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        arrays = (self.keys, self.signs, self.codes, self.scales)
        return sum(array.nbytes for array in arrays if array is not None)

    def reserve(self, start: int, end: int) -> _VectorBuffer:
        """Reserve positions; returns a larger copy if another reader has written after `start` or if it is full."""
        with self._lock:
            if self.used == start and end <= len(self.keys):
                self.used = end
                return self
        larger = self._copy(start, end + max(end // 4, _MIN_SPARE), with_codes=self.codes is not None)
        larger.used = end
        return larger

    def without_codes(self, end: int) -> _VectorBuffer:
        return self._copy(end, len(self.keys), with_codes=False)

    def write(self, start: int, count: int, first: int, rows: Mapping[int, bytes]) -> None:
        """Write one block from its rows."""
        data, end = rows[_SIGNS | first], start + count
        words = len(self.signs)
        if len(data) != count * (4 + 8 * words):
            raise ValueError(f"{len(data)} bytes for the signs of {count} vectors")
        self.keys[start:end] = np.frombuffer(data, "<u4", count)
        self.signs[:, start:end] = np.frombuffer(data, "<u8", count * words, 4 * count).reshape(count, words).T
        if self.codes is None or self.scales is None:
            return
        size = vectors_per_row(self.dims)
        for group, at in enumerate(range(start, end, size)):
            stop = min(at + size, end)
            scales, codes = unpack_codes(rows[_CODES + (group << 32) | first], stop - at, self.dims)
            self.scales[at:stop], self.codes[at:stop] = scales, codes

    def _copy(self, used: int, size: int, *, with_codes: bool) -> _VectorBuffer:
        buffer = _VectorBuffer(size, self.dims, with_codes=with_codes)
        buffer.used = used
        buffer.keys[:used], buffer.signs[:, :used] = self.keys[:used], self.signs[:, :used]
        for mine, other in ((self.codes, buffer.codes), (self.scales, buffer.scales)):
            if mine is not None and other is not None:
                other[:used] = mine[:used]
        return buffer


def _split_full_blocks(fresh: Sequence[IndexRow], dims: int) -> list[list[IndexRow]]:
    """Distribute fresh rows over blocks. Rows that do not fill a block stay fresh."""
    blocks: list[list[IndexRow]] = []
    rows: list[IndexRow] = []
    count, size = 0, vectors_per_block(dims)
    for row in fresh:
        vectors = len(row.data) // (4 + dims)
        if rows and count + vectors > size:
            blocks.append(rows)
            rows, count = [], 0
        rows.append(row)
        count += vectors
    return [*blocks, rows] if count >= size else blocks


def _mergeable_rows(rows: Sequence[SealedRow]) -> list[SealedRow]:
    """Return directory rows of similar length, if there are enough to merge.

    Two tiers keep both the number of rows and the bytes rewritten per merge small.
    """
    for shortest, longest in ((1, MERGE_AT), (MERGE_AT, MERGE_AT**2)):
        similar = [row for row in rows if shortest <= len(row.data) // _LINE.itemsize < longest]
        if len(similar) >= MERGE_AT:
            return similar
    return []


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


SEAL_AT = 512
"""Fresh vectors from which they are sealed."""
CACHE_BYTES = 384 * 2**20
"""Cache over all sessions. The sign bits of a million messages with two vectors each need about 110 MB."""

_MAX_READ_ATTEMPTS = 16
_Only: TypeAlias = "NDArray[np.bool] | Collection[int] | None"


class NearestMessages(Struct, frozen=True):
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
    """Vectors that sign bits select for exact comparison in a longer session.

    In memory they select four times as many, from twice that number on: comparing all takes longer than selecting.
    """

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
        for _ in range(_MAX_READ_ATTEMPTS):
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
        most = 4 * self.rescored if sealed.has_codes else self.rescored
        if count <= (2 * most if sealed.has_codes else most):
            return positions
        signs = sealed.signs if positions is None else sealed.signs[:, positions]
        chosen = smallest(hamming_distances(signs, sign_bits(vector[None])), most)
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
