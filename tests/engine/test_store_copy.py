"""Store copies: a store can be moved to another kind of store and back, identical to the last hash."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import apsw
import pytest
from tests.postgres import database

from recto.engine.store_copy import CopiedSession, copy_store, count_entries
from recto.engine.verification import verify
from recto.errors import AppendConflict, StoreCorrupt
from recto.stores.memory import MemoryStore
from recto.stores.postgres import PostgresStore
from recto.stores.sqlite import SqliteStore
from recto.transcript.entries import Draft
from recto.transcript.protocols import TranscriptStore

SESSIONS = ("agent:default:main", "tenant:north/agent:books:main", "recto:keys", "chat/ü #1")


@contextmanager
def opened(kind: str, folder) -> Iterator[TranscriptStore]:
    with ExitStack() as stack:
        if kind == "memory":
            store: TranscriptStore = MemoryStore()
        elif kind == "sqlite":
            store = SqliteStore(folder / "transcript.db")
        else:
            store = PostgresStore(stack.enter_context(database()))
        stack.callback(store.close)
        yield store


def drafts(first: int, last: int) -> list[Draft]:
    return [
        Draft(
            id=f"id-{n}\0",
            ts=n,
            role="user",
            content=bytes([n % 256]) * 40,
            key=f"key-{n}" if n % 2 else None,
            terms=b"row %d" % n if n % 3 else b"",
        )
        for n in range(first, last + 1)
    ]


def fill(store: TranscriptStore) -> None:
    for number, session in enumerate(SESSIONS, 1):
        store.append(session, drafts(1, 300 * number))


def everything(store: TranscriptStore) -> dict[str, list]:
    sessions = [line.session for line in store.sessions()]
    return {session: [*store.read(session), *store.terms(session)] for session in sessions}


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(("sqlite", "postgres"), 2)))
def test_a_copy_in_another_kind_of_store_is_identical_to_the_last_hash(tmp_path, source, target):
    with opened(source, tmp_path) as original, opened(target, tmp_path) as copy:
        fill(original)
        progress: list[int] = []
        done = list(copy_store(original, copy, advance=progress.append))
        assert sum(progress) == count_entries(original) == sum(copied.new for copied in done) == 3000
        assert everything(copy) == everything(original)
        assert copy.kept_heads() == original.kept_heads()
        assert verify(copy).ok


class Broken(MemoryStore):
    """A store that becomes unavailable after a number of batches."""

    left = 3

    def append(self, session, drafts, *, expect=None, also=None):
        if not self.left:
            raise ConnectionError("gone")
        self.left -= 1
        return super().append(session, drafts, expect=expect, also=also)


def test_an_interrupted_copy_resumes_where_it_stopped():
    source, target = MemoryStore(), Broken()
    fill(source)
    with pytest.raises(ConnectionError):
        list(copy_store(source, target))
    before = count_entries(target)
    assert 0 < before < count_entries(source)
    target.left = 100
    assert sum(copied.new for copied in copy_store(source, target)) == count_entries(source) - before
    assert everything(target) == everything(source)
    assert list(copy_store(source, target)) == [
        CopiedSession(session=line.session, entries=line.entries, new=0) for line in source.sessions()
    ]


def test_a_changed_entry_is_not_copied_and_other_sessions_are(tmp_path):
    path, target, changed = tmp_path / "a.db", MemoryStore(), SESSIONS[0]
    with closing(SqliteStore(path)) as source:
        fill(source)
    with closing(apsw.Connection(str(path))) as raw:
        raw.execute("DROP TRIGGER entries_keep; UPDATE entries SET content = x'00' WHERE session_no = 1 AND seq = 7")
    with closing(SqliteStore(path)) as source:
        assert not verify(source).ok
        with pytest.raises(StoreCorrupt, match=f"a.db.*'{changed}': entry 7 is not what was stored"):
            list(copy_store(source, target))
    assert target.head(changed).seq == 6
    assert {line.session for line in target.sessions()} >= set(SESSIONS[1:])
    assert verify(target).ok


def test_a_different_history_is_never_appended_to_an_existing_one():
    source, target = MemoryStore(), MemoryStore()
    fill(source)
    target.append(SESSIONS[0], [Draft(id="other", ts=1, role="user", content=b"other")])
    with pytest.raises(AppendConflict, match="another history"):
        list(copy_store(source, target))
    assert target.head(SESSIONS[0]).seq == 1
    longer = MemoryStore()
    longer.append(SESSIONS[0], drafts(1, 301))
    with pytest.raises(AppendConflict, match="longer"):
        list(copy_store(source, longer))
