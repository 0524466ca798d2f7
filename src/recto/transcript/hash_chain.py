"""The hash chain, which binds an entry to its place and to everything before it.

hash = SHA-256( "recto entry 1" | previous hash | each field, preceded by its length )

The stored bytes are hashed, never a re-serialization. The chain reveals edits, insertions, deletions and reordering. A
missing end is only revealed by a head stored elsewhere.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from recto.errors import AppendConflict, KeyReused
from recto.transcript.entries import Draft, Entry, Head, entry_of_values, values_of_draft

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
