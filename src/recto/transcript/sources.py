"""Where sessions come from: the agent that wrote a session, and the project folder it worked in.

Each is a record of the tenant, written once per session: when it is imported, or when a gateway that knows both opens
it. A search can be limited to the sessions of a project or of an agent, and names the source of what it finds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct

from recto.errors import KeyReused
from recto.transcript.entries import Clock, Draft, Entry, event
from recto.transcript.protocols import Records
from recto.transcript.session_keys import TenantStore

_AREA: Final = "sources"


class SessionSource(Struct, frozen=True, kw_only=True):
    """Where a session comes from; empty text for what is not known."""

    agent: str = ""
    """The program: `claude-code`, `codex`, …"""
    project: str = ""
    """The folder it worked in."""

    def contains(self, other: SessionSource) -> bool:
        """Whether a session is of this agent and project; a folder below a project's belongs to it. Empty: of any."""
        here, folder = _slashes(other.project), _slashes(self.project)
        is_agent = not self.agent or f"{other.agent}-".startswith(f"{self.agent}-")
        return is_agent and (not folder or here == folder or here.startswith(f"{folder}/"))


def source_of(agent: str, project: str) -> SessionSource | None:
    """Return a source to search; None if neither is named."""
    return SessionSource(agent=agent, project=project) if agent or project else None


class SessionSources:
    """The sources of a tenant's sessions. What was read is kept; only new records are read again."""

    def __init__(self, store: TenantStore) -> None:
        self._store = store
        self._known: dict[str, SessionSource] = {}
        self._read = 0

    def record(self, clock: Clock, session: str, source: SessionSource) -> None:
        """Record where a session comes from; the first record of a session wins."""
        with suppress(KeyReused):
            self._store.append_record(_AREA, "", [_draft(clock, session, source)])

    def of(self, session: str) -> SessionSource:
        """Return where a session comes from."""
        return self.known().get(session, SessionSource())

    def matching(self, wanted: SessionSource) -> frozenset[str]:
        """Return the stored keys of the sessions of an agent, of a project, or of both."""
        return frozenset(key for key, source in self.known().items() if wanted.contains(source))

    def known(self) -> Mapping[str, SessionSource]:
        """Return where sessions come from, by their stored keys."""
        head = self._store.record_head(_AREA, "").seq
        if head > self._read:
            for entry in self._store.read_records(_AREA, "", self._read + 1, head):
                self._known.setdefault(json.loads(entry.content)["session"], _source_in(entry))
            self._read = head
        return self._known


def sources_of(store: TenantStore, sessions: Iterable[str]) -> dict[str, SessionSource]:
    """Return where these sessions come from, by their stored keys, as far as it is known. Others are not read."""
    if not store.record_head(_AREA, "").seq:
        return {}
    found = {session: store.find_record(_AREA, "", _key(session)) for session in sessions}
    return {session: _source_in(entry) for session, entry in found.items() if entry is not None}


def source_record(store: TenantStore, clock: Clock, source: SessionSource, more: Records | None) -> Records:
    """Return records for the session that entries are stored in: its source, and others."""

    def made(entries: Sequence[Entry]) -> list[tuple[str, Draft]]:
        own = (store.record_session(_AREA, ""), _draft(clock, entries[0].session, source))
        return [own, *(more(entries) if more is not None else ())]

    return made


def _draft(clock: Clock, session: str, source: SessionSource) -> Draft:
    payload = {"session": session, "agent": source.agent, "project": source.project}
    return event(clock, _AREA, payload, _key(session), surface="source")


def _key(session: str) -> str:
    return hashlib.sha256(session.encode()).hexdigest()


def _source_in(entry: Entry) -> SessionSource:
    payload = json.loads(entry.content)
    return SessionSource(agent=payload["agent"], project=payload["project"])


def _slashes(path: str) -> str:
    return path.replace("\\", "/").rstrip("/")
