"""The usage index: which entries were recalled into a prompt, and which of those the answer used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from recto.errors import StoreError
from recto.recall.index.cache import BoundedCache, UnsealedCounter, decoding
from recto.recall.index.rows import CoveredRange, IndexRow, LaneSnapshot, SealedRow
from recto.recall.protocols import RecallIndex
from recto.transcript.entries import MAX_SEQ

LANE = "uses/1"
SEAL_AT = 512
"""Events from which they are sealed together."""
MERGE_AT = 8
CACHE_BYTES = 16 * 2**20

_BLOCKS = -1
_USE_ROW = np.dtype([("event", "<u4"), ("entry", "<u4"), ("used", "u1")])
_PerEntry: TypeAlias = dict[int, tuple[int, int]]


class UsageIndex:
    """How often entries were shown and used. Thread-safe."""

    def __init__(self, index: RecallIndex) -> None:
        self.index = index
        self._counts: BoundedCache[tuple[object, _PerEntry]] = BoundedCache(CACHE_BYTES)
        self._unsealed = UnsealedCounter()

    def covered(self, session: str) -> list[CoveredRange]:
        """Return the ranges of entries that are indexed."""
        return self.index.covered(session, LANE)

    def add(
        self, session: str, events: Sequence[tuple[int, Sequence[int], Sequence[int]]], covers: CoveredRange
    ) -> None:
        """Index recall events: (event, shown entries, used entries)."""
        rows = [_pack_event(*event) for event in events]
        self.index.put(session, LANE, rows, covers)
        if not rows:
            return
        unsealed = self._unsealed.add(session, len(rows), lambda: len(self.index.snapshot(session, LANE).fresh))
        if unsealed >= SEAL_AT:
            self._unsealed.set(session, 0)
            with suppress(StoreError):  # what was added is durable; it is sealed another time
                self._seal(session)

    def counts(self, session: str, *, before: int = MAX_SEQ) -> Mapping[int, tuple[int, int]]:
        """Return how often each entry was shown and how often it was used. Events after `before` are ignored."""
        snapshot = self.index.snapshot(session, LANE, [_BLOCKS])
        state = snapshot.generation, tuple(snapshot.fresh), before
        cached = self._counts.get(session)
        if cached is not None and cached[0] == state:
            return cached[1]
        with decoding(self.index.location):
            counts = _count_uses(_read_uses(snapshot), before)
        self._counts.put(session, (state, counts), 200 + 200 * len(counts))
        return counts

    def _seal(self, session: str) -> bool:
        """Seal fresh rows, and merge sealed ones if there are many. False if another writer has done it."""
        snapshot = self.index.snapshot(session, LANE, [_BLOCKS])
        if len(snapshot.fresh) < SEAL_AT:
            return False
        merged = snapshot.sealed if len(snapshot.sealed) >= MERGE_AT else ()
        with decoding(self.index.location):
            uses = _read_uses(LaneSnapshot(snapshot.generation, snapshot.fresh, merged))
        first = min([snapshot.fresh[0].seq, *(row.first for row in merged)])
        return self.index.seal(
            session,
            LANE,
            [row.seq for row in snapshot.fresh],
            [SealedRow(_BLOCKS, first, uses.tobytes())],
            [(row.part, row.first) for row in merged],
        )


def _pack_event(event: int, shown: Sequence[int], used: Sequence[int]) -> IndexRow:
    entries = sorted({*shown, *used})
    rows = np.zeros(len(entries), _USE_ROW)
    rows["event"], rows["entry"], rows["used"] = event, entries, np.isin(entries, list(used))
    return IndexRow(event, rows.tobytes())


def _read_uses(snapshot: LaneSnapshot) -> NDArray[np.void]:
    return np.frombuffer(
        b"".join([*(row.data for row in snapshot.sealed), *(row.data for row in snapshot.fresh)]), _USE_ROW
    )


def _count_uses(uses: NDArray[np.void], before: int) -> _PerEntry:
    counted = uses[uses["event"] <= before]
    entries, places = np.unique(counted["entry"], return_inverse=True)
    shown = np.bincount(places, minlength=len(entries))
    used = np.bincount(places, counted["used"] != 0, minlength=len(entries))
    return {int(entry): (int(times), int(helped)) for entry, times, helped in zip(entries, shown, used, strict=True)}
