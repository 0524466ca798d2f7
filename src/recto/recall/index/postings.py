"""Which messages have which terms, as bytes: one row for a message while it is fresh, rows by term once it is sealed.

A sealed block has up to 65,536 messages. Its terms are dealt out over 2^bits rows by their leading bits, more bits
for a larger block, so that a row has a few kilobytes whatever the size. The part a row is kept in is those leading bits
with a one in front, so no two sizes of blocks share a part. A term that many messages have gets a row of its own.
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
"""What sizes of blocks there are, by how many rows their terms are dealt out over."""
MAX_DOCUMENTS = (512, 8192, 65_536, 65_536)
MAX_POSTINGS = (2**17, 2**21, 2**24, 2**62)
"""What fits into a block of each size; a block of the last one is a message of millions of words."""
OWN_ROW_AT = 1024
"""A term in so many messages of a block has a row of its own."""
MAX_TF = 255

_MESSAGE = struct.Struct("<qIIIB3x")
_BUCKET = struct.Struct("<II")

PostingKeys: TypeAlias = NDArray[np.uint64]
"""Postings as single numbers that sort by term, then by place: term << 24 | place << 8 | how often."""


class TermPostings(NamedTuple):
    """The messages of a block that have a term, by their place in the block, and how often each has it."""

    at: NDArray[np.uint16]
    tf: NDArray[np.uint8]


class FreshPostings(NamedTuple):
    """Fresh rows, read: the facts of the messages, and their postings sorted by term and place."""

    facts: AttributeTable
    terms: NDArray[np.uint32]
    at: NDArray[np.intp]
    tf: NDArray[np.uint8]

    def pieces(self, terms: Sequence[int]) -> list[tuple[NDArray[np.intp], NDArray[np.uint8]]]:
        """The messages that have each of these terms, and how often."""
        wanted = np.array(terms, np.uint32)
        starts, ends = self.terms.searchsorted(wanted), self.terms.searchsorted(wanted, side="right")
        return [(self.at[start:end], self.tf[start:end]) for start, end in zip(starts, ends, strict=True)]


def pack_document(document: IndexedDocument) -> IndexRow:
    """One message as a fresh row."""
    counts = {term: tf for term, tf in document.terms.items() if tf > 0}
    terms = np.fromiter(counts, "<u4", len(counts))
    tf = np.fromiter((min(tf, MAX_TF) for tf in counts.values()), "u1", len(counts))
    length = min(sum(counts.values()), 2**32 - 1)
    head = _MESSAGE.pack(document.ts, length, len(counts), int(document.marks), ROLES.index(document.role))
    return IndexRow(document.seq, head + terms.tobytes() + tf.tobytes())


def unpack_documents(rows: Sequence[IndexRow]) -> FreshPostings:
    """Fresh rows, read."""
    heads = [_MESSAGE.unpack_from(row.data) for row in rows]
    counts = np.fromiter((head[2] for head in heads), np.int64, len(heads))
    start = _MESSAGE.size
    ends = [start + 4 * head[2] for head in heads]
    if any(len(row.data) != end + head[2] for row, head, end in zip(rows, heads, ends, strict=True)):
        raise ValueError("a fresh row of a wrong length")
    terms = np.frombuffer(b"".join([row.data[start:end] for row, end in zip(rows, ends, strict=True)]), "<u4")
    tf = np.frombuffer(b"".join([row.data[end:] for row, end in zip(rows, ends, strict=True)]), "u1")
    order = np.argsort(terms, kind="stable")
    facts = AttributeTable(
        seqs=np.fromiter((row.seq for row in rows), np.uint32, len(rows)),
        ts=np.fromiter((head[0] for head in heads), np.int64, len(rows)),
        lengths=np.fromiter((head[1] for head in heads), np.uint32, len(rows)),
        marks=np.fromiter((head[3] for head in heads), np.uint32, len(rows)),
        roles=np.fromiter((head[4] for head in heads), np.uint8, len(rows)),
    )
    return FreshPostings(facts, terms[order], np.repeat(np.arange(len(rows)), counts)[order], tf[order])


def posting_keys(terms: NDArray[np.uint32], at: NDArray[np.integer], tf: NDArray[np.uint8]) -> PostingKeys:
    """Postings as single numbers."""
    keys: PostingKeys = terms.astype(np.uint64) << np.uint64(24)
    keys |= at.astype(np.uint64) << np.uint64(8)
    keys |= tf
    return keys


def block_bits_for(documents: int, postings: int) -> int:
    """The size of a block that holds so much."""
    for bits, most_documents, most_postings in zip(BLOCK_BITS, MAX_DOCUMENTS, MAX_POSTINGS, strict=True):
        if documents <= most_documents and postings <= most_postings:
            return bits
    raise ValueError(f"{documents} messages are too many for a block")


def bucket_part(term: int, bits: int) -> int:
    """The part of the row that a term is dealt to."""
    return 1 << bits | term >> (32 - bits)


def own_part(term: int) -> int:
    """The part of a term's own row."""
    return 1 << 32 | term


def bucket_parts(bits: int) -> range:
    """All parts of a size of blocks."""
    return range(1 << bits, 2 << bits)


def pack_postings(keys: PostingKeys, bits: int, first: int) -> Iterator[SealedRow]:
    """The rows of a block, or of some of its buckets, from sorted postings."""
    terms = (keys >> np.uint64(24)).astype("<u4")
    at = (keys >> np.uint64(8)).astype("<u2")
    tf = keys.astype("u1")
    starts = np.flatnonzero(np.diff(terms, prepend=terms[:1] + np.uint32(1)))
    ends = np.append(starts[1:], len(terms))
    distinct, counts = terms[starts], ends - starts
    for place in np.flatnonzero(counts >= OWN_ROW_AT):
        own = slice(starts[place], ends[place])
        yield SealedRow(own_part(int(distinct[place])), first, at[own].tobytes() + tf[own].tobytes())
    buckets = distinct >> np.uint32(32 - bits)
    edges = np.flatnonzero(np.diff(buckets, prepend=buckets[:1] + np.uint32(1)))
    for start, end in zip(edges, [*edges[1:], len(buckets)], strict=True):
        inside, several = slice(starts[start], ends[end - 1]), counts[start:end]
        light = np.repeat(several < OWN_ROW_AT, several)
        head = _BUCKET.pack(end - start, int(light.sum()))
        directory = distinct[start:end].tobytes() + np.where(several < OWN_ROW_AT, several, 0).astype("<u2").tobytes()
        data = head + directory + at[inside][light].tobytes() + tf[inside][light].tobytes()
        yield SealedRow(1 << bits | int(buckets[start]), first, data)


class PostingsBucket:
    """One row of postings, read."""

    def __init__(self, data: bytes) -> None:
        count, self._postings = _BUCKET.unpack_from(data)
        self._data = data
        self._start = _BUCKET.size + 6 * count
        if len(data) != self._start + 3 * self._postings:
            raise ValueError("a bucket of a wrong length")
        self.terms = np.frombuffer(data, "<u4", count, _BUCKET.size)
        self.counts = np.frombuffer(data, "<u2", count, _BUCKET.size + 4 * count)
        """How many messages have each term; 0 where the term has a row of its own."""

    def piece(self, term: int) -> TermPostings | None:
        """The messages that have a term. None where the term has a row of its own."""
        place = self.terms.searchsorted(np.uint32(term))
        if place == len(self.terms) or self.terms[place] != term:
            return NO_POSTINGS
        count = int(self.counts[place])
        return self._piece(int(np.add.reduce(self.counts[:place], dtype=np.int64)), count) if count else None

    def keys(self, moved: NDArray[np.uint16]) -> PostingKeys:
        """Its postings as single numbers, with the places that they get in another block."""
        at, tf = self._piece(0, self._postings)
        return posting_keys(np.repeat(self.terms, self.counts), moved[at], tf)

    def _piece(self, start: int, count: int) -> TermPostings:
        at = np.frombuffer(self._data, "<u2", count, self._start + 2 * start)
        tf = np.frombuffer(self._data, "u1", count, self._start + 2 * self._postings + start)
        return TermPostings(at.copy(), tf.copy())  # so that the whole row is not kept for them

    def own_rows(self) -> list[int]:
        """The terms that have a row of their own."""
        return [int(term) for term in self.terms[self.counts == 0]]


NO_POSTINGS = TermPostings(np.empty(0, np.uint16), np.empty(0, np.uint8))


def unpack_own_row(data: bytes) -> TermPostings:
    """The row of one term, read."""
    count = len(data) // 3
    return TermPostings(np.frombuffer(data, "<u2", count), np.frombuffer(data, "u1", count, 2 * count))


def merge_postings(
    buckets: Mapping[int, Sequence[tuple[int, PostingsBucket]]],
    own: Mapping[int, Sequence[tuple[int, TermPostings]]],
    moved: Mapping[int, NDArray[np.uint16]],
    bits: int,
    first: int,
) -> Iterator[SealedRow]:
    """The rows of one block out of those of several, a bucket at a time.

    Buckets are given by part, own rows by term, both with the first entry of the block each is from; `moved` says
    by that entry where the messages of a block stand in the new one.
    """
    by_part: dict[int, list[PostingKeys]] = {part: [] for part in buckets}
    for part, several in buckets.items():
        by_part[part] += [bucket.keys(moved[block]) for block, bucket in several]
    old_bits = max(buckets, default=1).bit_length() - 1
    for term, pieces in own.items():
        more = [
            posting_keys(np.full(len(one.at), term, np.uint32), moved[block][one.at], one.tf) for block, one in pieces
        ]
        by_part[bucket_part(term, old_bits)] += more
    for part in sorted(by_part):
        keys = _sort_keys(by_part.pop(part))
        if len(keys):
            yield from pack_postings(keys, bits, first)


def _sort_keys(several: Iterable[PostingKeys]) -> PostingKeys:
    keys = np.concatenate([np.empty(0, np.uint64), *several])
    keys.sort()
    return keys
