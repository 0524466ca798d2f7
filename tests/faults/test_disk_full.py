"""Promise 4: a full disk is reported, loses nothing, does not affect reads, and appends work again once there is space.

SQLite reports a full disk in two ways: as "disk full" and, where file size is limited, as an I/O error. The tests cover
both.
"""

from __future__ import annotations

import itertools
import random
import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from witness import Child, draft, findings

from recto.errors import StoreFull
from recto.stores.sqlite import SqliteStore
from recto.transcript.entries import Entry, link_entries

pytestmark = [pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"), pytest.mark.timeout(0)]


def fill(store: SqliteStore, rng: random.Random, names: itertools.count) -> list[Entry]:
    """Appends until the disk is full; returns the acknowledged entries."""
    acknowledged: list[Entry] = []
    while True:
        size = rng.choice((100, 3000, 40_000))
        drafts = [draft(str(next(names)), rng.randbytes(size)) for _ in range(rng.randrange(1, 4))]
        try:
            acknowledged += store.append(rng.choice("ab"), drafts)
        except StoreFull:
            assert all(store.find(session, each.key or "") is None for session in "ab" for each in drafts)
            return acknowledged


def lost(store: SqliteStore, acknowledged: list[Entry]) -> int:
    stored = {entry.hash: entry for session in "ab" for entry in store.read(session)}
    return sum(stored.get(entry.hash) != entry for entry in acknowledged)


def live_through_it(path: Path, seed: int, make_room: Callable[[], object]) -> None:
    rng, names = random.Random(seed), itertools.count()
    with SqliteStore(path) as store:
        acknowledged = fill(store, rng, names)
        assert acknowledged
        assert lost(store, acknowledged) == 0
        acknowledged += fill(store, rng, names)
        make_room()
        acknowledged += store.append("a", [draft("after", rng.randbytes(50_000))])
        assert lost(store, acknowledged) == 0
    with SqliteStore(path) as store:
        assert lost(store, acknowledged) == 0
        assert len(acknowledged) == sum(summary.entries for summary in store.sessions())
        assert findings(store) == []


def limit_file_size(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def test_a_limit_on_file_size_loses_nothing_and_appends_work_once_it_is_lifted(swift_folder, scale):
    for run in range(scale(20, release=1_000)):
        path = swift_folder / f"{run}.db"
        SqliteStore(path).close()

        def work(acknowledge: Callable[[str], None], path: Path = path, run: int = run) -> None:
            limit_file_size(300_000 + 37_123 * (run % 17))
            live_through_it(path, run, lambda: limit_file_size(resource.RLIM_INFINITY))
            acknowledge("lived")

        assert Child.running(work).end() == ["lived"]
        path.unlink()


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting needs root; the limit on file size is tried everywhere")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_loses_nothing_and_appends_work_once_there_is_space(small_disk, scale):
    def resize(kilobytes: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", str(small_disk)], check=True)

    for run in range(scale(20, release=1_000)):
        resize(700 + 61 * (run % 23))
        live_through_it(small_disk / "transcript.db", run, lambda: resize(20_000))
        for file in small_disk.iterdir():
            file.unlink()


def test_a_refused_entry_believed_to_be_stored_is_detected(swift_folder):
    def work(acknowledge: Callable[[str], None]) -> None:
        with SqliteStore(swift_folder / "transcript.db") as store:
            stored = store.append("a", [draft("stored")])
            limit_file_size(50_000)
            refused = draft("refused", bytes(100_000))
            with pytest.raises(StoreFull):
                store.append("a", [refused])
            believed = [*stored, *link_entries("a", store.head("a"), [refused])]
            acknowledge(str(lost(store, believed)))

    assert Child.running(work).end() == ["1"]
