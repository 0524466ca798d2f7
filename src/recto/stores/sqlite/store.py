"""The SQLite store: opens the file and dispatches appends to the writer thread and reads to the reader connections."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import apsw

from recto.errors import StoreCorrupt, StoreMissing, StoreTooNew, StoreUnavailable
from recto.stores.sqlite import rows
from recto.stores.sqlite.connection import (
    HeadsFile,
    Readers,
    SideLock,
    SqliteOptions,
    connect,
    expected_objects,
    objects_of,
    read_heads,
    upgrade,
    version_of,
)
from recto.stores.sqlite.errors import translate, translating
from recto.stores.sqlite.rows import SqliteWriter
from recto.transcript.entries import MAX_SEQ, refuse_unstorable
from recto.transcript.protocols import Records

if TYPE_CHECKING:
    from recto.stores.sqlite.connection import FileVersion
    from recto.stores.sqlite.erasure import SqliteEraser
    from recto.transcript.entries import Draft, Entry, Head, SessionSummary


class SqliteStore:
    """Transcripts in one SQLite file that many threads and processes share. Created when first opened."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        lock_timeout: float = 30.0,
        options: SqliteOptions | None = None,
    ) -> None:
        self._location = os.fspath(path)
        self._path = Path(os.path.realpath(path))  # side files are next to the real file, not next to a symbolic link
        self._options = options or SqliteOptions()
        self._lock_timeout = lock_timeout
        self._process = os.getpid()
        self._heads_path = self._path.with_name(self._path.name + "-heads")
        self._lock_path = self._path.with_name(self._path.name + "-lock")
        with translating(self._path, lock_timeout):
            self._newer = self._opened(create)
        self._readers = Readers(self._path, self._options, lock_timeout, read_only=self._newer is not None)
        self._writer = SqliteWriter(
            self._path,
            self._options,
            lock=SideLock(self._lock_path),
            heads=HeadsFile(self._heads_path),
            lock_timeout=lock_timeout,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    is_local = True

    @property
    def location(self) -> str:
        """Where the store is, for messages: a path or a URL without the password."""
        return self._location

    def append(
        self, session: str, drafts: Sequence[Draft], *, expect: int | None = None, also: Records | None = None
    ) -> list[Entry]:
        """Append the drafts to the session, atomically. Returns once they are durable."""
        self._refuse_fork()
        refuse_unstorable(session, drafts)
        if self._newer is not None:
            raise self._newer
        return self._writer.append(session, drafts, expect, also)

    def turn(self, session: str, *, patience: float | None = None) -> AbstractContextManager[None]:
        """Do nothing: the gateway orders the threads of its process by session.

        Other processes that write to the same file are ordered by their appends only.
        """
        refuse_unstorable(session, ())
        return nullcontext()

    def head(self, session: str) -> Head:
        """Return the head of a session, empty if there is none."""
        with self._reading() as (connection, _):
            return rows.head_by_name(connection, session)

    def read(self, session: str, start: int = 1, stop: int | None = None) -> Iterator[Entry]:
        """Iterate over the entries from `start` to `stop` inclusive; holds no lock between two pages."""
        start, stop = max(start, 1), MAX_SEQ if stop is None else min(stop, MAX_SEQ)
        while start <= stop:
            with self._reading(session) as (connection, number):
                entries = rows.page(connection, session, number, start, stop) if number is not None else []
            if not entries:
                return
            start = entries[-1].seq + 1
            yield from entries
            del entries  # free the page before reading the next one

    def pick(self, session: str, seqs: Collection[int]) -> list[Entry]:
        """Return the entries with these numbers, in order, with one query; missing ones are skipped."""
        there = {seq for seq in seqs if 0 < seq <= MAX_SEQ}
        with self._reading() as (connection, _):
            return rows.picked(connection, session, there) if there else []

    def tail(self, session: str, count: int) -> list[Entry]:
        """Return the last `count` entries, oldest first."""
        with self._reading(session) as (connection, number):
            return rows.tail(connection, session, number, count) if number is not None and count > 0 else []

    def terms(self, session: str, start: int = 1, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Iterate over the rows of the word index from `start` to `stop` inclusive; holds no lock between two pages."""
        start, stop = max(start, 1), MAX_SEQ if stop is None else min(stop, MAX_SEQ)
        while start <= stop:
            with self._reading(session) as (connection, number):
                page = rows.terms(connection, number, start, stop) if number is not None else []
            if not page:
                return
            start = page[-1][0] + 1
            yield from page

    def pick_terms(self, session: str, seqs: Collection[int]) -> dict[int, bytes]:
        """Return the rows of the word index of these entries, with one query."""
        there = {seq for seq in seqs if 0 < seq <= MAX_SEQ}
        with self._reading() as (connection, _):
            return rows.picked_terms(connection, session, there) if there else {}

    def add_terms(self, session: str, entries: Sequence[Entry]) -> None:
        """Store rows of the word index for entries that are stored already. Returns once they are durable."""
        self._refuse_fork()
        refuse_unstorable(session, ())
        if self._newer is not None:
            raise self._newer
        self._writer.add_terms(session, entries)

    def lacking_terms(
        self, session: str, version: bytes, start: int = 1, stop: int | None = None, limit: int | None = None
    ) -> list[int]:
        """Return the first messages of a range without a row of the word index that begins with `version`."""
        start, stop = max(start, 1), MAX_SEQ if stop is None else min(stop, MAX_SEQ)
        with self._reading(session) as (connection, number):
            if number is None or start > stop:
                return []
            return rows.lacking_terms(connection, number, version, start, stop, -1 if limit is None else limit)

    def get(self, session: str, id: str) -> Entry | None:
        """Return the entry with an id, if it exists."""
        with self._reading(session) as (connection, number):
            return rows.by_id(connection, session, number, id) if number is not None else None

    def find(self, session: str, key: str) -> Entry | None:
        """Return the entry stored under an idempotency key, if it exists."""
        with self._reading(session) as (connection, number):
            return rows.by_key(connection, session, number, key) if number is not None else None

    def sessions(self, after: str = "", limit: int | None = None) -> list[SessionSummary]:
        """List sessions by key, starting after `after`."""
        with self._reading() as (connection, _):
            return rows.summaries(connection, after, -1 if limit is None else max(limit, 0))

    def title_entries(self, sessions: Sequence[str]) -> list[Entry]:
        """Return the entries that these sessions are titled by."""
        with self._reading() as (connection, _):
            return [entry for session in dict.fromkeys(sessions) for entry in rows.title_entries(connection, session)]

    def kept_heads(self) -> Mapping[str, Head]:
        """Return the heads stored in the heads file, including sessions that are no longer in the database."""
        found: dict[str, Head] = {}
        with self._reading() as (connection, _):
            for kept in read_heads(self._heads_path).kept:
                name = kept.name
                if name is None:  # too long for the record: the database has it, if the session still exists
                    name = rows.name_of(connection, kept.number)
                    name = name if name is not None and kept.is_of(name) else f"{kept.start}…"
                found[name if name not in found else f"{name} (number {kept.number})"] = kept.head
        return found

    def accept_heads(self) -> None:
        """Accept the transcript as it is: rewrite the separately stored heads from it."""
        if self._newer is not None:
            raise self._newer
        lock, heads = SideLock(self._lock_path), HeadsFile(self._heads_path)
        try:
            with self._reading() as (connection, _), lock.held(self._lock_timeout):
                heads.create(late=False)
                heads.rewrite(rows.all_heads(connection))
        finally:
            heads.close()
            lock.close()

    def erase(self, session: str, *, expect: int | None = None) -> Head:
        """Delete a session permanently, with its record in the heads file, and return its last head."""
        with translating(self._path, self._lock_timeout):
            return self._eraser().erase(session, expect)

    def scrub(self, sessions: Sequence[str]) -> None:
        """Rewrite the file, so that nothing of erased sessions is left in unused space."""
        with translating(self._path, self._lock_timeout):
            self._eraser().scrub()

    def damage(self) -> list[str]:
        """Report what SQLite finds damaged, missing triggers, and problems of the heads file."""
        problems: list[str] = []
        try:
            with self._reading() as (connection, _):
                for (line,) in connection.execute("PRAGMA integrity_check(20)"):
                    if line != "ok":
                        problems.append(f"SQLite: {line}")
                problems += [f"session number {lost} has lost its name" for lost in rows.lost_numbers(connection)]
                if self._newer is None:
                    problems += self._changed_guards(connection)
        except StoreCorrupt as error:
            problems.append(f"SQLite: {error.detail}")
        heads = read_heads(self._heads_path)
        if heads.problems:  # perhaps another process was writing it just now
            heads = read_heads(self._heads_path)
        return [*problems, *heads.problems]

    def close(self) -> None:
        """Write waiting jobs and close. No other call may follow."""
        if os.getpid() != self._process:
            return  # these files belong to the parent process; closing them here would drop its locks
        self._writer.close()
        self._readers.close()

    def _eraser(self) -> SqliteEraser:
        from recto.stores.sqlite.erasure import SqliteEraser  # noqa: PLC0415  # hardly ever

        self._refuse_fork()
        if self._newer is not None:
            raise self._newer
        return SqliteEraser(
            path=self._path,
            lock=self._lock_path,
            heads=self._heads_path,
            options=self._options,
            patience=self._lock_timeout,
        )

    @contextmanager
    def _reading(self, session: str | None = None) -> Iterator[tuple[apsw.Connection, int | None]]:
        """Borrow a connection, with the number of the session if it exists."""
        self._refuse_fork()
        try:
            with self._readers.borrow() as connection:
                yield connection, rows.number_of(connection, session) if session is not None else None
        except (apsw.Error, OSError, UnicodeDecodeError) as error:
            raise translate(error, self._path, self._lock_timeout) from error

    def _opened(self, create: bool) -> StoreTooNew | None:
        """Create or upgrade the file if needed. Returns an error to raise on writes if a newer Recto made the file."""
        known = self._options.all_migrations[-1].version
        if not create and not self._path.exists():
            raise StoreMissing(self._location)
        if not self._path.exists() or not self._path.stat().st_size:
            self._upgrade()
            return None
        found = self._version()
        if not found.is_ours or (found.is_blank and not create):
            raise StoreUnavailable(self._location, "a database of another program, not a Recto store; left as it is")
        if found.version > known:
            newer = StoreTooNew(self._location, found.version, known)
            if found.min_reader > known:
                raise newer
            return newer
        if found.version < known:
            self._upgrade()
        return None

    def _version(self) -> FileVersion:
        """Read the version without writing, unless an upgrade was interrupted: then SQLite rolls it back first."""
        half_done = self._path.with_name(self._path.name + "-journal").exists()
        read_only = not self._options.exclusive and not half_done  # an exclusive lock needs the right to write
        readers = Readers(self._path, self._options, self._lock_timeout, read_only=read_only)
        try:
            with readers.borrow() as connection:
                return version_of(connection)
        finally:
            readers.close()

    def _upgrade(self) -> None:
        lock = SideLock(self._lock_path)
        try:
            with lock.held(self._lock_timeout):
                if not self._path.exists() or not self._path.stat().st_size or self._version().is_blank:
                    HeadsFile(self._heads_path).create(late=False)
                connection = connect(self._path, "create", self._options, self._lock_timeout)
                try:
                    upgrade(connection, self._options.all_migrations)
                finally:
                    connection.close()
            _sync_folder(self._path.parent)
        finally:
            lock.close()

    def _changed_guards(self, connection: apsw.Connection) -> list[str]:
        expected, found = expected_objects(self._options.all_migrations), objects_of(connection)
        gone = [f"the {kind} '{name}' is missing" for kind, name in expected if (kind, name) not in found]
        other = [
            f"the {kind} '{name}' was changed or added"
            for (kind, name), sql in found.items()
            if expected.get((kind, name)) != sql
        ]
        return [*gone, *other]

    def _refuse_fork(self) -> None:
        if os.getpid() != self._process:
            detail = "the store was opened before this process was forked; open it again in this process"
            raise StoreUnavailable(self._location, detail)


def _sync_folder(folder: Path) -> None:
    """Sync the directory, so that a new file survives a power loss. Systems that cannot do this do not need it."""
    with suppress(OSError):
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
