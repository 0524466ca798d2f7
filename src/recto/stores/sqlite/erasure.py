"""Erases sessions from the file. The only code that bypasses the append-only triggers.

It knows the file, its lock and its heads. That an erasure is written down first, and what else goes with it, is not
known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from recto.errors import AppendConflict
from recto.stores.sqlite import rows
from recto.stores.sqlite.connection import HeadsFile, SideLock, connect
from recto.transcript.entries import EMPTY_HEAD, MAX_SEQ

if TYPE_CHECKING:
    from recto.stores.sqlite.connection import SqliteOptions
    from recto.transcript.entries import Head

_LIFTED = ("entries_stay", "sessions_keep")
"""The append-only triggers."""
_TRIGGER = "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = ?"
_DELETE = tuple(f"DELETE FROM {table} WHERE pos BETWEEN ? AND ?" for table in ("entries", "terms"))  # noqa: S608
_RENAME = "UPDATE sessions SET session = ? WHERE session_no = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteEraser:
    """Erases sessions from one file and its side files."""

    path: Path
    lock: Path
    heads: Path
    options: SqliteOptions
    patience: float

    def erase(self, session: str, expect: int | None) -> Head:
        """Delete a session and its record in the heads file; completes an erasure that was interrupted between them."""
        heads = HeadsFile(self.heads)
        try:
            with self._transact_one() as connection:
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
        """Rewrite the file without unused space, and truncate the log."""
        with self._transact_one() as connection:
            rewrite_file(connection)

    @contextmanager
    def _transact_one(self) -> Iterator[apsw.Connection]:
        """Open an unrestricted connection while no process of Recto writes."""
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


def rewrite_file(connection: apsw.Connection) -> None:
    """Rewrite a file and truncate its log, so that no trace of deleted rows remains."""
    connection.execute("VACUUM")
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def _removed(connection: apsw.Connection, session: str, expect: int | None) -> tuple[int | None, Head]:
    """Delete a session and return its number and head. The triggers are dropped and restored in one transaction."""
    connection.execute("PRAGMA secure_delete=ON")
    connection.execute("BEGIN IMMEDIATE")
    try:
        number = rows.number_of(connection, session)
        head = EMPTY_HEAD if number is None else rows.head_of(connection, number)
        if expect is not None and expect != head.seq:
            raise AppendConflict(session, expect, head.seq)
        if number is not None:
            guards = [connection.execute(_TRIGGER, (name,)).get for name in _LIFTED]
            connection.execute("; ".join(f"DROP TRIGGER IF EXISTS {name}" for name in _LIFTED))
            for statement in _DELETE:
                connection.execute(statement, (number << 32, number << 32 | MAX_SEQ))
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
