"""A few connections for reading, lent out one call at a time. A file that cannot be written can still be read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from recto.errors import StoreUnavailable
from recto.stores.sqlite.connection import Mode, SqliteOptions, connect, guard

MAX_READERS = 8


class Readers:
    """At most `MAX_READERS` connections, opened when needed and kept."""

    def __init__(self, path: Path, options: SqliteOptions, busy_seconds: float, *, read_only: bool) -> None:
        self._path = path
        self._options = options
        self._busy_seconds = busy_seconds
        self._modes: tuple[Mode, ...] = ("read only",) if read_only else ("write", "read only")
        self._idle: list[apsw.Connection] = []
        self._free = threading.Semaphore(MAX_READERS)
        self._gate = threading.Lock()
        self._is_closed = False
        self._age = 0
        """How often the file was replaced."""

    @contextmanager
    def lent(self) -> Iterator[apsw.Connection]:
        """A connection for the length of one query."""
        with self._free:
            age = self._age
            connection, is_kept = self._take()
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            with self._gate:
                if is_kept and not self._is_closed and age == self._age:
                    self._idle.append(connection)
                    return
            connection.close()

    def renew(self) -> None:
        """The file was replaced by another: no connection made before is lent again."""
        self._let_go(is_closed=False)

    def close(self) -> None:
        """Closes what is idle now, and what is lent when it comes back."""
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
        # In a folder nobody may write to SQLite cannot make the files it shares with writers. Where there is no log of
        # a writer the file alone is the whole truth; such a connection is not kept, for a writer may come.
        log = self._path.with_name(self._path.name + "-wal")
        if log.exists() and log.stat().st_size:
            connect(self._path, self._modes[-1], self._options, self._busy_seconds)  # raises what stands in the way
        return guard(connect(self._path, "immutable", self._options, self._busy_seconds)), False
