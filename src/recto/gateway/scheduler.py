"""Lets a few requests at a time do what needs the processor, and keys in turn: many of one key do not stand in the way
of one of another.

More threads at once would not get more done, only each of them later. Whoever was let in goes on to need the event loop
too, where nobody has a place in line: so while others ask, many of one key are let in with some time between them. A
key that asks one thing after the other is not slowed, however often it asks. It belongs to one event loop, so nothing
is locked, and it does not know what the work is.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from recto.engine.async_session import on_a_thread

_T = TypeVar("_T")
AT_ONCE = 6
"""So many work at once: enough for a commit to have company while others compute."""
_APART = 0.03
"""Seconds between two of a key that are let in, while others ask: about half of the processor is left to those. As much
longer as the loop is late, within a limit: it has too much to do already."""
_LATEST = 0.1
_ASKS = 2.0
"""Seconds for which somebody who was let in counts as one who asks."""
_KEYS = 1_000
"""Keys of which it is remembered when they were let in last."""


class Turnstile:
    """One way in, with a line for each key."""

    def __init__(
        self, most: int = AT_ONCE, *, apart: float = _APART, has_many: Callable[[str], bool] = lambda key: True
    ) -> None:
        self._free = most
        self._apart = apart
        self._has_many = has_many
        """Whether a key has many requests under way, here or further on."""
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        """Who waits, by key; the key whose turn is next stands first."""
        self._last: OrderedDict[str, float] = OrderedDict()
        """When a key was let in last; the latest stands last."""
        self._later: asyncio.TimerHandle | None = None
        self._late = 0.0
        """Seconds by which the loop came back too late, the last time that it was asked to."""

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
        now = asyncio.get_running_loop().time()
        if self._free and key not in self._lines and self._due(key, now) <= now:
            self._enter(key, now)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._lines.setdefault(key, deque())
        line.append(turn)
        self._call()
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
        self._free += 1
        self._call()

    def _call(self) -> None:
        """Lets in whose turn it is: the first of the first line, which then stands last, and so on while there is room.

        Comes back by itself for those whose time has not come.
        """
        if self._later is not None:
            self._later.cancel()
            self._later = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._free and self._lines:
            due = {key: self._due(key, now) for key in self._lines}
            key = next((key for key in due if due[key] <= now), None)
            if key is None:
                when = min(due.values())
                self._later = loop.call_at(when, self._call_late, when)
                return
            line = self._lines.pop(key)
            turn = line.popleft()
            if line:
                self._lines[key] = line
            if not turn.done():  # else it has given up just now
                self._enter(key, now)
                turn.set_result(None)

    def _call_late(self, when: float) -> None:
        self._late = min(asyncio.get_running_loop().time() - when, _LATEST)
        self._call()

    def _enter(self, key: str, now: float) -> None:
        self._free -= 1
        self._last[key] = now
        self._last.move_to_end(key)
        if len(self._last) > _KEYS:
            self._last.popitem(last=False)

    def _due(self, key: str, now: float) -> float:
        """When the next of a key may be let in."""
        if not self._has_many(key):
            return now
        before = self._last.get(key)
        other = next((last for one, last in reversed(self._last.items()) if one != key), None)
        if before is None or other is None or now - other > _ASKS:
            return now
        return before + self._apart + self._late
