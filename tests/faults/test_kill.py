"""Promise 1: acknowledged entries survive the death of the process.

Writers are ended with SIGKILL at random instants. Every acknowledged entry is stored with its hash, the chains hold, a
batch is stored completely or not at all, and a committed entry that was never acknowledged is found by its key: sending
it again does not store it twice.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from witness import Child, draft, findings

from recto.stores.sqlite import SqliteStore
from recto.transcript.entries import EMPTY_HEAD, ChainBreak, Draft, Head, verify_chain

pytestmark = [pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"), pytest.mark.timeout(0)]


def batch(writer: str, number: int) -> list[Draft]:
    return [draft(f"{writer}.{number}.{place}") for place in range(5 if number % 3 == 0 else 1)]


def write(path: Path, writer: str, session: str, acknowledge: Callable[[str], None], *, too_early: bool) -> None:
    store = SqliteStore(path)
    for number in itertools.count():
        drafts = batch(writer, number)
        if too_early:
            acknowledge(f"{number} ? ?")
        entries = store.append(session, drafts)
        if not too_early:
            acknowledge(f"{number} {entries[-1].seq} {entries[-1].hash.hex()}")


class Ledger:
    """Follows the store over all the kills and counts what went wrong."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.verified: dict[str, Head] = {}
        self.keys: set[str] = set()
        self.acknowledged = 0
        self.lost = 0
        self.unacknowledged = 0

    def check(self, session: str, writer: str, lines: list[str]) -> None:
        with SqliteStore(self.path) as store:
            for line in lines:
                number, seq, digest = line.split()
                self.acknowledged += 1
                entry = store.find(session, batch(writer, int(number))[-1].key or "")
                if entry is None or (seq != "?" and (entry.seq, entry.hash.hex()) != (int(seq), digest)):
                    self.lost += 1
            self.retry_the_last(store, session, writer, len(lines))
            self.follow(store, session)

    def retry_the_last(self, store: SqliteStore, session: str, writer: str, number: int) -> None:
        """Retries the batch during which the writer died: it may or may not be stored."""
        drafts = batch(writer, number)
        found = [store.find(session, each.key or "") for each in drafts]
        assert found.count(None) in (0, len(drafts)), "half a batch was stored"
        self.unacknowledged += found.count(None) == 0
        again = store.append(session, drafts)
        assert None in found or again == found

    def follow(self, store: SqliteStore, session: str) -> None:
        start = self.verified.get(session, EMPTY_HEAD)
        entries = list(store.read(session, start.seq + 1))
        end = verify_chain(session, start, entries)
        assert not isinstance(end, ChainBreak), end
        assert not self.keys & {entry.key for entry in entries}, "an entry was stored twice"
        self.keys |= {entry.key for entry in entries if entry.key}
        assert store.kept_heads()[session].seq <= end.seq
        self.verified[session] = end


def run(path: Path, rng: random.Random, cycles: int, writers: int, *, too_early: bool = False) -> Ledger:
    ledger = Ledger(path)
    for cycle in range(cycles):
        names = [f"{cycle}-{writer}" for writer in range(writers)]
        sessions = [f"s{writer % 2}" for writer in range(writers)]
        children = [
            Child.running(lambda ack, name=name, session=session: write(path, name, session, ack, too_early=too_early))
            for name, session in zip(names, sessions, strict=True)
        ]
        lines = [child.wait_for(rng.choice((1, 1, 3, 8))) for child in children]
        for child, read in zip(children, lines, strict=True):
            read.extend(child.kill(rng.uniform(0, 0.002)))
        for name, session, acknowledged in zip(names, sessions, lines, strict=True):
            ledger.check(session, name, acknowledged)
    return ledger


@pytest.mark.promise
@pytest.mark.parametrize(("writers", "rounds"), [(1, (45, 120, 6_000)), (3, (30, 80, 4_000))])
def test_acknowledged_entries_survive_kill_9(tmp_path, scale, writers, rounds):
    path = tmp_path / "transcript.db"
    small, ci, release = rounds
    cycles = scale(small, ci=ci, release=release)
    ledger = run(path, random.Random(writers), cycles, writers)
    assert ledger.acknowledged > cycles
    assert ledger.lost == 0
    assert ledger.unacknowledged > 0, "no kill fell between commit and acknowledgement: the test covers too little"
    with SqliteStore(path) as store:
        assert findings(store) == []
        assert sum(summary.entries for summary in store.sessions()) == len(ledger.keys)


def test_an_acknowledgement_before_the_commit_is_detected(tmp_path):
    ledger = run(tmp_path / "transcript.db", random.Random(3), 40, 1, too_early=True)
    assert ledger.lost > 0
