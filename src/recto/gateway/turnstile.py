"""Lets a few requests at a time do what needs the processor, and keys in turn: many of one key do not stand in the way
of one of another.

More threads at once would not get more done, only each of them later. It belongs to one event loop, so nothing is
locked, and it does not know what the work is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from recto.engine.async_session import on_a_thread

_T = TypeVar("_T")
AT_ONCE = 6
"""So many work at once: enough for a commit to have company while others compute."""


class Turnstile:
    """One way in, with a line for each key."""

    def __init__(self, most: int = AT_ONCE) -> None:
        self._free = most
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        """Who waits, by key; the key whose turn is next stands first."""

    @property
    def waiting(self) -> int:
        """How many wait to be let in."""
        return sum(map(len, self._lines.values()))

    async def work(self, key: str, call: Callable[..., _T], /, *args: object, **kwargs: object) -> _T:
        """Runs a blocking call on a thread when it is the key's turn."""
        async with self.passed(key):
            return await on_a_thread(call, *args, **kwargs)

    @asynccontextmanager
    async def passed(self, key: str) -> AsyncIterator[None]:
        """Waits to be let in, and makes room at the end."""
        await self._let_in(key)
        try:
            yield
        finally:
            self._leave()

    async def _let_in(self, key: str) -> None:
        if self._free and not self._lines:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._lines.setdefault(key, deque())
        line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._step_out(key, turn)
            else:  # it was let in at the same moment
                self._leave()
            raise

    def _step_out(self, key: str, turn: asyncio.Future[None]) -> None:
        line = self._lines.get(key, deque())
        if turn in line:
            line.remove(turn)
            if not line:
                del self._lines[key]

    def _leave(self) -> None:
        """Lets the next one in: the first of the first line, which then stands last."""
        self._free += 1
        while self._free and self._lines:
            key = next(iter(self._lines))
            line = self._lines.pop(key)
            turn = line.popleft()
            if line:
                self._lines[key] = line
            if not turn.done():  # else it has given up just now
                self._free -= 1
                turn.set_result(None)
