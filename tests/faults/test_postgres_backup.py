"""A restored copy of a database is the same store, and an older copy is detected by heads stored elsewhere."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from own_postgres import ROLE, Server, own_server
from witness import draft, findings

from recto.engine.store_copy import copy_store
from recto.engine.verification import verify
from recto.errors import TailCut
from recto.stores.postgres import PostgresStore
from recto.stores.sqlite import SqliteStore
from recto.transcript.session_keys import stored_key

pytestmark = pytest.mark.timeout(300)
ACME = stored_key("agent:a:main", "acme")


@pytest.fixture(scope="module")
def server():
    with own_server() as made:
        made.start("fsync=off")
        yield made


def filled(server: Server, name: str) -> str:
    url = server.made(name)
    with PostgresStore(url) as store:
        for number in range(6):
            store.append(ACME, [draft(f"{number}")])
            store.append("plain", [draft(f"{number}", bytes(range(256)) * 40), draft(f"{number} too", key=False)])
    return url


def dumped(server: Server, name: str) -> Path:
    file = server.folder / f"{name}.dump"
    server.run("pg_dump", "-Fc", "-h", str(server.folder), "-U", ROLE, "-f", str(file), name)
    return file


def restored(server: Server, file: Path, name: str) -> str:
    url = server.made(name)
    server.run("pg_restore", "--exit-on-error", "-h", str(server.folder), "-U", ROLE, "-d", name, str(file))
    return url


def test_a_base_backup_starts_with_the_entries_of_its_server(server):
    url = filled(server, "whole")
    server.run("pg_basebackup", "-h", str(server.folder), "-U", "postgres", "-c", "fast", "-D", "copy")
    with PostgresStore(url) as store:
        before = list(store.read("plain"))
        store.append("plain", [draft("newer")])
    with own_server(server.folder / "copy") as other:
        other.start("fsync=off")
        with PostgresStore(other.address("whole")) as back:
            assert list(back.read("plain")) == before
            assert verify(back).ok


def test_a_dump_taken_during_writes_restores_to_a_valid_store(server):
    url = filled(server, "dumping")
    enough, over = threading.Event(), threading.Event()
    with PostgresStore(url) as store:

        def write() -> None:
            number = 0
            while not over.is_set():
                store.append("busy", [draft(f"busy {number}"), draft(f"busy {number} too")])
                number += 1
                if number == 3:
                    enough.set()

        writing = threading.Thread(target=write)
        writing.start()
        assert enough.wait(60)
        try:
            file = dumped(server, "dumping")
        finally:
            over.set()
            writing.join()
        with PostgresStore(restored(server, file, "dumped")) as copied:
            assert verify(copied).ok
            assert findings(copied) == []
            assert copied.head("busy").seq % 2 == 0
            for session in (ACME, "plain"):
                assert list(copied.read(session)) == list(store.read(session))
            assert copied.append(ACME, [draft("after")])[0].seq == 7


def test_a_restored_older_copy_is_detected_by_external_heads_until_its_own_are_accepted(server):
    url = filled(server, "older")
    file = dumped(server, "older")
    with PostgresStore(url) as store:
        store.append(ACME, [draft("newer")])
        heads = {line.session: store.head(line.session) for line in store.sessions()}
        assert verify(store, heads=heads).ok
    with PostgresStore(restored(server, file, "older_again")) as back:
        [finding] = verify(back, heads=heads).findings
        assert (finding.session, finding.seq) == (ACME, 7)
        back.accept_heads()
        heads = {line.session: back.head(line.session) for line in back.sessions()}
        assert verify(back, heads=heads).ok


def test_entries_restored_alone_are_behind_the_heads_until_accepted(server):
    url = filled(server, "alone")
    with PostgresStore(url) as store, server.admin("alone") as connection:
        early = store.head(ACME)
        store.append(ACME, [draft("newer")])
        connection.execute("SET session_replication_role = replica")  # as a restore of some tables does
        connection.execute("DELETE FROM recto.entries WHERE session = %s AND seq > %s", (ACME, early.seq))
        connection.execute("UPDATE recto.heads SET seq = %s, hash = %s WHERE session = %s", (*_of(early), ACME))
        assert not verify(store).ok
    with PostgresStore(url) as store:
        with pytest.raises(TailCut):
            store.append(ACME, [draft("again")])
        store.accept_heads()
        assert verify(store).ok
        assert store.append(ACME, [draft("again")])[0].seq == early.seq + 1


def _of(head) -> tuple[int, bytes]:
    return head.seq, head.hash


def test_a_store_is_copied_to_a_file_and_back_to_another_database(server, tmp_path):
    url = filled(server, "there")
    with PostgresStore(url) as store, SqliteStore(tmp_path / "backup.db") as file:
        list(copy_store(store, file))
        assert verify(file).ok
        with PostgresStore(server.made("and_back")) as back:
            list(copy_store(file, back))
            assert verify(back, heads=store.kept_heads()).ok
            assert list(back.read(ACME)) == list(store.read(ACME))
            assert back.damage() == []
