"""Encodes vectors: eight bits per component with one scale per vector, and one sign bit per component.

Sign bits of many vectors are compared with those of a query in little time; the codes then give exact cosines.
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
