"""The versions of the database: how one is told, and how an older one becomes the newest while others use it.

A migration has two steps. What is new is added before the new version serves (`pre`), what is no longer used is taken
away when no old one serves any more (`post`). One runner at a time; each step is all there or not at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

import psycopg
from psycopg import sql

from recto.errors import StoreTooNew, StoreUnavailable
from recto.stores.postgres.errors import named, translate
from recto.stores.postgres.pool import EVERYBODY, ConnectionPool

_GUARDED: Final = ("entries", "heads", "kept_heads")
_TRIGGERS: Final = {
    "entries": {"entries_follow", "entries_keep", "entries_stay"},
    "heads": {"heads_advance", "heads_stay"},
    "kept_heads": {"kept_heads_stay"},
}
_FOUND = """
SELECT c.relname, t.tgname, t.tgenabled <> 'D' FROM pg_trigger AS t
JOIN pg_class AS c ON c.oid = t.tgrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'recto' AND NOT t.tgisinternal
"""
_WALLS = """
SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = 'recto' AND c.relname = ANY(%(tables)s)
"""
_ASTRAY = """
SELECT h.session, h.seq FROM recto.heads AS h
LEFT JOIN recto.entries AS e ON e.session = h.session AND e.seq = h.seq
WHERE h.seq > 0 AND e.hash IS DISTINCT FROM h.hash ORDER BY h.session LIMIT 20
"""
_PARTS = 16


async def damage_in(link: ConnectionPool) -> list[str]:
    """What is wrong, in words; empty when nothing."""
    triggers = await link.fetched(EVERYBODY, _FOUND)
    walls: dict[str, bool] = dict(await link.fetched(EVERYBODY, _WALLS, {"tables": list(_GUARDED)}))
    astray = await link.fetched(EVERYBODY, _ASTRAY)
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
    open_ = [f"table '{table}' is not walled off by tenant" for table in _GUARDED if not walls.get(table)]
    return [*gone, *open_, *(f"session '{session}': entry {seq}, its end, is not there" for session, seq in astray)]


_FILE_NAME = re.compile(r"(\d{4})_\w+\.(pre|post)\.sql")
_RUNNER = 0x526374_6F0001
"""The lock of who migrates; nothing else takes one."""
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
    """One step of a migration."""

    version: int
    step: str
    sql: str


@cache
def shipped_steps() -> tuple[MigrationStep, ...]:
    """The steps that this Recto knows, in order: within a version `pre` before `post`."""
    files = (resources.files(__package__) / "migrations").iterdir()
    found = [
        MigrationStep(int(name[1]), name[2], file.read_text("utf-8"))
        for file in files
        if (name := _FILE_NAME.fullmatch(file.name))
    ]
    return tuple(sorted(found, key=lambda one: (one.version, one.step != "pre")))


def done_in(connection: psycopg.Connection) -> set[tuple[int, str]]:
    """The steps that were carried out; empty where there is no store yet."""
    row = connection.execute(_IS_THERE).fetchone()
    return set(connection.execute(_DONE).fetchall()) if row and row[0] else set()


def upgrade(connection: psycopg.Connection, *, finish: bool = False) -> list[MigrationStep]:
    """Carries out the steps that are missing and gives them back. `finish`: no older Recto serves any more.

    The step that takes away what an older version used waits for `finish`, except in a database that has nothing yet.
    """
    connection.execute("SELECT pg_advisory_lock(%s)", (_RUNNER,))
    try:
        connection.execute(_TABLE)
        done = done_in(connection)
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


def prepared(url: str, location: str, *, create: bool, seconds: float) -> None:
    """Sees to it that the database has what this Recto needs. Raises `StoreTooNew`, and `StoreUnavailable`."""
    with psycopg.connect(url, autocommit=True, connect_timeout=max(int(seconds), 2)) as connection:
        done = done_in(connection)
        known = {step.version for step in shipped_steps()}
        newest = max((version for version, _ in done), default=0)
        if newest > max(known):
            raise StoreTooNew(location, newest, max(known))
        if not done and not create:
            raise StoreUnavailable(location, "there is no store in this database; check the address")
        if {(version, "pre") for version in known} <= done:
            return
        upgrade(connection)


_SECONDS = 30
_HAS_GRAPHS = "SELECT to_regclass('recto.near') IS NOT NULL"
_CAN_MAKE_GRAPHS = "SELECT to_regprocedure('recto.make_graphs()') IS NOT NULL"
_MAKE_GRAPHS = "SELECT recto.make_graphs()"


def upgraded(url: str, *, finish: bool) -> list[MigrationStep]:
    """The steps that were missing, and are carried out now."""
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=_SECONDS) as connection:
            return upgrade(connection, finish=finish)
    except psycopg.Error as error:
        raise translate(error, named(url), _SECONDS) from error


def graphs_made(url: str) -> str:
    """What came of making the graphs of vectors, in words; nothing where they were there already."""
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=_SECONDS) as connection:
            if connection.execute(_HAS_GRAPHS).fetchone() == (True,):
                return ""
            [lacking] = connection.execute(_MAKE_GRAPHS).fetchone() or [""]
            return f"no graphs of vectors: {lacking}" if lacking else "graphs of vectors: made"
    except psycopg.Error as error:
        raise translate(error, named(url), _SECONDS) from error


def granted(url: str, role: str) -> None:
    """Gives a role what a gateway needs."""
    text = (resources.files(__package__) / "grants.sql").read_text("utf-8")
    try:
        with psycopg.connect(url, connect_timeout=_SECONDS) as connection:
            connection.execute(sql.SQL(text).format(role=sql.Identifier(role)))
            if connection.execute(_CAN_MAKE_GRAPHS).fetchone() == (True,):
                connection.execute(_MAKE_GRAPHS)  # it gives the same rights on them
    except psycopg.Error as error:
        raise translate(error, named(url), _SECONDS) from error
