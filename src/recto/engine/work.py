"""`session.work`: what was done with a file, how a command ran, how an error ended, which numbers came up.

Reads stored entries on demand, newest first and bounded; nothing is kept and nothing is stored.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from recto.engine.arguments import check_count, check_entry_number, check_text

if TYPE_CHECKING:
    from recto.context.work import CommandHistory, ErrorHistory, FileHistory, NumberHistory, WorkLog
    from recto.transcript.entries import Entry
    from recto.transcript.protocols import TranscriptStore

MAX_ENTRIES = 20_000
"""Entries that one question reads; the next page reads older ones."""
MAX_BYTES = 64 * 1024 * 1024
"""Content of entries that one question holds in memory."""


class SessionWork:
    """Evidence of the work in one session.

    Every call takes `limit`, the number of items at most, and `before`, the entry before which to search: the `next` of
    the page before.
    """

    def __init__(self, store: TranscriptStore, session: str) -> None:
        self._store = store
        self._session = session

    def file(self, path: str, *, limit: int = 20, before: int | None = None) -> FileHistory:
        """Every read, edit, creation and deletion of a file, newest first, with the reason the assistant gave."""
        _check("the path of a file", path, limit, before)
        return self._log(before).file(path, limit)

    def command(self, text: str, *, limit: int = 20, before: int | None = None) -> CommandHistory:
        """The runs of a command, newest first, and what changed between a failing and the next passing run."""
        _check("a command", text, limit, before)
        return self._log(before).command(text, limit)

    def error(self, text: str, *, limit: int = 20, before: int | None = None) -> ErrorHistory:
        """Where an error came from, how often, what followed, and the run after which it no longer came."""
        _check("the text of an error", text, limit, before)
        is_recent = before is None or before > self._store.head(self._session).seq - MAX_ENTRIES
        return self._log(None if is_recent else before).error(text, limit, before)

    def number(self, text: str, *, limit: int = 20, before: int | None = None) -> NumberHistory:
        """Numbers with units in lines that contain these words, newest first."""
        _check("the text around a number", text, limit, before)
        return self._log(before).number(text, limit)

    def _log(self, before: int | None) -> WorkLog:
        from recto.context.work import WorkLog  # noqa: PLC0415  # start-up: the rules of facts take a while to load

        entries, first = recent_entries(self._store, self._session, before)
        return WorkLog(entries, first)


def _check(name: str, text: object, limit: object, before: object) -> None:
    """Raises `InputError` for arguments with which nothing can be found."""
    check_text(name, text)
    check_count("'limit'", limit, 1)
    if before is not None:
        check_entry_number("'before'", before)


def recent_entries(store: TranscriptStore, session: str, before: int | None = None) -> tuple[list[Entry], int]:
    """The newest entries before one, as many as one question may read, and the number of the first of them."""
    head = store.head(session).seq
    last = head if before is None else min(before - 1, head)
    first = max(last - MAX_ENTRIES + 1, 1)
    entries: deque[Entry] = deque()
    size = 0
    for entry in store.read(session, first, last) if last else ():
        entries.append(entry)
        size += len(entry.content)
        while size > MAX_BYTES and len(entries) > 1:
            size -= len(entries.popleft().content)
    return list(entries), entries[0].seq if entries else 1
