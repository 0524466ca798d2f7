"""Whose turn it is: one owner of a session at a time, over all processes and machines.

A turn is a lease with a number, the epoch. It is renewed while it lasts, so that it may take as long as it likes, and
ends by itself a while after its owner was last heard of. Whoever comes next gets the next epoch, and the database
refuses what is written under an older one.
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
from recto.transcript.entries import Head
from recto.transcript.hash_chain import EMPTY_HEAD
from recto.transcript.session_keys import tenant_of

LEASE = 15.0
"""Seconds after which an owner that is not heard of has lost its turn."""
_RENEWED = 1 / 3
"""The share of a lease after which it is renewed."""
_PAUSE, _LONGEST_PAUSE = 0.01, 0.25


@dataclass(slots=True, kw_only=True, eq=False)
class Lease:
    """One turn that this process has."""

    owner: str
    """Another name for each turn: who asks twice because no answer came gets the same one."""
    epoch: int
    head: Head | None
    """Where the session ends; None while that is being changed."""
    sure_until: float
    """By this machine's clock: before then the database has let nobody else write."""
    renewing: asyncio.Task[None] | None = None
    is_lost: bool = False


class Leases:
    """The turns that this process has. Used on the loop of its link alone."""

    def __init__(self, link: ConnectionPool, lease: float = LEASE) -> None:
        self._link = link
        self._lease = lease
        self._held: dict[str, Lease] = {}
        self._taking: set[str] = set()

    def head(self, session: str) -> Head | None:
        """Where a session ends, as long as nobody but this process can have written; asked from any thread."""
        held = self._held.get(session)
        head = None if held is None else held.head
        return head if held is not None and not held.is_lost and time.monotonic() < held.sure_until else None

    def writing(self, session: str) -> Lease | None:
        """The turn under which this process writes now, if it has one; until it is told, its end is unknown."""
        held = self._held.get(session)
        if held is not None:
            held.head = None
        return held

    async def take(self, session: str, patience: float | None = None) -> Lease:
        """Waits until the turn is free, and takes it. Raises `TurnTaken`."""
        ends = time.monotonic() + (self._link.patience if patience is None else patience)
        pause = _PAUSE
        while (turn := await self._taken(session)) is None:
            if time.monotonic() + pause > ends:
                raise TurnTaken(session, self._link.location)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
        turn.renewing = asyncio.create_task(self._renew(session, turn))
        return turn

    async def end(self, session: str, turn: Lease) -> None:
        """Lets the next one have it. One that is lost already is nobody's to end."""
        if self._held.get(session) is turn:
            del self._held[session]
        if turn.renewing is not None:
            turn.renewing.cancel()
        with suppress(psycopg.Error, TimeoutError):  # it ends by itself soon
            async with asyncio.timeout(self._lease):
                await self._changed(queries.END_TURN, session, turn)

    async def refuse_lost(self, session: str) -> None:
        """Raises `AppendConflict` where the turn of this process was taken over."""
        held = self._held.get(session)
        if held is None:
            return
        if not held.is_lost:
            held.is_lost = not await self._changed(queries.KEEP_TURN, session, held)
        if held.is_lost:
            [row] = await self._link.fetched(tenant_of(session), queries.HEAD, {"session": session}) or [(0,)]
            reason = "another process has taken over the turn, because nothing was heard of this one"
            raise AppendConflict(session, None, row[0], reason)

    async def _taken(self, session: str) -> Lease | None:
        """The turn, where it is free. One that this process has is not, even if it was lost: its owner still works."""
        if session in self._held or session in self._taking:
            return None
        self._taking.add(session)
        tenant, owner = tenant_of(session), secrets.token_hex(8)
        given = {"session": session, "tenant": tenant, "owner": owner, "seconds": self._lease}

        async def attempt() -> TupleRow | None:
            async with self._link.batch(tenant) as connection:
                await connection.execute(queries.OPEN, given)
                taken = await connection.execute(queries.TAKE_TURN, given, binary=True)
            return await taken.fetchone()

        sure_until = time.monotonic() + self._lease
        try:
            row = await self._link.again(attempt)
            if row is None:
                return None
            epoch, seq, digest = row
            head = Head(seq, bytes(digest)) if seq else EMPTY_HEAD
            turn = self._held[session] = Lease(owner=owner, epoch=epoch, head=head, sure_until=sure_until)
            return turn
        finally:
            self._taking.discard(session)

    async def _renew(self, session: str, turn: Lease) -> None:
        while True:
            await asyncio.sleep(self._lease * _RENEWED)
            asked = time.monotonic()
            with suppress(psycopg.Error):
                if not await self._changed(queries.KEEP_TURN, session, turn):
                    turn.is_lost = True
                    return
                turn.sure_until = asked + self._lease

    async def _changed(self, statement: str, session: str, turn: Lease) -> bool:
        given = {"session": session, "owner": turn.owner, "epoch": turn.epoch, "seconds": self._lease}

        async def attempt() -> bool:
            async with self._link.batch(tenant_of(session)) as connection:
                done = await connection.execute(statement, given)
            return done.rowcount == 1

        return await self._link.again(attempt)
