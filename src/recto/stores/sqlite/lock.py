"""The lock between processes: a side file, because SQLite's own is polled and a busy writer would starve others."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
except ImportError:  # no such lock on this system: SQLite's own has to do
    LOCK_EX = LOCK_NB = LOCK_UN = 0  # type: ignore[misc]

    def flock(fd: int, operation: int, /) -> None:  # type: ignore[misc]
        """Do nothing."""


_POLL_SECONDS = 0.01


class SideLock:
    """A lock held by one writer at a time, over all processes. Not for use by two threads at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def acquire_now(self) -> bool:
        """Acquire the lock if it is free; the caller must `release` it."""
        try:
            flock(self._opened(), LOCK_EX | LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Release the lock."""
        flock(self._opened(), LOCK_UN)

    @contextmanager
    def held(self, seconds: float | None = None) -> Iterator[None]:
        """Acquire the lock: wait in line, or with a timeout poll and raise `TimeoutError`."""
        if seconds is None:
            flock(self._opened(), LOCK_EX)
        else:
            _try_for(self._opened(), seconds)
        try:
            yield
        finally:
            self.release()

    def _opened(self) -> int:
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        return self._file

    def close(self) -> None:
        """Close the lock file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _try_for(file: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise TimeoutError from None
            time.sleep(_POLL_SECONDS)
