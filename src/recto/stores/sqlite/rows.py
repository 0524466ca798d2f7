"""SQL of the transcript, and the writer that appends with it.

SQL statements, and the mapping between rows and entries. Their text never varies, so that SQLite caches them.

Writes appends. A caller that finds no other writer commits by itself; all others queue jobs for the writer thread.

All jobs waiting at the same time are committed together (group commit): a commit costs an fsync, which is far more than
an insert, so the throughput grows with the number of callers. The order of a group is: lock, begin, plan, insert,
commit, store the heads, answer.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import apsw
from msgspec import Struct, field

from recto.errors import AppendConflict, KeyReused, RectoError, StoreCorrupt, StoreLocked, StoreUnavailable, TailCut
from recto.stores.sqlite.connection import connect, guard
from recto.stores.sqlite.errors import is_unsynced, translate
from recto.transcript.entries import (
    EMPTY_HEAD,
    MAX_SEQ,
    OPENING_BYTES,
    OPENING_ENTRIES,
    OPENING_MESSAGES,
    PAST_TITLE_KEYS,
    TITLE_KEY,
    Entry,
    Head,
    SessionSummary,
    already_stored,
    entry_of_values,
    link_entries,
)
from recto.transcript.protocols import Records

if TYPE_CHECKING:
    from concurrent.futures import Future

    from recto.stores.sqlite.connection import HeadsFile, SideLock, SqliteOptions
    from recto.transcript.entries import Draft


PAGE_ENTRIES = 500
PAGE_TERMS = 4096
PAGE_BYTES = 8 * 2**20
"""Limits of a page; so messages of 100 MB are read one at a time."""

_LARGE = 2**20
_COLUMNS = "pos, id, ts, role, kind, wire, surface, tokens, counter, key, meta, prev, hash, content"
_NUMBER = "SELECT session_no FROM sessions WHERE session = ?"
_LAST_NUMBER = "SELECT max(session_no) FROM sessions"
_NAME = "SELECT session FROM sessions WHERE session_no = ?"
_HEAD = "SELECT pos, hash FROM entries WHERE pos BETWEEN ? AND ? ORDER BY pos DESC LIMIT 1"
_HEAD_BY_NAME = """
SELECT pos, hash FROM entries WHERE pos BETWEEN (SELECT session_no << 32 FROM sessions WHERE session = ?1)
  AND (SELECT session_no << 32 | 4294967295 FROM sessions WHERE session = ?1) ORDER BY pos DESC LIMIT 1
"""
_HASH = "SELECT hash FROM entries WHERE pos = ?"
_PAGE = f"SELECT {_COLUMNS} FROM entries WHERE pos BETWEEN ? AND ? ORDER BY pos LIMIT ?"  # noqa: S608  # a constant
_PLACES = "SELECT (SELECT session_no << 32 FROM sessions WHERE session = ?1) | value FROM json_each(?2)"
_PICKED = f"SELECT {_COLUMNS} FROM entries WHERE pos IN ({_PLACES}) ORDER BY pos"  # noqa: S608  # a constant
_TAIL = f"SELECT {_COLUMNS} FROM entries WHERE pos BETWEEN ? AND ? ORDER BY pos DESC LIMIT ?"  # noqa: S608  # a constant
_BY_ID = f"SELECT {_COLUMNS} FROM entries WHERE session_no = ? AND id = ?"  # noqa: S608  # a constant
_BY_KEY = f"SELECT {_COLUMNS} FROM entries WHERE session_no = ? AND key = ?"  # noqa: S608  # a constant
_ADD_SESSION = "INSERT INTO sessions VALUES (?, ?)"
_ADD_ENTRIES = f"INSERT INTO entries({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608  # a constant
_TERMS = "SELECT pos, data FROM terms WHERE pos BETWEEN ? AND ? ORDER BY pos LIMIT ?"
_PICKED_TERMS = f"SELECT pos, data FROM terms WHERE pos IN ({_PLACES}) ORDER BY pos"  # noqa: S608  # a constant
_ADD_TERMS = "INSERT OR REPLACE INTO terms(pos, data) VALUES (?, ?)"
_ADD_LATE_TERMS = """
INSERT OR REPLACE INTO terms(pos, data) SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM entries WHERE pos = ?1 AND hash = ?3)
"""
_LACKING_TERMS = """
SELECT pos & 4294967295 FROM entries AS e WHERE pos BETWEEN ? AND ? AND kind = 'message'
  AND NOT EXISTS (SELECT 1 FROM terms AS t WHERE t.pos = e.pos AND substr(t.data, 1, ?) = ?) ORDER BY pos LIMIT ?
"""
_SESSIONS = """
SELECT session, last & 4294967295, (SELECT ts FROM entries WHERE pos = first), (SELECT ts FROM entries WHERE pos = last)
FROM (
  SELECT session,
    (SELECT min(pos) FROM entries WHERE pos BETWEEN s.session_no << 32 AND s.session_no << 32 | 4294967295) AS first,
    (SELECT max(pos) FROM entries WHERE pos BETWEEN s.session_no << 32 AND s.session_no << 32 | 4294967295) AS last
  FROM sessions AS s WHERE session > ? ORDER BY session
)
WHERE last IS NOT NULL LIMIT ?
"""
_NEWEST_TITLE = f"""
SELECT {_COLUMNS} FROM entries INDEXED BY entries_by_key
WHERE session_no = ? AND key >= '{TITLE_KEY}' AND key < '{PAST_TITLE_KEYS}' ORDER BY pos DESC LIMIT 1
"""  # noqa: S608  # of constants
_OPENING = f"""
SELECT {_COLUMNS} FROM entries WHERE pos BETWEEN ? AND ? AND role = 'user' AND kind = 'message'
  AND length(content) <= {OPENING_BYTES} ORDER BY pos LIMIT {OPENING_MESSAGES}
"""  # noqa: S608  # of constants
_ALL_HEADS = """
SELECT session_no, session, last & 4294967295, (SELECT hash FROM entries WHERE pos = last)
FROM (
  SELECT session_no, session,
    (SELECT max(pos) FROM entries WHERE pos BETWEEN s.session_no << 32 AND s.session_no << 32 | 4294967295) AS last
  FROM sessions AS s
)
WHERE last IS NOT NULL
"""
_LOST_NUMBERS = """
WITH RECURSIVE held(number) AS (
  SELECT min(pos) >> 32 FROM entries
  UNION ALL
  SELECT (SELECT min(pos) >> 32 FROM entries WHERE pos >= (number + 1) << 32) FROM held WHERE number IS NOT NULL
)
SELECT number FROM held WHERE number IS NOT NULL AND number NOT IN (SELECT session_no FROM sessions)
"""
_TYPES = (int, str, int, str, str, str, str, int, str, str, bytes, bytes, bytes, bytes)
_ROW_TYPES = frozenset((_TYPES, (*_TYPES[:9], type(None), *_TYPES[10:])))
"""The types of the values of an entry, with a key and without."""


def number_of(connection: apsw.Connection, session: str) -> int | None:
    """Return the number of a session in this file."""
    number: int | None = connection.execute(_NUMBER, (session,)).get
    return number


def last_number(connection: apsw.Connection) -> int:
    """Return the highest session number in use."""
    number: int | None = connection.execute(_LAST_NUMBER).get
    return number or 0


def name_of(connection: apsw.Connection, number: int) -> str | None:
    """Return the key of a session number."""
    name: str | None = connection.execute(_NAME, (number,)).get
    return name


def head_of(connection: apsw.Connection, number: int) -> Head:
    """Return the head of a session."""
    return _head(connection.execute(_HEAD, _range(number, 0, MAX_SEQ)).fetchone())


def head_by_name(connection: apsw.Connection, session: str) -> Head:
    """Return the head of a session, empty if there is none: in one query, because every prompt asks for it."""
    return _head(connection.execute(_HEAD_BY_NAME, (session,)).fetchone())


def _head(row: tuple[Any, ...] | None) -> Head:
    if row and type(row[1]) is not bytes:
        raise apsw.CorruptError(f"the hash of entry {row[0] & MAX_SEQ} is of a wrong type")
    return Head(row[0] & MAX_SEQ, row[1]) if row else EMPTY_HEAD


def hash_at(connection: apsw.Connection, number: int, seq: int) -> bytes | None:
    """Return the hash of one entry."""
    digest: bytes | None = connection.execute(_HASH, (number << 32 | seq,)).get
    return digest


def page(connection: apsw.Connection, session: str, number: int, start: int, stop: int) -> list[Entry]:
    """Read a page of entries between `start` and `stop`. Empty only at the end."""
    found, size = [], 0
    cursor = connection.execute(_PAGE, (*_range(number, start, stop), PAGE_ENTRIES))
    for row in cursor:
        entry = _entry(session, row)
        found.append(entry)
        size += len(entry.content) + len(entry.meta)
        if size >= PAGE_BYTES:
            break
    cursor.close()  # ends the read transaction, also where rows are left
    return found


def picked(connection: apsw.Connection, session: str, seqs: Collection[int]) -> list[Entry]:
    """Return the entries of a session with these numbers, in order; missing ones are skipped."""
    rows = connection.execute(_PICKED, (session, json.dumps(list(seqs))))
    return [_entry(session, row) for row in rows]


def tail(connection: apsw.Connection, session: str, number: int, count: int) -> list[Entry]:
    """Return the last `count` entries, oldest first."""
    rows = connection.execute(_TAIL, (*_range(number, 0, MAX_SEQ), count))
    return [_entry(session, row) for row in rows][::-1]


def by_id(connection: apsw.Connection, session: str, number: int, id: str) -> Entry | None:
    """Return the entry with an id, if it exists."""
    row = connection.execute(_BY_ID, (number, id)).fetchone()
    return _entry(session, row) if row else None


def by_key(connection: apsw.Connection, session: str, number: int, key: str) -> Entry | None:
    """Return the entry stored under an idempotency key, if it exists."""
    row = connection.execute(_BY_KEY, (number, key)).fetchone()
    return _entry(session, row) if row else None


def summaries(connection: apsw.Connection, after: str, limit: int) -> list[SessionSummary]:
    """List sessions by key; a limit of -1 means no limit."""
    return [
        SessionSummary(session=session, entries=last, first_ts=first_ts, last_ts=last_ts)
        for session, last, first_ts, last_ts in connection.execute(_SESSIONS, (after, limit))
    ]


def title_entries(connection: apsw.Connection, session: str) -> list[Entry]:
    """Return the newest rename of a session, else its first user messages."""
    number = number_of(connection, session)
    if number is None:
        return []
    renamed = connection.execute(_NEWEST_TITLE, (number,)).fetchall()
    rows = renamed or connection.execute(_OPENING, _range(number, 1, OPENING_ENTRIES))
    return [_entry(session, row) for row in rows]


def all_heads(connection: apsw.Connection) -> Iterator[tuple[int, str, Head]]:
    """Return the head of every session, with its number."""
    for number, session, seq, digest in connection.execute(_ALL_HEADS):
        yield number, session, Head(seq, digest)


def lost_numbers(connection: apsw.Connection) -> list[int]:
    """Return numbers that have entries but no session."""
    return [number for (number,) in connection.execute(_LOST_NUMBERS)]


def add_session(connection: apsw.Connection, number: int, session: str) -> None:
    """Insert a session with its number."""
    connection.execute(_ADD_SESSION, (number, session))


def add_entries(connection: apsw.Connection, number: int, entries: Sequence[Entry]) -> None:
    """Insert entries in order, with their rows of the word index."""
    is_small = all(
        len(entry.content) < _LARGE for entry in entries
    )  # a kept statement keeps a copy of its last content
    rows = (_row(number << 32 | entry.seq, entry) for entry in entries)
    connection.executemany(_ADD_ENTRIES, rows, can_cache=is_small)
    terms = [(number << 32 | entry.seq, entry.terms) for entry in entries if entry.terms]
    if terms:
        connection.executemany(_ADD_TERMS, terms)


def terms(connection: apsw.Connection, number: int, start: int, stop: int) -> list[tuple[int, bytes]]:
    """Read a page of rows of the word index between `start` and `stop`. Empty only at the end."""
    found, size = [], 0
    cursor = connection.execute(_TERMS, (*_range(number, start, stop), PAGE_TERMS))
    for pos, data in cursor:
        found.append((pos & MAX_SEQ, data))
        size += len(data)
        if size >= PAGE_BYTES:
            break
    cursor.close()  # ends the read transaction, also where rows are left
    return found


def picked_terms(connection: apsw.Connection, session: str, seqs: Collection[int]) -> dict[int, bytes]:
    """Return the rows of the word index of these entries of a session."""
    rows = connection.execute(_PICKED_TERMS, (session, json.dumps(list(seqs))))
    return {pos & MAX_SEQ: data for pos, data in rows}


def lacking_terms(
    connection: apsw.Connection, number: int, version: bytes, start: int, stop: int, limit: int
) -> list[int]:
    """Return the first messages without a row of the word index of this version; a limit of -1 means no limit."""
    bounds = _range(number, start, stop)
    return [seq for (seq,) in connection.execute(_LACKING_TERMS, (*bounds, len(version), version, limit))]


def add_late_terms(connection: apsw.Connection, number: int, entries: Iterable[Entry]) -> None:
    """Insert or replace rows of the word index, for entries that are stored with the same hash."""
    rows = ((number << 32 | entry.seq, entry.terms, entry.hash) for entry in entries if entry.terms)
    connection.executemany(_ADD_LATE_TERMS, rows)


def _range(number: int, start: int, stop: int) -> tuple[int, int]:
    return number << 32 | start, number << 32 | stop


def _row(pos: int, e: Entry) -> tuple[int | str | bytes | None, ...]:
    names = (e.role, e.kind, e.wire, e.surface)
    return (pos, e.id, e.ts, *names, e.tokens, e.counter, e.key, e.meta, e.prev, e.hash, e.content)


def _entry(session: str, row: tuple[Any, ...]) -> Entry:
    if tuple(map(type, row)) not in _ROW_TYPES:  # SQLite checks types when it writes, not when it reads
        raise apsw.CorruptError(f"entry {row[0] & MAX_SEQ} of session '{session}' has a value of a wrong type")
    pos, id, ts, role, kind, wire, surface, tokens, counter, key, meta, prev, digest, content = row
    drafted = id, ts, role, content, kind, wire, surface, tokens, counter, meta, key, b""
    return entry_of_values((*drafted, session, pos & MAX_SEQ, prev, digest))


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
                add_session(connection, tip.number, job.session)
                tip.is_new = False
            add_entries(connection, tip.number, new)
            tip.head = Head(new[-1].seq, new[-1].hash)
            tip.added |= {entry.key: entry for entry in new if entry.key is not None}
            moved[job.session] = self._tips[job.session] = tip
        if job.terms:
            add_late_terms(connection, tip.number, job.terms)
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
                entry = tip.added.get(key) or by_key(connection, job.session, tip.number, key)
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
        number = number_of(connection, session)
        if number is None:
            lost = self._heads.number_of(session)
            if lost is not None and (kept := self._heads.kept(lost)):
                raise TailCut(session, kept.head.seq, 0)
            number = max(last_number(connection), self._heads.last_number()) + 1
            return _Tip(number, EMPTY_HEAD, None, True)
        head, kept = head_of(connection, number), self._heads.kept(number)
        if kept is not None and kept.is_of(session):
            if kept.head.seq > head.seq:
                raise TailCut(session, kept.head.seq, head.seq)
            there = head.hash if kept.head.seq == head.seq else hash_at(connection, number, kept.head.seq)
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
                number = number_of(connection, job.session) or 0
                for draft in job.drafts:
                    entry = by_id(connection, job.session, number, draft.id)
                    if entry is not None and (entry.key is None or entry.key != draft.key):
                        reason = f"id '{draft.id}' is already entry {entry.seq}"
                        return AppendConflict(job.session, job.expect, head_of(connection, number).seq, reason)
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
