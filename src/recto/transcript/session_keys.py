"""Session keys, and the gate between tenants.

A session key is `agent:<agent>:<rest>`, or any other text, which then belongs to no agent. With a tenant the stored key
begins with `tenant:<tenant>/`; only callers of that tenant can name it. Keys that begin with `recto:` hold Recto's own
records (such as API keys): no caller can name them and no search reaches them. Keys are compared character by
character: no case folding, no patterns.

A door (the gateway, the MCP server, the CLI, `recto.open`) makes a `TenantStore` where it knows who the caller is, and
hands only that on. The view turns the names that callers use into stored keys, and refuses every key of another tenant
or of Recto itself. Code that works across tenants on purpose (erasing, verifying, copying, the index, API keys) takes
the store itself; nothing else does. Stored keys are formed here and nowhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote, unquote

from msgspec import Struct

from recto.errors import InputError
from recto.text.lazy_re import lazy_re
from recto.transcript.entries import MAX_SEQ, SessionSummary, session_key
from recto.transcript.protocols import TranscriptStore

if TYPE_CHECKING:
    from recto.transcript.entries import Draft, Entry, Head
    from recto.transcript.protocols import Records


Scope = Literal["session", "agent", "tenant"]
"""Where recall searches: this session, all sessions of its agent, or all of its tenant's."""

TENANT = "tenant:"
PAST_TENANTS = f"{TENANT}\U0010ffff"
"""Sorts after every key of a tenant: no tenant's name contains this character."""
_INTERNAL = "recto:"
ERASURES = "recto:erasures"
"""The records of what was erased from the store, of all tenants."""
_TENANT_NAME = lazy_re(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_TENANT_PREFIX = lazy_re(r"tenant:([A-Za-z0-9._-]{1,64})/", re.ASCII)
_AGENT = lazy_re(r"agent:[^:]+:")
_POINTER = lazy_re(r"recto://(.+)/([1-9][0-9]{0,9})", re.ASCII)
_MAX_POINTER_CHARS = 3_200
"""Enough for a key of which every character is encoded."""
_UNSAFE = lazy_re(r"[^\w\-.~:/@+=,]+")
_DEFAULT_AGENT = "default"


class Reach(Struct, frozen=True, kw_only=True):
    """The sessions that a session may search."""

    prefix: str
    """Common prefix of their keys, for lookup. Not every key with this prefix belongs to them; check with
    `contains`."""
    key: str
    """The searching session."""
    exact: bool
    """Whether it reaches only itself."""

    def contains(self, other_key: str) -> bool:
        """Whether the session with this stored key is within reach."""
        if other_key == self.key:
            return True
        return not self.exact and other_key.startswith(self.prefix) and _realm(other_key) == _realm(self.key)


def stored_key(session: str, tenant: str = "") -> str:
    """The key a session is stored under. Raises `InputError` for keys that name a tenant or are internal."""
    key = session_key(session)
    if key.startswith(TENANT):
        raise InputError(
            f"session {key!r:.80}: keys that begin with 'tenant:' are made by Recto. Name the session as its tenant "
            "does, and the tenant beside it."
        )
    if is_internal(key):
        raise InputError(
            f"session {key!r:.80}: keys that begin with '{_INTERNAL}' are Recto's own. Choose another name."
        )
    return session_key(tenant_prefix(tenant) + key)


def tenant_prefix(tenant: str) -> str:
    """What every stored key of a tenant begins with; empty without a tenant. Raises `InputError` for a bad name."""
    if not tenant:
        return ""
    if not _TENANT_NAME.fullmatch(tenant):
        raise InputError(f"tenant {tenant!r:.80}: a name is 1 to 64 of the characters A-Z a-z 0-9 . _ -")
    return f"{TENANT}{tenant}/"


def record_key(area: str, tenant: str, shard: str = "") -> str:
    """The stored key of records that Recto keeps for a tenant; without a shard, what those keys begin with."""
    return f"{_INTERNAL}{area}/{tenant}/{shard}"


def sibling_key(key: str, name: str) -> str:
    """The stored key of a session by name, in the tenant that another stored key belongs to."""
    return stored_key(name, tenant_of(key))


def is_internal(key: str) -> bool:
    """Whether a stored key is internal to Recto: no list and no search shows it."""
    return key.startswith(_INTERNAL)


def tenant_of(key: str) -> str:
    """The tenant of a stored key; empty if it has none."""
    match = _TENANT_PREFIX.match(key)
    return match[1] if match else ""


def session_in(key: str) -> str:
    """The session of a stored key, as its tenant names it."""
    match = _TENANT_PREFIX.match(key)
    return key[match.end() :] if match else key


def _realm(key: str) -> tuple[bool, bool, str]:
    """What two keys must share to be of one tenant. A malformed tenant key never matches a session without tenant."""
    return key.startswith(TENANT), is_internal(key), tenant_of(key)


def reach_of(key: str, scope: Scope) -> Reach:
    """The sessions within a scope of a stored key. Each scope contains the previous one."""
    if is_internal(key):
        return Reach(prefix=key, key=key, exact=True)
    tenant = tenant_of(key)
    start = tenant_prefix(tenant)
    if scope == "tenant" and (tenant or not key.startswith(TENANT)):
        return Reach(prefix=start, key=key, exact=False)
    agent = _AGENT.match(key, len(start))
    if scope == "agent" and agent:
        return Reach(prefix=start + agent[0], key=key, exact=False)
    return Reach(prefix=key, key=key, exact=True)


def pointer_to(key: str, seq: int) -> str:
    """The pointer to an entry, as quoted everywhere: `recto://<key>/<seq>`.

    Characters of the key that could forge anything where it is quoted (spaces, brackets, signs) are percent-encoded.
    """
    return f"recto://{_UNSAFE.sub(lambda match: quote(match[0], safe=''), key)}/{seq}"


def parse_pointer(text: str) -> tuple[str, int]:
    """The stored key and number of an entry. Raises `InputError` for anything else."""
    match = _POINTER.fullmatch(text) if isinstance(text, str) and len(text) <= _MAX_POINTER_CHARS else None
    if not match or int(match[2]) > MAX_SEQ:
        raise InputError(f"{text!r:.80} is not a pointer; one looks like recto://agent:default:main/57")
    try:
        return session_key(unquote(match[1], errors="strict")), int(match[2])
    except UnicodeDecodeError:
        raise InputError(f"{text!r:.80} is not a pointer: its session cannot be decoded") from None


def agent_of(key: str) -> str:
    """The agent of a stored key; sessions without an agent share the default agent's memory."""
    parts = session_in(key).split(":")
    return parts[1] if len(parts) > 2 and parts[0] == "agent" and parts[1] else _DEFAULT_AGENT


def memory_session(key: str) -> str:
    """The stored key of the session that holds the memory of a session's agent."""
    return sibling_key(key, f"agent:{agent_of(key)}:memory")


def is_memory_session(key: str) -> bool:
    """Whether a stored key is that of a memory session."""
    return session_in(key) == f"agent:{agent_of(key)}:memory"


def list_sessions(store: TranscriptStore, after: str = "", limit: int | None = None) -> list[SessionSummary]:
    """Lists the sessions of a store, as `store.sessions` does, without Recto's internal sessions."""
    if limit is None:
        return [summary for summary in store.sessions(after) if not is_internal(summary.session)]
    sessions: list[SessionSummary] = []
    while len(sessions) < limit and (page := store.sessions(after, limit - len(sessions))):
        after = page[-1].session
        sessions += [summary for summary in page if not is_internal(summary.session)]
    return sessions


class TenantStore:
    """A transcript store as one tenant sees it; without a tenant, the sessions that belong to none.

    Sessions are addressed by stored key, as in the store itself. Every call with a key that is not the tenant's raises
    `InputError`, whether there is such a session or not.
    """

    tenant: str
    prefix: str
    """What every stored key of the tenant begins with; empty without a tenant."""

    def __init__(self, store: TranscriptStore, tenant: str = "") -> None:
        if isinstance(store, TenantStore) and store.tenant != tenant:
            raise InputError("this store is bound to another tenant. Nothing was opened.")
        self.tenant = tenant
        self.prefix = tenant_prefix(tenant)
        # A view of a view of the same tenant would refuse what only the store itself may read, such as the erasures.
        self._store: TranscriptStore = store._store if isinstance(store, TenantStore) else store

    def key(self, name: str) -> str:
        """Return the stored key of a session by the name its tenant uses. Raises `InputError` for a reserved name."""
        return stored_key(name, self.tenant)

    def name(self, key: str) -> str:
        """Return the name that the tenant uses for a stored key."""
        return self._checked(key)[len(self.prefix) :]

    def owns(self, key: str) -> bool:
        """Whether a stored key is one of the tenant's."""
        if self.prefix:
            return key.startswith(self.prefix)
        return not key.startswith(TENANT) and not is_internal(key)

    def _checked(self, key: str) -> str:
        if not self.owns(key):
            raise InputError(f"session {key!r:.80} is not one of this tenant's")
        return key

    @property
    def location(self) -> str:
        """Where the store is, as a person would write it."""
        return self._store.location

    @property
    def is_local(self) -> bool:
        """Whether reading takes microseconds."""
        return self._store.is_local

    def append(
        self, session: str, drafts: Sequence[Draft], *, expect: int | None = None, also: Records | None = None
    ) -> list[Entry]:
        """Store the drafts after the last entry of a session."""
        return self._store.append(self._checked(session), drafts, expect=expect, also=also)

    def turn(self, session: str, *, patience: float | None = None) -> AbstractContextManager[None]:
        """Hold the store's turn of a session."""
        return self._store.turn(self._checked(session), patience=patience)

    def head(self, session: str) -> Head:
        """Return the end of a session."""
        return self._store.head(self._checked(session))

    def read(self, session: str, start: int = 1, stop: int | None = None) -> Iterator[Entry]:
        """Read the entries from `start` up to and including `stop`."""
        return self._store.read(self._checked(session), start, stop)

    def pick(self, session: str, seqs: Collection[int]) -> list[Entry]:
        """Read the entries with these numbers."""
        return self._store.pick(self._checked(session), seqs)

    def tail(self, session: str, count: int) -> list[Entry]:
        """Read the last entries, oldest first."""
        return self._store.tail(self._checked(session), count)

    def terms(self, session: str, start: int = 1, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Read the rows of the word index from `start` up to and including `stop`."""
        return self._store.terms(self._checked(session), start, stop)

    def pick_terms(self, session: str, seqs: Collection[int]) -> dict[int, bytes]:
        """Read the rows of the word index of these entries."""
        return self._store.pick_terms(self._checked(session), seqs)

    def add_terms(self, session: str, entries: Sequence[Entry]) -> None:
        """Store rows of the word index for entries that are stored already."""
        self._store.add_terms(self._checked(session), entries)

    def lacking_terms(
        self, session: str, version: bytes, start: int = 1, stop: int | None = None, limit: int | None = None
    ) -> list[int]:
        """Return the first messages of a range without a row of the word index that begins with `version`."""
        return self._store.lacking_terms(self._checked(session), version, start, stop, limit)

    def get(self, session: str, id: str) -> Entry | None:
        """Return the entry with an id."""
        return self._store.get(self._checked(session), id)

    def find(self, session: str, key: str) -> Entry | None:
        """Return the entry stored under an idempotency key."""
        return self._store.find(self._checked(session), key)

    def sessions(self, after: str = "", limit: int | None = None) -> list[SessionSummary]:
        """List the tenant's sessions by key, from the first after `after`."""
        at = max(after, self.prefix)
        found: list[SessionSummary] = []
        while page := self._store.sessions(at, limit):
            found += [summary for summary in page if self.owns(summary.session)]
            at = page[-1].session
            if limit is None or len(found) >= limit or not at.startswith(self.prefix):
                break
            if not self.prefix and at.startswith(TENANT):
                at = PAST_TENANTS  # skip all tenants in one step
        return found[:limit]

    def title_entries(self, sessions: Sequence[str]) -> list[Entry]:
        """Read the entries that these sessions are titled by."""
        return self._store.title_entries([self._checked(session) for session in sessions])

    def kept_heads(self) -> Mapping[str, Head]:
        """The heads of the tenant's sessions that were kept outside the transcript."""
        return {key: head for key, head in self._store.kept_heads().items() if self.owns(key)}

    def accept_heads(self) -> None:
        """Always refused: this concerns every tenant of the store."""
        raise InputError("only an operator of the whole store accepts its heads")

    def erase(self, session: str, *, expect: int | None = None) -> Head:
        """Remove a session for good."""
        return self._store.erase(self._checked(session), expect=expect)

    def scrub(self, sessions: Sequence[str]) -> None:
        """Remove traces of erased sessions from the store's files."""
        self._store.scrub([self._checked(session) for session in sessions])

    def damage(self) -> list[str]:
        """What the engine finds wrong with its files."""
        return self._store.damage()

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def erasure_log(self) -> Iterator[Entry]:
        """Read the records of erased sessions, as far as these were the tenant's."""
        for entry in self._store.read(ERASURES):
            with suppress(ValueError, TypeError, KeyError):
                if self.owns(str(json.loads(entry.content)["session"])):
                    yield entry

    def find_record(self, area: str, shard: str, key: str) -> Entry | None:
        """Return a record that Recto keeps for this tenant, by its idempotency key."""
        return self._store.find(record_key(area, self.tenant, shard), key)

    def record_session(self, area: str, shard: str) -> str:
        """Return where records that Recto keeps for this tenant are stored, for `Records`."""
        return record_key(area, self.tenant, shard)

    def record_head(self, area: str, shard: str) -> Head:
        """Return the end of records that Recto keeps for this tenant."""
        return self._store.head(record_key(area, self.tenant, shard))

    def read_records(self, area: str, shard: str, start: int, stop: int) -> Iterator[Entry]:
        """Read records that Recto keeps for this tenant, from `start` up to and including `stop`."""
        return self._store.read(record_key(area, self.tenant, shard), start, stop)

    def append_made_record(self, session: str, draft: Draft) -> None:
        """Store a record alone that was made to be stored with something else, in what `record_session` returned."""
        if not is_internal(session):
            raise InputError(f"session {session!r:.80} holds no records")
        self._store.append(session, [draft])

    def append_record(self, area: str, shard: str, drafts: Sequence[Draft]) -> list[Entry]:
        """Store records that Recto keeps for this tenant: no list shows them and no caller can name them."""
        return self._store.append(record_key(area, self.tenant, shard), drafts)


def store_behind(store: TranscriptStore) -> TranscriptStore:
    """Return the store behind a view, to open what belongs to the store as a whole. Only `config.factory` calls it."""
    return store_behind(store._store) if isinstance(store, TenantStore) else store


def plain_name(name: str) -> str:
    """Return the canonical form of a name that a caller gave. Raises `InputError` for a reserved one."""
    return stored_key(name)


def operator_key(name: str, tenant: str) -> str:
    """Return the stored key that an operator means: with a tenant, a name of the tenant's; without, any stored key."""
    return stored_key(name, tenant) if tenant else session_key(name)


def operator_sees(key: str, tenant: str) -> bool:
    """Whether an operator's command covers a stored key: with a tenant, only the tenant's sessions; without, all."""
    return key.startswith(tenant_prefix(tenant)) if tenant else not is_internal(key)


def tenant_key(name: str, tenant: str) -> str:
    """Like `operator_key`, but without a tenant only a tenant's stored key or a plain name is accepted."""
    return name if not tenant and tenant_of(name) else stored_key(name, tenant)
