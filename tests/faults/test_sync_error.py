"""Promise 4, the other half: a disk that fails to confirm a write is believed to have lost it.

The caller is told that the outcome is unknown, and sending the same key again stores it once. After such an error the
log is brought over into the database before anything else is acknowledged: what the disk did not confirm once it may
never write, however often it is asked again.
"""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import pytest
from lossy_disk import Trace, TracingDisk, TracingFile
from witness import draft, findings

from recto.errors import StoreUnavailable
from recto.stores.sqlite import SqliteOptions, SqliteStore


class FailingFile(TracingFile):
    def xSync(self, flags):
        if self.trace.observe():
            error = apsw.IOError("the disk does not confirm")
            error.extendedresult = apsw.SQLITE_IOERR_FSYNC
            raise error
        super().xSync(flags)

    def excepthook(self, kind, error, trace):
        """The failure is meant; where nobody can catch it, nobody needs to see it."""


class FailingDisk(TracingDisk):
    """Confirms nothing while `is_failing` is set."""

    def __init__(self, folder) -> None:
        self.is_failing = False
        super().__init__("failing", Trace(folder, lambda: self.is_failing))

    def xOpen(self, name, flags):
        return FailingFile(name, flags, self.trace)


@pytest.fixture
def disk(swift_folder) -> Iterator[FailingDisk]:
    disk = FailingDisk(swift_folder)
    yield disk
    disk.unregister()


def test_an_unconfirmed_write_is_of_unknown_outcome_and_stored_once_when_sent_again(swift_folder, disk):
    path = swift_folder / "transcript.db"
    with SqliteStore(path, options=SqliteOptions(vfs="failing", exclusive=True)) as store:
        store.append("a", [draft("1")])
        disk.is_failing = True
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                store.append("a", [draft("2")])
        disk.is_failing = False
        [entry] = store.append("a", [draft("2")])
        assert entry.seq == 2
        synced = [each.name for each in disk.trace.operations if each.kind == "sync"]
        assert "transcript.db" in synced[-4:], "the log was trusted after a failed sync"
        store.append("a", [draft("3")])
    with SqliteStore(path) as store:
        assert [entry.id for entry in store.read("a")] == ["id-1", "id-2", "id-3"]
        assert findings(store) == []
