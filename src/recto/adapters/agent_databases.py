"""Sessions that agents keep in a database, written as one file of lines per session, which a reader understands.

The database is opened for reading only, and read in one transaction: the agent may go on writing to it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw

from recto.errors import InputError
from recto.formats.message import object_in

_MAGIC = b"SQLite format 3\0"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_COUNTED = re.compile(r"\d{8}_\d{1,5}")
"""An id that goose counts per day: the same on every machine."""
_OPENCODE_COLUMNS = "id, parent_id, directory, project_id, time_created, time_updated"
_SECONDS_UNFINISHED = 600
"""An answer that is not complete is left out for so long after its session changed: it will be stored when it is."""


def is_database(path: Path) -> bool:
    """Whether a file is an SQLite database."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def write_sessions(path: Path, folder: Path, now: int) -> list[Path]:
    """Writes each session of a database as a file below the folder, oldest first.

    Args:
        path: The database of an agent: opencode or goose.
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
            write = _writer(connection, path)
            return [_file(folder, *session) for session in write(connection, now // 1_000)]
        finally:
            connection.close()
    except apsw.Error as error:
        raise InputError(f"'{path.name}' cannot be read: {error}. Nothing was imported from it.") from None


_Session = tuple[str, Iterator[dict[str, Any]]]
"""The name of a session and the lines of its file."""


def _writer(connection: apsw.Connection, path: Path) -> Callable[[apsw.Connection, int], Iterator[_Session]]:
    """Returns the function that reads the sessions of the agent that has these tables."""
    tables = {str(name) for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
    for own, write in _WRITERS:
        if tables >= own:
            return write
    raise InputError(f"'{path.name}' is a database of a program that is not known. Nothing was imported from it.")


def _file(folder: Path, name: str, lines: Iterator[dict[str, Any]]) -> Path:
    file = folder / f"{_UNSAFE.sub('_', name)[:100]}.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def _rows(connection: apsw.Connection, query: str, *values: str) -> list[dict[str, Any]]:
    """Returns rows by the names of their columns; versions of an agent differ in the columns they have."""
    cursor = connection.execute(query, values)
    return [dict(zip((column[0] for column in cursor.get_description()), row, strict=True)) for row in cursor]


def _opencode(connection: apsw.Connection, now: int) -> Iterator[_Session]:
    for session in _rows(connection, f"select {_OPENCODE_COLUMNS} from session order by time_created, id"):  # noqa: S608
        yield str(session["id"]), _opencode_lines(connection, session, now)


def _opencode_lines(connection: apsw.Connection, session: dict[str, Any], now: int) -> Iterator[dict[str, Any]]:
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


def _goose(connection: apsw.Connection, now: int) -> Iterator[_Session]:
    used = "exists (select 1 from messages where session_id = sessions.id)"
    query = f"select id, working_dir, created_at, * from sessions where {used} order by created_at, id"  # noqa: S608
    for session in _rows(connection, query):
        name = str(session["id"])
        if _COUNTED.fullmatch(name):
            began = f"{session['created_at']} {session['working_dir']}"
            name += f"-{hashlib.sha256(began.encode()).hexdigest()[:8]}"
        yield name, _goose_lines(connection, session, name, now // 1_000)


def _goose_lines(connection: apsw.Connection, session: dict[str, Any], name: str, now: int) -> Iterator[dict[str, Any]]:
    about = ("working_dir", "session_type", "created_at", "parent_session_id")
    yield {"id": name, **{key: session[key] for key in about if session.get(key) is not None}}
    columns = "role, content_json, cast(created_timestamp as integer) as created, *"
    query = f"select {columns} from messages where session_id = ? order by created_timestamp, id"  # noqa: S608
    messages = _rows(connection, query, str(session["id"]))
    for place, message in enumerate(messages, 1):
        metadata = _object(message.get("metadata_json") or "{}")
        metadata.pop("agentVisible", None)  # it changes when goose compacts
        is_new = now - message["created"] <= _SECONDS_UNFINISHED
        if place == len(messages) and message["role"] == "assistant" and is_new and "usage" not in metadata:
            return
        yield {
            "id": message.get("message_id"),
            "role": message["role"],
            "created": message["created"],
            "content": _json(message["content_json"]) or str(message["content_json"]),
            "metadata": metadata,
        }


def _object(text: object) -> dict[str, Any]:
    value = _json(text)
    if not isinstance(value, dict):
        raise InputError("a row of the database is not a JSON object. Nothing was imported from it.")
    return value


def _json(text: object) -> object:
    try:
        return json.loads(str(text))
    except (ValueError, RecursionError):
        return None


_WRITERS = (
    (frozenset({"session", "message", "part"}), _opencode),
    (frozenset({"sessions", "messages", "schema_version"}), _goose),
)
"""The tables by which the database of an agent is known."""
