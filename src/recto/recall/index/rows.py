"""The rows a recall index stores, the ranges of entries they cover, and the cache that the lanes share.

`recto.recall.index` defines the terms. The cache is bounded over all sessions, least recently used first out.
"""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

from recto.errors import IndexCorrupt


class IndexRow(NamedTuple):
    """The fresh row of one entry in a lane."""

    seq: int
    data: bytes


class SealedRow(NamedTuple):
    """A row of a sealed block: many entries, in one of several parts that are read separately."""

    part: int
    first: int
    """First entry of the block the row belongs to. `(part, first)` is unique in a lane of a session."""
    data: bytes


class GraphVector(NamedTuple):
    """A vector of a sealed block, to be added to a vector graph."""

    first: int
    """First entry of its block."""
    seq: int
    passage: int
    """Which of the vectors of its entry this is."""
    scale: float
    code: bytes
    """Components, eight bits each. Multiplied by the scale they give the vector."""


class UnlinkedBlocks(NamedTuple):
    """The sealed blocks of a lane that a vector graph does not contain yet."""

    generation: int
    blocks: int
    """Number of blocks of the lane."""
    firsts: Sequence[int]
    """The missing blocks, by their first entries."""


class SealedRange(NamedTuple):
    """What the word index has sealed of a session."""

    block: int
    """The number of one of its blocks: it is random, so another transcript of the same name has other numbers."""
    last: int
    """The last entry that is in a block."""


class CoveredRange(Struct, frozen=True):
    """A range of entries that a lane has indexed."""

    first: int
    last: int
    hash: bytes
    """Hash of the last entry. It detects a transcript that was replaced by another one."""


class LaneSnapshot(Struct, frozen=True):
    """A consistent read of one lane of a session."""

    generation: int
    """Changes with every seal: the same generation means the same sealed rows."""
    fresh: Sequence[IndexRow]
    sealed: Sequence[SealedRow]
    covered: Sequence[CoveredRange] = ()
    """The entries the lane has indexed, as sorted ranges."""


class LaneSize(Struct, frozen=True, kw_only=True):
    """Size of one lane over all sessions."""

    lane: str
    sessions: int
    entries: int
    """Number of entries covered."""
    bytes: int


def join_ranges(ranges: Iterable[CoveredRange]) -> list[CoveredRange]:
    """Merge overlapping and adjacent ranges; the result is sorted."""
    merged: list[CoveredRange] = []
    for covered in sorted(ranges, key=lambda covered: (covered.first, covered.last)):
        if merged and covered.first <= merged[-1].last + 1:
            if covered.last > merged[-1].last:
                merged[-1] = CoveredRange(merged[-1].first, covered.last, covered.hash)
        else:
            merged.append(covered)
    return merged


def gaps(covered: Sequence[CoveredRange], first: int, last: int) -> list[tuple[int, int]]:
    """Return the ranges between `first` and `last` that are not covered. `covered` must be joined already."""
    missing, at = [], first
    for part in covered:
        if part.last < at:
            continue
        if part.first > last:
            break
        if part.first > at:
            missing.append((at, part.first - 1))
        at = part.last + 1
    if at <= last:
        missing.append((at, last))
    return missing


def is_covered(covered: Sequence[CoveredRange], seq: int) -> bool:
    """Whether an entry lies in one of the ranges."""
    return any(part.first <= seq <= part.last for part in covered)


def overlaps(covered: Sequence[CoveredRange], other: CoveredRange) -> bool:
    """Whether one of the ranges has an entry in common with another range."""
    return any(part.first <= other.last and part.last >= other.first for part in covered)


def uncovered_rows(rows: Sequence[IndexRow], covers: CoveredRange, covered: Sequence[CoveredRange]) -> list[IndexRow]:
    """Return the rows of entries that are not covered yet.

    Raises `ValueError` if a row lies outside `covers` or if two rows have the same entry.
    """
    if not 1 <= covers.first <= covers.last:
        raise ValueError(f"no range of entries: {covers.first} to {covers.last}")
    seqs = {row.seq for row in rows}
    if len(seqs) != len(rows) or not all(covers.first <= seq <= covers.last for seq in seqs):
        raise ValueError(f"rows beside the range {covers.first} to {covers.last}, or two of one entry")
    return [row for row in rows if not is_covered(covered, row.seq)]


Value = TypeVar("Value")


class BoundedCache(Generic[Value]):
    """A least-recently-used cache, bounded by the sizes of its values; by their number if no sizes are given."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._size = 0
        self._values: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """Sum of the sizes of all cached values."""
        return self._size

    def get(self, key: Hashable) -> Value | None:
        """Return a cached value; None if it is not cached."""
        with self._lock:
            cached = self._values.get(key)
            if cached is None:
                return None
            self._values.move_to_end(key)
            return cached[0]

    def put(self, key: Hashable, value: Value, size: int = 1) -> None:
        """Cache a value, unless it alone is larger than the cache."""
        with self._lock:
            _, previous = self._values.pop(key, (None, 0))
            self._size -= previous
            if size > self._max_size:
                return
            self._values[key] = (value, size)
            self._size += size
            while self._size > self._max_size:
                _, (_, evicted) = self._values.popitem(last=False)
                self._size -= evicted

    def discard(self, key: Hashable) -> None:
        """Remove a value, if it is cached."""
        with self._lock:
            self._size -= self._values.pop(key, (None, 0))[1]


@contextmanager
def decoding(location: str) -> Iterator[None]:
    """Report decoding errors in this block as a corrupt index."""
    try:
        yield
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error) as error:
        raise IndexCorrupt(location, f"a row in it is not what it should be: {error!s:.200}") from error


class UnsealedCounter:
    """How much of each session waits to be sealed, as far as this process knows. Other processes may add to it too."""

    _MAX_SESSIONS = 4096

    def __init__(self) -> None:
        self._amounts: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, session: str, amount: float, count: Callable[[], float]) -> float:
        """Add an amount and return the total; if the session is not known, `count` reads it from the index."""
        with self._lock:
            known = self._amounts.get(session)
        total = count() if known is None else known + amount
        self.set(session, total)
        return total

    def set(self, session: str, amount: float) -> None:
        """Set the amount of a session."""
        with self._lock:
            self._amounts.pop(session, None)
            if len(self._amounts) >= self._MAX_SESSIONS:
                del self._amounts[next(iter(self._amounts))]
            self._amounts[session] = amount


class DecodedRows(Generic[Value]):
    """The fresh rows of sessions as last decoded, so that the same bytes are not decoded twice."""

    _MAX_SESSIONS = 64
    _MAX_BYTES = 2**20

    def __init__(self, unpack: Callable[[Sequence[IndexRow]], Value]) -> None:
        self._unpack = unpack
        self._known: dict[str, tuple[bytes, Value]] = {}
        self._lock = threading.Lock()

    def of(self, session: str, rows: Sequence[IndexRow]) -> Value:
        """Return the decoded rows."""
        data = b"".join([row.data for row in rows]) + struct.pack(f"<{len(rows)}q", *(row.seq for row in rows))
        known = self._known.get(session)
        if known is not None and known[0] == data:
            return known[1]
        value = self._unpack(rows)
        with self._lock:
            self._known.pop(session, None)
            if len(self._known) >= self._MAX_SESSIONS:
                del self._known[next(iter(self._known))]
            if len(data) <= self._MAX_BYTES:
                self._known[session] = (data, value)
        return value
