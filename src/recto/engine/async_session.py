"""`Session` for programs that await: each call runs the blocking one on a thread.

`AsyncSession` has the calls and namespaces of `Session` under the same names and with the same parameters. Each is
generated from the blocking method by `awaited`, so there is one implementation and one signature. Properties that read
the store become calls: `await session.head()`.

A task that is cancelled while it waits does not undo what its thread has begun. The outcome is unknown until `find` is
called, which is what keys are for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial, wraps
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from recto.context.window.state import Note
from recto.engine.session import (
    Session,
    SessionCheckpoints,
    SessionHealth,
    SessionMemory,
    SessionTranscript,
    SessionUsage,
)
from recto.engine.window import Window
from recto.engine.work import SessionWork
from recto.health.metrics import Alert
from recto.health.protocols import HealthSink
from recto.tokens.calibration import Calibration
from recto.transcript.entries import Entry, Head
from recto.transcript.session_keys import session_in

if TYPE_CHECKING:
    from recto.engine.monitor import Monitor

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")
_PAGE = 200


@cache
def _threads() -> ThreadPoolExecutor:
    # Enough for a group commit to have a group; asyncio's own pool has six threads on two cores.
    return ThreadPoolExecutor(max_workers=32, thread_name_prefix="recto")


async def on_a_thread(call: Callable[..., _R], /, *args: object, **kwargs: object) -> _R:
    """Runs a blocking call without blocking the event loop.

    If it is cancelled before a thread is free, the call is not made. The outcome comes back in one step of the event
    loop; `run_in_executor` takes three.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_R] = loop.create_future()
    _threads().submit(_call, loop, [(future, partial(call, *args, **kwargs))])
    return await future


def _call(loop: asyncio.AbstractEventLoop, work: list[tuple[asyncio.Future[_R], partial[_R]]]) -> None:
    future, call = work.pop()
    if future.cancelled():
        return
    try:
        deliver = partial(future.set_result, call())
    except BaseException as error:  # noqa: BLE001  # raised where it is awaited
        deliver = partial(future.set_exception, error)
    loop.call_soon_threadsafe(_deliver, future, deliver)
    # The future of an error keeps this frame and its caller's: neither may keep the future, or what was called.
    del future, deliver, call


def _deliver(future: asyncio.Future[_R], deliver: Callable[[], None]) -> None:
    if not future.cancelled():
        deliver()


class RunningCall(Generic[_R]):
    """A blocking call on a thread that is made whatever becomes of the task that awaits it.

    A task that is cancelled meanwhile can await it again. That is what `asyncio.shield` does, in one step of the event
    loop instead of two.
    """

    def __init__(self, call: Callable[..., _R], /, *args: object, **kwargs: object) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._is_done = False
        self._result: Any = None
        self._error: BaseException | None = None
        _threads().submit(self._run, [partial(call, *args, **kwargs)])

    def __await__(self) -> Generator[Any, None, _R]:
        if not self._is_done:
            self._waiter = self._loop.create_future()
            yield from self._waiter
        if self._error is None:
            result: _R = self._result
            return result
        error, self._error = self._error, None
        try:
            raise error
        finally:
            del error  # it keeps this frame

    async def complete(self) -> _R:
        """Await the call; a task that is cancelled meanwhile waits for its end, and is cancelled then."""
        try:
            return await self
        except asyncio.CancelledError:
            with suppress(Exception):
                await self
            raise

    def _run(self, work: list[partial[_R]]) -> None:
        call = work.pop()
        try:
            self._result = call()
        except BaseException as error:  # noqa: BLE001  # raised where it is awaited
            self._error = error
        del call  # an error keeps this frame: it may not keep what was called
        self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._is_done = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class AsyncFace(Generic[_T]):
    """An object with blocking calls, behind calls that are awaited."""

    def __init__(self, blocking: _T) -> None:
        self._blocking = blocking


def awaited(
    method: Callable[Concatenate[_T, _P], _R],
) -> Callable[Concatenate[AsyncFace[_T], _P], Coroutine[Any, Any, _R]]:
    """The awaited form of a blocking method, with its parameters."""

    @wraps(method)
    async def call(face: AsyncFace[_T], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return await on_a_thread(method, face._blocking, *args, **kwargs)

    call.__doc__ = f"See `{method.__qualname__}`."
    return call


class AsyncSessionMemory(AsyncFace[SessionMemory]):
    """`SessionMemory` whose calls are awaited."""

    propose = awaited(SessionMemory.propose)
    list = awaited(SessionMemory.list)
    reviewed_until = awaited(SessionMemory.reviewed_until)


class AsyncSessionCheckpoints(AsyncFace[SessionCheckpoints]):
    """`SessionCheckpoints` whose calls are awaited."""

    newest = awaited(SessionCheckpoints.newest)
    waiting = awaited(SessionCheckpoints.waiting)
    handoff = awaited(SessionCheckpoints.handoff)
    host_compacting = awaited(SessionCheckpoints.host_compacting)
    host_compacted = awaited(SessionCheckpoints.host_compacted)


class AsyncSessionHealth(AsyncFace[SessionHealth]):
    """`SessionHealth` whose calls are awaited, except those that only register a listener."""

    report = awaited(SessionHealth.report)
    fidelity = awaited(SessionHealth.fidelity)

    def on_alert(self, callback: Callable[[Alert], object]) -> None:
        """See `SessionHealth.on_alert`. The callback runs on the thread of the turn, not on the loop."""
        self._blocking.on_alert(callback)

    def watch(self, sink: HealthSink) -> None:
        """See `SessionHealth.watch`. The sink is called on the thread of the turn, not on the loop."""
        self._blocking.watch(sink)


class AsyncSessionUsage(AsyncFace[SessionUsage]):
    """`SessionUsage` whose calls are awaited."""

    record = awaited(SessionUsage.record)
    payload = awaited(SessionUsage.payload)

    async def calibration(self) -> Calibration:
        """See `SessionUsage.calibration`."""
        return await on_a_thread(lambda: self._blocking.calibration)


class AsyncSessionTranscript(AsyncFace[SessionTranscript]):
    """`SessionTranscript` whose calls are awaited."""

    grep = awaited(SessionTranscript.grep)
    outline = awaited(SessionTranscript.outline)


class AsyncSessionWork(AsyncFace[SessionWork]):
    """`SessionWork` whose calls are awaited."""

    file = awaited(SessionWork.file)
    command = awaited(SessionWork.command)
    error = awaited(SessionWork.error)
    number = awaited(SessionWork.number)


class AsyncSession(AsyncFace[Session]):
    """A `Session` whose calls are awaited."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.session = session
        """The blocking session."""
        self.key = session.key
        self.store = session.store
        self.meter = session.meter
        self.memory = AsyncSessionMemory(session.memory)
        self.checkpoints = AsyncSessionCheckpoints(session.checkpoints)
        self.health = AsyncSessionHealth(session.health)
        self.usage = AsyncSessionUsage(session.usage)
        self.transcript = AsyncSessionTranscript(session.transcript)
        self.work = AsyncSessionWork(session.work)

    def __repr__(self) -> str:
        return f"<AsyncSession {session_in(self.key)}>"

    @property
    def monitor(self) -> Monitor | None:
        """See `Session.monitor`."""
        return self.session.monitor

    @property
    def window(self) -> Window:
        """The window of the blocking session: its calls block."""
        return self.session.window

    append = awaited(Session.append)
    append_all = awaited(Session.append_all)
    record = awaited(Session.record)
    tail = awaited(Session.tail)
    get = awaited(Session.get)
    find = awaited(Session.find)
    verify = awaited(Session.verify)
    count = awaited(Session.count)
    observe = awaited(Session.observe)
    prompt = awaited(Session.prompt)
    check = awaited(Session.check)
    report = awaited(Session.report)
    recall = awaited(Session.recall)
    pin = awaited(Session.pin)
    unpin = awaited(Session.unpin)
    restore = awaited(Session.restore)
    redo = awaited(Session.redo)
    compact = awaited(Session.compact)
    note = awaited(Session.note)
    checkpoint = awaited(Session.checkpoint)
    resume = awaited(Session.resume)
    facts = awaited(Session.facts)
    delegate = awaited(Session.delegate)
    fork = awaited(Session.fork)
    rename = awaited(Session.rename)
    close = awaited(Session.close)

    async def read(self, start: int = 1, stop: int | None = None) -> AsyncIterator[Entry]:
        """See `Session.read`."""
        entries = self.session.read(start, stop)
        while page := await on_a_thread(lambda: list(islice(entries, _PAGE))):
            for entry in page:
                yield entry

    async def head(self) -> Head:
        """See `Session.head`."""
        return await on_a_thread(lambda: self.session.head)

    async def title(self) -> str:
        """See `Session.title`."""
        return await on_a_thread(lambda: self.session.title)

    async def notes(self) -> tuple[Note, ...]:
        """See `Session.notes`."""
        return await on_a_thread(lambda: self.session.notes)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
