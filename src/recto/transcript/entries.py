"""Entries of a transcript, before and after they are stored.

A `Draft` is an entry without its place; a store assigns the place, which makes it an `Entry`. Content is the provider's
own JSON, byte for byte. `recto.formats` reads text and calls from those bytes.

Hidden messages: the gateway can answer calls of a tool that it offers itself. Such calls and their results are messages
of the transcript, because the model saw them, but the client never sends them back: comparing its history with the
transcript leaves them out.

Titles: a session is titled by its newest rename, or by its first user messages. Stores find these entries without
reading the rest of a session, so that a list of sessions has titles at the price of a list. `recto.engine.titles` makes
the title from them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, Literal, get_args

from msgspec import Struct

from recto.errors import InputError

Role = Literal["system", "user", "assistant", "tool", "event"]
"""Author of an entry. `event` is Recto itself: a decision, a report, or an imported line that is not a message."""

MESSAGE = "message"
"""The `kind` of every message; events have their own names here."""

DEFAULT_SESSION = "agent:default:main"
SESSION_ALIASES = {"recto": DEFAULT_SESSION}
MAX_SEQ = 2**32 - 1
MAX_NAME = 512
"""Maximum characters of an id, a key, or any other short text of an entry."""
MAX_BYTES = 900_000_000
"""Maximum bytes of one entry; SQLite's limit is 10^9."""
HIDDEN: Final = "hidden"
"""Member of the metadata of a message that the client never sees: true."""
PARTIAL: Final = "partial"
"""Member of the metadata of a message that the client has only together with the answer that follows: true."""
AS_SENT: Final = "as_sent"
"""Member of the metadata of a message that the client got in another form: that form."""
_HIDDEN, _PARTIAL, _AS_SENT = (f'"{name}"'.encode() for name in (HIDDEN, PARTIAL, AS_SENT))
RENAMED: Final = "session_renamed"
"""The event that gives a session a title."""
TITLE_KEY: Final = "title/"
"""What the idempotency key of every rename begins with: stores have an index of keys."""
PAST_TITLE_KEYS: Final = "title0"
"""Sorts after every such key."""
OPENING_ENTRIES: Final = 64
"""How many of the first entries are searched for user messages."""
OPENING_MESSAGES: Final = 4
"""How many user messages are returned: the first ones may hold nothing but injected text."""
OPENING_BYTES: Final = 256 * 1024
"""Larger messages are skipped: a list of sessions must not load pasted files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An entry that has no place in a session yet."""

    id: str
    """Unique in its session."""
    ts: int
    """When it happened, in microseconds since 1970. Informational: order is `seq`."""
    role: Role
    """Author of the entry."""
    content: bytes
    """The provider's own JSON, exactly as received."""
    kind: str = MESSAGE
    """`message`, or the name of an event."""
    wire: str = ""
    """Wire format of `content`, such as `openai.chat`; empty for Recto's own events."""
    surface: str = "library"
    """Where it came in: cli, tui, web, gateway chat, gateway responses, gateway messages, mcp, library, import."""
    tokens: int = 0
    """Token count for its model; 0 for events."""
    counter: str = ""
    """Name of the token counter."""
    meta: bytes = b"{}"
    """A JSON object with further data, stored verbatim."""
    key: str | None = None
    """Idempotency key, unique in its session: a draft whose key is already stored is not stored again."""
    terms: bytes = field(default=b"", compare=False, repr=False)
    """Its row of the word index, stored in the same transaction; empty if it has none.

    Derived from the content: not part of the hash chain, and not returned with stored entries.
    """

    @property
    def metadata(self) -> dict[str, Any]:
        """`meta`, parsed."""
        metadata: dict[str, Any] = json.loads(self.meta)
        return metadata

    def is_retry_of(self, other: Draft) -> bool:
        """Whether both are the same message, possibly with another timestamp."""
        return (self.role, self.kind, self.wire, self.content) == (other.role, other.kind, other.wire, other.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Draft):
    """A stored entry: number `seq` of its session, chained to the entry before."""

    session: str
    """Key of its session."""
    seq: int
    """1, 2, 3, … without gaps."""
    prev: bytes
    """Hash of the entry before; `GENESIS` for the first."""
    hash: bytes
    """Hash over all other fields, including `prev`."""

    def __repr__(self) -> str:
        """Its place, kind and size; not its content, which may be long."""
        kind = self.role if self.kind == MESSAGE else self.kind
        return f"<Entry {self.session}/{self.seq} {kind}, {len(self.content):,} bytes>"


values_of_draft = attrgetter(*(item.name for item in fields(Draft)))
"""The values of a draft, in the order of its fields, which are the first ones of an entry."""
_ASSIGN = [getattr(Entry, item.name).__set__ for item in fields(Entry)]
"""What assigns each field of an entry: a frozen class allows it nowhere else."""


def entry_of_values(values: Iterable[object]) -> Entry:
    """The entry with these values, in the order of its fields.

    Takes half the time of a call with names, which matters where a store reads a thousand entries. The caller has
    checked the types.
    """
    entry = object.__new__(Entry)
    for assign, value in zip(_ASSIGN, values, strict=True):
        assign(entry, value)
    return entry


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a session's chain. `seq` is also the number of entries."""

    seq: int
    hash: bytes


class SessionSummary(Struct, frozen=True, kw_only=True):
    """One row of a list of sessions."""

    session: str
    entries: int
    first_ts: int
    last_ts: int


def session_key(name: str) -> str:
    """The canonical key of a session: resolves the alias, rejects ambiguous or unprintable keys."""
    key = SESSION_ALIASES.get(name, name) if isinstance(name, str) else name
    if not isinstance(key, str) or not key or len(key) > 256 or not key.isprintable() or key != key.strip():
        raise InputError(f"session {key!r:.80}: a key is 1 to 256 printable characters without spaces around them")
    return key


def refuse_unstorable(session: str, drafts: Sequence[Draft]) -> None:
    """Raise `InputError` for drafts that could not be returned unchanged. Every store calls this first."""
    session_key(session)
    for number, draft in enumerate(drafts, 1):
        if reason := _unstorable_reason(draft):
            raise InputError(f"entry {number} of the batch, id {draft.id!r:.80}: {reason}. Nothing was stored.")
    if len(drafts) > 1:
        _refuse_duplicates("id", [draft.id for draft in drafts])
        _refuse_duplicates("key", [draft.key for draft in drafts if draft.key is not None])


def _unstorable_reason(draft: Draft) -> str | None:
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
    if type(draft.terms) is not bytes or len(draft.terms) > MAX_BYTES:
        return f"terms are at most {MAX_BYTES:,} bytes"
    if not _is_int64(draft.ts) or not _is_int64(draft.tokens) or draft.tokens < 0:
        return "ts and tokens are 64-bit integers, tokens not below zero"
    return None


def _is_int64(number: int) -> bool:
    return type(number) is int and -(2**63) <= number < 2**63


def _refuse_duplicates(what: str, names: list[str]) -> None:
    if len(set(names)) != len(names):
        duplicate = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{what} {duplicate!r} is twice in one batch. Nothing was stored.")


_ROLES = frozenset(get_args(Role))


def is_hidden(meta: bytes) -> bool:
    """Whether the metadata of a message say that the client never sees it."""
    return _HIDDEN in meta and json.loads(meta).get(HIDDEN) is True


def content_as_sent(entry: Entry) -> bytes:
    """A message as the client got it."""
    sent = json.loads(entry.meta).get(AS_SENT) if _AS_SENT in entry.meta else None
    return entry.content if sent is None else json.dumps(sent, ensure_ascii=False).encode(errors="surrogatepass")


def client_messages(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The messages among entries that the client of the session has in its history."""
    partial: list[Entry] = []
    for entry in entries:
        if entry.kind != MESSAGE or is_hidden(entry.meta):
            continue
        if _PARTIAL in entry.meta and json.loads(entry.meta).get(PARTIAL) is True:
            partial.append(entry)
            continue
        if partial and entry.role == "assistant":
            yield from partial
        partial.clear()
        yield entry
