"""Protocols of recall: the index of a store, vector graphs, a lexicon, an embedder, and the authority of memory."""

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
    """Stores index rows by session and lane. The whole index is derived and can be rebuilt from the transcripts.

    A lane holds fresh rows, one per entry, and sealed rows, each with many entries (see `recto.recall.index`). The
    store treats their content as opaque bytes.
    """

    @property
    def location(self) -> str:
        """Where the index is, for messages: a path or a URL without the password."""
        ...

    def covered(self, session: str, lane: str) -> list[CoveredRange]:
        """Return the entries the lane has indexed, as sorted ranges; adjacent ranges are joined."""
        ...

    def put(self, session: str, lane: str, rows: Sequence[IndexRow], covers: CoveredRange) -> None:
        """Add fresh rows and mark `covers` as indexed, atomically. Returns once both are durable.

        Rows of entries that are covered already are ignored, because two processes may index the same entries at
        once. A covered entry may have no row.
        """
        ...

    def snapshot(self, session: str, lane: str, parts: Sequence[int] = ()) -> LaneSnapshot:
        """Read the covered ranges, the fresh rows, and the sealed rows of these parts, consistently."""
        ...

    def seal(
        self,
        session: str,
        lane: str,
        seqs: Sequence[int],
        rows: Sequence[SealedRow],
        merged: Sequence[tuple[int, int]] = (),
        covers: CoveredRange | None = None,
    ) -> bool:
        """Replace the fresh rows of `seqs` by sealed rows, atomically.

        The new rows also replace the sealed rows at `merged`, each named by its part and first entry. With `covers`
        the sealed rows contain entries that were not indexed before, and mark them as indexed. Returns False and
        changes nothing if another writer has replaced one of them, or indexed one of them, in the meantime.
        """
        ...

    def sessions(self, prefix: str = "") -> list[str]:
        """Return the keys of all sessions with rows whose key starts with `prefix`."""
        ...

    def forget(self, session: str, lane: str | None = None) -> None:
        """Delete a session, or one of its lanes, so that it is indexed again."""
        ...

    def scrub(self, sessions: Sequence[str]) -> None:
        """Overwrite what these deleted sessions left in unused space of the files."""
        ...

    def lane_names(self) -> list[str]:
        """Return the names of all lanes, in order. Every session that recalls asks for them: sizes are not read."""
        ...

    def lanes(self) -> list[LaneSize]:
        """Return the size of every lane, for display."""
        ...

    def damage(self) -> list[str]:
        """Return what the database reports as damaged; empty if nothing is."""
        ...

    def reset(self) -> None:
        """Set a damaged index aside and create an empty one."""
        ...

    def close(self) -> None:
        """Finish pending work and close. No other call may follow."""
        ...


class VectorGraphs(Protocol):
    """Approximate nearest-neighbour search, an optional capability that a recall index offers as `graphs`.

    A graph is built from sealed rows and is deleted with them. It may lack some of them, or not exist at all.
    """

    def unavailable_reason(self) -> str:
        """Return why graphs are not available; empty if they are."""
        ...

    def supports(self, dims: int) -> bool:
        """Whether vectors of this length can be added to a graph."""
        ...

    def unlinked_blocks(self, session: str, lane: str, low: int, high: int) -> UnlinkedBlocks:
        """Return the blocks that are not in a graph yet; every block has one row in the parts from `low` to `high`."""
        ...

    def link(self, session: str, lane: str, generation: int, dims: int, vectors: Sequence[GraphVector]) -> None:
        """Add all vectors of some blocks to a graph; adds nothing if the lane's generation has changed since."""
        ...

    def nearest(self, session: str, lane: str, query: Sequence[float], limit: int) -> list[tuple[int, float]]:
        """Return entries with their cosine to a unit vector: the nearest ones most likely, in no order."""
        ...

    def similarities(
        self, session: str, lane: str, query: Sequence[float], seqs: Collection[int]
    ) -> list[tuple[int, float]]:
        """Return the cosine of every vector of these entries that is in the graph."""
        ...


class Lexicon(Protocol):
    """Turns text into terms, so that a word, name or path is found regardless of its form, script or case."""

    @property
    def name(self) -> str:
        """Name of the lane its terms are stored in. Terms of two lexicons are never compared."""
        ...

    def terms(self, text: str) -> Mapping[int, int]:
        """Count each term by its 32-bit hash. Never raises."""
        ...

    def distinct(self, texts: Sequence[str]) -> list[frozenset[int]]:
        """Return the terms of each of some texts. Quicker than `terms` of one after the other."""
        ...

    def sequence(self, text: str) -> Sequence[int]:
        """Return the terms in text order."""
        ...


class Authority(Protocol):
    """Distinguishes approved memory from plain history."""

    def notes(self, session: str, seqs: Collection[int]) -> Mapping[int, str]:
        """The notes to quote beside entries: empty for history. An entry that must not be quoted has none."""
        ...

    def take_in_files(self, session: str) -> None:
        """Store what files of the memory folder say that is not stored yet, in a memory session."""
        ...


class Embedder(Protocol):
    """Maps texts to vectors whose cosine grows with the similarity of meaning."""

    @property
    def name(self) -> str:
        """Stored with its vectors. Vectors of two embedders are never compared."""
        ...

    @property
    def dims(self) -> int:
        """Length of its vectors."""
        ...

    @property
    def weight(self) -> float:
        """Weight of vector similarity relative to words, from 0 to 1: a weak embedder must not drown the words."""
        ...

    def documents(self, texts: Sequence[str]) -> Matrix:
        """Embed texts: one unit row per text, zeros for an empty one. The same text gives the same row.

        Raises `EmbedderFailed`.
        """
        ...

    def query(self, text: str) -> Matrix:
        """Embed a question, as one row. Raises `EmbedderFailed`."""
        ...
