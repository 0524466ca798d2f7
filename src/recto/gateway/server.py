"""Listens, and lets go of clients that are too slow, too many, or gone.

The server it is built on waits for ever: for headers, for a reader, for an answer that does not end. Here each of these
has a time. It trusts no proxy's headers and says nothing about itself. When it is stopped, it takes no new requests,
lets answers end for a while, cancels the rest, and waits until their handlers have written down how far they came.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import resource
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import HANDLED_SIGNALS

from recto.config.settings import GatewaySettings
from recto.errors import SettingsError
from recto.gateway.api_keys import Keys
from recto.gateway.middleware.origin import is_loopback

_HEADER_BYTES = 32 * 1024
_KEEP_ALIVE = 15
"""Seconds for which a connection may wait for its next request."""
_BACKLOG = 1_024
"""Connections that wait in the system to be taken."""
_TAKEN = 4
"""Connections taken before those who are here get their turn; by itself the loop takes all that wait."""
_BETWEEN = 0.003
"""Seconds between two new connections that are read from. More of them could not be served, and a hundred that come at
once would all stand before those who are here."""
_SWITCH = 0.001
"""Seconds for which a thread may go on while the event loop wants to: all clients wait for the loop."""
_UNSENT = 4 * 1024
"""Bytes of an answer that the system holds for one client and cannot send yet, about: by itself it takes megabytes for
each that does not read, and as much is kept here of its answer. What is on its way to one that reads is not counted."""
_SEND_BUFFER = 32 * 1024
"""The same where the system counts only all that it holds: on other systems, and on sockets with a path."""
_LOOKS = 4
"""How often one looks whether a client reads, in the time it is given."""
_LEAST = 4_096
"""Bytes that a client must take between two looks to count as one that reads."""
_MOST_UNREAD = 128
"""Answers that may wait for their readers at once. Where there are more, who has waited longest is let go before its
time, but not before so many seconds."""
_PATIENCE = 2.0
_LAST_WORDS = 5.0
"""Seconds for handlers that were cancelled to write down what they have."""
_UNIX = "unix:"
_ARENA_MAX = -8
"""What glibc calls M_ARENA_MAX."""


class Door:
    """Lets new connections of one server speak one after the other."""

    def __init__(self) -> None:
        self._next = 0.0

    def wait(self, now: float) -> float:
        """The seconds until one that came just now may speak."""
        turn = max(now, self._next)
        self._next = turn + _BETWEEN
        return turn - now


class Unread:
    """Connections of one server whose clients leave an answer unread: each costs memory, so they are not many."""

    def __init__(self) -> None:
        self._since: dict[Protocol, float] = {}
        """The one that waits longest stands first."""

    def waits(self, connection: Protocol, now: float) -> None:
        """A client has to read from now on. Where too many have to, others are let go of."""
        self._since.pop(connection, None)
        self._since[connection] = now
        while len(self._since) > _MOST_UNREAD:
            longest, since = next(iter(self._since.items()))
            if now - since < _PATIENCE:
                return
            longest.cut()

    def reads(self, connection: Protocol) -> None:
        """A client has read, or has gone."""
        self._since.pop(connection, None)


class Protocol(H11Protocol):
    """One connection. Headers, waiting and reading have their times."""

    def __init__(
        self,
        *args: Any,  # noqa: ANN401  # uvicorn's
        gateway: GatewaySettings,
        door: Door,
        unread: Unread,
        **kwargs: Any,  # noqa: ANN401  # uvicorn's
    ) -> None:
        super().__init__(*args, **kwargs)
        self._gateway = gateway
        self._door = door
        self._unread_by = unread
        self._headers_due: asyncio.TimerHandle | None = None
        self._reading_due: asyncio.TimerHandle | None = None
        self._unread = 0
        self._idle_looks = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Takes a connection, or closes it at once where there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._gateway.connections:
            transport.abort()
            return
        # Nothing waits in this process for a client to read: the answer itself waits, and the time of that is counted.
        transport.set_write_buffer_limits(high=0)
        if sock := transport.get_extra_info("socket"):
            _hold_little(sock)
        self._expect_headers()
        if wait := self._door.wait(self.loop.time()):
            transport.pause_reading()
            self.loop.call_later(wait, transport.resume_reading)

    def data_received(self, data: bytes) -> None:
        """Takes bytes in. From the first byte of a request on, its headers have their time."""
        before = self.cycle
        if before is None or before.response_complete:
            self._expect_headers()
        super().data_received(data)
        if self.cycle is not before:
            self._headers_came()

    def connection_lost(self, exc: Exception | None) -> None:
        """Lets go of everything."""
        self._headers_came()
        self._is_reading()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The system holds as much of the answer as it takes: from now on the client must read."""
        super().pause_writing()
        self._unread = self._idle_looks = 0
        self._look_later()
        self._unread_by.waits(self, self.loop.time())

    def resume_writing(self) -> None:
        """The client has read."""
        self._is_reading()
        super().resume_writing()

    def _expect_headers(self) -> None:
        if self._headers_due is None:
            self._headers_due = self.loop.call_later(self._gateway.header_seconds, self.cut)

    def _headers_came(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _look_later(self) -> None:
        self._reading_due = self.loop.call_later(self._gateway.write_seconds / _LOOKS, self._look)

    def _is_reading(self) -> None:
        self._unread_by.reads(self)
        if self._reading_due is not None:
            self._reading_due.cancel()
            self._reading_due = None

    def _look(self) -> None:
        left = self.transport.get_write_buffer_size()
        reads = left <= self._unread - _LEAST
        self._idle_looks = 0 if reads else self._idle_looks + 1
        self._unread = left
        if self._idle_looks >= _LOOKS:
            self.cut()
            return
        self._look_later()
        if reads:
            self._unread_by.waits(self, self.loop.time())

    def cut(self) -> None:
        """Lets go of the client at once."""
        self._headers_came()
        self._is_reading()
        self.transport.abort()


class Server(uvicorn.Server):
    """One listening gateway. `run` listens until it is stopped by a signal, or by `should_exit` from a thread."""

    def __init__(
        self, app: ASGIApp, gateway: GatewaySettings, *, ready: Callable[[str], None], draining: Callable[[], None]
    ) -> None:
        self._gateway = gateway
        self._ready = ready
        self._draining = draining
        super().__init__(
            uvicorn.Config(
                cast(Any, app),
                loop="asyncio",
                http=cast(Any, partial(Protocol, gateway=gateway, door=Door(), unread=Unread())),
                ws="none",
                lifespan="on",
                interface="asgi3",
                log_config=None,
                log_level="error",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                workers=1,
                backlog=_TAKEN,  # what the loop takes at once; see startup
                timeout_keep_alive=_KEEP_ALIVE,
                h11_max_incomplete_event_size=_HEADER_BYTES,
            )
        )

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens where the settings say. Raises `SettingsError` where that cannot be."""
        listening = [listen(self._gateway)] if sockets is None else sockets
        _allow_files(self._gateway.connections)
        _few_arenas()
        sys.setswitchinterval(_SWITCH)
        quiet = logging.getLogger("uvicorn.error")
        quiet.addFilter(_is_news)
        try:
            super().run(listening)
        finally:
            quiet.removeFilter(_is_news)
            if self._gateway.host.startswith(_UNIX):
                Path(self._gateway.host.removeprefix(_UNIX)).unlink(missing_ok=True)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to listen, and tells where."""
        await super().startup(sockets)
        for sock in sockets or ():
            sock.listen(_BACKLOG)
        if self.started and sockets:
            self._ready(_address(sockets[0]))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops: no new requests, then time for answers to end, then time for handlers to write down what they have."""
        self._draining()
        for server in self.servers:
            server.close()
        for sock in sockets or ():
            sock.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self._ended(self._gateway.drain_seconds)
        for task in list(self.server_state.tasks):
            task.cancel()
        await self._ended(_LAST_WORDS)
        for connection in list(self.server_state.connections):
            cast(Protocol, connection).transport.abort()
        await self.lifespan.shutdown()

    async def _ended(self, seconds: float) -> None:
        """Waits until all is answered and read; not longer, and not where a second signal says not to."""
        state, end = self.server_state, time.monotonic() + seconds
        while (state.tasks or state.connections) and time.monotonic() < end and not self.force_exit:
            await asyncio.sleep(0.02)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Lets signals stop it. Unlike the server below, it does not raise them again: what called it has to close."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in HANDLED_SIGNALS}
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
    """Listens until a signal says to stop, and returns when all is answered or written down.

    `app` has its guard around it already. `ready` is told the address, `draining` that the end has begun. Raises
    `SettingsError` where it cannot listen, or must not.
    """
    refuse_public(gateway, keys)
    Server(app, gateway, ready=ready, draining=draining).run()


def refuse_public(gateway: GatewaySettings, keys: Keys) -> None:
    """Raises `SettingsError` for an address that others reach without a name for it, or without any key."""
    if is_loopback(gateway.host):
        return
    if not gateway.hosts:
        reason = f"others can reach {gateway.host!r}, so name in 'gateway.hosts' what they call this gateway"
        raise SettingsError("gateway.host", f"{reason}; or listen on 127.0.0.1")
    if not keys.any_live():
        reason = f"others can reach {gateway.host!r} and there is no key; make one with 'recto keys add NAME'"
        raise SettingsError("gateway.host", f"{reason}; or listen on 127.0.0.1")


def listen(gateway: GatewaySettings) -> socket.socket:
    """The socket that the settings name. Raises `SettingsError` where it cannot be had."""
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
    """A socket that only its owner can open. One that nobody listens on any more is replaced."""
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


def _hold_little(sock: socket.socket) -> None:
    """Has the system take in little of an answer that is not read, and notice where the other end is gone."""
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)
    except (OSError, AttributeError):
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _allow_files(connections: int) -> None:
    """Each connection is an open file; by default a process may have fewer than the gateway allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * connections + 512
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def _few_arenas() -> None:
    """Has the C library keep two heaps, not one for each of sixteen threads: what is free in one is no use in another.

    Where there is another C library, nothing is done.
    """
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 2)


def _is_news(record: logging.LogRecord) -> bool:
    """An answer that was cut off because the gateway stops is no error of a handler."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))
