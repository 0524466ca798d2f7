"""Promise 5: any change of stored history is seen.

Bits are flipped anywhere in the file, rows are edited, removed, moved and added behind the guards' back, ends are cut,
sessions removed, whole histories written anew with a perfect chain. The chain, the heads kept outside and SQLite's own
check see all of it together. A flip that no witness reports must have hit a byte without meaning: everything the store
gives back is the same.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from witness import draft, findings

from recto.errors import StoreError
from recto.stores.sqlite import SqliteStore
from recto.transcript.entries import EMPTY_HEAD, Draft, Head, link_entries

pytestmark = pytest.mark.timeout(0)
NEIGHBOURS = ("", "-heads")


@pytest.fixture
def original(swift_folder) -> Path:
    path = swift_folder / "original.db"
    rng = random.Random(5)
    with SqliteStore(path) as store:
        for number in range(8):
            for session in ("a", "b", "c" * 200):
                store.append(session, [draft(f"{number}.{place}", rng.randbytes(300)) for place in range(2)])
        store.append("a", [Draft(id="large", ts=1, role="tool", content=rng.randbytes(9000))])
    return path


def copy_of(original: Path) -> Path:
    path = original.with_name("changed.db")
    for old in original.parent.glob("changed.db*"):
        old.unlink()
    for neighbour in NEIGHBOURS:
        shutil.copy(f"{original}{neighbour}", f"{path}{neighbour}")
    return path


def everything(path: Path) -> object:
    """All that the store gives back, by every way there is to ask."""
    with SqliteStore(path) as store:
        sessions = store.sessions()
        entries = {line.session: list(store.read(line.session)) for line in sessions}
        found = [
            (store.get(name, entry.id), store.find(name, entry.key or ""), store.tail(name, 1))
            for name, each in entries.items()
            for entry in each
        ]
        return sessions, entries, found, store.kept_heads()


def is_seen(path: Path) -> bool:
    try:
        with SqliteStore(path) as store:
            return bool(findings(store))
    except StoreError:
        return True


@pytest.mark.promise
def test_a_flipped_bit_is_seen_or_means_nothing(original, scale):
    rng = random.Random(1)
    whole = everything(original)
    seen: Counter[str] = Counter()
    for _ in range(scale(140, ci=700, release=70_000)):
        path = copy_of(original)
        target = Path(f"{path}{rng.choice(('', '', '', '-heads'))}")
        raw = bytearray(target.read_bytes())
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        target.write_bytes(raw)
        if is_seen(path):
            seen["seen"] += 1
        else:
            assert everything(path) == whole
            seen["without meaning"] += 1
    assert seen["seen"] > seen["without meaning"]


@pytest.mark.promise
def test_a_flipped_bit_in_what_was_said_is_always_seen(original, scale):
    rng = random.Random(2)
    with SqliteStore(original) as store:
        contents = [entry.content for line in store.sessions() for entry in store.read(line.session)]
    raw = original.read_bytes()
    # SQLite leaves old copies in unused bytes; where there is one copy only, it is the one that counts.
    places = [raw.index(content[:300]) for content in contents if raw.count(content[:300]) == 1]
    assert len(places) > 10
    for _ in range(scale(30, ci=100, release=10_000)):
        path = copy_of(original)
        changed = bytearray(raw)
        changed[rng.choice(places) + rng.randrange(300)] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        assert is_seen(path)


def behind_the_guards(path: Path, *statements: str) -> None:
    """Changes the file with the triggers away, and puts them back."""
    connection = apsw.Connection(str(path))
    guards = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    connection.execute("PRAGMA ignore_check_constraints=ON; BEGIN")
    for name, _ in guards:
        connection.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        connection.execute(statement).fetchall()
    for _, sql in guards:
        connection.execute(sql)
    connection.execute("COMMIT")
    connection.close()


PLACE = "pos = (SELECT pos FROM entries WHERE key IS NOT NULL ORDER BY random() LIMIT 1)"
EDITS = (
    [f"UPDATE entries SET {column} = {column} || 'x' WHERE {PLACE}" for column in ("id", "role", "kind", "wire")]
    + [f"UPDATE entries SET {column} = {column} || 'x' WHERE {PLACE}" for column in ("surface", "counter")]
    + [f"UPDATE entries SET {column} = {column} + 1 WHERE {PLACE}" for column in ("ts", "tokens")]
    + [f"UPDATE entries SET {column} = randomblob(length({column})) WHERE {PLACE}" for column in ("content", "meta")]
    + [f"UPDATE entries SET {column} = randomblob(32) WHERE {PLACE}" for column in ("prev", "hash")]
    + [f"UPDATE entries SET key = {key} WHERE {PLACE}" for key in ("NULL", "key || 'x'")]
    + ["UPDATE entries SET key = '' WHERE key IS NULL", f"DELETE FROM entries WHERE {PLACE}"]
    + ["UPDATE sessions SET session = session || 'x' WHERE session_no = 2", "DELETE FROM sessions WHERE session_no = 1"]
    + ["DELETE FROM entries WHERE pos = (SELECT max(pos) FROM entries)"]
    + [f"DELETE FROM entries WHERE session_no = 1 AND seq > {last}" for last in (0, 1, 7, 16)]
)
COLUMNS = "pos, id, ts, role, kind, wire, surface, tokens, counter, key, meta, prev, hash, content"
SWAP = (
    "CREATE TEMP TABLE two AS SELECT pos, row_number() OVER () AS n FROM "
    "(SELECT pos FROM entries WHERE session_no = 1 ORDER BY random() LIMIT 2)",
    "UPDATE entries SET pos = -1 WHERE pos = (SELECT pos FROM two WHERE n = 1)",
    "UPDATE entries SET pos = (SELECT pos FROM two WHERE n = 1) WHERE pos = (SELECT pos FROM two WHERE n = 2)",
    "UPDATE entries SET pos = (SELECT pos FROM two WHERE n = 2) WHERE pos = -1",
)
ADD = (
    f"INSERT INTO entries({COLUMNS}) SELECT pos + 1, 'added', ts, role, kind, wire, surface, tokens, counter, NULL,"
    " meta, hash, randomblob(32), content FROM entries"
    " WHERE pos = (SELECT max(pos) FROM entries WHERE session_no = 2)",
)
REMOVE_A_SESSION = ("DELETE FROM entries WHERE session_no = 3", "DELETE FROM sessions WHERE session_no = 3")
CHANGES: list[tuple[str, ...]] = [*((edit,) for edit in EDITS), SWAP, ADD, REMOVE_A_SESSION]


@pytest.mark.promise
def test_rows_changed_behind_the_guards_are_seen(original, scale):
    rounds = -(-scale(len(CHANGES), ci=200, release=20_000) // len(CHANGES))
    for statements in CHANGES:
        for _ in range(rounds):
            path = copy_of(original)
            behind_the_guards(path, *statements)
            assert is_seen(path), statements


def rewrite(path: Path, session: str, number: int, change: Callable[[list[Draft]], list[Draft]]) -> None:
    """Writes a whole history anew, with a chain that is perfect in itself."""
    with SqliteStore(path) as store:
        drafts: list[Draft] = list(store.read(session))
    connection = apsw.Connection(str(path))
    guards = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in guards:
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("DELETE FROM entries WHERE session_no = ?", (number,))
    for e in link_entries(session, EMPTY_HEAD, change(drafts)):
        row = (number << 32 | e.seq, e.id, e.ts, e.role, e.kind, e.wire, e.surface, e.tokens, e.counter, e.key, e.meta)
        marks = ", ".join("?" * 14)
        connection.execute(f"INSERT INTO entries({COLUMNS}) VALUES ({marks})", (*row, e.prev, e.hash, e.content))
    for _, sql in guards:
        connection.execute(sql)
    connection.close()


def shorter(drafts: list[Draft]) -> list[Draft]:
    return drafts[: len(drafts) // 2]


def other_words(drafts: list[Draft]) -> list[Draft]:
    return [draft(f"other {place}", b"other words") for place, _ in enumerate(drafts)]


def longer(drafts: list[Draft]) -> list[Draft]:
    return [draft("put before"), *drafts]


@pytest.mark.parametrize("change", [shorter, other_words, longer])
def test_a_history_written_anew_with_a_perfect_chain_is_seen_by_the_heads_kept_outside(original, change):
    path = copy_of(original)
    rewrite(path, "a", 1, change)
    with SqliteStore(path) as store:
        assert findings(store) != []
        without_heads: dict[str, Head] = {}
        assert findings(store, without_heads) == [], "the chain alone cannot see it: this is what the heads are for"


def test_without_heads_a_cut_end_would_not_be_seen(original):
    path = copy_of(original)
    behind_the_guards(path, "DELETE FROM entries WHERE session_no = 2 AND seq > 10")
    with SqliteStore(path) as store:
        assert findings(store) == ["b does not pass through the head that was kept"]
        assert findings(store, {}) == []


@pytest.mark.promise
def test_a_store_that_nobody_touched_raises_no_alarm(original, swift_folder, scale):
    for _ in range(scale(50, ci=200, release=2_000)):
        assert not is_seen(copy_of(original))
    with SqliteStore(swift_folder / "small.db") as store:
        for session in ("a", "b"):
            store.append(session, [draft("1"), draft("2")])
        for _ in range(scale(1_000, ci=10_000, release=100_000)):
            assert findings(store) == []
