"""Note files of a session: virtual files that an agent writes for its next window, stored as events.

Every change is an event that is numbered by its key, so two writers never overwrite each other. An event holds the new
text and the list of all files, so the newest one is enough to know what there is; a file's text is read from the events
that wrote its pieces. Paths are names, not places on a disk.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import asdict

from recto.engine.projection import EventLog, last_numbered
from recto.errors import AppendConflict, InputError, KeyReused, NotHeld
from recto.transcript.entries import Entry
from recto.transcript.protocols import TranscriptStore

NOTE_FILE = "note_file"
"""The event of a change to a note file."""
MAX_FILE_BYTES = 1_000_000
"""UTF-8 bytes of one file."""
MAX_FILES = 500
_MAX_PATH = 300
_MAX_PIECES = 64
"""Events that hold the text of one file; after that it is stored whole again."""
_ATTEMPTS = 8
"""How often a change is tried again after another process changed a file."""


class NoteFile(Struct, frozen=True, kw_only=True):
    """One file, without its text."""

    path: str
    pieces: tuple[int, ...]
    """The numbers of the events that hold its text."""
    bytes: int
    created: int
    """Microseconds since 1970."""
    updated: int


def note_path(path: str, agent: str) -> str:
    """The full path of a file or of a prefix: a relative one is below the notes of the agent.

    Raises:
        InputError: A component is empty, `.` or `..`, or the path is too long.
    """
    home = f"{agent.rstrip('/')}/notes"
    full = path if path.startswith("/") else f"{home}/{path}"
    parts = full.removeprefix("/").removesuffix("/").split("/")
    if len(full) > _MAX_PATH or not full.isprintable() or any(part in ("", ".", "..") for part in parts):
        raise InputError(
            f"path {path!r:.80}: components of a note's path are not empty, '.' or '..', and it has at most "
            f"{_MAX_PATH} printable characters"
        )
    return full


def read_files(store: TranscriptStore, session: str) -> tuple[int, dict[str, NoteFile]]:
    """The number of the last change, and the files by path."""
    number, entry = last_numbered(store, session, _key)
    return number, _files_in(entry) if entry is not None else {}


def read_text(store: TranscriptStore, session: str, path: str) -> str:
    """The text of a file. Raises `NotHeld` where there is none."""
    _, files = read_files(store, session)
    if path not in files:
        raise NotHeld(f"there is no note '{path:.80}'; list_files_by_prefix lists what there is")
    return "".join(_piece(store, session, number) for number in files[path].pieces)


def write_file(events: EventLog, path: str, text: str, *, append: bool) -> NoteFile:
    """Create or replace a file, or append to it.

    Raises:
        InputError: The file would be larger than a file may be, or there are too many.
        AppendConflict: Other processes write faster than this one.
    """
    store, session, now = events.store, events.session, events.now()
    for _ in range(_ATTEMPTS):
        number, files = read_files(store, session)
        known = files.get(path)
        before = known.pieces if known is not None and append else ()
        size = len(text.encode("utf-8", "surrogatepass")) + (known.bytes if known is not None and before else 0)
        if size > MAX_FILE_BYTES or (known is None and len(files) >= MAX_FILES):
            raise InputError(
                f"a note has at most {MAX_FILE_BYTES:,} bytes, and a session at most {MAX_FILES:,} notes: begin "
                "another file, or replace an old one. Nothing was written."
            )
        is_whole = len(before) >= _MAX_PIECES
        stored = read_text(store, session, path) + text if is_whole else text
        pieces = (number + 1,) if is_whole else (*before, number + 1)
        file = NoteFile(
            path=path, pieces=pieces, bytes=size, created=known.created if known is not None else now, updated=now
        )
        rows = {name: asdict(other) for name, other in (files | {path: file}).items()}
        with suppress(KeyReused):  # another process wrote one just now
            events.append(NOTE_FILE, {"path": path, "text": stored, "files": rows}, _key(number + 1))
            return file
    raise AppendConflict(session, None, store.head(session).seq, "others write faster than we can")


def _key(number: int) -> str:
    return f"note-file/{number}"


def _files_in(entry: Entry) -> dict[str, NoteFile]:
    rows: Mapping[str, Mapping[str, object]] = json.loads(entry.content).get("files", {})
    return {
        path: NoteFile(**{**row, "pieces": tuple(row["pieces"])})  # type: ignore[arg-type]  # as written above
        for path, row in rows.items()
    }


def _piece(store: TranscriptStore, session: str, number: int) -> str:
    entry = store.find(session, _key(number))
    return str(json.loads(entry.content)["text"]) if entry is not None else ""
