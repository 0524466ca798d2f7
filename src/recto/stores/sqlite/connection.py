"""Opens connections: the same settings on each, and an authorizer that permits nothing but reading and appending.

Knows SQLite's settings, not the content of the tables.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

import apsw
from msgspec import Struct

from recto.errors import StoreUnavailable
from recto.stores.sqlite.schema import shipped_migrations

if TYPE_CHECKING:
    from recto.stores.sqlite.schema import Migration

OLDEST_SQLITE = (3, 51, 3)
"""Before this, two connections that write and checkpoint at once can corrupt a WAL file."""

Mode = Literal["create", "write", "read only", "immutable"]

_FLAGS = {
    "create": apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE,
    "write": apsw.SQLITE_OPEN_READWRITE,
    "read only": apsw.SQLITE_OPEN_READONLY,
    "immutable": apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
}
_HARMLESS = frozenset(
    {
        apsw.SQLITE_SELECT,
        apsw.SQLITE_READ,
        apsw.SQLITE_FUNCTION,
        apsw.SQLITE_RECURSIVE,
        apsw.SQLITE_TRANSACTION,
        apsw.SQLITE_SAVEPOINT,
    }
)
_PRAGMAS = frozenset({"integrity_check", "wal_checkpoint"})
_ONLY_READ = frozenset({"application_id", "user_version"})
_GROWING = frozenset({"entries", "sessions", "terms"})


class SqliteOptions(Struct, frozen=True, kw_only=True):
    """Options of a connection. Only tests change them."""

    vfs: str | None = None
    """Name of a registered VFS; the default is SQLite's own."""
    synchronous: Literal["FULL", "NORMAL", "OFF"] = "FULL"
    """Any other value than FULL may lose acknowledged entries at a power failure."""
    exclusive: bool = False
    """Appends only, through one connection: for a VFS without shared memory."""
    page_bytes: int = 4096
    """Of a new file."""
    cache_kib: int = 2000
    """Page cache of each connection."""
    migrations: tuple[Migration, ...] = ()
    """Come after the shipped ones."""

    @property
    def all_migrations(self) -> tuple[Migration, ...]:
        """In order."""
        return shipped_migrations() + self.migrations


def connect(path: Path, mode: Mode, options: SqliteOptions, busy_seconds: float) -> apsw.Connection:
    """Open a connection. The caller must `guard` it unless it upgrades the file."""
    refuse_affected_sqlite(path, apsw.sqlite_lib_version())
    name = f"file:{quote(str(path))}?immutable=1" if mode == "immutable" else str(path)
    if mode == "create" and options.vfs is None:
        _make_private(path)
    connection = apsw.Connection(name, flags=_FLAGS[mode], vfs=options.vfs)
    try:
        connection.set_busy_timeout(int(busy_seconds * 1000))
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        # A plan is made once. Otherwise a kept statement is compiled again for values that might have a better one.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.execute(_settings(mode, options)).fetchall()  # to the last statement, not to the first row
    except apsw.Error:
        connection.close()
        raise
    return connection


def _make_private(path: Path) -> None:
    """Create a file that only its owner can read; SQLite gives its side files the same mode.

    Only a new file is opened here: closing one that SQLite has open would drop its POSIX locks.
    """
    with suppress(OSError):  # SQLite itself says why it cannot be made
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def guard(connection: apsw.Connection) -> apsw.Connection:
    """Restrict a connection to reading and appending."""
    connection.authorizer = _authorize
    return connection


def refuse_affected_sqlite(path: Path, version: str) -> None:
    """Raise if the SQLite library has the WAL-reset bug."""
    if tuple(map(int, version.split("."))) < OLDEST_SQLITE:
        raise StoreUnavailable(
            str(path),
            f"SQLite {version} can corrupt a store that two programs write to. "
            "Install 'apsw' 3.54.1 or newer, which brings its own SQLite",
        )


def _settings(mode: Mode, options: SqliteOptions) -> str:
    lines = ["PRAGMA locking_mode=EXCLUSIVE"] if options.exclusive else []
    if mode == "create":
        lines.append(f"PRAGMA page_size={options.page_bytes}")
    if mode in ("create", "write"):
        lines.append("PRAGMA journal_mode=WAL")
    lines += [
        f"PRAGMA cache_size=-{options.cache_kib}",
        f"PRAGMA synchronous={options.synchronous}",
        "PRAGMA mmap_size=0",  # a torn file would end the process instead of raising
        "PRAGMA cell_size_check=ON",
        "PRAGMA journal_size_limit=67108864",
        "SELECT 1 FROM sqlite_schema LIMIT 1",  # SQLite opens files when it has to; have it fail here, not later
    ]
    return "; ".join(lines)


def _authorize(action: int, first: str | None, second: str | None, database: str | None, source: str | None) -> int:
    if action in _HARMLESS:
        return apsw.SQLITE_OK
    if action == apsw.SQLITE_INSERT and first in _GROWING:
        return apsw.SQLITE_OK
    if action == apsw.SQLITE_PRAGMA and (first in _PRAGMAS or (first in _ONLY_READ and second is None)):
        return apsw.SQLITE_OK
    return apsw.SQLITE_DENY


MAX_READERS = 8


class _BorrowedConnection:
    """A connection of a pool for as long as a block lasts. Every prompt reads, so it is no generator."""

    __slots__ = ("_lent", "_readers")

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    def __enter__(self) -> apsw.Connection:
        self._lent = self._readers.lend()
        return self._lent[0]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._readers.take_back(*self._lent, failed=kind is not None)


class Readers:
    """A pool of at most `MAX_READERS` connections, opened when needed."""

    def __init__(self, path: Path, options: SqliteOptions, busy_seconds: float, *, read_only: bool) -> None:
        self._path = path
        self._options = options
        self._busy_seconds = busy_seconds
        self._modes: tuple[Mode, ...] = ("read only",) if read_only else ("write", "read only")
        self._idle: list[apsw.Connection] = []
        self._permits: SimpleQueue[None] = SimpleQueue()  # as a semaphore, but without Python code: every read has one
        for _ in range(MAX_READERS):
            self._permits.put(None)
        self._gate = threading.Lock()
        self._is_closed = False
        self._age = 0
        """Incremented when the file is replaced."""

    def borrow(self) -> _BorrowedConnection:
        """Borrow a connection for one query: `with readers.borrow() as connection`."""
        return _BorrowedConnection(self)

    def lend(self) -> tuple[apsw.Connection, bool, int]:
        """Hand out a connection, with what `take_back` needs; waits while all of them are in use."""
        self._permits.get()
        age = self._age  # read first: a connection to a file that is replaced meanwhile is not kept
        try:
            return *self._take(), age
        except BaseException:
            self._permits.put(None)
            raise

    def take_back(self, connection: apsw.Connection, is_kept: bool, age: int, *, failed: bool) -> None:
        """Take a connection back; close it after a failure, or if the file was replaced or the store closed."""
        try:
            if is_kept and not failed:
                with self._gate:
                    if not self._is_closed and age == self._age:
                        self._idle.append(connection)
                        return
            connection.close()
        finally:
            self._permits.put(None)

    def renew(self) -> None:
        """Drop all connections after the file was replaced by another."""
        self._let_go(is_closed=False)

    def close(self) -> None:
        """Close idle connections now, and borrowed ones when they are returned."""
        self._let_go(is_closed=True)

    def _let_go(self, *, is_closed: bool) -> None:
        with self._gate:
            self._is_closed = is_closed or self._is_closed
            self._age += 1
            idle, self._idle = self._idle, []
        for connection in idle:
            with suppress(apsw.Error):
                connection.close()

    def _take(self) -> tuple[apsw.Connection, bool]:
        with self._gate:
            if self._is_closed:
                raise StoreUnavailable(str(self._path), "the store is closed already")
            if self._idle:
                return self._idle.pop(), True
        return self._open()

    def _open(self) -> tuple[apsw.Connection, bool]:
        for mode in self._modes:
            with suppress(apsw.CantOpenError, apsw.ReadOnlyError):
                return guard(connect(self._path, mode, self._options, self._busy_seconds)), True
        # In a read-only folder SQLite cannot create the files it shares with writers. Without a log of a writer the
        # file alone is complete; such a connection is not pooled, because a writer may appear.
        log = self._path.with_name(self._path.name + "-wal")
        if log.exists() and log.stat().st_size:
            connect(self._path, self._modes[-1], self._options, self._busy_seconds)  # raises the actual error
        return guard(connect(self._path, "immutable", self._options, self._busy_seconds)), False
