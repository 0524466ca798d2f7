"""The PostgreSQL store: any number of processes on any number of machines, one writer per session at a time.

An append moves the head of its session from where the writer saw it and inserts its entries in the same statement:
a second writer finds the head moved and reads again. The holder of a session's lease writes under its epoch; what
a previous holder still sends is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self
from weakref import WeakValueDictionary

import psycopg
from psycopg import errors
from psycopg.rows import TupleRow

from recto.errors import AppendConflict, KeyReused, StoreCorrupt, StoreError, TailCut
from recto.stores.postgres import queries
from recto.stores.postgres._index import PostgresIndex
from recto.stores.postgres._leases import LEASE, Leases
from recto.stores.postgres.codec import bigint, bigint_array, bytea_array, text_array
from recto.stores.postgres.errors import is_lost, redact_url, translate
from recto.stores.postgres.pool import EVERYBODY, ConnectionPool
from recto.stores.postgres.queries import SessionStatus, read_status
from recto.stores.postgres.schema import prepare_schema
from recto.transcript.entries import (
    EMPTY_HEAD,
    MAX_SEQ,
    Draft,
    Entry,
    Head,
    SessionSummary,
    already_stored,
    link_entries,
    refuse_unstorable,
)
from recto.transcript.protocols import Records
from recto.transcript.session_keys import tenant_of

_PAUSE = 0.02
_MOST_TIPS = 10_000
_RECORD_ATTEMPTS = 4


class PostgresStore:
    """Transcripts in a PostgreSQL database that many gateways share. Creates its tables when first opened."""

    def __init__(
        self,
        url: str,
        *,
        key: str = "",
        create: bool = True,
        lock_timeout: float = 30.0,
        connections: int = 16,
        lease: float = LEASE,
        read_only: bool = False,
    ) -> None:
        """Open the store.

        Args:
            url: Address of the database.
            key: Signs the tenant of every transaction, for a role that does not own the tables.
            create: Whether the tables are created if there are none.
            lock_timeout: Seconds for which locks, leases and the server are waited for.
            connections: Maximum number of connections.
            lease: Seconds after which a silent owner has lost its turn.
            read_only: For a replica: the schema is not checked and nothing is written.
        """
        self.url = url
        self.key = key
        self._pool = ConnectionPool(url, key=key, patience=lock_timeout, connections=connections, read_only=read_only)
        try:
            if not read_only:
                prepare_schema(url, redact_url(url), key=key, create=create, seconds=lock_timeout)
        except psycopg.Error as error:
            raise translate(error, redact_url(url), lock_timeout) from error
        self._leases = Leases(self._pool, lease)
        self._tips: dict[str, Head] = {}
        """Heads of the sessions this process wrote to, most recent last.

        Only a guess, since other processes write too: the database compares it in the append itself.
        """
        self._writing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    is_local = False

    @property
    def location(self) -> str:
        """Where the store is, for messages: a path or a URL without the password."""
        return self._pool.location

    def append(
        self, session: str, drafts: Sequence[Draft], *, expect: int | None = None, also: Records | None = None
    ) -> list[Entry]:
        """Append the drafts to the session, atomically. Returns once they are durable."""
        refuse_unstorable(session, drafts)
        if not drafts:
            return self._pool.run(_no_entries)
        entries = self._pool.run(lambda: self._append(session, drafts, expect))
        if also is not None:
            records = also(entries)
            self._pool.run(lambda: self._append_records(records))
        return entries

    @contextmanager
    def turn(self, session: str, *, patience: float | None = None) -> Iterator[None]:
        """Hold the session's lease: no other process writes to it meanwhile. Waits for it; raises `TurnTaken`."""
        refuse_unstorable(session, ())
        turn = self._pool.run(lambda: self._leases.take(session, patience))
        try:
            yield
        finally:
            with suppress(StoreError):  # it expires soon by itself
                self._pool.run(lambda: self._leases.end(session, turn))

    def head(self, session: str) -> Head:
        """Return the head of a session, empty if there is none. The holder of its lease needs no query."""
        if (known := self._leases.head(session)) is not None:
            return known
        found = self._fetch(session, queries.HEAD)
        return Head(found[0][0], bytes(found[0][1])) if found else EMPTY_HEAD

    def written(self, session: str) -> int:
        """Return the last entry this process appended to a session; 0 if none, or not recently."""
        tip = self._tips.get(session)
        return 0 if tip is None else tip.seq

    def read(self, session: str, start: int = 1, stop: int | None = None) -> Iterator[Entry]:
        """Iterate over the entries from `start` to `stop` inclusive; holds no connection between two pages."""
        start, stop = max(start, 1), MAX_SEQ if stop is None else min(stop, MAX_SEQ)
        while start <= stop:
            found = self._fetch(session, queries.PAGE, start=bigint(start), stop=bigint(stop))
            if not found:
                return
            start = found[-1][0] + 1
            for row in found:
                yield queries.entry_of(session, row)
            del found

    def pick(self, session: str, seqs: Collection[int]) -> list[Entry]:
        """Return the entries with these numbers, in order, with one query; missing ones are skipped."""
        there = bigint_array(seq for seq in set(seqs) if 0 < seq <= MAX_SEQ)
        return [queries.entry_of(session, row) for row in self._fetch(session, queries.PICKED, seqs=there)]

    def tail(self, session: str, count: int) -> list[Entry]:
        """Return the last `count` entries, oldest first."""
        found = self._fetch(session, queries.TAIL, count=bigint(min(max(count, 0), MAX_SEQ)))
        return [queries.entry_of(session, row) for row in reversed(found)]

    def terms(self, session: str, start: int = 1, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Iterate over the rows of the word index from `start` to `stop` inclusive."""
        start, stop = max(start, 1), MAX_SEQ if stop is None else min(stop, MAX_SEQ)
        while start <= stop:
            found = self._fetch(session, queries.TERMS, start=bigint(start), stop=bigint(stop))
            if not found:
                return
            start = found[-1][0] + 1
            for seq, data in found:
                yield seq, bytes(data)

    def pick_terms(self, session: str, seqs: Collection[int]) -> dict[int, bytes]:
        """Return the rows of the word index of these entries, with one query."""
        there = bigint_array(seq for seq in set(seqs) if 0 < seq <= MAX_SEQ)
        return {seq: bytes(data) for seq, data in self._fetch(session, queries.PICKED_TERMS, seqs=there)}

    def add_terms(self, session: str, entries: Sequence[Entry]) -> None:
        """Store rows of the word index for entries that are stored already. Returns once they are durable."""
        refuse_unstorable(session, ())
        new = [entry for entry in entries if entry.terms]
        parameters = {
            "session": session,
            "seqs": bigint_array(entry.seq for entry in new),
            "hashes": bytea_array(entry.hash for entry in new),
            "terms": bytea_array(entry.terms for entry in new),
        }

        async def add() -> None:
            async with self._pool.batch(tenant_of(session)) as connection:
                await connection.execute(queries.ADD_TERMS, parameters)

        self._pool.run(lambda: self._pool.retry(add))

    def lacking_terms(
        self, session: str, version: bytes, start: int = 1, stop: int | None = None, limit: int | None = None
    ) -> list[int]:
        """Return the first messages of a range without a row of the word index that begins with `version`."""
        start, stop = max(start, 1), MAX_SEQ if stop is None else min(stop, MAX_SEQ)
        bounds = {"start": bigint(start), "stop": bigint(stop), "limit": limit, "version": version}
        return [seq for (seq,) in self._fetch(session, queries.LACKING_TERMS, **bounds)] if start <= stop else []

    def get(self, session: str, id: str) -> Entry | None:
        """Return the entry with an id, if it exists."""
        return self._fetch_one(session, queries.BY_ID, "ids", id)

    def find(self, session: str, key: str) -> Entry | None:
        """Return the entry stored under an idempotency key, if it exists."""
        return self._fetch_one(session, queries.BY_KEY, "keys", key)

    def sessions(self, after: str = "", limit: int | None = None) -> list[SessionSummary]:
        """List sessions by key, starting after `after`."""
        parameters = {"after": after, "limit": None if limit is None else max(limit, 0)}
        found = self._pool.run(
            lambda: self._pool.fetch_all(tenant_of(after) or EVERYBODY, queries.SUMMARIES, parameters)
        )
        return [
            SessionSummary(session=session, entries=seq, first_ts=first, last_ts=last)
            for session, seq, first, last in found
        ]

    def title_entries(self, sessions: Sequence[str]) -> list[Entry]:
        """Return the entries that these sessions are titled by, with one query."""
        wanted = list(dict.fromkeys(sessions))
        tenants = {tenant_of(session) for session in wanted}
        tenant = tenants.pop() if len(tenants) == 1 else EVERYBODY
        parameters = {"sessions": text_array(wanted)}
        rows = self._pool.run(lambda: self._pool.fetch_all(tenant, queries.TITLE_ENTRIES, parameters))
        return [queries.entry_of(row[0], row[1:]) for row in rows]

    def kept_heads(self) -> Mapping[str, Head]:
        """Return the heads that are stored separately from the transcript."""
        found = self._pool.run(lambda: self._pool.fetch_all(EVERYBODY, queries.STORED_HEADS))
        return {session: Head(seq, bytes(digest)) for session, seq, digest in found}

    def accept_heads(self) -> None:
        """Accept the transcript as it is: rewrite the separately stored heads from it."""

        async def accept() -> None:
            async with self._pool.batch(EVERYBODY) as connection:
                await connection.execute(queries.ACCEPTING)
                await connection.execute(queries.ACCEPT)

        self._pool.run(lambda: self._pool.retry(accept))

    def erase(self, session: str, *, expect: int | None = None) -> Head:
        """Delete a session permanently once no process holds its lease, and return its last head."""
        from recto.stores.postgres.erasure import erase_session  # noqa: PLC0415  # hardly ever

        self._tips.pop(session, None)
        return erase_session(self.url, session, expect=expect, seconds=self._pool.patience)

    def scrub(self, sessions: Sequence[str]) -> None:
        """Rewrite the tables, so that no trace of erased sessions is left in them; the server's log is not touched."""
        from recto.stores.postgres.erasure import TRANSCRIPT, rewrite_tables  # noqa: PLC0415

        rewrite_tables(self.url, TRANSCRIPT, sessions, seconds=self._pool.patience)

    def damage(self) -> list[str]:
        """Report missing triggers and policies, and heads that are not at the end of their session."""
        from recto.stores.postgres.schema import find_damage  # noqa: PLC0415  # only for who looks

        return self._pool.run(lambda: find_damage(self._pool))

    def index(self, *, lock_timeout: float) -> PostgresIndex:
        """Open the recall index in the same database."""
        return PostgresIndex(self.url, key=self.key, lock_timeout=lock_timeout)

    def close(self) -> None:
        """Close all connections. No other call may follow."""
        self._pool.close()

    async def _append_records(self, records: Sequence[tuple[str, Draft]]) -> None:
        await asyncio.gather(*(self._append_record(session, record) for session, record in records))

    async def _append_record(self, session: str, record: Draft) -> None:
        """Store a record unless its key is taken; others write to the same session."""
        with suppress(KeyReused):
            for _ in range(_RECORD_ATTEMPTS):
                with suppress(AppendConflict):
                    await self._append(session, [record], None)
                    return

    def _fetch_one(self, session: str, statement: str, what: str, name: str) -> Entry | None:
        try:
            found = self._fetch(session, statement, **{what: bytea_array([name.encode()])})
        except UnicodeEncodeError:
            return None
        return queries.entry_of(session, found[0]) if found else None

    def _fetch(self, session: str, statement: str, **parameters: object) -> list[TupleRow]:
        if not session.isprintable():
            return []  # such a key cannot be stored
        parameters = {"session": session, **parameters}
        return self._pool.run(lambda: self._pool.fetch_all(tenant_of(session), statement, parameters))

    async def _append(self, session: str, drafts: Sequence[Draft], expect: int | None) -> list[Entry]:
        lock = self._writing.setdefault(session, asyncio.Lock())
        tried: list[list[Entry]] = []
        async with asyncio.timeout(self._pool.patience + 1), lock:
            guess = self._tips.get(session)
            if guess is not None and (expect is None or expect == guess.seq):
                tried.append(link_entries(session, guess, drafts))
                if await self._try_append(session, tried[-1]):
                    return tried[-1]
            return await self._append_at_head(session, drafts, expect, tried)

    async def _append_at_head(
        self, session: str, drafts: Sequence[Draft], expect: int | None, tried: list[list[Entry]]
    ) -> list[Entry]:
        """Read the session's status, append what is new, and repeat if another writer was faster.

        An attempt whose connection was lost may have been committed: `tried` is compared with what is stored.
        """
        while True:
            status = await read_status(self._pool, session, drafts)
            for entries in tried:
                if status.by_id.get(entries[-1].id) == (entries[-1].seq, entries[-1].hash):
                    return [*await self._before(session, drafts, entries), *entries]
            self._check_stored_head(session, status)
            found = already_stored(session, drafts, status.by_key, status.head, expect)
            new = drafts[len(found) :]
            if not new:
                return found
            for draft in new:
                if draft.id in status.by_id:
                    reason = f"id '{draft.id}' is already entry {status.by_id[draft.id][0]}"
                    raise AppendConflict(session, expect, status.head.seq, reason)
            tried.append(link_entries(session, status.head, new))
            if await self._try_append(session, tried[-1]):
                return [*found, *tried[-1]]
            await self._leases.refuse_lost(session)
            await asyncio.sleep(_PAUSE if status.is_leased else 0)

    async def _before(self, session: str, drafts: Sequence[Draft], entries: Sequence[Entry]) -> list[Entry]:
        """Return the drafts at the start of a batch that were stored before, as stored."""
        old = drafts[: len(drafts) - len(entries)]
        status = await read_status(self._pool, session, old) if old else None
        return [status.by_key[draft.key or ""] for draft in old] if status else []

    async def _try_append(self, session: str, entries: list[Entry]) -> bool:
        """Append entries. False if another writer was faster or the outcome is unknown: the caller then looks."""

        end = Head(entries[-1].seq, entries[-1].hash)

        async def attempt() -> bool:
            tenant = tenant_of(session)
            turn = self._leases.writing(session)
            try:
                async with self._pool.batch(tenant) as connection:
                    if entries[0].seq == 1:
                        await connection.execute(queries.OPEN, {"session": session, "tenant": tenant})
                    parameters = queries.append_parameters(session, entries, None if turn is None else turn.epoch)
                    done = await connection.execute(queries.APPEND, parameters)
                if done.rowcount != len(entries):
                    return False
                if turn is not None:
                    turn.head = end
                return True
            except errors.UniqueViolation:
                return False  # an id or key is taken; the caller finds out which
            except psycopg.Error as error:
                if is_lost(error):
                    return False
                raise

        stored = await self._pool.retry(attempt)
        if stored:
            self._tips.pop(session, None)
            self._tips[session] = end
            if len(self._tips) > _MOST_TIPS:
                del self._tips[next(iter(self._tips))]
        return stored

    def _check_stored_head(self, session: str, status: SessionStatus) -> None:
        stored = status.kept
        if stored is None:
            return
        if stored.seq > status.head.seq:
            raise TailCut(session, stored.seq, status.head.seq)
        if status.stored_hash != stored.hash:
            detail = f"session '{session}' was rewritten: entry {stored.seq} is not the one acknowledged"
            raise StoreCorrupt(self.location, detail)


async def _no_entries() -> list[Entry]:
    return []
