"""Graphs of the vectors of long sessions, where the server has pgvector: the nearest are found without reading all.

A graph is made of sealed rows and is never the only copy of anything. It is shared by the long sessions of a
partition; a search goes on in it until it has found enough of the one that is asked for. What a vector means, and which
sessions are long, is not known here.
"""

# ruff: noqa: S608  # statements are made of constants alone

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Final

from recto.recall.index.rows import GraphVector, UnlinkedBlocks
from recto.stores.postgres.codec import number, of_numbers, of_texts
from recto.stores.postgres.pool import EVERYBODY, ConnectionPool
from recto.transcript.session_keys import tenant_of

SIZES: Final = (384, 768, 1536, 3072)
"""How long vectors are in the graphs; shorter ones are filled up with zeros, which changes no angle."""
_LEAST_LOOKED_AT, _MOST_LOOKED_AT = 100, 1000
"""Vectors that a search keeps in sight; pgvector allows no more."""

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
"""The row of the lane is held meanwhile, so that nobody takes the lane away; others go on adding to it."""
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
"""For one transaction: planned for this session, along the graph, for as long as it takes to find enough."""


class PostgresGraphs:
    """The graphs of one database."""

    def __init__(self, link: ConnectionPool, translating: Callable[[], AbstractContextManager[None]]) -> None:
        self._link = link
        self._translating = translating
        self._home: str | None = None

    def unavailable_reason(self) -> str:
        """Why there are none, in words; nothing where there are."""
        with self._translating():
            found = self._link.do(lambda: self._link.fetched(EVERYBODY, _STATE))
        home, version, is_made, is_allowed = found[0] if found else ("", "", False, False)
        if not found:
            return "pgvector is not switched on in this database"
        if not is_made:
            return f"pgvector {version} is there, its tables are not yet"
        if not is_allowed:
            return "this role may not use them"
        self._home = home
        return ""

    def supports(self, dims: int) -> bool:
        """Whether vectors of this length can be found so. Where that is not known yet, the database is asked, once."""
        if self._home is None:
            self._home = "" if self.unavailable_reason() else self._home
        return bool(self._home) and dims <= SIZES[-1]

    def unlinked_blocks(self, session: str, lane: str, low: int, high: int) -> UnlinkedBlocks:
        """How many blocks there are, by the parts that each has one of, and which of them are not in a graph yet."""
        given = {"session": session, "lane": lane, "low": number(low), "high": number(high)}
        with self._translating():
            found = self._link.do(lambda: self._link.fetched(tenant_of(session), _UNLINKED, given))
        return UnlinkedBlocks(*found[0]) if found else UnlinkedBlocks(0, 0, [])

    def link(self, session: str, lane: str, generation: int, dims: int, vectors: Sequence[GraphVector]) -> None:
        """Takes vectors into a graph, all or none; none where the lane is of another generation by now."""
        size = _size_of(dims)
        rest = ",0" * (size - dims)
        given = {
            "session": session,
            "lane": lane,
            "generation": number(generation),
            "size": size,
            "firsts": of_numbers(sorted({one.first for one in vectors})),
            "seqs": of_numbers(one.seq for one in vectors),
            "pieces": of_numbers(one.passage for one in vectors),
            "scales": [one.scale for one in vectors],
            "codes": of_texts(f"[{','.join(map(str, array('b', one.code)))}{rest}]" for one in vectors),
        }

        async def attempt() -> None:
            async with self._link.batch(tenant_of(session)) as connection:
                await connection.execute(_AT_HOME, {"home": self._home})
                await connection.execute(_LINK, given)

        with self._translating():
            self._link.do(lambda: self._link.again(attempt))

    def nearest(self, session: str, lane: str, query: Sequence[float], most: int) -> list[tuple[int, float]]:
        """Entries by the vectors that are nearest to one of length 1, not in order. What is there is told exactly."""
        looked_at = str(min(max(most, _LEAST_LOOKED_AT), _MOST_LOOKED_AT))
        given = {"session": session, "lane": lane, "query": _text_of(query), "most": number(most)}
        return self._found(_NEAR[_size_of(len(query))], given, looked_at)

    def similarities(
        self, session: str, lane: str, query: Sequence[float], seqs: Collection[int]
    ) -> list[tuple[int, float]]:
        """How near each vector of these entries is."""
        given = {"session": session, "lane": lane, "query": _text_of(query), "seqs": of_numbers(sorted(seqs))}
        return self._found(_AMONG, given, None)

    def _found(self, statement: str, given: dict[str, object], looked_at: str | None) -> list[tuple[int, float]]:
        tenant = tenant_of(str(given["session"]))

        async def attempt() -> list[tuple[int, float]]:
            async with self._link.batch(tenant) as connection:
                await connection.execute(_AT_HOME, {"home": self._home})
                if looked_at is not None:
                    await connection.execute(_SEARCHING, {"looked_at": looked_at})
                cursor = await connection.execute(statement, given, binary=True)
            return await cursor.fetchall()

        with self._translating():
            return self._link.do(lambda: self._link.again(attempt))


def _size_of(dims: int) -> int:
    return next(size for size in SIZES if size >= dims)


def _text_of(query: Sequence[float]) -> str:
    rest = ",0" * (_size_of(len(query)) - len(query))
    return f"[{','.join(f'{value:.9g}' for value in query)}{rest}]"
