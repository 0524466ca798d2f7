"""The caller of an MCP request and the sessions it may see. Transports decide how sessions are opened.

A session of another tenant, a missing one and one with an invalid name get the same error, so that a caller learns
nothing about other tenants. The default session may be empty: the first note or checkpoint begins it. Until then, calls
that read use the newest session where the caller chose none, as the command line does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from recto.engine.session import Session
from recto.errors import InputError, RequestRefused
from recto.transcript.entries import Entry, SessionSummary, requested_by, session_key
from recto.transcript.session_keys import TenantStore, is_memory_session, parse_pointer, pointer_to
from recto.transcript.sources import SessionSource, SessionSources

SURFACE = "mcp"
"""The surface that changes are stored with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpContext:
    """What one request has access to."""

    store: TenantStore
    """The sessions of the caller's tenant."""
    use: Callable[[str], AbstractContextManager[Session]]
    """Opens a session by the name that its tenant has for it."""
    default_session: str
    """The session that is used where a request names none."""
    is_chosen: bool = True
    """Whether the caller chose the default session: then no other is read in its place."""
    caller: str = ""
    """Stored with every change."""
    may_change: bool = True

    @contextmanager
    def open_session(self, name: str) -> Iterator[Session]:
        """Open a session to read, by name; without one, the default session or the newest (`newest_instead`)."""
        with self.use(self.store.name(self.newest_instead(name) or self.stored_key_of(name))) as session:
            yield session

    def newest_instead(self, name: str) -> str:
        """The stored key of the newest session, where none is named or chosen and the default one is empty; else ''."""
        if name or self.is_chosen or self.store.head(self.store.key(self.default_session)).seq:
            return ""
        own = [summary for summary in self.store.sessions() if not is_memory_session(summary.session)]
        return max(own, key=lambda summary: summary.last_ts).session if own else ""

    @contextmanager
    def open_newest_of(self, source: SessionSource) -> Iterator[Session]:
        """Open the newest session of a project, an agent, or both."""
        wanted = SessionSources(self.store).matching(source)
        found = [summary for summary in self.store.sessions() if summary.session in wanted]
        if not found:
            of = " and ".join(filter(None, (source.agent, source.project)))
            message = f"no session of {of} is known; the tool 'sessions' lists what there is"
            raise RequestRefused(404, "not_found", message)
        with self.use(self.store.name(max(found, key=lambda summary: summary.last_ts).session)) as session:
            yield session

    @contextmanager
    def change_session(self, name: str) -> Iterator[Session]:
        """Open a session for a change; events stored meanwhile name the caller."""
        if not self.may_change:
            raise RequestRefused(403, "forbidden", "this may only read here; it has no right to change anything")
        with self.use(self.store.name(self.stored_key_of(name))) as session, requested_by(self.caller, SURFACE):
            if is_memory_session(session.key):
                message = "this session holds decisions about memory, which people make: 'recto memory' shows how"
                raise RequestRefused(409, "reserved", message)
            yield session

    def stored_key_of(self, name: str) -> str:
        """The stored key of an existing session, or of the default session without a name."""
        default = self.store.key(self.default_session)
        try:
            key = self.store.key(name) if name else default
        except InputError:
            key = ""
        if not key or (key != default and not self.store.head(key).seq):
            raise RequestRefused(404, "not_found", "there is no such session; the tool 'sessions' lists what there is")
        return key

    def list_sessions(self, after: str, limit: int) -> list[SessionSummary]:
        """Sessions by name, from the first one after `after`."""
        return self.store.sessions(self.store.prefix + after, limit)

    def pointer_of(self, text: str) -> str:
        """A pointer as it is; for the number of an entry, its pointer in the default session or the newest."""
        if not (text.isascii() and text.isdecimal()):
            return text
        return pointer_to(self.newest_instead("") or self.stored_key_of(""), int(text))

    def read_pointer(self, pointer: str, around: int = 0, more: int = 0) -> tuple[str, int, list[Entry]]:
        """The stored key and the number that a pointer names, and that entry with its neighbours and `more` after."""
        session, seq = parse_pointer(pointer)
        for key in (session, self._key_in_tenant(session)):
            if key and self.store.owns(key):
                entries = list(self.store.read(key, max(seq - around, 1), seq + max(around, more)))
                if any(entry.seq == seq for entry in entries):
                    return key, seq, entries
                if last := self.store.head(key).seq:
                    message = f"there is no entry {seq}: the session ends at entry {last}"
                    raise RequestRefused(404, "not_found", message)
        message = "there is nothing at this pointer; the tool 'recall' gives pointers to what there is"
        raise RequestRefused(404, "not_found", message)

    def _key_in_tenant(self, session: str) -> str:
        """The key of a session as its tenant names it: a pointer built from a list has no other name."""
        try:
            return self.store.key(session_key(session))
        except InputError:
            return ""
