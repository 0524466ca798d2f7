"""A replica to read from: how old what it holds may be, and whether that is too old.

Its age is known by marks: where the log of the primary ended at a moment. A replica that has replayed a mark holds
everything that was acknowledged before that moment. So no clocks of two machines are compared, nobody writes for it,
and what is told is never too little. What is read there, and for whom, is not known here.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Final

from recto.errors import StoreError, StoreUnavailable
from recto.stores.postgres.pool import EVERYBODY, ConnectionPool
from recto.stores.postgres.store import PostgresStore

_SAME = """
(SELECT system_identifier FROM pg_control_system()),
(SELECT oid::bigint FROM pg_database WHERE datname = current_database())
"""
"""Who holds the log, and which database of it this is: alike on a primary and on its replicas."""
_MARK = f"SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint, {_SAME}"
_REPLAYED = f"""
SELECT CASE WHEN pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint END, {_SAME}
"""
_PATIENCE: Final = 2.0
"""Seconds for anything that is asked of a replica: there is somebody else to ask."""
_ASIDE: Final = 5.0
"""Seconds for which one that failed is left alone."""
_LOOKS, _SELDOM = 10, 1.0
"""How often it is looked at within the time that it may be behind, and the seconds between two looks at most."""
_MOMENT, _STEP = 0.25, 0.02
"""Seconds for which it is awaited that a replica replays the first mark, which was only just made."""


class PostgresReplica:
    """A streaming replica of a store. Any number of threads may ask."""

    def __init__(self, url: str, primary: PostgresStore, *, most: float) -> None:
        self._most = most
        self._primary = primary
        self._link = ConnectionPool(primary.url, patience=_PATIENCE, connections=1)
        self._copied = ConnectionPool(url, patience=_PATIENCE, connections=1, read_only=True)
        self.store = PostgresStore(url, lock_timeout=_PATIENCE, read_only=True)
        self.fault = "it was not looked at yet"
        """Why it cannot be read, in words; empty where it can, if it is not too far behind."""
        self._marks: deque[tuple[float, int]] = deque()
        self._as_of: float | None = None
        self._aside_until = 0.0
        self._closing = threading.Event()
        self._watching: threading.Thread | None = None

    @property
    def location(self) -> str:
        """Where it is, as a person would write it."""
        return self.store.location

    @property
    def behind(self) -> float | None:
        """Seconds by which it is behind, at most; None where that is not known."""
        as_of = self._as_of
        return None if as_of is None else time.monotonic() - as_of

    def age(self, session: str = "") -> float | None:
        """Seconds by which what is read there may be old, at most; None where the store has to be read instead.

        The store has to be read also while this process has written to the session what is not there yet.
        """
        behind = self.behind
        if behind is None or behind > self._most or time.monotonic() < self._aside_until:
            return None
        try:
            own = self._primary.written(session)
            return behind if not own or self.store.head(session).seq >= own else None
        except StoreError as error:
            self.failed(error)
            return None

    def failed(self, error: StoreError) -> None:
        """Something that was asked of it went wrong: it is left alone for a while."""
        self.fault = str(error)
        self._aside_until = time.monotonic() + _ASIDE

    def look(self) -> None:
        """Finds out how far it is behind now."""
        try:
            self._as_of = self._measured()
            self.fault = ""
        except StoreError as error:
            self._as_of, self.fault = None, str(error)

    def watch(self) -> None:
        """Looks again and again, until it is closed: whoever asks does not have to wait."""
        if self._watching is None:
            self._watching = threading.Thread(target=self._watch, name="recto replica", daemon=True)
            self._watching.start()

    def close(self) -> None:
        """Lets go of its connections; no other call may follow."""
        self._closing.set()
        if self._watching is not None:
            self._watching.join()
        for one in (self.store, self._link, self._copied):
            one.close()

    def _watch(self) -> None:
        while not self._closing.is_set():
            self.look()
            self._closing.wait(min(self._most / _LOOKS, _SELDOM))

    def _measured(self) -> float | None:
        """The moment up to which it holds everything; None where none is known."""
        before = time.monotonic()
        [(end, *here)] = self._link.do(lambda: self._link.fetched(EVERYBODY, _MARK))
        is_first = not self._marks
        self._marks.append((before, end))
        while self._marks[0][0] < before - self._most:
            self._marks.popleft()
        reached = self._reached(here)
        while is_first and reached is None and time.monotonic() < before + _MOMENT and not self._closing.wait(_STEP):
            reached = self._reached(here)
        return self._as_of if reached is None else reached

    def _reached(self, here: list[int]) -> float | None:
        """When the newest mark was made that it has replayed."""
        [(end, *there)] = self._copied.do(lambda: self._copied.fetched(EVERYBODY, _REPLAYED))
        if end is None:
            raise StoreUnavailable(self.location, "this server replays no log: it is not a streaming replica")
        if there != here:
            raise StoreUnavailable(self.location, "this is a replica of another server, or another database")
        return next((moment for moment, mark in reversed(self._marks) if mark <= end), None)
