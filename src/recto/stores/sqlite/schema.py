"""Schema versions of the file: reads them, and applies migrations.

A migration is a numbered `.sql` file, carried out in one transaction together with the version it leads to, so that
a crash leaves the old version or the new one and nothing between.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import apsw
from msgspec import Struct

from recto.text.lazy_re import lazy_re

APPLICATION_ID = int.from_bytes(b"Rcto", "big")
"""Application id of the file, where `file` and other programs look for it."""

_FILE_NAME = lazy_re(r"\d{4}_\w+\.sql")
_OBJECTS = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name"


class Migration(Struct, frozen=True):
    """The migration from the previous version to `version`."""

    version: int
    sql: str


class FileVersion(Struct, frozen=True, kw_only=True):
    """The version information of a file."""

    application: int
    version: int
    min_reader: int
    is_blank: bool
    """Whether the file is empty."""

    @property
    def is_ours(self) -> bool:
        """Whether the file is empty or was made by Recto."""
        return self.application == APPLICATION_ID or (self.is_blank and self.application == self.version == 0)


@cache
def shipped_migrations() -> tuple[Migration, ...]:
    """Return the migrations of this version of Recto, in order."""
    files = Path(__file__).with_name("migrations").iterdir()
    found = [
        Migration(int(file.name[:4]), file.read_text("utf-8")) for file in files if _FILE_NAME.fullmatch(file.name)
    ]
    return tuple(sorted(found, key=lambda migration: migration.version))


def version_of(connection: apsw.Connection) -> FileVersion:
    """Read the version information of a file."""
    application, version = connection.pragma("application_id"), connection.pragma("user_version")
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    min_reader = version
    if application == APPLICATION_ID and "format" in tables:
        row = connection.execute("SELECT value FROM format WHERE name = 'min_reader'").fetchone()
        min_reader = row[0] if row and type(row[0]) is int else version
    return FileVersion(application=application, version=version, min_reader=min_reader, is_blank=not tables)


def upgrade(connection: apsw.Connection, migrations: tuple[Migration, ...], application: int = APPLICATION_ID) -> None:
    """Apply the missing migrations, each atomically."""
    for migration in migrations:
        connection.execute("BEGIN IMMEDIATE")
        try:
            if connection.pragma("user_version") < migration.version:
                connection.execute(migration.sql).fetchall()  # to its end, not to its first row
                connection.execute(f"PRAGMA user_version={migration.version}; PRAGMA application_id={application}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def objects_of(connection: apsw.Connection) -> dict[tuple[str, str], str]:
    """Return every table, index, trigger and view by type and name, with its SQL."""
    return {(kind, name): sql for kind, name, sql in connection.execute(_OBJECTS)}


@cache
def expected_objects(migrations: tuple[Migration, ...]) -> dict[tuple[str, str], str]:
    """Return what `objects_of` gives for an intact file."""
    connection = apsw.Connection(":memory:")
    upgrade(connection, migrations)
    try:
        return objects_of(connection)
    finally:
        connection.close()
