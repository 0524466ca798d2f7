"""SQL statements of the transcript, and the mapping of rows to entries. Their text never varies: plans are cached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from psycopg.rows import TupleRow

from recto.stores.postgres.codec import BinaryArray, bigint, bigint_array, bytea_array, text_array
from recto.stores.postgres.pool import ConnectionPool
from recto.transcript.entries import (
    EMPTY_HEAD,
    OPENING_BYTES,
    OPENING_ENTRIES,
    OPENING_MESSAGES,
    PAST_TITLE_KEYS,
    TITLE_KEY,
    Draft,
    Entry,
    Head,
    Role,
)
from recto.transcript.session_keys import tenant_of

PAGE_ROWS = 256
PAGE_TERMS = 1000
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
"""A page is bounded by rows and by bytes, so that it fits in memory."""

SUMMARIES = """
SELECT session, seq, first_ts, last_ts FROM recto.heads
WHERE session > %(after)s AND seq > 0 ORDER BY session LIMIT %(limit)s
"""

TITLE_ENTRIES = f"""
SELECT wanted.session, found.* FROM unnest(%(sessions)s::text[]) AS wanted(session) CROSS JOIN LATERAL (
  (
    SELECT {_COLUMNS} FROM recto.entries AS e WHERE e.session = wanted.session
      AND key >= '{TITLE_KEY}'::bytea AND key < '{PAST_TITLE_KEYS}'::bytea ORDER BY seq DESC LIMIT 1
  ) UNION ALL (
    SELECT {_COLUMNS} FROM recto.entries AS e WHERE e.session = wanted.session
      AND seq BETWEEN 1 AND {OPENING_ENTRIES} AND role = 'user' AND kind = 'message'::bytea
      AND octet_length(content) <= {OPENING_BYTES} AND NOT EXISTS (
        SELECT 1 FROM recto.entries AS named WHERE named.session = wanted.session
          AND named.key >= '{TITLE_KEY}'::bytea AND named.key < '{PAST_TITLE_KEYS}'::bytea
      ) ORDER BY seq LIMIT {OPENING_MESSAGES}
  )
) AS found
"""  # noqa: S608  # of constants

STATUS = """
SELECT h.seq, h.hash, h.epoch, h.owner, h.lease_until > now(), k.seq, k.hash, e.hash
FROM recto.heads AS h
LEFT JOIN recto.kept_heads AS k ON k.session = h.session
LEFT JOIN recto.entries AS e ON e.session = k.session AND e.seq = k.seq
WHERE h.session = %(session)s
"""
"""The head, the lease, the separately stored head, and the hash of the entry that head refers to."""

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
), worded AS (
  INSERT INTO recto.terms(session, tenant, seq, data)
  SELECT moved.session, moved.tenant, new.*
  FROM moved CROSS JOIN unnest(%(term_seqs)s::bigint[], %(terms)s::bytea[]) AS new
)
INSERT INTO recto.entries(session, tenant, seq, id, ts, role, kind, wire, surface, tokens, counter, key, meta, prev,
  hash, content)
SELECT moved.session, moved.tenant, new.* FROM moved CROSS JOIN unnest(
  %(seqs)s::bigint[], %(ids)s::bytea[], %(tss)s::bigint[], %(roles)s::text[], %(kinds)s::bytea[], %(wires)s::bytea[],
  %(surfaces)s::bytea[], %(tokens)s::bigint[], %(counters)s::bytea[], %(keys)s::bytea[], %(metas)s::bytea[],
  %(prevs)s::bytea[], %(hashes)s::bytea[], %(contents)s::bytea[]
) AS new
"""
"""Compare and swap: moves the head if it is unchanged and the lease permits it, and inserts the entries only then."""

TERMS = f"""
SELECT seq, data FROM recto.terms WHERE session = %(session)s AND seq BETWEEN %(start)s AND %(stop)s
ORDER BY seq LIMIT {PAGE_TERMS}
"""  # noqa: S608  # of constants
PICKED_TERMS = "SELECT seq, data FROM recto.terms WHERE session = %(session)s AND seq = ANY(%(seqs)s) ORDER BY seq"
ADD_TERMS = """
INSERT INTO recto.terms(session, tenant, seq, data)
SELECT e.session, e.tenant, e.seq, new.data
FROM unnest(%(seqs)s::bigint[], %(hashes)s::bytea[], %(terms)s::bytea[]) AS new(seq, hash, data)
JOIN recto.entries AS e ON e.session = %(session)s AND e.seq = new.seq AND e.hash = new.hash
ON CONFLICT (session, seq) DO UPDATE SET data = EXCLUDED.data
"""
LACKING_TERMS = """
SELECT e.seq FROM recto.entries AS e
WHERE e.session = %(session)s AND e.seq BETWEEN %(start)s AND %(stop)s AND e.kind = 'message'::bytea AND NOT EXISTS (
  SELECT 1 FROM recto.terms AS t WHERE t.session = %(session)s AND t.seq = e.seq
    AND substring(t.data FROM 1 FOR octet_length(%(version)s::bytea)) = %(version)s::bytea
) ORDER BY e.seq LIMIT %(limit)s
"""

TAKE_LEASE = """
UPDATE recto.heads SET owner = %(owner)s, epoch = epoch + 1, lease_until = now() + make_interval(secs => %(seconds)s)
WHERE session = %(session)s AND (owner IS NULL OR lease_until < now() OR owner = %(owner)s)
RETURNING epoch, seq, hash
"""
RENEW_LEASE = """
UPDATE recto.heads SET lease_until = now() + make_interval(secs => %(seconds)s)
WHERE session = %(session)s AND owner = %(owner)s AND epoch = %(epoch)s
"""
END_LEASE = """
UPDATE recto.heads SET owner = NULL, lease_until = NULL
WHERE session = %(session)s AND owner = %(owner)s AND epoch = %(epoch)s
"""

STORED_HEADS = "SELECT session, seq, hash FROM recto.kept_heads ORDER BY session"
ACCEPTING = "SELECT set_config('recto.accepting', 'on', true)"
"""Lets the owner of the tables set kept heads back, in this transaction."""
ACCEPT = """
INSERT INTO recto.kept_heads(session, tenant, seq, hash)
SELECT session, tenant, seq, hash FROM recto.heads WHERE seq > 0
ON CONFLICT (session) DO UPDATE SET seq = EXCLUDED.seq, hash = EXCLUDED.hash
"""


def append_parameters(session: str, entries: Sequence[Entry], epoch: int | None) -> Mapping[str, Any]:
    """Return the parameters of `APPEND`."""
    first, last = entries[0], entries[-1]
    return {
        "session": session,
        "after": bigint(first.seq - 1),
        "prev": first.prev,
        "seq": bigint(last.seq),
        "hash": last.hash,
        "first_ts": bigint(first.ts),
        "last_ts": bigint(last.ts),
        "epoch": None if epoch is None else bigint(epoch),
        "seqs": bigint_array(entry.seq for entry in entries),
        "ids": bytea_array(entry.id.encode() for entry in entries),
        "tss": bigint_array(entry.ts for entry in entries),
        "roles": text_array(str(entry.role) for entry in entries),
        "kinds": bytea_array(entry.kind.encode() for entry in entries),
        "wires": bytea_array(entry.wire.encode() for entry in entries),
        "surfaces": bytea_array(entry.surface.encode() for entry in entries),
        "tokens": bigint_array(entry.tokens for entry in entries),
        "counters": bytea_array(entry.counter.encode() for entry in entries),
        "keys": bytea_array(None if entry.key is None else entry.key.encode() for entry in entries),
        "metas": bytea_array(entry.meta for entry in entries),
        "prevs": bytea_array(entry.prev for entry in entries),
        "hashes": bytea_array(entry.hash for entry in entries),
        "contents": bytea_array(entry.content for entry in entries),
        "term_seqs": bigint_array(entry.seq for entry in entries if entry.terms),
        "terms": bytea_array(entry.terms for entry in entries if entry.terms),
    }


def draft_parameters(drafts: Sequence[Draft]) -> dict[str, BinaryArray]:
    """Return the ids and idempotency keys of drafts as query parameters."""
    return {
        "ids": bytea_array(draft.id.encode() for draft in drafts),
        "keys": bytea_array(draft.key.encode() for draft in drafts if draft.key is not None),
    }


def entry_of(session: str, row: TupleRow) -> Entry:
    """Convert a row to an entry."""
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
    """The state of a session at one moment."""

    head: Head
    epoch: int
    is_leased: bool
    """Whether a process holds the lease."""
    kept: Head | None
    """The separately stored head."""
    stored_hash: bytes | None
    """Hash of the entry that the separately stored head refers to."""
    by_key: Mapping[str, Entry]
    by_id: Mapping[str, tuple[int, bytes]]
    """Number and hash of the entries that have ids of the drafts."""


async def read_status(pool: ConnectionPool, session: str, drafts: Sequence[Draft]) -> SessionStatus:
    """Read the status of a session with regard to these drafts."""

    async def attempt() -> SessionStatus:
        parameters = {"session": session, **draft_parameters(drafts)}
        async with pool.batch(tenant_of(session)) as connection:
            end = await connection.execute(STATUS, parameters, binary=True)
            keyed = await connection.execute(BY_KEY, parameters, binary=True)
            identified = await connection.execute(BY_ID, parameters, binary=True)
        row = await end.fetchone()
        by_key = {entry.key: entry for entry in (entry_of(session, one) for one in await keyed.fetchall())}
        by_id = {bytes(one[1]).decode(): (int(one[0]), bytes(one[12])) for one in await identified.fetchall()}
        stored = {key: entry for key, entry in by_key.items() if key is not None}
        if row is None:
            return SessionStatus(
                head=EMPTY_HEAD, epoch=0, is_leased=False, kept=None, stored_hash=None, by_key=stored, by_id=by_id
            )
        seq, digest, epoch, owner, is_live, kept_seq, kept_hash, stored_hash = row
        return SessionStatus(
            head=Head(seq, bytes(digest)),
            epoch=epoch,
            is_leased=owner is not None and bool(is_live),
            kept=None if kept_seq is None else Head(kept_seq, bytes(kept_hash)),
            stored_hash=None if stored_hash is None else bytes(stored_hash),
            by_key=stored,
            by_id=by_id,
        )

    return await pool.retry(attempt)
