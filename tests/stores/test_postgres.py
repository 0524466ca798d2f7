"""What PostgreSQL itself refuses, who sees what in it, whose turn it is, and what happens when it goes away."""

from __future__ import annotations

import threading
from contextlib import suppress
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.cli.calling import called
from tests.postgres import as_role, database, new_role, server
from together import in_threads

from recto.errors import (
    AppendConflict,
    StoreError,
    StoreLocked,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
    TailCut,
)
from recto.recall.index.rows import CoveredRange, IndexRow
from recto.stores.postgres import PostgresStore, grant_role, upgrade_schema
from recto.stores.postgres.errors import UNSIGNED
from recto.stores.postgres.pool import tenant_token
from recto.stores.postgres.schema import _TABLE, shipped_steps
from recto.transcript.entries import EMPTY_HEAD, Draft, verify_chain

MAIN = "agent:default:main"
NORTH, SOUTH = "tenant:north/agent:a:main", "tenant:south/agent:a:main"
APPEND_ONLY = "RCT01"


@pytest.fixture(scope="module")
def url():
    with database() as made:
        PostgresStore(made).close()
        yield made


@pytest.fixture
def empty():
    with database() as made:
        yield made


def draft(name: str) -> Draft:
    return Draft(id=f"id-{name}", ts=1, role="user", content=name.encode(), key=f"key-{name}")


def admin(url: str) -> psycopg.Connection:
    """Past every wall: what an operator with all rights can do."""
    return psycopg.connect(server(), dbname=urlsplit(url).path[1:], autocommit=True)


def opened(url: str, **more) -> PostgresStore:
    return PostgresStore(url, **{"lock_timeout": 20, **more})


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE recto.entries SET content = 'x'",
        "UPDATE recto.entries SET ts = ts + 1 WHERE seq = 1",
        "DELETE FROM recto.entries",
        "DELETE FROM recto.heads",
        "DELETE FROM recto.kept_heads",
        "TRUNCATE recto.entries",
        "TRUNCATE recto.entries_3",
        "TRUNCATE recto.heads",
        "UPDATE recto.heads SET seq = seq - 1",
        "UPDATE recto.heads SET hash = decode(repeat('ff', 32), 'hex')",
        "UPDATE recto.heads SET session = 'other'",
        "INSERT INTO recto.entries SELECT session, seq + 7, tenant, 'new', ts, role, kind, wire, surface, tokens,"
        " counter, NULL, meta, prev, hash, content FROM recto.entries",
    ],
)
@pytest.mark.requirement("transcript.append-only")
def test_even_the_owner_of_the_tables_cannot_change_or_remove_an_entry(url, statement):
    with opened(url) as store:
        store.append(MAIN, [draft("a"), draft("b")])
        before = list(store.read(MAIN))
        with psycopg.connect(url) as connection:
            connection.execute("SET recto.tenant = '*'")
            with pytest.raises(psycopg.Error) as refused:
                connection.execute(statement)
        assert refused.value.sqlstate == APPEND_ONLY
        assert list(store.read(MAIN)) == before
        assert store.damage() == []


def test_a_tenant_sees_its_own_rows_and_who_names_none_sees_nothing(url):
    with opened(url) as store:
        for session in (NORTH, SOUTH, "plain"):
            store.append(session, [draft("same")])
        with psycopg.connect(url, autocommit=True) as connection:
            for table in ("entries", "heads", "kept_heads"):
                assert connection.execute(f"SELECT count(*) FROM recto.{table}").fetchone() == (0,)
            connection.execute("SET recto.tenant = 'north'")
            for table in ("entries", "heads", "kept_heads"):
                assert connection.execute(f"SELECT DISTINCT session FROM recto.{table}").fetchall() == [(NORTH,)]
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(
                    "INSERT INTO recto.heads(session, tenant, seq, hash) VALUES ('x', 'south', 0, %s)", (bytes(32),)
                )


def test_a_connection_that_goes_back_to_the_pool_forgets_its_tenant(url):
    with opened(url, connections=1) as store:
        store.append(NORTH, [draft("one")])
        assert store.head(NORTH).seq
        found = store._pool.run(lambda: _tenant_now(store))
        assert found in (None, "")


def names(connection: psycopg.Connection, tenant: str, key: str = "") -> None:
    """Names a tenant for the connection as a gateway does for a transaction."""
    connection.execute("SELECT set_config('recto.tenant', %s, false)", (tenant,))
    connection.execute("SELECT set_config('recto.token', %s, false)", (tenant_token(key, tenant),))


def test_a_kept_head_never_goes_back_except_where_the_owner_accepts_the_transcript(empty):
    with opened(empty) as store:
        store.append(NORTH, [draft("a"), draft("b")])
    with new_role(empty) as role:
        key = grant_role(empty, role)
        for url in (as_role(empty, role), empty):
            with psycopg.connect(url, autocommit=True) as connection:
                names(connection, "*", key)
                if url != empty:
                    connection.execute("SET recto.accepting = 'on'")  # saying so is not enough for another role
                for change in ("seq = 1", "seq = 0", "hash = decode(repeat('00', 32), 'hex')"):
                    with pytest.raises(psycopg.Error) as refused:
                        connection.execute(f"UPDATE recto.kept_heads SET {change}")
                    assert refused.value.sqlstate == APPEND_ONLY
        with opened(empty) as store:
            store.accept_heads()
            store.append(NORTH, [draft("c")])
            assert store.kept_heads()[NORTH] == store.head(NORTH)
            assert store.damage() == []


def test_a_partition_is_walled_off_by_tenant_like_its_table(url):
    with opened(url) as store:
        store.append(NORTH, [draft("wall")])
        store.append(SOUTH, [draft("wall")])
    with new_role(url) as role:
        key = grant_role(url, role)
        with admin(url) as connection:
            connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA recto TO {role}")
        with psycopg.connect(as_role(url, role), autocommit=True) as connection:
            for table in ("entries", "heads", "kept_heads", "terms"):
                for tenant in ("north", "south"):
                    names(connection, tenant, key)
                    found = {
                        row[0]
                        for part in range(16)
                        for row in connection.execute(f"SELECT tenant FROM recto.{table}_{part}").fetchall()
                    }
                    assert found <= {tenant}
                    assert found or table == "terms"


def walled_tables(url: str) -> list[str]:
    with admin(url) as connection:
        rows = connection.execute(
            "SELECT c.relname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'tenant'"
            " WHERE c.relnamespace = 'recto'::regnamespace AND c.relkind IN ('r', 'p')"
        ).fetchall()
    return [name for (name,) in rows]


def test_a_role_that_is_not_the_owner_opens_no_tenant_by_a_setting(url):
    """Neither another tenant nor all of them, in any table or partition, by any setting it can write."""
    with opened(url) as store:
        for session in (NORTH, SOUTH, "plain"):
            store.append(session, [draft("signed")])
    tables = walled_tables(url)
    assert len(tables) >= 8 * 17
    with new_role(url) as role:
        key = grant_role(url, role)
        with admin(url) as connection:  # the widest rights somebody could have given by mistake
            connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA recto TO {role}")
        stolen = tenant_token(key, "north")
        with psycopg.connect(as_role(url, role), autocommit=True) as connection:
            for tenant in ("north", "south", "*", ""):
                for token in ("", "0" * 64, tenant_token("rk-another", tenant), stolen if tenant != "north" else "x"):
                    connection.execute("SELECT set_config('recto.tenant', %s, false)", (tenant,))
                    connection.execute("SELECT set_config('recto.token', %s, false)", (token,))
                    for table in tables if not token else ("entries", "heads_3"):
                        with suppress(psycopg.Error):
                            assert connection.execute(f"SELECT count(*) FROM recto.{table}").fetchone() == (0,)
                    if tenant or token:
                        with pytest.raises(psycopg.Error) as refused:
                            connection.execute("SELECT count(*) FROM recto.entries")
                        assert refused.value.sqlstate == UNSIGNED
            names(connection, "north", key)
            assert connection.execute("SELECT DISTINCT tenant FROM recto.entries").fetchall() == [("north",)]
            assert connection.execute("SELECT count(*) FROM recto.store_keys").fetchone() == (0,)


def test_a_role_cannot_take_the_place_of_what_the_check_calls(url):
    """A function or an operator of its own, found before the system's, decides nothing."""
    with opened(url) as store:
        store.append(SOUTH, [draft("path")])
    with new_role(url) as role:
        grant_role(url, role)
        with admin(url) as connection:
            connection.execute(f"CREATE SCHEMA own_{role} AUTHORIZATION {role}")
        with psycopg.connect(as_role(url, role), autocommit=True) as connection:
            connection.execute(f"SET search_path = own_{role}, pg_catalog")
            for statement in (
                "CREATE FUNCTION pg_has_role(name, name, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
                "CREATE FUNCTION sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT ''x''::bytea'",
                "CREATE FUNCTION encode(bytea, text) RETURNS text LANGUAGE sql AS 'SELECT ''x''::text'",
                "CREATE FUNCTION same(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
                "CREATE OPERATOR = (LEFTARG = text, RIGHTARG = text, FUNCTION = same)",
                "CREATE TEMP TABLE store_keys(role text, inner_pad bytea, outer_pad bytea)",
            ):
                connection.execute(statement)
            connection.execute("SET recto.tenant = '*'")
            connection.execute("SET recto.token = 'x'")
            with pytest.raises(psycopg.Error) as refused:
                connection.execute("SELECT count(*) FROM recto.entries")
            assert refused.value.sqlstate == UNSIGNED
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("SELECT * FROM recto.store_keys")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("CREATE OR REPLACE FUNCTION recto.tenant() RETURNS text LANGUAGE sql AS 'SELECT 1'")


def test_a_tenant_does_not_take_the_name_of_anothers_session(url):
    with new_role(url) as role:
        key = grant_role(url, role)
        with psycopg.connect(as_role(url, role), autocommit=True) as connection:
            names(connection, "north", key)
            for session, tenant in (("tenant:south/taken", "north"), ("taken", "north"), ("tenant:north/x", "")):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(
                        "INSERT INTO recto.heads(session, tenant, seq, hash) VALUES (%s, %s, 0, %s)",
                        (session, tenant, bytes(32)),
                    )


def test_a_role_without_its_key_is_told_how_to_get_one_and_a_new_key_ends_the_old(url):
    with new_role(url) as role:
        key = grant_role(url, role)
        assert grant_role(url, role) == ""
        narrow = as_role(url, role)
        for wrong in ("", "rk-wrong"):
            with pytest.raises(StoreUnavailable, match="recto store grant"):
                opened(narrow, key=wrong)
        with opened(narrow, key=key) as old:
            old.append(NORTH, [draft("old key")])
            newer = grant_role(url, role, new_key=True)
            for call in (lambda: old.head(NORTH), lambda: old.append(NORTH, [draft("late")]), old.sessions):
                with pytest.raises(StoreUnavailable, match="recto store grant"):
                    call()
        with opened(narrow, key=newer) as store:
            assert store.head(NORTH).seq
            assert {summary.session for summary in store.sessions()} >= {NORTH}
            assert store.damage() == []


def test_the_command_prints_a_store_key_once_and_the_setting_opens_the_store(url, monkeypatch):
    with new_role(url) as role:
        granted = [called("--store", url, "store", "grant", role, *more) for more in ((), (), ("--new-key",))]
        assert [one.returncode for one in granted] == [0, 0, 0]
        assert [bool(one.stdout) for one in granted] == [True, False, True]
        name, _, key = granted[2].stdout.strip().partition("=")
        assert called("--store", as_role(url, role), "session", "ls").returncode != 0
        monkeypatch.setenv(name, key)
        assert called("--store", as_role(url, role), "session", "ls").returncode == 0


def test_policies_that_let_more_through_are_told(empty):
    with opened(empty) as store:
        with admin(empty) as connection:
            connection.execute("CREATE POLICY more ON recto.entries_3 USING (true)")
            assert store.damage() == ["table 'entries_3' is not walled off by tenant"]
            connection.execute("DROP POLICY more ON recto.entries_3")
            connection.execute("ALTER POLICY own_tenant ON recto.heads USING (true)")
        assert store.damage() == ["table 'heads' is not walled off by tenant"]


def test_gateways_of_an_older_recto_go_on_until_the_upgrade_is_finished(empty):
    """What they do: they name a tenant without a token. Afterwards it opens nothing."""
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute(_TABLE)
        for step in shipped_steps():
            if step.version < 6:
                connection.execute(step.sql.encode())
                connection.execute("INSERT INTO recto.schema_steps VALUES (%s, %s)", (step.version, step.step))
    with new_role(empty) as role:
        with admin(empty) as connection:  # as the older Recto granted it
            connection.execute(f"GRANT USAGE ON SCHEMA recto TO {role}")
            connection.execute(f"GRANT SELECT, INSERT ON recto.entries TO {role}")
            connection.execute(f"GRANT SELECT, INSERT, UPDATE ON recto.heads, recto.terms TO {role}")
            connection.execute(f"GRANT SELECT, INSERT, UPDATE (seq, hash) ON recto.kept_heads TO {role}")
            connection.execute(f"GRANT SELECT ON recto.schema_steps TO {role}")
        assert [(step.version, step.step) for step in upgrade_schema(empty, finish=False)] == [(6, "pre")]
        narrow = as_role(empty, role)
        with opened(narrow) as old:
            old.append(NORTH, [draft("before")])
            key = grant_role(empty, role)
            with opened(narrow, key=key) as new:
                assert new.append(NORTH, [draft("both")])[0].seq == 2
                assert old.append(NORTH, [draft("still")])[0].seq == 3
                assert new.damage() == []
                assert [(step.version, step.step) for step in upgrade_schema(empty, finish=True)] == [(6, "post")]
                with pytest.raises(StoreUnavailable, match="recto store grant"):
                    old.head(NORTH)
                assert new.append(NORTH, [draft("after")])[0].seq == 4
                assert new.damage() == []


async def _tenant_now(store: PostgresStore) -> str | None:
    async with store._pool._pool.connection() as connection:
        cursor = await connection.execute("SELECT current_setting('recto.tenant', true)")
        row = await cursor.fetchone()
        return row[0]


def test_a_role_with_the_rights_of_a_gateway_adds_and_can_do_no_more(empty):
    opened(empty).close()
    with new_role(empty) as role:
        key = grant_role(empty, role)
        narrow = as_role(empty, role)
        with opened(narrow, key=key) as store:
            store.append(NORTH, [draft("a")])
            index = store.index(lock_timeout=20)
            index.put(NORTH, "words/1", [IndexRow(1, b"row")], CoveredRange(1, 1, bytes(32)))
            assert index.snapshot(NORTH, "words/1").fresh == [IndexRow(1, b"row")]
            index.close()
            with store.turn(NORTH):
                store.append(NORTH, [draft("b")])
        with psycopg.connect(narrow, autocommit=True) as connection:
            names(connection, "*", key)
            for statement in (
                "UPDATE recto.entries SET ts = 0",
                "DELETE FROM recto.entries",
                "TRUNCATE recto.entries",
                "DELETE FROM recto.heads",
                "UPDATE recto.kept_heads SET tenant = 'south'",
                "INSERT INTO recto.erasing VALUES ('x')",
                "ALTER TABLE recto.entries DISABLE TRIGGER ALL",
                "ALTER TABLE recto.entries NO FORCE ROW LEVEL SECURITY",
                "DROP TABLE recto.entries",
                "SELECT * FROM recto.store_keys",
                "INSERT INTO recto.store_keys SELECT 'me', pad, pad FROM decode(repeat('00', 64), 'hex') AS pad",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement)


def test_guards_that_were_switched_off_and_ends_that_were_cut_are_told(empty):
    with opened(empty) as store:
        store.append(MAIN, [draft("a"), draft("b")])
        with admin(empty) as connection:
            connection.execute("ALTER TABLE recto.entries DISABLE TRIGGER entries_stay")
            assert any("entries_stay" in problem for problem in store.damage())
            connection.execute("ALTER TABLE recto.entries ENABLE TRIGGER entries_stay")
            connection.execute("SET session_replication_role = replica")
            connection.execute("DELETE FROM recto.entries WHERE seq = 2")
            assert store.damage() == [f"session '{MAIN}': entry 2, its end, is not there"]
            connection.execute("UPDATE recto.heads SET seq = 1, hash = (SELECT hash FROM recto.entries WHERE seq = 1)")
        with pytest.raises(TailCut):
            opened(empty).append(MAIN, [draft("c")])


def test_while_one_has_the_turn_nobody_else_writes(url):
    session = "turns/1"
    with opened(url) as one, opened(url, lock_timeout=0.3) as other:
        with one.turn(session):
            one.append(session, [draft("mine")])
            with pytest.raises(StoreLocked):
                other.append(session, [draft("other")])
            with pytest.raises(StoreLocked), other.turn(session):
                pass
            other.append("turns/elsewhere", [draft("x")])
            one.append(session, [draft("mine too")])
        other.append(session, [draft("other")])
        assert [entry.content for entry in one.read(session)] == [b"mine", b"mine too", b"other"]


def test_a_turn_that_ended_lets_who_waits_for_it_in(url):
    session, got = "turns/2", threading.Event()
    with opened(url) as one, opened(url) as other:

        def wait() -> None:
            with other.turn(session):
                other.append(session, [draft("second")])
            got.set()

        with one.turn(session):
            thread = threading.Thread(target=wait)
            thread.start()
            one.append(session, [draft("first")])
        assert got.wait(20)
        thread.join()
        assert [entry.content for entry in one.read(session)] == [b"first", b"second"]


def test_what_an_owner_writes_whose_turn_was_taken_over_is_refused(url):
    session = "turns/3"
    with opened(url) as one, opened(url) as other, one.turn(session):
        one.append(session, [draft("before")])
        with admin(url) as connection:  # nothing was heard of it for a while
            connection.execute(
                "UPDATE recto.heads SET lease_until = now() - interval '1 s' WHERE session = %s", (session,)
            )
        with other.turn(session):
            other.append(session, [draft("its")])
            with pytest.raises(AppendConflict, match="taken over"):
                one.append(session, [draft("late")])
        assert [entry.content for entry in other.read(session)] == [b"before", b"its"]


def test_processes_of_one_session_take_turns_and_never_interleave(url):
    session = "turns/4"
    stores = [opened(url, connections=2) for _ in range(4)]

    def work(number: int) -> None:
        for turn in range(5):
            with stores[number].turn(session):
                for step in range(3):
                    stores[number].append(session, [draft(f"{number}.{turn}.{step}")])

    in_threads(4, work)
    said = [entry.content.decode() for entry in stores[0].read(session)]
    assert len(said) == 4 * 5 * 3
    for first in range(0, len(said), 3):
        assert [one[-1] for one in said[first : first + 3]] == ["0", "1", "2"]
        assert len({one[:-2] for one in said[first : first + 3]}) == 1
    assert verify_chain(session, EMPTY_HEAD, stores[0].read(session)) == stores[0].head(session)
    for store in stores:
        store.close()


def test_a_connection_that_was_cut_costs_nothing_but_another_try(url):
    session = "cut/1"
    with opened(url) as store:
        for number in range(12):
            store.append(session, [draft(str(number))])
            with admin(url) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'recto'"
                )
        assert [entry.content for entry in store.read(session)] == [str(number).encode() for number in range(12)]


def test_a_server_that_does_not_let_anybody_write_is_told_as_such(empty):
    opened(empty).close()
    with admin(empty) as connection:
        connection.execute(f"ALTER DATABASE {urlsplit(empty).path[1:]} SET default_transaction_read_only = on")
    with opened(empty) as store:
        assert store.head(MAIN) == EMPTY_HEAD
        with pytest.raises(StoreReadOnly):
            store.append(MAIN, [draft("a")])


def test_a_lock_that_somebody_else_holds_is_waited_for_and_then_told(url):
    session = "locked/1"
    with opened(url, lock_timeout=0.5) as store:
        store.append(session, [draft("a")])
        with admin(url) as connection, connection.transaction():
            connection.execute("SELECT 1 FROM recto.heads WHERE session = %s FOR UPDATE", (session,))
            with pytest.raises(StoreLocked):
                store.append(session, [draft("b")])
        store.append(session, [draft("c")])
        assert [entry.content for entry in store.read(session)] == [b"a", b"c"]


def test_what_cannot_be_reached_is_told_without_the_password():
    for address in ("postgresql://ada:hunter2@127.0.0.1:1/none", "postgresql://ada:hunter2@/none?host=/nowhere"):
        with pytest.raises(StoreError) as refused:
            opened(address, lock_timeout=2)
        assert "hunter2" not in str(refused.value)


def test_a_database_without_a_store_is_not_made_one_by_who_only_looks(empty):
    with pytest.raises(StoreUnavailable, match="no store"):
        opened(empty, create=False)
    opened(empty).close()
    opened(empty, create=False).close()


def test_a_database_of_another_encoding_is_refused_before_anything_is_made_in_it():
    with database(options="ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0") as made:
        with pytest.raises(StoreUnavailable, match="SQL_ASCII; create one with ENCODING 'UTF8'"):
            opened(made)
        with admin(made) as connection:
            assert connection.execute("SELECT to_regnamespace('recto')").fetchone() == (None,)


def test_many_that_open_a_new_database_at_once_make_one_store(empty):
    in_threads(6, lambda number: opened(empty).close())
    with admin(empty) as connection:
        done = connection.execute("SELECT version, step FROM recto.schema_steps").fetchall()
    assert sorted(done) == sorted((step.version, step.step) for step in shipped_steps())
    assert upgrade_schema(empty, finish=True) == []


def test_a_database_of_a_newer_recto_is_left_alone(empty):
    opened(empty).close()
    with admin(empty) as connection:
        connection.execute("INSERT INTO recto.schema_steps(version, step) VALUES (9999, 'pre')")
    with pytest.raises(StoreTooNew):
        opened(empty)
