"""The words lane: which messages have the words of a question, scored by BM25.

It knows terms as numbers and never sees a text. A message is one fresh row; every few hundred of them are sealed into
a block of postings, and blocks of one size into a larger one, so that a question reads few rows in a session of any
length.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from recto.errors import StoreError
from recto.recall.index.attributes import AttributeTable, BlockLayout, merge_attributes, session_positions
from recto.recall.index.blocks import (
    DIRECTORY,
    WordBlock,
    attributes_in,
    merge_blocks,
    own_row_parts,
    parts_to_merge,
    read_directory,
    seal_rows,
    select_block_rows,
)
from recto.recall.index.cache import BoundedCache, DecodedRows, UnsealedCounter, decoding
from recto.recall.index.postings import (
    BLOCK_BITS,
    NO_POSTINGS,
    OWN_ROW_AT,
    FreshPostings,
    PostingsBucket,
    TermPostings,
    bucket_part,
    bucket_parts,
    own_part,
    pack_document,
    unpack_documents,
    unpack_own_row,
)
from recto.recall.index.rows import CoveredRange, IndexRow, LaneSnapshot
from recto.recall.protocols import RecallIndex
from recto.recall.types import IndexedDocument
from recto.transcript.entries import MAX_SEQ


@dataclass(frozen=True, slots=True)
class TermStatistics:
    """How common terms are where a question is searched. Those of several sessions add up."""

    documents: int = 0
    length: int = 0
    """Of all messages, in terms."""
    df: Mapping[int, int] = field(default_factory=dict)
    """How many messages have a term."""
    tf: Mapping[int, int] = field(default_factory=dict)
    """How often it stands in all of them together."""

    def __add__(self, other: TermStatistics) -> TermStatistics:
        df, tf = Counter(self.df), Counter(self.tf)
        df.update(other.df)
        tf.update(other.tf)
        return TermStatistics(self.documents + other.documents, self.length + other.length, df, tf)

    def idf(self, term: int) -> float:
        """How much a term tells: the rarer, the more."""
        count = self.df.get(term, 0)
        return math.log(1 + (max(self.documents, count) - count + 0.5) / (count + 0.5))


@dataclass(frozen=True, slots=True)
class WordScores:
    """The messages that have any word of a question, ascending."""

    seqs: NDArray[np.uint32]
    bm25: NDArray[np.float32]
    """Without the constant factor k1 + 1, so it is below the weight of all words together."""
    coverage: NDArray[np.float32]
    """The share of the weight of all words that stands in the message, whether or not any message has the rest."""

    def of(self, seq: int) -> tuple[float, float]:
        """The score and the coverage of one message."""
        at = int(self.seqs.searchsorted(np.uint32(seq)))
        if at == len(self.seqs) or self.seqs[at] != seq:
            return 0.0, 0.0
        return float(self.bm25[at]), float(self.coverage[at])

    def best(self, most: int, hidden: Collection[int] = ()) -> list[tuple[int, float]]:
        """The best ones with their scores, but those that are hidden; of two equal ones the newer comes first."""
        count = most + len(hidden)
        chosen = np.arange(len(self.seqs))
        if 0 < count < len(chosen):
            edge = np.partition(self.bm25, -count)[-count]
            above, at_edge = np.flatnonzero(self.bm25 > edge), np.flatnonzero(self.bm25 == edge)
            chosen = np.concatenate([above, at_edge[len(at_edge) - (count - len(above)) :]])
        order = chosen[np.lexsort((self.seqs[chosen], self.bm25[chosen]))[::-1]]
        pairs = zip(self.seqs[order].tolist(), self.bm25[order].tolist(), strict=True)
        return [pair for pair in pairs if pair[0] not in hidden][: max(most, 0)]


__all__ = ["AttributeTable", "TermStatistics", "WordIndex", "WordScores"]

SEAL_AT = 512
"""So many fresh rows are sealed into a block."""
LARGE = 16_384
"""A fresh row of so many bytes counts for two, and so on."""
MERGE_AT = (16, 8)
"""So many blocks of the first size become one of the second, and so many of those one of the third."""
CACHE_BYTES = 192 * 2**20
"""What is kept in memory over all sessions: 21 bytes for a message, 3 for a posting of a term that was asked for."""


@dataclass(slots=True)
class _SessionView:
    """A session as it is at one moment, with all that a question needs of it."""

    blocks: list[WordBlock]
    fresh: FreshPostings
    pieces: dict[int, dict[int, TermPostings]]
    """By term and by the number of the block."""
    layout: BlockLayout | None

    def counts(self) -> dict[int, int]:
        """How many messages have each term."""
        fresh = self.fresh.pieces(list(self.pieces))
        return {
            term: len(at) + sum([len(piece.at) for piece in known.values()])
            for (term, known), (at, _) in zip(self.pieces.items(), fresh, strict=True)
        }

    def sums(self) -> dict[int, int]:
        """How often each term stands in all messages together; without those that stand in none."""
        fresh = self.fresh.pieces(list(self.pieces))
        sums = {
            term: int(np.concatenate([tf, *[piece.tf for piece in known.values()]]).sum(dtype=np.int64))
            for (term, known), (_, tf) in zip(self.pieces.items(), fresh, strict=True)
        }
        return {term: count for term, count in sums.items() if count}

    def postings(
        self, layout: BlockLayout, terms: Sequence[int]
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.uint8]]]:
        """The messages that have each of these terms, by their place among all, and how often."""
        places = layout.facts.seqs.searchsorted(self.fresh.facts.seqs)
        for term, (at, tf) in zip(terms, self.fresh.pieces(terms), strict=True):
            pieces = [(layout.places[number], piece) for number, piece in self.pieces[term].items() if len(piece.at)]
            yield (
                np.concatenate([*(session_positions(start, piece.at) for start, piece in pieces), places[at]]),
                np.concatenate([*(piece.tf for _, piece in pieces), tf]),
            )


class _PostingsReader:
    """Rows of postings that were read, each taken apart once."""

    def __init__(self, glance: LaneSnapshot, asked: Collection[int]) -> None:
        self._asked = asked
        self._rows = {(row.part, row.first): row.data for row in glance.sealed}
        self._buckets: dict[tuple[int, int], PostingsBucket] = {}

    def piece(self, term: int, block: WordBlock) -> TermPostings | None:
        """The messages of a block that have a term; None where what says so was not read."""
        own = self._rows.get((own_part(term), block.first))
        if own is not None:
            return unpack_own_row(own)
        place = bucket_part(term, block.bits), block.first
        if place not in self._rows:
            return NO_POSTINGS if place[0] in self._asked else None
        if place not in self._buckets:
            self._buckets[place] = PostingsBucket(self._rows[place])
        piece = self._buckets[place].piece(term)
        if piece is None and own_part(term) in self._asked:
            raise ValueError("a term has lost the row of its own")
        return piece


class WordIndex:
    """The words of sessions, kept in one lane of an index. Any number of threads may use it."""

    k1 = 1.2
    """How soon a word that comes again adds nothing more."""
    b = 0.75
    """How much a long message must say more often what it is found by."""
    most_postings = 300_000
    """A question whose words are in more messages of a session leaves its most frequent words out there."""

    def __init__(self, index: RecallIndex, lane: str) -> None:
        self.index = index
        self.lane = lane
        self._layouts: BoundedCache[BlockLayout] = BoundedCache(CACHE_BYTES // 2)
        self._pieces: BoundedCache[dict[int, TermPostings]] = BoundedCache(CACHE_BYTES // 2)
        self._blocks: BoundedCache[list[WordBlock]] = BoundedCache(CACHE_BYTES // 16)
        self._fresh = DecodedRows(unpack_documents)
        self._waiting = UnsealedCounter()

    def covered(self, session: str) -> list[CoveredRange]:
        """Which entries are in."""
        return self.index.covered(session, self.lane)

    def add(self, session: str, documents: Sequence[IndexedDocument], covers: CoveredRange) -> None:
        """Takes messages in; returns when that is confirmed."""
        rows = [pack_document(document) for document in documents]
        self.index.put(session, self.lane, rows, covers)
        counted = self._waiting.add(
            session, _seal_weight(rows), lambda: _seal_weight(self.index.glance(session, self.lane).fresh)
        )
        if counted >= SEAL_AT:
            self._waiting.set(session, 0)
            with suppress(StoreError):  # what was added is confirmed; it is sealed another time
                self.tidy(session)

    def tidy(self, session: str) -> None:
        """Seals what is fresh where it is much, and merges what is small where it is many. Called by `add` too."""
        while self._seal(session):
            pass
        for bits, count in zip(BLOCK_BITS, MERGE_AT, strict=False):
            while self._merge(session, bits, count):
                pass

    def tally(self, session: str, terms: Iterable[int], *, upto: int = MAX_SEQ) -> TermStatistics:
        """How common these terms are in a session, up to and including an entry."""
        view = self._view(session, list(terms), with_facts=upto < MAX_SEQ)
        facts = view.layout.facts if view.layout is not None else None
        known = 0 if facts is None else int(facts.seqs.searchsorted(upto, side="right"))
        if view.layout is not None and facts is not None and known < len(facts):
            asked = list(view.pieces)
            found = [tf[at < known] for at, tf in view.postings(view.layout, asked)]
            df = {term: len(tf) for term, tf in zip(asked, found, strict=True)}
            sums = {term: int(tf.sum(dtype=np.int64)) for term, tf in zip(asked, found, strict=True) if len(tf)}
            return TermStatistics(known, int(facts.lengths[:known].sum(dtype=np.uint64)), df, sums)
        length = sum(block.length for block in view.blocks) + int(view.fresh.facts.lengths.sum(dtype=np.uint64))
        documents = sum(block.documents for block in view.blocks) + len(view.fresh.facts)
        return TermStatistics(documents, length, view.counts(), view.sums())

    def score(self, session: str, query: Mapping[int, float], tally: TermStatistics) -> WordScores:
        """Every message that has a term of the query; the tally is that of all sessions that are searched."""
        weights = {term: weight * tally.idf(term) for term, weight in query.items() if weight > 0}
        view = self._view(session, list(weights), with_facts=True)
        if view.layout is None or not weights:
            return WordScores(np.empty(0, np.uint32), np.empty(0, np.float32), np.empty(0, np.float32))
        with decoding(self.index.location):
            facts = view.layout.facts
            matched = np.zeros(len(facts), np.bool)
            sums = np.zeros(len(facts), np.complex64)  # score and coverage side by side: one pass over memory for both
            average = max(tally.length / max(tally.documents, 1), 1.0)
            terms = self._affordable(view)
            for term, (at, tf) in zip(terms, view.postings(view.layout, terms), strict=True):
                often = tf.astype(np.float32)
                norm = facts.lengths[at].astype(np.float32)
                norm *= np.float32(self.k1 * self.b / average)
                norm += np.float32(self.k1 * (1 - self.b))
                worth = np.full(len(at), 1j * weights[term], np.complex64)
                worth.real = np.float32(weights[term]) * often / (often + norm)
                sums[at] += worth  # no message stands twice among the postings of a term
                matched[at] = True
            found = np.flatnonzero(matched)
            chosen = sums[found]
            coverage = chosen.imag / np.float32(sum(weights.values()))
            return WordScores(facts.seqs[found], chosen.real.copy(), np.minimum(coverage, 1, dtype=np.float32))

    def facts(self, session: str) -> AttributeTable:
        """What is known of every message of a session."""
        layout = self._view(session, [], with_facts=True).layout
        return layout.facts if layout is not None else merge_attributes([])

    def _affordable(self, view: _SessionView) -> list[int]:
        """The terms that are looked for: all, or the rarest ones."""
        counts = sorted((count, term) for term, count in view.counts().items())
        sums = np.cumsum([count for count, _ in counts])
        return [term for place, (_, term) in enumerate(counts) if place == 0 or sums[place] <= self.most_postings]

    def _view(self, session: str, terms: list[int], *, with_facts: bool) -> _SessionView:
        """Reads what is not kept, until nothing that is in the directory at one moment is missing."""
        pieces = {term: dict(self._pieces.get((session, term)) or {}) for term in terms}
        layout = self._layouts.get(session) if with_facts else None
        loaded: dict[int, AttributeTable] = {}
        parts = _missing_parts(pieces, self._blocks.get(session) or ())  # likely still these
        while True:
            glance = self.index.glance(session, self.lane, [DIRECTORY, *parts])
            with decoding(self.index.location):
                blocks = read_directory(glance)
                fresh = self._fresh.of(session, glance.fresh)
                self._take_pieces(session, _PostingsReader(glance, parts), blocks, pieces)
                parts = _missing_parts(pieces, blocks)
                if with_facts:
                    loaded |= attributes_in(glance, blocks)
                    layout, missing = _update_layout(layout, blocks, loaded, fresh.facts)
                    parts |= missing
            if not parts:
                self._blocks.keep(session, blocks, 100 + 100 * len(blocks))
                if layout is not None:
                    self._layouts.keep(session, layout, layout.size)
                return _SessionView(blocks, fresh, pieces, layout)

    def _take_pieces(
        self, session: str, read: _PostingsReader, blocks: list[WordBlock], pieces: dict[int, dict[int, TermPostings]]
    ) -> None:
        """Takes what came of the postings, and lets go of what is of blocks that are no more."""
        there = {block.number for block in blocks}
        for term, known in pieces.items():
            new = {
                block.number: piece
                for block in blocks
                if block.number not in known and (piece := read.piece(term, block)) is not None
            }
            gone = known.keys() - there
            if new or gone:
                known.update(new)
                for number in gone:
                    del known[number]
                size = 200 + sum(200 + piece.at.nbytes + piece.tf.nbytes for piece in known.values())
                self._pieces.keep((session, term), dict(known), size)

    def _weigh(self, session: str) -> float:
        return _seal_weight(self.index.glance(session, self.lane).fresh)

    def _seal(self, session: str) -> bool:
        """Packs fresh rows into a block. False where there is nothing to do, or where somebody else has done it."""
        fresh = self.index.glance(session, self.lane).fresh
        if _seal_weight(fresh) < SEAL_AT:
            return False
        taken = select_block_rows(fresh)
        with decoding(self.index.location):
            rows = seal_rows(taken)
        return self.index.seal(session, self.lane, [row.seq for row in taken], rows)

    def _merge(self, session: str, bits: int, count: int) -> bool:
        """Makes one block out of the oldest ones of a size. False where they are few, or somebody else has done it."""
        blocks = read_directory(self.index.glance(session, self.lane, [DIRECTORY]))
        old = [block for block in blocks if block.bits == bits][:count]
        if len(old) < count:
            return False
        glance = self.index.glance(session, self.lane, parts_to_merge(old))
        if not set(old) <= set(read_directory(glance)):
            return False
        firsts = {block.first for block in old}
        rows = [row for row in glance.sealed if row.first in firsts]
        with decoding(self.index.location):
            buckets = [(row, PostingsBucket(row.data)) for row in rows if row.part in bucket_parts(bits)]
            more = self.index.glance(session, self.lane, own_row_parts(bucket for _, bucket in buckets))
            if more.generation != glance.generation:
                return False
            own = [(row, unpack_own_row(row.data)) for row in more.sealed if row.first in firsts]
            new = merge_blocks(old, attributes_in(glance, old), buckets, own)
        replaced = [(row.part, row.first) for row in (*rows, *(row for row, _ in own))]
        return self.index.seal(session, self.lane, [], new, replaced)


def _seal_weight(rows: Sequence[IndexRow]) -> float:
    return sum(max(1.0, len(row.data) / LARGE) for row in rows)


def _missing_parts(pieces: Mapping[int, Mapping[int, TermPostings]], blocks: Iterable[WordBlock]) -> set[int]:
    """The parts that say what is not known yet of these blocks."""
    found: set[int] = set()
    for term, known in pieces.items():
        for block in blocks:
            if block.number not in known:
                found.add(bucket_part(term, block.bits))
                if block.documents >= OWN_ROW_AT:
                    found.add(own_part(term))
    return found


def _update_layout(
    layout: BlockLayout | None, blocks: list[WordBlock], loaded: Mapping[int, AttributeTable], fresh: AttributeTable
) -> tuple[BlockLayout | None, set[int]]:
    """The layout of all this, or what it still needs of facts."""
    numbers = [block.number for block in blocks]
    total = sum(block.documents for block in blocks) + len(fresh)
    if layout is not None:
        new = [block for block in blocks if block.number not in layout.places]
        missing = {block.facts_part for block in new if block.number not in loaded}
        if not layout.places.keys().isdisjoint(numbers) and missing:
            return layout, missing
        grown = None if missing else layout.grown(numbers, {block.number: loaded[block.number] for block in new}, fresh)
        if grown is not None and len(grown.facts) == total:
            return grown, set()
    missing = {block.facts_part for block in blocks if block.number not in loaded}
    if missing:
        return None, missing
    return BlockLayout.of({number: loaded[number] for number in numbers}, fresh), set()
