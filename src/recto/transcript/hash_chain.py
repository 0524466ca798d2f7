"""The hash chain: how an entry is bound to its place and to everything before it.

    hash = SHA-256( "recto entry 1" | previous hash | each field, preceded by its length )

The stored bytes themselves are hashed, never a re-serialisation of them. A chain shows edits, insertions, deletions
and reordering. It does not show by itself that its end is missing: for that a head has to be kept somewhere else.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from recto.errors import AppendConflict, KeyReused
from recto.transcript.entries import Draft, Entry, Head

GENESIS = bytes(32)
"""What the first entry of a session is chained to."""

EMPTY = Head(0, GENESIS)
_VERSION = b"recto entry 1"
_LENGTHS = struct.Struct(">13Q")


def entry_hash(session: str, seq: int, prev: bytes, draft: Draft) -> bytes:
    """What binds a draft to its place."""
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
    digest.update(draft.content)  # by itself, so that a 100 MB message is not copied
    return digest.digest()


def link(session: str, head: Head, drafts: Iterable[Draft]) -> list[Entry]:
    """The drafts as entries that follow the head."""
    entries = []
    for draft in drafts:
        seq = head.seq + 1
        digest = entry_hash(session, seq, head.hash, draft)
        entries.append(
            Entry(
                session=session,
                seq=seq,
                prev=head.hash,
                hash=digest,
                id=draft.id,
                ts=draft.ts,
                role=draft.role,
                content=draft.content,
                kind=draft.kind,
                wire=draft.wire,
                surface=draft.surface,
                tokens=draft.tokens,
                counter=draft.counter,
                meta=draft.meta,
                key=draft.key,
            )
        )
        head = Head(seq, digest)
    return entries


def already_stored(
    session: str, drafts: Sequence[Draft], stored: Mapping[str, Entry], head: Head, expect: int | None
) -> list[Entry]:
    """The leading drafts that are stored already, as they were stored; what follows them is new.

    `stored` holds the entries found under the drafts' keys. A retry of a whole batch finds all of it here and writes
    nothing; a history sent again with something new at its end writes only that. What would put an old entry after a
    new one is refused, and so is a key that comes back with another message. `expect` is checked only where
    something new would be written, so that a retry of a write that went through is not a conflict.
    """
    found: list[Entry] = []
    for place, draft in enumerate(drafts):
        entry = stored.get(draft.key) if draft.key is not None else None
        if entry is None:
            continue
        if not draft.says_the_same_as(entry):
            raise KeyReused(session, entry.key or "", entry.seq)
        if len(found) != place or (found and entry.seq <= found[-1].seq):
            reason = f"key '{entry.key}' is already entry {entry.seq}, but would come after something new"
            raise AppendConflict(session, expect, head.seq, reason)
        found.append(entry)
    if len(found) < len(drafts) and expect is not None and expect != head.seq:
        raise AppendConflict(session, expect, head.seq)
    return found


@dataclass(frozen=True, slots=True)
class Break:
    """The first place where a chain does not hold."""

    session: str
    seq: int
    reason: str


def follow(session: str, head: Head, entries: Iterable[Entry]) -> Head | Break:
    """Re-derives the chain from a head onwards; the head it arrives at, or the first break."""
    for entry in entries:
        if entry.session != session or entry.seq != head.seq + 1:
            return Break(
                session, head.seq + 1, f"entry {head.seq + 1} is missing; entry {entry.seq} stands in its place"
            )
        if entry.prev != head.hash:
            return Break(session, entry.seq, f"entry {entry.seq} does not follow the entry before it")
        if entry_hash(session, entry.seq, entry.prev, entry) != entry.hash:
            return Break(session, entry.seq, f"entry {entry.seq} is not what was stored: its hash does not match")
        head = Head(entry.seq, entry.hash)
    return head
