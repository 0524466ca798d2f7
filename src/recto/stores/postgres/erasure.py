"""Erases sessions from the database, as the owner of the tables. A gateway's role has no right to do so.

The caller records the erasure first and removes everything else that belongs to the session.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg import errors, sql

from recto.errors import AppendConflict, StoreReadOnly, TurnTaken
from recto.stores.postgres import queries
from recto.stores.postgres.errors import UNSIGNED, redact_url, translate
from recto.transcript.entries import EMPTY_HEAD, Head
from recto.transcript.session_keys import tenant_of

TRANSCRIPT: Final = ("entries", "terms", "heads", "kept_heads")
RECALL: Final = ("shelves", "covered", "fresh", "sealed")
_GRAPHS: Final = ("linked", "near")
"""Only with pgvector. Their rows are deleted with those of `shelves`."""
_TENANT = "SELECT set_config('recto.tenant', %s, true)"
_HEAD = """
SELECT seq, hash, owner IS NOT NULL AND lease_until > now() FROM recto.heads WHERE session = %s FOR UPDATE
"""
"""Locks the head: a concurrent append waits here and finds no head afterwards. If there is no head, one is inserted
first; otherwise an append that begins the session at the same moment would not wait, and would leave entries without
a head."""
_PAUSE = 0.05
_BEGIN = "INSERT INTO recto.erasing(session) VALUES (%s)"
_END = "DELETE FROM recto.erasing WHERE session = %s"
_PLACES = """
SELECT DISTINCT part FROM unnest(%s::text[]) AS session CROSS JOIN generate_series(0, 15) AS part
WHERE satisfies_hash_partition('recto.entries'::regclass, 16, part, session) ORDER BY part
"""
_HAS_GRAPHS = "SELECT to_regclass('recto.near') IS NOT NULL"
_IS_SPLIT = "SELECT relkind = 'p' FROM pg_class WHERE oid = 'recto.entries'::regclass"


def erase_session(url: str, session: str, *, expect: int | None, seconds: float) -> Head:
    """Erase a session and return its last head. Waits until no process holds its lease; raises `TurnTaken`."""
    ends = time.monotonic() + seconds
    try:
        with _connect(url, seconds, autocommit=True) as connection:
            while (head := _delete_session(connection, session, expect)) is None:
                if time.monotonic() + _PAUSE > ends:
                    raise TurnTaken(session, redact_url(url))
                time.sleep(_PAUSE)
            return head
    except psycopg.Error as error:
        if error.sqlstate in (errors.InsufficientPrivilege.sqlstate, UNSIGNED):
            detail = "only the owner of the tables erases; name that role in the address"
            raise StoreReadOnly(redact_url(url), detail) from error
        raise translate(error, redact_url(url), seconds) from error


def _delete_session(connection: psycopg.Connection[tuple[Any, ...]], session: str, expect: int | None) -> Head | None:
    """Delete a session in one transaction and return its head; None, without changes, while its lease is held."""
    with connection.transaction():
        tenant = tenant_of(session)
        connection.execute(_TENANT, (tenant,))
        connection.execute(queries.OPEN, {"session": session, "tenant": tenant})
        row = connection.execute(_HEAD, (session,)).fetchone()
        if row is None or row[2]:  # another process has just erased it, or holds its lease
            return None
        seq, digest, _ = row
        if expect is not None and expect != seq:
            raise AppendConflict(session, expect, seq)
        connection.execute(_BEGIN, (session,))
        for table in (*TRANSCRIPT, *RECALL):
            name = sql.Identifier("recto", table)
            connection.execute(sql.SQL("DELETE FROM {} WHERE session = %s").format(name), (session,))
        connection.execute(_END, (session,))
    return Head(seq, bytes(digest)) if seq else EMPTY_HEAD


def rewrite_tables(url: str, tables: Sequence[str], sessions: Sequence[str], *, seconds: float) -> None:
    """Rewrite the partitions that contained these sessions, so that nothing is left in unused space.

    Each partition is locked while it is rewritten. The statistics of the planner, which contain values, are rewritten
    as well, if the role owns the database.
    """
    try:
        with _connect(url, seconds, autocommit=True) as connection:
            if tables == RECALL and connection.execute(_HAS_GRAPHS).fetchone() == (True,):
                tables = (*RECALL, *_GRAPHS)
            is_split = connection.execute(_IS_SPLIT).fetchone() == (True,)
            parts = [part for (part,) in connection.execute(_PLACES, (list(sessions),))] if is_split else []
            names = [f"{table}_{part}" for table in tables for part in parts] if is_split else list(tables)
            for name in names:
                connection.execute(sql.SQL("VACUUM (FULL, ANALYZE) {}").format(sql.Identifier("recto", name)))
            connection.execute("VACUUM (FULL) pg_catalog.pg_statistic")
    except psycopg.Error as error:
        raise translate(error, redact_url(url), seconds) from error


def _connect(url: str, seconds: float, *, autocommit: bool) -> psycopg.Connection[tuple[Any, ...]]:
    """Connect with a lock timeout but without a statement timeout: rewriting a table may take long."""
    options = f"-c statement_timeout=0 -c lock_timeout={int(seconds * 1000)}"
    patience = max(int(seconds), 2)
    return psycopg.connect(url, autocommit=autocommit, connect_timeout=patience, options=options)
