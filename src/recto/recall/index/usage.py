"""The lane of uses: which entries were recalled into a prompt, and which of those the answer then used."""

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
"""So many events are packed together."""
MERGE_AT = 8
CACHE_BYTES = 16 * 2**20

_BLOCKS = -1
_USE_ROW = np.dtype([("event", "<u4"), ("entry", "<u4"), ("used", "u1")])
_PerEntry: TypeAlias = dict[int, tuple[int, int]]


class UsageIndex:
    """How often entries were shown and used. Any number of threads may use it."""

    def __init__(self, index: RecallIndex) -> None:
        self.index = index
        self._kept: BoundedCache[tuple[object, _PerEntry]] = BoundedCache(CACHE_BYTES)
        self._waiting = UnsealedCounter()

    def covered(self, session: str) -> list[CoveredRange]:
        """Which entries are in."""
        return self.index.covered(session, LANE)

    def add(
        self, session: str, events: Sequence[tuple[int, Sequence[int], Sequence[int]]], covers: CoveredRange
    ) -> None:
        """Takes events in, each with its own number, what it showed and what of that was used."""
        rows = [_pack_event(*event) for event in events]
        self.index.put(session, LANE, rows, covers)
        if not rows:
            return
        waiting = self._waiting.add(session, len(rows), lambda: len(self.index.glance(session, LANE).fresh))
        if waiting >= SEAL_AT:
            self._waiting.set(session, 0)
            with suppress(StoreError):  # what was added is confirmed; it is packed another time
                self._seal(session)

    def counts(self, session: str, *, before: int = MAX_SEQ) -> Mapping[int, tuple[int, int]]:
        """How often each entry was shown, and how often it was used. Events after `before` do not count."""
        glance = self.index.glance(session, LANE, [_BLOCKS])
        state = glance.generation, tuple(glance.fresh), before
        known = self._kept.get(session)
        if known is not None and known[0] == state:
            return known[1]
        with decoding(self.index.location):
            found = _count_uses(_read_uses(glance), before)
        self._kept.keep(session, (state, found), 200 + 200 * len(found))
        return found

    def _seal(self, session: str) -> bool:
        """Packs fresh rows together, and packed ones where they are many. False where somebody else has done it."""
        glance = self.index.glance(session, LANE, [_BLOCKS])
        if len(glance.fresh) < SEAL_AT:
            return False
        merged = glance.sealed if len(glance.sealed) >= MERGE_AT else ()
        with decoding(self.index.location):
            together = _read_uses(LaneSnapshot(glance.generation, glance.fresh, merged))
        first = min([glance.fresh[0].seq, *(row.first for row in merged)])
        return self.index.seal(
            session,
            LANE,
            [row.seq for row in glance.fresh],
            [SealedRow(_BLOCKS, first, together.tobytes())],
            [(row.part, row.first) for row in merged],
        )


def _pack_event(event: int, shown: Sequence[int], used: Sequence[int]) -> IndexRow:
    entries = sorted({*shown, *used})
    rows = np.zeros(len(entries), _USE_ROW)
    rows["event"], rows["entry"], rows["used"] = event, entries, np.isin(entries, list(used))
    return IndexRow(event, rows.tobytes())


def _read_uses(glance: LaneSnapshot) -> NDArray[np.void]:
    return np.frombuffer(
        b"".join([*(row.data for row in glance.sealed), *(row.data for row in glance.fresh)]), _USE_ROW
    )


def _count_uses(uses: NDArray[np.void], before: int) -> _PerEntry:
    counted = uses[uses["event"] <= before]
    entries, places = np.unique(counted["entry"], return_inverse=True)
    shown = np.bincount(places, minlength=len(entries))
    used = np.bincount(places, counted["used"] != 0, minlength=len(entries))
    return {int(entry): (int(times), int(helped)) for entry, times, helped in zip(entries, shown, used, strict=True)}
