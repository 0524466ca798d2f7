"""Entries of a transcript: drafts, events, what is stored, and the hash chain that binds them.

hash = SHA-256( "recto entry 1" | previous hash | each field, preceded by its length )

The hash binds an entry to its place and to everything before it. The stored bytes are hashed, never a
re-serialization. The chain reveals edits, insertions, deletions and reordering. A missing end is only revealed by a
head stored elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, Literal, Protocol, get_args

import msgspec
from msgspec import Struct

from recto.errors import AppendConflict, InputError, KeyReused, MalformedMessage

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


GENESIS = bytes(32)
"""The previous hash of a session's first entry."""

EMPTY_HEAD = Head(0, GENESIS)
_VERSION = b"recto entry 1"
_LENGTHS = struct.Struct(">13Q")


def entry_hash(session: str, seq: int, prev: bytes, draft: Draft) -> bytes:
    """The hash that binds a draft to its place."""
    fields = (
        session.encode(),
        b"%d" % seq,
        draft.id.encode(),
        b"%d" % draft.ts,
        draft.role.encode(),
        draft.kind.encode(),
        draft.wire.encode(),
        draft.surface.encode(),
        b"%d" % draft.tokens,
        draft.counter.encode(),
        b"" if draft.key is None else draft.key.encode(),
        draft.meta,
        draft.content,
    )
    lengths = _LENGTHS.pack(*map(len, fields))
    digest = hashlib.sha256(b"".join((_VERSION, prev, lengths, *fields[:-1])))
    digest.update(draft.content)  # separately, so that a 100 MB message is not copied
    return digest.digest()


def link_entries(session: str, head: Head, drafts: Iterable[Draft]) -> list[Entry]:
    """Turn drafts into entries that follow the head."""
    entries = []
    seq, prev = head.seq, head.hash
    for draft in drafts:
        seq += 1
        digest = entry_hash(session, seq, prev, draft)
        entries.append(entry_of_values((*values_of_draft(draft), session, seq, prev, digest)))
        prev = digest
    return entries


def already_stored(
    session: str, drafts: Sequence[Draft], stored: Mapping[str, Entry], head: Head, expect: int | None
) -> list[Entry]:
    """The leading drafts that are already stored, as stored entries; the drafts after them are new.

    `stored` contains the entries found under the drafts' keys. A retried batch is found completely and writes nothing;
    a history sent again with new messages at its end writes only those. An old entry after a new one is refused, and so
    is a key reused for another message. `expect` is checked only if something new would be written, so a retry of a
    successful write is not a conflict.
    """
    already: list[Entry] = []
    for index, draft in enumerate(drafts):
        entry = stored.get(draft.key) if draft.key is not None else None
        if entry is None:
            continue
        if not draft.is_retry_of(entry):
            raise KeyReused(session, entry.key or "", entry.seq)
        if len(already) != index or (already and entry.seq <= already[-1].seq):
            reason = f"key '{entry.key}' is already entry {entry.seq}, but would come after something new"
            raise AppendConflict(session, expect, head.seq, reason)
        already.append(entry)
    if len(already) < len(drafts) and expect is not None and expect != head.seq:
        raise AppendConflict(session, expect, head.seq)
    return already


class ChainBreak(Struct, frozen=True):
    """The first place where a chain is broken."""

    session: str
    seq: int
    reason: str


def verify_chain(session: str, head: Head, entries: Iterable[Entry]) -> Head | ChainBreak:
    """Recompute the chain from a head onwards; returns the final head, or the first break."""
    for entry in entries:
        if entry.session != session or entry.seq != head.seq + 1:
            return ChainBreak(
                session, head.seq + 1, f"entry {head.seq + 1} is missing; entry {entry.seq} is in its place"
            )
        if entry.prev != head.hash:
            return ChainBreak(session, entry.seq, f"entry {entry.seq} does not follow the entry before it")
        if entry_hash(session, entry.seq, entry.prev, entry) != entry.hash:
            return ChainBreak(session, entry.seq, f"entry {entry.seq} is not what was stored: its hash does not match")
        head = Head(entry.seq, entry.hash)
    return head


IMPORTED: Final = "imported"
"""The event that ends an import: the file, its digest, and the model that its tokens were counted for."""
HOST_COMPACTED: Final = "host_compacted"
"""The event that an agent has compacted the history in its own window."""
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_REQUESTER: ContextVar[tuple[str, str]] = ContextVar("requester", default=("", ""))
"""Who requested the current work, and through which surface; empty if unknown."""


class Clock(Protocol):
    """Returns the time. It may be wrong: nothing is ordered by it."""

    def now(self) -> int:
        """Microseconds since 1970."""
        ...


def new_id(clock: Clock) -> str:
    """A unique id that sorts by time: 48 bits of milliseconds, 80 random bits."""
    return new_ids([clock.now()])[0]


def new_ids(times: Sequence[int]) -> list[str]:
    """An id for each of some times, in microseconds since 1970. One call to the system makes all of them random."""
    noise = os.urandom(10 * len(times)).hex()
    return [
        f"{max(time, 0) // 1000 & 0xFFFFFFFFFFFF:012x}{noise[20 * place : 20 * place + 20]}"
        for place, time in enumerate(times)
    ]


def refused_key(seq: int) -> str:
    """The key of the event that records the first refusal of a message by a provider."""
    return f"refused/{seq}"


@contextmanager
def requested_by(who: str, surface: str) -> Iterator[None]:
    """Record `who` and `surface` in every event this thread creates in the meantime.

    A context variable carries both: nothing between a surface and an event depends on them.
    """
    token = _REQUESTER.set((who, surface))
    try:
        yield
    finally:
        _REQUESTER.reset(token)


def event(
    clock: Clock, kind: str, payload: Mapping[str, Any], key: str | None = None, surface: str = "window"
) -> Draft:
    """Create an event: something that happened to a session and is not a message."""
    who, requested_surface = _REQUESTER.get()
    return Draft(
        id=new_id(clock),
        ts=clock.now(),
        role="event",
        kind=kind,
        content=to_json(payload),
        surface=requested_surface or surface,
        meta=to_json({"asked_by": who}) if who else b"{}",
        key=key,
    )


def payload_of(content: bytes) -> Any:  # noqa: ANN401  # JSON
    """The payload of an event."""
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:  # half of a surrogate pair, which the standard library reads
        return json.loads(content)


def to_json(value: object) -> bytes:
    """Compact JSON of one of Recto's own values."""
    try:
        return _encode(value).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise MalformedMessage(f"it cannot be written as JSON ({error})") from None
