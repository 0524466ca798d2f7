"""What is known of every message beside its words: when it was said, by whom, what kind of thing it is, how long."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recto.context.facts.types import Mark
from recto.transcript.entries import Role

ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool", "event")
"""A role is kept as its place in here, so this never changes but at its end."""

_COLUMNS = {"seqs": "<u4", "ts": "<i8", "lengths": "<u4", "marks": "<u4", "roles": "u1"}
BYTES_PER_MESSAGE = sum(np.dtype(kind).itemsize for kind in _COLUMNS.values())
_MIN_SPARE = 1024

BlockPositions: TypeAlias = "int | NDArray[np.intp]"
"""Where the messages of a block stand among all: the first place where they stand together, or each one's."""


class MessageAttributes(NamedTuple):
    """What is known of one message."""

    ts: int
    role: Role
    marks: Mark
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeTable:
    """The messages of a session, ascending; one array for each thing that is known."""

    seqs: NDArray[np.uint32]
    ts: NDArray[np.int64]
    """Microseconds since 1970."""
    lengths: NDArray[np.uint32]
    marks: NDArray[np.uint32]
    roles: NDArray[np.uint8]
    """Places in `ROLES`."""

    def __len__(self) -> int:
        return len(self.seqs)

    def of(self, seq: int) -> MessageAttributes | None:
        """What is known of one message; None where it is not in the index."""
        at = int(self.seqs.searchsorted(np.uint32(seq)))
        if at == len(self.seqs) or self.seqs[at] != seq:
            return None
        role = ROLES[self.roles[at]]
        return MessageAttributes(int(self.ts[at]), role, Mark(int(self.marks[at])), int(self.lengths[at]))

    def between(self, start: int, end: int) -> NDArray[np.uint32]:
        """The messages said from `start` up to but not at `end`, in microseconds, ascending."""
        is_between: NDArray[np.bool] = (self.ts >= start) & (self.ts < end)
        return self.seqs[is_between]

    def spoken_by(self, role: Role) -> NDArray[np.uint32]:
        """The messages of one speaker, ascending."""
        found: NDArray[np.uint32] = self.seqs[self.roles == ROLES.index(role)]
        return found

    def marked(self, mark: Mark, *, after: int = 0) -> NDArray[np.uint32]:
        """The messages after an entry that have one of these marks, newest first."""
        at = int(self.seqs.searchsorted(np.uint32(after), side="right"))
        is_marked: NDArray[np.bool] = (self.marks[at:] & np.uint32(mark)) != 0
        return self.seqs[at:][is_marked][::-1]

    def packed(self) -> bytes:
        """As bytes, column after column."""
        return b"".join(getattr(self, name).astype(kind).tobytes() for name, kind in _COLUMNS.items())


def unpack_attributes(data: bytes, count: int) -> AttributeTable:
    """Back from bytes."""
    if len(data) != count * BYTES_PER_MESSAGE:
        raise ValueError(f"{len(data)} bytes for the facts of {count} messages")
    columns, at = {}, 0
    for name, kind in _COLUMNS.items():
        columns[name] = np.frombuffer(data, kind, count, at)
        at += columns[name].nbytes
    if columns["roles"].size and columns["roles"].max() >= len(ROLES):
        raise ValueError("a role that is not known")
    return AttributeTable(**columns)


def merge_attributes(several: Sequence[AttributeTable]) -> AttributeTable:
    """All of them in one, ascending."""
    columns = {
        name: np.concatenate([np.empty(0, kind), *(getattr(one, name) for one in several)], dtype=kind)
        for name, kind in _COLUMNS.items()
    }
    seqs = columns["seqs"]
    if not (seqs[1:] > seqs[:-1]).all():
        order = np.argsort(seqs, kind="stable")
        columns = {name: column[order] for name, column in columns.items()}
    return AttributeTable(**columns)


class _ColumnBuffer:
    """Arrays with room at their end, so that a message more does not copy a million."""

    def __init__(self, facts: AttributeTable) -> None:
        self.used = len(facts)
        room = self.used + max(self.used // 8, _MIN_SPARE)
        self.columns = {name: np.empty(room, kind) for name, kind in _COLUMNS.items()}
        for name, column in self.columns.items():
            column[: self.used] = getattr(facts, name)
        self._lock = threading.Lock()

    def extend(self, used: int, more: AttributeTable) -> bool:
        """Writes behind what is used. False where somebody else has, or where there is no room left."""
        end = used + len(more)
        with self._lock:
            if used != self.used or end > len(self.columns["seqs"]):
                return False
            for name, column in self.columns.items():
                column[used:end] = getattr(more, name)
            self.used = end
            return True

    def view(self, end: int) -> AttributeTable:
        return AttributeTable(**{name: column[:end] for name, column in self.columns.items()})


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """The facts of a session, and where the messages of each sealed block stand among them. It never changes."""

    facts: AttributeTable
    places: Mapping[int, BlockPositions]
    """By the number of the block."""
    room: _ColumnBuffer

    @classmethod
    def of(cls, blocks: Mapping[int, AttributeTable], fresh: AttributeTable) -> BlockLayout:
        """From everything there is."""
        room = _ColumnBuffer(merge_attributes([*blocks.values(), fresh]))
        facts = room.view(room.used)
        return cls(facts, {number: _positions(facts, one.seqs) for number, one in blocks.items()}, room)

    def grown(
        self, numbers: Sequence[int], blocks: Mapping[int, AttributeTable], fresh: AttributeTable
    ) -> BlockLayout | None:
        """With what is new, where all of it comes after what is known already, or is known already; else None.

        `numbers` are the blocks there are now, `blocks` those of them that are not in this layout yet.
        """
        if self.places.keys().isdisjoint(numbers):
            return None  # nothing vouches for it that these are still the same messages
        facts, room = self.facts, self.room
        for more in (*blocks.values(), fresh):
            new = _rows_after(facts, more)
            if new is None:
                return None
            if len(new):
                end = len(facts) + len(new)
                if not room.extend(len(facts), new):
                    room = _ColumnBuffer(merge_attributes([facts, new]))
                facts = room.view(end)
        places = {number: self.places[number] for number in numbers if number in self.places}
        places |= {number: _positions(facts, one.seqs) for number, one in blocks.items()}
        return BlockLayout(facts, places, room)

    @property
    def size(self) -> int:
        """In bytes."""
        arrays = sum(one.nbytes for one in self.places.values() if not isinstance(one, int))
        return len(self.room.columns["seqs"]) * BYTES_PER_MESSAGE + arrays + 100 * len(self.places)


def session_positions(places: BlockPositions, at: NDArray[np.uint16]) -> NDArray[np.intp]:
    """From places in a block to places among all."""
    return at.astype(np.intp) + places if isinstance(places, int) else places[at]


def _positions(facts: AttributeTable, seqs: NDArray[np.uint32]) -> BlockPositions:
    places: NDArray[np.intp] = facts.seqs.searchsorted(seqs)
    together = len(places) > 0 and int(places[-1]) - int(places[0]) == len(places) - 1
    return int(places[0]) if together else places


def _rows_after(facts: AttributeTable, more: AttributeTable) -> AttributeTable | None:
    """The part of them that comes after all that is known; None where one of the others is not known."""
    last = facts.seqs[-1] if len(facts) else np.uint32(0)
    start = int(more.seqs.searchsorted(last, side="right"))
    at = facts.seqs.searchsorted(more.seqs[:start])
    if not np.array_equal(facts.seqs[at], more.seqs[:start]):
        return None
    return AttributeTable(**{name: getattr(more, name)[start:] for name in _COLUMNS})
