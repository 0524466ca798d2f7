"""Removes whole sessions from the database, on purpose, as the owner of its tables. A gateway's role may not.

That an erasure is written down first, and what else goes with it, is not known here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg import errors, sql

from recto.errors import AppendConflict, StoreReadOnly, TurnTaken
from recto.stores.postgres import queries
from recto.stores.postgres.errors import named, translate
from recto.transcript.entries import Head
from recto.transcript.hash_chain import EMPTY_HEAD
from recto.transcript.session_keys import tenant_of

TRANSCRIPT: Final = ("entries", "heads", "kept_heads")
RECALL: Final = ("shelves", "covered", "fresh", "sealed")
_GRAPHS: Final = ("linked", "near")
"""Where there are graphs. Their rows go with those of `shelves`."""
_TENANT = "SELECT set_config('recto.tenant', %s, true)"
_HEAD = """
SELECT seq, hash, owner IS NOT NULL AND lease_until > now() FROM recto.heads WHERE session = %s FOR UPDATE
"""
"""Whoever appends waits here, and finds no head afterwards. Where there is none, one is made first: who begins the
session at the same moment would wait for nobody, and keep entries without a head."""
_PAUSE = 0.05
_BEGIN = "INSERT INTO recto.erasing(session) VALUES (%s)"
_END = "DELETE FROM recto.erasing WHERE session = %s"
_PLACES = """
SELECT DISTINCT part FROM unnest(%s::text[]) AS session CROSS JOIN generate_series(0, 15) AS part
WHERE satisfies_hash_partition('recto.entries'::regclass, 16, part, session) ORDER BY part
"""
_HAS_GRAPHS = "SELECT to_regclass('recto.near') IS NOT NULL"
_IS_SPLIT = "SELECT relkind = 'p' FROM pg_class WHERE oid = 'recto.entries'::regclass"


def erased(url: str, session: str, *, expect: int | None, seconds: float) -> Head:
    """Where the session ended that is gone now. Waits until nobody has its turn; raises `TurnTaken`."""
    ends = time.monotonic() + seconds
    try:
        with _connected(url, seconds, autocommit=True) as connection:
            while (head := _removed(connection, session, expect)) is None:
                if time.monotonic() + _PAUSE > ends:
                    raise TurnTaken(session, named(url))
                time.sleep(_PAUSE)
            return head
    except errors.InsufficientPrivilege as error:
        raise StoreReadOnly(named(url), "only the owner of the tables erases; name that role in the address") from error
    except psycopg.Error as error:
        raise translate(error, named(url), seconds) from error


def _removed(connection: psycopg.Connection[tuple[Any, ...]], session: str, expect: int | None) -> Head | None:
    """Its end, with all of it removed in one transaction; None, and nothing done, while somebody else has it."""
    with connection.transaction():
        tenant = tenant_of(session)
        connection.execute(_TENANT, (tenant,))
        connection.execute(queries.OPEN, {"session": session, "tenant": tenant})
        row = connection.execute(_HEAD, (session,)).fetchone()
        if row is None or row[2]:  # somebody else has just erased it, or has its turn
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


def written_anew(url: str, tables: Sequence[str], sessions: Sequence[str], *, seconds: float) -> None:
    """Leaves no gaps where these sessions were: the parts of the tables that held them are written anew.

    Each part is closed to everybody while it is written. What the server keeps of values for its plans is made anew
    as well, where the role owns the database.
    """
    try:
        with _connected(url, seconds, autocommit=True) as connection:
            if tables == RECALL and connection.execute(_HAS_GRAPHS).fetchone() == (True,):
                tables = (*RECALL, *_GRAPHS)
            is_split = connection.execute(_IS_SPLIT).fetchone() == (True,)
            parts = [part for (part,) in connection.execute(_PLACES, (list(sessions),))] if is_split else []
            names = [f"{table}_{part}" for table in tables for part in parts] if is_split else list(tables)
            for name in names:
                connection.execute(sql.SQL("VACUUM (FULL, ANALYZE) {}").format(sql.Identifier("recto", name)))
            connection.execute("VACUUM (FULL) pg_catalog.pg_statistic")
    except psycopg.Error as error:
        raise translate(error, named(url), seconds) from error


def _connected(url: str, seconds: float, *, autocommit: bool) -> psycopg.Connection[tuple[Any, ...]]:
    """Waits as long as a caller may for locks, and as long as it takes for the work."""
    options = f"-c statement_timeout=0 -c lock_timeout={int(seconds * 1000)}"
    patience = max(int(seconds), 2)
    return psycopg.connect(url, autocommit=autocommit, connect_timeout=patience, options=options)
