"""The line of a transcript, before and after it is stored.

A `Draft` is everything about an entry but its place; a store gives it a place and it becomes an `Entry`. Content is
the provider's own JSON, byte for byte. What it says (its text, its calls) is read from those bytes by `recto.wire`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool", "event"]
"""Who speaks. `event` is Recto itself: a decision, a report, something imported that is not a message."""

MESSAGE = "message"
"""The `kind` of every entry that is a message; events have a name of their own here."""

DEFAULT_SESSION = "agent:default:main"
SESSION_ALIASES = {"recto": DEFAULT_SESSION}
MAX_SEQ = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An entry that has no place yet."""

    id: str
    """Unique in its session."""
    ts: int
    """When it happened, in microseconds since 1970. Only told, never used for order: order is `seq`."""
    role: Role
    content: bytes
    """The provider's own JSON, exactly as it came."""
    kind: str = MESSAGE
    """`message`, or the name of an event."""
    wire: str = ""
    """Which wire format `content` is in, such as `openai.chat`; empty where it is Recto's own."""
    surface: str = "library"
    """Where it came in: cli, tui, web, gateway chat, gateway responses, gateway messages, mcp, library, import."""
    tokens: int = 0
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
    seq: int
    """1, 2, 3, … without gaps."""
    prev: bytes
    """Hash of the entry before; `GENESIS` for the first."""
    hash: bytes


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
        raise ValueError("a session key is 1 to 256 printable characters without spaces around them")
    return key
