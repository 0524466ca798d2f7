"""What an index of recall is made of: rows of bytes in lanes, and which entries they cover.

A lane is one kind of index of a session: its words, or the vectors of one embedder. Every covered entry that has
something to be found by has a row. Rows are fresh, one for an entry, until many of them are packed into sealed ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class IndexRow(NamedTuple):
    """What a lane knows of one entry."""

    seq: int
    data: bytes


class SealedRow(NamedTuple):
    """What a lane knows of many entries, in one of several parts that are read apart from each other."""

    part: int
    first: int
    """The first entry of the block it belongs to. `(part, first)` is unique in a lane of a session."""
    data: bytes


class GraphVector(NamedTuple):
    """A vector of a sealed block, to be taken into a graph."""

    first: int
    """The first entry of its block."""
    seq: int
    piece: int
    """Which of the vectors of its entry it is."""
    scale: float
    code: bytes
    """Its numbers, eight bits each; times the scale they are what they were."""


class UnlinkedBlocks(NamedTuple):
    """What a graph lacks of a lane."""

    generation: int
    blocks: int
    """How many blocks the lane has."""
    firsts: Sequence[int]
    """Those that are not in the graph, by their first entries."""


@dataclass(frozen=True, slots=True)
class CoveredRange:
    """A range of entries that a lane has taken in."""

    first: int
    last: int
    hash: bytes
    """The hash of the last one: tells whether it is still the same transcript."""


@dataclass(frozen=True, slots=True)
class LaneSnapshot:
    """A lane of a session as it is at one moment."""

    generation: int
    """Changes with every sealing: sealed rows of the same generation are the same rows."""
    fresh: Sequence[IndexRow]
    sealed: Sequence[SealedRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSize:
    """How much one lane of an index holds."""

    lane: str
    sessions: int
    entries: int
    """Entries covered."""
    bytes: int


def join_ranges(ranges: Iterable[CoveredRange]) -> list[CoveredRange]:
    """The same coverage in as few ranges as can say it, in order."""
    found: list[CoveredRange] = []
    for one in sorted(ranges, key=lambda covered: (covered.first, covered.last)):
        if found and one.first <= found[-1].last + 1:
            if one.last > found[-1].last:
                found[-1] = CoveredRange(found[-1].first, one.last, one.hash)
        else:
            found.append(one)
    return found


def gaps(covered: Sequence[CoveredRange], first: int, last: int) -> list[tuple[int, int]]:
    """The ranges between `first` and `last` that are not covered; the coverage is joined already."""
    found, at = [], first
    for one in covered:
        if one.last < at:
            continue
        if one.first > last:
            break
        if one.first > at:
            found.append((at, one.first - 1))
        at = one.last + 1
    if at <= last:
        found.append((at, last))
    return found


def is_covered(covered: Sequence[CoveredRange], seq: int) -> bool:
    """Whether an entry lies in one of the ranges."""
    return any(one.first <= seq <= one.last for one in covered)


def uncovered_rows(rows: Sequence[IndexRow], covers: CoveredRange, covered: Sequence[CoveredRange]) -> list[IndexRow]:
    """The rows of entries that are not covered yet. Every row must lie in what it is said to cover, and be alone."""
    if not 1 <= covers.first <= covers.last:
        raise ValueError(f"no range of entries: {covers.first} to {covers.last}")
    seqs = {row.seq for row in rows}
    if len(seqs) != len(rows) or not all(covers.first <= seq <= covers.last for seq in seqs):
        raise ValueError(f"rows beside the range {covers.first} to {covers.last}, or two of one entry")
    return [row for row in rows if not is_covered(covered, row.seq)]
