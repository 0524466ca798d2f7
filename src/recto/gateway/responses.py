"""Passes an upstream's response on to the client as it arrives, and stores it.

The end of a response is sent only after the response is stored, so a completed response is always durable. When the
client disconnects, the upstream request is cancelled, and what has arrived is stored as a partial response.
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

from recto.engine.async_session import RunningCall, on_a_thread
from recto.errors import CannotCross, MalformedMessage, RectoError, StoreError
from recto.formats import Format
from recto.formats.errors import OVERLOADED, TIMED_OUT, UPSTREAM_FAILED
from recto.formats.streaming import DONE, Capture, SseEvent, SseReader
from recto.gateway.scheduler import FairScheduler
from recto.gateway.turn import GatewayTurn, TurnRunner, refuse_defects
from recto.gateway.upstreams.http import UpstreamResponse, UpstreamUnreachable

_T = TypeVar("_T")
_TRAILER_SECONDS = 5.0
"""How long to wait, once a message is complete, for its usage and the end of the stream."""
_MAX_TRAILER_EVENTS = 1_000
"""Events accepted after a message is complete: an upstream may never end its stream."""
_PARSE_BYTES = 8 * 1024
"""Bytes of a response that are parsed at once."""
REFUSING_CODES = ("invalid_", "image_", "content_", "unsupported_", "empty_image")
"""How the codes of errors begin with which an upstream refuses the request itself, in a stream that it has begun."""
_KEPT = "The messages of this request are stored, and what arrived of the answer as an event; send the request again."
DISCONNECTED = "the client went away"
STOPPED = "the gateway was stopped"
DISCONNECTED_CODE, STOPPED_CODE = "client_disconnected", "gateway_stopped"
"""The same as codes, for the access log."""
CONNECTION = "recto.connection"
"""The `ClientConnection` in the scope of a request that came through the gateway's own server."""
_EVENTS = b"text/event-stream"
_LENGTH = b"content-length"


class ClientConnection(Protocol):
    """The connection that a request came by."""

    def on_disconnect(self, callback: Callable[[], None] | None) -> None:
        """Call this function when the client disconnects; at once if it has. None: no longer."""
        ...

    async def abort(self) -> None:
        """Close the connection without the rest of the response."""
        ...


class StreamConverter(Protocol):
    """Converts the events of one format to another."""

    def feed(self, event: SseEvent) -> list[bytes]:
        """Convert an event."""
        ...

    def finish(self) -> list[bytes]:
        """Return what remains to be sent at the end."""
        ...


@dataclass(slots=True, kw_only=True)
class StreamedResponse:
    """A streamed ASGI response that stores what it passes on."""

    turn: GatewayTurn
    turns: TurnRunner
    answer: UpstreamResponse
    format: Format
    """The client's format, in which the response is stored."""
    headers: Sequence[tuple[str, str]]
    converter: StreamConverter | None = None
    decorator: StreamConverter | None = None
    """Adds what the client gets and the transcript does not store."""
    cleanup: FairScheduler = field(default_factory=FairScheduler)
    """Schedules the storing of partial responses."""
    upstream: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    settle: Callable[[str, str], None] = lambda outcome, reason: None
    """Called with the outcome and the code of the error; only the first call counts."""
    _capture: Capture = field(init=False)
    _sent: int = field(default=0, init=False)
    _stored: bool = field(default=False, init=False)
    _reason: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self._capture = self.format.capture()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self.headers]
        with suppress(ClientDisconnect):
            await unless_disconnected(self._pass_on(raw, send), receive, scope.get(CONNECTION))

    async def _pass_on(self, headers: list[tuple[bytes, bytes]], send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.answer.status, "headers": headers})
            outcome = await self._events(send)
            self.settle(
                outcome, self._reason
            )  # before the end is sent: the client disconnects then, which cancels this task
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError as error:
            why = str(error) or STOPPED
            await self._store_partial(why)
            self.settle("cut", STOPPED_CODE if why == STOPPED else DISCONNECTED_CODE)
            raise
        except OSError:
            await self._store_partial(DISCONNECTED)
        finally:
            self.settle("cut", DISCONNECTED_CODE)  # unless another outcome was reported
            await self._close()
            if not self.turn.ended:
                await asyncio.shield(_suppressed(on_a_thread(self.turns.end, self.turn)))

    async def _close(self) -> None:
        if callable(getattr(self.answer.pieces, "aclose", None)):
            await asyncio.shield(_suppressed(close_response(self.answer)))
        else:  # an upstream's own response is closed without waiting, so nothing can cancel it
            await _suppressed(self.answer.close())

    async def _events(self, send: Send) -> str:
        """Pass events on until the message is complete, store it, and pass on the rest."""
        try:
            withheld = await self._until_complete(send)
        except UpstreamUnreachable as error:
            return await self._fail(send, TIMED_OUT if error.late else UPSTREAM_FAILED, str(error))
        except (MalformedMessage, CannotCross) as error:
            return await self._fail(send, UPSTREAM_FAILED, f"the upstream's stream cannot be passed on: {error}")
        if not self._capture.ended or (self._capture.failed and not self._capture.reply().messages):
            reason = self._capture.failed or "the upstream's stream ended before its message did"
            if self._capture.failed:  # the error is the upstream's own, and is passed on
                self._reason = UPSTREAM_FAILED
                await self._store_failure(reason)
                await self._send(send, b"".join(withheld))
                return "upstream_error"
            await self._send(send, b"".join(withheld))
            return await self._fail(send, UPSTREAM_FAILED, reason)
        if self._capture.overflowed:
            return await self._fail(send, UPSTREAM_FAILED, "the upstream's answer is longer than is kept")
        try:
            await self._store()
        except StoreError as error:
            return await self._fail(send, OVERLOADED, f"the answer could not be stored: {error}")
        except RectoError as error:
            return await self._fail(send, UPSTREAM_FAILED, f"the answer cannot be kept: {error}")
        await self._send(send, b"".join(withheld))
        return "ok"

    async def _store(self) -> None:
        reply = self._capture.reply()
        refuse_defects(reply.messages, self.format)
        storing = RunningCall(self.turns.finish, self.turn, reply, meta=self.meta, upstream=self.upstream)
        try:
            await storing.complete()
        finally:
            self._stored = self.turn.ended

    async def _until_complete(self, send: Send) -> list[bytes]:
        """Pass events on until the message is complete. Returns the events from the completing one on."""
        withheld: list[bytes] = []
        until: float | None = None
        reader, own = SseReader(), SseReader()
        pieces = self.answer.pieces
        while len(withheld) < _MAX_TRAILER_EVENTS and (piece := await self._next(pieces, until)) is not None:
            for start in range(0, len(piece), _PARSE_BYTES):
                passing: list[bytes] = []
                try:
                    done = self._sort(reader.feed(piece[start : start + _PARSE_BYTES]), own, passing, withheld)
                finally:  # also what came before an event that cannot be converted
                    await self._send(send, b"".join(passing))
                if done:
                    return withheld + self._finish(own)
            if withheld:
                until = until or asyncio.get_running_loop().time() + _TRAILER_SECONDS
        # Half an event at the end of an incomplete message would swallow the error that is sent after it.
        return withheld + ([reader.rest] if self.converter is None and withheld and reader.rest else self._finish(own))

    def _sort(self, events: Sequence[SseEvent], own: SseReader, passing: list[bytes], withheld: list[bytes]) -> bool:
        """Sort events into those to pass on now and those withwithheld, from the one that completes the message on.

        Returns whether the end of the stream was among them. Nothing else of them is kept while the client reads.
        """
        capture, converter = self._capture, self.converter
        for event in events:
            if converter is None:
                out = [event.raw]
                capture.take(event)
            else:
                out = converter.feed(event)
                for own_event in own.feed(b"".join(out)):
                    capture.take(own_event)
            out = self._decorated(out)
            if capture.ended or withheld:
                withheld += out
                if event.data == DONE:
                    return True
            else:
                passing += out
                self._sent += bool(out)
        return False

    def _finish(self, own: SseReader) -> list[bytes]:
        """Return what the converter still has to send."""
        if self.converter is None:
            return []
        out = self.converter.finish()
        for event in own.feed(b"".join(out)):
            self._capture.take(event)
        return self._decorated(out)

    def _decorated(self, out: list[bytes]) -> list[bytes]:
        """Return events with what the client gets besides them."""
        decorator = self.decorator
        if decorator is None:
            return out
        return [more for raw in out for event in SseReader().feed(raw) for more in decorator.feed(event)]

    async def _next(self, pieces: AsyncIterator[bytes], until: float | None) -> bytes | None:
        """Return the next chunk; None at the end of the stream, or after the deadline."""
        if until is None:
            return await anext(pieces, None)
        try:
            async with asyncio.timeout_at(until):
                return await anext(pieces, None)
        except TimeoutError:
            return None

    async def _send(self, send: Send, body: bytes) -> None:
        if body:
            await send({"type": "http.response.body", "body": body, "more_body": True})  # the guard yields

    async def _fail(self, send: Send, code: str, message: str) -> str:
        self._reason = code
        if await self._store_partial(message):
            message = f"{message.removesuffix('.')}. {_KEPT}"
        await self._send(send, self.format.errors.stream_error(code, message, self._sent))
        return "upstream_error"

    async def _store_failure(self, why: str) -> None:
        """Store an error that the upstream sent in its stream: a refusal of the request, or a response cut off."""
        code = self._capture.code
        if code.startswith(REFUSING_CODES) and not self._capture.partial().messages:
            with suppress(RectoError):
                refused = on_a_thread(self.turns.refused, self.turn, self.upstream, self.answer.status, code)
                await run_to_completion(refused)
        else:
            await self._store_partial(why)

    async def _store_partial(self, why: str) -> bool:
        """Store what arrived of the response, with why there is no more. Returns whether it was stored."""
        if not self._stored:
            with suppress(RectoError):
                cut = self.cleanup.run(self.turn.key.id, self.turns.cut, self.turn, self._capture.partial(), why)
                await run_to_completion(cut)
                return True
        return False


class BufferedResponse(Response):
    """A response in one piece, stored before it is sent."""

    def __init__(self, status: int, body: bytes, headers: Sequence[tuple[str, str]]) -> None:
        super().__init__(content=body, status_code=status)
        fixed = [header for header in self.raw_headers if header[0] == b"content-length"]
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        self.raw_headers = encoded + fixed


async def read_body(answer: UpstreamResponse, limit: int) -> bytes:
    """Read the complete body of a response. Raises `UpstreamUnreachable` where it exceeds the limit."""
    body = bytearray()
    async for piece in answer.pieces:
        body += piece
        if len(body) > limit:
            raise UpstreamUnreachable(f"its answer is longer than {limit:,} bytes")
    return bytes(body)


async def run_to_completion(work: Awaitable[_T]) -> _T:
    """Await work that must complete, even if the caller is cancelled."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(Exception):
            await task
        raise


async def unless_disconnected(
    work: Coroutine[Any, Any, _T], receive: Receive, connection: ClientConnection | None = None
) -> _T:
    """Await work unless the client disconnects: then cancel it and raise `ClientDisconnect`.

    The work runs in the caller's task, which costs less than one of its own: it is cancelled as `asyncio.timeout` does.
    A connection reports the end itself; without one a task waits for it.
    """
    task = asyncio.current_task()
    is_gone = False

    def disconnected() -> None:
        nonlocal is_gone
        is_gone = True
        if task is not None:
            task.cancel(DISCONNECTED)

    watching: asyncio.Task[None] | None = None
    if connection is None:
        watching = asyncio.ensure_future(_watch(receive, disconnected))
    else:
        connection.on_disconnect(disconnected)
    try:
        return await work
    except asyncio.CancelledError:
        if is_gone and task is not None and not task.uncancel():
            raise ClientDisconnect from None
        raise
    finally:
        if connection is not None:
            connection.on_disconnect(None)
        elif watching is not None and not watching.done():
            watching.cancel()
            await asyncio.wait((watching,))


async def close_response(answer: UpstreamResponse) -> None:
    """Close a response, read to its end or not. Otherwise the garbage collector would close it, on any thread."""
    if callable(end := getattr(answer.pieces, "aclose", None)):
        await end()
    await answer.close()


async def _suppressed(work: Awaitable[None]) -> None:
    with suppress(Exception):
        await work


async def _watch(receive: Receive, disconnected: Callable[[], None]) -> None:
    with suppress(Exception):  # a connection that cannot be read is gone, too
        while True:
            message: Message = await receive()
            if message["type"] == "http.disconnect":
                break
    disconnected()


class ArraySender:
    """Turns each event into an element of the array, byte for byte. An error in place of a stream is its only one."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._reader: SseReader | None = None
        self._count = 0

    async def __call__(self, message: Message) -> None:
        """Send one message of the response."""
        if message["type"] == "http.response.start":
            await self._send(self._start(message))
        elif self._reader is None:
            await self._send({**message, "body": self._closed(message, message.get("body", b""))})
        else:
            events = self._reader.feed(message.get("body", b""))
            body = b"".join(self._element(event.data.encode()) for event in events if event.data)
            await self._send({**message, "body": self._ended(message, body)})

    def _start(self, message: Message) -> Message:
        headers = [(bytes(name).lower(), bytes(value)) for name, value in message.get("headers", ())]
        if any(name == b"content-type" and _EVENTS in value for name, value in headers):
            self._reader = SseReader()
        kept = [pair for pair in headers if pair[0] not in (b"content-type", _LENGTH)]
        return {**message, "headers": [*kept, (b"content-type", b"application/json")]}

    def _element(self, data: bytes) -> bytes:
        self._count += 1
        return (b"[" if self._count == 1 else b",\r\n") + data

    def _closed(self, message: Message, body: bytes) -> bytes:
        return self._ended(message, self._element(body) if body and not self._count else body)

    def _ended(self, message: Message, body: bytes) -> bytes:
        if message.get("more_body", False):
            return body
        return body + (b"]" if self._count else b"[]")
