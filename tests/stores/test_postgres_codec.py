"""What spares the PostgreSQL store work changes nothing of what it says."""

from __future__ import annotations

import asyncio
import re
from contextlib import closing, contextmanager

import pytest
from tests import postgres

psycopg = pytest.importorskip("psycopg")

from recto.stores.postgres import PostgresStore, _index, queries  # noqa: E402
from recto.stores.postgres.codec import bigint, bigint_array, bytea_array, register_dumpers, text_array  # noqa: E402
from recto.transcript.entries import Draft  # noqa: E402  # after what is skipped for

SESSION = "agent:sending:main"
REQUIRED = (
    queries.HEAD,
    queries.PAGE,
    queries.TAIL,
    queries.PICKED,
    queries.BY_ID,
    queries.BY_KEY,
    queries.STATUS,
    queries.APPEND,
    queries.TAKE_LEASE,
    queries.RENEW_LEASE,
    queries.END_LEASE,
    _index._SNAPSHOT,
    _index._COVERED,
    _index._NEAR,
    _index._DROP_FRESH,
    _index._DROP_SEALED,
)


def draft(number: int) -> Draft:
    return Draft(id=f"e{number}", ts=number, role="user", content=b"{}", wire="openai.chat", tokens=1)


@contextmanager
def opened(url: str, **given: float):
    with closing(PostgresStore(url, **given)) as store:
        yield store


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (bytea_array, []),
        (bytea_array, [b"", b"\x00\xff'\\\"{},", None, b"x" * 100_000]),
        (text_array, ["", "NULL", 'a"b\\c,{}', "ü𝄞"]),
        (bigint_array, [0, -1, 2**31, 2**63 - 1, -(2**63)]),
    ],
)
def test_a_column_arrives_as_it_was_given(column, values):
    with psycopg.connect(postgres.server()) as connection:
        register_dumpers(connection)
        assert connection.execute("SELECT %s", (column(values),), binary=True).fetchone() == (values,)
        for one in values if column is bigint_array else ():
            kind = connection.execute("SELECT pg_typeof(%s)::text, %s", (bigint(one), bigint(one))).fetchone()
            assert kind == ("bigint", one)


def in_one_piece(work):
    """Has some work done with a connection that was just opened; in a table of its own, which goes with it."""

    async def doing():
        async with await psycopg.AsyncConnection.connect(postgres.server(), autocommit=True) as connection:
            await connection.execute("CREATE TEMPORARY TABLE pieces(n integer PRIMARY KEY, said text)")
            await work(connection)

    asyncio.run(doing())


async def added(connection, *numbers):
    async with connection.pipeline():
        for one in numbers:
            await connection.execute("INSERT INTO pieces VALUES (%s, 'a')", (one,))


def test_what_is_sent_in_one_pipeline_is_all_done_or_not_at_all_and_the_connection_goes_on():
    async def work(connection):
        with pytest.raises(psycopg.errors.UniqueViolation):
            await added(connection, 1, 1, 2)
        async with connection.pipeline():
            left = await connection.execute("SELECT count(*) FROM pieces")
        assert await left.fetchall() == [(0,)]

    in_one_piece(work)


def test_what_is_larger_than_the_way_arrives_whole_and_so_does_its_answer():
    """Neither side takes all of it at one stroke: who sends must read meanwhile."""
    said = "x" * 30_000_000

    async def work(connection):
        async with connection.pipeline():
            first = await connection.execute("SELECT repeat('y', 30000000)")
            await connection.execute("INSERT INTO pieces VALUES (1, %s)", (said,))
            found = await connection.execute("SELECT said FROM pieces")
        assert len((await first.fetchone())[0]) == len(said)
        assert (await found.fetchone())[0] == said

    in_one_piece(work)


@pytest.fixture(scope="module")
def untouched():
    """A database that nothing was ever in; in one that was used and emptied, the server knows that it is small."""
    with postgres.database() as made:
        yield made


@pytest.mark.parametrize("statement", REQUIRED)
def test_a_statement_of_every_turn_finds_its_session_by_an_index_even_in_an_empty_database(untouched, statement):
    """Plans are kept: one made while a table was small must not read all of it when it has grown."""
    with opened(untouched), psycopg.connect(untouched) as connection:
        seen: dict[str, int] = {}
        asked = re.sub(r"%\((\w+)\)s", lambda found: f"${seen.setdefault(found[1], len(seen) + 1)}", statement)
        if connection.info.server_version < 160_000:
            pytest.skip("this server cannot tell a plan without values")
        plan = "\n".join(line for (line,) in connection.execute(f"EXPLAIN (GENERIC_PLAN) {asked}").fetchall())
        assert "Index" in plan
        assert "Seq Scan" not in plan


def test_who_has_the_turn_knows_the_end_of_the_session_without_asking():
    with opened(postgres.emptied()) as store:
        store.append(SESSION, [draft(1)])
        with store.turn(SESSION):
            first = store.head(SESSION)
            asked = store._pool.run
            store._pool.run = None  # whoever asks the database now fails
            try:
                assert store.head(SESSION) == first
            finally:
                store._pool.run = asked
            [entry] = store.append(SESSION, [draft(2)])
            assert (store.head(SESSION).seq, store.head(SESSION).hash) == (2, entry.hash)
        assert store.head(SESSION).seq == 2


def test_who_has_lost_the_turn_does_not_go_by_what_it_knew():
    url = postgres.emptied()
    with opened(url, lease=0.5) as slow, opened(url) as quick:
        slow.append(SESSION, [draft(1)])
        with slow.turn(SESSION):
            assert slow.head(SESSION).seq == 1
            slow._leases._leases[SESSION].renewing.cancel()  # nothing is heard of it any more
            with quick.turn(SESSION):  # waits until the lease has ended
                quick.append(SESSION, [draft(2)])
                assert slow.head(SESSION).seq == 2


def test_a_turn_begins_with_what_others_wrote_before_it():
    url = postgres.emptied()
    with opened(url) as one, opened(url) as other:
        one.append(SESSION, [draft(1)])
        other.append(SESSION, [draft(2)])
        with one.turn(SESSION):
            assert one.head(SESSION).seq == 2
        other.append(SESSION, [draft(3)])
        with one.turn(SESSION):
            assert one.head(SESSION).seq == 3
