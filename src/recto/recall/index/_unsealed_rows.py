"""The rows of messages that are in no sealed block yet, decoded once and kept per session.

They are stored with the transcript, so they need no index of their own. What was appended is noticed by the head of the
session and read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from recto.recall.index.attributes import AttributeTable, merge_attributes
from recto.recall.index.cache import BoundedCache
from recto.recall.index.rows import CoveredRange, IndexRow
from recto.recall.term_rows import HEAD, is_document
from recto.transcript.entries import Entry, Head
from recto.transcript.hash_chain import EMPTY_HEAD
from recto.transcript.protocols import TranscriptStore

_SEGMENT_ROWS = 64
"""Rows that are sorted again when some are added."""
_MAX_ADDED = 512
"""Rows from which on they are decoded, though nothing is searched: what is added copies those that wait."""
_MAX_SEGMENTS = 64
"""Segments from which all rows are decoded together again: only where no process seals."""
_CACHE_BYTES = 64 * 2**20


class TermColumns(NamedTuple):
    """Postings of some terms, as columns."""

    terms: NDArray[np.intp]
    """Places in the list of terms."""
    at: NDArray[np.intp]
    """Positions of the messages that have them."""
    tf: NDArray[np.uint8]


class FreshPostings(NamedTuple):
    """Decoded rows: the attributes of the messages, and their postings sorted by term and position."""

    attributes: AttributeTable
    terms: NDArray[np.uint32]
    at: NDArray[np.intp]
    tf: NDArray[np.uint8]

    def columns(self, terms: NDArray[np.uint32]) -> TermColumns:
        """Return the postings of some terms."""
        starts = self.terms.searchsorted(terms)
        counts = self.terms.searchsorted(terms, side="right") - starts
        ends = counts.cumsum()
        # Each term is a run: the places of all runs, one after the other.
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts)
        return TermColumns(np.repeat(np.arange(len(terms)), counts), self.at[places], self.tf[places])


def unpack_rows(rows: Sequence[IndexRow]) -> FreshPostings:
    """Decode rows that have documents."""
    heads = [HEAD.unpack_from(row.data) for row in rows]
    counts = np.fromiter((head[3] for head in heads), np.int64, len(heads))
    start = HEAD.size
    ends = [start + 4 * head[3] for head in heads]
    terms = np.frombuffer(b"".join([row.data[start:end] for row, end in zip(rows, ends, strict=True)]), "<u4")
    tf = np.frombuffer(b"".join([row.data[end:] for row, end in zip(rows, ends, strict=True)]), "u1")
    order = np.argsort(terms, kind="stable")
    attributes = AttributeTable(
        seqs=np.fromiter((row.seq for row in rows), np.uint32, len(rows)),
        ts=np.fromiter((head[1] for head in heads), np.int64, len(rows)),
        lengths=np.fromiter((head[2] for head in heads), np.uint32, len(rows)),
        marks=np.fromiter((head[4] for head in heads), np.uint32, len(rows)),
        roles=np.fromiter((head[5] for head in heads), np.uint8, len(rows)),
    )
    return FreshPostings(attributes, terms[order], np.repeat(np.arange(len(rows)), counts)[order], tf[order])


def _join(parts: Sequence[FreshPostings]) -> FreshPostings:
    """Join decoded rows, given in ascending order of entries."""
    starts = np.cumsum([0, *(len(part.attributes) for part in parts[:-1])]).tolist()
    terms = np.concatenate([part.terms for part in parts])
    at = np.concatenate([part.at + start for part, start in zip(parts, starts, strict=True)])
    order = np.argsort(terms, kind="stable")
    tf = np.concatenate([part.tf for part in parts])
    return FreshPostings(merge_attributes([part.attributes for part in parts]), terms[order], at[order], tf[order])


class Unsealed(Struct, frozen=True, dict=True):
    """The rows behind the sealed blocks of a session. Immutable."""

    first: int
    """The entry after the last sealed one."""
    head: Head
    """The last entry whose row is among these, if it has one."""
    complete: bool
    """Whether every message from `first` to the head has a row."""
    segments: tuple[FreshPostings, ...]
    """Decoded rows, in ascending order of entries. The last one grows; it is joined with the one before when it is
    about as long."""
    weight: float
    """Number of rows; a large one counts as several."""
    added: tuple[IndexRow, ...] = ()
    """Rows after the segments that are not decoded yet."""
    added_size: int = 0
    """Memory of these in bytes, roughly."""
    segments_size: int = 0
    """Memory of the segments, roughly."""

    def decoded(self) -> Unsealed:
        """Return this with all rows decoded."""
        if not self.added:
            return self
        *full, last = (*self.segments, unpack_rows(self.added))
        # Few segments, so that a query looks into few, and each row is sorted again a few times at most.
        while full and len(full[-1].attributes) < max(_SEGMENT_ROWS, 2 * len(last.attributes)):
            last = _join([full.pop(), last])
        size = sum(13 * len(part.terms) + 21 * len(part.attributes) for part in (*full, last))
        return replace(self, segments=(*full, last), segments_size=size, added=(), added_size=0)

    @cached_property
    def attributes(self) -> AttributeTable:
        """The attributes of all messages."""
        return merge_attributes([part.attributes for part in self.segments])

    def columns(self, terms: Sequence[int]) -> TermColumns:
        """Return the postings of some terms, by term and position; positions are those in `attributes`."""
        keys, offset, found = np.array(terms, np.uint32), 0, [_NO_COLUMNS]
        for part in self.segments:
            columns = part.columns(keys)
            if len(columns.at):
                found.append(columns._replace(at=columns.at + offset))
            offset += len(part.attributes)
        if len(found) <= 2:
            return found[-1]
        joined = TermColumns(*map(np.concatenate, zip(*found, strict=True)))
        order = np.argsort(joined.terms, kind="stable")
        return TermColumns(joined.terms[order], joined.at[order], joined.tf[order])

    @property
    def size(self) -> int:
        """Memory in bytes, roughly."""
        return 500 + self.added_size + self.segments_size

    def extended(self, head: Head, rows: Sequence[IndexRow], *, complete: bool) -> Unsealed:
        """Return this with more rows at its end."""
        return replace(
            self,
            head=head,
            complete=self.complete and complete,
            added=(*self.added, *rows),
            added_size=self.added_size + sum([200 + 4 * len(row.data) for row in rows]),
            weight=self.weight + sum([row_weight(row.data) for row in rows]),
        )


_NO_COLUMNS = TermColumns(np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0, np.uint8))
LARGE = 16_384
"""Bytes from which a row counts as two, and so on."""


def row_weight(data: bytes) -> float:
    """Return how much a row adds to a block."""
    return max(1.0, len(data) / LARGE)


class UnsealedRows:
    """Reads the rows of a store that are in no sealed block. Thread-safe."""

    def __init__(self, store: TranscriptStore, version: bytes) -> None:
        self._store = store
        self._version = version
        self._known: BoundedCache[Unsealed] = BoundedCache(_CACHE_BYTES)

    def of(self, session: str, covered: Sequence[CoveredRange]) -> Unsealed:
        """Return the rows of all entries behind the covered ones."""
        first, head = covered[-1].last + 1 if covered else 1, self._store.head(session)
        known = self._known.get(session)
        if known is not None and known.first == first and known.head == head and known.complete and not known.added:
            return known
        if not self._is_prefix(known, first, head):
            known = None
        if known is None:
            known = Unsealed(first, EMPTY_HEAD if first == 1 else Head(first - 1, b""), True, (), 0.0)
        if known.head != head:
            start = known.head.seq + 1
            rows = self.rows(session, start, head.seq)
            complete = not self._store.lacking_terms(session, self._version, start, head.seq, 1)
            known = known.extended(head, rows, complete=complete)
        known = known.decoded()
        self._known.put(session, known, known.size)
        return known

    def note_stored(self, session: str, entries: Sequence[Entry]) -> None:
        """Take entries that this process has just stored, each message with its row, so that rows are not read back."""
        known = self._known.get(session)
        if known is None or not known.complete or entries[0].prev != known.head.hash:
            return
        rows = [IndexRow(entry.seq, entry.terms) for entry in entries if is_document(entry.terms, self._version)]
        known = known.extended(Head(entries[-1].seq, entries[-1].hash), rows, complete=True)
        if len(known.added) >= _MAX_ADDED:
            known = known.decoded()
        self._known.put(session, known, known.size)

    def _is_prefix(self, known: Unsealed | None, first: int, head: Head) -> bool:
        """Whether what is known is still there, and everything before the last of it was there too."""
        return (
            known is not None
            and known.complete
            and known.first == first
            and (known.head.seq < head.seq or known.head == head)
            and len(known.segments) <= _MAX_SEGMENTS
        )

    def rows(self, session: str, start: int, stop: int) -> list[IndexRow]:
        """Read the rows of a range that have documents."""
        if start > stop:
            return []
        rows = self._store.terms(session, start, stop)
        return [IndexRow(seq, data) for seq, data in rows if is_document(data, self._version)]

    def known(self, session: str) -> Unsealed | None:
        """Return what this process knows, without reading anything."""
        return self._known.get(session)

    def forget(self, session: str) -> None:
        """Drop what is known of a session."""
        self._known.discard(session)
