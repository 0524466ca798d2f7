"""The lane of vectors: which messages mean what a question means, by the vectors of one embedder.

It knows vectors as numbers and never sees a text. A session of moderate length is searched exactly. In a longer one
the graph chooses that the index has of its vectors; where it has none, the signs of all vectors choose a thousand of
them, whose codes are then read and compared exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recto.errors import IndexUnavailable, StoreError
from recto.recall.index.ann import VectorGraph
from recto.recall.index.cache import BoundedCache, DecodedRows, UnsealedCounter, decoding
from recto.recall.index.quantization import (
    QuantizedVectors,
    hamming_distances,
    pack_message,
    sign_bits,
    smallest,
    unpack_messages,
)
from recto.recall.index.rows import CoveredRange, LaneSnapshot
from recto.recall.index.vector_blocks import DIRECTORY, SealedVectors, block_parts, read_directory, seal_blocks
from recto.recall.protocols import RecallIndex

if TYPE_CHECKING:
    from recto.recall.protocols import Matrix

SEAL_AT = 512
"""So many fresh vectors are sealed."""
CACHE_BYTES = 384 * 2**20
"""What is held in memory over all sessions. The signs of a million messages of two vectors need about 110 MB."""

_MAX_ATTEMPTS = 16
_Only: TypeAlias = "NDArray[np.bool] | Collection[int] | None"


@dataclass(frozen=True, slots=True)
class NearestMessages:
    """Messages by how near they are, the nearest first."""

    seqs: NDArray[np.uint32]
    cosines: NDArray[np.float32]

    def pairs(self) -> Iterator[tuple[int, float]]:
        """Each message with its likeness."""
        return zip(self.seqs.tolist(), self.cosines.tolist(), strict=True)


class VectorIndex:
    """The vectors of sessions, kept in one lane of an index. Any number of threads may use it."""

    most_exact = 65_536
    """A session of more vectors is searched by a graph, or by their signs first."""
    rescored = 1000
    """So many vectors are then compared exactly."""

    def __init__(self, index: RecallIndex, lane: str, dims: int) -> None:
        self.index = index
        self.lane = lane
        self.dims = dims
        self._kept: BoundedCache[SealedVectors] = BoundedCache(CACHE_BYTES)
        self._fresh = DecodedRows(lambda rows: unpack_messages(rows, dims))
        self._waiting = UnsealedCounter()
        self.graph = VectorGraph(index, lane, dims)

    def covered(self, session: str) -> list[CoveredRange]:
        """Which entries are in."""
        return self.index.covered(session, self.lane)

    def add(self, session: str, rows: Sequence[tuple[int, Matrix]], covers: CoveredRange) -> None:
        """Takes in messages with their vectors, one or several of length 1 each; returns when that is confirmed."""
        packed = [pack_message(seq, vectors, self.dims) for seq, vectors in rows if len(vectors)]
        self.index.put(session, self.lane, packed, covers)
        added = sum(len(vectors) for _, vectors in rows)
        if self._waiting.add(session, added, lambda: self._count_fresh(session)) >= SEAL_AT:
            self._waiting.set(session, 0)
            with suppress(StoreError):  # what was added is confirmed; it is sealed another time
                self.tidy(session)

    def tidy(self, session: str) -> None:
        """Seals what is fresh, as far as it fills blocks. Called by `add` too."""
        glance = self.index.glance(session, self.lane, [DIRECTORY])
        with decoding(self.index.location):
            taken, rows, merged = seal_blocks(glance, self.dims)
        if taken:
            self.index.seal(session, self.lane, taken, rows, merged)
            self.graph.was_sealed(session)

    def nearest(self, session: str, query: Matrix, most: int, *, only: _Only = None) -> NearestMessages:
        """The messages nearest to a vector of length 1, each by the nearest of its own vectors.

        `only` says which entries are looked at: their numbers, or an array that is true at their numbers.
        """
        asked = np.asarray(query, np.float32).reshape(-1)
        if asked.shape != (self.dims,):
            raise ValueError(f"a vector of {asked.size} numbers, expected {self.dims}")
        if most <= 0 or (only is not None and not len(only)):
            return NearestMessages(np.empty(0, np.uint32), np.empty(0, np.float32))
        if (found := self._by_graph(session, asked, most, only)) is not None:
            return found
        sealed, fresh = self._chosen(session, lambda held: self._wanted(held, asked, only))
        if only is not None:
            fresh = fresh.at(_mask_of(fresh.keys, only))
        keys = np.concatenate([sealed.keys, fresh.keys])
        return _rank_messages(keys, np.concatenate([sealed.cosines(asked), fresh.cosines(asked)]), most)

    def _by_graph(self, session: str, asked: Matrix, most: int, only: _Only) -> NearestMessages | None:
        """By the graph of the index; None where the session is not long enough, or there is none."""
        held = self._kept.get(session)
        if isinstance(only, np.ndarray) or (held is not None and held.has_codes and len(held.keys) < self.graph.long):
            return None  # all of it is at hand
        found = self.graph.nearest(session, asked, most + most // 2 + 16, only)
        if found is None:
            return None
        keys, cosines, beside = found
        rest = [beside.sealed, self._fresh.of(session, beside.fresh)]
        if only is not None:
            rest = [one.at(_mask_of(one.keys, only)) for one in rest]
        every = np.concatenate([keys, *(one.keys for one in rest)])
        return _rank_messages(every, np.concatenate([cosines, *(one.cosines(asked) for one in rest)]), most)

    def of(self, session: str, seqs: Collection[int]) -> dict[int, Matrix]:
        """The vectors of entries, one in each row; without those that have none."""
        sealed, fresh = self._chosen(session, lambda held: held.places_of(seqs))
        found: dict[int, list[Matrix]] = {}
        for one in (sealed, fresh.at(_mask_of(fresh.keys, seqs))):
            for key, vector in zip(one.keys.tolist(), one.vectors(), strict=True):
                found.setdefault(key, []).append(vector)
        return {key: np.stack(vectors) for key, vectors in found.items()}

    def _chosen(
        self, session: str, wanted: Callable[[SealedVectors], NDArray[np.intp] | None]
    ) -> tuple[QuantizedVectors, QuantizedVectors]:
        """The sealed vectors that are wanted, and all fresh ones, of one moment."""
        for _ in range(_MAX_ATTEMPTS):
            held, fresh = self._look(session)
            places = wanted(held)
            if held.has_codes:
                return held.coded(places), fresh
            if places is None:
                places = np.arange(len(held.keys))
            parts = held.code_parts(places)
            glance = self.index.glance(session, self.lane, parts)
            if glance.generation == held.generation:
                with decoding(self.index.location):
                    rows = {row.part: row.data for row in glance.sealed}
                    return held.picked(places, parts, rows), self._fresh.of(session, glance.fresh)
        raise IndexUnavailable(self.index.location, f"session '{session}' changes faster than it can be read")

    def _look(self, session: str) -> tuple[SealedVectors, QuantizedVectors]:
        """The session at one moment: what is sealed, as far as it is held in memory, and what is fresh."""
        held = self._kept.get(session) or SealedVectors.empty(self.dims, with_codes=True)
        asked: set[int] = set()
        while True:
            glance = self.index.glance(session, self.lane, sorted(asked))
            with decoding(self.index.location):
                if glance.generation == held.generation:
                    return held, self._fresh.of(session, glance.fresh)
                held, missing = self._grown(held, glance, asked)
                if not missing:
                    self._kept.keep(session, held, held.size)
                    return held, self._fresh.of(session, glance.fresh)
                asked |= missing

    def _grown(self, held: SealedVectors, glance: LaneSnapshot, asked: set[int]) -> tuple[SealedVectors, set[int]]:
        """What is held with what is new; or what must be read before."""
        if DIRECTORY not in asked:
            return held, {DIRECTORY}
        blocks = read_directory(glance)
        with_codes = int(blocks["count"].sum()) <= self.most_exact
        if not np.isin(held.blocks["number"], blocks["number"]).all() or (with_codes and not held.has_codes):
            held = SealedVectors.empty(self.dims, with_codes=with_codes)
        if held.has_codes and not with_codes:
            held = held.without_codes()
        new = blocks[~np.isin(blocks["number"], held.blocks["number"])]
        missing = block_parts(new, self.dims, with_codes=with_codes) - asked
        return (held, missing) if missing else (held.grown(glance.generation, new, glance.sealed), missing)

    def _wanted(self, held: SealedVectors, asked: Matrix, only: _Only) -> NDArray[np.intp] | None:
        """The places of the sealed vectors to compare; None for all."""
        places = None
        if isinstance(only, np.ndarray):
            places = np.flatnonzero(_mask_of(held.keys, only))
        elif only is not None:
            places = held.places_of(only)
        count = len(held.keys) if places is None else len(places)
        if held.has_codes or count <= self.rescored:
            return places
        signs = held.signs if places is None else held.signs[:, places]
        chosen = smallest(hamming_distances(signs, sign_bits(asked[None])), self.rescored)
        return chosen if places is None else places[chosen]

    def _count_fresh(self, session: str) -> float:
        fresh = self.index.glance(session, self.lane).fresh
        return sum(len(row.data) for row in fresh) / (4 + self.dims)


def _mask_of(keys: NDArray[np.uint32], only: NDArray[np.bool] | Collection[int]) -> NDArray[np.bool]:
    """Which vectors belong to entries that are looked at."""
    if isinstance(only, np.ndarray):
        inside = keys < len(only)
        inside[inside] = only[keys[inside]]
        return inside
    return np.isin(keys, np.fromiter(only, np.int64, len(only)))


def _rank_messages(keys: NDArray[np.uint32], cosines: NDArray[np.float32], most: int) -> NearestMessages:
    """The nearest messages; of two that are equally near the newer comes first."""
    size = 2 * most + 16
    while True:
        near = np.arange(len(keys))
        if size < len(keys):
            near = np.flatnonzero(cosines >= np.partition(cosines, -size)[-size])
        order = near[np.lexsort((keys[near], cosines[near]))[::-1]]
        _, firsts = np.unique(keys[order], return_index=True)
        if len(firsts) >= most or size >= len(keys):
            chosen = order[np.sort(firsts)[:most]]
            return NearestMessages(keys[chosen], cosines[chosen])
        size *= 4
