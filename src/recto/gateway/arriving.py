"""Memory for bodies on their way in: small ones come as they like, of large ones a few at a time, and not too fast.

A body that finds no room is not read on, so that its sender waits, until others have arrived. The one that came first
may always go on: so one of them always gets to its end. No key takes all the room. It belongs to one event loop, so
nothing is locked, and it does not know what the bodies are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from recto.errors import RequestRefused
from recto.wire.refusals import OVERLOADED

_SMALL = 1 << 20
"""Bytes of a body that come in without asking: nearly all requests are smaller."""
_ROOM = 10 << 20
"""Bytes for all that have more, beside the one that may always go on."""
_SHARE = 2
"""One key has one part of so many of it."""
_PACE = 64 << 20
"""Bytes a second at which a large body is read: the loop that reads it is everybody's."""
_PATIENCE = 10.0
"""Seconds that a body waits for room before it is told to come back."""


class Arrivals:
    """All large bodies on their way in."""

    def __init__(self, room: int = _ROOM, *, pace: float = _PACE, patience: float = _PATIENCE) -> None:
        self._room = room
        self._pace = pace
        self._patience = patience
        self._bodies: dict[Arrival, int] = {}
        """The bytes that each holds; the one that came first stands first."""
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def held(self) -> int:
        """Bytes of large bodies that have not arrived yet."""
        return sum(self._bodies.values())

    @contextmanager
    def of(self, key: str) -> Iterator[Arrival]:
        """One body, from its first byte to its last."""
        arrival = Arrival(self, key)
        try:
            yield arrival
        finally:
            if self._bodies.pop(arrival, None) is not None:
                self._tell()

    async def let_in(self, arrival: Arrival, size: int) -> None:
        """Waits for room. Raises `RequestRefused` where there was none for long."""
        self._bodies.setdefault(arrival, 0)
        try:
            async with asyncio.timeout(self._patience):
                while not self._fits(arrival, size):
                    turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiting.append(turn)
                    await turn
        except TimeoutError:
            text = "the gateway takes in as many large requests as it can; come back"
            raise RequestRefused(503, OVERLOADED, text, 1) from None
        self._bodies[arrival] += size
        await asyncio.sleep(size / self._pace)

    def _fits(self, arrival: Arrival, size: int) -> bool:
        first, *others = self._bodies
        if arrival is first:
            return True
        held = sum(self._bodies[one] for one in others)
        own = sum(self._bodies[one] for one in others if one.key == arrival.key)
        return held + size <= self._room and own + size <= self._room // _SHARE

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)


class Arrival:
    """One body on its way in."""

    def __init__(self, arrivals: Arrivals, key: str) -> None:
        self._arrivals = arrivals
        self._size = 0
        self.key = key

    async def take(self, size: int) -> None:
        """Takes in more of it, when there is room. Raises `RequestRefused`."""
        self._size += size
        if self._size > _SMALL:
            await self._arrivals.let_in(self, size)
