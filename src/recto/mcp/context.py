"""Whom a request of the MCP server comes from, and which sessions it may see. Where those are opened is not known here.

A session of another tenant, one that is not there and one that nobody can name are the same: not there. The session
that is meant where none is named may be empty still: the first note or checkpoint begins it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from recto.engine.session import Session
from recto.errors import InputError, RequestRefused
from recto.transcript.entries import Entry, SessionSummary, session_key
from recto.transcript.events import requested_by
from recto.transcript.session_keys import is_memory_session, parse_pointer
from recto.transcript.tenancy import TenantStore

SURFACE = "mcp"
"""The way in that changes are told to have come by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpContext:
    """What one request works at."""

    store: TenantStore
    """The sessions of the caller's tenant."""
    use: Callable[[str], AbstractContextManager[Session]]
    """Opens a session by the name that its tenant has for it."""
    own: str
    """The session that is meant where none is named."""
    who: str = ""
    """Who asks, as it is kept with what is changed."""
    may_change: bool = True

    @contextmanager
    def opened(self, name: str) -> Iterator[Session]:
        """The session with a name; the one that is meant without, where it is empty."""
        with self.use(self.store.name(self.stored(name))) as session:
            yield session

    @contextmanager
    def changing(self, name: str) -> Iterator[Session]:
        """The same, for a change: what is stored meanwhile says who asked for it."""
        if not self.may_change:
            raise RequestRefused(403, "forbidden", "this may only read here; it has no right to change anything")
        with self.opened(name) as session, requested_by(self.who, SURFACE):
            if is_memory_session(session.key):
                says = "this session holds decisions about memory, which people make: 'recto memory' shows how"
                raise RequestRefused(409, "reserved", says)
            yield session

    def stored(self, name: str) -> str:
        """The stored key of a session that is there, or of the one that is meant without a name."""
        own = self.store.key(self.own)
        try:
            key = self.store.key(name) if name else own
        except InputError:
            key = ""
        if not key or (key != own and not self.store.head(key).seq):
            raise RequestRefused(404, "not_found", "there is no such session; the tool 'sessions' lists what there is")
        return key

    def listed(self, after: str, most: int) -> list[SessionSummary]:
        """Sessions by name, from the first after one."""
        return self.store.sessions(self.store.prefix + after, most)

    def entries(self, pointer: str, around: int = 0) -> tuple[str, int, list[Entry]]:
        """The stored key and the number that a pointer names, and that entry with its neighbours."""
        named, seq = parse_pointer(pointer)
        for key in (named, self._in_tenant(named)):
            if key and self.store.owns(key):
                found = list(self.store.read(key, max(seq - around, 1), seq + around))
                if any(entry.seq == seq for entry in found):
                    return key, seq, found
        says = "there is nothing at this pointer; the tool 'recall' gives pointers to what there is"
        raise RequestRefused(404, "not_found", says)

    def _in_tenant(self, named: str) -> str:
        """A session as its tenant names it: whoever puts a pointer together from a list has no other name."""
        try:
            return self.store.key(session_key(named))
        except InputError:
            return ""
