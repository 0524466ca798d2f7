"""Whose turn it is in PostgreSQL: how long it lasts, who may take it, and what becomes of one that was lost."""

from __future__ import annotations

import threading
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.postgres import database, server
from together import in_threads

from recto.errors import AppendConflict, TurnTaken
from recto.stores.postgres import PostgresStore
from recto.transcript.entries import Draft


@pytest.fixture(scope="module")
def url():
    with database() as made:
        PostgresStore(made).close()
        yield made


def draft(name: str) -> Draft:
    return Draft(id=f"id-{name}", ts=1, role="user", content=name.encode(), key=f"key-{name}")


def opened(url: str, **more) -> PostgresStore:
    return PostgresStore(url, **{"lock_timeout": 20, "connections": 2, **more})


def as_somebody(url: str, statement: str, session: str) -> None:
    """What happens to a turn behind the back of its owner."""
    with psycopg.connect(server(), dbname=urlsplit(url).path[1:], autocommit=True) as connection:
        connection.execute(f"UPDATE recto.heads SET {statement} WHERE session = %s", (session,))


def test_who_does_not_want_to_wait_is_told_at_once_that_the_turn_is_taken(url):
    with opened(url) as one, opened(url) as other, one.turn("taken"):
        for store in (one, other):
            with pytest.raises(TurnTaken, match="'taken': another program runs a turn") as refused:
                store.turn("taken", patience=0).__enter__()
            assert refused.value.session == "taken"


def test_a_turn_is_renewed_for_as_long_as_it_lasts(url):
    renewed = threading.Event()
    with opened(url, lease=0.3) as one, opened(url) as other, one.turn("long"):
        keep, many = one._leases._update, []

        async def seen(*given):
            many.append(await keep(*given))
            if len(many) == 4:
                renewed.set()
            return many[-1]

        one._leases._update = seen
        assert renewed.wait(20)
        assert all(many)
        with pytest.raises(TurnTaken):
            other.turn("long", patience=0).__enter__()
        one.append("long", [draft("still mine")])


def test_the_turn_of_an_owner_that_died_is_taken_over_when_its_lease_is_over(url):
    with opened(url) as store:
        store.append("dead", [draft("before")])
        as_somebody(url, "owner = 'dead', epoch = epoch + 1, lease_until = now() + interval '0.5 s'", "dead")
        with pytest.raises(TurnTaken):
            store.turn("dead", patience=0).__enter__()
        with store.turn("dead"):
            store.append("dead", [draft("after")])
        assert store.head("dead").seq == 2


def test_a_lost_turn_is_not_handed_to_another_thread_of_the_process_that_lost_it(url):
    """Its owner still works there, and would write under the number of the new one."""
    with opened(url) as one, opened(url) as other:
        with one.turn("lost"):
            as_somebody(url, "lease_until = now() - interval '1 s'", "lost")
            with pytest.raises(TurnTaken):
                one.turn("lost", patience=0).__enter__()
            with other.turn("lost", patience=0), pytest.raises(AppendConflict, match="taken over"):
                one.append("lost", [draft("late")])
        with one.turn("lost", patience=0):
            one.append("lost", [draft("in time")])
        assert [entry.content for entry in one.read("lost")] == [b"in time"]


def test_the_end_of_a_turn_that_cannot_be_told_to_the_database_is_no_error(url):
    store = opened(url, lock_timeout=2)
    with store.turn("closed"):
        store.append("closed", [draft("a")])
        store.close()


def test_of_many_that_want_the_turn_at_once_each_gets_it_once(url):
    stores = [opened(url, connections=1) for _ in range(3)]
    inside, most = [], []

    def work(number: int) -> None:
        with stores[number % 3].turn("wanted"):
            inside.append(number)
            most.append(len(inside))
            inside.remove(number)

    in_threads(9, work)
    assert most == [1] * 9
    for store in stores:
        store.close()
