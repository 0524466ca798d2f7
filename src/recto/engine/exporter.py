"""Exports sessions: as Recto's own JSONL, as an array of messages, or as the file they were imported from.

Every format is streamed, so a session of any length needs little memory.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from recto.engine.importer import import_key
from recto.errors import InputError
from recto.formats.session_files import recto_jsonl, source_of
from recto.transcript.entries import IMPORTED, MESSAGE, Head
from recto.transcript.protocols import TranscriptStore

Advance = Callable[[int], None]
_PART_BYTES = 4 * 1024 * 1024


def export_recto(store: TranscriptStore, sessions: Sequence[str], advance: Advance = lambda _: None) -> Iterator[bytes]:
    """Export complete sessions, losslessly. Entries appended during the export are not included."""
    heads: dict[str, Head] = {session: store.head(session) for session in sessions}
    yield recto_jsonl.write_header(heads)
    for session, head in heads.items():
        for entry in store.read(session, 1, head.seq):
            yield recto_jsonl.write_line(entry)
            advance(1)


def export_part(store: TranscriptStore, session: str, start: int, stop: int, through: int) -> Iterator[bytes]:
    """Export some entries of a session that is exported through an entry; the first part begins with the header.

    The part ends early where its entries are large; there is at least one.
    """
    if start == 1:
        [last] = store.pick(session, [through])
        yield recto_jsonl.write_header({session: Head(last.seq, last.hash)})
    size = 0
    for entry in store.read(session, start, stop):
        line = recto_jsonl.write_line(entry)
        yield line
        size += len(line)
        if size >= _PART_BYTES:
            return


def export_messages(store: TranscriptStore, session: str, advance: Advance = lambda _: None) -> Iterator[bytes]:
    """Export the messages alone as a JSON array, each byte for byte as the provider wrote it."""
    separator = b"["
    for entry in store.read(session):
        advance(1)
        if entry.kind == MESSAGE:
            yield separator + b"\n" + entry.content
            separator = b","
    yield b"\n]\n" if separator == b"," else b"[]\n"


def export_original(store: TranscriptStore, session: str, advance: Advance = lambda _: None) -> Iterator[bytes]:
    """Export the file a session was imported from, byte for byte, including the file's other conversations.

    Each entry is read twice, and `advance` is called both times: bytes that differ from the file, as when it was
    imported again after a change, raise before any is yielded.
    """
    payload = _import_event(store, session)
    heads = {name: store.head(name).seq for name in _sessions_of_file(store, session, payload)}
    digest = hashlib.sha256()
    for source in _file_sources(store, heads, payload["file"], advance):
        digest.update(source)
    if store.find(session, import_key(digest.hexdigest())) is None:
        raise InputError(
            f"'{payload['file']}' was imported more than once and changed between; its first form cannot be given back "
            "exactly. Every message is still there: export it as 'recto' or 'messages'."
        )
    yield from _file_sources(store, heads, payload["file"], advance)


def _file_sources(store: TranscriptStore, heads: Mapping[str, int], file: str, advance: Advance) -> Iterator[bytes]:
    """Yield the pieces of the file in its order; conversations may be interleaved in it."""
    parts = [_file_pieces(store, session, through, file, advance) for session, through in heads.items()]
    return (source for _, source in heapq.merge(*parts, key=lambda piece: piece[0]))


def _file_pieces(
    store: TranscriptStore, session: str, through: int, file: str, advance: Advance
) -> Iterator[tuple[int, bytes]]:
    """Yield the pieces of the file that a session holds, with their position in the file."""
    for entry in store.read(session, 1, through):
        advance(1)
        meta = entry.metadata
        if meta.get("file") == file and "layout" in meta:
            yield meta["place"], source_of(entry.content, meta["layout"])


def _import_event(store: TranscriptStore, session: str) -> dict[str, Any]:
    """Return the payload of the newest event that ended an import of the file.

    Of events near each other it is the one with the most conversations: an older copy of the file may have fewer.
    """
    imported = [entry for entry in store.tail(session, 50) if entry.kind == IMPORTED]
    if not imported:
        imported = [entry for entry in store.read(session) if entry.kind == IMPORTED]
    if not imported:
        raise InputError(f"session '{session}' was not imported from a file, so it has no original form")
    payloads: list[dict[str, Any]] = [json.loads(entry.content) for entry in reversed(imported)]
    return max((each for each in payloads if each["file"] == payloads[0]["file"]), key=lambda each: each["parts"])


def _sessions_of_file(store: TranscriptStore, session: str, payload: dict[str, Any]) -> list[str]:
    """Return the sessions imported from the same file, in the file's order."""
    if payload["parts"] == 1:
        return [session]
    key = import_key(payload["sha256"])
    by_part: dict[int, str] = {}
    for summary in store.sessions():
        event = store.find(summary.session, key)
        if event is not None:
            by_part[json.loads(event.content)["part"]] = summary.session
    return [by_part[part] for part in sorted(by_part)]
