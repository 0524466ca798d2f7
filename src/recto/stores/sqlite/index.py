"""The index of recall in one SQLite file beside the transcript. Many threads and processes may use it at once.

It knows files, locks and transactions, not what the rows mean. Nothing is opened before it is needed, so that a
damaged file can be set aside by the same object that met it.
"""

from __future__ import annotations

import glob
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Self
from weakref import WeakKeyDictionary

import apsw

from recto.errors import (
    IndexCorrupt,
    IndexFailed,
    IndexUnavailable,
    StoreError,
    StoreLocked,
)
from recto.recall.index.rows import CoveredRange, IndexRow, LaneSize, LaneSnapshot, SealedRow
from recto.stores.errors import of_an_index
from recto.stores.sqlite import index_queries
from recto.stores.sqlite.connection import Readers, SqliteOptions, connect
from recto.stores.sqlite.erasure import write_anew
from recto.stores.sqlite.errors import translate
from recto.stores.sqlite.lock import SideLock
from recto.stores.sqlite.schema import FileVersion, Migration, expected_objects, objects_of, upgrade, version_of
from recto.transcript.entries import session_key

APPLICATION_ID = int.from_bytes(b"RctR", "big")
"""Tells an index from a transcript."""
SCHEMA = 1
OPTIONS = SqliteOptions(synchronous="NORMAL", page_bytes=16384, cache_kib=8192)
"""What is here can be made anew, so a commit need not wait for the disk. Rows of up to 4,000 bytes stay whole in such
pages, and a question reads few of them."""
_LOG_PAGES = 1000
"""So long the log becomes before it is brought over: 16 MB, a few sealings."""


class SqliteIndex:
    """What recall searches, in one file. Made when it is first asked for anything."""

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
        """Held by the one thread that writes."""
        self._file: tuple[int, int] | None = None
        """Which file was found to be an index; another one in its place is looked at anew."""
        self._writer: apsw.Connection | None = None
        self._written_file: tuple[int, int] | None = None
        self._is_closed = False
        self._seen: WeakKeyDictionary[apsw.Connection, index_queries.FreshRowCache] = WeakKeyDictionary()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def location(self) -> str:
        """Where it is, as a person would write it."""
        return self._location

    def covered(self, session: str, lane: str) -> list[CoveredRange]:
        """Which entries the lane has taken in, as ranges in order; neighbours are joined."""
        with self._reading() as connection:
            known = index_queries.shelf_of(connection, session, lane)
            return index_queries.covered(connection, known[0]) if known else []

    def put(self, session: str, lane: str, rows: Sequence[IndexRow], covers: CoveredRange) -> None:
        """Adds fresh rows and what they cover, all or none; returns when both are confirmed."""
        session_key(session)
        with self._writing() as connection:
            index_queries.put(connection, session, lane, rows, covers)

    def snapshot(self, session: str, lane: str, parts: Sequence[int] = ()) -> LaneSnapshot:
        """The fresh rows and the sealed rows of these parts, as they are at one moment."""
        with self._reading() as connection:
            return index_queries.snapshot(connection, self._seen_by(connection), session, lane, parts)

    def seal(
        self,
        session: str,
        lane: str,
        taken: Sequence[int],
        rows: Sequence[SealedRow],
        merged: Sequence[tuple[int, int]] = (),
    ) -> bool:
        """Puts sealed rows in the place of fresh and of sealed ones, all or none."""
        with self._writing() as connection:
            known = index_queries.shelf_of(connection, session, lane)
            return known is not None and index_queries.seal(connection, known[0], taken, rows, merged)

    def sessions(self, prefix: str = "") -> list[str]:
        """The sessions it holds anything of, by key, whose key begins so."""
        with self._reading() as connection:
            return index_queries.sessions(connection, prefix)

    def forget(self, session: str, lane: str | None = None) -> None:
        """Lets go of a session, or of one of its lanes, to be made anew."""
        with self._writing() as connection:
            index_queries.forget(connection, session, lane)

    def scrub(self, sessions: Sequence[str]) -> None:
        """Leaves nothing of forgotten sessions in the gaps of the file, and no damaged file of before beside it."""
        self._refuse_use()
        with self._translating(), self._turned(), self._locked():
            for left in self._path.parent.glob(f"{glob.escape(self._path.name)}-damaged-*"):
                left.unlink()
            write_anew(self._connected())

    def lanes(self) -> list[LaneSize]:
        """What there is, for people: every lane with how much it holds."""
        with self._reading() as connection:
            return index_queries.lanes(connection)

    def damage(self) -> list[str]:
        """What SQLite finds wrong, what is not as it was made, and rows that nothing accounts for."""
        try:
            with self._reading() as connection:
                problems = [f"SQLite: {line}" for (line,) in connection.execute("PRAGMA integrity_check(20)")]
                problems = [problem for problem in problems if problem != "SQLite: ok"]
                if objects_of(connection) != expected_objects(_schema()):
                    problems.append("a table was changed, added or is missing")
                elif count := index_queries.uncovered(connection):
                    problems.append(f"{count:,} rows belong to entries that are not covered")
                return problems
        except IndexCorrupt as error:
            return [f"SQLite: {error.detail}"]

    def reset(self) -> None:
        """Sets the file aside, with its log, under a name that says so, and begins an empty one in its place."""
        self._refuse_use()
        with self._translating(), self._turned():
            with self._lock.held(self._lock_timeout):
                self._disconnect()
                self._readers.renew()
                _set_aside(self._path)
            self._ready()

    def close(self) -> None:
        """Finishes what was begun; no other call may follow."""
        if os.getpid() != self._process:
            return  # the parent's files; closing them here would let go of what it holds
        with self._turn:
            self._is_closed = True
            self._disconnect()
            self._lock.close()
        self._readers.close()

    @contextmanager
    def _reading(self) -> Iterator[apsw.Connection]:
        """A connection in a transaction: all that is read is of one moment."""
        self._refuse_use()
        with self._translating():
            self._ready()
            with self._readers.lent() as connection:
                connection.execute("BEGIN")
                yield connection
                connection.execute("COMMIT")

    def _seen_by(self, connection: apsw.Connection) -> index_queries.FreshRowCache:
        with self._opening:
            return self._seen.setdefault(connection, index_queries.FreshRowCache())

    @contextmanager
    def _writing(self) -> Iterator[apsw.Connection]:
        """The one writing connection, in a transaction that is committed at the end."""
        self._refuse_use()
        with self._translating(), self._turned(), self._locked():
            connection = self._connected()
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException as error:
                self._disconnect(error)
                raise

    @contextmanager
    def _turned(self) -> Iterator[None]:
        """Threads take turns."""
        if not self._turn.acquire(timeout=self._lock_timeout):
            raise StoreLocked(self._location, self._lock_timeout)
        try:
            self._refuse_use()
            yield
        finally:
            self._turn.release()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """So do processes. The file does not change its place while the lock is held."""
        deadline = time.monotonic() + self._lock_timeout
        while True:
            self._ready()
            with self._lock.held(max(0.0, deadline - time.monotonic())):
                if self._is_current():
                    yield
                    return

    def _connected(self) -> apsw.Connection:
        if self._writer is not None and self._written_file != self._file:
            self._disconnect()
        if self._writer is None:
            self._writer = connect(self._path, "write", self._options, self._lock_timeout)
            self._writer.wal_autocheckpoint(_LOG_PAGES)
            self._written_file = self._file
        return self._writer

    def _disconnect(self, error: BaseException | None = None) -> None:
        """After a fault, or where the file was replaced, the connection is not used again."""
        connection, self._writer = self._writer, None
        if connection is None:
            return
        with suppress(apsw.Error):
            if error is not None:
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # would need the room that is missing
            connection.close()

    def _ready(self) -> None:
        """Sees to it that the file in this place is an index, and that it is the one that is read."""
        if self._is_current():
            return
        with self._opening:
            if self._is_current():
                return
            self._readers.renew()
            if not self._path.exists() or not self._path.stat().st_size or self._version().is_blank:
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
        """Looks without touching."""
        readers = Readers(self._path, self._options, self._lock_timeout, read_only=True)
        try:
            with readers.lent() as connection:
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
        """Lets only errors of an index out."""
        try:
            yield
        except IndexFailed:
            raise
        except StoreError as error:
            raise of_an_index(error, self._location, self._lock_timeout) from error
        except UnicodeEncodeError as error:
            raise IndexUnavailable(self._location, "a key with a lone surrogate cannot be looked up") from error
        except (apsw.Error, OSError, UnicodeDecodeError) as error:
            told = translate(error, self._path, self._lock_timeout)
            raise of_an_index(told, self._location, self._lock_timeout) from error


@cache
def _schema() -> tuple[Migration, ...]:
    return (Migration(SCHEMA, (resources.files(__package__) / "index.sql").read_text("utf-8")),)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116  # asked before every call, and Path is slow
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _set_aside(path: Path) -> None:
    """The log goes first: a log that is left alone beside a new file would be read into it."""
    number = 1
    while (aside := path.with_name(f"{path.name}-damaged-{number}")).exists():
        number += 1
    for ending in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            path.with_name(path.name + ending).rename(aside.with_name(aside.name + ending))
