"""Finds messages of a session file that are stored already, because their session also went through the gateway.

A session is recognised by its id where the agent sends it, else by its time: a session of the store that was written to
while the file was. Messages are compared piece by piece, because a file may hold what was one message as several, and
in another format: the texts, the arguments of calls and the results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import Final

from msgspec import Struct

from recto.context.facts.statements import without_reminders
from recto.errors import InputError
from recto.formats import read
from recto.transcript.entries import MESSAGE, SessionSummary
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import list_sessions, session_in, tenant_of

IMPORT: Final = "import"
"""The surface of what was imported."""
_MIN_SHARE = 0.5
"""Share of the messages of a file, besides the first, that a session found by time must hold to be the same."""
_MAX_BY_TIME = 50
"""Sessions that are compared with a file."""
_WHOLE_SECOND = 1_000_000
"""A file may name times in whole seconds."""


class TimeRange(Struct):
    """From the first to the last time that a session names."""

    first: int | None = None
    last: int | None = None

    def add(self, ts: int | None) -> None:
        """Extend the range."""
        if ts is not None:
            self.first = ts if self.first is None else min(self.first, ts)
            self.last = ts if self.last is None else max(self.last, ts)


class RecordedSession(Struct, frozen=True):
    """What is stored of a session already."""

    sessions: frozenset[str]
    """Where."""
    pieces: frozenset[bytes]
    """The pieces of its messages."""


class RecordedMessages:
    """Messages of a store that were not imported. Sessions are listed once."""

    def __init__(self, store: TranscriptStore) -> None:
        self._store = store

    def of(
        self, key: str, times: TimeRange, messages: Callable[[], Iterable[tuple[bytes, str]]]
    ) -> RecordedSession | None:
        """Return what is stored elsewhere of a session that is imported under a key.

        `messages` reads the contents of the file's messages and their formats, where they have to be compared.
        """
        found = {session: self._pieces(session) for session in self._by_id(key)}
        near = [] if found else self._by_time(key, times)
        if near:
            compared = [pieces for content, wire in messages() if (pieces := pieces_of(content, wire))]
            for session in near:
                stored = self._pieces(session)
                begins = bool(compared) and compared[0] <= stored
                if begins and sum(pieces <= stored for pieces in compared) >= _MIN_SHARE * len(compared):
                    found[session] = stored
        return RecordedSession(frozenset(found), frozenset[bytes]().union(*found.values())) if found else None

    @cached_property
    def _sessions(self) -> list[SessionSummary]:
        """Sessions as the gateway names them; those that were only imported have other names."""
        found = list_sessions(self._store)
        return [one for one in found if session_in(one.session).startswith("agent:")]

    def _others(self, key: str) -> Iterator[SessionSummary]:
        tenant = tenant_of(key)
        return (one for one in self._sessions if one.session != key and tenant_of(one.session) == tenant)

    def _by_id(self, key: str) -> list[str]:
        """Return the sessions of any agent under the id of a file, and their branches."""
        return [
            one.session
            for one in self._others(key)
            if session_in(one.session).rpartition(":")[2].partition("~")[0] == session_in(key)
        ]

    def _by_time(self, key: str, times: TimeRange) -> list[str]:
        first, last = times.first, times.last
        if first is None or last is None:
            return []
        last += _WHOLE_SECOND
        near = (one.session for one in self._others(key) if one.first_ts <= last and first <= one.last_ts)
        return list(islice(near, _MAX_BY_TIME))

    def _pieces(self, session: str) -> set[bytes]:
        entries = (entry for entry in self._store.read(session) if entry.kind == MESSAGE and entry.surface != IMPORT)
        return {piece for entry in entries for piece in pieces_of(entry.content, entry.wire)}


def pieces_of(content: bytes, wire: str) -> frozenset[bytes]:
    """Return hashes of the texts, calls and results of a message.

    What only one side may hold is not compared: thoughts, reminders, system text.
    """
    try:
        message = read(content, wire)
    except InputError:
        return frozenset()
    if message.role == "system":
        return frozenset()
    compared = (part for part in message.parts if part.kind in ("text", "call", "result"))
    texts = (_arguments(part.text) if part.kind == "call" else _plain(part.text) for part in compared)
    return frozenset(hashlib.sha256(text.encode(errors="replace")).digest() for text in texts if text)


def _plain(text: str) -> str:
    return without_reminders(text).strip()


def _arguments(text: str) -> str:
    """Arguments of a call without their spacing: some formats have them as text, some as an object."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return text.strip()
