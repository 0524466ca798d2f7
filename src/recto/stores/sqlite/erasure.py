"""Removes whole sessions from the file, on purpose. The only place that goes past the file's guards.

It knows the file, its lock and its heads. That an erasure is written down first, and what else goes with it, is not
known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import apsw

from recto.errors import AppendConflict
from recto.stores.sqlite import queries
from recto.stores.sqlite.connection import SqliteOptions, connect
from recto.stores.sqlite.heads_file import HeadsFile
from recto.stores.sqlite.lock import SideLock
from recto.transcript.entries import MAX_SEQ, Head
from recto.transcript.hash_chain import EMPTY_HEAD

_LIFTED = ("entries_stay", "sessions_keep")
"""The triggers that stand in the way."""
_TRIGGER = "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = ?"
_DELETE = "DELETE FROM entries WHERE pos BETWEEN ? AND ?"
_RENAME = "UPDATE sessions SET session = ? WHERE session_no = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteEraser:
    """One file, and what lies beside it."""

    path: Path
    lock: Path
    heads: Path
    options: SqliteOptions
    patience: float

    def erase(self, session: str, expect: int | None) -> Head:
        """Removes a session and its head outside, also where an erasure was cut off between the two."""
        heads = HeadsFile(self.heads)
        try:
            with self._alone() as connection:
                number, head = _removed(connection, session, expect)
                heads.create(late=True)
                if number is None:
                    number = heads.number_of(session)
                kept = None if number is None else heads.kept(number)
                if kept is not None and kept.is_of(session):
                    heads.drop(kept.number)
            return head
        finally:
            heads.close()

    def scrub(self) -> None:
        """Writes the file anew without its gaps, and empties the log."""
        with self._alone() as connection:
            write_anew(connection)

    @contextmanager
    def _alone(self) -> Iterator[apsw.Connection]:
        """A connection that may do everything, while no process of Recto writes."""
        lock = SideLock(self.lock)
        try:
            with lock.held(self.patience):
                connection = connect(self.path, "write", self.options, self.patience)
                try:
                    yield connection
                finally:
                    connection.close()
        finally:
            lock.close()


def write_anew(connection: apsw.Connection) -> None:
    """Leaves no gaps in a file, and nothing in its log: what was removed is nowhere any more."""
    connection.execute("VACUUM")
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def _removed(connection: apsw.Connection, session: str, expect: int | None) -> tuple[int | None, Head]:
    """The number that the session had, and its end. The guards are lifted and set again in one transaction."""
    connection.execute("PRAGMA secure_delete=ON")
    connection.execute("BEGIN IMMEDIATE")
    try:
        number = queries.number_of(connection, session)
        head = EMPTY_HEAD if number is None else queries.head_of(connection, number)
        if expect is not None and expect != head.seq:
            raise AppendConflict(session, expect, head.seq)
        if number is not None:
            guards = [connection.execute(_TRIGGER, (name,)).get for name in _LIFTED]
            connection.execute("; ".join(f"DROP TRIGGER IF EXISTS {name}" for name in _LIFTED))
            connection.execute(_DELETE, (number << 32, number << 32 | MAX_SEQ))
            # The number stays taken: who remembers it from before finds nothing under it, and never another session.
            connection.execute(_RENAME, (f"recto:erased/{number}", number))
            for guard in filter(None, guards):
                connection.execute(guard)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return number, head
