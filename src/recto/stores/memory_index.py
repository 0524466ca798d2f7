"""The index of recall in memory: the reference that every other index is compared with.

It keeps the whole contract of `recto.ports.RecallIndex`; what is in it ends with the process.
"""

from __future__ import annotations

import secrets
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from recto.core.entries import session_key
from recto.core.lanes import Covered, Glance, LaneSize, Row, Sealed, joined, unseen
from recto.errors import IndexUnavailable


@dataclass(slots=True)
class _Shelf:
    """One lane of one session."""

    generation: int = 0
    covered: list[Covered] = field(default_factory=list)
    fresh: dict[int, bytes] = field(default_factory=dict)
    sealed: dict[tuple[int, int], bytes] = field(default_factory=dict)


class MemoryIndex:
    """Keeps what recall searches until the process ends."""

    def __init__(self) -> None:
        self._shelves: dict[tuple[str, str], _Shelf] = {}
        self._lock = threading.Lock()
        self._closed = False

    @property
    def location(self) -> str:
        """Where it is, as a person would write it."""
        return "memory"

    def covered(self, session: str, lane: str) -> list[Covered]:
        """Which entries the lane has taken in."""
        with self._lock:
            return list(self._shelf(session, lane).covered)

    def put(self, session: str, lane: str, rows: Sequence[Row], covers: Covered) -> None:
        """Adds fresh rows and what they cover, all or none."""
        session_key(session)
        with self._lock:
            shelf = self._shelf(session, lane)
            shelf.fresh |= dict(unseen(rows, covers, shelf.covered))
            shelf.covered = joined([*shelf.covered, covers])
            self._shelves[session, lane] = shelf

    def glance(self, session: str, lane: str, parts: Sequence[int] = ()) -> Glance:
        """The fresh rows and the sealed rows of these parts, as they are at one moment."""
        with self._lock:
            shelf = self._shelf(session, lane)
            asked = set(parts)
            sealed = [Sealed(*place, data) for place, data in sorted(shelf.sealed.items()) if place[0] in asked]
            return Glance(shelf.generation, [Row(*row) for row in sorted(shelf.fresh.items())], sealed)

    def seal(
        self,
        session: str,
        lane: str,
        taken: Sequence[int],
        rows: Sequence[Sealed],
        merged: Sequence[tuple[int, int]] = (),
    ) -> bool:
        """Puts sealed rows in the place of fresh and of sealed ones, all or none."""
        with self._lock:
            shelf = self._shelf(session, lane)
            there = shelf.fresh.keys() >= set(taken) and shelf.sealed.keys() >= set(merged)
            if not there or (session, lane) not in self._shelves:
                return False
            for seq in taken:
                del shelf.fresh[seq]
            for place in merged:
                del shelf.sealed[place]
            shelf.sealed |= {(row.part, row.first): row.data for row in rows}
            shelf.generation = 1 + secrets.randbits(61)
            return True

    def sessions(self, prefix: str = "") -> list[str]:
        """The sessions it holds anything of, by key, whose key begins so."""
        with self._lock:
            self._refuse_closed()
            return sorted({session for session, _ in self._shelves if session.startswith(prefix)})

    def forget(self, session: str, lane: str | None = None) -> None:
        """Lets go of a session, or of one of its lanes."""
        with self._lock:
            self._refuse_closed()
            for name in [name for name in self._shelves if name[0] == session and lane in (None, name[1])]:
                del self._shelves[name]

    def scrub(self, sessions: Sequence[str]) -> None:
        """Nothing to do: there is no file."""

    def lanes(self) -> list[LaneSize]:
        """Every lane with how much it holds."""
        with self._lock:
            self._refuse_closed()
            by_lane: dict[str, list[_Shelf]] = defaultdict(list)
            for (_, lane), shelf in sorted(self._shelves.items(), key=lambda named: named[0][::-1]):
                by_lane[lane].append(shelf)
            return [_size(lane, shelves) for lane, shelves in by_lane.items()]

    def damage(self) -> list[str]:
        """Nothing: there is no file."""
        with self._lock:
            self._refuse_closed()
        return []

    def start_over(self) -> None:
        """Begins an empty one."""
        with self._lock:
            self._refuse_closed()
            self._shelves.clear()

    def copied(self) -> MemoryIndex:
        """Another one that holds the same, and goes its own way from here."""
        made = MemoryIndex()
        with self._lock:
            self._refuse_closed()
            for name, shelf in self._shelves.items():
                kept = list(shelf.covered), dict(shelf.fresh), dict(shelf.sealed)
                made._shelves[name] = _Shelf(shelf.generation, *kept)
        return made

    def close(self) -> None:
        """No other call may follow."""
        self._closed = True

    def _shelf(self, session: str, lane: str) -> _Shelf:
        self._refuse_closed()
        return self._shelves.get((session, lane)) or _Shelf()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise IndexUnavailable(self.location, "it is closed already")


def _size(lane: str, shelves: list[_Shelf]) -> LaneSize:
    return LaneSize(
        lane=lane,
        sessions=len(shelves),
        entries=sum(one.last - one.first + 1 for shelf in shelves for one in shelf.covered),
        bytes=sum(len(data) for shelf in shelves for data in (*shelf.fresh.values(), *shelf.sealed.values())),
    )
