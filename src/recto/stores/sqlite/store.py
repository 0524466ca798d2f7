"""The SQLite store: opens the file, hands appends to the writer and reads to the readers."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import apsw

from recto.errors import StoreCorrupt, StoreTooNew, StoreUnavailable
from recto.stores.sqlite import queries
from recto.stores.sqlite.connection import Readers, SqliteOptions, connect
from recto.stores.sqlite.errors import translating
from recto.stores.sqlite.heads_file import HeadsFile, read_heads
from recto.stores.sqlite.lock import SideLock
from recto.stores.sqlite.schema import FileVersion, expected_objects, objects_of, upgrade, version_of
from recto.stores.sqlite.writer import SqliteWriter
from recto.transcript.entries import MAX_SEQ, Draft, Entry, Head, SessionSummary, refuse_unstorable
from recto.transcript.hash_chain import EMPTY_HEAD

if TYPE_CHECKING:
    from recto.stores.sqlite.erasure import SqliteEraser


class SqliteStore:
    """Transcripts in one file that many threads and processes may use at once. Made at its first opening."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        lock_timeout: float = 30.0,
        options: SqliteOptions | None = None,
    ) -> None:
        self._location = os.fspath(path)
        self._path = Path(os.path.realpath(path))  # the neighbours are found also through a link
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

    @property
    def location(self) -> str:
        """Where it is, as a person would write it."""
        return self._location

    def append(self, session: str, drafts: Sequence[Draft], *, expect: int | None = None) -> list[Entry]:
        """Stores the drafts after the last entry, all or none; returns when they are durable."""
        self._refuse_fork()
        refuse_unstorable(session, drafts)
        if self._newer is not None:
            raise self._newer
        return self._writer.append(session, drafts, expect)

    def turn(self, session: str, *, patience: float | None = None) -> AbstractContextManager[None]:
        """A turn that waits for nobody: the gateway's lanes order the threads of its process.

        Other processes that write to the same file are ordered by their appends alone.
        """
        refuse_unstorable(session, ())
        return nullcontext()

    def head(self, session: str) -> Head:
        """The end of a session; `EMPTY` where there is none."""
        with self._reading(session) as (connection, number):
            return queries.head_of(connection, number) if number is not None else EMPTY_HEAD

    def read(self, session: str, start: int = 1, stop: int | None = None) -> Iterator[Entry]:
        """Entries from `start` up to and including `stop`, in order; no lock is held between two pages."""
        start, stop = max(start, 1), MAX_SEQ if stop is None else min(stop, MAX_SEQ)
        while start <= stop:
            with self._reading(session) as (connection, number):
                entries = queries.page(connection, session, number, start, stop) if number is not None else []
            if not entries:
                return
            start = entries[-1].seq + 1
            yield from entries
            del entries  # before the next page is read, not after

    def pick(self, session: str, seqs: Collection[int]) -> list[Entry]:
        """The entries of these numbers that there are, in order; asked for together."""
        there = {seq for seq in seqs if 0 < seq <= MAX_SEQ}
        with self._reading(session) as (connection, number):
            return queries.picked(connection, session, number, there) if number is not None and there else []

    def tail(self, session: str, count: int) -> list[Entry]:
        """The last entries, oldest first."""
        with self._reading(session) as (connection, number):
            return queries.tail(connection, session, number, count) if number is not None and count > 0 else []

    def get(self, session: str, id: str) -> Entry | None:
        """The entry with an id."""
        with self._reading(session) as (connection, number):
            return queries.by_id(connection, session, number, id) if number is not None else None

    def find(self, session: str, key: str) -> Entry | None:
        """The entry stored under an idempotency key."""
        with self._reading(session) as (connection, number):
            return queries.by_key(connection, session, number, key) if number is not None else None

    def sessions(self, after: str = "", limit: int | None = None) -> list[SessionSummary]:
        """Sessions by key, from the first after `after`."""
        with self._reading() as (connection, _):
            return queries.summaries(connection, after, -1 if limit is None else max(limit, 0))

    def kept_heads(self) -> Mapping[str, Head]:
        """The heads kept in the neighbouring file, also of sessions that are no longer in this one."""
        found: dict[str, Head] = {}
        with self._reading() as (connection, _):
            for kept in read_heads(self._heads_path).kept:
                name = kept.name
                if name is None:  # too long to keep whole: the database knows it, if it is still there
                    name = queries.name_of(connection, kept.number)
                    name = name if name is not None and kept.is_of(name) else f"{kept.start}…"
                found[name if name not in found else f"{name} (number {kept.number})"] = kept.head
        return found

    def accept_heads(self) -> None:
        """Takes the transcript as it stands for true: the heads kept outside are written anew."""
        if self._newer is not None:
            raise self._newer
        lock, heads = SideLock(self._lock_path), HeadsFile(self._heads_path)
        try:
            with self._reading() as (connection, _), lock.held(self._lock_timeout):
                heads.create(late=False)
                heads.rewrite(queries.all_heads(connection))
        finally:
            heads.close()
            lock.close()

    def erase(self, session: str, *, expect: int | None = None) -> Head:
        """Removes a whole session for good, with its head outside; gives back where it ended."""
        with translating(self._path, self._lock_timeout):
            return self._eraser().erase(session, expect)

    def scrub(self, sessions: Sequence[str]) -> None:
        """Leaves nothing of erased sessions in the gaps of the file: all of it is written anew."""
        with translating(self._path, self._lock_timeout):
            self._eraser().scrub()

    def damage(self) -> list[str]:
        """What SQLite finds wrong, which guards are gone, and what is wrong with the heads kept outside."""
        problems: list[str] = []
        try:
            with self._reading() as (connection, _):
                for (line,) in connection.execute("PRAGMA integrity_check(20)"):
                    if line != "ok":
                        problems.append(f"SQLite: {line}")
                problems += [f"session number {lost} has lost its name" for lost in queries.lost_numbers(connection)]
                if self._newer is None:
                    problems += self._changed_guards(connection)
        except StoreCorrupt as error:
            problems.append(f"SQLite: {error.detail}")
        heads = read_heads(self._heads_path)
        if heads.problems:  # perhaps another process was writing it just now
            heads = read_heads(self._heads_path)
        return [*problems, *heads.problems]

    def close(self) -> None:
        """Writes what is waiting; no other call may follow."""
        if os.getpid() != self._process:
            return  # the parent's files; closing them here would let go of what it holds
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
        """A connection, and the number of the session where there is one."""
        self._refuse_fork()
        with translating(self._path, self._lock_timeout), self._readers.lent() as connection:
            yield connection, queries.number_of(connection, session) if session is not None else None

    def _opened(self, create: bool) -> StoreTooNew | None:
        """Makes or upgrades the file where needed. Where it is from a newer Recto, why it can only be read."""
        known = self._options.all_migrations[-1].version
        if not create and not self._path.exists():
            raise StoreUnavailable(self._location, "there is no store here; check the name")
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
        """Looks without touching, unless a making or an upgrade was cut off: then SQLite first undoes its half."""
        half_done = self._path.with_name(self._path.name + "-journal").exists()
        read_only = not self._options.exclusive and not half_done  # an exclusive lock needs the right to write
        readers = Readers(self._path, self._options, self._lock_timeout, read_only=read_only)
        try:
            with readers.lent() as connection:
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
    """So that a new file is found after a power loss. Some systems cannot; there it is not needed."""
    with suppress(OSError):
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
