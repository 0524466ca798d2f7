"""How long work waits: for its time to be over, for a lock, and for others that must be done at once too.

What the work is, is not known here.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

_STEPS = 30
"""How often the time for what gets on is given again."""


@dataclass(slots=True)
class Deadline:
    """When it is enough."""

    at: float
    step: float = 0.0
    """Seconds that it is put off by, from then on, when some of the work is done."""
    end: float = 0.0
    """When it is not put off any more."""

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """So many seconds from now."""
        return cls(time.monotonic() + seconds)

    @classmethod
    def without_a_step_for(cls, seconds: float) -> Deadline:
        """Work that gets on is let go on, on a machine that is slow or busy too; work that does not is given up."""
        now = time.monotonic()
        return cls(now + seconds, step=seconds, end=now + _STEPS * seconds)

    def moved_on(self) -> None:
        """Some of the work is done."""
        self.at = max(self.at, min(time.monotonic() + self.step, self.end))

    @property
    def left(self) -> float:
        """Seconds until then."""
        return max(self.at - time.monotonic(), 0.0)

    @property
    def passed(self) -> bool:
        """Whether it was then."""
        return not self.left

    def lets_in(self, lock: threading.Lock) -> bool:
        """Waits for a lock, but not beyond the end. Another thread may hang in an embedder that does not answer."""
        return lock.acquire(timeout=min(self.left, threading.TIMEOUT_MAX))


class FifoLock:
    """Sessions that must be indexed now, one after the other: at once each would take as long as all of them.

    The time a session waits in it does not count, for as long as those in front get on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps = 0
        self._length = 0
        self._changed = threading.Condition()

    def stepped(self) -> None:
        """Some work was done."""
        self._steps += 1

    @contextmanager
    def turn(self, seconds: float) -> Iterator[None]:
        """Waits for its turn; where nobody gets on for so long, it waits no more."""
        self._grow(1)
        seen = -1
        try:
            while not (mine := self._lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))) and seen != self._steps:
                seen = self._steps
            try:
                yield
            finally:
                if mine:
                    self._lock.release()
        finally:
            self._grow(-1)

    def let_pass(self, seconds: float) -> None:
        """Lets all of them go first, for so long at most: for work that nobody waits for."""
        with self._changed:
            self._changed.wait_for(lambda: not self._length, min(seconds, threading.TIMEOUT_MAX))

    def _grow(self, by: int) -> None:
        with self._changed:
            self._length += by
            self._changed.notify_all()


_T = TypeVar("_T")
_PARTING = 5.0
"""Seconds that the end of the process waits for calls nobody waits for any more."""
_RUNNING: set[threading.Event] = set()
"""The ends of calls that have not come yet."""


@atexit.register
def _part() -> None:
    """Waits a little for calls that were given up: a process that ends under a native runtime at work is aborted."""
    end = time.monotonic() + _PARTING
    for done in list(_RUNNING):
        done.wait(max(end - time.monotonic(), 0.0))


class BackgroundCall(Generic[_T]):
    """One call on a thread of its own."""

    def __init__(self, ask: Callable[[], _T], name: str) -> None:
        self._ask = ask
        self._name = name
        self.answers: list[_T] = []
        self.error: BaseException | None = None
        self.done = threading.Event()

    def answered_within(self, seconds: float) -> bool:
        """Starts it, and waits; it goes on by itself where it takes longer."""
        threading.Thread(target=self._run, name=self._name, daemon=True).start()
        return self.done.wait(min(max(seconds, 0.0), threading.TIMEOUT_MAX))

    def _run(self) -> None:
        """Whatever comes of it is told to who waits."""
        _RUNNING.add(self.done)
        try:
            self.answers.append(self._ask())
        except BaseException as error:  # noqa: BLE001  # not ours: it may raise what it likes
            self.error = error
        self.done.set()
        _RUNNING.discard(self.done)
