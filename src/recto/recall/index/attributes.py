"""Attributes of every indexed message: time, role, kind of statement and length, as columns over a session."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from recto.context.facts.types import Mark
from recto.recall.term_rows import ROLES
from recto.transcript.entries import MAX_SEQ, Role

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
