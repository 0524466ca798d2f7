"""Sessions that agents keep in a database, written as one file of lines per session, which a reader understands.

The database is opened for reading only, and read in one transaction: the agent may go on writing to it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import apsw

from recto.errors import InputError
from recto.formats.json_spans import Json
from recto.formats.message import object_in

_MAGIC = b"SQLite format 3\0"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_COUNTED = re.compile(r"\d{8}_\d{1,5}")
"""An id that goose counts per day: the same on every machine."""
_OPENCODE_COLUMNS = "id, parent_id, directory, project_id, time_created, time_updated"
_SECONDS_UNFINISHED = 600
"""An answer that is not complete is left out for so long after its session changed: it will be stored when it is."""


_BUBBLE_KEYS = ("type", "createdAt", "text", "thinking", "toolFormerData", "modelInfo")
"""What is read of a bubble of Cursor; the rest is its screen's, and large."""
_CHATS = "workbench.panel.aichat.view.aichat.chatdata"
"""Where older versions of Cursor keep the chats of a workspace."""
_MAX_WORKSPACES = 1_000
"""Workspaces of Cursor in which the projects of sessions are looked for."""


def is_database(path: Path) -> bool:
    """Whether a file is an SQLite database."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def write_sessions(path: Path, folder: Path, now: int) -> list[Path]:
    """Writes each session of a database as a file below the folder.

    Args:
        path: The database of an agent: opencode, goose or Cursor.
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
            return [_file(folder, *session) for session in write(connection, path, now // 1_000)]
        finally:
            connection.close()
    except apsw.Error as error:
        raise InputError(f"'{path.name}' cannot be read: {error}. Nothing was imported from it.") from None


_Session = tuple[str, Iterator[dict[str, Any]]]
"""The name of a session and the lines of its file."""


def _writer(connection: apsw.Connection, path: Path) -> Callable[[apsw.Connection, Path, int], Iterator[_Session]]:
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


def _opencode(connection: apsw.Connection, _: Path, now: int) -> Iterator[_Session]:
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


def _goose(connection: apsw.Connection, _: Path, now: int) -> Iterator[_Session]:
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


def _cursor(connection: apsw.Connection, path: Path, now: int) -> Iterator[_Session]:
    """Yields the sessions of the database for all workspaces, or the chats in the older one of a workspace."""
    chats = object_in(_json(_item(connection, _CHATS))).get("tabs")
    for tab in map(object_in, chats if isinstance(chats, list) else []):
        name, bubbles = str(tab.get("tabId") or tab.get("id") or ""), tab.get("bubbles")
        if name and isinstance(bubbles, list) and bubbles:
            about: dict[str, Any] = {"composerId": name, "cwd": _workspace_folder(path.parent)}
            places = enumerate(map(object_in, bubbles))
            rows = [{"bubbleId": f"{place}", **bubble, "text": _chat_text(bubble)} for place, bubble in places]
            yield name, _cursor_lines(about, rows, None)
    if not connection.table_exists(None, "cursorDiskKV"):
        return
    folders = _cursor_folders(connection, path.parent.parent)
    between = "key >= 'composerData:' and key < 'composerData;'"
    for (key,) in list(connection.execute(f"select key from cursorDiskKV where {between} order by key")):  # noqa: S608
        value, name = _disk_value(connection, str(key)), str(key).partition(":")[2]
        composer = object_in(_json(value))
        rows = _bubbles(connection, name, composer) if composer or not value else [{"bubbleId": str(key)}]
        if rows and composer.get("status") == "generating" and _is_recent(composer.get("lastUpdatedAt"), now):
            rows.pop()
        if not all(map(_is_empty, rows)):
            folder = _fs_path(composer) or folders.get(name, "")
            about = {"composerId": name, "cwd": folder, "name": composer.get("name")}
            yield name, _cursor_lines(about, rows, composer.get("createdAt"))


def _cursor_lines(about: dict[str, Any], bubbles: list[dict[str, Any]], created: object) -> Iterator[dict[str, Any]]:
    yield {key: value for key, value in {**about, "createdAt": created}.items() if value}
    for bubble in bubbles:
        kept = {key: bubble[key] for key in (*_BUBBLE_KEYS, "missing") if bubble.get(key)}
        yield {"composerId": about["composerId"], "bubbleId": bubble["bubbleId"], "createdAt": created, **kept}


def _bubbles(connection: apsw.Connection, session: str, composer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the bubbles of a session in order: rows of their own, or in older versions a list within the session.

    A row that is no object becomes a bubble without a type, which the reader reports.
    """
    heads = composer.get("fullConversationHeadersOnly")
    if not isinstance(heads, list) or not heads:
        inline = composer.get("conversation")
        return [{"bubbleId": "", **object_in(bubble)} for bubble in (inline if isinstance(inline, list) else [])]
    found = []
    for name in (str(object_in(head).get("bubbleId")) for head in heads):
        value = _disk_value(connection, f"bubbleId:{session}:{name}")
        found.append({**object_in(_json(value)), "bubbleId": name, **({"missing": True} if value is None else {})})
    return found


def _is_empty(bubble: Mapping[str, Any]) -> bool:
    """Whether a bubble holds no message for certain; one without a type is for the reader to report."""
    has_message = bubble.get("text") or object_in(bubble.get("toolFormerData")).get("name")
    return bool(bubble.get("missing") or (bubble.get("type") and not has_message))


def _chat_text(bubble: Mapping[str, Any]) -> object:
    return bubble.get("text") or bubble.get("rawText")


def _is_recent(changed: object, now: int) -> bool:
    return isinstance(changed, int) and now - changed <= _SECONDS_UNFINISHED * 1_000


def _cursor_folders(connection: apsw.Connection, user: Path) -> dict[str, str]:
    """Returns the project folders of sessions: from the list of all of them, or the lists of the workspaces."""
    folders: dict[str, str] = {}
    for file in sorted(user.glob("workspaceStorage/*/state.vscdb"))[:_MAX_WORKSPACES]:
        if folder := _workspace_folder(file.parent):
            with suppress(apsw.Error), closing(apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)) as opened:
                for session in _composers(_json(_item(opened, "composer.composerData"))):
                    folders[str(session.get("composerId"))] = folder
    listed = _composers(_json(_item(connection, "composer.composerHeaders")))
    if connection.table_exists(None, "composerHeaders"):
        listed += [object_in(_json(value)) for (value,) in connection.execute("select value from composerHeaders")]
    return folders | {str(session.get("composerId")): path for session in listed if (path := _fs_path(session))}


def _composers(listing: object) -> list[dict[str, Any]]:
    listed = listing.get("allComposers") if isinstance(listing, dict) else None
    return [object_in(session) for session in listed] if isinstance(listed, list) else []


def _fs_path(session: Mapping[str, Any]) -> str:
    named = object_in(object_in(session.get("workspaceIdentifier")).get("uri")).get("fsPath")
    return named if isinstance(named, str) else ""


def _workspace_folder(workspace: Path) -> str:
    """Returns the folder that a workspace is of; empty for one of several folders."""
    with suppress(OSError, ValueError):
        folder = unquote(urlsplit(str(json.loads((workspace / "workspace.json").read_bytes())["folder"])).path)
        return folder[1:] if re.match(r"/[A-Za-z]:", folder) else folder
    return ""


def _item(connection: apsw.Connection, key: str) -> object:
    if not connection.table_exists(None, "ItemTable"):
        return None
    return next((value for (value,) in connection.execute("select value from ItemTable where key = ?", (key,))), None)


def _disk_value(connection: apsw.Connection, key: str) -> object:
    rows = connection.execute("select value from cursorDiskKV where key = ?", (key,))
    return next((value for (value,) in rows), None)


def _object(text: object) -> dict[str, Json]:
    value = _json(text)
    if not isinstance(value, dict):
        raise InputError("a row of the database is not a JSON object. Nothing was imported from it.")
    return value


def _json(text: object) -> Json:
    try:
        value: Json = json.loads(text if isinstance(text, bytes) else str(text))
    except (ValueError, RecursionError):
        return None
    return value


_WRITERS = (
    (frozenset({"session", "message", "part"}), _opencode),
    (frozenset({"sessions", "messages", "schema_version"}), _goose),
    (frozenset({"cursorDiskKV"}), _cursor),
    (frozenset({"ItemTable"}), _cursor),
)
"""The tables by which the database of an agent is known."""
