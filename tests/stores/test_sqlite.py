"""What the SQLite store does with files: guards, neighbours, versions, and everything that can be wrong with a file."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from recto.errors import (
    InputError,
    KeyReused,
    StoreCorrupt,
    StoreError,
    StoreLocked,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
    TailCut,
)
from recto.stores.sqlite import Migration, SqliteOptions, SqliteStore, rows, shipped_migrations
from recto.stores.sqlite.connection import connect, guard, refuse_affected_sqlite, upgrade
from recto.transcript.entries import EMPTY_HEAD, Draft, verify_chain

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

MAIN = "agent:default:main"
NOBODY = 65534


def draft(name: object, **others) -> Draft:
    fields = {
        "id": f"id-{name}",
        "ts": 1,
        "role": "user",
        "key": f"key-{name}",
        "content": str(name).encode(),
        **others,
    }
    return Draft(**fields)


@pytest.fixture
def path(tmp_path) -> Path:
    """A store with three entries and a second session, closed."""
    file = tmp_path / "transcript.db"
    with SqliteStore(file) as store:
        store.append(MAIN, [draft(1), draft(2), draft(3)])
        store.append("other", [draft(1)])
    return file


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may look into; pytest's own may be entered by its owner only."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def in_child(work: Callable[[], object], *, as_nobody: bool = False) -> None:
    """Runs it in a forked process; fails with what it printed if it raised."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if as_nobody and os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            work()
        except BaseException:  # noqa: BLE001  # told to the parent
            os.write(writing, traceback.format_exc().encode()[-60_000:])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as answer:
        failure = answer.read()
    os.waitpid(child, 0)
    assert failure == ""


CHANGES = [
    "UPDATE entries SET content = x'00' WHERE pos & 4294967295 = 2",
    "UPDATE OR REPLACE entries SET id = 'id-1' WHERE id = 'id-2'",
    "DELETE FROM entries",
    "DELETE FROM entries WHERE pos = (SELECT max(pos) FROM entries)",
    "INSERT OR REPLACE INTO entries SELECT pos, id, ts, role, kind, wire, surface, tokens, counter, key, meta, prev,"
    " hash, x'00' FROM entries WHERE id = 'id-2'",
    "INSERT OR REPLACE INTO entries SELECT pos, 'new', ts, role, kind, wire, surface, tokens, counter, NULL, meta,"
    " prev, hash, x'00' FROM entries WHERE id = 'id-2'",
    "REPLACE INTO entries SELECT pos + 1, id, ts, role, kind, wire, surface, tokens, counter, NULL, meta, hash, prev,"
    " content FROM entries WHERE id = 'id-3'",
    "INSERT INTO entries SELECT pos + 7, 'new', ts, role, kind, wire, surface, tokens, counter, NULL, meta, prev, hash,"
    " content FROM entries WHERE id = 'id-3'",
    "INSERT INTO entries SELECT pos + 1, 'new', ts, role, kind, wire, surface, tokens, counter, NULL, meta, prev, hash,"
    " content FROM entries WHERE id = 'id-3'",
    "INSERT INTO entries SELECT pos, id, ts, role, kind, wire, surface, tokens, counter, key, meta, prev, hash, x'00'"
    " FROM entries WHERE id = 'id-2' ON CONFLICT DO UPDATE SET content = excluded.content",
    "INSERT INTO entries SELECT 99 << 32 | 1, 'new', ts, role, kind, wire, surface, tokens, counter, NULL, meta, prev,"
    " hash, content FROM entries WHERE seq = 1 AND session_no = 1",
    "UPDATE sessions SET session = 'renamed'",
    "DELETE FROM sessions",
    "INSERT OR REPLACE INTO sessions VALUES (1, 'stolen')",
    "INSERT OR REPLACE INTO sessions VALUES (9, 'other')",
    "INSERT INTO sessions(session) VALUES ('no number')",
]


@pytest.mark.parametrize("sql", CHANGES)
@pytest.mark.requirement("transcript.append-only")
def test_the_file_refuses_a_change_from_any_program(path, sql):
    before = dump(path)
    foreign = apsw.Connection(str(path))
    with pytest.raises(apsw.ConstraintError, match="append-only"):
        foreign.execute(sql.replace("INTO entries SELECT", f"INTO entries({COLUMNS}) SELECT"))
    foreign.close()
    assert dump(path) == before


COLUMNS = "pos, id, ts, role, kind, wire, surface, tokens, counter, key, meta, prev, hash, content"


@pytest.mark.parametrize(
    "sql",
    [
        *CHANGES,
        "DROP TABLE entries",
        "DROP TRIGGER entries_keep",
        "DROP INDEX entries_by_id",
        "DROP VIEW transcript",
        "CREATE TABLE more(x)",
        "ALTER TABLE entries ADD COLUMN more TEXT",
        "UPDATE format SET value = 9",
        "DELETE FROM terms",
        "UPDATE terms SET data = x'00'",
        "ATTACH 'elsewhere.db' AS elsewhere",
        "PRAGMA writable_schema=ON",
        "PRAGMA user_version=7",
        "PRAGMA synchronous=OFF",
        "REINDEX",
    ],
)
def test_our_own_connections_refuse_even_more(path, sql):
    before = dump(path)
    ours = guard(connect(path, "write", SqliteOptions(), 5))
    with pytest.raises((apsw.AuthError, apsw.ConstraintError)):
        ours.execute(sql.replace("INTO entries SELECT", f"INTO entries({COLUMNS}) SELECT"))
    ours.close()
    assert dump(path) == before


def dump(path: Path) -> list[object]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = [list(connection.execute(f"SELECT * FROM {table}")) for table in ("format", "sessions", "entries")]
    connection.close()
    return found


def test_people_can_read_the_file_without_recto(path):
    connection = apsw.Connection(str(path))
    rows = list(connection.execute("SELECT session, seq, time, role, content FROM transcript WHERE seq = 2"))
    assert rows == [(MAIN, 2, "1970-01-01 00:00:00.000", "user", "2")]
    connection.close()


def test_every_connection_is_set_up_for_durability(path):
    connection = connect(path, "write", SqliteOptions(), 5)
    settings = {"journal_mode": "wal", "synchronous": 2, "mmap_size": 0, "cell_size_check": 1, "trusted_schema": 0}
    assert {name: connection.pragma(name) for name in settings} == settings
    connection.close()


@pytest.mark.parametrize("version", ["3.7.0", "3.40.1", "3.51.2"])
def test_an_sqlite_with_the_wal_reset_bug_is_refused(path, version):
    with pytest.raises(StoreUnavailable, match=version):
        refuse_affected_sqlite(path, version)
    refuse_affected_sqlite(path, "3.51.3")


def test_a_store_is_found_through_a_link_with_its_neighbours(path, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.db"
    link.symlink_to(path)
    with SqliteStore(link) as store:
        store.append(MAIN, [draft(4)])
        assert store.kept_heads()[MAIN].seq == 4
        assert store.damage() == []
    assert [file.name for file in link.parent.iterdir()] == ["link.db"]


def test_a_name_with_a_meaning_to_sqlite_is_only_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (":memory:", "file:a?mode=memory", "%41 b#c?d.db"):
        with SqliteStore(name) as store:
            store.append(MAIN, [draft(1)])
        assert (tmp_path / name).exists()
        with SqliteStore(name) as store:
            assert store.head(MAIN).seq == 1


def test_a_missing_folder_is_named_with_the_cure(tmp_path):
    with pytest.raises(StoreUnavailable, match=r"the folder .*absent.* does not exist; create it"):
        SqliteStore(tmp_path / "absent" / "transcript.db")


def test_a_folder_in_place_of_the_file_is_named(tmp_path):
    with pytest.raises(StoreUnavailable, match="folder"):
        SqliteStore(tmp_path)


def test_without_create_a_missing_file_is_not_made(tmp_path):
    with pytest.raises(StoreUnavailable, match="no store here"):
        SqliteStore(tmp_path / "transcript.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_bytes(b"just some notes\n" * 100)
    with pytest.raises(StoreCorrupt):
        SqliteStore(file)
    assert file.read_bytes() == b"just some notes\n" * 100
    assert [found.name for found in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("made_by", ["CREATE TABLE t(x)", "PRAGMA application_id=7", "PRAGMA user_version=3"])
def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path, made_by):
    file = tmp_path / "other.db"
    connection = apsw.Connection(str(file))
    connection.execute(made_by).fetchall()
    connection.close()
    before = file.read_bytes()
    with pytest.raises(StoreUnavailable, match="not a Recto store"):
        SqliteStore(file)
    assert file.read_bytes() == before


def test_a_damaged_page_is_reported_and_the_rest_stays_readable(path):
    with SqliteStore(path) as store:
        store.append("large", [draft(number, content=b"L" * 2000) for number in range(200)])
    raw = bytearray(path.read_bytes())
    place = raw.rindex(b"L" * 1500)
    raw[place - place % 4096 : place - place % 4096 + 100] = b"\xff" * 100
    path.write_bytes(raw)
    with SqliteStore(path) as store:
        assert any(line.startswith("SQLite:") for line in store.damage())
        assert [entry.content for entry in store.read(MAIN)] == [b"1", b"2", b"3"]
        with pytest.raises(StoreCorrupt):
            list(store.read("large"))


def test_text_that_is_no_longer_text_is_reported_as_damage(path):
    connection = apsw.Connection(str(path))
    connection.execute("DROP TRIGGER entries_keep; UPDATE entries SET surface = CAST(x'ff' AS TEXT) WHERE seq = 2")
    connection.close()
    with SqliteStore(path) as store, pytest.raises(StoreCorrupt, match="UTF-8"):
        list(store.read(MAIN))


@pytest.mark.parametrize("kind", ["entries_keep", "entries_stay", "entries_follow", "sessions_keep", "sessions_stay"])
def test_a_missing_guard_is_reported(path, kind):
    connection = apsw.Connection(str(path))
    connection.execute(f"DROP TRIGGER {kind}")
    connection.close()
    with SqliteStore(path) as store:
        assert store.damage() == [f"the trigger '{kind}' is missing"]


def test_a_weakened_guard_is_reported(path):
    connection = apsw.Connection(str(path))
    connection.execute(
        "DROP TRIGGER entries_keep; CREATE TRIGGER entries_keep BEFORE UPDATE ON entries BEGIN SELECT 1; END"
    )
    connection.close()
    with SqliteStore(path) as store:
        assert store.damage() == ["the trigger 'entries_keep' was changed or added"]


def heads_of(path: Path) -> Path:
    return path.with_name(path.name + "-heads")


def test_missing_heads_are_reported_also_after_they_were_started_anew(path):
    heads_of(path).unlink()
    with SqliteStore(path) as store:
        assert "is missing" in store.damage()[0]
        store.append(MAIN, [draft(4)])
        assert "was missing for a while" in store.damage()[0]
        store.accept_heads()
        assert store.damage() == []
        assert {name: head.seq for name, head in store.kept_heads().items()} == {MAIN: 4, "other": 1}


def test_damaged_heads_are_reported_and_the_other_slot_still_counts(path):
    with SqliteStore(path) as store:
        store.append(MAIN, [draft(4)])
    raw = bytearray(heads_of(path).read_bytes())
    raw[256 + 64 + 20] ^= 1
    heads_of(path).write_bytes(raw)
    with SqliteStore(path) as store:
        assert ["damaged" in line for line in store.damage()] == [True]
        assert store.kept_heads()[MAIN].seq == 3


def cut_tail(path: Path, sql: str) -> None:
    """What an intruder would do: the guards are put back afterwards."""
    connection = apsw.Connection(str(path))
    guards = [text for (text,) in connection.execute("SELECT sql FROM sqlite_schema WHERE type = 'trigger'")]
    for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute(sql).fetchall()
    for text in guards:
        connection.execute(text)
    connection.close()


def test_nothing_is_appended_to_a_session_whose_end_was_cut(path):
    cut_tail(path, "DELETE FROM entries WHERE session_no = 1 AND seq = 3")
    with SqliteStore(path) as store:
        with pytest.raises(TailCut) as caught:
            store.append(MAIN, [draft(4)])
        assert (caught.value.kept, caught.value.found) == (3, 2)
        store.append("other", [draft(2)])
        store.accept_heads()
        assert store.append(MAIN, [draft(4)])[0].seq == 3


def test_a_removed_session_is_still_named_and_not_begun_anew(path):
    cut_tail(path, "DELETE FROM entries WHERE session_no = 2; DELETE FROM sessions WHERE session_no = 2")
    with SqliteStore(path) as store:
        assert store.kept_heads()["other"].seq == 1
        with pytest.raises(TailCut):
            store.append("other", [draft(1)])
        store.append("third", [draft(1)])
        assert store.kept_heads()["other"].seq == store.kept_heads()["third"].seq == 1


def test_entries_whose_session_lost_its_name_are_reported(path):
    cut_tail(path, "DELETE FROM sessions WHERE session_no = 2")
    with SqliteStore(path) as store:
        assert store.damage() == ["session number 2 has lost its name"]


def test_nothing_is_appended_to_a_history_that_was_written_anew(path, tmp_path):
    with SqliteStore(tmp_path / "forged.db") as forged:
        forged.append(MAIN, [draft(number, content=b"forged") for number in (1, 2, 3, 4)])
    shutil.copy(heads_of(path), heads_of(tmp_path / "forged.db"))
    with SqliteStore(tmp_path / "forged.db") as forged, pytest.raises(StoreCorrupt, match="was rewritten"):
        forged.append(MAIN, [draft(5)])


def test_a_session_put_in_the_place_of_another_is_seen(path):
    cut_tail(path, "UPDATE sessions SET session = 'renamed' WHERE session_no = 2")
    with SqliteStore(path) as store, pytest.raises(StoreCorrupt, match="in the place of 'other'"):
        store.append("renamed", [draft(2)])


def test_a_store_that_may_only_be_read_is_read(open_folder):
    file = open_folder / "transcript.db"
    with SqliteStore(file) as store:
        store.append(MAIN, [draft(1), draft(2)])
    for each in open_folder.iterdir():
        each.chmod(0o444)
    open_folder.chmod(0o555)

    def look() -> None:
        with SqliteStore(file) as store:
            assert verify_chain(MAIN, EMPTY_HEAD, store.read(MAIN)) == store.head(MAIN) == store.kept_heads()[MAIN]
            assert store.damage() == []
            with pytest.raises(StoreReadOnly, match="can be read but not written"):
                store.append(MAIN, [draft(3)])
            assert store.head(MAIN).seq == 2

    in_child(look, as_nobody=True)


def test_a_read_only_file_in_a_folder_one_may_write_to_is_read(open_folder):
    file = open_folder / "transcript.db"
    with SqliteStore(file) as store:
        store.append(MAIN, [draft(1), draft(2)])
    file.chmod(0o444)
    for neighbour in ("-lock", "-heads"):
        file.with_name(file.name + neighbour).chmod(0o666)
    open_folder.chmod(0o777)

    def look() -> None:
        with SqliteStore(file) as store:
            assert store.head(MAIN).seq == 2
            with pytest.raises(StoreReadOnly):
                store.append(MAIN, [draft(3)])
            assert [entry.seq for entry in store.read(MAIN)] == [1, 2]

    in_child(look, as_nobody=True)


def test_a_folder_one_may_not_write_to_gets_no_store(open_folder):
    open_folder.chmod(0o555)

    def look() -> None:
        with pytest.raises(StoreUnavailable, match="not writable"):
            SqliteStore(open_folder / "transcript.db")

    in_child(look, as_nobody=True)


def test_a_file_one_may_not_read_is_named(open_folder):
    file = open_folder / "transcript.db"
    SqliteStore(file).close()
    file.chmod(0o000)

    def look() -> None:
        with pytest.raises(StoreUnavailable, match=r"who may read it|not writable"):
            SqliteStore(file)

    in_child(look, as_nobody=True)


def held_by_a_child(hold: Callable[[], object]) -> Callable[[], None]:
    """A process that holds something until the returned call ends it."""
    ready, is_ready = os.pipe()
    stop, until = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(until)
        kept = hold()
        os.write(is_ready, b"1")
        os.read(stop, 1)
        os._exit(0 if kept is not None else 1)
    os.read(ready, 1)

    def release() -> None:
        os.close(until)
        os.waitpid(child, 0)
        for end in (ready, is_ready, stop):
            os.close(end)

    return release


def a_foreign_transaction(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.execute("BEGIN IMMEDIATE")
    return connection


def the_side_lock(path: Path) -> int:
    file = os.open(path.with_name(path.name + "-lock"), os.O_RDWR | os.O_CREAT)
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


@pytest.mark.parametrize("hold", [a_foreign_transaction, the_side_lock])
def test_a_store_locked_by_another_process_says_so_and_writes_nothing(path, hold):
    release = held_by_a_child(lambda: hold(path))
    with SqliteStore(path, lock_timeout=0.2) as store:
        with pytest.raises(StoreLocked, match=r"0\.2 s"):
            store.append(MAIN, [draft(4)])
        assert [entry.seq for entry in store.read(MAIN)] == [1, 2, 3]
        release()
        assert store.append(MAIN, [draft(5)])[0].seq == 4
        assert store.find(MAIN, "key-4") is None


def test_a_caller_that_finds_nobody_writing_needs_no_thread(path):
    before = threading.active_count()
    with SqliteStore(path) as store:
        for number in range(4, 8):
            store.append(MAIN, [draft(number)])
            assert threading.active_count() == before
        assert store.head(MAIN).seq == 7


def test_a_caller_that_is_interrupted_while_it_writes_leaves_nothing_behind(path, monkeypatch):
    with SqliteStore(path) as store:
        with monkeypatch.context() as patched:
            patched.setattr(rows, "add_entries", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.append(MAIN, [draft(4)])
        with SqliteStore(path) as other:
            other.append(MAIN, [draft(5)])
        store.append(MAIN, [draft(6)])
        assert [entry.content for entry in store.read(MAIN)] == [b"1", b"2", b"3", b"5", b"6"]
        assert store.damage() == []


def interrupted(*_given: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("hold", [a_foreign_transaction, the_side_lock])
def test_a_writer_that_waits_long_enough_gets_its_turn(path, hold):
    release = held_by_a_child(lambda: hold(path))
    with SqliteStore(path, lock_timeout=20) as store:
        waiting = threading.Thread(target=store.append, args=(MAIN, [draft(4)]))
        waiting.start()
        release()
        waiting.join()
        assert store.find(MAIN, "key-4") is not None


def test_a_locked_store_that_is_to_be_upgraded_says_so(tmp_path):
    file = tmp_path / "transcript.db"
    release = held_by_a_child(lambda: the_side_lock(file))
    with pytest.raises(StoreLocked):
        SqliteStore(file, lock_timeout=0.1)
    release()
    SqliteStore(file, lock_timeout=0.1).close()


NEWER = "ALTER TABLE entries ADD COLUMN mood TEXT"
NEXT = len(shipped_migrations()) + 1


def test_a_newer_file_that_older_programs_may_read_is_read_and_left_untouched(path):
    options = SqliteOptions(migrations=(Migration(NEXT, NEWER),))
    with SqliteStore(path, options=options) as newer:
        newer.append(MAIN, [draft(4)])
    before = path.read_bytes()
    with SqliteStore(path) as store:
        assert [entry.seq for entry in store.read(MAIN)] == [1, 2, 3, 4]
        assert store.damage() == []
        for call in (lambda: store.append(MAIN, [draft(5)]), store.accept_heads):
            with pytest.raises(StoreTooNew) as caught:
                call()
            assert (caught.value.found, caught.value.known) == (NEXT, NEXT - 1)
    assert path.read_bytes() == before


def test_a_newer_file_that_older_programs_may_not_read_is_refused_and_left_untouched(path):
    options = SqliteOptions(migrations=(Migration(NEXT, NEWER + f"; UPDATE format SET value = {NEXT}"),))
    SqliteStore(path, options=options).close()
    before = path.read_bytes()
    with pytest.raises(StoreTooNew):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_an_older_file_is_upgraded_and_keeps_everything(path):
    with SqliteStore(path) as store:
        entries = list(store.read(MAIN))
    more = Migration(NEXT + 1, "CREATE TABLE more(x INTEGER) STRICT")
    options = SqliteOptions(migrations=(Migration(NEXT, NEWER), more))
    with SqliteStore(path, options=options) as store:
        assert list(store.read(MAIN)) == entries
        assert store.damage() == []
        store.append(MAIN, [draft(4)])
    connection = apsw.Connection(str(path))
    assert connection.pragma("user_version") == NEXT + 1
    connection.close()


def test_a_file_of_the_first_version_gets_a_table_for_words(tmp_path):
    path = tmp_path / "first.db"
    connection = apsw.Connection(str(path))
    upgrade(connection, shipped_migrations()[:1])
    connection.close()
    with SqliteStore(path) as store:
        [entry] = store.append(MAIN, [draft(1, terms=b"row")])
        assert store.pick_terms(MAIN, [1]) == {1: b"row"}
        assert list(store.read(MAIN)) == [entry]


def test_migrations_are_numbered_without_gaps():
    assert [migration.version for migration in shipped_migrations()] == list(range(1, len(shipped_migrations()) + 1))


def test_a_failing_migration_changes_nothing(path):
    before = dump(path)
    options = SqliteOptions(migrations=(Migration(NEXT, NEWER + "; SELECT nonsense FROM nowhere"),))
    with pytest.raises(StoreUnavailable):
        SqliteStore(path, options=options)
    assert dump(path) == before
    with SqliteStore(path) as store:
        assert store.damage() == []


def test_two_processes_may_make_the_store_at_once(tmp_path):
    file = tmp_path / "transcript.db"

    def make() -> None:
        with SqliteStore(file) as store:
            store.append(MAIN, [draft(os.getpid())])

    children = []
    for _ in range(6):
        child = os.fork()
        if child == 0:
            try:
                make()
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    with SqliteStore(file) as store:
        assert store.head(MAIN).seq == 6
        assert store.damage() == []


def test_a_store_opened_before_a_fork_is_refused_in_the_child(path):
    with SqliteStore(path) as store:
        store.append(MAIN, [draft(4)])

        def use() -> None:
            for call in (
                lambda: store.append(MAIN, [draft(5)]),
                lambda: store.head(MAIN),
                lambda: list(store.read(MAIN)),
                store.kept_heads,
                store.accept_heads,
                store.damage,
            ):
                with pytest.raises(StoreUnavailable, match="forked"):
                    call()
            store.close()
            with SqliteStore(path) as own:
                own.append(MAIN, [draft(6)])

        in_child(use)
        assert store.append(MAIN, [draft(7)])[0].seq == 6
        assert store.damage() == []


def test_close_writes_what_is_waiting(path):
    blocker = a_foreign_transaction(path)
    store = SqliteStore(path)
    outcomes: dict[int, bool] = {}

    def append(number: int) -> None:
        try:
            store.append(MAIN, [draft(number)])
            outcomes[number] = True
        except StoreUnavailable:  # came after the close
            outcomes[number] = False

    threads = [threading.Thread(target=append, args=(number,)) for number in range(10, 30)]
    for thread in threads:
        thread.start()
    closing = threading.Thread(target=store.close)
    closing.start()
    blocker.execute("ROLLBACK")
    blocker.close()
    for thread in [*threads, closing]:
        thread.join()
    with SqliteStore(path) as reopened:
        stored = {number for number in range(10, 30) if reopened.find(MAIN, f"key-{number}")}
    assert stored == {number for number, is_stored in outcomes.items() if is_stored}
    assert len(outcomes) == 20


def test_after_close_nothing_is_left_but_the_file_and_its_two_neighbours(path):
    assert {file.name for file in path.parent.iterdir()} == {path.name, path.name + "-lock", path.name + "-heads"}


def test_a_group_with_a_bad_id_is_written_without_it(path):
    blocker = a_foreign_transaction(path)
    with SqliteStore(path) as store:
        refused: list[StoreError] = []

        def append(number: int) -> None:
            try:
                store.append(MAIN, [draft(number, id="id-1" if number % 3 == 0 else f"id-{number}")])
            except StoreError as error:
                refused.append(error)

        threads = [threading.Thread(target=append, args=(number,)) for number in range(10, 25)]
        for thread in threads:
            thread.start()
        blocker.execute("ROLLBACK")
        blocker.close()
        for thread in threads:
            thread.join()
        assert len(refused) == 5
        assert store.head(MAIN).seq == 3 + 10
        assert verify_chain(MAIN, EMPTY_HEAD, store.read(MAIN)) == store.head(MAIN) == store.kept_heads()[MAIN]


def memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is measured where /proc is")
def test_messages_of_100_mb_are_kept_with_little_more_memory_than_their_size(path):
    size = 100_000_000

    def work() -> None:
        content = b"\0" * size
        before = memory("VmRSS")
        with SqliteStore(path) as store:
            for number in (4, 5):
                store.append(MAIN, [draft(number, content=content)])
            assert sum(len(entry.content) == size for entry in store.read(MAIN)) == 2
            with pytest.raises(KeyReused):
                store.append(MAIN, [draft(5, content=b"")])
        assert memory("VmHWM") - before < 4 * size

    in_child(work)


def test_more_than_sqlite_can_hold_is_refused_before_it_is_tried(path, monkeypatch):
    monkeypatch.setattr("recto.transcript.entries.MAX_BYTES", 1000)
    with SqliteStore(path) as store, pytest.raises(InputError, match="1,001 bytes"):
        store.append(MAIN, [draft(4, content=bytes(999))])


def test_the_files_of_a_new_store_are_its_owners_alone(tmp_path):
    before = os.umask(0o022)
    try:
        with closing(SqliteStore(tmp_path / "a.db")) as store:
            store.append("s", [draft("a")])
            assert {file.name: oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()} == {
                file.name: "0o600" for file in tmp_path.iterdir()
            }
    finally:
        os.umask(before)
