"""One way to open the file: the same settings on every connection, and no right to do more than append.

It knows SQLite's switches, not what is in the tables.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import apsw

from recto.errors import StoreUnavailable
from recto.stores.sqlite.schema import Migration, shipped_migrations

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
_GROWING = frozenset({"entries", "sessions"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteOptions:
    """What only tests change."""

    vfs: str | None = None
    """The name of a registered VFS; SQLite's own where there is none."""
    synchronous: Literal["FULL", "NORMAL", "OFF"] = "FULL"
    """Anything but FULL loses acknowledged entries when the power fails."""
    exclusive: bool = False
    """Appends only, through one connection: for a VFS without shared memory."""
    page_bytes: int = 4096
    """Of a new file."""
    cache_kib: int = 2000
    """What each connection keeps of the file in memory."""
    migrations: tuple[Migration, ...] = ()
    """Come after the shipped ones."""

    @property
    def all_migrations(self) -> tuple[Migration, ...]:
        """In order."""
        return shipped_migrations() + self.migrations


def connect(path: Path, mode: Mode, options: SqliteOptions, busy_seconds: float) -> apsw.Connection:
    """An open connection. `guard` is still to be called on it, unless it is to upgrade the file."""
    refuse_affected_sqlite(path, apsw.sqlite_lib_version())
    name = f"file:{quote(str(path))}?immutable=1" if mode == "immutable" else str(path)
    if mode == "create" and options.vfs is None:
        _make_private(path)
    connection = apsw.Connection(name, flags=_FLAGS[mode], vfs=options.vfs)
    try:
        connection.set_busy_timeout(int(busy_seconds * 1000))
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.execute(_settings(mode, options)).fetchall()  # to the last statement, not to the first row
    except apsw.Error:
        connection.close()
        raise
    return connection


def _make_private(path: Path) -> None:
    """A new file is its owner's alone; what SQLite makes beside it gets the same rights.

    Only a file that is not there yet is opened here: closing one that SQLite has open would drop its locks.
    """
    with suppress(OSError):  # SQLite itself says why it cannot be made
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def guard(connection: apsw.Connection) -> apsw.Connection:
    """From here on the connection can read and append, nothing else."""
    connection.authorizer = _authorize
    return connection


def refuse_affected_sqlite(path: Path, version: str) -> None:
    """Raises where the library has the WAL-reset bug."""
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
