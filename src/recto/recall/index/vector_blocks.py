"""Sealed blocks of vectors: how they are stored in the index, and what is cached of them.

A block has its entry numbers and sign bits in one row, and its codes in others. So signs are read without codes, and
the codes of a few vectors without those of all.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from recto.recall.index.quantization import (
    QuantizedVectors,
    pack_codes,
    sign_bits,
    sign_bytes,
    unpack_codes,
    unpack_messages,
)
from recto.recall.index.rows import IndexRow, LaneSnapshot, SealedRow

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedVectors:
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
