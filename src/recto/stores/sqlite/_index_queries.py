"""SQL statements of the recall index. Their text never varies, so that SQLite caches them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence

import apsw

from recto.recall.index.rows import (
    CoveredRange,
    IndexRow,
    LaneSize,
    LaneSnapshot,
    SealedRow,
    join_ranges,
    overlaps,
    uncovered_rows,
)

_SHELF = "SELECT shelf, generation FROM shelves WHERE session = ? AND lane = ?"
_SHELVES = "SELECT shelf FROM shelves WHERE session = ? AND lane = coalesce(?, lane)"
_ADD_SHELF = "INSERT INTO shelves(session, lane, generation) VALUES (?, ?, 0)"
_DROP_SHELF = "DELETE FROM shelves WHERE shelf = ?"
_COVERED = "SELECT first, last, hash FROM covered WHERE shelf = ? ORDER BY first"
_COVERED_UP_TO = "SELECT first, last, hash FROM covered WHERE shelf = ? AND first <= ? ORDER BY first DESC"
_ADD_COVERED = "INSERT INTO covered VALUES (?, ?, ?, ?)"
_DROP_COVERED = "DELETE FROM covered WHERE shelf = ? AND first = ?"
_FRESH = "SELECT seq, data FROM fresh WHERE shelf = ? ORDER BY seq"
_IS_FRESH = "SELECT count(*) FROM fresh WHERE shelf = ? AND seq IN (SELECT value FROM json_each(?))"
_ADD_FRESH = "INSERT INTO fresh VALUES (?, ?, ?)"
_DROP_FRESH = "DELETE FROM fresh WHERE shelf = ? AND seq = ?"
_SEALED = """
SELECT part, first, data FROM sealed WHERE shelf = ? AND part IN (SELECT value FROM json_each(?)) ORDER BY part, first
"""
_IS_SEALED = """
SELECT count(*) FROM json_each(?) AS j
CROSS JOIN sealed AS s ON s.shelf = ? AND s.part = j.value ->> 0 AND s.first = j.value ->> 1
"""
_ADD_SEALED = "INSERT OR REPLACE INTO sealed(shelf, part, first, data) VALUES (?, ?, ?, ?)"
_DROP_SEALED = "DELETE FROM sealed WHERE shelf = ? AND part = ? AND first = ?"
_NEXT_GENERATION = "UPDATE shelves SET generation = ? WHERE shelf = ?"
_SESSIONS = "SELECT DISTINCT session FROM shelves WHERE session >= ? ORDER BY session"
_LANE_NAMES = "SELECT DISTINCT lane FROM shelves ORDER BY lane"
_LANES = """
SELECT lane, count(*), sum((SELECT coalesce(sum(last - first + 1), 0) FROM covered AS c WHERE c.shelf = s.shelf)),
  sum((SELECT coalesce(sum(length(data)), 0) FROM fresh AS f WHERE f.shelf = s.shelf)
    + (SELECT coalesce(sum(length(data)), 0) FROM sealed AS p WHERE p.shelf = s.shelf))
FROM shelves AS s GROUP BY lane ORDER BY lane
"""
_UNCOVERED = """
SELECT count(*) FROM fresh AS f
WHERE NOT EXISTS (SELECT 1 FROM covered AS c WHERE c.shelf = f.shelf AND f.seq BETWEEN c.first AND c.last)
"""
_FORGET = tuple(f"DELETE FROM {table} WHERE shelf = ?" for table in ("fresh", "sealed", "covered"))  # noqa: S608

NOTHING = LaneSnapshot(0, (), ())


def shelf_of(connection: apsw.Connection, session: str, lane: str) -> tuple[int, int] | None:
    """Return the number of a lane of a session, and its generation."""
    found: tuple[int, int] | None = connection.execute(_SHELF, (session, lane)).fetchone()
    return found


def covered(connection: apsw.Connection, shelf: int) -> list[CoveredRange]:
    """Return the covered ranges."""
    return [CoveredRange(*row) for row in connection.execute(_COVERED, (shelf,))]


def put(connection: apsw.Connection, session: str, lane: str, rows: Sequence[IndexRow], covers: CoveredRange) -> None:
    """Add fresh rows and extend the covered ranges. The caller opens the transaction."""
    known = shelf_of(connection, session, lane)
    near = _near(connection, known[0], covers) if known else []
    new = uncovered_rows(rows, covers, near)
    together = join_ranges([*near, covers])
    if together == near:
        return
    shelf = known[0] if known else _add_shelf(connection, session, lane)
    connection.executemany(_ADD_FRESH, [(shelf, row.seq, row.data) for row in new])
    _replace_ranges(connection, shelf, near, together)


class FreshRowCache:
    """Cache of the fresh rows a connection read last, valid until the next write: a query reads them many times."""

    _MOST_SHELVES = 16

    def __init__(self) -> None:
        self._version = -1
        self._fresh: dict[int, list[IndexRow]] = {}

    def fresh(self, connection: apsw.Connection, shelf: int) -> list[IndexRow]:
        """Return the fresh rows. The caller must have read something in its transaction already."""
        version = connection.data_version()
        if version != self._version or len(self._fresh) >= self._MOST_SHELVES:
            self._version = version
            self._fresh.clear()
        if shelf not in self._fresh:
            self._fresh[shelf] = list(map(IndexRow._make, connection.execute(_FRESH, (shelf,))))
        return self._fresh[shelf]


def snapshot(
    connection: apsw.Connection, seen: FreshRowCache, session: str, lane: str, parts: Sequence[int]
) -> LaneSnapshot:
    """Read a snapshot of a lane. The caller opens the transaction."""
    known = shelf_of(connection, session, lane)
    if known is None:
        return NOTHING
    shelf, generation = known
    fresh = seen.fresh(connection, shelf)
    part_list = f"[{','.join(map(str, set(parts)))}]"
    sealed = list(map(SealedRow._make, connection.execute(_SEALED, (shelf, part_list)))) if parts else []
    return LaneSnapshot(generation, fresh, sealed, covered(connection, shelf))


def seal(
    connection: apsw.Connection,
    session: str,
    lane: str,
    seqs: Sequence[int],
    rows: Sequence[SealedRow],
    merged: Sequence[tuple[int, int]],
    covers: CoveredRange | None,
) -> bool:
    """Replace rows by sealed ones; False if one of them is gone, or an entry was indexed in the meantime.

    The caller opens the transaction.
    """
    known = shelf_of(connection, session, lane)
    shelf = known[0] if known else 0
    near = _near(connection, shelf, covers) if covers is not None else []
    fresh, old = sorted(set(seqs)), sorted(set(merged))
    there = connection.execute(_IS_FRESH, (shelf, json.dumps(fresh))).get
    there += connection.execute(_IS_SEALED, (json.dumps(old), shelf)).get
    if there != len(fresh) + len(old) or (covers is None and known is None):
        return False
    if covers is not None:
        if overlaps(near, covers):
            return False
        shelf = shelf or _add_shelf(connection, session, lane)
        _replace_ranges(connection, shelf, near, join_ranges([*near, covers]))
    connection.executemany(_DROP_FRESH, [(shelf, seq) for seq in fresh])
    connection.executemany(_DROP_SEALED, [(shelf, part, first) for part, first in old])
    ordered = sorted(rows)
    connection.executemany(_ADD_SEALED, [(shelf, row.part, row.first, row.data) for row in ordered])
    connection.execute(_NEXT_GENERATION, (1 + secrets.randbits(61), shelf))
    return True


def _add_shelf(connection: apsw.Connection, session: str, lane: str) -> int:
    connection.execute(_ADD_SHELF, (session, lane))
    return connection.last_insert_rowid()


def _replace_ranges(
    connection: apsw.Connection, shelf: int, old: Sequence[CoveredRange], new: Sequence[CoveredRange]
) -> None:
    connection.executemany(_DROP_COVERED, [(shelf, one.first) for one in old])
    connection.executemany(_ADD_COVERED, [(shelf, one.first, one.last, one.hash) for one in new])


def sessions(connection: apsw.Connection, prefix: str) -> list[str]:
    """Return the sessions with a prefix: a range of the index, since SQLite orders text as Python does."""
    found = []
    for (session,) in connection.execute(_SESSIONS, (prefix,)):
        if not session.startswith(prefix):
            break
        found.append(session)
    return found


def forget(connection: apsw.Connection, session: str, lane: str | None) -> None:
    """Delete a session or one of its lanes. The caller opens the transaction."""
    for (shelf,) in connection.execute(_SHELVES, (session, lane)).fetchall():
        for statement in (*_FORGET, _DROP_SHELF):
            connection.execute(statement, (shelf,))


def lane_names(connection: apsw.Connection) -> list[str]:
    """Return the names of all lanes, in order."""
    return [lane for (lane,) in connection.execute(_LANE_NAMES)]


def lanes(connection: apsw.Connection) -> list[LaneSize]:
    """Return the size of every lane."""
    return [
        LaneSize(lane=lane, sessions=count, entries=entries, bytes=size)
        for lane, count, entries, size in connection.execute(_LANES)
    ]


def uncovered(connection: apsw.Connection) -> int:
    """Count the rows outside the covered ranges."""
    count: int = connection.execute(_UNCOVERED).get
    return count


def _near(connection: apsw.Connection, shelf: int, covers: CoveredRange) -> list[CoveredRange]:
    """Return the ranges that overlap or touch another one, in order."""
    found: list[CoveredRange] = []
    for row in connection.execute(_COVERED_UP_TO, (shelf, covers.last + 1)):
        one = CoveredRange(*row)
        if one.last < covers.first - 1:
            break
        found.append(one)
    return found[::-1]
