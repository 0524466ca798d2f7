"""The statements of the transcript, and rows as entries. Their text never varies, so that the server keeps plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from psycopg.rows import TupleRow

from recto.stores.postgres.codec import Column, number, of_bytes, of_numbers, of_texts
from recto.stores.postgres.pool import ConnectionPool
from recto.transcript.entries import Draft, Entry, Head, Role
from recto.transcript.hash_chain import EMPTY_HEAD
from recto.transcript.session_keys import tenant_of

PAGE_ROWS = 256
PAGE_BYTES = 8 * 1024 * 1024

_COLUMNS = "seq, id, ts, role, kind, wire, surface, tokens, counter, key, meta, prev, hash, content"
_FROM = "FROM recto.entries WHERE session = %(session)s"

HEAD = "SELECT seq, hash FROM recto.heads WHERE session = %(session)s AND seq > 0"
BY_ID = f"SELECT {_COLUMNS} {_FROM} AND id = ANY(%(ids)s) ORDER BY seq"
BY_KEY = f"SELECT {_COLUMNS} {_FROM} AND key = ANY(%(keys)s) ORDER BY seq"
PICKED = f"SELECT {_COLUMNS} {_FROM} AND seq = ANY(%(seqs)s) ORDER BY seq"
TAIL = f"SELECT {_COLUMNS} {_FROM} ORDER BY seq DESC LIMIT %(count)s"

PAGE = f"""
SELECT {_COLUMNS} {_FROM} AND seq >= %(start)s AND seq <= (
  SELECT max(seq) FROM (
    SELECT seq, sum(octet_length(content)::bigint) OVER (ORDER BY seq) - octet_length(content) AS before
    FROM (SELECT seq, content {_FROM} AND seq BETWEEN %(start)s AND %(stop)s ORDER BY seq LIMIT {PAGE_ROWS}) AS near
  ) AS measured WHERE before < {PAGE_BYTES}
) ORDER BY seq
"""  # noqa: S608  # of constants
"""Few enough to hold at once: by their number, and by their bytes."""

SUMMARIES = """
SELECT session, seq, first_ts, last_ts FROM recto.heads
WHERE session > %(after)s AND seq > 0 ORDER BY session LIMIT %(limit)s
"""

STANDING = """
SELECT h.seq, h.hash, h.epoch, h.owner, h.lease_until > now(), k.seq, k.hash, e.hash
FROM recto.heads AS h
LEFT JOIN recto.kept_heads AS k ON k.session = h.session
LEFT JOIN recto.entries AS e ON e.session = k.session AND e.seq = k.seq
WHERE h.session = %(session)s
"""
"""Where a session ends, who has the turn, what was kept of its end, and whether that entry is still the one."""

OPEN = """
INSERT INTO recto.heads(session, tenant, seq, hash) VALUES (%(session)s, %(tenant)s, 0, decode(repeat('00', 32), 'hex'))
ON CONFLICT (session) DO NOTHING
"""

APPEND = """
WITH moved AS (
  UPDATE recto.heads SET seq = %(seq)s, hash = %(hash)s, last_ts = %(last_ts)s,
    first_ts = CASE WHEN seq = 0 THEN %(first_ts)s ELSE first_ts END
  WHERE session = %(session)s AND seq = %(after)s AND hash = %(prev)s
    AND CASE WHEN %(epoch)s::bigint IS NULL THEN owner IS NULL OR lease_until < now() ELSE epoch = %(epoch)s END
  RETURNING session, tenant
), kept AS (
  INSERT INTO recto.kept_heads(session, tenant, seq, hash) SELECT session, tenant, %(seq)s, %(hash)s FROM moved
  ON CONFLICT (session) DO UPDATE SET seq = EXCLUDED.seq, hash = EXCLUDED.hash
)
INSERT INTO recto.entries(session, tenant, seq, id, ts, role, kind, wire, surface, tokens, counter, key, meta, prev,
  hash, content)
SELECT moved.session, moved.tenant, new.* FROM moved CROSS JOIN unnest(
  %(seqs)s::bigint[], %(ids)s::bytea[], %(tss)s::bigint[], %(roles)s::text[], %(kinds)s::bytea[], %(wires)s::bytea[],
  %(surfaces)s::bytea[], %(tokens)s::bigint[], %(counters)s::bytea[], %(keys)s::bytea[], %(metas)s::bytea[],
  %(prevs)s::bytea[], %(hashes)s::bytea[], %(contents)s::bytea[]
) AS new
"""
"""Moves the head, if it is still where it was and nobody else has the turn, and only then stores what follows it."""

TAKE_TURN = """
UPDATE recto.heads SET owner = %(owner)s, epoch = epoch + 1, lease_until = now() + make_interval(secs => %(seconds)s)
WHERE session = %(session)s AND (owner IS NULL OR lease_until < now() OR owner = %(owner)s)
RETURNING epoch, seq, hash
"""
KEEP_TURN = """
UPDATE recto.heads SET lease_until = now() + make_interval(secs => %(seconds)s)
WHERE session = %(session)s AND owner = %(owner)s AND epoch = %(epoch)s
"""
END_TURN = """
UPDATE recto.heads SET owner = NULL, lease_until = NULL
WHERE session = %(session)s AND owner = %(owner)s AND epoch = %(epoch)s
"""

KEPT = "SELECT session, seq, hash FROM recto.kept_heads ORDER BY session"
ACCEPT = """
INSERT INTO recto.kept_heads(session, tenant, seq, hash)
SELECT session, tenant, seq, hash FROM recto.heads WHERE seq > 0
ON CONFLICT (session) DO UPDATE SET seq = EXCLUDED.seq, hash = EXCLUDED.hash
"""


def appended(session: str, entries: Sequence[Entry], epoch: int | None) -> Mapping[str, Any]:
    """What `APPEND` wants to know."""
    first, last = entries[0], entries[-1]
    return {
        "session": session,
        "after": number(first.seq - 1),
        "prev": first.prev,
        "seq": number(last.seq),
        "hash": last.hash,
        "first_ts": number(first.ts),
        "last_ts": number(last.ts),
        "epoch": None if epoch is None else number(epoch),
        "seqs": of_numbers(entry.seq for entry in entries),
        "ids": of_bytes(entry.id.encode() for entry in entries),
        "tss": of_numbers(entry.ts for entry in entries),
        "roles": of_texts(str(entry.role) for entry in entries),
        "kinds": of_bytes(entry.kind.encode() for entry in entries),
        "wires": of_bytes(entry.wire.encode() for entry in entries),
        "surfaces": of_bytes(entry.surface.encode() for entry in entries),
        "tokens": of_numbers(entry.tokens for entry in entries),
        "counters": of_bytes(entry.counter.encode() for entry in entries),
        "keys": of_bytes(None if entry.key is None else entry.key.encode() for entry in entries),
        "metas": of_bytes(entry.meta for entry in entries),
        "prevs": of_bytes(entry.prev for entry in entries),
        "hashes": of_bytes(entry.hash for entry in entries),
        "contents": of_bytes(entry.content for entry in entries),
    }


def names_of(drafts: Sequence[Draft]) -> dict[str, Column]:
    """The ids and the keys of drafts, as they are looked for."""
    return {
        "ids": of_bytes(draft.id.encode() for draft in drafts),
        "keys": of_bytes(draft.key.encode() for draft in drafts if draft.key is not None),
    }


def entry_of(session: str, row: TupleRow) -> Entry:
    """A row as an entry."""
    seq, id, ts, role, kind, wire, surface, tokens, counter, key, meta, prev, digest, content = row
    return Entry(
        session=session,
        seq=seq,
        id=bytes(id).decode(),
        ts=ts,
        role=cast(Role, role),
        kind=bytes(kind).decode(),
        wire=bytes(wire).decode(),
        surface=bytes(surface).decode(),
        tokens=tokens,
        counter=bytes(counter).decode(),
        key=None if key is None else bytes(key).decode(),
        meta=bytes(meta),
        prev=bytes(prev),
        hash=bytes(digest),
        content=bytes(content),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatus:
    """As of one moment."""

    head: Head
    epoch: int
    is_taken: bool
    """Whether somebody has the turn."""
    kept: Head | None
    """Its end as it was kept apart."""
    hash_there: bytes | None
    """Of the entry that should be that end."""
    by_key: Mapping[str, Entry]
    by_id: Mapping[str, tuple[int, bytes]]
    """Number and hash of the entries whose ids the drafts have."""


async def standing_of(link: ConnectionPool, session: str, drafts: Sequence[Draft]) -> SessionStatus:
    """Where it stands for these drafts."""

    async def attempt() -> SessionStatus:
        given = {"session": session, **names_of(drafts)}
        async with link.batch(tenant_of(session)) as connection:
            end = await connection.execute(STANDING, given, binary=True)
            keyed = await connection.execute(BY_KEY, given, binary=True)
            named = await connection.execute(BY_ID, given, binary=True)
        row = await end.fetchone()
        by_key = {entry.key: entry for entry in (entry_of(session, one) for one in await keyed.fetchall())}
        by_id = {bytes(one[1]).decode(): (int(one[0]), bytes(one[12])) for one in await named.fetchall()}
        stored = {key: entry for key, entry in by_key.items() if key is not None}
        if row is None:
            return SessionStatus(
                head=EMPTY_HEAD, epoch=0, is_taken=False, kept=None, hash_there=None, by_key=stored, by_id=by_id
            )
        seq, digest, epoch, owner, is_live, kept_seq, kept_hash, hash_there = row
        return SessionStatus(
            head=Head(seq, bytes(digest)),
            epoch=epoch,
            is_taken=owner is not None and bool(is_live),
            kept=None if kept_seq is None else Head(kept_seq, bytes(kept_hash)),
            hash_there=None if hash_there is None else bytes(hash_there),
            by_key=stored,
            by_id=by_id,
        )

    return await link.again(attempt)
