"""The line of a transcript, before and after it is stored.

A `Draft` is everything about an entry but its place; a store gives it a place and it becomes an `Entry`. Content is
the provider's own JSON, byte for byte. What it says (its text, its calls) is read from those bytes by `recto.formats`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from recto.errors import InputError

Role = Literal["system", "user", "assistant", "tool", "event"]
"""Who speaks. `event` is Recto itself: a decision, a report, something imported that is not a message."""

MESSAGE = "message"
"""The `kind` of every entry that is a message; events have a name of their own here."""

DEFAULT_SESSION = "agent:default:main"
SESSION_ALIASES = {"recto": DEFAULT_SESSION}
MAX_SEQ = 2**32 - 1
MAX_NAME = 512
"""Characters of an id, a key, or any other short text of an entry."""
MAX_BYTES = 900_000_000
"""Bytes of one entry; SQLite ends at 10^9."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An entry that has no place yet."""

    id: str
    """Unique in its session."""
    ts: int
    """When it happened, in microseconds since 1970. Only told, never used for order: order is `seq`."""
    role: Role
    """Who speaks."""
    content: bytes
    """The provider's own JSON, exactly as it came."""
    kind: str = MESSAGE
    """`message`, or the name of an event."""
    wire: str = ""
    """Which wire format `content` is in, such as `openai.chat`; empty where it is Recto's own."""
    surface: str = "library"
    """Where it came in: cli, tui, web, gateway chat, gateway responses, gateway messages, mcp, library, import."""
    tokens: int = 0
    """As its model counts them; 0 for events."""
    counter: str = ""
    """What counted the tokens."""
    meta: bytes = b"{}"
    """A JSON object with whatever else is known, kept verbatim too."""
    key: str | None = None
    """Idempotency key, unique in its session: a draft whose key is stored already is not stored again."""

    @property
    def metadata(self) -> dict[str, Any]:
        """`meta`, read."""
        found: dict[str, Any] = json.loads(self.meta)
        return found

    def says_the_same_as(self, other: Draft) -> bool:
        """Whether the other is a retry of this one: same message, though stamped at another time."""
        return (self.role, self.kind, self.wire, self.content) == (other.role, other.kind, other.wire, other.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Draft):
    """An entry in its place: entry `seq` of its session, chained to the one before."""

    session: str
    """The key of its session."""
    seq: int
    """1, 2, 3, … without gaps."""
    prev: bytes
    """Hash of the entry before; `GENESIS` for the first."""
    hash: bytes
    """Over everything else here, the entry before included."""


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a session's chain. `seq` is also how many entries there are."""

    seq: int
    hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """One line of a list of sessions."""

    session: str
    entries: int
    first_ts: int
    last_ts: int


def session_key(name: str) -> str:
    """The canonical key of a session: resolves the alias, refuses what could not be told apart or printed."""
    key = SESSION_ALIASES.get(name, name)
    if not key or len(key) > 256 or any(not char.isprintable() for char in key) or key != key.strip():
        raise InputError(f"session {key!r:.80}: a key is 1 to 256 printable characters without spaces around them")
    return key


def refuse_unstorable(session: str, drafts: Sequence[Draft]) -> None:
    """Raises `InputError` for what could not be given back as it came. Every store asks this before anything else."""
    session_key(session)
    for place, draft in enumerate(drafts, 1):
        if reason := _unstorable(draft):
            raise InputError(f"entry {place} of the batch, id {draft.id!r:.80}: {reason}. Nothing was stored.")
    if len(drafts) > 1:
        _refuse_twice("id", [draft.id for draft in drafts])
        _refuse_twice("key", [draft.key for draft in drafts if draft.key is not None])


def _unstorable(draft: Draft) -> str | None:
    names = (draft.id, draft.role, draft.kind, draft.wire, draft.surface, draft.counter, draft.key or "")
    try:
        together = "".join(names)
        if not together.isascii():
            together.encode()
    except TypeError:
        return "id, role, kind, wire, surface, counter and key are text"
    except UnicodeEncodeError:
        return "a lone surrogate in its id, key or another name is not a character and cannot be stored"
    if not draft.id or not draft.kind or draft.key == "":
        return "id, kind and key are not empty"
    if len(together) > MAX_NAME and max(map(len, names)) > MAX_NAME:
        return f"id, key and other names have at most {MAX_NAME} characters"
    if draft.role not in _ROLES:
        return f"role {draft.role!r} is none of {', '.join(sorted(_ROLES))}"
    if type(draft.content) is not bytes or type(draft.meta) is not bytes:
        return "content and meta are bytes"
    if len(draft.content) + len(draft.meta) > MAX_BYTES:
        return f"{len(draft.content) + len(draft.meta):,} bytes; one entry has at most {MAX_BYTES:,}"
    if not _is_int64(draft.ts) or not _is_int64(draft.tokens) or draft.tokens < 0:
        return "ts and tokens are 64-bit integers, tokens not below zero"
    return None


def _is_int64(number: int) -> bool:
    return type(number) is int and -(2**63) <= number < 2**63


def _refuse_twice(what: str, names: list[str]) -> None:
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{what} {twice!r} stands twice in one batch. Nothing was stored.")


_ROLES = frozenset(get_args(Role))
