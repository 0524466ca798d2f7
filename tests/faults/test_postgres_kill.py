"""Promise 3: what was acknowledged is durable in PostgreSQL too, over SIGKILL of all of the server's processes.

The server is told not to wait for the disk, and to write its log as rarely as it can: what saves the entries is that
the store insists. Writers live through the kills, so every outcome that nobody could tell has to be found out by them.
"""

from __future__ import annotations

import itertools
import random
import select
from collections.abc import Callable

import pytest
from own_postgres import Server, own_server
from witness import Child, draft, findings

from recto.stores.postgres import PostgresStore, pool
from recto.transcript.entries import Draft

pytestmark = [pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"), pytest.mark.timeout(0)]
LAZY = ("synchronous_commit=off", "wal_writer_delay=10s", "wal_writer_flush_after=1GB", "wal_buffers=16MB")
SESSIONS = 2


def batch(writer: int, number: int) -> list[Draft]:
    """Some with keys and some without: then it is by their ids that one knows them again."""
    count, keyed = (4 if number % 3 == 0 else 1), number % 2 == 0
    return [draft(f"{writer}.{number}.{place}", key=keyed) for place in range(count)]


def write(url: str, writer: int, acknowledge: Callable[[str], None], *, insists: bool) -> None:
    if not insists:
        pool._INSIST = "SELECT 1"  # the protection, switched off
    with PostgresStore(url, lock_timeout=60, connections=2) as store:
        for number in itertools.count():
            entries = store.append(f"s{writer % SESSIONS}", batch(writer, number))
            acknowledge(f"{number} {entries[-1].seq} {entries[-1].hash.hex()}")


def lived_through(server: Server, url: str, cycles: int, writers: int, *, insists: bool) -> dict[int, list[str]]:
    """What each writer was told is stored, over so many kills."""
    rng = random.Random(cycles)
    children = [
        Child.running(lambda ack, writer=writer: write(url, writer, ack, insists=insists)) for writer in range(writers)
    ]
    told: dict[int, list[str]] = {writer: [] for writer in range(writers)}
    for _ in range(cycles):
        for writer, child in enumerate(children):
            told[writer] += child.wait_for(rng.choice((1, 2, 6)))
        select.select([], [], [], rng.uniform(0, 0.03))
        server.kill()
        if not insists:
            break  # who writes on finds another past than the one it was told of
        server.start(*LAZY)
    for writer, child in enumerate(children):
        told[writer] += child.wait_for(1) if insists else []
        told[writer] += child.kill()
    return told


def lost(store: PostgresStore, told: dict[int, list[str]]) -> int:
    gone = 0
    for writer, lines in told.items():
        for line in lines:
            number, seq, digest = line.split()
            entry = store.get(f"s{writer % SESSIONS}", batch(writer, int(number))[-1].id)
            gone += entry is None or (entry.seq, entry.hash.hex()) != (int(seq), digest)
    return gone


@pytest.fixture(scope="module")
def server():
    with own_server() as made:
        made.start(*LAZY)
        yield made


@pytest.mark.promise
def test_what_was_acknowledged_survives_kill_9_of_the_whole_server(server, scale):
    url = server.made("kills")
    PostgresStore(url).close()
    told = lived_through(server, url, scale(2, ci=10, release=500), 3, insists=True)
    with PostgresStore(url) as store:
        assert sum(map(len, told.values())) > 6
        assert lost(store, told) == 0
        assert findings(store) == []
        ids = [entry.id for session in range(SESSIONS) for entry in store.read(f"s{session}")]
        assert len(ids) == len(set(ids)), "an entry was stored twice"
        for writer, lines in told.items():
            numbers = [int(line.split()[0]) for line in lines]
            assert numbers == list(range(len(numbers))), "a writer skipped something it was not told of"
            stored = {id for id in ids if id.startswith(f"id-{writer}.")}
            whole = {one.id for number in range(len(numbers) + 1) for one in batch(writer, number)}
            last = {one.id for one in batch(writer, len(numbers))}
            assert stored <= whole
            assert stored & last in (set(), last), "half a batch was stored"


def test_a_store_that_does_not_insist_would_be_seen_to_lose(server):
    url = server.made("control")
    PostgresStore(url).close()
    told = lived_through(server, url, 1, 3, insists=False)
    server.start(*LAZY)
    with PostgresStore(url) as store:
        assert sum(map(len, told.values())) > 3
        assert lost(store, told) > 0
