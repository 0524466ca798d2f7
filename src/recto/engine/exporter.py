"""Gives sessions out again: as Recto's own JSONL, as an array of messages, or as the very file they were imported from.

Every form is a stream of bytes, so that a session of any length needs little memory.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from recto.engine.importer import IMPORTED, import_key
from recto.errors import InputError
from recto.formats.session_files import recto_jsonl, source_of
from recto.transcript.entries import MESSAGE, Head
from recto.transcript.protocols import TranscriptStore

Advance = Callable[[int], None]


def export_recto(store: TranscriptStore, sessions: Sequence[str], advance: Advance = lambda _: None) -> Iterator[bytes]:
    """Whole sessions, losslessly: every field of every entry. What is appended meanwhile is not in it."""
    heads: dict[str, Head] = {session: store.head(session) for session in sessions}
    yield recto_jsonl.write_header(heads)
    for session, head in heads.items():
        for entry in store.read(session, 1, head.seq):
            yield recto_jsonl.write_line(entry)
            advance(1)


def export_messages(store: TranscriptStore, session: str, advance: Advance = lambda _: None) -> Iterator[bytes]:
    """The messages alone as a JSON array, each byte for byte as the provider wrote it."""
    separator = b"["
    for entry in store.read(session):
        advance(1)
        if entry.kind == MESSAGE:
            yield separator + b"\n" + entry.content
            separator = b","
    yield b"\n]\n" if separator == b"," else b"[]\n"


def export_original(store: TranscriptStore, session: str, advance: Advance = lambda _: None) -> Iterator[bytes]:
    """The file a session was imported from, byte for byte, with the file's other conversations where it had several.

    Raises at the end if the bytes are not those of the file, as when the file was imported again after a change.
    """
    about = _import_of(store, session)
    digest = hashlib.sha256()
    parts = [_placed(store, name, about["file"], advance) for name in _parts(store, session, about)]
    for _, source in heapq.merge(*parts, key=lambda placed: placed[0]):  # conversations may take turns in a file
        digest.update(source)
        yield source
    if digest.hexdigest() != about["sha256"]:
        raise InputError(
            f"'{about['file']}' was imported more than once and changed between; its first form cannot be given back "
            "exactly. Every message is still there: export it as 'recto' or 'messages'."
        )


def _placed(store: TranscriptStore, session: str, file: str, advance: Advance) -> Iterator[tuple[int, bytes]]:
    """The pieces of the file that a session holds, each with its place in the file."""
    for entry in store.read(session):
        advance(1)
        meta = entry.metadata
        if meta.get("file") == file and "layout" in meta:
            yield meta["place"], source_of(entry.content, meta["layout"])


def _import_of(store: TranscriptStore, session: str) -> dict[str, Any]:
    """What the event that ended the import says. It is the last entry, unless the session went on."""
    found = next((entry for entry in reversed(store.tail(session, 50)) if entry.kind == IMPORTED), None)
    for entry in store.read(session) if found is None else ():
        found = entry if entry.kind == IMPORTED else found
    if found is None:
        raise InputError(f"session '{session}' was not imported from a file, so it has no original form")
    about: dict[str, Any] = json.loads(found.content)
    return about


def _parts(store: TranscriptStore, session: str, about: dict[str, Any]) -> list[str]:
    """The sessions that came from the same file, in the file's order."""
    if about["parts"] == 1:
        return [session]
    key = import_key(about["sha256"])
    found: dict[int, str] = {}
    for summary in store.sessions():
        event = store.find(summary.session, key)
        if event is not None:
            found[json.loads(event.content)["part"]] = summary.session
    return [found[part] for part in sorted(found)]
