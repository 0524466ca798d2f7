"""Promise 23: an upgrade never loses anything.

Processes are ended with SIGKILL while they upgrade a store. Each time the file has the old version or the new one,
whole; nothing is lost, and the next opening finishes the work. A program that is too old leaves the file as it is.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from witness import Child, draft, findings

from recto.errors import StoreTooNew
from recto.stores.sqlite import Migration, SqliteOptions, SqliteStore, shipped_migrations

pytestmark = [pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"), pytest.mark.timeout(0)]

SQL = """
ALTER TABLE entries ADD COLUMN mood TEXT;
CREATE TABLE moods(pos INTEGER PRIMARY KEY, mood TEXT NOT NULL) STRICT;
INSERT INTO moods SELECT pos, hex(randomblob(2000)) FROM entries;
CREATE INDEX moods_by_mood ON moods(mood);
UPDATE format SET value = 99 WHERE name = 'min_reader';
"""
ENTRIES = 100
NEW = {"moods", "moods_by_mood"}
LATEST = shipped_migrations()[-1].version
OPTIONS = SqliteOptions(migrations=(Migration(LATEST + 1, SQL),))


@pytest.fixture
def original(swift_folder) -> Path:
    path = swift_folder / "original.db"
    with SqliteStore(path) as store:
        store.append("a", [draft(str(number), bytes(200)) for number in range(ENTRIES)])
    return path


def copy_of(original: Path) -> Path:
    path = original.with_name("upgraded.db")
    for old in original.parent.glob("upgraded.db*"):
        old.unlink()
    for neighbour in ("", "-heads"):
        shutil.copy(f"{original}{neighbour}", f"{path}{neighbour}")
    return path


def upgrade(path: Path) -> None:
    SqliteStore(path, options=OPTIONS).close()


def upgrade_without_a_transaction(path: Path) -> None:
    connection = apsw.Connection(str(path))
    for statement in [*SQL.split(";"), f"PRAGMA user_version={LATEST + 1}"]:
        connection.execute(statement)
    connection.close()


def state_of(path: Path) -> str:
    """`old`, `new`, or what is between."""
    connection = apsw.Connection(str(path))
    version = connection.pragma("user_version")
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    columns = {row[1] for row in connection.execute("PRAGMA table_info(entries)")}
    min_reader = connection.execute("SELECT value FROM format").get
    rows = connection.execute("SELECT count(*) FROM moods").get if "moods" in names else 0
    connection.close()
    if (version, names & NEW, "mood" in columns, min_reader, rows) == (LATEST, set(), False, 1, 0):
        return "old"
    if (version, names & NEW, "mood" in columns, min_reader, rows) == (LATEST + 1, NEW, True, 99, ENTRIES):
        return "new"
    return "between"


def killed(original: Path, cycles: int, way: Callable[[Path], None], check: Callable[[Path], None]) -> Counter[str]:
    """Ends so many upgrades somewhere between their first and their last instant.

    How long one takes depends on what else the machine does, so it is learned on the way: later where none was over
    any more, sooner where all were.
    """
    path = copy_of(original)
    start = time.perf_counter()
    way(path)
    length = time.perf_counter() - start
    rng = random.Random(23)
    seen: Counter[str] = Counter()
    for _ in range(cycles):
        path = copy_of(original)

        def work(acknowledge: Callable[[str], None], path: Path = path) -> None:
            acknowledge("begun")
            way(path)

        child = Child.running(work)
        child.wait_for(1)
        after = rng.uniform(0, 1.5 * length)
        child.kill(after)
        state = state_of(path)
        seen[state] += 1
        if (state == "new") != (after > length):
            length *= 0.95 if state == "new" else 1.3
        check(path)
    return seen


@pytest.mark.promise
def test_an_upgrade_that_is_killed_leaves_the_old_version_or_the_new_one(original, scale):
    with SqliteStore(original) as store:
        entries = list(store.read("a"))

    def check(path: Path) -> None:
        with SqliteStore(path, options=OPTIONS) as store:
            assert list(store.read("a")) == entries
            assert store.append("a", [draft("after")])[0].seq == ENTRIES + 1
            assert findings(store) == []

    seen = killed(original, scale(60, ci=500, release=5_000), upgrade, check)
    assert seen["between"] == 0
    assert seen["old"] > 0
    assert seen["new"] > 0


def test_an_upgrade_outside_a_transaction_would_be_caught_half_done(original):
    seen = killed(original, 60, upgrade_without_a_transaction, lambda path: None)
    assert seen["between"] > 0


def test_a_program_that_is_too_old_leaves_the_file_as_it_is(original):
    path = copy_of(original)
    upgrade(path)
    before = path.read_bytes()
    with pytest.raises(StoreTooNew):
        SqliteStore(path)
    assert path.read_bytes() == before
