"""A read replica: measures how far it lags behind, and decides whether that is too much.

The lag is measured by marks: positions of the primary's log at known times. A replica that has replayed a mark has
everything acknowledged before that time. So no clocks of two machines are compared, nothing is written for it,
and the reported lag is an upper bound.
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
"""Identity of the cluster and the database: equal on a primary and its replicas."""
_MARK = f"SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint, {_SAME}"
_REPLAYED = f"""
SELECT CASE WHEN pg_is_in_recovery() THEN pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint END, {_SAME}
"""
_PATIENCE: Final = 2.0
"""Time limit for queries to a replica, in seconds: the primary is the fallback."""
_ASIDE: Final = 5.0
"""Seconds for which a replica is not used after a failure."""
_LOOKS, _SELDOM = 10, 1.0
"""Number of measurements within the permitted lag, and the longest interval between two, in seconds."""
_MOMENT, _STEP = 0.25, 0.02
"""How long the first measurement waits for the replica to replay the first mark, in seconds."""


class PostgresReplica:
    """A streaming replica of a store. Thread-safe."""

    def __init__(self, url: str, primary: PostgresStore, *, most: float) -> None:
        self._most = most
        self._primary = primary
        self._pool = ConnectionPool(primary.url, patience=_PATIENCE, connections=1)
        self._replica_pool = ConnectionPool(url, patience=_PATIENCE, connections=1, read_only=True)
        self.store = PostgresStore(url, key=primary.key, lock_timeout=_PATIENCE, read_only=True)
        self.fault = "it was not looked at yet"
        """Why it cannot be read; empty if it can, unless it lags too far behind."""
        self._marks: deque[tuple[float, int]] = deque()
        self._as_of: float | None = None
        self._aside_until = 0.0
        self._closing = threading.Event()
        self._watching: threading.Thread | None = None

    @property
    def location(self) -> str:
        """Where the store is, for messages: a path or a URL without the password."""
        return self.store.location

    @property
    def behind(self) -> float | None:
        """Upper bound of the lag in seconds; None if unknown."""
        as_of = self._as_of
        return None if as_of is None else time.monotonic() - as_of

    def age(self, session: str = "") -> float | None:
        """Return the lag of what is read there, in seconds; None if the primary must be read instead.

        The primary is also read while the replica lacks what this process has written to the session.
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
        """Record a failure: the replica is not used for a while."""
        self.fault = str(error)
        self._aside_until = time.monotonic() + _ASIDE

    def look(self) -> None:
        """Measure the lag now."""
        try:
            self._as_of = self._measured()
            self.fault = ""
        except StoreError as error:
            self._as_of, self.fault = None, str(error)

    def watch(self) -> None:
        """Measure the lag periodically on a thread until closed, so that readers need not wait."""
        if self._watching is None:
            self._watching = threading.Thread(target=self._watch, name="recto replica", daemon=True)
            self._watching.start()

    def close(self) -> None:
        """Close all connections. No other call may follow."""
        self._closing.set()
        if self._watching is not None:
            self._watching.join()
        for one in (self.store, self._pool, self._replica_pool):
            one.close()

    def _watch(self) -> None:
        while not self._closing.is_set():
            self.look()
            self._closing.wait(min(self._most / _LOOKS, _SELDOM))

    def _measured(self) -> float | None:
        """Return the time up to which the replica is complete; None if unknown."""
        before = time.monotonic()
        [(end, *here)] = self._pool.run(lambda: self._pool.fetch_all(EVERYBODY, _MARK))
        is_first = not self._marks
        self._marks.append((before, end))
        while self._marks[0][0] < before - self._most:
            self._marks.popleft()
        reached = self._reached(here)
        while is_first and reached is None and time.monotonic() < before + _MOMENT and not self._closing.wait(_STEP):
            reached = self._reached(here)
        return self._as_of if reached is None else reached

    def _reached(self, here: list[int]) -> float | None:
        """Return the time of the newest mark that the replica has replayed."""
        [(end, *there)] = self._replica_pool.run(lambda: self._replica_pool.fetch_all(EVERYBODY, _REPLAYED))
        if end is None:
            raise StoreUnavailable(self.location, "this server replays no log: it is not a streaming replica")
        if there != here:
            raise StoreUnavailable(self.location, "this is a replica of another server, or another database")
        return next((moment for moment, mark in reversed(self._marks) if mark <= end), None)
