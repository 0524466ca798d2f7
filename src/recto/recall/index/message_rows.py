"""What the index has of each message: its attributes in columns, and its row of terms while no block is sealed over it.

Rows are decoded once and kept per session.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from recto.context.facts.types import Mark
from recto.recall.index.rows import BoundedCache, CoveredRange, IndexRow, SealedRange
from recto.recall.protocols import Lexicon
from recto.recall.term_rows import (
    HEAD,
    ROLES,
    entry_row,
    has_signature,
    is_document,
    row_version,
    with_signature,
)
from recto.transcript.entries import EMPTY_HEAD, MAX_SEQ, Entry, Head, Role
from recto.transcript.protocols import TranscriptStore

_ROW_CACHE_BYTES = 16 * 2**20
_SEALED_BYTES = 4 * 2**20
_MAX_COMPARED = 256
"""Terms of a long message that are compared. Terms are hashes, so the smallest ones are a sample of all."""

TermSet: TypeAlias = NDArray[np.uint32]
EntryKey: TypeAlias = tuple[str, int]
"""A session key and the number of an entry in it."""
_NO_TERMS = np.empty(0, np.uint32)


class MessageRows:
    """Reads the rows of messages. Thread-safe.

    The same messages are candidates of many questions, so the rows of sealed ones are kept: as long as the block is
    there that a session is known by, they cannot have changed.
    """

    def __init__(self, store: TranscriptStore, lexicon: Lexicon) -> None:
        self._store = store
        self._lexicon = lexicon
        self._version = row_version(lexicon)
        self._made: BoundedCache[bytes] = BoundedCache(_ROW_CACHE_BYTES)
        self._sealed: BoundedCache[bytes] = BoundedCache(_SEALED_BYTES)
        """By the number of a block, and the entry."""

    def of(self, keys: Iterable[EntryKey], sealed: Mapping[str, SealedRange] | None = None) -> dict[EntryKey, bytes]:
        """Return the rows of messages, as far as they exist, with one read per session at most.

        `sealed` is what is sealed of these sessions, where it is known.
        """
        sealed = sealed or {}
        by_session: dict[str, list[int]] = {}
        for session, seq in dict.fromkeys(keys):
            by_session.setdefault(session, []).append(seq)
        return {
            (session, seq): row
            for session, seqs in by_session.items()
            for seq, row in self._of_session(session, seqs, sealed.get(session)).items()
        }

    def _of_session(self, session: str, seqs: Sequence[int], sealed: SealedRange | None) -> dict[int, bytes]:
        if sealed is None:
            return self._read(session, seqs)
        block, last = sealed
        known = {seq: row for seq in seqs if seq <= last and (row := self._sealed.get((block, seq))) is not None}
        if len(known) == len(seqs):
            return known
        found = self._read(session, [seq for seq in seqs if seq not in known])
        for seq, row in found.items():
            if seq <= last:
                self._sealed.put((block, seq), row, 200 + len(row))
        return known | found

    def _read(self, session: str, seqs: Sequence[int]) -> dict[int, bytes]:
        rows = self._store.pick_terms(session, seqs)
        found = {seq: row for seq, row in rows.items() if is_document(row, self._version) and has_signature(row)}
        if missing := [seq for seq in seqs if seq not in found]:
            for entry in self._store.pick(session, missing):
                row = self._made_row(entry, rows.get(entry.seq, b""))
                if is_document(row, self._version):
                    found[entry.seq] = row
        return found

    def _made_row(self, entry: Entry, stored: bytes) -> bytes:
        """Make a row that is missing, or add the signature to one."""
        known = self._made.get(entry.hash)
        if known is None:
            is_whole = is_document(stored, self._version)
            known = with_signature(stored, entry) if is_whole else entry_row(entry, self._lexicon)
            self._made.put(entry.hash, known, 200 + len(known))
        return known


def terms_of(row: bytes | None) -> TermSet:
    """Return the terms in the row of a message; none without a row."""
    return np.frombuffer(row, "<u4", (len(row) - HEAD.size) // 5, HEAD.size) if row else _NO_TERMS


def similarities(sets: Sequence[TermSet]) -> NDArray[np.float64]:
    """Return the cosine of every two sets, as a matrix: the share of their terms that two messages have in common.

    Of larger sets a sample is compared.
    """
    sets = [terms if len(terms) <= _MAX_COMPARED else np.sort(terms)[:_MAX_COMPARED] for terms in sets]
    sizes = np.array([len(terms) for terms in sets], np.int64)
    vocabulary, columns = np.unique(np.concatenate([_NO_TERMS, *sets]), return_inverse=True)
    occurs = np.zeros((len(sets), len(vocabulary)), np.float32)
    occurs[np.repeat(np.arange(len(sets)), sizes), columns] = 1
    # Sums of ones are exact in any order, so the result does not depend on how the product is computed.
    cosines: NDArray[np.float64] = (occurs @ occurs.T) / np.sqrt(np.maximum(np.outer(sizes, sizes), 1))
    return cosines


_COLUMNS = {"seqs": "<u4", "ts": "<i8", "lengths": "<u4", "marks": "<u4", "roles": "u1"}
BYTES_PER_MESSAGE = sum(np.dtype(kind).itemsize for kind in _COLUMNS.values())
_MIN_SPARE = 1024
_USER = ROLES.index("user")

BlockPositions: TypeAlias = "int | NDArray[np.intp]"
"""Positions of a block's messages in the session: the first one if they are contiguous, else one each."""


class MessageAttributes(NamedTuple):
    """The attributes of one message."""

    ts: int
    role: Role
    marks: Mark
    length: int


class AttributeTable(Struct, frozen=True, kw_only=True):
    """The attributes of a session's messages, one array per attribute, in ascending order of entries."""

    seqs: NDArray[np.uint32]
    ts: NDArray[np.int64]
    """Microseconds since 1970."""
    lengths: NDArray[np.uint32]
    marks: NDArray[np.uint32]
    roles: NDArray[np.uint8]
    """Positions in `ROLES`."""

    def __len__(self) -> int:
        return len(self.seqs)

    def of(self, seq: int) -> MessageAttributes | None:
        """Return the attributes of one message; None if it is not indexed."""
        at = int(self.seqs.searchsorted(np.uint32(seq)))
        if at == len(self.seqs) or self.seqs[at] != seq:
            return None
        role = ROLES[self.roles[at]]
        return MessageAttributes(int(self.ts[at]), role, Mark(int(self.marks[at])), int(self.lengths[at]))

    def count_through(self, seq: int) -> int:
        """Return how many messages there are up to and including an entry."""
        # A Python number would have the whole column converted first.
        return int(self.seqs.searchsorted(np.uint32(min(max(seq, 0), MAX_SEQ)), side="right"))

    def openings(self, positions: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return the user message that opened the exchange of each message; 0 if there is none."""
        opened = np.flatnonzero(self.roles == _USER)
        seqs = np.concatenate([np.zeros(1, np.int64), self.seqs[opened]])
        return seqs[opened.searchsorted(positions, side="right")]

    def marked(self, mark: Mark, *, after: int = 0) -> NDArray[np.uint32]:
        """Return the messages after an entry that have one of these marks, newest first."""
        at = self.count_through(after)
        is_marked: NDArray[np.bool] = (self.marks[at:] & np.uint32(mark)) != 0
        return self.seqs[at:][is_marked][::-1]

    def packed(self) -> bytes:
        """Encode as bytes, column after column."""
        return b"".join(getattr(self, name).astype(kind).tobytes() for name, kind in _COLUMNS.items())


def unpack_attributes(data: bytes, count: int) -> AttributeTable:
    """Decode `count` messages. Raises `ValueError` if the bytes do not fit."""
    if len(data) != count * BYTES_PER_MESSAGE:
        raise ValueError(f"{len(data)} bytes for the facts of {count} messages")
    columns, at = {}, 0
    for name, kind in _COLUMNS.items():
        columns[name] = np.frombuffer(data, kind, count, at)
        at += columns[name].nbytes
    if columns["roles"].size and columns["roles"].max() >= len(ROLES):
        raise ValueError("a role that is not known")
    return AttributeTable(**columns)


def merge_attributes(tables: Sequence[AttributeTable]) -> AttributeTable:
    """Merge tables into one in ascending order."""
    columns = {
        name: np.concatenate([np.empty(0, kind), *(getattr(table, name) for table in tables)], dtype=kind)
        for name, kind in _COLUMNS.items()
    }
    seqs = columns["seqs"]
    if not (seqs[1:] > seqs[:-1]).all():
        order = np.argsort(seqs, kind="stable")
        columns = {name: column[order] for name, column in columns.items()}
    return AttributeTable(**columns)


class _ColumnBuffer:
    """Columns with spare capacity at the end, so that appending one message does not copy a million."""

    def __init__(self, table: AttributeTable) -> None:
        self.used = len(table)
        capacity = self.used + max(self.used // 8, _MIN_SPARE)
        self.columns = {name: np.empty(capacity, kind) for name, kind in _COLUMNS.items()}
        for name, column in self.columns.items():
            column[: self.used] = getattr(table, name)
        self._lock = threading.Lock()

    def extend(self, used: int, more: AttributeTable) -> bool:
        """Append after `used` messages. False if another reader has appended there already, or if it is full."""
        end = used + len(more)
        # Older views share these arrays and stay valid, because nothing before `used` is ever written again.
        with self._lock:
            if used != self.used or end > len(self.columns["seqs"]):
                return False
            for name, column in self.columns.items():
                column[used:end] = getattr(more, name)
            self.used = end
            return True

    def view(self, end: int) -> AttributeTable:
        return AttributeTable(**{name: column[:end] for name, column in self.columns.items()})


class BlockLayout(Struct, frozen=True):
    """The attributes of a session, and the position of each sealed block in them. Immutable."""

    attributes: AttributeTable
    positions: Mapping[int, BlockPositions]
    """By block number."""
    buffer: _ColumnBuffer

    @classmethod
    def of(cls, blocks: Mapping[int, AttributeTable], fresh: AttributeTable) -> BlockLayout:
        """Build the layout from all blocks and fresh rows."""
        buffer = _ColumnBuffer(merge_attributes([*blocks.values(), fresh]))
        attributes = buffer.view(buffer.used)
        return cls(attributes, {number: _positions(attributes, block.seqs) for number, block in blocks.items()}, buffer)

    def extended(
        self, numbers: Sequence[int], blocks: Mapping[int, AttributeTable], fresh: AttributeTable
    ) -> BlockLayout | None:
        """Return a layout with new rows added, sharing the arrays; None if new rows do not come after the known ones.

        `numbers` are the current blocks, `blocks` those of them that are not in this layout yet.
        """
        if self.positions.keys().isdisjoint(numbers):
            return None  # without a common block nothing shows that these are still the same messages
        attributes, buffer = self.attributes, self.buffer
        for more in (*blocks.values(), fresh):
            new = _rows_after(attributes, more)
            if new is None:
                return None
            if len(new):
                end = len(attributes) + len(new)
                if not buffer.extend(len(attributes), new):
                    buffer = _ColumnBuffer(merge_attributes([attributes, new]))
                attributes = buffer.view(end)
        positions = {number: self.positions[number] for number in numbers if number in self.positions}
        positions |= {number: _positions(attributes, block.seqs) for number, block in blocks.items()}
        return BlockLayout(attributes, positions, buffer)

    @property
    def size(self) -> int:
        """Memory in bytes."""
        arrays = sum(positions.nbytes for positions in self.positions.values() if not isinstance(positions, int))
        return len(self.buffer.columns["seqs"]) * BYTES_PER_MESSAGE + arrays + 100 * len(self.positions)


def session_positions(block: BlockPositions, at: NDArray[np.uint16]) -> NDArray[np.intp]:
    """Map positions in a block to positions in the session."""
    return at.astype(np.intp) + block if isinstance(block, int) else block[at]


def _positions(table: AttributeTable, seqs: NDArray[np.uint32]) -> BlockPositions:
    positions: NDArray[np.intp] = table.seqs.searchsorted(seqs)
    contiguous = len(positions) > 0 and int(positions[-1]) - int(positions[0]) == len(positions) - 1
    return int(positions[0]) if contiguous else positions


def _rows_after(table: AttributeTable, more: AttributeTable) -> AttributeTable | None:
    """Return the rows that come after all known ones; None if one of the others is not known."""
    last = table.seqs[-1] if len(table) else np.uint32(0)
    start = int(more.seqs.searchsorted(last, side="right"))
    at = table.seqs.searchsorted(more.seqs[:start])
    if not np.array_equal(table.seqs[at], more.seqs[:start]):
        return None
    return AttributeTable(**{name: getattr(more, name)[start:] for name in _COLUMNS})


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
