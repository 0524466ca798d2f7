"""The files of a SQLite store: connections, the schema, the lock between processes, and the heads file.

Schema versions of the file: reads them, and applies migrations.

A migration is a numbered `.sql` file, carried out in one transaction together with the version it leads to, so that
a crash leaves the old version or the new one and nothing between.

Opens connections: the same settings on each, and an authorizer that permits nothing but reading and appending.

Knows SQLite's settings, not the content of the tables.

The lock between processes: a side file, because SQLite's own is polled and a busy writer would starve others.

The heads file: the head of every session, stored outside the database to detect truncated or rewritten history.

One record of 256 bytes for each session, at its number:

    slot a   crc32 | seq | first 8 bytes of SHA-256(session key) | hash of the last entry      64 bytes
    slot b   the same; the slot with the lower seq is written next, so one of them is always intact
    name     crc32 | length | the session key, cut where it is longer than fits               128 bytes

A slot is written after its commit and without fsync: after a crash it may lag behind the database, but it
is never ahead. Any of the writes since the last fsync may be missing, the one with the name too, while later ones are
there: a slot or a name of zeros was never written and is no damage.

The first record is the header. Its count of rewrites tells other processes to drop their caches.
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Literal
from urllib.parse import quote

import apsw
from msgspec import Struct

from recto.errors import StoreUnavailable
from recto.text.lazy_re import lazy_re
from recto.transcript.entries import Head

APPLICATION_ID = int.from_bytes(b"Rcto", "big")
"""Application id of the file, where `file` and other programs look for it."""

_FILE_NAME = lazy_re(r"\d{4}_\w+\.sql")
_OBJECTS = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name"


class Migration(Struct, frozen=True):
    """The migration from the previous version to `version`."""

    version: int
    sql: str


class FileVersion(Struct, frozen=True, kw_only=True):
    """The version information of a file."""

    application: int
    version: int
    min_reader: int
    is_blank: bool
    """Whether the file is empty."""

    @property
    def is_ours(self) -> bool:
        """Whether the file is empty or was made by Recto."""
        return self.application == APPLICATION_ID or (self.is_blank and self.application == self.version == 0)


@cache
def shipped_migrations() -> tuple[Migration, ...]:
    """Return the migrations of this version of Recto, in order."""
    files = Path(__file__).with_name("migrations").iterdir()
    found = [
        Migration(int(file.name[:4]), file.read_text("utf-8")) for file in files if _FILE_NAME.fullmatch(file.name)
    ]
    return tuple(sorted(found, key=lambda migration: migration.version))


def version_of(connection: apsw.Connection) -> FileVersion:
    """Read the version information of a file."""
    application, version = connection.pragma("application_id"), connection.pragma("user_version")
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    min_reader = version
    if application == APPLICATION_ID and "format" in tables:
        row = connection.execute("SELECT value FROM format WHERE name = 'min_reader'").fetchone()
        min_reader = row[0] if row and type(row[0]) is int else version
    return FileVersion(application=application, version=version, min_reader=min_reader, is_blank=not tables)


def upgrade(connection: apsw.Connection, migrations: tuple[Migration, ...], application: int = APPLICATION_ID) -> None:
    """Apply the missing migrations, each atomically."""
    for migration in migrations:
        connection.execute("BEGIN IMMEDIATE")
        try:
            if connection.pragma("user_version") < migration.version:
                connection.execute(migration.sql).fetchall()  # to its end, not to its first row
                connection.execute(f"PRAGMA user_version={migration.version}; PRAGMA application_id={application}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def objects_of(connection: apsw.Connection) -> dict[tuple[str, str], str]:
    """Return every table, index, trigger and view by type and name, with its SQL."""
    return {(kind, name): sql for kind, name, sql in connection.execute(_OBJECTS)}


@cache
def expected_objects(migrations: tuple[Migration, ...]) -> dict[tuple[str, str], str]:
    """Return what `objects_of` gives for an intact file."""
    connection = apsw.Connection(":memory:")
    upgrade(connection, migrations)
    try:
        return objects_of(connection)
    finally:
        connection.close()


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


try:
    from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
except ImportError:  # no such lock on this system: SQLite's own has to do
    LOCK_EX = LOCK_NB = LOCK_UN = 0  # type: ignore[misc]

    def flock(fd: int, operation: int, /) -> None:  # type: ignore[misc]
        """Do nothing."""


_POLL_SECONDS = 0.01


class SideLock:
    """A lock held by one writer at a time, over all processes. Not for use by two threads at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def acquire_now(self) -> bool:
        """Acquire the lock if it is free; the caller must `release` it."""
        try:
            flock(self._opened(), LOCK_EX | LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Release the lock."""
        flock(self._opened(), LOCK_UN)

    @contextmanager
    def held(self, seconds: float | None = None) -> Iterator[None]:
        """Acquire the lock: wait in line, or with a timeout poll and raise `TimeoutError`."""
        if seconds is None:
            flock(self._opened(), LOCK_EX)
        else:
            _try_for(self._opened(), seconds)
        try:
            yield
        finally:
            self.release()

    def _opened(self) -> int:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        return self._file

    def close(self) -> None:
        """Close the lock file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _try_for(file: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise TimeoutError from None
            time.sleep(_POLL_SECONDS)


RECORD = 256
_SLOT = struct.Struct(">I4xQ8s32s8x")
_NAME = struct.Struct(">IH")
_NAME_ROOM = 128 - _NAME.size
_HEADER = struct.Struct(">16sII")
_MAGIC = b"recto heads 1".ljust(16, b"\0")
_NEVER_WRITTEN = bytes(RECORD)
_NO_MARK = bytes(8)


class StoredHead(Struct, frozen=True):
    """The record of one session."""

    number: int
    name: str | None
    """The session key; None if it was too long for the record."""
    start: str
    """Start of the session key, as much as fits."""
    mark: bytes
    """Hash prefix that identifies the key even if the name is cut."""
    head: Head
    slot: int
    """Slot of this head; the other one is written next."""

    def is_of(self, session: str) -> bool:
        """Whether this record belongs to a session."""
        return self.mark == mark_of(session)


class HeadsRead(Struct, frozen=True):
    """The parsed file."""

    kept: tuple[StoredHead, ...]
    problems: tuple[str, ...]


@lru_cache(maxsize=1024)
def mark_of(session: str) -> bytes:
    """Return the hash prefix of a session key that slots store."""
    return hashlib.sha256(session.encode()).digest()[:8]


def read_heads(path: Path) -> HeadsRead:
    """Read all records, and report damage."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return HeadsRead((), (f"'{path.name}' is missing: whether the end of a session was cut off cannot be seen",))
    kept, problems = [], []
    if raw[: len(_MAGIC)] != _MAGIC:
        problems.append(f"'{path.name}' is not a file of heads")
    elif _HEADER.unpack_from(raw)[2]:
        problems.append(f"'{path.name}' was missing for a while: an end cut off before it came back is not seen")
    for number in range(1, -(-len(raw) // RECORD)):
        record = raw[number * RECORD : (number + 1) * RECORD].ljust(RECORD, b"\0")
        if record == _NEVER_WRITTEN:
            continue
        found = _read_record(number, record)
        if found is not None:
            kept.append(found)
        if found is None or not _is_whole(record):
            problems.append(f"'{path.name}' is damaged where it keeps the end of session number {number}")
    return HeadsRead(tuple(kept), tuple(problems))


class HeadsFile:
    """The heads file, opened for writing. Use it only while holding the lock between processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._rewrites = -1
        self._marks = bytearray()
        """Marks of all session numbers from 1 on, concatenated: of millions, a dictionary would be far larger."""

    def create(self, *, late: bool) -> bool:
        """Create the file if it is missing, and return whether it was. `late` records that there were entries."""
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return False
        try:
            os.pwrite(file, _HEADER.pack(_MAGIC, 0, int(late)).ljust(RECORD, b"\0"), 0)
            os.fsync(file)
        finally:
            os.close(file)
        return True

    def kept(self, number: int) -> StoredHead | None:
        """Read the record of a session number."""
        record = os.pread(self._opened(), RECORD, number * RECORD)
        return _read_record(number, record.ljust(RECORD, b"\0")) if record.strip(b"\0") else None

    def keep(self, number: int, session: str, head: Head, newest: int | None) -> int:
        """Write a head to the slot that does not contain the newest one, and return that slot."""
        slot = _slot(session, head)
        if newest is None:
            os.pwrite(self._opened(), slot.ljust(2 * _SLOT.size, b"\0") + _name(session), number * RECORD)
            return 0
        os.pwrite(self._opened(), slot, number * RECORD + (1 - newest) * _SLOT.size)
        return 1 - newest

    def keep_name(self, number: int, session: str) -> None:
        """Write the name of a record whose first write was lost."""
        os.pwrite(self._opened(), _name(session), number * RECORD + 2 * _SLOT.size)

    def drop(self, number: int) -> None:
        """Delete a record and tell other processes to drop their caches."""
        magic, rewrites, late = self._header()
        os.pwrite(self._opened(), bytes(RECORD), number * RECORD)
        os.pwrite(self._opened(), _HEADER.pack(magic, rewrites + 1, late), 0)
        os.fsync(self._opened())

    def number_of(self, session: str) -> int | None:
        """Return the number of a session, even if the database no longer has it."""
        self._refresh_marks()
        mark = mark_of(session)
        at = self._marks.rfind(mark)
        while at >= 0 and at % len(mark):  # found across two others
            at = self._marks.rfind(mark, 0, at + len(mark) - 1)
        return at // len(mark) + 1 if at >= 0 else None

    def last_number(self) -> int:
        """Return the highest session number."""
        return max(os.fstat(self._opened()).st_size - 1, 0) // RECORD

    def rewrite(self, heads: Iterable[tuple[int, str, Head]]) -> None:
        """Replace all records, in place, because other processes have the file open."""
        file = self._opened()
        rewrites = self._header()[1] + 1
        content = bytearray(_HEADER.pack(_MAGIC, rewrites, 0).ljust(RECORD, b"\0"))
        for number, session, head in heads:
            content.extend(bytes(max(0, (number + 1) * RECORD - len(content))))
            record = _slot(session, head).ljust(2 * _SLOT.size, b"\0") + _name(session)
            content[number * RECORD : (number + 1) * RECORD] = record
        os.pwrite(file, content, 0)
        os.ftruncate(file, len(content))
        os.fsync(file)

    def close(self) -> None:
        """Sync and close the file."""
        if self._file is not None:
            try:
                os.fsync(self._file)
            finally:
                os.close(self._file)
                self._file = None

    def _opened(self) -> int:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR)
        return self._file

    def _header(self) -> tuple[bytes, int, int]:
        magic, rewrites, late = _HEADER.unpack(os.pread(self._opened(), _HEADER.size, 0).ljust(_HEADER.size, b"\0"))
        return magic, rewrites, late

    def _refresh_marks(self) -> None:
        rewrites = self._header()[1]
        if rewrites != self._rewrites:
            self._rewrites, self._marks = rewrites, bytearray()
        for number in range(len(self._marks) // len(_NO_MARK) + 1, self.last_number() + 1):
            kept = self.kept(number)
            self._marks += kept.mark if kept else _NO_MARK


def _slot(session: str, head: Head) -> bytes:
    slot = _SLOT.pack(0, head.seq, mark_of(session), head.hash)
    return zlib.crc32(slot[4:]).to_bytes(4, "big") + slot[4:]


def _name(session: str) -> bytes:
    name = session.encode()
    body = len(name).to_bytes(2, "big") + name[:_NAME_ROOM]
    return (zlib.crc32(body).to_bytes(4, "big") + body).ljust(128, b"\0")


def _read_record(number: int, record: bytes) -> StoredHead | None:
    """Parse a record: the newer intact slot and the name."""
    best: tuple[int, bytes, bytes, int] | None = None
    for place in (0, 1):
        slot = record[place * _SLOT.size : (place + 1) * _SLOT.size]
        crc, seq, mark, digest = _SLOT.unpack(slot)
        if crc == zlib.crc32(slot[4:]) and seq > (best[0] if best else 0):
            best = (seq, mark, digest, place)
    if best is None:
        return None
    seq, mark, digest, place = best
    length = _NAME.unpack_from(record, 2 * _SLOT.size)[1]
    start = record[2 * _SLOT.size + _NAME.size :][: min(length, _NAME_ROOM)].decode(errors="replace")
    name = start if mark == mark_of(start) else None
    return StoredHead(number, name, start, mark, Head(seq, digest), place)


def _is_whole(record: bytes) -> bool:
    """Whether all checksums of a record are right; a slot or a name that was never written is intact."""
    slots = [record[place * _SLOT.size : (place + 1) * _SLOT.size] for place in (0, 1)]
    name = record[2 * _SLOT.size :]
    length = int.from_bytes(name[4:6], "big")
    slots_are_whole = all(
        not slot.strip(b"\0") or zlib.crc32(slot[4:]) == int.from_bytes(slot[:4], "big") for slot in slots
    )
    return slots_are_whole and (
        not name.strip(b"\0")
        or (
            zlib.crc32(name[4 : _NAME.size + min(length, _NAME_ROOM)]) == int.from_bytes(name[:4], "big")
            and not name[_NAME.size + length :].strip(b"\0")
        )
    )
