"""Promise 6: a retry never doubles an entry, and an unknown outcome can be asked for.

Two processes with several threads each send the same operations. Acknowledgements get lost, so clients send again, some
of them both at once. In the end every operation is stored exactly once.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from witness import Child, draft, findings

from recto.errors import AppendConflict
from recto.stores.sqlite import SqliteStore

pytestmark = [pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"), pytest.mark.timeout(0)]
SESSIONS = 7
THREADS = 8


def client(store: SqliteStore, operations: range, seed: int, *, keyed: bool) -> None:
    """Sends each operation, and again for as long as the acknowledgement gets lost on its way."""
    rng = random.Random(seed)
    for number in operations:
        tries = 0
        while tries == 0 or rng.random() < 0.3:
            name = str(number) if keyed else f"{number}/{seed}/{tries}"
            store.append(f"s{number % SESSIONS}", [draft(name, str(number).encode(), key=keyed)])
            tries += 1
        if keyed and rng.random() < 0.05:
            assert store.find(f"s{number % SESSIONS}", f"key-{number}") is not None


def send(path: Path, total: int, process: int, *, keyed: bool) -> None:
    """Every operation is sent by one thread of each process, in opposite order of threads."""
    share = total // THREADS
    with SqliteStore(path) as store:
        failures: list[Exception] = []

        def run(place: int) -> None:
            at = place if process == 0 else THREADS - 1 - place
            try:
                client(store, range(at * share, (at + 1) * share), place + 100 * process, keyed=keyed)
            except Exception as error:  # noqa: BLE001  # the child ends with an error
                failures.append(error)

        threads = [threading.Thread(target=run, args=(place,)) for place in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]


def stored_after(path: Path, total: int, *, keyed: bool) -> Counter[bytes]:
    def work(process: int) -> Callable[[Callable[[str], None]], None]:
        def run(acknowledge: Callable[[str], None]) -> None:
            send(path, total, process, keyed=keyed)
            acknowledge("done")

        return run

    SqliteStore(path).close()
    children = [Child.running(work(process)) for process in (0, 1)]
    assert [child.end() for child in children] == [["done"], ["done"]]
    with SqliteStore(path) as store:
        assert findings(store) == []
        return Counter(entry.content for place in range(SESSIONS) for entry in store.read(f"s{place}"))


@pytest.mark.promise
def test_every_operation_is_stored_exactly_once(swift_folder, scale):
    total = scale(800, ci=4_000, release=400_000)  # each is sent by two processes, and 0.43 times again: 2.9 operations
    stored = stored_after(swift_folder / "transcript.db", total, keyed=True)
    assert len(stored) == total, "operations were lost"
    assert set(stored.values()) == {1}, "operations were stored twice"


def test_without_keys_the_same_clients_store_twice(swift_folder):
    stored = stored_after(swift_folder / "transcript.db", 200, keyed=False)
    assert len(stored) == 200
    assert max(stored.values()) > 1


def test_whether_a_write_of_unknown_outcome_went_through_can_be_asked(swift_folder):
    with SqliteStore(swift_folder / "transcript.db") as store:
        [entry] = store.append("a", [draft("1")], expect=0)
        store.append("a", [draft("2")])
        assert store.find("a", "key-1") == entry
        assert store.find("a", "key-3") is None
        assert store.append("a", [draft("1")], expect=0) == [entry]
        with pytest.raises(AppendConflict):
            store.append("a", [draft("3")], expect=0)
