"""Whose turn it is: one owner of a session at a time, over all processes and machines.

A turn is a lease with a number, the epoch. It is renewed while it lasts, so that it may take as long as it likes, and
ends by itself a while after its owner was last heard of. Whoever comes next gets the next epoch, and the database
refuses what is written under an older one.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from dataclasses import dataclass

import psycopg

from recto.core.scopes import tenant_of
from recto.errors import AppendConflict, StoreLocked
from recto.stores.postgres import rows
from recto.stores.postgres.link import Link

LEASE = 15.0
"""Seconds after which an owner that is not heard of has lost its turn."""
_RENEWED = LEASE / 3
_PAUSE, _LONGEST_PAUSE = 0.01, 0.25


@dataclass(slots=True)
class _Turn:
    epoch: int
    renewing: asyncio.Task[None]
    is_lost: bool = False


class Turns:
    """The turns that this process has. Used on the loop of its link alone."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._owner = secrets.token_hex(8)
        self._held: dict[str, _Turn] = {}

    def epoch(self, session: str) -> int | None:
        """Under which number this process writes; None where it has no turn."""
        held = self._held.get(session)
        return None if held is None else held.epoch

    async def take(self, session: str) -> int:
        """Waits until the turn is free, and takes it. Raises `StoreLocked`."""
        tenant, pause = tenant_of(session), _PAUSE
        given = {"session": session, "tenant": tenant, "owner": self._owner, "seconds": LEASE}

        async def attempt() -> int | None:
            async with self._link.batch(tenant) as connection:
                await connection.execute(rows.OPEN, given)
                taken = await connection.execute(rows.TAKE_TURN, given)
            row = await taken.fetchone()
            return None if row is None else int(row[0])

        try:
            async with asyncio.timeout(self._link.patience):
                while (epoch := await self._link.again(attempt)) is None:
                    await asyncio.sleep(pause)
                    pause = min(pause * 1.5, _LONGEST_PAUSE)
        except TimeoutError:
            raise StoreLocked(f"{self._link.location} (session '{session}')", self._link.patience) from None
        turn = _Turn(epoch, asyncio.create_task(self._renew(session, epoch)))
        self._held[session] = turn
        return epoch

    async def end(self, session: str, epoch: int) -> None:
        """Lets the next one have it. One that is lost already is nobody's to end."""
        held = self._held.get(session)
        if held is not None and held.epoch == epoch:
            del self._held[session]
            held.renewing.cancel()
        with suppress(psycopg.Error):  # it ends by itself soon
            await self._changed(rows.END_TURN, session, epoch)

    async def refuse_lost(self, session: str) -> None:
        """Raises `AppendConflict` where the turn of this process was taken over."""
        held = self._held.get(session)
        if held is None:
            return
        if not held.is_lost:
            held.is_lost = not await self._changed(rows.KEEP_TURN, session, held.epoch)
        if held.is_lost:
            [row] = await self._link.fetched(tenant_of(session), rows.HEAD, {"session": session}) or [(0,)]
            reason = "another process has taken over the turn, because nothing was heard of this one"
            raise AppendConflict(session, None, row[0], reason)

    async def _renew(self, session: str, epoch: int) -> None:
        while True:
            await asyncio.sleep(_RENEWED)
            with suppress(psycopg.Error):
                if not await self._changed(rows.KEEP_TURN, session, epoch):
                    if (held := self._held.get(session)) and held.epoch == epoch:
                        held.is_lost = True
                    return

    async def _changed(self, statement: str, session: str, epoch: int) -> bool:
        given = {"session": session, "owner": self._owner, "epoch": epoch, "seconds": LEASE}

        async def attempt() -> bool:
            async with self._link.batch(tenant_of(session)) as connection:
                done = await connection.execute(statement, given)
            return done.rowcount == 1

        return await self._link.again(attempt)
