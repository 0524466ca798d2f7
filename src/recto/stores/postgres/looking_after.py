"""What the owner of a database does now and then: bring its schema up to date, and give rights to those who use it.

Graphs of vectors are made where the server can have them; they may come later than the store.
"""

from __future__ import annotations

from importlib import resources

import psycopg
from psycopg import sql

from recto.stores.postgres.faults import named, translate
from recto.stores.postgres.schema import Step, upgrade

_SECONDS = 30
_HAS_GRAPHS = "SELECT to_regclass('recto.near') IS NOT NULL"
_CAN_MAKE_GRAPHS = "SELECT to_regprocedure('recto.make_graphs()') IS NOT NULL"
_MAKE_GRAPHS = "SELECT recto.make_graphs()"


def upgraded(url: str, *, finish: bool) -> list[Step]:
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
