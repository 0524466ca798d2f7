"""The format of stored session keys: tenants, agents, and the pointers that name one entry.

A session key is `agent:<agent>:<rest>`, or any other text, which then belongs to no agent. With a tenant the stored key
begins with `tenant:<tenant>/`; only callers of that tenant can name it. Keys that begin with `recto:` hold Recto's own
records (such as API keys): no caller can name them and no search reaches them. Keys are compared character by
character: no case folding, no patterns.

Code below a door does not form keys with a tenant in them: it holds a `tenancy.TenantStore`.
"""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import quote, unquote

from msgspec import Struct

from recto.errors import InputError
from recto.text.lazy_re import lazy_re
from recto.transcript.entries import MAX_SEQ, SessionSummary, session_key
from recto.transcript.protocols import TranscriptStore

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
