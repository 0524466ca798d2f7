"""Fair scheduler for CPU-bound work: a fixed number of slots, round-robin over API keys.

More threads at once would not get more done, only each of them later. An admitted request goes on to use the event
loop, which has no queue per key: so while other keys are active, several requests of one key are admitted with a delay
between them. A key that sends one request after the other is not slowed down. A scheduler belongs to one event loop, so
nothing is locked.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from recto.engine.async_session import on_a_thread

_T = TypeVar("_T")
SLOTS = 6
"""Requests that work at once: enough for commits to be batched while others compute."""
_SPACING = 0.03
"""Seconds between two requests of a key while other keys are active: it leaves about half of the CPU to them. Extended
by the lag of the event loop, up to `_MAX_LAG`: a late loop has too much to do already."""
_MAX_LAG = 0.1
_ACTIVE_SECONDS = 2.0
"""How long a key counts as active after it was admitted."""
_MAX_KEYS = 1_000
"""Keys whose last admission is remembered."""


class FairScheduler:
    """Admits work to a number of slots, with a queue for each key."""

    def __init__(
        self, slots: int = SLOTS, *, spacing: float = _SPACING, has_many: Callable[[str], bool] = lambda key: True
    ) -> None:
        self._free = slots
        self._spacing = spacing
        self._has_many = has_many
        """Whether a key has many requests in flight, here or further on."""
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiting requests by key; the key whose turn is next comes first."""
        self._last_admitted: OrderedDict[str, float] = OrderedDict()
        """When each key was admitted last; the most recent comes last."""
        self._timer: asyncio.TimerHandle | None = None
        self._lag = 0.0
        """Seconds by which the event loop was late at the last timer."""

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return sum(map(len, self._queues.values()))

    async def run(self, key: str, call: Callable[..., _T], /, *args: object, **kwargs: object) -> _T:
        """Run a blocking call on a thread when it is the key's turn."""
        async with self.slot(key):
            return await on_a_thread(call, *args, **kwargs)

    @asynccontextmanager
    async def slot(self, key: str) -> AsyncIterator[None]:
        """Wait for a slot, and release it at the end."""
        await self.acquire(key)
        try:
            yield
        finally:
            self.release()

    async def acquire(self, key: str) -> None:
        """Wait for a slot, which has to be released."""
        now = asyncio.get_running_loop().time()
        if self._free and key not in self._queues and self._due(key, now) <= now:
            self._take_slot(key, now)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._queues.setdefault(key, deque())
        queue.append(turn)
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._abandon(key, turn)
            else:  # admitted at the same moment
                self.release()
            raise

    def _abandon(self, key: str, turn: asyncio.Future[None]) -> None:
        queue = self._queues.get(key, deque())
        if turn in queue:
            queue.remove(turn)
            if not queue:
                del self._queues[key]

    def release(self) -> None:
        """Release a slot."""
        self._free += 1
        self._admit()

    def _admit(self) -> None:
        """Admit requests while there are free slots: the first of the first queue, whose key then goes to the end.

        Sets a timer for keys that have to wait.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._free and self._queues:
            due = {key: self._due(key, now) for key in self._queues}
            key = next((key for key in due if due[key] <= now), None)
            if key is None:
                when = min(due.values())
                self._timer = loop.call_at(when, self._on_timer, when)
                return
            queue = self._queues.pop(key)
            turn = queue.popleft()
            if queue:
                self._queues[key] = queue
            if not turn.done():  # else it was cancelled just now
                self._take_slot(key, now)
                turn.set_result(None)

    def _on_timer(self, when: float) -> None:
        self._lag = min(asyncio.get_running_loop().time() - when, _MAX_LAG)
        self._admit()

    def _take_slot(self, key: str, now: float) -> None:
        self._free -= 1
        self._last_admitted[key] = now
        self._last_admitted.move_to_end(key)
        if len(self._last_admitted) > _MAX_KEYS:
            self._last_admitted.popitem(last=False)

    def _due(self, key: str, now: float) -> float:
        """Return when the next request of a key may be admitted."""
        if not self._has_many(key):
            return now
        own = self._last_admitted.get(key)
        other = next((last for name, last in reversed(self._last_admitted.items()) if name != key), None)
        if own is None or other is None or now - other > _ACTIVE_SECONDS:
            return now
        return own + self._spacing + self._lag
