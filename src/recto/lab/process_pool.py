"""The same work on many things, in several processes: neither what comes of it nor its order depends on how many.

A process that is stopped or dies takes nothing with it but its own work, and whoever waits is told. What the work is
and what comes of it is not known here; both must be able to travel between processes.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from traceback import format_exc
from typing import Any, Generic, TypeVar

from recto.cli.console import Advance
from recto.errors import RectoError

T = TypeVar("T")
R = TypeVar("R")

_TELL_EVERY = 0.1
"""Seconds between two words about progress: more of them would only keep the pipe busy."""
_STEP, _DONE, _FAILED = range(3)


def in_processes(
    work: Callable[[T, Advance], R],
    tasks: Sequence[T],
    jobs: int,
    advance: Advance,
    *,
    size: Callable[[T], int] = lambda task: 0,
) -> Iterator[R]:
    """What comes of each task, in their order. `work` is a function of a module; the largest tasks are begun first.

    With one job it is done here. Whoever stops listening ends the processes.
    """
    if jobs <= 1 or len(tasks) <= 1:
        for task in tasks:
            yield work(task, advance)
        return
    order = sorted(range(len(tasks)), key=lambda place: -size(tasks[place]))
    with ExitStack() as opened:
        lines = [opened.enter_context(_line(work)) for _ in range(min(jobs, len(tasks)))]
        yield from _Desk(tasks, order, lines, advance).answers()


class _Desk(Generic[T, R]):
    """Hands out tasks and puts what comes back into their order."""

    def __init__(self, tasks: Sequence[T], order: Sequence[int], lines: Sequence[Connection], advance: Advance) -> None:
        self._tasks = tasks
        self._waiting = list(reversed(order))
        self._lines = lines
        self._advance = advance
        self._come: dict[int, R] = {}
        self._failed: dict[int, Exception] = {}

    def answers(self) -> Iterator[R]:
        for line in self._lines:
            self._hand_out(line)
        for place in range(len(self._tasks)):
            while place not in self._come and place not in self._failed:
                ready = wait(self._lines)
                for line in (line for line in self._lines if line in ready):
                    self._listen(line)
            if place in self._failed:  # raised in its turn: which error is told does not depend on who was quicker
                raise self._failed[place]
            yield self._come.pop(place)

    def _hand_out(self, line: Connection) -> None:
        if self._waiting:
            place = self._waiting.pop()
            line.send((place, self._tasks[place]))

    def _listen(self, line: Connection) -> None:
        try:
            kind, place, said = line.recv()
        except (EOFError, OSError):
            raise RectoError(
                "a process ended before its work was done; the machine may be out of memory. "
                "Try again with a smaller --jobs. Nothing was changed."
            ) from None
        if kind == _STEP:
            self._advance(said)
            return
        if kind == _FAILED:
            self._failed[place] = _rebuilt(*said)
        else:
            self._come[place] = said
        self._hand_out(line)


@contextmanager
def _line(work: Callable[[T, Advance], R]) -> Iterator[Connection]:
    """A process that works, and the line to it."""
    spawning = multiprocessing.get_context("spawn")  # the same on every system; threads of ours are not copied
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(theirs, work), daemon=True)
    with _undisturbed():
        process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        _end(process)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C waits: a process would die of it while it is being started, and complain."""
    resource_tracker.ensure_running()  # it would end the waiting when it is started by the first process
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _end(process: BaseProcess) -> None:
    process.terminate()
    process.join(5)
    if process.is_alive():
        process.kill()
        process.join()


def _serve(line: Connection, work: Callable[[Any, Advance], object]) -> None:
    """Works until nobody listens any more. Ctrl-C is for whoever waits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(BrokenPipeError):  # whoever waited was killed
        _answer(line, work)


def _answer(line: Connection, work: Callable[[Any, Advance], object]) -> None:
    while True:
        try:
            place, task = line.recv()
        except (EOFError, OSError):
            return
        telling = _Telling(line)
        try:
            answer: tuple[int, int, object] = (_DONE, place, work(task, telling))
        except Exception as error:  # noqa: BLE001  # whatever it is, it is raised where somebody waits
            answer = (_FAILED, place, (type(error), error.args, _plain(error), format_exc()))
        telling.tell()
        line.send(answer)


class _Telling:
    """Adds up progress, and tells of it now and then."""

    def __init__(self, line: Connection) -> None:
        self._line = line
        self._by = 0
        self._told = time.monotonic()

    def __call__(self, by: int, /) -> None:
        self._by += by
        if time.monotonic() - self._told >= _TELL_EVERY:
            self.tell()

    def tell(self) -> None:
        if self._by:
            self._line.send((_STEP, 0, self._by))
        self._by, self._told = 0, time.monotonic()


def _plain(error: Exception) -> dict[str, Any]:
    return {name: value for name, value in vars(error).items() if isinstance(value, str | int | float | None)}


def _rebuilt(kind: type[Exception], args: tuple[object, ...], attributes: dict[str, Any], where: str) -> Exception:
    """The error as it was raised there: pickling would make it anew from its message, which few take."""
    error = kind.__new__(kind, *args)
    vars(error).update(attributes)
    error.add_note(f"In another process:\n{where}")
    return error
