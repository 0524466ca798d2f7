"""The versions of the database: how one is told, and how an older one becomes the newest while others use it.

A migration has two steps. What is new is added before the new version serves (`pre`), what is no longer used is taken
away when no old one serves any more (`post`). One runner at a time; each step is all there or not at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

import psycopg

from recto.errors import StoreTooNew, StoreUnavailable

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
class Step:
    """One step of a migration."""

    version: int
    step: str
    sql: str


@cache
def shipped_steps() -> tuple[Step, ...]:
    """The steps that this Recto knows, in order: within a version `pre` before `post`."""
    files = (resources.files(__package__) / "migrations").iterdir()
    found = [
        Step(int(name[1]), name[2], file.read_text("utf-8"))
        for file in files
        if (name := _FILE_NAME.fullmatch(file.name))
    ]
    return tuple(sorted(found, key=lambda one: (one.version, one.step != "pre")))


def done_in(connection: psycopg.Connection) -> set[tuple[int, str]]:
    """The steps that were carried out; empty where there is no store yet."""
    row = connection.execute(_IS_THERE).fetchone()
    return set(connection.execute(_DONE).fetchall()) if row and row[0] else set()


def upgrade(connection: psycopg.Connection, *, finish: bool = False) -> list[Step]:
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
