"""Promise 3: acknowledged entries are durable in PostgreSQL too, over SIGKILL of all processes of the server.

The server is configured not to wait for the disk, and to write its log as rarely as it can: the entries are safe only
because the store insists on synchronous commits. Writers survive the kills, so they have to resolve every unknown
outcome themselves.
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
    """Returns drafts, some with keys and some without: those are recognized by their ids."""
    count, keyed = (4 if number % 3 == 0 else 1), number % 2 == 0
    return [draft(f"{writer}.{number}.{place}", key=keyed) for place in range(count)]


def write(url: str, writer: int, acknowledge: Callable[[str], None], *, insists: bool) -> None:
    if not insists:
        pool._INSIST = "SELECT 1"  # the protection, disabled
    with PostgresStore(url, lock_timeout=60, connections=2) as store:
        for number in itertools.count():
            entries = store.append(f"s{writer % SESSIONS}", batch(writer, number))
            acknowledge(f"{number} {entries[-1].seq} {entries[-1].hash.hex()}")


def lived_through(server: Server, url: str, cycles: int, writers: int, *, insists: bool) -> dict[int, list[str]]:
    """Runs writers over so many kills; returns the acknowledgements of each."""
    rng = random.Random(cycles)
    children = [
        Child.running(lambda ack, writer=writer: write(url, writer, ack, insists=insists)) for writer in range(writers)
    ]
    acknowledged: dict[int, list[str]] = {writer: [] for writer in range(writers)}
    for _ in range(cycles):
        for writer, child in enumerate(children):
            acknowledged[writer] += child.wait_for(rng.choice((1, 2, 6)))
        select.select([], [], [], rng.uniform(0, 0.03))
        server.kill()
        if not insists:
            break  # a writer that goes on would find another history than the acknowledged one
        server.start(*LAZY)
    for writer, child in enumerate(children):
        acknowledged[writer] += child.wait_for(1) if insists else []
        acknowledged[writer] += child.kill()
    return acknowledged


def lost(store: PostgresStore, acknowledged: dict[int, list[str]]) -> int:
    gone = 0
    for writer, lines in acknowledged.items():
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
def test_acknowledged_entries_survive_kill_9_of_the_whole_server(server, scale):
    url = server.made("kills")
    PostgresStore(url).close()
    acknowledged = lived_through(server, url, scale(2, ci=10, release=500), 3, insists=True)
    with PostgresStore(url) as store:
        assert sum(map(len, acknowledged.values())) > 6
        assert lost(store, acknowledged) == 0
        assert findings(store) == []
        ids = [entry.id for session in range(SESSIONS) for entry in store.read(f"s{session}")]
        assert len(ids) == len(set(ids)), "an entry was stored twice"
        for writer, lines in acknowledged.items():
            numbers = [int(line.split()[0]) for line in lines]
            assert numbers == list(range(len(numbers))), "a writer skipped an unacknowledged batch"
            stored = {id for id in ids if id.startswith(f"id-{writer}.")}
            whole = {item.id for number in range(len(numbers) + 1) for item in batch(writer, number)}
            last = {item.id for item in batch(writer, len(numbers))}
            assert stored <= whole
            assert stored & last in (set(), last), "half a batch was stored"


def test_a_store_without_synchronous_commit_loses_entries(server):
    url = server.made("control")
    PostgresStore(url).close()
    acknowledged = lived_through(server, url, 1, 3, insists=False)
    server.start(*LAZY)
    with PostgresStore(url) as store:
        assert sum(map(len, acknowledged.values())) > 3
        assert lost(store, acknowledged) > 0
