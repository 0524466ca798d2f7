"""Vectors as bytes: eight bits for each number with one scale for a vector, and one bit that says its sign.

The signs of many vectors are compared with those of a question in little time; the codes tell the rest of the truth.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recto.recall.index.rows import IndexRow

if TYPE_CHECKING:
    from recto.recall.protocols import Matrix

Codes: TypeAlias = NDArray[np.int8]
Signs: TypeAlias = NDArray[np.uint64]
"""One row for each 64 bits of a vector, one column for each vector."""

CHUNK = 65_536
_COUNT = struct.Struct("<I")


class QuantizedVectors(NamedTuple):
    """Vectors and the messages they belong to."""

    keys: NDArray[np.uint32]
    scales: NDArray[np.float32]
    codes: Codes

    def cosines(self, query: Matrix) -> NDArray[np.float32]:
        """How near each is to a vector of length 1."""
        return cosines(self.codes, self.scales, query)

    def vectors(self) -> Matrix:
        """As they were, but for what eight bits cannot say."""
        return self.codes * self.scales[:, None]

    def at(self, chosen: NDArray[np.bool]) -> QuantizedVectors:
        """Some of them."""
        return QuantizedVectors(self.keys[chosen], self.scales[chosen], self.codes[chosen])


def quantize(vectors: Matrix) -> tuple[NDArray[np.float32], Codes]:
    """The scales and the codes of vectors, one in each row."""
    clean = np.nan_to_num(vectors.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    scales = (np.abs(clean).max(axis=1, initial=0.0) / 127).astype(np.float32)
    steps = np.where(scales > 0, scales, np.float32(1))[:, None]
    return scales, np.rint(clean / steps).astype(np.int8)


def pack_message(seq: int, vectors: Matrix, dims: int) -> IndexRow:
    """The vectors of one message as a fresh row."""
    if vectors.ndim != 2 or vectors.shape[1] != dims:
        raise ValueError(f"vectors of shape {vectors.shape}, expected rows of {dims}")
    scales, codes = quantize(vectors)
    return IndexRow(seq, _COUNT.pack(len(codes)) + pack_codes(scales, codes))


def unpack_messages(rows: Sequence[IndexRow], dims: int) -> QuantizedVectors:
    """Fresh rows, read."""
    counts = [_COUNT.unpack_from(row.data)[0] for row in rows]
    pairs = [unpack_codes(row.data[_COUNT.size :], count, dims) for row, count in zip(rows, counts, strict=True)]
    keys = np.repeat(np.fromiter((row.seq for row in rows), np.uint32, len(rows)), counts)
    scales = np.concatenate([np.empty(0, np.float32), *(scales for scales, _ in pairs)])
    return QuantizedVectors(
        keys, scales, np.concatenate([np.empty((0, dims), np.int8), *(codes for _, codes in pairs)])
    )


def pack_codes(scales: NDArray[np.float32], codes: Codes) -> bytes:
    """As bytes."""
    return scales.astype("<f4").tobytes() + codes.tobytes()


def unpack_codes(data: bytes, count: int, dims: int) -> tuple[NDArray[np.float32], Codes]:
    """Back from bytes."""
    if len(data) != count * (4 + dims):
        raise ValueError(f"{len(data)} bytes for {count} vectors of {dims}")
    return np.frombuffer(data, "<f4", count), np.frombuffer(data, "i1", count * dims, 4 * count).reshape(count, dims)


def cosines(codes: Codes, scales: NDArray[np.float32], query: Matrix) -> NDArray[np.float32]:
    """How near each vector is to a vector of length 1, a piece at a time: computed they are four times as large."""
    found = np.empty(len(codes), np.float32)
    room = np.empty((min(1024, len(codes)), query.size), np.float32)
    for start in range(0, len(codes), 1024):
        piece = codes[start : start + 1024]
        np.copyto(room[: len(piece)], piece)
        np.matmul(room[: len(piece)], query, out=found[start : start + len(piece)])
    found *= scales
    return found


def sign_bits(vectors: Matrix | Codes) -> Signs:
    """One bit for each number, one where it is above zero."""
    bits = np.packbits(vectors > 0, axis=1)
    padded = np.zeros((len(bits), sign_bytes(vectors.shape[1])), np.uint8)
    padded[:, : bits.shape[1]] = bits
    return padded.view("<u8").T


def sign_bytes(dims: int) -> int:
    """How many bytes the signs of one vector take: whole words of 64 bits."""
    return -(-dims // 64) * 8


def hamming_distances(signs: Signs, query: Signs) -> NDArray[np.uint16]:
    """In how many signs each vector differs from the question."""
    found = np.zeros(signs.shape[1], np.uint16)
    differ = np.empty(min(CHUNK, signs.shape[1]), np.uint64)
    counts = np.empty(len(differ), np.uint8)
    for start in range(0, signs.shape[1], CHUNK):
        total = found[start : start + CHUNK]
        xor, ones = differ[: len(total)], counts[: len(total)]
        for word, asked in zip(signs[:, start : start + CHUNK], query, strict=True):
            np.bitwise_xor(word, asked, out=xor)
            np.bitwise_count(xor, out=ones)
            total += ones
    return found


def smallest(numbers: NDArray[np.uint16], count: int) -> NDArray[np.intp]:
    """The places of so many of the smallest numbers; of equal ones the last."""
    if count >= len(numbers):
        return np.arange(len(numbers))
    edge = _estimate_threshold(numbers, count)
    near = np.flatnonzero(numbers <= edge)
    if len(near) < count:
        near = np.arange(len(numbers))
    among = numbers[near]
    edge = int(np.partition(among, count - 1)[count - 1])
    below, at_edge = np.flatnonzero(among < edge), np.flatnonzero(among == edge)
    chosen: NDArray[np.intp] = near[np.concatenate([below, at_edge[len(at_edge) - (count - len(below)) :]])]
    return chosen


def _estimate_threshold(numbers: NDArray[np.uint16], count: int) -> int:
    """A number that somewhat more than so many are most likely not above: sorting all of them takes too long."""
    step = max(len(numbers) // 16_384, 1)
    sample = numbers[::step]
    rank = min(4 * count // step + 16, len(sample) - 1)
    return int(np.partition(sample, rank)[rank])
