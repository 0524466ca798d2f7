"""Schema migrations of the database, applied while other processes use it.

A migration has two steps. `pre` adds what is new before the new version runs; `post` removes what is no longer used
once no old version runs. One process migrates at a time; each step is atomic.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

import psycopg
from psycopg import sql

from recto.errors import StoreTooNew, StoreUnavailable
from recto.stores.postgres.errors import redact_url, translate
from recto.stores.postgres.pool import EVERYBODY, ConnectionPool, tenant_token

_GUARDED: Final = ("entries", "heads", "kept_heads")
_WALLED: Final = (*_GUARDED, "terms")
_TRIGGERS: Final = {
    "entries": {"entries_follow", "entries_keep", "entries_stay"},
    "heads": {"heads_advance", "heads_stay"},
    "kept_heads": {"kept_heads_advance", "kept_heads_stay"},
}
_FOUND = """
SELECT c.relname, t.tgname, t.tgenabled <> 'D' FROM pg_trigger AS t
JOIN pg_class AS c ON c.oid = t.tgrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'recto' AND NOT t.tgisinternal
"""
_WALLS = """
SELECT c.relname, c.relrowsecurity AND (c.relforcerowsecurity OR c.relispartition) AND (
  SELECT count(*) = 1 AND bool_and(pg_get_expr(p.polqual, c.oid) LIKE '%%recto.tenant()%%' OR NOT EXISTS (
    SELECT 1 FROM recto.schema_steps WHERE version = 6 AND step = 'post'
  )) FROM pg_policy AS p WHERE p.polrelid = c.oid
) FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = 'recto' AND c.relname = ANY(%(tables)s)
"""
"""A policy more would let more rows through."""
_ASTRAY = """
SELECT h.session, h.seq FROM recto.heads AS h
LEFT JOIN recto.entries AS e ON e.session = h.session AND e.seq = h.seq
WHERE h.seq > 0 AND e.hash IS DISTINCT FROM h.hash ORDER BY h.session LIMIT 20
"""
_PARTS = 16


async def find_damage(pool: ConnectionPool) -> list[str]:
    """Report missing triggers and policies, and heads without their entry; empty if there are none."""
    triggers = await pool.fetch_all(EVERYBODY, _FOUND)
    walled = [*_WALLED, *(f"{table}_{number}" for table in _WALLED for number in range(_PARTS))]
    walls: dict[str, bool] = dict(await pool.fetch_all(EVERYBODY, _WALLS, {"tables": walled}))
    astray = await pool.fetch_all(EVERYBODY, _ASTRAY)
    live = {(table, name) for table, name, is_on in triggers if is_on}
    wanted = {
        (f"{table}{part}", name)
        for table, names in _TRIGGERS.items()
        for name in names
        for part in ("", *(f"_{number}" for number in range(_PARTS)))
    }
    wanted |= {(f"{table}_{number}", "stay_whole") for table in _GUARDED for number in range(_PARTS)}
    gone = [
        f"the trigger '{name}' of table '{table}' is missing or switched off" for table, name in sorted(wanted - live)
    ]
    open_ = [f"table '{table}' is not walled off by tenant" for table in walled if not walls.get(table)]
    return [*gone, *open_, *(f"session '{session}': entry {seq}, its end, is not there" for session, seq in astray)]


_SIGNED: Final = (6, "post")
"""From this step on a role other than the owner needs a key."""
_FILE_NAME = re.compile(r"(\d{4})_\w+\.(pre|post)\.sql")
_RUNNER = 0x526374_6F0001
"""Advisory lock of the migrating process; Recto uses no other."""
_TABLE = """
CREATE SCHEMA IF NOT EXISTS recto;
CREATE TABLE IF NOT EXISTS recto.schema_steps(
  version integer NOT NULL,
  step text NOT NULL CHECK (step IN ('pre', 'post')),
  done timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (version, step)
)
"""
_IS_THERE = "SELECT to_regclass('recto.schema_steps') IS NOT NULL"
_DONE = "SELECT version, step FROM recto.schema_steps"


@dataclass(frozen=True, slots=True, order=True)
class MigrationStep:
    """A step of a migration."""

    version: int
    step: str
    sql: str


@cache
def shipped_steps() -> tuple[MigrationStep, ...]:
    """Return the steps of this version of Recto, in order: `pre` before `post` within a version."""
    files = (resources.files(__package__) / "migrations").iterdir()
    found = [
        MigrationStep(int(name[1]), name[2], file.read_text("utf-8"))
        for file in files
        if (name := _FILE_NAME.fullmatch(file.name))
    ]
    return tuple(sorted(found, key=lambda one: (one.version, one.step != "pre")))


def applied_steps(connection: psycopg.Connection) -> set[tuple[int, str]]:
    """Return the steps that were applied; empty if there is no store yet."""
    row = connection.execute(_IS_THERE).fetchone()
    return set(connection.execute(_DONE).fetchall()) if row and row[0] else set()


def upgrade(connection: psycopg.Connection, *, finish: bool = False) -> list[MigrationStep]:
    """Apply the missing steps and return them. `finish` says that no older version of Recto is running.

    `post` steps wait for `finish`, except in a new database.
    """
    connection.execute("SELECT pg_advisory_lock(%s)", (_RUNNER,))
    try:
        connection.execute(_TABLE)
        done = applied_steps(connection)
        is_new = not done
        made = []
        for step in shipped_steps():
            wanted = step.step == "pre" or finish or is_new
            if wanted and (step.version, step.step) not in done:
                with connection.transaction():
                    connection.execute(step.sql.encode())
                    connection.execute(
                        "INSERT INTO recto.schema_steps(version, step) VALUES (%s, %s)", (step.version, step.step)
                    )
                made.append(step)
        return made
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s)", (_RUNNER,))


def prepare_schema(url: str, location: str, *, key: str, create: bool, seconds: float) -> None:
    """Create or upgrade the schema if needed, and see that this role may name tenants.

    Raises `StoreTooNew` and `StoreUnavailable`.
    """
    with psycopg.connect(url, autocommit=True, connect_timeout=max(int(seconds), 2)) as connection:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":  # of SQL_ASCII the driver returns bytes, so that no step would be known as applied
            detail = f"the encoding of this database is {encoding}; create one with ENCODING 'UTF8' TEMPLATE template0"
            raise StoreUnavailable(location, detail)
        done = applied_steps(connection)
        known = {step.version for step in shipped_steps()}
        newest = max((version for version, _ in done), default=0)
        if newest > max(known):
            raise StoreTooNew(location, newest, max(known))
        if not done and not create:
            raise StoreUnavailable(location, "there is no store in this database; check the address")
        if not {(version, "pre") for version in known} <= done:
            upgrade(connection)
        elif _SIGNED in done:
            connection.execute("SELECT set_config('recto.tenant', '*', false)")
            connection.execute("SELECT set_config('recto.token', %s, false)", (tenant_token(key, EVERYBODY),))
            connection.execute("SELECT recto.tenant()")


_SECONDS = 30
_HAS_GRAPHS = "SELECT to_regclass('recto.near') IS NOT NULL"
_CAN_MAKE_GRAPHS = "SELECT to_regprocedure('recto.make_graphs()') IS NOT NULL"
_MAKE_GRAPHS = "SELECT recto.make_graphs()"


def upgrade_schema(url: str, *, finish: bool) -> list[MigrationStep]:
    """Connect and apply the missing steps; see `upgrade`."""
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=_SECONDS) as connection:
            return upgrade(connection, finish=finish)
    except psycopg.Error as error:
        raise translate(error, redact_url(url), _SECONDS) from error


def create_graphs(url: str) -> str:
    """Create the tables of vector graphs and describe the outcome; empty if they exist already."""
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=_SECONDS) as connection:
            if connection.execute(_HAS_GRAPHS).fetchone() == (True,):
                return ""
            [lacking] = connection.execute(_MAKE_GRAPHS).fetchone() or [""]
            return f"no graphs of vectors: {lacking}" if lacking else "graphs of vectors: made"
    except psycopg.Error as error:
        raise translate(error, redact_url(url), _SECONDS) from error


_KEEP_KEY = """
INSERT INTO recto.store_keys(role, inner_pad, outer_pad) VALUES (%(role)s, %(inner)s, %(outer)s)
ON CONFLICT (role) DO UPDATE SET inner_pad = EXCLUDED.inner_pad, outer_pad = EXCLUDED.outer_pad, made = now()
WHERE %(replace)s
"""
_BLOCK: Final = 64
"""Block size of SHA-256, to which HMAC pads its key."""


def grant_role(url: str, role: str, *, new_key: bool = False) -> str:
    """Grant a role the rights a gateway needs, and return the key by which it names tenants.

    The key is made with the first grant and cannot be read again: empty if the role has one. `new_key` replaces it.
    """
    text = (resources.files(__package__) / "grants.sql").read_text("utf-8")
    key = f"rk-{secrets.token_urlsafe(32)}"
    padded = key.encode().ljust(_BLOCK, b"\0")
    pads = {"inner": bytes(byte ^ 0x36 for byte in padded), "outer": bytes(byte ^ 0x5C for byte in padded)}
    try:
        with psycopg.connect(url, connect_timeout=_SECONDS) as connection:
            connection.execute(sql.SQL(text).format(role=sql.Identifier(role)))
            if connection.execute(_CAN_MAKE_GRAPHS).fetchone() == (True,):
                connection.execute(_MAKE_GRAPHS)  # it gives the same rights on them
            made = connection.execute(_KEEP_KEY, {"role": role, "replace": new_key, **pads})
            return key if made.rowcount else ""
    except psycopg.Error as error:
        raise translate(error, redact_url(url), _SECONDS) from error
