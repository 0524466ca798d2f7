"""Writes appends. A caller that finds no other writer commits by itself; all others queue jobs for the writer thread.

All jobs waiting at the same time are committed together (group commit): a commit costs an fsync, which is far more than
an insert, so the throughput grows with the number of callers. The order of a group is: lock, begin, plan, insert,
commit, store the heads, answer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import apsw
from msgspec import Struct, field

from recto.errors import AppendConflict, KeyReused, RectoError, StoreCorrupt, StoreLocked, StoreUnavailable, TailCut
from recto.stores.sqlite import queries
from recto.stores.sqlite.connection import connect, guard
from recto.stores.sqlite.errors import is_unsynced, translate
from recto.transcript.entries import MAX_SEQ, Entry, Head
from recto.transcript.hash_chain import EMPTY_HEAD, already_stored, link_entries
from recto.transcript.protocols import Records

if TYPE_CHECKING:
    from concurrent.futures import Future

    from recto.stores.sqlite.connection import SqliteOptions
    from recto.stores.sqlite.heads_file import HeadsFile
    from recto.stores.sqlite.lock import SideLock
    from recto.transcript.entries import Draft

_MAX_TIPS = 1000
MAX_GROUP_JOBS = 1000
MAX_GROUP_BYTES = 32 * 2**20
"""Limits of one group; further jobs wait for the next."""

_BUSY_SECONDS = 5.0
_Outcome = list[Entry] | RectoError

_log = logging.getLogger("recto.store")


class _Job(Struct, frozen=True):
    session: str
    drafts: Sequence[Draft]
    expect: int | None
    terms: Sequence[Entry] = ()
    """Stored entries to which rows of the word index are added."""
    also: Records | None = None


class _WaitingJob(Struct, frozen=True):
    """A job for the writer thread."""

    job: _Job
    answer: Future[list[Entry]]


def _new_answer() -> Future[list[Entry]]:
    from concurrent.futures import Future  # noqa: PLC0415  # start-up: opening a store appends nothing

    return Future()


class _Tip(Struct):
    """The head of a session as it will be once the transaction is committed."""

    number: int
    head: Head
    slot: int | None
    """Slot of the newest head in the heads file; None if there is none."""
    is_new: bool
    added: dict[str, Entry] = field(default_factory=dict)
    """What this transaction has added, by idempotency key."""


class SqliteWriter:
    """Appends groups of jobs, one after the other. Its thread starts with the first job that has to wait."""

    def __init__(
        self, path: Path, options: SqliteOptions, lock: SideLock, heads: HeadsFile, lock_timeout: float
    ) -> None:
        self._path = path
        self._options = options
        self._lock = lock
        self._heads = heads
        self._lock_timeout = lock_timeout
        self._busy_milliseconds = int(min(_BUSY_SECONDS, lock_timeout) * 1000)
        self._queue: SimpleQueue[_WaitingJob | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._turn = threading.Lock()
        """Held by the thread that writes: the writer thread, or a caller."""
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._connection: apsw.Connection | None = None
        self._is_unsynced = False
        self._tips: dict[str, _Tip] = {}
        """Heads of recently written sessions; valid as long as the database is at `_tips_version`."""
        self._tips_version = -1

    def append(
        self, session: str, drafts: Sequence[Draft], expect: int | None, also: Records | None = None
    ) -> list[Entry]:
        """Queue an append and wait until it is durable; returns the stored entries."""
        return self._submit(_Job(session, drafts, expect, also=also))

    def add_terms(self, session: str, entries: Sequence[Entry]) -> None:
        """Add rows of the word index to stored entries, and wait until they are durable."""
        self._submit(_Job(session, (), None, entries))

    def _submit(self, job: _Job) -> list[Entry]:
        outcome = self._write_now(job)
        if isinstance(outcome, RectoError):
            raise outcome
        return self._wait_for(job) if outcome is None else outcome

    def _write_now(self, job: _Job) -> _Outcome | None:
        """Write a job on the caller's thread; None, without changes, if anybody else is writing or waiting to."""
        if self._is_closed or not self._queue.empty() or not self._turn.acquire(blocking=False):
            return None
        try:
            if self._is_closed or not self._acquire_lock():
                return None
            try:
                connection = self._begin_now()
                return None if connection is None else self._transact(connection, [job])[0]
            finally:
                self._lock.release()
        except BaseException as error:
            self._disconnect(error)
            if isinstance(error, Exception):
                return self._to_error(error)
            raise  # the caller was interrupted: what is not committed is rolled back
        finally:
            self._turn.release()

    def _acquire_lock(self) -> bool:
        try:
            return self._lock.acquire_now()
        except OSError:
            return False  # the writer thread finds out why

    def _begin_now(self) -> apsw.Connection | None:
        """Open a transaction; None if a program that does not know our lock is writing."""
        connection = self._connect()
        connection.set_busy_timeout(0)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            return None
        finally:
            connection.set_busy_timeout(self._busy_milliseconds)
        return connection

    def _wait_for(self, job: _Job) -> list[Entry]:
        answer = _new_answer()
        with self._gate:
            if self._is_closed:
                raise StoreUnavailable(str(self._path), "the store is closed already")
            self._queue.put(_WaitingJob(job, answer))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="recto writer", daemon=True)
                self._thread.start()
        try:
            return answer.result(self._lock_timeout)
        except TimeoutError:
            if answer.cancel():  # still queued: certainly nothing is written
                raise StoreLocked(str(self._path), self._lock_timeout) from None
            return answer.result()
        except BaseException:  # the caller was interrupted; a job that is still queued is not written
            answer.cancel()
            raise

    def close(self) -> None:
        """Write the waiting jobs, then stop the thread."""
        with self._gate:
            self._is_closed = True
            self._queue.put(None)
        if self._thread is not None:
            # If another program holds the lock, callers have timed out by then; the thread ends when it gets the lock.
            self._thread.join(self._lock_timeout + 1)
        else:
            with self._turn:
                self._close_files()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            group, is_last = self._next_group()
            if group:
                with self._turn:
                    self._process_group(group)
        with self._turn:
            self._close_files()

    def _close_files(self) -> None:
        self._disconnect()
        with suppress(OSError):
            self._heads.close()
        self._lock.close()

    def _next_group(self) -> tuple[list[_WaitingJob], bool]:
        """Return the waiting jobs, at least one, and whether the thread should stop after them."""
        group: list[_WaitingJob] = []
        size = 0
        item = self._queue.get()
        while item is not None:
            group.append(item)
            size += sum(len(draft.content) + len(draft.terms) for draft in item.job.drafts)
            size += sum(len(entry.terms) for entry in item.job.terms)
            if len(group) >= MAX_GROUP_JOBS or size >= MAX_GROUP_BYTES:
                return group, False
            try:
                item = self._queue.get_nowait()
            except Empty:
                return group, False
        return group, True

    def _process_group(self, group: list[_WaitingJob]) -> None:
        claimed: list[_WaitingJob] | None = None
        try:
            with self._lock.held():
                connection = self._begin(group)
                claimed = [waiting for waiting in group if waiting.answer.set_running_or_notify_cancel()]
                outcomes = self._transact(connection, [waiting.job for waiting in claimed])
        except Exception as error:  # noqa: BLE001  # whatever it is, callers are waiting for an outcome
            self._disconnect(error)
            if claimed is None:
                claimed = [waiting for waiting in group if waiting.answer.set_running_or_notify_cancel()]
            outcomes = [self._to_error(error)] * len(claimed)
        for waiting, outcome in zip(claimed, outcomes, strict=True):
            if isinstance(outcome, RectoError):
                waiting.answer.set_exception(outcome)
            else:
                waiting.answer.set_result(outcome)

    def _begin(self, group: list[_WaitingJob]) -> apsw.Connection:
        """Open a transaction; retries as long as a caller is waiting."""
        connection = self._connect()
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return connection
            except apsw.BusyError:  # a program that does not know our lock is writing
                if all(waiting.answer.cancelled() for waiting in group):
                    raise

    def _transact(self, connection: apsw.Connection, jobs: list[_Job]) -> list[_Outcome]:
        """Write all jobs in one transaction; if one of them fails before the commit, each in its own."""
        try:
            outcomes, tips = self._write(connection, jobs)
        except (apsw.Error, UnicodeDecodeError) as error:
            self._roll_back(error)
            return [self._job_error(jobs[0], error)] if len(jobs) == 1 else [self._transact_one(job) for job in jobs]
        return self._commit(connection, outcomes, tips)

    def _transact_one(self, job: _Job) -> _Outcome:
        try:
            connection = self._connect()
            connection.execute("BEGIN IMMEDIATE")
            return self._commit(connection, *self._write(connection, [job]))[0]
        except (apsw.Error, OSError, UnicodeDecodeError) as error:
            self._roll_back(error)
            return self._job_error(job, error)

    def _write(self, connection: apsw.Connection, jobs: list[_Job]) -> tuple[list[_Outcome], dict[str, _Tip]]:
        """Plan each job and insert what is new; a refused job changes nothing. Returns outcomes and moved heads."""
        if connection.data_version() != self._tips_version or len(self._tips) > _MAX_TIPS:
            self._tips.clear()
        outcomes: list[_Outcome] = []
        moved: dict[str, _Tip] = {}
        for job in jobs:
            try:
                outcomes.append(self._write_job(connection, job, moved))
            except RectoError as error:
                outcomes.append(error)
        return outcomes, moved

    def _write_job(self, connection: apsw.Connection, job: _Job, moved: dict[str, _Tip]) -> list[Entry]:
        tip = self._tips.get(job.session) or self._read_tip(connection, job.session)
        found, new = self._plan(connection, tip, job)
        if new:
            if tip.is_new:
                queries.add_session(connection, tip.number, job.session)
                tip.is_new = False
            queries.add_entries(connection, tip.number, new)
            tip.head = Head(new[-1].seq, new[-1].hash)
            tip.added |= {entry.key: entry for entry in new if entry.key is not None}
            moved[job.session] = self._tips[job.session] = tip
        if job.terms:
            queries.add_late_terms(connection, tip.number, job.terms)
        entries = [*found, *new]
        for session, record in job.also(entries) if job.also is not None else ():
            try:
                self._write_job(connection, _Job(session, [record], None), moved)
            except KeyReused:
                continue
        return entries

    def _plan(self, connection: apsw.Connection, tip: _Tip, job: _Job) -> tuple[list[Entry], list[Entry]]:
        """Return the entries that are stored already (by idempotency key), and the new ones."""
        stored: dict[str, Entry] = {}
        if tip.head.seq:
            for key in [draft.key for draft in job.drafts if draft.key is not None]:
                entry = tip.added.get(key) or queries.by_key(connection, job.session, tip.number, key)
                if entry is not None:
                    stored[key] = entry
        found = already_stored(job.session, job.drafts, stored, tip.head, job.expect)
        new = link_entries(job.session, tip.head, job.drafts[len(found) :])
        if tip.head.seq + len(new) > MAX_SEQ:
            reason = f"a session has at most {MAX_SEQ:,} entries; go on in another session"
            raise AppendConflict(job.session, job.expect, tip.head.seq, reason)
        return found, new

    def _read_tip(self, connection: apsw.Connection, session: str) -> _Tip:
        """Read the head of a session. Raises if it contradicts the heads file: entries were cut off or rewritten."""
        number = queries.number_of(connection, session)
        if number is None:
            lost = self._heads.number_of(session)
            if lost is not None and (kept := self._heads.kept(lost)):
                raise TailCut(session, kept.head.seq, 0)
            number = max(queries.last_number(connection), self._heads.last_number()) + 1
            return _Tip(number, EMPTY_HEAD, None, True)
        head, kept = queries.head_of(connection, number), self._heads.kept(number)
        if kept is not None and kept.is_of(session):
            if kept.head.seq > head.seq:
                raise TailCut(session, kept.head.seq, head.seq)
            there = head.hash if kept.head.seq == head.seq else queries.hash_at(connection, number, kept.head.seq)
            if there != kept.head.hash:
                detail = f"session '{session}' was rewritten: entry {kept.head.seq} is not the one acknowledged"
                raise StoreCorrupt(str(self._path), detail)
        elif kept is not None:
            raise StoreCorrupt(str(self._path), f"session '{session}' is in the place of '{kept.start}'")
        if kept is not None and not kept.start:
            with suppress(OSError):  # as in a commit: nothing depends on it
                self._heads.keep_name(number, session)
        return _Tip(number, head, kept.slot if kept else None, False)

    def _commit(self, connection: apsw.Connection, outcomes: list[_Outcome], moved: dict[str, _Tip]) -> list[_Outcome]:
        connection.execute("COMMIT")
        self._tips_version = connection.data_version()
        for session, tip in moved.items():
            tip.added.clear()
            # The commit is final. The heads file may lag behind, so a full disk there fails no append.
            with suppress(OSError):
                tip.slot = self._heads.keep(tip.number, session, tip.head, tip.slot)
        return outcomes

    def _job_error(self, job: _Job, error: apsw.Error | OSError | UnicodeDecodeError) -> RectoError:
        """Return the error of a job: a constraint violation means that an id is taken."""
        if isinstance(error, apsw.ConstraintError):
            with suppress(apsw.Error, OSError, UnicodeDecodeError):  # looking for the reason must not spoil other jobs
                connection = self._connect()
                number = queries.number_of(connection, job.session) or 0
                for draft in job.drafts:
                    entry = queries.by_id(connection, job.session, number, draft.id)
                    if entry is not None and (entry.key is None or entry.key != draft.key):
                        reason = f"id '{draft.id}' is already entry {entry.seq}"
                        return AppendConflict(job.session, job.expect, queries.head_of(connection, number).seq, reason)
        return self._to_error(error)

    def _roll_back(self, error: BaseException) -> None:
        self._tips.clear()
        if isinstance(error, apsw.ConstraintError) and self._connection is not None:
            self._connection.execute("ROLLBACK")
        else:
            self._disconnect(error)

    def _connect(self) -> apsw.Connection:
        if self._connection is None:
            if self._heads.create(late=True):  # the store made one before its first entry; that it is gone is noted
                _log.warning(
                    "'%s-heads' was missing beside the store: if this is a copy of a store in use, the newest entries "
                    "may be in the '-wal' file of the original. Copy with 'recto store copy'; 'recto verify' says what "
                    "is whole.",
                    self._path.name,
                )
            busy = self._busy_milliseconds / 1000
            self._connection = guard(connect(self._path, "write", self._options, busy))
        if self._is_unsynced:
            # After a failed fsync the log may not be on disk: checkpoint all of it and start a new log.
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._is_unsynced = False
        return self._connection

    def _disconnect(self, error: BaseException | None = None) -> None:
        """Close the connection. After an error it is not used again; the next job opens a new one."""
        connection, self._connection = self._connection, None
        self._tips.clear()
        if connection is None:
            return
        with suppress(apsw.Error):
            if error is not None:
                self._is_unsynced = self._is_unsynced or is_unsynced(error)
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # would need the missing disk space
            connection.close()

    def _to_error(self, error: BaseException) -> RectoError:
        if isinstance(error, RectoError):
            return error
        if isinstance(error, apsw.Error | OSError | UnicodeDecodeError):
            return translate(error, self._path, _BUSY_SECONDS)
        return StoreUnavailable(str(self._path), f"the append failed: {error!r}")
