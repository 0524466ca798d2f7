"""A store can be moved to another kind of store and back, and is the same to the last hash."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from tests.postgres import database

from recto.engine.store_copy import CopiedSession, copy_store, count_entries
from recto.engine.verification import verify
from recto.errors import AppendConflict
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


def filled(store: TranscriptStore) -> None:
    for number, session in enumerate(SESSIONS, 1):
        store.append(session, drafts(1, 300 * number))


def everything(store: TranscriptStore) -> dict[str, list]:
    sessions = [line.session for line in store.sessions()]
    return {session: [*store.read(session), *store.terms(session)] for session in sessions}


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(("sqlite", "postgres"), 2)))
def test_a_copy_in_another_kind_of_store_is_the_same_to_the_last_hash(tmp_path, source, target):
    with opened(source, tmp_path) as one, opened(target, tmp_path) as other:
        filled(one)
        told: list[int] = []
        done = list(copy_store(one, other, advance=told.append))
        assert sum(told) == count_entries(one) == sum(copied.new for copied in done) == 3000
        assert everything(other) == everything(one)
        assert other.kept_heads() == one.kept_heads()
        assert verify(other).ok


class Broken(MemoryStore):
    """Goes away after so many batches."""

    left = 3

    def append(self, session, drafts, *, expect=None, also=None):
        if not self.left:
            raise ConnectionError("gone")
        self.left -= 1
        return super().append(session, drafts, expect=expect, also=also)


def test_a_copy_that_was_cut_off_goes_on_where_it_ended():
    source, target = MemoryStore(), Broken()
    filled(source)
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


def test_another_history_is_never_put_behind_one_that_is_there():
    source, target = MemoryStore(), MemoryStore()
    filled(source)
    target.append(SESSIONS[0], [Draft(id="other", ts=1, role="user", content=b"other")])
    with pytest.raises(AppendConflict, match="another history"):
        list(copy_store(source, target))
    assert target.head(SESSIONS[0]).seq == 1
    longer = MemoryStore()
    longer.append(SESSIONS[0], drafts(1, 301))
    with pytest.raises(AppendConflict, match="longer"):
        list(copy_store(source, longer))
