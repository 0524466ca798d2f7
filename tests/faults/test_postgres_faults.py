"""Faults between a store and PostgreSQL: cut connections, transaction conflicts, a full disk.

An append returns the correct result or an error: nothing is stored twice or partially, and no caller waits for ever.
"""

from __future__ import annotations

import itertools
import random
import select
import shutil
import socket
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from own_postgres import own_server
from witness import draft, findings

from recto.errors import AppendConflict, StoreError, StoreFull, StoreUnavailable
from recto.stores.postgres import PostgresStore
from recto.transcript.entries import Draft

pytestmark = pytest.mark.timeout(300)
_SOCKET = ".s.PGSQL.5432"


class Proxy:
    """A proxy between a store and its server that cuts one connection after so many bytes in one direction."""

    def __init__(self, folder: Path, server: Path) -> None:
        self._server = str(server / _SOCKET)
        self._lock = threading.Lock()
        self._left: dict[str, int] = {}
        self.cuts = 0
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(folder / _SOCKET))
        self._door.listen(64)
        self._serving: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def cut_after(self, count: int, way: str) -> None:
        """Cuts a connection after `count` bytes from now on, in the direction `to_server` or `to_client`."""
        with self._lock:
            self._left = {way: count}

    def close(self) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._accepting.join(10)
        self._door.close()
        for thread in self._serving:
            thread.join(10)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
                self._serving.append(thread)
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        """Forwards one connection in both directions until either side ends it or it is cut."""
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            server.connect(self._server)
            ways = {client: (server, "to_server"), server: (client, "to_client")}
            while True:
                for source in select.select(list(ways), [], [])[0]:
                    other, way = ways[source]
                    raw = source.recv(65536)
                    room = self._room(way, len(raw))
                    other.sendall(raw[:room])
                    if not raw or room < len(raw):
                        return

    def _room(self, way: str, size: int) -> int:
        """Returns how many bytes pass. Only one connection is cut; the next ones are not."""
        with self._lock:
            left = self._left.get(way)
            if left is None:
                return size
            if size <= left:
                self._left[way] = left - size
                return size
            self._left = {}
            self.cuts += 1
            return left


@pytest.fixture(scope="module")
def server():
    with own_server() as made:
        made.start("fsync=off")
        yield made


@pytest.fixture
def proxied(server):
    """The address of a store behind a proxy, and the proxy."""
    folder = server.folder / f"proxy-{random.getrandbits(32):x}"
    folder.mkdir()
    proxy = Proxy(folder, server.folder)
    name = f"behind_{random.getrandbits(40):x}"
    PostgresStore(server.made(name)).close()
    yield server.address(name, folder=folder), proxy
    proxy.close()


class Forgetful(PostgresStore):
    """The control: it does not check whether a failed append was stored after all."""

    async def _append_at_head(self, session, drafts, expect, tried):
        return await super()._append_at_head(session, drafts, expect, [])


def through_cuts(store: PostgresStore, proxy: Proxy, rounds: int, keyed) -> int:
    """Appends while connections are cut at random bytes; returns how many results were wrong."""
    rng, wrong = random.Random(rounds), 0
    names = 0
    for number in range(rounds):
        count = rng.choice((1, 1, 3))
        drafts = [draft(f"{number}.{place}", key=keyed(number)) for place in range(count)]
        proxy.cut_after(
            rng.randrange(0, 1500 if number % 3 else 150), rng.choice(("to_server", "to_client", "to_client"))
        )
        try:
            stored = store.append("s", drafts)
            assert [entry.id for entry in stored] == [item.id for item in drafts]
            assert [entry.seq for entry in stored] == list(range(names + 1, names + 1 + count))
        except AppendConflict:
            wrong += 1
        names += count
    return wrong


def test_a_cut_connection_neither_duplicates_nor_loses_entries(proxied, scale):
    url, proxy = proxied
    rounds = scale(30, release=3_000)
    with PostgresStore(url, lock_timeout=60, connections=2) as store:
        store.append("first", [draft("warm")])
        assert through_cuts(store, proxy, rounds, lambda number: number % 2 == 0) == 0
        assert proxy.cuts >= rounds // 3
        ids = [entry.id for entry in store.read("s")]
        assert len(ids) == len(set(ids))
        assert findings(store) == []


def test_a_store_that_does_not_check_for_stored_appends_is_caught(proxied):
    url, proxy = proxied
    with Forgetful(url, lock_timeout=60, connections=2) as store:
        store.append("s", [draft("warm")])
        wrong = 0
        for number in range(8):
            proxy.cut_after(0, "to_client")
            try:
                store.append("s", [draft(str(number), key=False)])
            except AppendConflict:
                wrong += 1
        assert wrong > 0


def disturbed(server, url: str, state: str, times: int) -> None:
    """Makes the first `times` writes of a head fail with an SQLSTATE, counted by a sequence that survives rollback."""
    name = url.rpartition("/")[2].partition("?")[0]
    with server.admin(name) as connection:
        connection.execute(f"""
            CREATE SEQUENCE public.writes;
            GRANT USAGE ON SEQUENCE public.writes TO PUBLIC;
            CREATE FUNCTION public.disturb() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
              IF nextval('public.writes') <= {times} THEN RAISE EXCEPTION 'disturbed' USING ERRCODE = '{state}'; END IF;
              RETURN NEW;
            END $$;
            CREATE TRIGGER a_disturbance BEFORE UPDATE ON recto.heads FOR EACH ROW EXECUTE FUNCTION public.disturb();
        """)


def tries(server, url: str) -> int:
    with server.admin(url.rpartition("/")[2].partition("?")[0]) as connection:
        return connection.execute("SELECT last_value FROM public.writes").fetchone()[0]


@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_a_transaction_conflict_is_retried(server, state):
    url = server.made(f"again_{state.lower()}")
    with PostgresStore(url, lock_timeout=30) as store:
        store.append("s", [draft("a")])
        disturbed(server, url, state, 3)
        assert [entry.seq for entry in store.append("s", [draft("b"), draft("c")])] == [2, 3]
        assert tries(server, url) == 4
        assert len(list(store.read("s"))) == 3


def test_a_permanent_conflict_fails_and_writes_nothing(server):
    url = server.made("never")
    with PostgresStore(url, lock_timeout=1) as store:
        store.append("s", [draft("a")])
        disturbed(server, url, "40001", 10**9)
        with pytest.raises(StoreUnavailable, match="append again with the same key"):
            store.append("s", [draft("b"), draft("c")])
        assert tries(server, url) < 100
        assert [entry.id for entry in store.read("s")] == ["id-a"]
    with server.admin("never") as connection:
        connection.execute("DROP TRIGGER a_disturbance ON recto.heads")
    with PostgresStore(url) as store:
        assert store.append("s", [draft("b"), draft("c")])[-1].seq == 3
        assert findings(store) == []


def test_a_deadlock_is_resolved_by_the_server_and_the_append_is_stored(server):
    """A real deadlock: another transaction locks a row that an append needs next, and waits for one that it locked."""
    url = server.made("deadlock")
    with PostgresStore(url, lock_timeout=30) as store, server.admin("deadlock") as other:
        store.append("s", [draft("a")])
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'recto'"
        with other.transaction():
            other.execute("SELECT 1 FROM recto.kept_heads WHERE session = 's' FOR UPDATE")
            writing = threading.Thread(target=store.append, args=("s", [draft("b")]))
            writing.start()
            with server.admin("deadlock") as looking:
                ends = time.monotonic() + 60
                while looking.execute(waits).fetchone() == (0,):
                    assert time.monotonic() < ends
            with suppress(Exception):
                other.execute("SELECT 1 FROM recto.heads WHERE session = 's' FOR UPDATE")
        writing.join(60)
        assert [entry.id for entry in store.read("s")] == ["id-a", "id-b"]
        assert findings(store) == []


@pytest.fixture
def small_disk(server):
    folder = server.folder / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting needs root, and without it the server's disk cannot be filled")
    shutil.chown(folder, server.user)
    yield folder
    with suppress(OSError), server.admin() as connection:
        connection.execute("DROP DATABASE IF EXISTS full_disk WITH (FORCE)")
        connection.execute("DROP TABLESPACE IF EXISTS small")
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_reported_loses_nothing_and_appends_work_once_there_is_space(server, small_disk):
    url = server.made("full_disk")
    PostgresStore(url).close()
    with server.admin("full_disk") as connection:
        connection.execute(f"CREATE TABLESPACE small LOCATION '{small_disk}'")
        for part in range(16):
            connection.execute(f"ALTER TABLE recto.entries_{part} SET TABLESPACE small")
    rng = random.Random(4)
    with PostgresStore(url, lock_timeout=30) as store:
        acknowledged, names = [], itertools.count()

        def fill() -> None:
            for number in itertools.islice(names, 2_000):
                acknowledged.extend(store.append("s", [_large(rng, number)]))

        with pytest.raises(StoreFull):
            fill()
        assert acknowledged
        assert list(store.read("s")) == acknowledged, "reading goes on, and nothing is there that was not acknowledged"
        with pytest.raises(StoreFull):
            fill()
        subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
        acknowledged += store.append("s", [_large(rng, next(names))])
        assert list(store.read("s")) == acknowledged
        assert findings(store) == []


def _large(rng: random.Random, number: int) -> Draft:
    return draft(str(number), rng.randbytes(60_000))


def test_a_killed_server_is_reported_in_time(server):
    url = server.made("away")
    with PostgresStore(url, lock_timeout=1) as store:
        store.append("s", [draft("a")])
        server.kill()
        try:
            with pytest.raises(StoreError):
                store.append("s", [draft("b")])
        finally:
            server.start("fsync=off")
    with PostgresStore(url) as store:
        assert store.append("s", [draft("b")])[0].seq == 2
        assert findings(store) == []
