"""Encodes postings (which messages have which terms): one fresh row per message, then rows by term once sealed.

A sealed block has up to 65,536 messages. Its terms are distributed over 2^bits rows by their leading bits, with more
bits for a larger block, so that a row has a few kilobytes whatever the size of the block. The part of a row is those
leading bits with a one in front, so blocks of two sizes never share a part. A term in many messages gets a row of its
own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recto.recall.index.attributes import ROLES, AttributeTable
from recto.recall.index.rows import IndexRow, SealedRow
from recto.recall.types import IndexedDocument

BLOCK_BITS = (5, 9, 12, 15)
"""Size classes of blocks, by the number of bits that select a row."""
MAX_DOCUMENTS = (512, 8192, 65_536, 65_536)
MAX_POSTINGS = (2**17, 2**21, 2**24, 2**62)
"""Limits of each size class. A block of the last one is a message of millions of words."""
OWN_ROW_AT = 1024
"""Messages of a block from which a term has a row of its own."""
MAX_TF = 255

_MESSAGE = struct.Struct("<qIIIB3x")
_BUCKET = struct.Struct("<II")

PostingKeys: TypeAlias = NDArray[np.uint64]
"""Postings as integers that sort by term, then by position: term << 24 | position << 8 | frequency."""


class TermPostings(NamedTuple):
    """The messages of a block that have a term: their positions in the block, and its frequency in each."""

    at: NDArray[np.uint16]
    tf: NDArray[np.uint8]


class FreshPostings(NamedTuple):
    """Decoded fresh rows: the attributes of the messages, and their postings sorted by term and position."""

    attributes: AttributeTable
    terms: NDArray[np.uint32]
    at: NDArray[np.intp]
    tf: NDArray[np.uint8]

    def postings(self, terms: Sequence[int]) -> list[tuple[NDArray[np.intp], NDArray[np.uint8]]]:
        """Return, for each term, the positions of the messages that have it and its frequency in each."""
        keys = np.array(terms, np.uint32)
        starts, ends = self.terms.searchsorted(keys), self.terms.searchsorted(keys, side="right")
        return [(self.at[start:end], self.tf[start:end]) for start, end in zip(starts, ends, strict=True)]


def pack_document(document: IndexedDocument) -> IndexRow:
    """Encode a message as a fresh row."""
    counts = {term: tf for term, tf in document.terms.items() if tf > 0}
    terms = np.fromiter(counts, "<u4", len(counts))
    tf = np.fromiter((min(tf, MAX_TF) for tf in counts.values()), "u1", len(counts))
    length = min(sum(counts.values()), 2**32 - 1)
    head = _MESSAGE.pack(document.ts, length, len(counts), int(document.marks), ROLES.index(document.role))
    return IndexRow(document.seq, head + terms.tobytes() + tf.tobytes())


def unpack_documents(rows: Sequence[IndexRow]) -> FreshPostings:
    """Decode fresh rows."""
    heads = [_MESSAGE.unpack_from(row.data) for row in rows]
    counts = np.fromiter((head[2] for head in heads), np.int64, len(heads))
    start = _MESSAGE.size
    ends = [start + 4 * head[2] for head in heads]
    if any(len(row.data) != end + head[2] for row, head, end in zip(rows, heads, ends, strict=True)):
        raise ValueError("a fresh row of a wrong length")
    terms = np.frombuffer(b"".join([row.data[start:end] for row, end in zip(rows, ends, strict=True)]), "<u4")
    tf = np.frombuffer(b"".join([row.data[end:] for row, end in zip(rows, ends, strict=True)]), "u1")
    order = np.argsort(terms, kind="stable")
    attributes = AttributeTable(
        seqs=np.fromiter((row.seq for row in rows), np.uint32, len(rows)),
        ts=np.fromiter((head[0] for head in heads), np.int64, len(rows)),
        lengths=np.fromiter((head[1] for head in heads), np.uint32, len(rows)),
        marks=np.fromiter((head[3] for head in heads), np.uint32, len(rows)),
        roles=np.fromiter((head[4] for head in heads), np.uint8, len(rows)),
    )
    return FreshPostings(attributes, terms[order], np.repeat(np.arange(len(rows)), counts)[order], tf[order])


def posting_keys(terms: NDArray[np.uint32], at: NDArray[np.integer], tf: NDArray[np.uint8]) -> PostingKeys:
    """Encode postings as integers."""
    keys: PostingKeys = terms.astype(np.uint64) << np.uint64(24)
    keys |= at.astype(np.uint64) << np.uint64(8)
    keys |= tf
    return keys


def block_bits_for(documents: int, postings: int) -> int:
    """Return the size class for so many messages and postings."""
    for bits, max_documents, max_postings in zip(BLOCK_BITS, MAX_DOCUMENTS, MAX_POSTINGS, strict=True):
        if documents <= max_documents and postings <= max_postings:
            return bits
    raise ValueError(f"{documents} messages are too many for a block")


def bucket_part(term: int, bits: int) -> int:
    """Return the part of the row that contains a term."""
    return 1 << bits | term >> (32 - bits)


def own_part(term: int) -> int:
    """Return the part of a term's own row."""
    return 1 << 32 | term


def bucket_parts(bits: int) -> range:
    """Return all bucket parts of a size class."""
    return range(1 << bits, 2 << bits)


def pack_postings(keys: PostingKeys, bits: int, first: int) -> Iterator[SealedRow]:
    """Yield the rows of a block, or of some of its buckets, from sorted postings."""
    terms = (keys >> np.uint64(24)).astype("<u4")
    at = (keys >> np.uint64(8)).astype("<u2")
    tf = keys.astype("u1")
    # Terms are sorted, so each one is a run. The prepended value differs from the first: run starts include 0.
    starts = np.flatnonzero(np.diff(terms, prepend=terms[:1] + np.uint32(1)))
    ends = np.append(starts[1:], len(terms))
    distinct, counts = terms[starts], ends - starts
    for place in np.flatnonzero(counts >= OWN_ROW_AT):
        own = slice(starts[place], ends[place])
        yield SealedRow(own_part(int(distinct[place])), first, at[own].tobytes() + tf[own].tobytes())
    buckets = distinct >> np.uint32(32 - bits)
    edges = np.flatnonzero(np.diff(buckets, prepend=buckets[:1] + np.uint32(1)))
    for start, end in zip(edges, [*edges[1:], len(buckets)], strict=True):
        inside, sizes = slice(starts[start], ends[end - 1]), counts[start:end]
        in_bucket = np.repeat(sizes < OWN_ROW_AT, sizes)
        head = _BUCKET.pack(end - start, int(in_bucket.sum()))
        # A count of 0 says that the term has a row of its own.
        directory = distinct[start:end].tobytes() + np.where(sizes < OWN_ROW_AT, sizes, 0).astype("<u2").tobytes()
        data = head + directory + at[inside][in_bucket].tobytes() + tf[inside][in_bucket].tobytes()
        yield SealedRow(1 << bits | int(buckets[start]), first, data)


class PostingsBucket:
    """A decoded row of postings."""

    def __init__(self, data: bytes) -> None:
        count, self._count = _BUCKET.unpack_from(data)
        self._data = data
        self._start = _BUCKET.size + 6 * count
        if len(data) != self._start + 3 * self._count:
            raise ValueError("a bucket of a wrong length")
        self.terms = np.frombuffer(data, "<u4", count, _BUCKET.size)
        self.counts = np.frombuffer(data, "<u2", count, _BUCKET.size + 4 * count)
        """Number of messages per term; 0 if the term has a row of its own."""

    def postings(self, term: int) -> TermPostings | None:
        """Return the messages that have a term; None if the term has a row of its own."""
        place = self.terms.searchsorted(np.uint32(term))
        if place == len(self.terms) or self.terms[place] != term:
            return NO_POSTINGS
        count = int(self.counts[place])
        return self._slice(int(np.add.reduce(self.counts[:place], dtype=np.int64)), count) if count else None

    def keys(self, moved: NDArray[np.uint16]) -> PostingKeys:
        """Return its postings as integers, with the positions they get in another block."""
        at, tf = self._slice(0, self._count)
        return posting_keys(np.repeat(self.terms, self.counts), moved[at], tf)

    def _slice(self, start: int, count: int) -> TermPostings:
        at = np.frombuffer(self._data, "<u2", count, self._start + 2 * start)
        tf = np.frombuffer(self._data, "u1", count, self._start + 2 * self._count + start)
        return TermPostings(at.copy(), tf.copy())  # copies, so that caching them does not keep the whole row alive

    def own_rows(self) -> list[int]:
        """Return the terms that have a row of their own."""
        return [int(term) for term in self.terms[self.counts == 0]]


NO_POSTINGS = TermPostings(np.empty(0, np.uint16), np.empty(0, np.uint8))


def unpack_own_row(data: bytes) -> TermPostings:
    """Decode the row of one term."""
    count = len(data) // 3
    return TermPostings(np.frombuffer(data, "<u2", count), np.frombuffer(data, "u1", count, 2 * count))


def merge_postings(
    buckets: Mapping[int, Sequence[tuple[int, PostingsBucket]]],
    own: Mapping[int, Sequence[tuple[int, TermPostings]]],
    moved: Mapping[int, NDArray[np.uint16]],
    bits: int,
    first: int,
) -> Iterator[SealedRow]:
    """Yield the rows of a block merged from several, a bucket at a time, which bounds the memory.

    Buckets are grouped by part, own rows by term, each with the first entry of its block; `moved` gives, by that entry,
    the positions of the block's messages in the new block.
    """
    by_part: dict[int, list[PostingKeys]] = {part: [] for part in buckets}
    for part, rows in buckets.items():
        by_part[part] += [bucket.keys(moved[block]) for block, bucket in rows]
    old_bits = max(buckets, default=1).bit_length() - 1
    for term, rows_of_term in own.items():
        more = [
            posting_keys(np.full(len(found.at), term, np.uint32), moved[block][found.at], found.tf)
            for block, found in rows_of_term
        ]
        by_part[bucket_part(term, old_bits)] += more
    for part in sorted(by_part):
        keys = _sort_keys(by_part.pop(part))
        if len(keys):
            yield from pack_postings(keys, bits, first)


def _sort_keys(parts: Iterable[PostingKeys]) -> PostingKeys:
    keys = np.concatenate([np.empty(0, np.uint64), *parts])
    keys.sort()
    return keys
