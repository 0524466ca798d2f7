"""Waiting with limits: deadlines, a fair lock, and calls on background threads.

Knows nothing of the work itself.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
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


class CpuBudget:
    """A token bucket of CPU time: a share of one core on average, with short bursts.

    Work is charged after it was done, so one piece of work may overdraw the budget; the next one waits longer.
    """

    def __init__(self, share: float = 1.0, *, burst: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        """`share`: CPU seconds per second; 1 or more: no limit. `burst`: CPU seconds that are saved up at most."""
        self.share = share
        self._burst = burst
        self._clock = clock
        self._credit = burst
        self._updated = clock()
        self._lock = threading.Lock()

    def charge(self, seconds: float) -> None:
        """Report CPU time that was spent."""
        with self._lock:
            self._refill()
            self._credit -= seconds

    def delay(self) -> float:
        """Return for how many seconds the next piece of work has to wait; 0 while there is credit."""
        if self.share >= 1:
            return 0.0
        with self._lock:
            self._refill()
            return max(-self._credit / self.share, 0.0)

    def _refill(self) -> None:
        now = self._clock()
        self._credit = min(self._credit + (now - self._updated) * self.share, self._burst)
        self._updated = now


_T = TypeVar("_T")
_EXIT_SECONDS = 30.0
"""Seconds the process waits at exit for background threads: longer than any call that has not hung for good."""


class _Exit:
    """Background threads that must end before the interpreter does.

    A thread that returns from native code (C++, Rust) while the interpreter is being torn down aborts the process. A
    non-daemon thread would be joined in time, but nothing could tell it to stop: `atexit` handlers run after that join.
    So these are daemon threads that the `atexit` handler stops and joins. Non-daemon threads and executors of the
    program have ended by then, and handlers that the program registered after importing this module have run.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._stops: set[weakref.WeakMethod[Callable[[], object]]] = set()
        self.has_begun = False

    def start(self, thread: threading.Thread) -> None:
        with self._lock:
            if self.has_begun:
                raise RuntimeError("the process is ending")
            self._threads = {other for other in self._threads if other.is_alive()}
            thread.start()
            self._threads.add(thread)

    def add_stop(self, stop: Callable[[], object]) -> None:
        with self._lock:
            self._stops = {other for other in self._stops if other() is not None}
            self._stops.add(weakref.WeakMethod(stop))

    def run(self) -> None:
        with self._lock:
            self.has_begun = True
            threads, stops = self._threads, [stop() for stop in self._stops]
        for stop in stops:
            if stop is not None:
                stop()
        end = time.monotonic() + _EXIT_SECONDS
        for thread in threads:
            thread.join(max(end - time.monotonic(), 0.0))


_exit = _Exit()


@atexit.register
def _end_threads() -> None:
    _exit.run()


def _forget_threads() -> None:
    """In a forked child none of the parent's threads exist, and the lock may be held by one of them."""
    global _exit  # noqa: PLW0603
    _exit = _Exit()


_FORK_SECONDS = 10.0
"""How long a fork waits for work that it must not divide."""
_undivided = threading.RLock()
_forking = threading.local()


@contextmanager
def undivided_by_fork() -> Iterator[None]:
    """Do some work during which no other thread forks the process.

    A forked child has none of the parent's other threads: a module that one of them was importing stays half imported
    there, and a lock of a native library that one of them held stays locked.
    """
    with _undivided:
        yield


def _before_fork() -> None:
    _forking.waits = _undivided.acquire(timeout=_FORK_SECONDS)


def _after_fork_in_parent() -> None:
    if _forking.waits:
        _undivided.release()


def _after_fork_in_child() -> None:
    global _undivided  # noqa: PLW0603
    _undivided = threading.RLock()
    _forget_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


def start_thread(work: Callable[[], object], name: str) -> threading.Thread:
    """Start a background thread that is joined before the interpreter ends. Raises `RuntimeError` when it is ending."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    _exit.start(thread)
    return thread


def stop_at_exit(stop: Callable[[], object]) -> None:
    """Call a method when the process ends, so that its background thread can be joined. Keeps no reference to it."""
    _exit.add_stop(stop)


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
        try:
            start_thread(self._run, self._name)
        except RuntimeError as error:  # no new thread can be started, mostly because the process is ending
            self.error = error
            self.done.set()
        return self.done.wait(min(max(seconds, 0.0), threading.TIMEOUT_MAX))

    def _run(self) -> None:
        # The result or error is left for the waiting thread.
        try:
            self.results.append(self._function())
        except BaseException as error:  # noqa: BLE001  # not ours: it may raise what it likes
            self.error = error
        self.done.set()
