"""Promise 2: what was acknowledged survives a power cut.

Everything SQLite does to its files is recorded, and the disk a power cut would leave is built many times over: unsynced
writes dropped, torn and reordered. Each such disk opens, holds every acknowledged entry, and the heads kept outside are
never ahead of it. With NORMAL sync the same test must lose entries, or it could not see anything.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from lossy_disk import Disk, Operation, Trace, TracingDisk
from witness import draft, findings

from recto.errors import StoreError
from recto.stores.sqlite import SqliteOptions, SqliteStore
from recto.transcript.entries import Entry

pytestmark = pytest.mark.timeout(0)
NAME = "transcript.db"
_numbers = itertools.count()


def record(folder: Path, rng: random.Random, synchronous: str) -> list[Operation]:
    """A store is made, written, closed and written again, on a disk that remembers."""
    folder.mkdir()
    heads = folder / f"{NAME}-heads"
    trace = Trace(folder, lambda: heads.read_bytes() if heads.exists() else None)
    name = f"tracing{next(_numbers)}"
    disk = TracingDisk(name, trace)
    options = SqliteOptions(vfs=name, synchronous=synchronous, exclusive=True)
    count = itertools.count()
    for _ in range(3):
        with SqliteStore(folder / NAME, options=options) as store:
            for _ in range(rng.randrange(4, 12)):
                drafts = [
                    draft(str(next(count)), rng.randbytes(rng.choice((20, 600, 5000))))
                    for _ in range(rng.randrange(1, 5))
                ]
                trace.acknowledge(store.append(rng.choice("ab"), drafts))
    disk.unregister()
    return trace.operations


def cuts(operations: list[Operation], rng: random.Random, states: int) -> Iterator[tuple[Disk, list[Entry], object]]:
    """The disk at random instants, with what was acknowledged by then and the heads as they were."""
    disk, acknowledged, heads = Disk(), [], None
    instants = Counter(rng.randrange(len(operations)) for _ in range(states))
    for instant, operation in enumerate(operations):
        disk.happen(operation)
        if operation.kind == "acknowledged":
            acknowledged = [*acknowledged, *operation.note]
        else:
            heads = operation.note
        for _ in range(instants[instant]):
            yield disk, acknowledged, heads


def examine(folder: Path, acknowledged: list[Entry], seen: Counter[str]) -> None:
    try:
        with SqliteStore(folder / NAME) as store:
            stored = {(entry.session, entry.seq): entry for session in "ab" for entry in store.read(session)}
            lost = sum(stored.get((entry.session, entry.seq)) != entry for entry in acknowledged)
            ahead = sum(head.seq > store.head(name).seq for name, head in store.kept_heads().items())
            seen["lost"] += lost
            seen["ahead"] += ahead
            seen["broken"] += bool(findings(store)) and not lost
    except StoreError:
        seen["unopenable"] += 1


def explore(base: Path, states: int, synchronous: str) -> Counter[str]:
    rng = random.Random(synchronous)
    seen: Counter[str] = Counter()
    traces = max(4, states // 5000)
    for number in range(traces):
        operations = record(base / f"trace{number}", rng, synchronous)
        folder = base / f"cut{number}"
        folder.mkdir()
        for disk, acknowledged, heads in cuts(operations, rng, states // traces):
            for old in folder.iterdir():
                old.unlink()
            for name, content in disk.after_power_cut(rng):
                (folder / name).write_bytes(content)
            if heads is not None:
                (folder / f"{NAME}-heads").write_bytes(heads)
            examine(folder, acknowledged, seen)
            seen["states"] += 1
            seen["acknowledged"] += len(acknowledged)
    return seen


@pytest.mark.promise
def test_a_power_cut_loses_nothing_that_was_acknowledged(swift_folder, scale):
    count = scale(400, ci=2_000, release=1_000_000)
    seen = explore(swift_folder, count, "FULL")
    assert seen["states"] >= count * 0.99
    assert seen["acknowledged"] > 0
    assert {name: seen[name] for name in ("lost", "ahead", "broken", "unopenable")} == {
        "lost": 0,
        "ahead": 0,
        "broken": 0,
        "unopenable": 0,
    }


def test_without_full_sync_the_same_test_loses_entries(swift_folder):
    seen = explore(swift_folder, 200, "NORMAL")
    assert seen["lost"] > 0
    assert seen["ahead"] > 0, "heads ahead of the store would not be seen"


@pytest.mark.promise
def test_a_power_cut_while_a_store_is_being_made_leaves_one_that_opens(swift_folder, scale):
    rng = random.Random(5)
    operations = record(swift_folder / "trace", rng, "FULL")[:12]
    folder = swift_folder / "cut"
    folder.mkdir()
    seen: Counter[str] = Counter()
    for disk, acknowledged, heads in cuts(operations, rng, scale(100, ci=400, release=20_000)):
        for old in folder.iterdir():
            old.unlink()
        for name, content in disk.after_power_cut(rng):
            (folder / name).write_bytes(content)
        if heads is not None:
            (folder / f"{NAME}-heads").write_bytes(heads)
        examine(folder, acknowledged, seen)
    assert seen["unopenable"] == 0
