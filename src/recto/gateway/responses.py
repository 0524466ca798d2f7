"""An upstream's answer on its way to the client: passed on as it comes, and kept.

The end of an answer is held back until the answer is stored: who has seen the end knows that it is durable. A client
that goes away takes the upstream's work with it, and what came so far is kept as what it is: a part.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from recto.engine.async_session import on_a_thread
from recto.errors import CannotCross, MalformedMessage, RectoError, StoreError
from recto.formats import Format
from recto.formats.errors import OVERLOADED, TIMED_OUT, UPSTREAM_FAILED
from recto.formats.sse import DONE, SseEvent, SseReader
from recto.formats.streaming import Capture
from recto.gateway.scheduler import Turnstile
from recto.gateway.turn import GatewayTurn, TurnRunner, refuse_defects
from recto.gateway.upstreams.http import UpstreamResponse, UpstreamUnreachable

_T = TypeVar("_T")
_LINGER = 5.0
"""Seconds that are waited, once a message is whole, for what it cost and for the stream's own end."""
_HELD = 1_000
"""Events that are waited for, once a message is whole: an upstream may go on for ever."""
_PART = 8 * 1024
"""Bytes of an answer whose events are taken apart at once."""
GONE = "the client went away"
STOPPED = "the gateway was stopped"


class Crossing(Protocol):
    """Turns the events of one format into those of another."""

    def feed(self, event: SseEvent) -> list[bytes]:
        """What an event becomes."""
        ...

    def finish(self) -> list[bytes]:
        """What is still to be said at the end."""
        ...


@dataclass(slots=True, kw_only=True)
class Streamed:
    """A streamed answer: an ASGI response that keeps what it passes on."""

    turn: GatewayTurn
    turns: TurnRunner
    answer: UpstreamResponse
    format: Format
    """The client's format, in which the answer is kept."""
    headers: Sequence[tuple[str, str]]
    crossing: Crossing | None = None
    ending: Turnstile = field(default_factory=Turnstile)
    """What a part is written down through, in turn with others."""
    about: Mapping[str, Any] = field(default_factory=dict)
    ended: Callable[[str], None] = lambda outcome: None
    """Told how it went."""
    _capture: Capture = field(init=False)
    _sent: int = field(default=0, init=False)
    _stored: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._capture = self.format.capture()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the answer on."""
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self.headers]
        passing = asyncio.ensure_future(self._pass_on(raw, send))
        watching = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({passing, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not passing.done():
                passing.cancel(GONE)
            with suppress(asyncio.CancelledError):
                await passing
        except asyncio.CancelledError:
            passing.cancel(STOPPED)
            with suppress(asyncio.CancelledError):
                await passing
            raise
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    async def _pass_on(self, headers: list[tuple[bytes, bytes]], send: Send) -> None:
        outcome = "cut"
        try:
            await send({"type": "http.response.start", "status": self.answer.status, "headers": headers})
            outcome = await self._events(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError as error:
            await self._keep_part(str(error) or GONE)
            raise
        except OSError:
            await self._keep_part(GONE)
        finally:
            await asyncio.shield(_quietly(_let_go(self.answer)))
            if not self.turn.ended:
                await asyncio.shield(_quietly(on_a_thread(self.turns.end, self.turn)))
            self.ended(outcome)

    async def _events(self, send: Send) -> str:
        """Passes events on until the message is whole, stores it, and passes on the rest."""
        try:
            held = await self._until_whole(send)
        except UpstreamUnreachable as error:
            return await self._broken(send, TIMED_OUT if error.late else UPSTREAM_FAILED, str(error))
        except (MalformedMessage, CannotCross) as error:
            return await self._broken(send, UPSTREAM_FAILED, f"the upstream's stream cannot be passed on: {error}")
        if not self._capture.ended:
            reason = self._capture.failed or "the upstream's stream ended before its message did"
            if self._capture.failed:  # the error is the upstream's own, and was passed on
                await self._keep_part(reason)
                await self._send(send, b"".join(held))
                return "upstream_error"
            await self._send(send, b"".join(held))
            return await self._broken(send, UPSTREAM_FAILED, reason)
        if self._capture.overflowed:
            return await self._broken(send, UPSTREAM_FAILED, "the upstream's answer is longer than is kept")
        try:
            await finished(self._store())
        except StoreError as error:
            return await self._broken(send, OVERLOADED, f"the answer could not be stored: {error}")
        except RectoError as error:
            return await self._broken(send, UPSTREAM_FAILED, f"the answer cannot be kept: {error}")
        await self._send(send, b"".join(held))
        return "ok"

    async def _store(self) -> None:
        reply, response = self._capture.reply(), self._capture.id
        refuse_defects(reply.messages, self.format)
        await on_a_thread(self.turns.finish, self.turn, reply, response=response, about=self.about)
        self._stored = True

    async def _until_whole(self, send: Send) -> list[bytes]:
        """The events from the one on that makes the message whole."""
        held: list[bytes] = []
        until: float | None = None
        reader, own = SseReader(), SseReader()
        pieces = self.answer.pieces
        while len(held) < _HELD and (piece := await self._next(pieces, until)) is not None:
            for start in range(0, len(piece), _PART):
                passing: list[bytes] = []
                try:
                    done = self._taken(reader.feed(piece[start : start + _PART]), own, passing, held)
                finally:  # what came before an event that cannot be passed on
                    await self._send(send, b"".join(passing))
                if done:
                    return held + self._rest(own)
            if held:
                until = until or asyncio.get_running_loop().time() + _LINGER
        # Half an event at the end of a message that is not whole would swallow the error that is told behind it.
        return held + ([reader.rest] if self.crossing is None and held and reader.rest else self._rest(own))

    def _taken(self, events: Sequence[SseEvent], own: SseReader, passing: list[bytes], held: list[bytes]) -> bool:
        """Sorts events into those that are passed on and, from the one on that makes the message whole, those held.

        Whether the stream's own end was among them. Nothing else is left of them while the client takes its time.
        """
        for event in events:
            out = [event.raw] if self.crossing is None else self.crossing.feed(event)
            for one in [event] if self.crossing is None else own.feed(b"".join(out)):
                self._capture.take(one)
            if self._capture.ended or held:
                held += out
                if event.data == DONE:
                    return True
            else:
                passing += out
                self._sent += bool(out)
        return False

    def _rest(self, own: SseReader) -> list[bytes]:
        """What a crossing still has to say."""
        if self.crossing is None:
            return []
        out = self.crossing.finish()
        for event in own.feed(b"".join(out)):
            self._capture.take(event)
        return out

    async def _next(self, pieces: AsyncIterator[bytes], until: float | None) -> bytes | None:
        """The next piece; none at the end, and none where the message was whole long enough ago."""
        if until is None:
            return await anext(pieces, None)
        try:
            async with asyncio.timeout_at(until):
                return await anext(pieces, None)
        except TimeoutError:
            return None

    async def _send(self, send: Send, body: bytes) -> None:
        if body:
            await send({"type": "http.response.body", "body": body, "more_body": True})  # the guard lets others run

    async def _broken(self, send: Send, code: str, message: str) -> str:
        await self._keep_part(message)
        await self._send(send, self.format.errors.stream_error(code, message, self._sent))
        return "upstream_error"

    async def _keep_part(self, why: str) -> None:
        if not self._stored:
            with suppress(RectoError):
                cut = self.ending.work(self.turn.key.id, self.turns.cut, self.turn, self._capture.partial(), why)
                await finished(cut)


class WholeResponse(Response):
    """An answer in one piece, kept before it is passed on."""

    def __init__(self, status: int, body: bytes, headers: Sequence[tuple[str, str]]) -> None:
        super().__init__(content=body, status_code=status)
        fixed = [one for one in self.raw_headers if one[0] == b"content-length"]
        given = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        self.raw_headers = given + fixed


async def whole_body(answer: UpstreamResponse, most: int) -> bytes:
    """All of an answer, of so many bytes at most. Raises `UpstreamUnreachable` where it is more."""
    body = bytearray()
    async for piece in answer.pieces:
        body += piece
        if len(body) > most:
            raise UpstreamUnreachable(f"its answer is longer than {most:,} bytes")
    return bytes(body)


async def finished(work: Awaitable[Any]) -> None:
    """Waits for something that must not be left half done, even by who is told to stop."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(Exception):
            await task
        raise


async def unless_gone(work: Coroutine[Any, Any, _T], receive: Receive) -> _T:
    """What comes of something, unless the client goes away: then it is cancelled. Raises `ClientDisconnect`."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _let_go(answer: UpstreamResponse) -> None:
    """Ends an answer where it was read to. What is left half read is otherwise ended by whichever thread finds it."""
    if callable(end := getattr(answer.pieces, "aclose", None)):
        await end()
    await answer.close()


async def _quietly(work: Awaitable[None]) -> None:
    with suppress(Exception):
        await work


async def _gone(receive: Receive) -> None:
    while True:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            return
