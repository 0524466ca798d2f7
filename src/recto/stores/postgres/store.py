"""The PostgreSQL store: any number of processes on any number of machines, and one owner of a session at a time.

An append moves the head of its session from where the writer saw it, and stores its entries in the same statement:
whoever comes second finds the head moved and looks again. Who has the turn of a session writes under its epoch; what
an owner of before still sends is refused.
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

from recto.errors import AppendConflict, StoreCorrupt, StoreError, TailCut
from recto.stores.postgres import queries
from recto.stores.postgres.codec import number, of_bytes, of_numbers
from recto.stores.postgres.errors import is_lost, named, translate
from recto.stores.postgres.index import PostgresIndex
from recto.stores.postgres.leases import LEASE, Leases
from recto.stores.postgres.pool import EVERYBODY, ConnectionPool
from recto.stores.postgres.queries import SessionStatus, standing_of
from recto.stores.postgres.schema import prepared
from recto.transcript.entries import MAX_SEQ, Draft, Entry, Head, SessionSummary, refuse_unstorable
from recto.transcript.hash_chain import EMPTY_HEAD, already_stored, link_entries
from recto.transcript.session_keys import tenant_of

_PAUSE = 0.02
_MOST_TIPS = 10_000


class PostgresStore:
    """Transcripts in a database that many gateways may use at once. Made at its first opening."""

    def __init__(
        self,
        url: str,
        *,
        create: bool = True,
        lock_timeout: float = 30.0,
        connections: int = 16,
        lease: float = LEASE,
        read_only: bool = False,
    ) -> None:
        """`read_only` is for a replica: nothing is asked of it before it is read, and nothing is ever written."""
        self.url = url
        self._link = ConnectionPool(url, patience=lock_timeout, connections=connections, read_only=read_only)
        try:
            if not read_only:
                prepared(url, named(url), create=create, seconds=lock_timeout)
        except psycopg.Error as error:
            raise translate(error, named(url), lock_timeout) from error
        self._turns = Leases(self._link, lease)
        self._tips: dict[str, Head] = {}
        """Where sessions ended when this process last wrote to them, those written to last at the end.

        Only a guess of where they end now: the database decides.
        """
        self._writing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def location(self) -> str:
        """Where it is, as a person would write it."""
        return self._link.location

    def append(self, session: str, drafts: Sequence[Draft], *, expect: int | None = None) -> list[Entry]:
        """Stores the drafts after the last entry, all or none; returns when they are durable."""
        refuse_unstorable(session, drafts)
        if not drafts:
            return self._link.do(_nothing)
        return self._link.do(lambda: self._append(session, drafts, expect))

    @contextmanager
    def turn(self, session: str, *, patience: float | None = None) -> Iterator[None]:
        """Nobody else writes to the session until its end; waits while somebody else has it. Raises `TurnTaken`."""
        refuse_unstorable(session, ())
        turn = self._link.do(lambda: self._turns.take(session, patience))
        try:
            yield
        finally:
            with suppress(StoreError):  # it ends by itself soon
                self._link.do(lambda: self._turns.end(session, turn))

    def head(self, session: str) -> Head:
        """The end of a session; `EMPTY` where there is none. Who has its turn knows without asking."""
        if (known := self._turns.head(session)) is not None:
            return known
        found = self._fetched(session, queries.HEAD)
        return Head(found[0][0], bytes(found[0][1])) if found else EMPTY_HEAD

    def written(self, session: str) -> int:
        """The last entry that this process has stored in a session; 0 where it has not, or not for a long time."""
        tip = self._tips.get(session)
        return 0 if tip is None else tip.seq

    def read(self, session: str, start: int = 1, stop: int | None = None) -> Iterator[Entry]:
        """Entries from `start` up to and including `stop`, in order; nothing is held between two pages."""
        start, stop = max(start, 1), MAX_SEQ if stop is None else min(stop, MAX_SEQ)
        while start <= stop:
            found = self._fetched(session, queries.PAGE, start=number(start), stop=number(stop))
            if not found:
                return
            start = found[-1][0] + 1
            for row in found:
                yield queries.entry_of(session, row)
            del found

    def pick(self, session: str, seqs: Collection[int]) -> list[Entry]:
        """The entries of these numbers that there are, in order; asked for together."""
        there = of_numbers(seq for seq in set(seqs) if 0 < seq <= MAX_SEQ)
        return [queries.entry_of(session, row) for row in self._fetched(session, queries.PICKED, seqs=there)]

    def tail(self, session: str, count: int) -> list[Entry]:
        """The last entries, oldest first."""
        found = self._fetched(session, queries.TAIL, count=number(min(max(count, 0), MAX_SEQ)))
        return [queries.entry_of(session, row) for row in reversed(found)]

    def get(self, session: str, id: str) -> Entry | None:
        """The entry with an id."""
        return self._one(session, queries.BY_ID, "ids", id)

    def find(self, session: str, key: str) -> Entry | None:
        """The entry stored under an idempotency key."""
        return self._one(session, queries.BY_KEY, "keys", key)

    def sessions(self, after: str = "", limit: int | None = None) -> list[SessionSummary]:
        """Sessions by key, from the first after `after`."""
        given = {"after": after, "limit": None if limit is None else max(limit, 0)}
        found = self._link.do(lambda: self._link.fetched(tenant_of(after) or EVERYBODY, queries.SUMMARIES, given))
        return [
            SessionSummary(session=session, entries=seq, first_ts=first, last_ts=last)
            for session, seq, first, last in found
        ]

    def kept_heads(self) -> Mapping[str, Head]:
        """The heads kept apart from the transcript."""
        found = self._link.do(lambda: self._link.fetched(EVERYBODY, queries.KEPT))
        return {session: Head(seq, bytes(digest)) for session, seq, digest in found}

    def accept_heads(self) -> None:
        """Takes the transcript as it stands for true: the heads kept outside are written anew."""

        async def accept() -> None:
            async with self._link.batch(EVERYBODY) as connection:
                await connection.execute(queries.ACCEPT)

        self._link.do(lambda: self._link.again(accept))

    def erase(self, session: str, *, expect: int | None = None) -> Head:
        """Removes a whole session for good, when nobody has its turn; gives back where it ended."""
        from recto.stores.postgres.erasure import erased  # noqa: PLC0415  # hardly ever

        self._tips.pop(session, None)
        return erased(self.url, session, expect=expect, seconds=self._link.patience)

    def scrub(self, sessions: Sequence[str]) -> None:
        """Leaves nothing of erased sessions in the gaps of its tables; the server's own log is the server's."""
        from recto.stores.postgres.erasure import TRANSCRIPT, written_anew  # noqa: PLC0415

        written_anew(self.url, TRANSCRIPT, sessions, seconds=self._link.patience)

    def damage(self) -> list[str]:
        """Which of its guards are gone, and which heads do not stand at the end of their session."""
        from recto.stores.postgres.schema import damage_in  # noqa: PLC0415  # only for who looks

        return self._link.do(lambda: damage_in(self._link))

    def index(self, *, lock_timeout: float) -> PostgresIndex:
        """The index of recall beside it."""
        return PostgresIndex(self.url, lock_timeout=lock_timeout)

    def close(self) -> None:
        """Lets go of its connections; no other call may follow."""
        self._link.close()

    def _one(self, session: str, statement: str, what: str, name: str) -> Entry | None:
        try:
            found = self._fetched(session, statement, **{what: of_bytes([name.encode()])})
        except UnicodeEncodeError:
            return None
        return queries.entry_of(session, found[0]) if found else None

    def _fetched(self, session: str, statement: str, **given: object) -> list[TupleRow]:
        if not session.isprintable():
            return []  # nothing is stored under such a name
        asked = {"session": session, **given}
        return self._link.do(lambda: self._link.fetched(tenant_of(session), statement, asked))

    async def _append(self, session: str, drafts: Sequence[Draft], expect: int | None) -> list[Entry]:
        lock = self._writing.setdefault(session, asyncio.Lock())
        tried: list[list[Entry]] = []
        async with asyncio.timeout(self._link.patience + 1), lock:
            guess = self._tips.get(session)
            if guess is not None and (expect is None or expect == guess.seq):
                tried.append(link_entries(session, guess, drafts))
                if await self._is_stored(session, tried[-1]):
                    return tried[-1]
            return await self._settled(session, drafts, expect, tried)

    async def _settled(
        self, session: str, drafts: Sequence[Draft], expect: int | None, tried: list[list[Entry]]
    ) -> list[Entry]:
        """Looks where the session stands, stores what is new there, and looks again where somebody was faster.

        What was tried and is there after all was stored, though nobody was left to say so.
        """
        while True:
            stands = await standing_of(self._link, session, drafts)
            for entries in tried:
                if stands.by_id.get(entries[-1].id) == (entries[-1].seq, entries[-1].hash):
                    return [*await self._before(session, drafts, entries), *entries]
            self._refuse_cut(session, stands)
            found = already_stored(session, drafts, stands.by_key, stands.head, expect)
            new = drafts[len(found) :]
            if not new:
                return found
            for draft in new:
                if draft.id in stands.by_id:
                    reason = f"id '{draft.id}' is already entry {stands.by_id[draft.id][0]}"
                    raise AppendConflict(session, expect, stands.head.seq, reason)
            tried.append(link_entries(session, stands.head, new))
            if await self._is_stored(session, tried[-1]):
                return [*found, *tried[-1]]
            await self._turns.refuse_lost(session)
            await asyncio.sleep(_PAUSE if stands.is_taken else 0)

    async def _before(self, session: str, drafts: Sequence[Draft], entries: Sequence[Entry]) -> list[Entry]:
        """The drafts of a batch that were stored already before the rest of it, as they were stored."""
        old = drafts[: len(drafts) - len(entries)]
        stands = await standing_of(self._link, session, old) if old else None
        return [stands.by_key[draft.key or ""] for draft in old] if stands else []

    async def _is_stored(self, session: str, entries: list[Entry]) -> bool:
        """Whether these entries stand at the end now; no, also where nobody can tell any more: then it is looked up."""

        end = Head(entries[-1].seq, entries[-1].hash)

        async def attempt() -> bool:
            tenant = tenant_of(session)
            turn = self._turns.writing(session)
            try:
                async with self._link.batch(tenant) as connection:
                    if entries[0].seq == 1:
                        await connection.execute(queries.OPEN, {"session": session, "tenant": tenant})
                    given = queries.appended(session, entries, None if turn is None else turn.epoch)
                    done = await connection.execute(queries.APPEND, given)
                if done.rowcount != len(entries):
                    return False
                if turn is not None:
                    turn.head = end
                return True
            except errors.UniqueViolation:
                return False  # an id or a key is taken: it is looked up which
            except psycopg.Error as error:
                if is_lost(error):
                    return False
                raise

        stored = await self._link.again(attempt)
        if stored:
            self._tips.pop(session, None)
            self._tips[session] = end
            if len(self._tips) > _MOST_TIPS:
                del self._tips[next(iter(self._tips))]
        return stored

    def _refuse_cut(self, session: str, stands: SessionStatus) -> None:
        kept = stands.kept
        if kept is None:
            return
        if kept.seq > stands.head.seq:
            raise TailCut(session, kept.seq, stands.head.seq)
        if stands.hash_there != kept.hash:
            detail = f"session '{session}' was written anew: entry {kept.seq} is not the one acknowledged"
            raise StoreCorrupt(self.location, detail)


async def _nothing() -> list[Entry]:
    return []
