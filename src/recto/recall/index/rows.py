"""The rows a recall index stores, and the ranges of entries they cover. `recto.recall.index` defines the terms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct


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
