"""The recall index in PostgreSQL, in the database of the transcript. Any number of gateways may use it at once.

Writers of one lane of a session are serialized by a lock on its row in `shelves`; others do not block each other. Rows
are opaque bytes here.
"""

# ruff: noqa: S608  # statements are made of constants alone

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from recto.errors import IndexFailed, IndexUnavailable, StoreError
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
from recto.stores._index_errors import to_index_error
from recto.stores.postgres._pgvector import PostgresGraphs
from recto.stores.postgres.codec import bigint, bigint_array, bytea_array
from recto.stores.postgres.erasure import RECALL, rewrite_tables
from recto.stores.postgres.pool import EVERYBODY, Connection, ConnectionPool
from recto.transcript.entries import session_key
from recto.transcript.session_keys import tenant_of

_HERE = "session = %(session)s AND lane = %(lane)s"
_COVERED = f"SELECT first, last, hash FROM recto.covered WHERE {_HERE} ORDER BY first"
_SNAPSHOT = f"""
SELECT 0, generation, 0::bigint, NULL::bytea FROM recto.shelves WHERE {_HERE}
UNION ALL SELECT 1, seq, 0, data FROM recto.fresh WHERE {_HERE}
UNION ALL SELECT 2, part, first, data FROM recto.sealed WHERE {_HERE} AND part = ANY(%(parts)s)
UNION ALL SELECT 3, first, last, hash FROM recto.covered WHERE {_HERE}
ORDER BY 1, 2, 3
"""
"""One statement, so that all rows come from one snapshot."""
_OPEN = """
INSERT INTO recto.shelves(session, lane, tenant, generation) VALUES (%(session)s, %(lane)s, %(tenant)s, 0)
ON CONFLICT (session, lane) DO NOTHING
"""
_LOCK_LANE = f"SELECT generation FROM recto.shelves WHERE {_HERE} FOR NO KEY UPDATE"
"""This lock does not conflict with adding vectors to a graph."""
_NEAR = f"""
SELECT first, last, hash FROM recto.covered
WHERE {_HERE} AND first <= %(last)s + 1 AND last >= %(first)s - 1 ORDER BY first
"""
_ADD_FRESH = """
INSERT INTO recto.fresh(session, lane, tenant, seq, data)
SELECT %(session)s, %(lane)s, %(tenant)s, new.* FROM unnest(%(seqs)s::bigint[], %(datas)s::bytea[]) AS new
"""
_DROP_COVERED = f"DELETE FROM recto.covered WHERE {_HERE} AND first = ANY(%(firsts)s)"
_ADD_COVERED = """
INSERT INTO recto.covered(session, lane, tenant, first, last, hash)
SELECT %(session)s, %(lane)s, %(tenant)s, new.*
FROM unnest(%(firsts)s::bigint[], %(lasts)s::bigint[], %(hashes)s::bytea[]) AS new
"""
_DROP_FRESH = f"DELETE FROM recto.fresh WHERE {_HERE} AND seq = ANY(%(taken)s)"
_DROP_SEALED = f"""
DELETE FROM recto.sealed WHERE {_HERE}
AND (part, first) IN (SELECT * FROM unnest(%(old_parts)s::bigint[], %(old_firsts)s::bigint[]))
"""
_ADD_SEALED = """
INSERT INTO recto.sealed(session, lane, tenant, part, first, data)
SELECT %(session)s, %(lane)s, %(tenant)s, new.*
FROM unnest(%(parts)s::bigint[], %(firsts)s::bigint[], %(datas)s::bytea[]) AS new
ON CONFLICT (session, lane, part, first) DO UPDATE SET data = EXCLUDED.data
"""
_GENERATION = f"UPDATE recto.shelves SET generation = %(generation)s WHERE {_HERE} RETURNING generation"
_SESSIONS = "SELECT DISTINCT session FROM recto.shelves WHERE starts_with(session, %(prefix)s) ORDER BY session"
_LANE_NAMES = "SELECT DISTINCT lane FROM recto.shelves ORDER BY lane"
_LANES = """
SELECT s.lane, count(*),
  coalesce(sum((SELECT sum(c.last - c.first + 1) FROM recto.covered AS c
    WHERE c.session = s.session AND c.lane = s.lane)), 0)::bigint,
  coalesce(sum(coalesce((SELECT sum(octet_length(f.data)) FROM recto.fresh AS f
    WHERE f.session = s.session AND f.lane = s.lane), 0)
    + coalesce((SELECT sum(octet_length(p.data)) FROM recto.sealed AS p
    WHERE p.session = s.session AND p.lane = s.lane), 0)), 0)::bigint
FROM recto.shelves AS s GROUP BY s.lane ORDER BY s.lane
"""
_UNCOVERED = """
SELECT count(*) FROM recto.fresh AS f WHERE NOT EXISTS (
  SELECT 1 FROM recto.covered AS c
  WHERE c.session = f.session AND c.lane = f.lane AND f.seq BETWEEN c.first AND c.last
)
"""
_TABLES = ("fresh", "sealed", "covered", "shelves")
"""Rows of graphs are deleted with the row in `shelves`."""


class _SealConflict(Exception):
    """Another writer has replaced a row in the meantime: the seal is rolled back."""


class PostgresIndex:
    """The recall index in the database of the transcript. Its tables are created with the store's."""

    def __init__(self, url: str, *, key: str = "", lock_timeout: float = 30.0, connections: int = 8) -> None:
        self._url = url
        self._pool = ConnectionPool(url, key=key, patience=lock_timeout, connections=connections)
        self.graphs = PostgresGraphs(self._pool, self._translating)
        """Approximate vector search for long sessions, if the server has pgvector."""

    @property
    def location(self) -> str:
        """Where the store is, for messages: a path or a URL without the password."""
        return self._pool.location

    def covered(self, session: str, lane: str) -> list[CoveredRange]:
        """Return the entries the lane has indexed, as sorted ranges; adjacent ranges are joined."""
        rows = self._fetch(session, _COVERED, {"session": session, "lane": lane})
        return [CoveredRange(first, last, bytes(digest)) for first, last, digest in rows]

    def put(self, session: str, lane: str, rows: Sequence[IndexRow], covers: CoveredRange) -> None:
        """Add fresh rows and mark `covers` as indexed, atomically. Returns once both are durable."""
        session_key(session)
        uncovered_rows(rows, covers, [])  # refuses what no range could hold, before anything is written

        async def attempt() -> None:
            here = _here(session, lane)
            async with self._pool.transaction(here["tenant"]) as connection:
                await connection.execute(_OPEN, here)
                await connection.execute(_LOCK_LANE, here)
                await _put(connection, here, rows, covers)

        with self._translating():
            self._pool.run(lambda: self._pool.retry(attempt))

    def snapshot(self, session: str, lane: str, parts: Sequence[int] = ()) -> LaneSnapshot:
        """Read the fresh rows and the sealed rows of these parts, consistently."""
        parameters = {"session": session, "lane": lane, "parts": bigint_array(sorted(set(parts)))}
        generation = 0
        fresh: list[IndexRow] = []
        sealed: list[SealedRow] = []
        covered: list[CoveredRange] = []
        for what, one, two, data in self._fetch(session, _SNAPSHOT, parameters):
            if what == 0:
                generation = one
            elif what == 1:
                fresh.append(IndexRow(one, bytes(data)))
            elif what == 2:
                sealed.append(SealedRow(one, two, bytes(data)))
            else:
                covered.append(CoveredRange(one, two, bytes(data)))
        return LaneSnapshot(generation, fresh, sealed, covered)

    def seal(
        self,
        session: str,
        lane: str,
        seqs: Sequence[int],
        rows: Sequence[SealedRow],
        merged: Sequence[tuple[int, int]] = (),
        covers: CoveredRange | None = None,
    ) -> bool:
        """Replace fresh and sealed rows by new sealed rows, atomically; False if another writer was faster."""
        session_key(session)
        fresh, old = sorted(set(seqs)), sorted(set(merged))

        async def attempt() -> bool:
            here = _here(session, lane)
            try:
                async with self._pool.transaction(here["tenant"]) as connection:
                    if covers is not None:
                        await connection.execute(_OPEN, here)
                        await connection.execute(_LOCK_LANE, here)
                        await _cover(connection, here, covers)
                    await _seal(connection, here, fresh, rows, old)
            except _SealConflict:
                return False
            return True

        with self._translating():
            return self._pool.run(lambda: self._pool.retry(attempt))

    def sessions(self, prefix: str = "") -> list[str]:
        """Return the keys of all sessions with rows whose key starts with `prefix`."""
        with self._translating():
            tenant = tenant_of(prefix) or EVERYBODY
            rows = self._pool.run(lambda: self._pool.fetch_all(tenant, _SESSIONS, {"prefix": prefix}))
        return [session for (session,) in rows]

    def forget(self, session: str, lane: str | None = None) -> None:
        """Delete a session, or one of its lanes, so that it is indexed again."""
        self._drop(tenant_of(session), "WHERE session = %(session)s AND lane = coalesce(%(lane)s, lane)", session, lane)

    def scrub(self, sessions: Sequence[str]) -> None:
        """Rewrite the tables, so that nothing of deleted sessions is left in unused space."""
        with self._translating():
            rewrite_tables(self._url, RECALL, sessions, seconds=self._pool.patience)

    def lane_names(self) -> list[str]:
        """Return the names of all lanes, in order."""
        with self._translating():
            rows = self._pool.run(lambda: self._pool.fetch_all(EVERYBODY, _LANE_NAMES))
        return [lane for (lane,) in rows]

    def lanes(self) -> list[LaneSize]:
        """Return the size of every lane, for display."""
        with self._translating():
            rows = self._pool.run(lambda: self._pool.fetch_all(EVERYBODY, _LANES))
        return [LaneSize(lane=lane, sessions=count, entries=entries, bytes=size) for lane, count, entries, size in rows]

    def damage(self) -> list[str]:
        """Report rows outside the covered ranges."""
        with self._translating():
            [[count]] = self._pool.run(lambda: self._pool.fetch_all(EVERYBODY, _UNCOVERED))
        return [f"{count:,} rows belong to entries that are not covered"] if count else []

    def reset(self) -> None:
        """Empty the index; it is rebuilt from the transcripts."""
        self._drop(EVERYBODY, "", "", None)

    def close(self) -> None:
        """Close all connections. No other call may follow."""
        self._pool.close()

    def _drop(self, tenant: str, where: str, session: str, lane: str | None) -> None:
        async def attempt() -> None:
            async with self._pool.transaction(tenant) as connection:
                for table in _TABLES:
                    statement = f"DELETE FROM recto.{table} {where}"
                    await connection.execute(statement.encode(), {"session": session, "lane": lane})

        with self._translating():
            self._pool.run(lambda: self._pool.retry(attempt))

    def _fetch(self, session: str, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        with self._translating():
            return self._pool.run(lambda: self._pool.fetch_all(tenant_of(session), statement, parameters))

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Translate errors of the store to errors of an index."""
        try:
            yield
        except IndexFailed:
            raise
        except UnicodeEncodeError as error:
            raise IndexUnavailable(self.location, "a key with a lone surrogate cannot be looked up") from error
        except StoreError as error:
            raise to_index_error(error, self.location, self._pool.patience) from error


def _here(session: str, lane: str) -> dict[str, Any]:
    return {"session": session, "lane": lane, "tenant": tenant_of(session)}


async def _put(connection: Connection, here: dict[str, Any], rows: Sequence[IndexRow], covers: CoveredRange) -> None:
    near = await _near(connection, here, covers)
    new, merged_ranges = uncovered_rows(rows, covers, near), join_ranges([*near, covers])
    if merged_ranges == near:
        return
    fresh = {"seqs": bigint_array(row.seq for row in new), "datas": bytea_array(row.data for row in new)}
    await connection.execute(_ADD_FRESH, here | fresh)
    await _replace_ranges(connection, here, near, merged_ranges)


async def _cover(connection: Connection, here: dict[str, Any], covers: CoveredRange) -> None:
    """Mark a range as indexed. Raises `_SealConflict` if another writer has indexed some of it."""
    near = await _near(connection, here, covers)
    if overlaps(near, covers):
        raise _SealConflict
    await _replace_ranges(connection, here, near, join_ranges([*near, covers]))


async def _near(connection: Connection, here: dict[str, Any], covers: CoveredRange) -> list[CoveredRange]:
    """Return the ranges that overlap or touch another one, in order."""
    bounds = {"first": bigint(covers.first), "last": bigint(covers.last)}
    cursor = await connection.execute(_NEAR, here | bounds, binary=True)
    return [CoveredRange(first, last, bytes(digest)) for first, last, digest in await cursor.fetchall()]


async def _replace_ranges(
    connection: Connection, here: dict[str, Any], old: Sequence[CoveredRange], new: Sequence[CoveredRange]
) -> None:
    await connection.execute(_DROP_COVERED, here | {"firsts": bigint_array(one.first for one in old)})
    ranges = {
        "firsts": bigint_array(one.first for one in new),
        "lasts": bigint_array(one.last for one in new),
        "hashes": bytea_array(one.hash for one in new),
    }
    await connection.execute(_ADD_COVERED, here | ranges)


async def _seal(
    connection: Connection,
    here: dict[str, Any],
    fresh: Sequence[int],
    rows: Sequence[SealedRow],
    old: Sequence[tuple[int, int]],
) -> None:
    turn = await connection.execute(_LOCK_LANE, here)
    if await turn.fetchone() is None:
        raise _SealConflict
    gone = await connection.execute(_DROP_FRESH, here | {"taken": bigint_array(fresh)})
    places = {"old_parts": bigint_array(part for part, _ in old), "old_firsts": bigint_array(first for _, first in old)}
    merged = await connection.execute(_DROP_SEALED, here | places)
    ordered = sorted(rows)
    packed = {
        "parts": bigint_array(row.part for row in ordered),
        "firsts": bigint_array(row.first for row in ordered),
        "datas": bytea_array(row.data for row in ordered),
    }
    await connection.execute(_ADD_SEALED, here | packed)
    last = await connection.execute(_GENERATION, here | {"generation": bigint(1 + secrets.randbits(61))})
    await last.fetchone()  # what was sent before it is answered before it
    if gone.rowcount != len(fresh) or merged.rowcount != len(old):
        raise _SealConflict
