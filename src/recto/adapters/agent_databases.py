"""Sessions that agents keep in a database, written as one file of lines per session, which a reader understands.

The database is opened for reading only, and read in one transaction: the agent may go on writing to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from recto.errors import InputError
from recto.formats.message import object_in

_MAGIC = b"SQLite format 3\0"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_TABLES = {"session", "message", "part"}
_SECONDS_UNFINISHED = 600
"""An answer that is not complete is left out for so long after its session changed: it will be stored when it is."""


def is_database(path: Path) -> bool:
    """Whether a file is an SQLite database."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def write_sessions(path: Path, folder: Path, now: int) -> list[Path]:
    """Writes each session of a database as a file below the folder, oldest first.

    Args:
        path: The database of an agent: opencode.
        folder: Where the files are written.
        now: The time, in microseconds.

    Raises:
        InputError: The database cannot be read, or is not one of a known agent.
    """
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            connection.set_busy_timeout(5_000)
            connection.execute("begin")
            return list(_opencode(connection, path, folder, now // 1_000))
        finally:
            connection.close()
    except apsw.Error as error:
        raise InputError(f"'{path.name}' cannot be read: {error}. Nothing was imported from it.") from None


def _opencode(connection: apsw.Connection, path: Path, folder: Path, now: int) -> Iterator[Path]:
    tables = {str(name) for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
    if not tables >= _TABLES:
        raise InputError(f"'{path.name}' is a database of a program that is not known. Nothing was imported from it.")
    columns = "id, parent_id, directory, title, project_id, time_created, time_updated"
    for row in list(connection.execute(f"select {columns} from session order by time_created, id")):  # noqa: S608
        session = dict(zip(columns.split(", "), row, strict=True))
        file = folder / f"{_UNSAFE.sub('_', str(session['id']))[:100]}.jsonl"
        lines = _lines(connection, session, now)
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        yield file


def _lines(connection: apsw.Connection, session: dict[str, Any], now: int) -> Iterator[dict[str, Any]]:
    yield {
        "info": {
            "id": session["id"],
            "directory": session["directory"],
            "projectID": session["project_id"],
            "parentID": session["parent_id"],
            "time": {"created": session["time_created"]},
        }
    }
    is_settled = now - session["time_updated"] > _SECONDS_UNFINISHED * 1_000
    messages = connection.execute(
        "select id, data from message where session_id = ? order by time_created, id", (session["id"],)
    )
    for name, data in list(messages):
        info = {"id": name, "sessionID": session["id"], **_object(data)}
        if info.get("role") == "assistant" and not is_settled and not object_in(info.get("time")).get("completed"):
            return
        parts = connection.execute("select id, data from part where message_id = ? order by id", (name,))
        yield {"info": info, "parts": [{"id": part, **_object(content)} for part, content in parts]}


def _object(text: object) -> dict[str, Any]:
    try:
        value = json.loads(str(text))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InputError("a row of the database is not a JSON object. Nothing was imported from it.")
    return value
