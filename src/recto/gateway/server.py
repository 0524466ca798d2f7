"""Listens for clients, and drops those that are too slow, too many, or gone.

uvicorn waits without limit for headers, for a client to read, and for a response to end. Here each of these has a
deadline. Proxy headers are not trusted, and responses do not name the server. When it is stopped, it lets the requests
under way end for a while, and listens until then, so that health checks learn of the shutdown and new requests get an
answer. Then it cancels the rest, and waits until their handlers have stored what they have.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import re
import resource
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from recto.config.settings import GatewaySettings
from recto.errors import SettingsError
from recto.gateway.api_keys import Keys
from recto.gateway.middleware.origin import is_loopback
from recto.gateway.responses import CONNECTION

_HEADER_BYTES = 32 * 1024
_KEEP_ALIVE_SECONDS = 15
"""How long a connection may wait for its next request."""
_BACKLOG = 1_024
"""Connections that the system queues until they are accepted."""
_ACCEPT_BATCH = 4
"""Connections accepted before open connections get their turn; by default the loop accepts all that are queued."""
_CONNECTION_INTERVAL = 0.003
"""Seconds between two new connections that are read from. More could not be served, and a hundred that arrive at once
would all be served before the open ones."""
_SWITCH_SECONDS = 0.001
"""How long a thread may keep the interpreter while the event loop wants it: every client waits for the loop."""
_POLL_SECONDS, _IDLE_POLL_SECONDS = 0.02, 0.1
"""Seconds between two checks: while the server stops, and whether it shall stop. uvicorn checks that no more often."""
_UNSENT_BYTES = 4 * 1024
"""Bytes of a response, about, that the system buffers for one client before it can send them. By default it takes
megabytes for each client that does not read. Bytes in flight to a client that reads are not counted."""
_SEND_BUFFER = 32 * 1024
"""The same where the system only limits everything it buffers: on other systems, and on Unix sockets."""
_READ_CHECKS = 4
"""How often a client is checked for reading, within the time it has."""
_MIN_READ_BYTES = 4_096
"""Bytes that a client must take between two checks to count as reading."""
_MAX_UNREAD = 128
"""Responses that may wait for their readers at once. Beyond that the longest waiting is dropped early, but not within
the first `_MIN_UNREAD_SECONDS`."""
_MIN_UNREAD_SECONDS = 2.0
_CLEANUP_SECONDS = 5.0
"""How long cancelled handlers have to store what they received."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_BODY_HEADER = re.compile(rb"\r\n(?:content-length|transfer-encoding)[ \t]*:", re.IGNORECASE)
_UNIX = "unix:"
_ARENA_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD = -8, -3, -1
"""M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of glibc."""
_LARGE_BLOCK = 1 << 20
"""Bytes of a block that goes back to the system as soon as it is free."""


class ConnectionPacer:
    """Delays new connections so that they start one after the other."""

    def __init__(self) -> None:
        self._next = 0.0

    def delay(self, now: float) -> float:
        """Return the seconds until a connection that was accepted just now may be read from."""
        start = max(now, self._next)
        self._next = start + _CONNECTION_INTERVAL
        return start - now


class UnreadResponses:
    """Connections whose clients do not read their response: each costs memory, so their number is limited."""

    def __init__(self) -> None:
        self._since: dict[Connection, float] = {}
        """Longest waiting first."""

    def add(self, connection: Connection, now: float) -> None:
        """Note that a client has to read from now on. Drops the longest waiting where there are too many."""
        self._since.pop(connection, None)
        self._since[connection] = now
        while len(self._since) > _MAX_UNREAD:
            longest, since = next(iter(self._since.items()))
            if now - since < _MIN_UNREAD_SECONDS:
                return
            longest.drop()

    def discard(self, connection: Connection) -> None:
        """Note that a client has read, or has gone."""
        self._since.pop(connection, None)


class Connection(asyncio.Protocol):
    """One client connection: uvicorn's HTTP protocol (httptools) behind limits on headers, waiting and reading.

    It sits between the transport and uvicorn's protocol and passes every call of the transport on. Which requests
    are in flight it learns from the application (`track_requests`).
    """

    limits: ConnectionLimits
    """Set in a subclass for each server: uvicorn makes its protocols itself, from a class."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  # uvicorn's, passed on
        self._http: asyncio.Protocol = AutoHTTPProtocol(**options)
        self._limits = self.limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._is_accepted = False
        self._is_responding = False
        self._header_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        """Bytes received before the headers of a request were complete, and with the last of them."""
        self._is_alone = False
        """Whether a request without a body is in flight: what follows it waits, so that nothing wrong with that can end
        the connection before the response."""
        self._held = b""
        self._on_disconnect: Callable[[], None] | None = None
        self._is_lost = False
        self._unsent = 0
        self._idle_checks = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept a connection, or close it at once where there are too many."""
        self._transport = stream = cast(asyncio.Transport, transport)
        if len(self._limits.connections) >= self._limits.gateway.connections:
            stream.abort()
            return
        self._is_accepted = True
        self._limits.connections.add(self)
        self._http.connection_made(stream)
        # Nothing is buffered in this process for a client that does not read: the response itself waits, and its time
        # is measured.
        stream.set_write_buffer_limits(high=0)
        if sock := stream.get_extra_info("socket"):
            _limit_send_buffer(sock)
        self._expect_headers()
        if delay := self._limits.pacer.delay(self._loop.time()):
            stream.pause_reading()
            self._loop.call_later(delay, stream.resume_reading)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on. From the first byte of a request, its headers have a deadline."""
        if self._is_alone or self._held:
            self._hold(data)
            return
        rest = b""
        if not self._is_responding:
            # A request whose headers are complete has started before more of it is read.
            if self._header_bytes > _HEADER_BYTES:
                self.drop()
                return
            end = data.find(b"\r\n\r\n") + 4
            is_whole = not self._header_bytes and 4 <= end < len(data)
            if is_whole and not _BODY_HEADER.search(data, 0, end):
                data, rest, self._is_alone = data[:end], data[end:], True
            self._header_bytes += len(data)
            if end < 4:  # else they are complete, as nearly always
                self._expect_headers()
        token = _CONNECTION.set(self)  # the task of a request inherits it
        try:
            self._http.data_received(data)
        finally:
            _CONNECTION.reset(token)
        if rest:
            self._hold(rest)

    def _hold(self, data: bytes) -> None:
        self._held += data
        self._transport.pause_reading()

    def _release(self) -> None:
        """Pass on what followed a request."""
        data, self._held = self._held, b""
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self.data_received(data)

    def eof_received(self) -> bool | None:
        """The client has sent everything."""
        return self._http.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything."""
        self._is_lost = True
        if self._on_disconnect is not None:
            self._on_disconnect()
        self._headers_received()
        self._client_reads()
        if self._is_accepted:
            self._limits.connections.discard(self)
            self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        """The system buffers as much of the response as it may: from now on the client must read."""
        self._http.pause_writing()
        self._unsent = self._idle_checks = 0
        self._check_later()
        self._limits.unread.add(self, self._loop.time())

    def resume_writing(self) -> None:
        """The client has read."""
        self._client_reads()
        self._http.resume_writing()

    def on_disconnect(self, callback: Callable[[], None] | None) -> None:
        """Call this function when the client disconnects; at once if it has. None: no longer."""
        self._on_disconnect = callback
        if self._is_lost and callback is not None:
            callback()

    def request_started(self) -> None:
        """The headers of a request are complete."""
        self._is_responding = True
        self._header_bytes = 0
        self._headers_received()

    def response_completed(self) -> None:
        """The response was sent; the next bytes belong to another request."""
        self._is_responding = self._is_alone = False
        if self._held:
            self._loop.call_soon(self._release)

    def drop(self) -> None:
        """Close the connection at once; what was not sent yet is lost."""
        self._headers_received()
        self._client_reads()
        self._transport.abort()

    async def abort(self) -> None:
        """Close the connection at once, and return when it is closed."""
        closed = asyncio.Event()
        self.on_disconnect(closed.set)
        self.drop()
        await closed.wait()

    def _expect_headers(self) -> None:
        if self._header_timer is None:
            self._header_timer = self._loop.call_later(self._limits.gateway.header_seconds, self.drop)

    def _headers_received(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _check_later(self) -> None:
        self._read_timer = self._loop.call_later(self._limits.gateway.write_seconds / _READ_CHECKS, self._check)

    def _client_reads(self) -> None:
        self._limits.unread.discard(self)
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _check(self) -> None:
        """Drop a client that has read next to nothing for as long as it may."""
        unsent = self._transport.get_write_buffer_size()
        reads = unsent <= self._unsent - _MIN_READ_BYTES
        self._idle_checks = 0 if reads else self._idle_checks + 1
        self._unsent = unsent
        if self._idle_checks >= _READ_CHECKS:
            self.drop()
            return
        self._check_later()
        if reads:
            self._limits.unread.add(self, self._loop.time())


_CONNECTION: ContextVar[Connection] = ContextVar("recto_connection")
"""The connection that a request came by."""


@dataclass(slots=True, kw_only=True, eq=False)
class ConnectionLimits:
    """What the connections of one server share."""

    gateway: GatewaySettings
    connections: set[Connection] = field(default_factory=set)
    pacer: ConnectionPacer = field(default_factory=ConnectionPacer)
    unread: UnreadResponses = field(default_factory=UnreadResponses)


class Server:
    """One listening gateway. `run` listens until it is stopped by a signal, or by `should_exit` from a thread."""

    def __init__(
        self, app: ASGIApp, gateway: GatewaySettings, *, ready: Callable[[str], None], draining: Callable[[], None]
    ) -> None:
        self._app = app
        self._gateway = gateway
        self._ready = ready
        self._draining = draining
        self._limits = ConnectionLimits(gateway=gateway)
        self._requests: set[asyncio.Task[Any]] = set()
        self._is_stopping = False
        config = uvicorn.Config(
            cast(Any, self._track_requests),
            loop="asyncio",
            http=type("GatewayConnection", (Connection,), {"limits": self._limits}),
            ws="none",
            lifespan="off",  # run here, so that it ends after the last request
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            workers=1,
            backlog=_ACCEPT_BATCH,  # how many the loop accepts at once; `_serve` then sets the real one
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            h11_max_incomplete_event_size=_HEADER_BYTES,
        )
        self._server = uvicorn.Server(config)

    @property
    def should_exit(self) -> bool:
        """Whether it stops, or has stopped. Setting it stops the server, from any thread."""
        return self._is_stopping or self._server.should_exit

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        self._is_stopping = value

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._limits.connections)

    def run(self) -> None:
        """Listen where the settings say. Raises `SettingsError` where that is not possible."""
        sock = listen(self._gateway)
        _raise_file_limit(self._gateway.connections)
        _limit_heaps()
        sys.setswitchinterval(_SWITCH_SECONDS)
        logger = logging.getLogger("uvicorn.error")
        logger.addFilter(_is_error)
        try:
            with _signals_swallowed():
                asyncio.run(self._serve(sock))
        finally:
            logger.removeFilter(_is_error)
            if self._gateway.host.startswith(_UNIX):
                Path(self._gateway.host.removeprefix(_UNIX)).unlink(missing_ok=True)

    async def _serve(self, sock: socket.socket) -> None:
        """Listen until stopped and idle. Then time for responses to end, and time for handlers to clean up."""
        address = _address(sock)
        async with _lifespan(self._app):
            serving = asyncio.create_task(self._server.serve(sockets=[sock]))
            while not self._server.started and not serving.done():
                await asyncio.sleep(0.002)
            if not serving.done():
                self._take_signals()
                sock.listen(_BACKLOG)
                self._ready(address)
            while not self.should_exit and not serving.done():
                await asyncio.sleep(_IDLE_POLL_SECONDS)
            deadline = time.monotonic() + self._gateway.drain_seconds
            self._draining()
            under_way = set(self._requests)
            while under_way & self._requests and time.monotonic() < deadline and not serving.done():
                await asyncio.sleep(_POLL_SECONDS)
            self._server.should_exit = True
            while sock.fileno() >= 0 and not serving.done():  # uvicorn closes it when it stops accepting
                await asyncio.sleep(_POLL_SECONDS)
            await self._wait_idle(serving, deadline)
            for task in list(self._requests):
                task.cancel()
            await self._wait_idle(serving, time.monotonic() + _CLEANUP_SECONDS)
            for connection in list(self._limits.connections):
                connection.drop()
            self._server.force_exit = True  # a handler that ignores being cancelled is not waited for
            await serving

    def _take_signals(self) -> None:
        """Have signals begin the shutdown here: uvicorn's own handlers, which this replaces, close the socket at once.

        uvicorn puts the handlers that it replaced back when it ends.
        """
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._is_stopping and number == signal.SIGINT:  # a second Ctrl-C does not wait for responses
            self._server.should_exit = self._server.force_exit = True
        self._is_stopping = True

    async def _wait_idle(self, serving: asyncio.Task[None], deadline: float) -> None:
        """Wait until everything is answered and read; not longer, and not where a second signal has ended it."""
        while (self._requests or self._limits.connections) and time.monotonic() < deadline and not serving.done():
            await asyncio.sleep(_POLL_SECONDS)

    async def _track_requests(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tell the connection when a request starts and when its response is complete."""
        connection, task = _CONNECTION.get(), cast(asyncio.Task[Any], asyncio.current_task())
        connection.request_started()
        self._requests.add(task)
        scope[CONNECTION] = connection
        is_completed = False

        async def tracked(message: Message) -> None:
            nonlocal is_completed
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                is_completed = True
                connection.response_completed()

        try:
            await self._app(scope, receive, tracked)
        finally:
            if not is_completed:  # else the connection may have the next request already
                connection.response_completed()
            self._requests.discard(task)


@asynccontextmanager
async def _lifespan(app: ASGIApp) -> AsyncIterator[None]:
    """Start an application before the first request and end it after the last (the lifespan part of ASGI).

    Raises:
        RuntimeError: The application could not start.
    """
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    outbox: asyncio.Queue[Message] = asyncio.Queue()
    scope: Scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
    running = asyncio.ensure_future(app(scope, inbox.get, outbox.put))

    async def ask(kind: str) -> None:
        await inbox.put({"type": f"lifespan.{kind}"})
        reply = asyncio.ensure_future(outbox.get())
        await asyncio.wait({reply, running}, return_when=asyncio.FIRST_COMPLETED)
        if not reply.done():
            reply.cancel()
            await running  # raises what ended it
        elif reply.result()["type"] != f"lifespan.{kind}.complete":
            raise RuntimeError(f"the application could not {kind}: {reply.result().get('message', '')}")

    await ask("startup")
    try:
        yield
    finally:
        await ask("shutdown")


@contextmanager
def _signals_swallowed() -> Iterator[None]:
    """Let signals stop the server only: uvicorn raises them again afterwards, but the caller still has to close."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda number, frame: None) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def serve(
    app: ASGIApp,
    gateway: GatewaySettings,
    keys: Keys,
    *,
    ready: Callable[[str], None] = lambda address: None,
    draining: Callable[[], None] = lambda: None,
) -> None:
    """Listen until a signal stops it. Returns when every request is answered or stored.

    Args:
        app: The application, with its guard around it.
        gateway: Where to listen, and the limits.
        keys: The API keys; without a live one it listens on loopback only.
        ready: Called with the address once it listens.
        draining: Called when it begins to stop.

    Raises:
        SettingsError: It cannot listen there, or must not.
    """
    refuse_public(gateway, keys)
    Server(app, gateway, ready=ready, draining=draining).run()


def refuse_public(gateway: GatewaySettings, keys: Keys) -> None:
    """Raise `SettingsError` for an address that others can reach while no host name or no API key is configured."""
    if is_loopback(gateway.host):
        return
    if gateway.local:
        reason = f"others can reach {gateway.host!r}, and without keys everybody could use it"
        raise SettingsError("gateway.local", f"{reason}; listen on 127.0.0.1, or serve with keys")
    if not gateway.hosts:
        reason = f"others can reach {gateway.host!r}, so name in 'gateway.hosts' what they call this gateway"
        raise SettingsError("gateway.host", f"{reason}; or listen on 127.0.0.1")
    if not keys.any_live():
        reason = f"others can reach {gateway.host!r} and there is no key; make one with 'recto keys add NAME'"
        raise SettingsError("gateway.host", f"{reason}; or listen on 127.0.0.1")


def listen(gateway: GatewaySettings) -> socket.socket:
    """Bind the socket that the settings name. Raises `SettingsError` where that is not possible."""
    try:
        if gateway.host.startswith(_UNIX):
            return _listen_at(Path(gateway.host.removeprefix(_UNIX)))
        family, kind, number, _, address = socket.getaddrinfo(
            gateway.host.strip("[]"), gateway.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, number)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(address)
        except OSError:
            sock.close()
            raise
        return sock
    except OSError as error:
        reason = f"cannot listen on {gateway.host} port {gateway.port}: {error.strerror or error}"
        raise SettingsError("gateway.port", f"{reason}. Choose another port; 0 takes any that is free") from None


def _listen_at(path: Path) -> socket.socket:
    """Bind a Unix socket that only its owner can open, replacing one that no process listens on."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
            try:
                sock.connect(os.fspath(path))
            except ConnectionRefusedError:
                path.unlink()
            else:
                raise OSError(f"another program listens on '{path}'")
        before = os.umask(0o177)
        try:
            sock.bind(os.fspath(path))
        finally:
            os.umask(before)
    except OSError:
        sock.close()
        raise
    return sock


def _address(sock: socket.socket) -> str:
    name = sock.getsockname()
    if isinstance(name, str):
        return f"{_UNIX}{name}"
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"http://{host}:{name[1]}"


def _limit_send_buffer(sock: socket.socket) -> None:
    """Have the system buffer little of a response that is not read, and detect clients that are gone."""
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
    except (OSError, AttributeError):
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _raise_file_limit(connections: int) -> None:
    """Allow as many open files as the gateway allows connections; the default limit of a process is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * connections + 512
    if soft != resource.RLIM_INFINITY and soft < needed:
        with suppress(ValueError, OSError):
            limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))


def _limit_heaps() -> None:
    """Limit glibc to two heaps instead of one per thread, and keep large blocks out of them.

    Memory free in one heap is of no use to another. By default, glibc moves ever larger blocks into the heaps once one
    was freed, where small blocks behind them keep their memory. Does nothing with another C library.
    """
    with suppress(OSError, AttributeError, TypeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_ARENA_MAX, 2)
        libc.mallopt(_MMAP_THRESHOLD, _LARGE_BLOCK)
        libc.mallopt(_TRIM_THRESHOLD, 4 * _LARGE_BLOCK)


def _is_error(record: logging.LogRecord) -> bool:
    """Filter out responses that were cancelled because the gateway stops."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))
