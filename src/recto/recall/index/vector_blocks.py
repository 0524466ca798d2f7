"""The sealed vectors of a session: how blocks of them are kept in an index, and what is held of them in memory.

A block has the numbers of its messages and the signs of its vectors in one row, and their codes in others, so that
signs are read without codes, and codes of a few vectors without those of all.
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
"""The part whose rows say which blocks there are."""
ROW_BYTES = 4000
"""As many vectors are in a row as fit into this, of signs or of codes: a store reads such rows at one stroke."""
MERGE_AT = 64
"""So many rows of the directory become one."""

_SIGNS = 2 << 32
_CODES = 4 << 32
_LINE = np.dtype([("number", "<u8"), ("first", "<u4"), ("count", "<u4")])
"""A block: a random number that is never another block's, its first entry, how many vectors it has."""
_MIN_SPARE = 4096


def vectors_per_block(dims: int) -> int:
    """How many vectors are sealed into a block, about: the vectors of a message are never parted."""
    return max(ROW_BYTES // (4 + sign_bytes(dims)), 1)


def vectors_per_row(dims: int) -> int:
    """The codes of how many vectors are kept in one row."""
    return max(ROW_BYTES // (4 + dims), 1)


def read_directory(glance: LaneSnapshot) -> NDArray[np.void]:
    """The blocks there are."""
    return np.frombuffer(b"".join([row.data for row in glance.sealed if row.part == DIRECTORY]), _LINE)


def block_parts(blocks: NDArray[np.void], dims: int, *, with_codes: bool) -> set[int]:
    """Where blocks are kept."""
    size = vectors_per_row(dims)
    found = {_SIGNS | first for first in blocks["first"].tolist()}
    if with_codes:
        for _, first, count in blocks.tolist():
            found |= {_CODES + (group << 32) | first for group in range(-(-count // size))}
    return found


def sign_parts() -> tuple[int, int]:
    """The first and the last part in which every block has one row."""
    return _SIGNS, _SIGNS | 0xFFFFFFFF


def sign_part(first: int) -> int:
    """The part in which the block that begins with an entry has its signs."""
    return _SIGNS | first


def blocks_from_signs(rows: Iterable[SealedRow], dims: int) -> NDArray[np.void]:
    """Blocks, by the rows of their signs. What their numbers are is not told there."""
    size = 4 + sign_bytes(dims)
    return np.array([(0, row.first, len(row.data) // size) for row in rows if row.part == sign_part(row.first)], _LINE)


def seal_blocks(glance: LaneSnapshot, dims: int) -> tuple[list[int], list[SealedRow], list[tuple[int, int]]]:
    """Fresh rows as blocks: which entries they are of, the new rows, and the rows of the directory they replace."""
    taken: list[int] = []
    rows: list[SealedRow] = []
    lines: list[tuple[int, int, int]] = []
    for several in _split_full_blocks(glance.fresh, dims):
        block = unpack_messages(several, dims)
        first = several[0].seq
        taken += [row.seq for row in several]
        lines.append((secrets.randbits(64), first, len(block.keys)))
        signs = np.ascontiguousarray(sign_bits(block.codes).T)
        rows.append(SealedRow(_SIGNS | first, first, block.keys.astype("<u4").tobytes() + signs.tobytes()))
        for group, start in enumerate(range(0, len(block.keys), vectors_per_row(dims))):
            inside = slice(start, start + vectors_per_row(dims))
            data = pack_codes(block.scales[inside], block.codes[inside])
            rows.append(SealedRow(_CODES + (group << 32) | first, first, data))
    if not taken:
        return [], [], []
    merged = _mergeable_rows([row for row in glance.sealed if row.part == DIRECTORY])
    together = b"".join(row.data for row in merged) + np.array(lines, _LINE).tobytes()
    first = min([lines[0][1], *(row.first for row in merged)])
    rows.append(SealedRow(DIRECTORY, first, together))
    return taken, rows, [(row.part, row.first) for row in merged]


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedVectors:
    """The sealed vectors of a session, all their signs and perhaps their codes. It never changes."""

    generation: int
    """Of the lane, when this was all there was."""
    blocks: NDArray[np.void]
    """In the order in which their vectors stand here."""
    keys: NDArray[np.uint32]
    """The entry each vector belongs to."""
    is_ascending: bool
    room: _VectorBuffer

    @classmethod
    def empty(cls, dims: int, *, with_codes: bool) -> SealedVectors:
        """Of a session that nothing is sealed of."""
        room = _VectorBuffer(0, dims, with_codes=with_codes)
        return cls(generation=0, blocks=np.empty(0, _LINE), keys=room.keys[:0], is_ascending=True, room=room)

    @property
    def has_codes(self) -> bool:
        """Whether everything can be compared without reading more."""
        return self.room.codes is not None

    @property
    def signs(self) -> NDArray[np.uint64]:
        """Of all vectors; one column for each."""
        return self.room.signs[:, : len(self.keys)]

    @property
    def size(self) -> int:
        """In bytes."""
        return self.room.size + self.blocks.nbytes

    def grown(self, generation: int, new: NDArray[np.void], rows: Iterable[SealedRow]) -> SealedVectors:
        """With more blocks, whose rows were read."""
        data = {row.part: row.data for row in rows}
        start, end = len(self.keys), len(self.keys) + int(new["count"].sum())
        room = self.room.fitting(start, end)
        for _, first, count in new.tolist():
            room.write(start, count, first, data)
            start += count
        keys = room.keys[:end]
        since = keys[max(len(self.keys) - 1, 0) :]
        is_ascending = self.is_ascending and bool((since[1:] >= since[:-1]).all())
        blocks = np.concatenate([self.blocks, new])
        return SealedVectors(generation=generation, blocks=blocks, keys=keys, is_ascending=is_ascending, room=room)

    def at(self, generation: int) -> SealedVectors:
        """The same, at a later generation."""
        return replace(self, generation=generation)

    def without_codes(self) -> SealedVectors:
        """With signs alone."""
        return replace(self, room=self.room.without_codes(len(self.keys)))

    def places_of(self, seqs: Collection[int]) -> NDArray[np.intp]:
        """Where the vectors of entries stand."""
        wanted = np.unique(np.fromiter(seqs, np.uint32, len(seqs)))
        if not self.is_ascending:
            return np.flatnonzero(np.isin(self.keys, wanted))
        starts = self.keys.searchsorted(wanted)
        counts = self.keys.searchsorted(wanted, side="right") - starts
        return np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())

    def coded(self, places: NDArray[np.intp] | None) -> QuantizedVectors:
        """The vectors at these places, or all, where their codes are held."""
        codes, scales, end = self.room.codes, self.room.scales, len(self.keys)
        if codes is None or scales is None:
            raise TypeError("the codes are not held")
        if places is None:
            return QuantizedVectors(self.keys, scales[:end], codes[:end])
        return QuantizedVectors(self.keys[places], scales[places], codes[places])

    def code_parts(self, places: NDArray[np.intp]) -> list[int]:
        """Where the codes of the vectors at these places are kept, one for each."""
        first, inside = self._inside(places)
        parts: list[int] = (_CODES + ((inside // vectors_per_row(self.room.dims)) << 32) + first).tolist()
        return parts

    def picked(self, places: NDArray[np.intp], parts: Sequence[int], rows: Mapping[int, bytes]) -> QuantizedVectors:
        """The vectors at these places, from rows of codes that were read."""
        dims = self.room.dims
        counts = {part: len(data) // (4 + dims) for part, data in rows.items()}
        if any(len(data) != counts[part] * (4 + dims) for part, data in rows.items()):
            raise ValueError("a row of codes of a wrong length")
        inside = (self._inside(places)[1] % vectors_per_row(dims)).tolist()
        scales, codes = [], []
        for part, place in zip(parts, inside, strict=True):
            at = 4 * counts[part] + place * dims
            scales.append(rows[part][4 * place : 4 * place + 4])
            codes.append(rows[part][at : at + dims])
        return QuantizedVectors(
            self.keys[places],
            np.frombuffer(b"".join(scales), "<f4", len(places)),
            np.frombuffer(b"".join(codes), "i1", len(places) * dims).reshape(len(places), dims),
        )

    def _inside(self, places: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first entry of the block each vector is in, and its place in the block."""
        counts = self.blocks["count"].astype(np.int64)
        ends = np.cumsum(counts)
        block = ends.searchsorted(places, side="right")
        return self.blocks["first"][block].astype(np.int64), places - (ends - counts)[block]


class _VectorBuffer:
    """Arrays with room at their end, so that a block more does not copy all that are held."""

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
        return sum(one.nbytes for one in arrays if one is not None)

    def fitting(self, start: int, end: int) -> _VectorBuffer:
        """This one, where nobody else has written behind `start` and there is room; else a larger copy."""
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
        """One block, from its rows."""
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
        room = _VectorBuffer(size, self.dims, with_codes=with_codes)
        room.used = used
        room.keys[:used], room.signs[:, :used] = self.keys[:used], self.signs[:, :used]
        for mine, other in ((self.codes, room.codes), (self.scales, room.scales)):
            if mine is not None and other is not None:
                other[:used] = mine[:used]
        return room


def _split_full_blocks(fresh: Sequence[IndexRow], dims: int) -> list[list[IndexRow]]:
    """Fresh rows dealt out over blocks; those that do not fill one stay."""
    found: list[list[IndexRow]] = []
    several: list[IndexRow] = []
    count, block = 0, vectors_per_block(dims)
    for row in fresh:
        vectors = len(row.data) // (4 + dims)
        if several and count + vectors > block:
            found.append(several)
            several, count = [], 0
        several.append(row)
        count += vectors
    return [*found, several] if count >= block else found


def _mergeable_rows(rows: Sequence[SealedRow]) -> list[SealedRow]:
    """Rows of the directory that are as long as they get in one step, where there are many of them."""
    for least, most in ((1, MERGE_AT), (MERGE_AT, MERGE_AT**2)):
        alike = [row for row in rows if least <= len(row.data) // _LINE.itemsize < most]
        if len(alike) >= MERGE_AT:
            return alike
    return []
