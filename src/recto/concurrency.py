"""Waiting with limits: deadlines, a fair lock, and calls on background threads.

Knows nothing of the work itself.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

_MAX_EXTENSIONS = 30
"""How often a deadline may be extended by its full duration."""


@dataclass(slots=True)
class Deadline:
    """A point in time at which work is abandoned."""

    at: float
    step: float = 0.0
    """Seconds granted from now whenever progress is made."""
    end: float = 0.0
    """The time after which it is not extended any more."""

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """A deadline this many seconds from now."""
        return cls(time.monotonic() + seconds)

    @classmethod
    def extending(cls, seconds: float) -> Deadline:
        """A deadline that progress extends: slow work continues, stalled work is abandoned."""
        now = time.monotonic()
        return cls(now + seconds, step=seconds, end=now + _MAX_EXTENSIONS * seconds)

    def extend(self) -> None:
        """Report progress."""
        self.at = max(self.at, min(time.monotonic() + self.step, self.end))

    @property
    def remaining(self) -> float:
        """Seconds until the deadline."""
        return max(self.at - time.monotonic(), 0.0)

    @property
    def passed(self) -> bool:
        """Whether it has passed."""
        return not self.remaining

    def acquire(self, lock: threading.Lock) -> bool:
        """Acquire a lock before the deadline. Another thread may hang in an embedder that does not respond."""
        return lock.acquire(timeout=min(self.remaining, threading.TIMEOUT_MAX))


class FifoLock:
    """Runs urgent work one at a time: in parallel, each would take as long as all together.

    Waiting time does not count as long as the work ahead makes progress.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._progress = 0
        self._waiting = 0
        self._changed = threading.Condition()

    def report_progress(self) -> None:
        """Report that some work was done."""
        self._progress += 1

    @contextmanager
    def turn(self, seconds: float) -> Iterator[None]:
        """Wait for the lock; if there is no progress for `seconds`, continue without it."""
        self._change_waiting(1)
        seen = -1
        try:
            while (
                not (acquired := self._lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)))
                and seen != self._progress
            ):
                seen = self._progress
            try:
                yield
            finally:
                if acquired:
                    self._lock.release()
        finally:
            self._change_waiting(-1)

    def wait_until_free(self, seconds: float) -> None:
        """Wait until no urgent work is queued, for at most `seconds`: for work without urgency."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, min(seconds, threading.TIMEOUT_MAX))

    def _change_waiting(self, by: int) -> None:
        with self._changed:
            self._waiting += by
            self._changed.notify_all()


_T = TypeVar("_T")
_EXIT_WAIT_SECONDS = 5.0
"""Seconds the process waits at exit for abandoned calls."""
_RUNNING: set[threading.Event] = set()
"""Completion events of running calls."""


@atexit.register
def _wait_at_exit() -> None:
    """Wait briefly for abandoned calls: a process that exits while a native runtime is working is aborted."""
    end = time.monotonic() + _EXIT_WAIT_SECONDS
    for done in list(_RUNNING):
        done.wait(max(end - time.monotonic(), 0.0))


class BackgroundCall(Generic[_T]):
    """One call on its own thread."""

    def __init__(self, function: Callable[[], _T], name: str) -> None:
        self._function = function
        self._name = name
        self.results: list[_T] = []
        self.error: BaseException | None = None
        self.done = threading.Event()

    def run_within(self, seconds: float) -> bool:
        """Start the call and wait; it continues in the background if it takes longer. Returns whether it is done."""
        threading.Thread(target=self._run, name=self._name, daemon=True).start()
        return self.done.wait(min(max(seconds, 0.0), threading.TIMEOUT_MAX))

    def _run(self) -> None:
        # The result or error is left for the waiting thread.
        _RUNNING.add(self.done)
        try:
            self.results.append(self._function())
        except BaseException as error:  # noqa: BLE001  # not ours: it may raise what it likes
            self.error = error
        self.done.set()
        _RUNNING.discard(self.done)
