"""What the owner of a database does now and then: bring its schema up to date, and give rights to those who use it."""

from __future__ import annotations

from importlib import resources

import psycopg
from psycopg import sql

from recto.stores.postgres.faults import named, translate
from recto.stores.postgres.schema import Step, upgrade

_SECONDS = 30


def upgraded(url: str, *, finish: bool) -> list[Step]:
    """The steps that were missing, and are carried out now."""
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=_SECONDS) as connection:
            return upgrade(connection, finish=finish)
    except psycopg.Error as error:
        raise translate(error, named(url), _SECONDS) from error


def granted(url: str, role: str) -> None:
    """Gives a role what a gateway needs."""
    text = (resources.files(__package__) / "grants.sql").read_text("utf-8")
    try:
        with psycopg.connect(url, connect_timeout=_SECONDS) as connection:
            connection.execute(sql.SQL(text).format(role=sql.Identifier(role)))
    except psycopg.Error as error:
        raise translate(error, named(url), _SECONDS) from error
