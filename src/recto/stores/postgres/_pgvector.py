"""Vector graphs of long sessions with pgvector: finds nearest neighbours without reading all vectors.

A graph is derived from sealed rows. It is shared by the long sessions of a
partition; a search continues until it has enough vectors of the requested session. The caller decides which
sessions are long.
"""

# ruff: noqa: S608  # statements are made of constants alone

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Final

from recto.recall.index.rows import GraphVector, UnlinkedBlocks
from recto.stores.postgres.codec import bigint, bigint_array, text_array
from recto.stores.postgres.pool import EVERYBODY, ConnectionPool
from recto.transcript.session_keys import tenant_of

SIZES: Final = (384, 768, 1536, 3072)
"""Dimensions of the graphs. Shorter vectors are padded with zeros, which changes no angle."""
_LEAST_LOOKED_AT, _MOST_LOOKED_AT = 100, 1000
"""Bounds of `hnsw.ef_search`; pgvector permits no more."""

_STATE = """
SELECT n.nspname, e.extversion, to_regclass('recto.near') IS NOT NULL,
  CASE WHEN to_regclass('recto.near') IS NOT NULL THEN has_table_privilege('recto.near', 'SELECT, INSERT') END
FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace WHERE e.extname = 'vector'
"""
_HERE = "session = %(session)s AND lane = %(lane)s"
_UNLINKED = f"""
SELECT generation, (SELECT count(*) FROM recto.sealed WHERE {_HERE} AND part BETWEEN %(low)s AND %(high)s),
  ARRAY(SELECT s.first FROM recto.sealed AS s WHERE s.session = %(session)s AND s.lane = %(lane)s
    AND s.part BETWEEN %(low)s AND %(high)s AND NOT EXISTS (
      SELECT 1 FROM recto.linked AS l WHERE l.session = %(session)s AND l.lane = %(lane)s AND l.first = s.first
    ) ORDER BY s.first)
FROM recto.shelves WHERE {_HERE}
"""
_LINK = """
WITH held AS (
  SELECT session, lane, tenant FROM recto.shelves
  WHERE session = %(session)s AND lane = %(lane)s AND generation = %(generation)s FOR KEY SHARE
), marked AS (
  INSERT INTO recto.linked(session, lane, tenant, first)
  SELECT held.*, new.first FROM held CROSS JOIN unnest(%(firsts)s::bigint[]) AS new(first) ON CONFLICT DO NOTHING
)
INSERT INTO recto.near(session, lane, tenant, seq, piece, size, scale, code)
SELECT held.*, new.seq, new.piece, %(size)s, new.scale, new.code::halfvec FROM held CROSS JOIN unnest(
  %(seqs)s::bigint[], %(pieces)s::bigint[], %(scales)s::real[], %(codes)s::text[]
) AS new(seq, piece, scale, code) ON CONFLICT DO NOTHING
"""
"""The lane's row is locked in share mode, so that the lane is not deleted meanwhile; rows can still be added to it."""
_COSINE = "(scale * -(code::vector <#> %(query)s::text::vector))::double precision"
_NEAR = {
    size: f"""
SELECT seq, {_COSINE} FROM (
  SELECT seq, scale, code FROM recto.near WHERE {_HERE} AND size = {size}
  ORDER BY code::halfvec({size}) <=> %(query)s::text::halfvec({size}) LIMIT %(most)s
) AS found
"""
    for size in SIZES
}
_AMONG = f"SELECT seq, {_COSINE} FROM recto.near WHERE {_HERE} AND seq = ANY(%(seqs)s)"
_AT_HOME = "SELECT set_config('search_path', %(home)s, true)"
_SEARCHING = """
SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_sort', 'off', true),
  set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', %(looked_at)s, true)
"""
"""For one transaction: plan for this session, use the graph, and scan until enough vectors are found."""


class PostgresGraphs:
    """The vector graphs of one database."""

    def __init__(self, pool: ConnectionPool, translating: Callable[[], AbstractContextManager[None]]) -> None:
        self._pool = pool
        self._translating = translating
        self._home: str | None = None

    def unavailable_reason(self) -> str:
        """Return why graphs are not available; empty if they are."""
        with self._translating():
            rows = self._pool.run(lambda: self._pool.fetch_all(EVERYBODY, _STATE))
        home, version, is_made, is_allowed = rows[0] if rows else ("", "", False, False)
        if not rows:
            return "pgvector is not switched on in this database"
        if not is_made:
            return f"pgvector {version} is there, its tables are not yet"
        if not is_allowed:
            return "this role may not use them"
        self._home = home
        return ""

    def supports(self, dims: int) -> bool:
        """Whether graphs support vectors of this length. Queries the database the first time."""
        if self._home is None:
            self._home = "" if self.unavailable_reason() else self._home
        return bool(self._home) and dims <= SIZES[-1]

    def unlinked_blocks(self, session: str, lane: str, low: int, high: int) -> UnlinkedBlocks:
        """Return the blocks that are not in a graph yet; every block has one row in the parts from `low` to `high`."""
        parameters = {"session": session, "lane": lane, "low": bigint(low), "high": bigint(high)}
        with self._translating():
            rows = self._pool.run(lambda: self._pool.fetch_all(tenant_of(session), _UNLINKED, parameters))
        return UnlinkedBlocks(*rows[0]) if rows else UnlinkedBlocks(0, 0, [])

    def link(self, session: str, lane: str, generation: int, dims: int, vectors: Sequence[GraphVector]) -> None:
        """Add vectors to a graph, atomically; adds nothing if the lane's generation has changed since."""
        size = _size_of(dims)
        rest = ",0" * (size - dims)
        parameters = {
            "session": session,
            "lane": lane,
            "generation": bigint(generation),
            "size": size,
            "firsts": bigint_array(sorted({vector.first for vector in vectors})),
            "seqs": bigint_array(vector.seq for vector in vectors),
            "pieces": bigint_array(vector.passage for vector in vectors),
            "scales": [vector.scale for vector in vectors],
            "codes": text_array(f"[{','.join(map(str, array('b', vector.code)))}{rest}]" for vector in vectors),
        }

        async def attempt() -> None:
            async with self._pool.batch(tenant_of(session)) as connection:
                await connection.execute(_AT_HOME, {"home": self._home})
                await connection.execute(_LINK, parameters)

        with self._translating():
            self._pool.run(lambda: self._pool.retry(attempt))

    def nearest(self, session: str, lane: str, query: Sequence[float], limit: int) -> list[tuple[int, float]]:
        """Return the entries nearest to a unit vector with their exact cosines, in no order."""
        looked_at = str(min(max(limit, _LEAST_LOOKED_AT), _MOST_LOOKED_AT))
        parameters = {"session": session, "lane": lane, "query": _text_of(query), "most": bigint(limit)}
        return self._search(_NEAR[_size_of(len(query))], parameters, looked_at)

    def similarities(
        self, session: str, lane: str, query: Sequence[float], seqs: Collection[int]
    ) -> list[tuple[int, float]]:
        """Return the cosine of every vector of these entries that is in the graph."""
        parameters = {"session": session, "lane": lane, "query": _text_of(query), "seqs": bigint_array(sorted(seqs))}
        return self._search(_AMONG, parameters, None)

    def _search(self, statement: str, parameters: dict[str, object], looked_at: str | None) -> list[tuple[int, float]]:
        tenant = tenant_of(str(parameters["session"]))

        async def attempt() -> list[tuple[int, float]]:
            async with self._pool.batch(tenant) as connection:
                await connection.execute(_AT_HOME, {"home": self._home})
                if looked_at is not None:
                    await connection.execute(_SEARCHING, {"looked_at": looked_at})
                cursor = await connection.execute(statement, parameters, binary=True)
            return await cursor.fetchall()

        with self._translating():
            return self._pool.run(lambda: self._pool.retry(attempt))


def _size_of(dims: int) -> int:
    return next(size for size in SIZES if size >= dims)


def _text_of(query: Sequence[float]) -> str:
    rest = ",0" * (_size_of(len(query)) - len(query))
    return f"[{','.join(f'{value:.9g}' for value in query)}{rest}]"
