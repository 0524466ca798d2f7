"""Leases of sessions: one owner at a time, over all processes and machines.

A turn holds a lease with a number, the epoch. The lease is renewed while the turn lasts, however long, and expires
a while after its owner was last active. The next owner gets the next epoch, and the database
refuses writes under an older one.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass

import psycopg
from psycopg.rows import TupleRow

from recto.errors import AppendConflict, TurnTaken
from recto.stores.postgres import queries
from recto.stores.postgres.pool import ConnectionPool
from recto.transcript.entries import EMPTY_HEAD, Head
from recto.transcript.session_keys import tenant_of

LEASE = 15.0
"""Seconds after which an owner that does not renew its lease has lost it."""
_RENEWED = 1 / 3
"""Share of the lease time after which it is renewed."""
_PAUSE, _LONGEST_PAUSE = 0.01, 0.25


@dataclass(slots=True, kw_only=True, eq=False)
class Lease:
    """A lease that this process holds."""

    owner: str
    """Unique per turn: a retry after a lost connection gets the same lease."""
    epoch: int
    head: Head | None
    """Head of the session; None while an append is in progress."""
    sure_until: float
    """Monotonic time until which the database lets no other process write."""
    renewing: asyncio.Task[None] | None = None
    is_lost: bool = False


class Leases:
    """The leases that this process holds. Used on the event loop of the pool only."""

    def __init__(self, pool: ConnectionPool, lease: float = LEASE) -> None:
        self._pool = pool
        self._lease = lease
        self._leases: dict[str, Lease] = {}
        self._taking: set[str] = set()

    def head(self, session: str) -> Head | None:
        """Return the head of a session while only this process can have written to it; callable from any thread."""
        lease = self._leases.get(session)
        head = None if lease is None else lease.head
        return head if lease is not None and not lease.is_lost and time.monotonic() < lease.sure_until else None

    def writing(self, session: str) -> Lease | None:
        """Return the lease to write under, if there is one, and mark its head as unknown until the append is done."""
        lease = self._leases.get(session)
        if lease is not None:
            lease.head = None
        return lease

    async def take(self, session: str, patience: float | None = None) -> Lease:
        """Wait for the lease of a session and take it. Raises `TurnTaken`."""
        ends = time.monotonic() + (self._pool.patience if patience is None else patience)
        pause = _PAUSE
        while (turn := await self._try_take(session)) is None:
            if time.monotonic() + pause > ends:
                raise TurnTaken(session, self._pool.location)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
        turn.renewing = asyncio.create_task(self._keep_renewing(session, turn))
        return turn

    async def end(self, session: str, turn: Lease) -> None:
        """Release a lease. A lost lease belongs to another process and is left alone."""
        if self._leases.get(session) is turn:
            del self._leases[session]
        if turn.renewing is not None:
            turn.renewing.cancel()
        with suppress(psycopg.Error, TimeoutError):  # it expires soon by itself
            async with asyncio.timeout(self._lease):
                await self._update(queries.END_LEASE, session, turn)

    async def refuse_lost(self, session: str) -> None:
        """Raise `AppendConflict` if another process has taken over the lease."""
        lease = self._leases.get(session)
        if lease is None:
            return
        if not lease.is_lost:
            lease.is_lost = not await self._update(queries.RENEW_LEASE, session, lease)
        if lease.is_lost:
            [row] = await self._pool.fetch_all(tenant_of(session), queries.HEAD, {"session": session}) or [(0,)]
            reason = "another process has taken over the turn, because nothing was heard of this one"
            raise AppendConflict(session, None, row[0], reason)

    async def _try_take(self, session: str) -> Lease | None:
        """Try to take the lease. One held in this process is not free, even if lost: its owner is still running."""
        if session in self._leases or session in self._taking:
            return None
        self._taking.add(session)
        tenant, owner = tenant_of(session), secrets.token_hex(8)
        parameters = {"session": session, "tenant": tenant, "owner": owner, "seconds": self._lease}

        async def attempt() -> TupleRow | None:
            async with self._pool.batch(tenant) as connection:
                await connection.execute(queries.OPEN, parameters)
                taken = await connection.execute(queries.TAKE_LEASE, parameters, binary=True)
            return await taken.fetchone()

        sure_until = time.monotonic() + self._lease
        try:
            row = await self._pool.retry(attempt)
            if row is None:
                return None
            epoch, seq, digest = row
            head = Head(seq, bytes(digest)) if seq else EMPTY_HEAD
            turn = self._leases[session] = Lease(owner=owner, epoch=epoch, head=head, sure_until=sure_until)
            return turn
        finally:
            self._taking.discard(session)

    async def _keep_renewing(self, session: str, turn: Lease) -> None:
        while True:
            await asyncio.sleep(self._lease * _RENEWED)
            sent_at = time.monotonic()
            with suppress(psycopg.Error):
                if not await self._update(queries.RENEW_LEASE, session, turn):
                    turn.is_lost = True
                    return
                turn.sure_until = sent_at + self._lease

    async def _update(self, statement: str, session: str, turn: Lease) -> bool:
        parameters = {"session": session, "owner": turn.owner, "epoch": turn.epoch, "seconds": self._lease}

        async def attempt() -> bool:
            async with self._pool.batch(tenant_of(session)) as connection:
                done = await connection.execute(statement, parameters)
            return done.rowcount == 1

        return await self._pool.retry(attempt)
