"""Runs one function over many tasks in several processes; neither the results nor their order depend on how many.

A thin layer over `ProcessPoolExecutor`, which adds what its callers promise: progress while tasks run, errors that
arrive with their attributes, no worker left running when the caller stops reading results, and quiet workers on Ctrl-C.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.sharedctypes import Synchronized
from traceback import format_exc
from typing import Any, TypeVar

from recto.cli.console import Advance
from recto.errors import RectoError

T = TypeVar("T")
R = TypeVar("R")

_POLL_SECONDS = 0.1
"""Time between two reports of progress."""


def in_processes(
    work: Callable[[T, Advance], R],
    tasks: Sequence[T],
    jobs: int,
    advance: Advance,
    *,
    size: Callable[[T], int] = lambda task: 0,
) -> Iterator[R]:
    """Yields the result of `work` for each task, in the order of the tasks. The largest tasks are started first.

    `work` is a module-level function; tasks and results must be picklable. With one job everything runs in this
    process. Closing the iterator ends the worker processes.

    Raises:
        RectoError: A worker process died.
    """
    if jobs <= 1 or len(tasks) <= 1:
        for task in tasks:
            yield work(task, advance)
        return
    context = multiprocessing.get_context("spawn")  # the same on every system, and no copies of running threads
    progress = context.Value("q", 0)
    executor = ProcessPoolExecutor(
        min(jobs, len(tasks)), mp_context=context, initializer=_start_worker, initargs=(progress,)
    )
    others = set(multiprocessing.active_children())
    largest_first = sorted(range(len(tasks)), key=lambda place: -size(tasks[place]))
    with _sigint_blocked():
        futures = {place: executor.submit(_run_task, work, tasks[place]) for place in largest_first}
    try:
        yield from _ordered_results(futures, _ProgressReporter(progress, advance))
    except BrokenProcessPool:
        raise RectoError(
            "a process ended before its work was done; the machine may be out of memory. "
            "Try again with a smaller --jobs. Nothing was changed."
        ) from None
    finally:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()  # the executor itself would wait until running tasks are done
        executor.shutdown()


def _ordered_results(futures: dict[int, Future[Any]], report: Callable[[], None]) -> Iterator[Any]:
    for place in range(len(futures)):
        future = futures.pop(place)
        while True:
            try:
                result = future.result(_POLL_SECONDS)
            except TimeoutError:
                report()
            else:
                break
        report()
        if isinstance(result, _RemoteError):  # raised in task order, so that the error does not depend on timing
            raise result.rebuild()
        yield result


class _ProgressReporter:
    """Passes on what the workers have added to the shared counter since the last call."""

    def __init__(self, progress: Synchronized[int], advance: Advance) -> None:
        self._counter = progress.get_obj()  # read without the lock, which a killed worker may still hold
        self._advance = advance
        self._reported = 0

    def __call__(self) -> None:
        total = self._counter.value
        if total > self._reported:
            self._advance(total - self._reported)
            self._reported = total


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Blocks Ctrl-C while workers start: they inherit the mask, and would print a traceback before they ignore it."""
    resource_tracker.ensure_running()  # started with the first process otherwise, and that unblocks the signal
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


_progress: Synchronized[int]
"""The shared counter, in a worker."""


def _start_worker(progress: Synchronized[int]) -> None:
    global _progress  # noqa: PLW0603  # an initializer of the executor has no other place
    _progress = progress
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent


def _add_progress(by: int, /) -> None:
    with _progress.get_lock():
        _progress.value += by


@dataclass(frozen=True, slots=True, kw_only=True)
class _RemoteError:
    """An exception raised in a worker. Pickling the exception would call its class with its message, which few take."""

    kind: type[Exception]
    args: tuple[object, ...]
    attributes: dict[str, Any]
    traceback: str

    def rebuild(self) -> Exception:
        error = self.kind.__new__(self.kind, *self.args)
        vars(error).update(self.attributes)
        error.add_note(f"In another process:\n{self.traceback}")
        return error


def _run_task(work: Callable[[T, Advance], R], task: T) -> R | _RemoteError:
    try:
        return work(task, _add_progress)
    except Exception as error:  # noqa: BLE001  # any error is raised again in the parent
        plain = {name: value for name, value in vars(error).items() if isinstance(value, str | int | float | None)}
        return _RemoteError(kind=type(error), args=error.args, attributes=plain, traceback=format_exc())
