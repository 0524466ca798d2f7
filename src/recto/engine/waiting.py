"""Waits for an answer from something that is not ours, and no longer than it may take."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

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


class Call(Generic[_T]):
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
