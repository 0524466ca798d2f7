"""A sealed block of words as a whole: its line in the directory, its facts, its postings; and many blocks made one."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from recto.recall.index.attributes import Facts, ordered, unpacked
from recto.recall.index.postings import (
    BITS,
    MOST_DOCUMENTS,
    MOST_POSTINGS,
    Bucket,
    TermPostings,
    bits_for,
    bucket_parts,
    keys_of,
    merged_postings,
    own_part,
    pack_postings,
    unpack_documents,
)
from recto.recall.index_types import Glance, IndexRow, SealedRow

DIRECTORY = -1
"""The part with one line for each block."""
_FACTS = 1 << 40
_LINE = struct.Struct("<QQQII")


class Block(NamedTuple):
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
        return _FACTS | self.first


def directory(glance: Glance) -> list[Block]:
    """The blocks there are, by their first entry."""
    found = []
    for row in glance.sealed:
        if row.part == DIRECTORY:
            if len(row.data) != _LINE.size:
                raise ValueError("a line of the directory of a wrong length")
            number, postings, length, documents, bits = _LINE.unpack(row.data)
            found.append(Block(number, row.first, postings, length, documents, bits))
    return found


def facts_in(glance: Glance, blocks: Iterable[Block]) -> dict[int, Facts]:
    """The facts that were read, by the number of their block."""
    rows = {row.first: row.data for row in glance.sealed if row.part == _FACTS | row.first}
    return {block.number: unpacked(rows[block.first], block.documents) for block in blocks if block.first in rows}


def one_block_of(fresh: Sequence[IndexRow]) -> list[IndexRow]:
    """As many fresh rows as fill a block of the first or the second size; fewer where they are large, at least one."""
    taken: list[IndexRow] = []
    size = 0
    for row in fresh[: MOST_DOCUMENTS[1 if len(fresh) >= MOST_DOCUMENTS[1] else 0]]:
        size += len(row.data)
        if taken and size > 5 * MOST_POSTINGS[1]:
            break
        taken.append(row)
    return taken


def sealed_rows(taken: Sequence[IndexRow]) -> list[SealedRow]:
    """Fresh rows as a block."""
    fresh = unpack_documents(taken)
    bits = bits_for(len(taken), len(fresh.terms))
    keys = keys_of(fresh.terms, fresh.at, fresh.tf)  # sorted by term and place already
    head = _head(fresh.facts, len(fresh.terms), bits)
    return [*head, *pack_postings(keys, bits, taken[0].seq)]


def merge_parts(old: Sequence[Block]) -> list[int]:
    """What is to be read before blocks are merged."""
    return [DIRECTORY, *(block.facts_part for block in old), *bucket_parts(old[0].bits)]


def own_row_parts(buckets: Iterable[Bucket]) -> list[int]:
    """What is to be read then: the terms that have rows of their own."""
    return sorted({own_part(term) for bucket in buckets for term in bucket.own_rows()})


def merged_rows(
    old: Sequence[Block],
    facts: Mapping[int, Facts],
    buckets: Sequence[tuple[SealedRow, Bucket]],
    own: Sequence[tuple[SealedRow, TermPostings]],
) -> list[SealedRow]:
    """Several blocks of one size as one of the next."""
    together = ordered([facts[block.number] for block in old])
    postings = sum(block.postings for block in old)
    bits = max(bits_for(len(together), postings), BITS[BITS.index(old[0].bits) + 1])
    moved = {one.first: np.searchsorted(together.seqs, facts[one.number].seqs).astype(np.uint16) for one in old}
    by_part: dict[int, list[tuple[int, Bucket]]] = {}
    for row, bucket in buckets:
        by_part.setdefault(row.part, []).append((row.first, bucket))
    by_term: dict[int, list[tuple[int, TermPostings]]] = {}
    for row, piece in own:
        by_term.setdefault(row.part & 0xFFFFFFFF, []).append((row.first, piece))
    first = int(together.seqs[0])
    return [*_head(together, postings, bits), *merged_postings(by_part, by_term, moved, bits, first)]


def _head(facts: Facts, postings: int, bits: int) -> list[SealedRow]:
    """The line in the directory, and the facts."""
    first = int(facts.seqs[0])
    length = int(facts.lengths.sum(dtype=np.uint64))
    line = _LINE.pack(secrets.randbits(64), postings, length, len(facts), bits)
    return [SealedRow(DIRECTORY, first, line), SealedRow(_FACTS | first, first, facts.packed())]
