"""The index of recall in PostgreSQL, beside the transcript. Any number of gateways may use it at once.

Writers of one lane of one session take turns by its row in `shelves`; others do not meet. It knows rows and
transactions, not what the rows mean.
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
    uncovered_rows,
)
from recto.stores.errors import of_an_index
from recto.stores.postgres.codec import number, of_bytes, of_numbers
from recto.stores.postgres.erasure import RECALL, written_anew
from recto.stores.postgres.pgvector import PostgresGraphs
from recto.stores.postgres.pool import EVERYBODY, Connection, ConnectionPool
from recto.transcript.entries import session_key
from recto.transcript.session_keys import tenant_of

_HERE = "session = %(session)s AND lane = %(lane)s"
_COVERED = f"SELECT first, last, hash FROM recto.covered WHERE {_HERE} ORDER BY first"
_GLANCE = f"""
SELECT 0, generation, 0::bigint, NULL::bytea FROM recto.shelves WHERE {_HERE}
UNION ALL SELECT 1, seq, 0, data FROM recto.fresh WHERE {_HERE}
UNION ALL SELECT 2, part, first, data FROM recto.sealed WHERE {_HERE} AND part = ANY(%(parts)s)
ORDER BY 1, 2, 3
"""
"""One statement, so that all of it is of one moment."""
_OPEN = """
INSERT INTO recto.shelves(session, lane, tenant, generation) VALUES (%(session)s, %(lane)s, %(tenant)s, 0)
ON CONFLICT (session, lane) DO NOTHING
"""
_TURN = f"SELECT generation FROM recto.shelves WHERE {_HERE} FOR NO KEY UPDATE"
"""Who takes vectors into a graph meanwhile is not in the way."""
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
"""What is in graphs goes with the row in `shelves`."""


class _Taken(Exception):
    """Somebody else has taken a row meanwhile: nothing of the sealing is done."""


class PostgresIndex:
    """What recall searches, in the database of the transcript. Its tables are made with the store's."""

    def __init__(self, url: str, *, lock_timeout: float = 30.0, connections: int = 8) -> None:
        self._url = url
        self._link = ConnectionPool(url, patience=lock_timeout, connections=connections)
        self.graphs = PostgresGraphs(self._link, self._translating)
        """What finds the nearest vectors of long sessions, where the server can."""

    @property
    def location(self) -> str:
        """Where it is, as a person would write it."""
        return self._link.location

    def covered(self, session: str, lane: str) -> list[CoveredRange]:
        """Which entries the lane has taken in, as ranges in order; neighbours are joined."""
        found = self._fetched(session, _COVERED, {"session": session, "lane": lane})
        return [CoveredRange(first, last, bytes(digest)) for first, last, digest in found]

    def put(self, session: str, lane: str, rows: Sequence[IndexRow], covers: CoveredRange) -> None:
        """Adds fresh rows and what they cover, all or none; returns when both are confirmed."""
        session_key(session)
        uncovered_rows(rows, covers, [])  # refuses what no range could hold, before anything is written

        async def attempt() -> None:
            here = _here(session, lane)
            async with self._link.transaction(here["tenant"]) as connection:
                await connection.execute(_OPEN, here)
                await connection.execute(_TURN, here)
                await _put(connection, here, rows, covers)

        with self._translating():
            self._link.do(lambda: self._link.again(attempt))

    def snapshot(self, session: str, lane: str, parts: Sequence[int] = ()) -> LaneSnapshot:
        """The fresh rows and the sealed rows of these parts, as they are at one moment."""
        given = {"session": session, "lane": lane, "parts": of_numbers(sorted(set(parts)))}
        generation, fresh, sealed = 0, [], []
        for what, one, two, data in self._fetched(session, _GLANCE, given):
            if what == 0:
                generation = one
            elif what == 1:
                fresh.append(IndexRow(one, bytes(data)))
            else:
                sealed.append(SealedRow(one, two, bytes(data)))
        return LaneSnapshot(generation, fresh, sealed)

    def seal(
        self,
        session: str,
        lane: str,
        taken: Sequence[int],
        rows: Sequence[SealedRow],
        merged: Sequence[tuple[int, int]] = (),
    ) -> bool:
        """Puts sealed rows in the place of fresh and of sealed ones, all or none."""
        fresh, old = sorted(set(taken)), sorted(set(merged))

        async def attempt() -> bool:
            here = _here(session, lane)
            try:
                async with self._link.transaction(here["tenant"]) as connection:
                    await _seal(connection, here, fresh, rows, old)
            except _Taken:
                return False
            return True

        with self._translating():
            return self._link.do(lambda: self._link.again(attempt))

    def sessions(self, prefix: str = "") -> list[str]:
        """The sessions it holds anything of, by key, whose key begins so."""
        with self._translating():
            tenant = tenant_of(prefix) or EVERYBODY
            found = self._link.do(lambda: self._link.fetched(tenant, _SESSIONS, {"prefix": prefix}))
        return [session for (session,) in found]

    def forget(self, session: str, lane: str | None = None) -> None:
        """Lets go of a session, or of one of its lanes, to be made anew."""
        self._drop(tenant_of(session), "WHERE session = %(session)s AND lane = coalesce(%(lane)s, lane)", session, lane)

    def scrub(self, sessions: Sequence[str]) -> None:
        """Leaves nothing of forgotten sessions in the gaps of its tables."""
        with self._translating():
            written_anew(self._url, RECALL, sessions, seconds=self._link.patience)

    def lanes(self) -> list[LaneSize]:
        """What there is, for people: every lane with how much it holds."""
        with self._translating():
            found = self._link.do(lambda: self._link.fetched(EVERYBODY, _LANES))
        return [
            LaneSize(lane=lane, sessions=count, entries=entries, bytes=size) for lane, count, entries, size in found
        ]

    def damage(self) -> list[str]:
        """Rows that nothing accounts for."""
        with self._translating():
            [[count]] = self._link.do(lambda: self._link.fetched(EVERYBODY, _UNCOVERED))
        return [f"{count:,} rows belong to entries that are not covered"] if count else []

    def reset(self) -> None:
        """Empties it: it is made anew from the transcripts."""
        self._drop(EVERYBODY, "", "", None)

    def close(self) -> None:
        """Lets go of its connections; no other call may follow."""
        self._link.close()

    def _drop(self, tenant: str, where: str, session: str, lane: str | None) -> None:
        async def attempt() -> None:
            async with self._link.transaction(tenant) as connection:
                for table in _TABLES:
                    statement = f"DELETE FROM recto.{table} {where}"
                    await connection.execute(statement.encode(), {"session": session, "lane": lane})

        with self._translating():
            self._link.do(lambda: self._link.again(attempt))

    def _fetched(self, session: str, statement: str, given: dict[str, Any]) -> list[tuple[Any, ...]]:
        with self._translating():
            return self._link.do(lambda: self._link.fetched(tenant_of(session), statement, given))

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Lets only errors of an index out."""
        try:
            yield
        except IndexFailed:
            raise
        except UnicodeEncodeError as error:
            raise IndexUnavailable(self.location, "a key with a lone surrogate cannot be looked up") from error
        except StoreError as error:
            raise of_an_index(error, self.location, self._link.patience) from error


def _here(session: str, lane: str) -> dict[str, Any]:
    return {"session": session, "lane": lane, "tenant": tenant_of(session)}


async def _put(connection: Connection, here: dict[str, Any], rows: Sequence[IndexRow], covers: CoveredRange) -> None:
    cursor = await connection.execute(
        _NEAR, here | {"first": number(covers.first), "last": number(covers.last)}, binary=True
    )
    near = [CoveredRange(first, last, bytes(digest)) for first, last, digest in await cursor.fetchall()]
    new, together = uncovered_rows(rows, covers, near), join_ranges([*near, covers])
    if together == near:
        return
    fresh = {"seqs": of_numbers(row.seq for row in new), "datas": of_bytes(row.data for row in new)}
    await connection.execute(_ADD_FRESH, here | fresh)
    await connection.execute(_DROP_COVERED, here | {"firsts": of_numbers(one.first for one in near)})
    ranges = {
        "firsts": of_numbers(one.first for one in together),
        "lasts": of_numbers(one.last for one in together),
        "hashes": of_bytes(one.hash for one in together),
    }
    await connection.execute(_ADD_COVERED, here | ranges)


async def _seal(
    connection: Connection,
    here: dict[str, Any],
    fresh: Sequence[int],
    rows: Sequence[SealedRow],
    old: Sequence[tuple[int, int]],
) -> None:
    turn = await connection.execute(_TURN, here)
    if await turn.fetchone() is None:
        raise _Taken
    gone = await connection.execute(_DROP_FRESH, here | {"taken": of_numbers(fresh)})
    places = {"old_parts": of_numbers(part for part, _ in old), "old_firsts": of_numbers(first for _, first in old)}
    merged = await connection.execute(_DROP_SEALED, here | places)
    ordered = sorted(rows)
    packed = {
        "parts": of_numbers(row.part for row in ordered),
        "firsts": of_numbers(row.first for row in ordered),
        "datas": of_bytes(row.data for row in ordered),
    }
    await connection.execute(_ADD_SEALED, here | packed)
    last = await connection.execute(_GENERATION, here | {"generation": number(1 + secrets.randbits(61))})
    await last.fetchone()  # what was sent before it is answered before it
    if gone.rowcount != len(fresh) or merged.rowcount != len(old):
        raise _Taken
