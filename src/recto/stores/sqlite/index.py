"""The recall index in one SQLite file next to the transcript. Many threads and processes may use it at once.

Rows are opaque bytes here. Nothing is opened before it is needed, so that a damaged file can be set aside by the object
that detected the damage. The text of a statement never varies, so that SQLite caches it.
"""

from __future__ import annotations

import glob
import json
import os
import secrets
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

from recto.errors import IndexCorrupt, IndexFailed, IndexUnavailable, StoreError, StoreLocked
from recto.recall.index.rows import (
    CoveredRange,
    IndexRow,
    LaneSize,
    LaneSnapshot,
    SealedRow,
    join_ranges,
    overlaps,
    uncovered_rows,
)
from recto.stores._index_errors import to_index_error
from recto.stores.sqlite.connection import (
    Migration,
    Readers,
    SideLock,
    SqliteOptions,
    connect,
    expected_objects,
    objects_of,
    upgrade,
    version_of,
)
from recto.stores.sqlite.erasure import rewrite_file
from recto.stores.sqlite.errors import translate
from recto.transcript.entries import session_key

if TYPE_CHECKING:
    from recto.stores.sqlite.connection import FileVersion


_SHELF = "SELECT shelf, generation FROM shelves WHERE session = ? AND lane = ?"
_SHELVES = "SELECT shelf FROM shelves WHERE session = ? AND lane = coalesce(?, lane)"
_ADD_SHELF = "INSERT INTO shelves(session, lane, generation) VALUES (?, ?, 0)"
_DROP_SHELF = "DELETE FROM shelves WHERE shelf = ?"
_COVERED = "SELECT first, last, hash FROM covered WHERE shelf = ? ORDER BY first"
_COVERED_UP_TO = "SELECT first, last, hash FROM covered WHERE shelf = ? AND first <= ? ORDER BY first DESC"
_ADD_COVERED = "INSERT INTO covered VALUES (?, ?, ?, ?)"
_DROP_COVERED = "DELETE FROM covered WHERE shelf = ? AND first = ?"
_FRESH = "SELECT seq, data FROM fresh WHERE shelf = ? ORDER BY seq"
_IS_FRESH = "SELECT count(*) FROM fresh WHERE shelf = ? AND seq IN (SELECT value FROM json_each(?))"
_ADD_FRESH = "INSERT INTO fresh VALUES (?, ?, ?)"
_DROP_FRESH = "DELETE FROM fresh WHERE shelf = ? AND seq = ?"
_SEALED = """
SELECT part, first, data FROM sealed WHERE shelf = ? AND part IN (SELECT value FROM json_each(?)) ORDER BY part, first
"""
_IS_SEALED = """
SELECT count(*) FROM json_each(?) AS j
CROSS JOIN sealed AS s ON s.shelf = ? AND s.part = j.value ->> 0 AND s.first = j.value ->> 1
"""
_ADD_SEALED = "INSERT OR REPLACE INTO sealed(shelf, part, first, data) VALUES (?, ?, ?, ?)"
_DROP_SEALED = "DELETE FROM sealed WHERE shelf = ? AND part = ? AND first = ?"
_NEXT_GENERATION = "UPDATE shelves SET generation = ? WHERE shelf = ?"
_SESSIONS = "SELECT DISTINCT session FROM shelves WHERE session >= ? ORDER BY session"
_LANE_NAMES = "SELECT DISTINCT lane FROM shelves ORDER BY lane"
_LANES = """
SELECT lane, count(*), sum((SELECT coalesce(sum(last - first + 1), 0) FROM covered AS c WHERE c.shelf = s.shelf)),
  sum((SELECT coalesce(sum(length(data)), 0) FROM fresh AS f WHERE f.shelf = s.shelf)
    + (SELECT coalesce(sum(length(data)), 0) FROM sealed AS p WHERE p.shelf = s.shelf))
FROM shelves AS s GROUP BY lane ORDER BY lane
"""
_UNCOVERED = """
SELECT count(*) FROM fresh AS f
WHERE NOT EXISTS (SELECT 1 FROM covered AS c WHERE c.shelf = f.shelf AND f.seq BETWEEN c.first AND c.last)
"""
_FORGET = tuple(f"DELETE FROM {table} WHERE shelf = ?" for table in ("fresh", "sealed", "covered"))  # noqa: S608

NOTHING = LaneSnapshot(0, (), ())


def shelf_of(connection: apsw.Connection, session: str, lane: str) -> tuple[int, int] | None:
    """Return the number of a lane of a session, and its generation."""
    found: tuple[int, int] | None = connection.execute(_SHELF, (session, lane)).fetchone()
    return found


def covered(connection: apsw.Connection, shelf: int) -> list[CoveredRange]:
    """Return the covered ranges."""
    return [CoveredRange(*row) for row in connection.execute(_COVERED, (shelf,))]


def put(connection: apsw.Connection, session: str, lane: str, rows: Sequence[IndexRow], covers: CoveredRange) -> None:
    """Add fresh rows and extend the covered ranges. The caller opens the transaction."""
    known = shelf_of(connection, session, lane)
    near = _near(connection, known[0], covers) if known else []
    new = uncovered_rows(rows, covers, near)
    together = join_ranges([*near, covers])
    if together == near:
        return
    shelf = known[0] if known else _add_shelf(connection, session, lane)
    connection.executemany(_ADD_FRESH, [(shelf, row.seq, row.data) for row in new])
    _replace_ranges(connection, shelf, near, together)


class FreshRowCache:
    """Cache of the fresh rows a connection read last, valid until the next write: a query reads them many times."""

    _MOST_SHELVES = 16

    def __init__(self) -> None:
        self._version = -1
        self._fresh: dict[int, list[IndexRow]] = {}

    def fresh(self, connection: apsw.Connection, shelf: int) -> list[IndexRow]:
        """Return the fresh rows. The caller must have read something in its transaction already."""
        version = connection.data_version()
        if version != self._version or len(self._fresh) >= self._MOST_SHELVES:
            self._version = version
            self._fresh.clear()
        if shelf not in self._fresh:
            self._fresh[shelf] = list(map(IndexRow._make, connection.execute(_FRESH, (shelf,))))
        return self._fresh[shelf]


def snapshot(
    connection: apsw.Connection, seen: FreshRowCache, session: str, lane: str, parts: Sequence[int]
) -> LaneSnapshot:
    """Read a snapshot of a lane. The caller opens the transaction."""
    known = shelf_of(connection, session, lane)
    if known is None:
        return NOTHING
    shelf, generation = known
    fresh = seen.fresh(connection, shelf)
    part_list = f"[{','.join(map(str, set(parts)))}]"
    sealed = list(map(SealedRow._make, connection.execute(_SEALED, (shelf, part_list)))) if parts else []
    return LaneSnapshot(generation, fresh, sealed, covered(connection, shelf))


def seal(
    connection: apsw.Connection,
    session: str,
    lane: str,
    seqs: Sequence[int],
    rows: Sequence[SealedRow],
    merged: Sequence[tuple[int, int]],
    covers: CoveredRange | None,
) -> bool:
    """Replace rows by sealed ones; False if one of them is gone, or an entry was indexed in the meantime.

    The caller opens the transaction.
    """
    known = shelf_of(connection, session, lane)
    shelf = known[0] if known else 0
    near = _near(connection, shelf, covers) if covers is not None else []
    fresh, old = sorted(set(seqs)), sorted(set(merged))
    there = connection.execute(_IS_FRESH, (shelf, json.dumps(fresh))).get
    there += connection.execute(_IS_SEALED, (json.dumps(old), shelf)).get
    if there != len(fresh) + len(old) or (covers is None and known is None):
        return False
    if covers is not None:
        if overlaps(near, covers):
            return False
        shelf = shelf or _add_shelf(connection, session, lane)
        _replace_ranges(connection, shelf, near, join_ranges([*near, covers]))
    connection.executemany(_DROP_FRESH, [(shelf, seq) for seq in fresh])
    connection.executemany(_DROP_SEALED, [(shelf, part, first) for part, first in old])
    ordered = sorted(rows)
    connection.executemany(_ADD_SEALED, [(shelf, row.part, row.first, row.data) for row in ordered])
    connection.execute(_NEXT_GENERATION, (1 + secrets.randbits(61), shelf))
    return True


def _add_shelf(connection: apsw.Connection, session: str, lane: str) -> int:
    connection.execute(_ADD_SHELF, (session, lane))
    return connection.last_insert_rowid()


def _replace_ranges(
    connection: apsw.Connection, shelf: int, old: Sequence[CoveredRange], new: Sequence[CoveredRange]
) -> None:
    connection.executemany(_DROP_COVERED, [(shelf, one.first) for one in old])
    connection.executemany(_ADD_COVERED, [(shelf, one.first, one.last, one.hash) for one in new])


def sessions(connection: apsw.Connection, prefix: str) -> list[str]:
    """Return the sessions with a prefix: a range of the index, since SQLite orders text as Python does."""
    found = []
    for (session,) in connection.execute(_SESSIONS, (prefix,)):
        if not session.startswith(prefix):
            break
        found.append(session)
    return found


def forget(connection: apsw.Connection, session: str, lane: str | None) -> None:
    """Delete a session or one of its lanes. The caller opens the transaction."""
    for (shelf,) in connection.execute(_SHELVES, (session, lane)).fetchall():
        for statement in (*_FORGET, _DROP_SHELF):
            connection.execute(statement, (shelf,))


def lane_names(connection: apsw.Connection) -> list[str]:
    """Return the names of all lanes, in order."""
    return [lane for (lane,) in connection.execute(_LANE_NAMES)]


def lanes(connection: apsw.Connection) -> list[LaneSize]:
    """Return the size of every lane."""
    return [
        LaneSize(lane=lane, sessions=count, entries=entries, bytes=size)
        for lane, count, entries, size in connection.execute(_LANES)
    ]


def uncovered(connection: apsw.Connection) -> int:
    """Count the rows outside the covered ranges."""
    count: int = connection.execute(_UNCOVERED).get
    return count


def _near(connection: apsw.Connection, shelf: int, covers: CoveredRange) -> list[CoveredRange]:
    """Return the ranges that overlap or touch another one, in order."""
    found: list[CoveredRange] = []
    for row in connection.execute(_COVERED_UP_TO, (shelf, covers.last + 1)):
        one = CoveredRange(*row)
        if one.last < covers.first - 1:
            break
        found.append(one)
    return found[::-1]


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
        self._seen: WeakKeyDictionary[apsw.Connection, FreshRowCache] = WeakKeyDictionary()

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
            known = shelf_of(connection, session, lane)
            return covered(connection, known[0]) if known else []

    def put(self, session: str, lane: str, rows: Sequence[IndexRow], covers: CoveredRange) -> None:
        """Add fresh rows and mark `covers` as indexed, atomically. Returns once both are durable."""
        session_key(session)
        with self._writing() as connection:
            put(connection, session, lane, rows, covers)

    def snapshot(self, session: str, lane: str, parts: Sequence[int] = ()) -> LaneSnapshot:
        """Read the fresh rows and the sealed rows of these parts, consistently."""
        with self._reading() as connection:
            return snapshot(connection, self._seen_by(connection), session, lane, parts)

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
            return seal(connection, session, lane, seqs, rows, merged, covers)

    def sessions(self, prefix: str = "") -> list[str]:
        """Return the keys of all sessions with rows whose key starts with `prefix`."""
        with self._reading() as connection:
            return sessions(connection, prefix)

    def forget(self, session: str, lane: str | None = None) -> None:
        """Delete a session, or one of its lanes, so that it is indexed again."""
        with self._writing() as connection:
            forget(connection, session, lane)

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
            return lane_names(connection)

    def lanes(self) -> list[LaneSize]:
        """Return the size of every lane, for display."""
        with self._reading() as connection:
            return lanes(connection)

    def damage(self) -> list[str]:
        """Report what SQLite finds damaged, changed schema objects, and rows outside the covered ranges."""
        try:
            with self._reading() as connection:
                problems = [f"SQLite: {line}" for (line,) in connection.execute("PRAGMA integrity_check(20)")]
                problems = [problem for problem in problems if problem != "SQLite: ok"]
                if objects_of(connection) != expected_objects(_schema()):
                    problems.append("a table was changed, added or is missing")
                elif count := uncovered(connection):
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

    def _seen_by(self, connection: apsw.Connection) -> FreshRowCache:
        with self._opening:
            return self._seen.setdefault(connection, FreshRowCache())

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
