"""The recall index in one SQLite file next to the transcript. Many threads and processes may use it at once.

Rows are opaque bytes here. Nothing is opened before it is needed, so that a
damaged file can be set aside by the object that detected the damage.
"""

from __future__ import annotations

import glob
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from weakref import WeakKeyDictionary

import apsw

from recto.errors import (
    IndexCorrupt,
    IndexFailed,
    IndexUnavailable,
    StoreError,
    StoreLocked,
)
from recto.stores._index_errors import to_index_error
from recto.stores.sqlite import _index_queries
from recto.stores.sqlite.connection import Readers, SqliteOptions, connect
from recto.stores.sqlite.erasure import rewrite_file
from recto.stores.sqlite.errors import translate
from recto.stores.sqlite.lock import SideLock
from recto.stores.sqlite.schema import Migration, expected_objects, objects_of, upgrade, version_of
from recto.transcript.entries import session_key

if TYPE_CHECKING:
    from recto.recall.index.rows import CoveredRange, IndexRow, LaneSize, LaneSnapshot, SealedRow
    from recto.stores.sqlite.schema import FileVersion

APPLICATION_ID = int.from_bytes(b"RctR", "big")
"""Distinguishes an index file from a transcript."""
SCHEMA = 1
OPTIONS = SqliteOptions(synchronous="NORMAL", page_bytes=16384, cache_kib=8192)
"""The index can be rebuilt, so a commit need not wait for the disk. Rows of up to 4,000 bytes fit in such
pages without overflow, and a query reads few of them."""
_LOG_PAGES = 1000
"""Pages of the log before a checkpoint: 16 MB, a few seals."""


class SqliteIndex:
    """The recall index in one SQLite file. Created when first used."""

    def __init__(
        self, path: str | os.PathLike[str], *, lock_timeout: float = 30.0, options: SqliteOptions | None = None
    ) -> None:
        self._location = os.fspath(path)
        self._path = Path(os.path.realpath(path))
        self._lock_timeout = lock_timeout
        self._options = options or OPTIONS
        self._process = os.getpid()
        self._lock_path = self._path.with_name(self._path.name + "-lock")
        self._lock = SideLock(self._lock_path)
        self._readers = Readers(self._path, self._options, lock_timeout, read_only=False)
        self._opening = threading.Lock()
        self._turn = threading.Lock()
        """Held by the thread that writes."""
        self._file: tuple[int, int] | None = None
        """Identity of the file that was verified; another file in its place is verified again."""
        self._writer: apsw.Connection | None = None
        self._written_file: tuple[int, int] | None = None
        self._is_closed = False
        self._seen: WeakKeyDictionary[apsw.Connection, _index_queries.FreshRowCache] = WeakKeyDictionary()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def location(self) -> str:
        """Where the store is, for messages: a path or a URL without the password."""
        return self._location

    def covered(self, session: str, lane: str) -> list[CoveredRange]:
        """Return the entries the lane has indexed, as sorted ranges; adjacent ranges are joined."""
        with self._reading() as connection:
            known = _index_queries.shelf_of(connection, session, lane)
            return _index_queries.covered(connection, known[0]) if known else []

    def put(self, session: str, lane: str, rows: Sequence[IndexRow], covers: CoveredRange) -> None:
        """Add fresh rows and mark `covers` as indexed, atomically. Returns once both are durable."""
        session_key(session)
        with self._writing() as connection:
            _index_queries.put(connection, session, lane, rows, covers)

    def snapshot(self, session: str, lane: str, parts: Sequence[int] = ()) -> LaneSnapshot:
        """Read the fresh rows and the sealed rows of these parts, consistently."""
        with self._reading() as connection:
            return _index_queries.snapshot(connection, self._seen_by(connection), session, lane, parts)

    def seal(
        self,
        session: str,
        lane: str,
        seqs: Sequence[int],
        rows: Sequence[SealedRow],
        merged: Sequence[tuple[int, int]] = (),
        covers: CoveredRange | None = None,
    ) -> bool:
        """Replace fresh and sealed rows by new sealed rows, atomically; False if another writer was faster."""
        session_key(session)
        with self._writing() as connection:
            return _index_queries.seal(connection, session, lane, seqs, rows, merged, covers)

    def sessions(self, prefix: str = "") -> list[str]:
        """Return the keys of all sessions with rows whose key starts with `prefix`."""
        with self._reading() as connection:
            return _index_queries.sessions(connection, prefix)

    def forget(self, session: str, lane: str | None = None) -> None:
        """Delete a session, or one of its lanes, so that it is indexed again."""
        with self._writing() as connection:
            _index_queries.forget(connection, session, lane)

    def scrub(self, sessions: Sequence[str]) -> None:
        """Overwrite what deleted sessions left in the file, and delete damaged files that were set aside."""
        self._refuse_use()
        with self._translating(), self._turned(), self._locked():
            for left in self._path.parent.glob(f"{glob.escape(self._path.name)}-damaged-*"):
                left.unlink()
            rewrite_file(self._connect())

    def lane_names(self) -> list[str]:
        """Return the names of all lanes, in order."""
        with self._reading() as connection:
            return _index_queries.lane_names(connection)

    def lanes(self) -> list[LaneSize]:
        """Return the size of every lane, for display."""
        with self._reading() as connection:
            return _index_queries.lanes(connection)

    def damage(self) -> list[str]:
        """Report what SQLite finds damaged, changed schema objects, and rows outside the covered ranges."""
        try:
            with self._reading() as connection:
                problems = [f"SQLite: {line}" for (line,) in connection.execute("PRAGMA integrity_check(20)")]
                problems = [problem for problem in problems if problem != "SQLite: ok"]
                if objects_of(connection) != expected_objects(_schema()):
                    problems.append("a table was changed, added or is missing")
                elif count := _index_queries.uncovered(connection):
                    problems.append(f"{count:,} rows belong to entries that are not covered")
                return problems
        except IndexCorrupt as error:
            return [f"SQLite: {error.detail}"]

    def reset(self) -> None:
        """Rename the file and its log, and create an empty file in its place."""
        self._refuse_use()
        with self._translating(), self._turned():
            with self._lock.held(self._lock_timeout):
                self._disconnect()
                self._readers.renew()
                _set_aside(self._path)
            self._ready()

    def close(self) -> None:
        """Finish pending work and close. No other call may follow."""
        if os.getpid() != self._process:
            return  # these files belong to the parent process; closing them here would drop its locks
        with self._turn:
            self._is_closed = True
            self._disconnect()
            self._lock.close()
        self._readers.close()

    @contextmanager
    def _reading(self) -> Iterator[apsw.Connection]:
        """Borrow a connection in a transaction, for a consistent read."""
        self._refuse_use()
        with self._translating():
            self._ready()
            with self._readers.borrow() as connection:
                connection.execute("BEGIN")
                yield connection
                connection.execute("COMMIT")

    def _seen_by(self, connection: apsw.Connection) -> _index_queries.FreshRowCache:
        with self._opening:
            return self._seen.setdefault(connection, _index_queries.FreshRowCache())

    @contextmanager
    def _writing(self) -> Iterator[apsw.Connection]:
        """Use the writing connection in a transaction that is committed at the end."""
        self._refuse_use()
        with self._translating(), self._turned(), self._locked():
            connection = self._connect()
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException as error:
                self._disconnect(error)
                raise

    @contextmanager
    def _turned(self) -> Iterator[None]:
        """Serialize the writing threads of this process."""
        if not self._turn.acquire(timeout=self._lock_timeout):
            raise StoreLocked(self._location, self._lock_timeout)
        try:
            self._refuse_use()
            yield
        finally:
            self._turn.release()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Serialize writing processes. The file is not replaced while the lock is held."""
        deadline = time.monotonic() + self._lock_timeout
        while True:
            self._ready()
            with self._lock.held(max(0.0, deadline - time.monotonic())):
                if self._is_current():
                    yield
                    return

    def _connect(self) -> apsw.Connection:
        if self._writer is not None and self._written_file != self._file:
            self._disconnect()
        if self._writer is None:
            self._writer = connect(self._path, "write", self._options, self._lock_timeout)
            self._writer.wal_autocheckpoint(_LOG_PAGES)
            self._written_file = self._file
        return self._writer

    def _disconnect(self, error: BaseException | None = None) -> None:
        """Close the writing connection. It is not used again after an error or when the file was replaced."""
        connection, self._writer = self._writer, None
        if connection is None:
            return
        with suppress(apsw.Error):
            if error is not None:
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # would need the missing disk space
            connection.close()

    def _ready(self) -> None:
        """Ensure that the file is an index, and that the open connections belong to it."""
        if self._is_current():
            return
        with self._opening:
            if self._is_current():
                return
            self._readers.renew()
            file = _identity(self._path)
            found = self._version() if file is not None and self._path.stat().st_size else None
            if found is None or found.is_blank:
                self._create()
                file, found = _identity(self._path), self._version()
            if found.application != APPLICATION_ID:
                raise IndexUnavailable(self._location, "it is a database of another kind, and was left as it is")
            if found.version > SCHEMA:
                detail = f"it has schema {found.version}, this Recto knows up to {SCHEMA}; use a newer Recto"
                raise IndexUnavailable(self._location, detail)
            self._file = file

    def _is_current(self) -> bool:
        return self._file is not None and _identity(self._path) == self._file

    def _create(self) -> None:
        lock = SideLock(self._lock_path)
        try:
            with lock.held(self._lock_timeout):
                connection = connect(self._path, "create", self._options, self._lock_timeout)
                try:
                    if version_of(connection).is_blank:
                        upgrade(connection, _schema(), APPLICATION_ID)
                finally:
                    connection.close()
        finally:
            lock.close()

    def _version(self) -> FileVersion:
        """Read the version without writing."""
        readers = Readers(self._path, self._options, self._lock_timeout, read_only=True)
        try:
            with readers.borrow() as connection:
                return version_of(connection)
        finally:
            readers.close()

    def _refuse_use(self) -> None:
        if os.getpid() != self._process:
            detail = "it was opened before this process was forked; open it again in this process"
            raise IndexUnavailable(self._location, detail)
        if self._is_closed:
            raise IndexUnavailable(self._location, "it is closed already")

    @contextmanager
    def _translating(self) -> Iterator[None]:
        """Translate errors of the store to errors of an index."""
        try:
            yield
        except IndexFailed:
            raise
        except StoreError as error:
            raise to_index_error(error, self._location, self._lock_timeout) from error
        except UnicodeEncodeError as error:
            raise IndexUnavailable(self._location, "a key with a lone surrogate cannot be looked up") from error
        except (apsw.Error, OSError, UnicodeDecodeError) as error:
            store_error = translate(error, self._path, self._lock_timeout)
            raise to_index_error(store_error, self._location, self._lock_timeout) from error


@cache
def _schema() -> tuple[Migration, ...]:
    return (Migration(SCHEMA, Path(__file__).with_name("index.sql").read_text("utf-8")),)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116  # called before every operation, and Path is slow
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _set_aside(path: Path) -> None:
    """Rename the log first: SQLite would apply a leftover log to the new file."""
    number = 1
    while (aside := path.with_name(f"{path.name}-damaged-{number}")).exists():
        number += 1
    for ending in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            path.with_name(path.name + ending).rename(aside.with_name(aside.name + ending))
