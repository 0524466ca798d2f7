"""The word index: scores messages against the terms of a query by BM25.

Terms are 32-bit numbers; texts are never seen here. Each message has a row in the transcript, stored with it. Every few
hundred are sealed into a block of postings, and blocks of one size class are merged into a larger one, so that a query
reads few rows in a session of any length.
"""

from __future__ import annotations

import math
import secrets
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from recto.recall.index.message_rows import (
    AttributeTable,
    BlockLayout,
    TermColumns,
    Unsealed,
    UnsealedRows,
    merge_attributes,
    row_weight,
    session_positions,
    unpack_attributes,
    unpack_rows,
)
from recto.recall.index.rows import BoundedCache, CoveredRange, IndexRow, LaneSnapshot, SealedRange, SealedRow, decoding
from recto.recall.protocols import RecallIndex
from recto.transcript.entries import MAX_SEQ, Entry
from recto.transcript.protocols import TranscriptStore

BLOCK_BITS = (5, 9, 12, 15)
"""Size classes of blocks, by the number of bits that select a row."""
MAX_DOCUMENTS = (512, 8192, 65_536, 65_536)
MAX_POSTINGS = (2**17, 2**21, 2**24, 2**62)
"""Limits of each size class. A block of the last one is a message of millions of words."""
OWN_ROW_AT = 1024
"""Messages of a block from which a term has a row of its own."""

_BUCKET = struct.Struct("<II")

PostingKeys: TypeAlias = NDArray[np.uint64]
"""Postings as integers that sort by term, then by position: term << 24 | position << 8 | frequency."""


class TermPostings(NamedTuple):
    """The messages of a block that have a term: their positions in the block, and its frequency in each."""

    at: NDArray[np.uint16]
    tf: NDArray[np.uint8]


class JoinedPostings(NamedTuple):
    """The messages of all blocks that have a term: their positions in the session, and its frequency in each."""

    at: NDArray[np.intp]
    tf: NDArray[np.float32]


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


DIRECTORY = -1
"""The part with one line per block."""
_ATTRIBUTES = 1 << 40
_LINE = struct.Struct("<QQQII")


class WordBlock(NamedTuple):
    """A line of the directory."""

    number: int
    """Random, so that no other block ever has it."""
    first: int
    postings: int
    length: int
    """Number of terms in all its messages."""
    documents: int
    bits: int
    """Size class; see `postings`."""

    @property
    def attributes_part(self) -> int:
        """The part with its attributes."""
        return _ATTRIBUTES | self.first


def read_directory(snapshot: LaneSnapshot) -> list[WordBlock]:
    """Return the blocks of a lane, by their first entries."""
    blocks = []
    for row in snapshot.sealed:
        if row.part == DIRECTORY:
            if len(row.data) != _LINE.size:
                raise ValueError("a line of the directory of a wrong length")
            number, postings, length, documents, bits = _LINE.unpack(row.data)
            blocks.append(WordBlock(number, row.first, postings, length, documents, bits))
    return blocks


def attributes_in(snapshot: LaneSnapshot, blocks: Iterable[WordBlock]) -> dict[int, AttributeTable]:
    """Return the attributes in a snapshot, by block number."""
    rows = {row.first: row.data for row in snapshot.sealed if row.part == _ATTRIBUTES | row.first}
    return {
        block.number: unpack_attributes(rows[block.first], block.documents) for block in blocks if block.first in rows
    }


def select_block_rows(fresh: Sequence[IndexRow]) -> list[IndexRow]:
    """Return as many fresh rows as fill a block of the first or second size; fewer if they are large, at least one."""
    selected: list[IndexRow] = []
    size = 0
    for row in fresh[: MAX_DOCUMENTS[1 if len(fresh) >= MAX_DOCUMENTS[1] else 0]]:
        size += len(row.data)
        if selected and size > 5 * MAX_POSTINGS[1]:
            break
        selected.append(row)
    return selected


def seal_rows(rows: Sequence[IndexRow]) -> list[SealedRow]:
    """Pack fresh rows into a block."""
    fresh = unpack_rows(rows)
    bits = block_bits_for(len(rows), len(fresh.terms))
    keys = posting_keys(fresh.terms, fresh.at, fresh.tf)  # sorted by term and place already
    head = _head_rows(fresh.attributes, len(fresh.terms), bits)
    return [*head, *pack_postings(keys, bits, rows[0].seq)]


def parts_to_merge(old: Sequence[WordBlock]) -> list[int]:
    """Return the parts to read before blocks are merged."""
    return [DIRECTORY, *(block.attributes_part for block in old), *bucket_parts(old[0].bits)]


def own_row_parts(buckets: Iterable[PostingsBucket]) -> list[int]:
    """Return the parts to read next: the terms that have rows of their own."""
    return sorted({own_part(term) for bucket in buckets for term in bucket.own_rows()})


def merge_blocks(
    old: Sequence[WordBlock],
    tables: Mapping[int, AttributeTable],
    buckets: Sequence[tuple[SealedRow, PostingsBucket]],
    own: Sequence[tuple[SealedRow, TermPostings]],
) -> list[SealedRow]:
    """Merge several blocks of one size class into one of the next."""
    attributes = merge_attributes([tables[block.number] for block in old])
    postings = sum(block.postings for block in old)
    bits = max(block_bits_for(len(attributes), postings), BLOCK_BITS[BLOCK_BITS.index(old[0].bits) + 1])
    moved = {
        block.first: np.searchsorted(attributes.seqs, tables[block.number].seqs).astype(np.uint16) for block in old
    }
    by_part: dict[int, list[tuple[int, PostingsBucket]]] = {}
    for row, bucket in buckets:
        by_part.setdefault(row.part, []).append((row.first, bucket))
    by_term: dict[int, list[tuple[int, TermPostings]]] = {}
    for row, term_postings in own:
        by_term.setdefault(row.part & 0xFFFFFFFF, []).append((row.first, term_postings))
    first = int(attributes.seqs[0])
    return [*_head_rows(attributes, postings, bits), *merge_postings(by_part, by_term, moved, bits, first)]


def _head_rows(attributes: AttributeTable, postings: int, bits: int) -> list[SealedRow]:
    """Return the line in the directory and the attributes."""
    first = int(attributes.seqs[0])
    length = int(attributes.lengths.sum(dtype=np.uint64))
    line = _LINE.pack(secrets.randbits(64), postings, length, len(attributes), bits)
    return [SealedRow(DIRECTORY, first, line), SealedRow(_ATTRIBUTES | first, first, attributes.packed())]


class TermStatistics(Struct, frozen=True):
    """Frequencies of terms in the searched messages. The statistics of several sessions can be added."""

    documents: int = 0
    length: int = 0
    """Number of terms in all messages."""
    df: Mapping[int, int] = field(default_factory=dict)
    """Number of messages that have a term."""

    def __add__(self, other: TermStatistics) -> TermStatistics:
        df = Counter(self.df)
        df.update(other.df)
        return TermStatistics(self.documents + other.documents, self.length + other.length, df)

    def idf(self, term: int) -> float:
        """Return the inverse document frequency: the rarer a term, the more it weighs."""
        count = self.df.get(term, 0)
        return math.log(1 + (max(self.documents, count) - count + 0.5) / (count + 0.5))


_FEW_POSTINGS = 16_384
"""Postings up to which all of them are added up: quicker than to look for some messages in the postings of each term.
"""
_BEST_STEPS = 8
"""Steps for each message that is wanted, in which the scores of a long session are looked through for the best."""


class WordScores(Struct, frozen=True):
    """Scores of the messages of a session, by their positions in its attributes."""

    bm25: NDArray[np.float32]
    """0 for a message without a term of the query.

    Without the constant factor k1 + 1, so the sum of all term weights is an upper bound.
    """
    matches: Sequence[tuple[np.float32, NDArray[np.intp]]]
    """Weights of the terms that were scored, with ascending positions of messages in blocks that have them."""
    fresh_matched: NDArray[np.float32]
    """The weight that is in each of the last messages, which are in no block."""
    total: float
    """The weight of all terms, including those that were not scored and those that no message has."""

    @classmethod
    def none(cls, messages: int = 0) -> WordScores:
        """Return the scores of messages that have no term of the query."""
        return cls(np.zeros(messages, np.float32), (), np.empty(0, np.float32), 1.0)

    def best(self, limit: int, among: NDArray[np.bool] | None = None) -> NDArray[np.intp]:
        """Return the positions of the best messages, best first; newer ones first among equals."""
        values, limit = self.bm25 if among is None else self.bm25 * among, max(limit, 0)
        least = np.float32(0)
        if len(values) > _BEST_STEPS * limit > 0:
            # As many steps as messages are wanted have a maximum of at least this, so the best ones are not below it.
            step = len(values) // (_BEST_STEPS * limit)
            maxima = np.maximum.reduceat(values, np.arange(0, len(values), step))
            least = np.partition(maxima, -limit)[-limit]
        found = np.flatnonzero(values >= least if least else values)
        return found[np.lexsort((found, values[found]))[::-1]][:limit]

    def coverage(self, positions: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return the share of the total weight that is in each of some messages, given in ascending order."""
        matched = np.zeros(len(positions), np.float32)
        start = len(self.bm25) - len(self.fresh_matched)
        split = int(positions.searchsorted(start))
        matched[split:] = self.fresh_matched[positions[split:] - start]
        if split:
            matched[:split] = self._matched_in_blocks(positions[:split])
        matched /= np.float32(self.total)
        return np.minimum(matched, np.float32(1))

    def _matched_in_blocks(self, sealed: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return the weight that is in each of some messages in blocks."""
        if 0 < sum([len(at) for _, at in self.matches]) <= _FEW_POSTINGS:
            every = np.zeros(len(self.bm25), np.float32)
            weights = [weight for weight, _ in self.matches]
            sizes = [len(at) for _, at in self.matches]
            np.add.at(every, np.concatenate([at for _, at in self.matches]), np.repeat(weights, sizes))
            return every[sealed]
        matched = np.zeros(len(sealed), np.float32)
        for weight, at in self.matches:
            matched += weight * (at.take(at.searchsorted(sealed), mode="clip") == sealed)
        return matched


__all__ = ["AttributeTable", "TermStatistics", "WordIndex", "WordScores"]

SEAL_AT = 512
"""Fresh rows from which they are sealed into a block."""
MERGE_AT = (16, 8)
"""Blocks of the first size class merged into one of the second, and of the second into one of the third."""
CACHE_BYTES = 192 * 2**20
"""Cache over all sessions: 21 bytes per message, and 3 per posting of a term that was searched.

A quarter of it as much again: 12 bytes per posting, for all blocks together.
"""


class SessionView(Struct, frozen=True, dict=True):
    """A consistent view of a session with everything one query needs."""

    blocks: list[WordBlock]
    fresh: Unsealed
    postings: dict[int, dict[int, TermPostings]]
    """By term and block number."""
    layout: BlockLayout | None

    @property
    def sealed(self) -> SealedRange | None:
        """What is sealed; None if there is no block."""
        return SealedRange(self.blocks[0].number, self.fresh.first - 1) if self.blocks else None

    @property
    def attributes(self) -> AttributeTable:
        """The attributes of every message of the session."""
        return self.layout.attributes if self.layout is not None else merge_attributes([])

    @cached_property
    def counts(self) -> dict[int, int]:
        """The number of messages that have each term."""
        fresh = np.bincount(self.fresh_columns.terms, minlength=len(self.postings)).tolist()
        return {
            term: count + sum([len(found.at) for found in known.values()])
            for (term, known), count in zip(self.postings.items(), fresh, strict=True)
        }

    def occurrences(self) -> dict[int, int]:
        """Return how often each term occurs, without terms that do not."""
        fresh = self.fresh_columns
        sums = np.bincount(fresh.terms, fresh.tf, minlength=len(self.postings)).tolist()
        totals = {
            term: int(count) + sum([int(found.tf.sum(dtype=np.int64)) for found in known.values()])
            for (term, known), count in zip(self.postings.items(), sums, strict=True)
        }
        return {term: total for term, total in totals.items() if total}

    def counts_from(self, layout: BlockLayout, start: int) -> dict[int, int]:
        """Return the number of messages from a position on that have each term."""
        fresh = self.fresh_columns
        late = fresh.at >= start - self.fresh_start
        counts = dict(zip(self.postings, np.bincount(fresh.terms[late], minlength=len(self.postings)), strict=True))
        for block in self.blocks:
            positions = layout.positions[block.number]
            last = positions + block.documents - 1 if isinstance(positions, int) else int(positions[-1])
            for term, known in self.postings.items() if last >= start else ():
                counts[term] += np.count_nonzero(session_positions(positions, known[block.number].at) >= start)
        return {term: int(count) for term, count in counts.items()}

    @property
    def fresh_start(self) -> int:
        """The position of the first message that is in no block: those of all blocks come before it."""
        return len(self.attributes) - len(self.fresh.attributes)

    @cached_property
    def fresh_columns(self) -> TermColumns:
        """The postings of messages that are in no block."""
        return self.fresh.columns(list(self.postings))


class _PostingsReader:
    """Rows of postings that were read, each decoded once."""

    def __init__(self, snapshot: LaneSnapshot, parts: Collection[int]) -> None:
        self._parts = parts
        self._rows = {(row.part, row.first): row.data for row in snapshot.sealed}
        self._buckets: dict[tuple[int, int], PostingsBucket] = {}

    def postings(self, term: int, block: WordBlock) -> TermPostings | None:
        """Return the messages of a block that have a term; None if the row that says so was not read."""
        own = self._rows.get((own_part(term), block.first))
        if own is not None:
            return unpack_own_row(own)
        key = bucket_part(term, block.bits), block.first
        if key not in self._rows:
            return NO_POSTINGS if key[0] in self._parts else None
        if key not in self._buckets:
            self._buckets[key] = PostingsBucket(self._rows[key])
        found = self._buckets[key].postings(term)
        if found is None and own_part(term) in self._parts:
            raise ValueError("a term has lost the row of its own")
        return found


class WordIndex:
    """The words of all sessions, stored in one lane. Thread-safe."""

    k1 = 1.2
    """Saturation: how quickly repeated occurrences of a term stop adding to the score."""
    b = 0.75
    """Length normalization: how much long messages are penalized."""
    max_postings = 300_000
    """Postings scored per session. A query with more drops its most frequent terms there."""

    def __init__(self, store: TranscriptStore, index: RecallIndex, lane: str, version: bytes) -> None:
        self.store = store
        self.index = index
        self.lane = lane
        self.version = version
        """What the rows of this index begin with; others count as missing."""
        self._layouts: BoundedCache[BlockLayout] = BoundedCache(CACHE_BYTES // 2)
        self._postings: BoundedCache[dict[int, TermPostings]] = BoundedCache(CACHE_BYTES // 2)
        self._joined: BoundedCache[tuple[tuple[tuple[int, int], ...], JoinedPostings]] = BoundedCache(CACHE_BYTES // 4)
        self._blocks: BoundedCache[list[WordBlock]] = BoundedCache(CACHE_BYTES // 16)
        self._unsealed = UnsealedRows(store, version)

    def sealed(self, session: str) -> list[CoveredRange]:
        """Return the entries that are in sealed blocks; the others are read from their rows in the transcript."""
        return self.index.covered(session, self.lane)

    def missing(self, session: str, first: int, last: int, limit: int | None = None) -> list[int]:
        """Return the first messages of a range that have no row. The index itself is not read."""
        if last <= self.indexed_through(session):
            return []
        return self.store.lacking_terms(session, self.version, first, last, limit)

    def backlog(self, session: str, head: int) -> list[int]:
        """Return the messages up to an entry that have no row."""
        if head <= self.indexed_through(session):
            return []
        sealed = self.sealed(session)
        return self.missing(session, sealed[-1].last + 1 if sealed else 1, head)

    def indexed_through(self, session: str) -> int:
        """Return the entry up to which every message has a row, as far as this process knows. Reads nothing."""
        known = self._unsealed.known(session)
        return known.head.seq if known is not None and known.complete else 0

    def note_stored(self, session: str, entries: Sequence[Entry]) -> None:
        """Take entries that this process has just stored, each message with its row, so that rows are not read back."""
        self._unsealed.note_stored(session, entries)

    def forget(self, session: str) -> None:
        """Drop what this process knows of a session's rows."""
        self._unsealed.forget(session)

    def maintain(self, session: str) -> None:
        """Seal rows if there are many, and merge small blocks if there are many. Takes long; not for a turn."""
        while self._seal(session):
            pass
        for bits, count in zip(BLOCK_BITS, MERGE_AT, strict=False):
            while self._merge(session, bits, count):
                pass

    def view(self, session: str, terms: Sequence[int]) -> SessionView:
        """Read once what a query with these terms needs of a session, for `statistics` and `score`."""
        return self._view(session, list(terms), with_attributes=True)

    def statistics(
        self, session: str, terms: Iterable[int], *, upto: int = MAX_SEQ, view: SessionView | None = None
    ) -> TermStatistics:
        """Return the frequencies of these terms in a session, up to and including an entry."""
        view = view or self._view(session, list(terms), with_attributes=upto < MAX_SEQ)
        # The directory has the totals. What comes after `upto` is little, and is subtracted.
        length = sum(block.length for block in view.blocks) + int(view.fresh.attributes.lengths.sum(dtype=np.uint64))
        documents = sum(block.documents for block in view.blocks) + len(view.fresh.attributes)
        df = view.counts
        if view.layout is not None:
            attributes = view.layout.attributes
            count = attributes.count_through(upto)
            if count < len(attributes):
                length -= int(attributes.lengths[count:].sum(dtype=np.uint64))
                documents = count
                late = view.counts_from(view.layout, count)
                df = {term: total - late[term] for term, total in df.items()}
        return TermStatistics(documents, length, df)

    def score(
        self,
        session: str,
        query: Mapping[int, float],
        statistics: TermStatistics,
        *,
        view: SessionView | None = None,
    ) -> WordScores:
        """Score every message that has a term of the query; the statistics are those of all searched sessions."""
        weights = {term: weight * statistics.idf(term) for term, weight in query.items() if weight > 0}
        view = view or self._view(session, list(weights), with_attributes=True)
        if view.layout is None or not weights:
            return WordScores.none(len(view.attributes))
        with decoding(self.index.location):
            lengths = view.layout.attributes.lengths
            average = max(statistics.length / max(statistics.documents, 1), 1.0)
            norm = lengths.astype(np.float32)
            norm *= np.float32(self.k1 * self.b / average)
            norm += np.float32(self.k1 * (1 - self.b))
            bm25 = np.zeros(len(lengths), np.float32)
            terms, matches = self._affordable(view, weights), []
            for term, (at, tf) in zip(terms, self._sealed_postings(session, view, view.layout, terms), strict=True):
                if len(at):
                    weight = np.float32(weights[term])
                    # A message has one posting of a term, so no position is added to twice.
                    bm25[at] += weight * tf / (tf + norm[at])
                    matches.append((weight, at))
            fresh, start = view.fresh_columns, view.fresh_start
            # Added in the same order and precision as in blocks: sealing a message does not change its score.
            rank = {term: place for place, term in enumerate(terms)}
            ranks = np.array([rank.get(term, len(terms)) for term in view.postings], np.intp)[fresh.terms]
            order = np.argsort(ranks, kind="stable")
            places, counts = fresh.at[order], fresh.tf[order]
            weight_of = np.array([*(weights[term] for term in terms), 0.0], np.float32)[ranks[order]]
            fresh_matched = np.zeros(len(bm25) - start, np.float32)
            np.add.at(bm25[start:], places, weight_of * counts / (counts + norm[start + places]))
            np.add.at(fresh_matched, places, weight_of)
            return WordScores(bm25, matches, fresh_matched, sum(weights.values()))

    def _sealed_postings(
        self, session: str, view: SessionView, layout: BlockLayout, terms: Iterable[int]
    ) -> Iterator[JoinedPostings]:
        """Yield the postings of each term over all blocks, and cache them for the next query."""
        blocks = [(block.number, layout.positions[block.number]) for block in view.blocks]
        # Blocks are in the order of their messages, unless some were indexed late.
        key = tuple((number, at) for number, at in blocks if isinstance(at, int))
        for term in terms:
            known = self._joined.get((session, term))
            if known is not None and known[0] == key:
                yield known[1]
                continue
            of_blocks = [(at, view.postings[term][number]) for number, at in blocks]
            parts = [(session_positions(at, found.at), found.tf) for at, found in of_blocks if len(found.at)]
            at = np.concatenate([np.empty(0, np.intp), *(part[0] for part in parts)])
            tf = np.concatenate([np.empty(0, np.float32), *(part[1] for part in parts)], dtype=np.float32)
            if len(key) < len(blocks):
                order = np.argsort(at, kind="stable")
                yield JoinedPostings(at[order], tf[order])
                continue
            joined = JoinedPostings(at, tf)
            self._joined.put((session, term), (key, joined), 400 + at.nbytes + tf.nbytes)
            yield joined

    def attributes(self, session: str) -> AttributeTable:
        """Return the attributes of every message of a session."""
        return self.view(session, []).attributes

    def _affordable(self, view: SessionView, weights: Mapping[int, float]) -> list[int]:
        """Return the terms to score: all of them, or the rarest if they have too many postings."""
        counts = sorted((count, term) for term, count in view.counts.items() if term in weights)
        sums = np.cumsum([count for count, _ in counts])
        return [term for place, (_, term) in enumerate(counts) if place == 0 or sums[place] <= self.max_postings]

    def _view(self, session: str, terms: list[int], *, with_attributes: bool) -> SessionView:
        """Read what is not cached, until one snapshot of the directory is complete.

        Each round reads the directory together with the parts that the round before found missing. A writer may seal or
        merge between two rounds; then the next directory shows what else is missing. Blocks never change, so what was
        read in earlier rounds stays valid.
        """
        postings = {term: dict(self._postings.get((session, term)) or {}) for term in terms}
        layout = self._layouts.get(session) if with_attributes else None
        loaded: dict[int, AttributeTable] = {}
        # Most often the blocks are those of the last query: guessing so saves the first round.
        parts = _missing_parts(postings, self._blocks.get(session) or ())
        while True:
            snapshot = self.index.snapshot(session, self.lane, [DIRECTORY, *parts])
            with decoding(self.index.location):
                blocks = read_directory(snapshot)
                fresh = self._unsealed.of(session, snapshot.covered)
                self._collect_postings(session, _PostingsReader(snapshot, parts), blocks, postings)
                parts = _missing_parts(postings, blocks)
                if with_attributes:
                    loaded |= attributes_in(snapshot, blocks)
                    layout, missing = _update_layout(layout, blocks, loaded, fresh.attributes)
                    parts |= missing
            if not parts:
                self._blocks.put(session, blocks, 100 + 100 * len(blocks))
                if layout is not None:
                    self._layouts.put(session, layout, layout.size)
                return SessionView(blocks, fresh, postings, layout)

    def _collect_postings(
        self,
        session: str,
        reader: _PostingsReader,
        blocks: list[WordBlock],
        postings: dict[int, dict[int, TermPostings]],
    ) -> None:
        """Add the postings that were read, drop those of blocks that no longer exist, and cache the result."""
        current = {block.number for block in blocks}
        for term, known in postings.items():
            if known.keys() == current:
                continue
            new = {
                block.number: found
                for block in blocks
                if block.number not in known and (found := reader.postings(term, block)) is not None
            }
            gone = known.keys() - current
            if new or gone:
                known.update(new)
                for number in gone:
                    del known[number]
                size = 200 + sum(200 + found.at.nbytes + found.tf.nbytes for found in known.values())
                self._postings.put((session, term), dict(known), size)

    def _seal(self, session: str) -> bool:
        """Pack rows into a block. False if there is nothing to do or another writer has done it."""
        sealed = self.sealed(session)
        start, head = sealed[-1].last + 1 if sealed else 1, self.store.head(session)
        if head.seq < start:
            return False
        rows = list(self._rows_to_seal(session, start, head.seq))
        if rows and (lacking := self.store.lacking_terms(session, self.version, start, rows[-1].seq, 1)):
            rows = [row for row in rows if row.seq < lacking[0]]  # blocks are sealed in order
        if sum(row_weight(row.data) for row in rows) < SEAL_AT:
            return False
        rows = select_block_rows(rows)
        last = rows[-1].seq
        with decoding(self.index.location):
            block = seal_rows(rows)
        entries = self.store.pick(session, [last])
        if not entries:
            return False  # erased in the meantime
        return self.index.seal(session, self.lane, [], block, covers=CoveredRange(start, last, entries[0].hash))

    def _rows_to_seal(self, session: str, start: int, stop: int) -> Iterator[IndexRow]:
        """Read as many rows as one block may take."""
        step, found = MAX_DOCUMENTS[1], 0
        for first in range(start, stop + 1, step):
            rows = self._unsealed.rows(session, first, min(first + step - 1, stop))[: step - found]
            found += len(rows)
            yield from rows
            if found >= step:
                return

    def _merge(self, session: str, bits: int, count: int) -> bool:
        """Merge the oldest blocks of a size class. False if they are few or another writer has done it."""
        blocks = read_directory(self.index.snapshot(session, self.lane, [DIRECTORY]))
        old = [block for block in blocks if block.bits == bits][:count]
        if len(old) < count:
            return False
        snapshot = self.index.snapshot(session, self.lane, parts_to_merge(old))
        if not set(old) <= set(read_directory(snapshot)):
            return False
        firsts = {block.first for block in old}
        rows = [row for row in snapshot.sealed if row.first in firsts]
        with decoding(self.index.location):
            buckets = [(row, PostingsBucket(row.data)) for row in rows if row.part in bucket_parts(bits)]
            more = self.index.snapshot(session, self.lane, own_row_parts(bucket for _, bucket in buckets))
            if more.generation != snapshot.generation:
                return False
            own = [(row, unpack_own_row(row.data)) for row in more.sealed if row.first in firsts]
            new = merge_blocks(old, attributes_in(snapshot, old), buckets, own)
        replaced = [(row.part, row.first) for row in (*rows, *(row for row, _ in own))]
        return self.index.seal(session, self.lane, [], new, replaced)


def _missing_parts(postings: Mapping[int, Mapping[int, TermPostings]], blocks: Iterable[WordBlock]) -> set[int]:
    """Return the parts with postings of these blocks that are not known yet."""
    parts: set[int] = set()
    for term, known in postings.items():
        for block in blocks:
            if block.number not in known:
                parts.add(bucket_part(term, block.bits))
                if block.documents >= OWN_ROW_AT:
                    parts.add(own_part(term))
    return parts


def _update_layout(
    layout: BlockLayout | None, blocks: list[WordBlock], loaded: Mapping[int, AttributeTable], fresh: AttributeTable
) -> tuple[BlockLayout | None, set[int]]:
    """Return the layout of blocks and fresh rows, or the parts with attributes it still needs."""
    numbers = [block.number for block in blocks]
    total = sum(block.documents for block in blocks) + len(fresh)
    if layout is not None:
        new = [block for block in blocks if block.number not in layout.positions]
        missing = {block.attributes_part for block in new if block.number not in loaded}
        if not layout.positions.keys().isdisjoint(numbers) and missing:
            return layout, missing
        extended = None
        if not missing:
            extended = layout.extended(numbers, {block.number: loaded[block.number] for block in new}, fresh)
        if extended is not None and len(extended.attributes) == total:
            return extended, set()
    missing = {block.attributes_part for block in blocks if block.number not in loaded}
    if missing:
        return None, missing
    return BlockLayout.of({number: loaded[number] for number in numbers}, fresh), set()
