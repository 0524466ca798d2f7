"""Sealed blocks of the word index: directory line, attributes and postings, and how blocks are merged."""

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
    fresh = unpack_documents(rows)
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
