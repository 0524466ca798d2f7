"""A sealed block of words as a whole: its line in the directory, its facts, its postings; and many blocks made one."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from recto.recall.index.attributes import AttributeTable, merge_attributes, unpack_attributes
from recto.recall.index.postings import (
    BLOCK_BITS,
    MAX_DOCUMENTS,
    MAX_POSTINGS,
    PostingsBucket,
    TermPostings,
    block_bits_for,
    bucket_parts,
    merge_postings,
    own_part,
    pack_postings,
    posting_keys,
    unpack_documents,
)
from recto.recall.index.rows import IndexRow, LaneSnapshot, SealedRow

DIRECTORY = -1
"""The part with one line for each block."""
_ATTRIBUTES = 1 << 40
_LINE = struct.Struct("<QQQII")


class WordBlock(NamedTuple):
    """A line of the directory."""

    number: int
    """Random, so that it is never another block's."""
    first: int
    postings: int
    length: int
    """Of all its messages, in terms."""
    documents: int
    bits: int
    """Its size; see `postings`."""

    @property
    def facts_part(self) -> int:
        """Where its facts are kept."""
        return _ATTRIBUTES | self.first


def read_directory(glance: LaneSnapshot) -> list[WordBlock]:
    """The blocks there are, by their first entry."""
    found = []
    for row in glance.sealed:
        if row.part == DIRECTORY:
            if len(row.data) != _LINE.size:
                raise ValueError("a line of the directory of a wrong length")
            number, postings, length, documents, bits = _LINE.unpack(row.data)
            found.append(WordBlock(number, row.first, postings, length, documents, bits))
    return found


def attributes_in(glance: LaneSnapshot, blocks: Iterable[WordBlock]) -> dict[int, AttributeTable]:
    """The facts that were read, by the number of their block."""
    rows = {row.first: row.data for row in glance.sealed if row.part == _ATTRIBUTES | row.first}
    return {
        block.number: unpack_attributes(rows[block.first], block.documents) for block in blocks if block.first in rows
    }


def select_block_rows(fresh: Sequence[IndexRow]) -> list[IndexRow]:
    """As many fresh rows as fill a block of the first or the second size; fewer where they are large, at least one."""
    taken: list[IndexRow] = []
    size = 0
    for row in fresh[: MAX_DOCUMENTS[1 if len(fresh) >= MAX_DOCUMENTS[1] else 0]]:
        size += len(row.data)
        if taken and size > 5 * MAX_POSTINGS[1]:
            break
        taken.append(row)
    return taken


def seal_rows(taken: Sequence[IndexRow]) -> list[SealedRow]:
    """Fresh rows as a block."""
    fresh = unpack_documents(taken)
    bits = block_bits_for(len(taken), len(fresh.terms))
    keys = posting_keys(fresh.terms, fresh.at, fresh.tf)  # sorted by term and place already
    head = _head_rows(fresh.facts, len(fresh.terms), bits)
    return [*head, *pack_postings(keys, bits, taken[0].seq)]


def parts_to_merge(old: Sequence[WordBlock]) -> list[int]:
    """What is to be read before blocks are merged."""
    return [DIRECTORY, *(block.facts_part for block in old), *bucket_parts(old[0].bits)]


def own_row_parts(buckets: Iterable[PostingsBucket]) -> list[int]:
    """What is to be read then: the terms that have rows of their own."""
    return sorted({own_part(term) for bucket in buckets for term in bucket.own_rows()})


def merge_blocks(
    old: Sequence[WordBlock],
    facts: Mapping[int, AttributeTable],
    buckets: Sequence[tuple[SealedRow, PostingsBucket]],
    own: Sequence[tuple[SealedRow, TermPostings]],
) -> list[SealedRow]:
    """Several blocks of one size as one of the next."""
    together = merge_attributes([facts[block.number] for block in old])
    postings = sum(block.postings for block in old)
    bits = max(block_bits_for(len(together), postings), BLOCK_BITS[BLOCK_BITS.index(old[0].bits) + 1])
    moved = {one.first: np.searchsorted(together.seqs, facts[one.number].seqs).astype(np.uint16) for one in old}
    by_part: dict[int, list[tuple[int, PostingsBucket]]] = {}
    for row, bucket in buckets:
        by_part.setdefault(row.part, []).append((row.first, bucket))
    by_term: dict[int, list[tuple[int, TermPostings]]] = {}
    for row, piece in own:
        by_term.setdefault(row.part & 0xFFFFFFFF, []).append((row.first, piece))
    first = int(together.seqs[0])
    return [*_head_rows(together, postings, bits), *merge_postings(by_part, by_term, moved, bits, first)]


def _head_rows(facts: AttributeTable, postings: int, bits: int) -> list[SealedRow]:
    """The line in the directory, and the facts."""
    first = int(facts.seqs[0])
    length = int(facts.lengths.sum(dtype=np.uint64))
    line = _LINE.pack(secrets.randbits(64), postings, length, len(facts), bits)
    return [SealedRow(DIRECTORY, first, line), SealedRow(_ATTRIBUTES | first, first, facts.packed())]
