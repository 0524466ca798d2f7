"""Protocols that recall depends on: the index of a store, approximate vector search, a lexicon and an embedder."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from recto.recall.index.rows import (
    CoveredRange,
    GraphVector,
    IndexRow,
    LaneSize,
    LaneSnapshot,
    SealedRow,
    UnlinkedBlocks,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix: TypeAlias = NDArray[np.float32]


class RecallIndex(Protocol):
    """Keeps what recall searches, session by session and lane by lane. All of it can be made anew from transcripts.

    A lane is one kind of index: the words, or the vectors of one embedder. It has fresh rows, one for an entry, and
    sealed rows, in which many entries are packed together. What the bytes mean is not known here.
    """

    @property
    def location(self) -> str:
        """Where it is, as a person would write it."""
        ...

    def covered(self, session: str, lane: str) -> list[CoveredRange]:
        """Which entries the lane has taken in, as ranges in order; neighbours are joined."""
        ...

    def put(self, session: str, lane: str, rows: Sequence[IndexRow], covers: CoveredRange) -> None:
        """Adds fresh rows and what they cover, all or none; returns when both are confirmed.

        Rows of entries that were covered already are left out: two processes may do the same work at once. Not every
        covered entry has a row.
        """
        ...

    def glance(self, session: str, lane: str, parts: Sequence[int] = ()) -> LaneSnapshot:
        """The fresh rows and the sealed rows of these parts, as they are at one moment."""
        ...

    def seal(
        self,
        session: str,
        lane: str,
        taken: Sequence[int],
        rows: Sequence[SealedRow],
        merged: Sequence[tuple[int, int]] = (),
    ) -> bool:
        """Puts sealed rows in the place of the fresh rows of these entries, all or none.

        They also take the place of the sealed rows at `merged`, each named by its part and its first entry. False,
        and nothing done, where somebody else has taken one of them meanwhile.
        """
        ...

    def sessions(self, prefix: str = "") -> list[str]:
        """The sessions it holds anything of, by key, whose key begins so."""
        ...

    def forget(self, session: str, lane: str | None = None) -> None:
        """Lets go of a session, or of one of its lanes, to be made anew."""
        ...

    def scrub(self, sessions: Sequence[str]) -> None:
        """Leaves nothing of these forgotten sessions in the gaps of its files."""
        ...

    def lanes(self) -> list[LaneSize]:
        """What there is, for people: every lane with how much it holds."""
        ...

    def damage(self) -> list[str]:
        """What the engine itself finds wrong with its files, in words; empty when nothing."""
        ...

    def start_over(self) -> None:
        """Sets a damaged index aside and begins an empty one in its place."""
        ...

    def close(self) -> None:
        """Finishes what was begun; no other call may follow."""
        ...


class VectorGraphs(Protocol):
    """What an index of recall may offer as its `graphs`: it finds the nearest of many vectors without reading all.

    A graph is made of sealed rows, and goes with them. It may lack some of them, and can be absent altogether.
    """

    def lacking(self) -> str:
        """Why there are none, in words; nothing where there are."""
        ...

    def takes(self, dims: int) -> bool:
        """Whether vectors of this length can be found so."""
        ...

    def unlinked(self, session: str, lane: str, low: int, high: int) -> UnlinkedBlocks:
        """Which blocks are not in a graph yet; every block has one row in the parts from `low` to `high`."""
        ...

    def link(self, session: str, lane: str, generation: int, dims: int, vectors: Sequence[GraphVector]) -> None:
        """Takes all vectors of some blocks into a graph; none where the lane is of another generation by now."""
        ...

    def nearest(self, session: str, lane: str, query: Sequence[float], most: int) -> list[tuple[int, float]]:
        """Entries by the vectors that are most likely nearest to one of length 1, with how near they are, unordered."""
        ...

    def among(self, session: str, lane: str, query: Sequence[float], seqs: Collection[int]) -> list[tuple[int, float]]:
        """How near each vector of these entries is, as far as they are in the graph."""
        ...


class Lexicon(Protocol):
    """Turns text into terms: what a word, a name or a path is found by, whatever its form, script or case."""

    @property
    def name(self) -> str:
        """Names the lane its terms are kept in; terms of two names are never compared."""
        ...

    def terms(self, text: str) -> Mapping[int, int]:
        """How often each term occurs, by the term's 32-bit hash. Never raises, whatever the text."""
        ...

    def sequence(self, text: str) -> Sequence[int]:
        """The terms in the order in which they stand."""
        ...


class Authority(Protocol):
    """Distinguishes approved memory from plain history."""

    def note(self, session: str, seq: int) -> str | None:
        """The note to quote beside an entry: empty for history, None for an entry that must not be quoted."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors that are near where the texts mean the same."""

    @property
    def name(self) -> str:
        """Stored beside its vectors; vectors of two names are never compared."""
        ...

    @property
    def dims(self) -> int:
        """How long its vectors are."""
        ...

    @property
    def weight(self) -> float:
        """How much its likeness counts beside words, from 0 to 1: a weak embedder must not drown them."""
        ...

    def documents(self, texts: Sequence[str]) -> Matrix:
        """One row of length 1 for each text, of zeros for one with nothing in it. The same text gives the same row.

        Raises `EmbedderFailed`.
        """
        ...

    def query(self, text: str) -> Matrix:
        """The vector of a question, as one row. Raises `EmbedderFailed`."""
        ...
