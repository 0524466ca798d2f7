"""Connections to one upstream: reused for its next request, and read in small pieces.

Bytes that an upstream has sent and the client has not read yet stay with the sender, not in this process: a connection
holds one read of at most `READ_BYTES`. Finding a free connection costs the same however many there are. The number of
connections is not limited here: each belongs to an admitted request.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import anyio
import httpcore2
import httpx2
from anyio.abc import ByteStream
from anyio.streams.tls import TLSAttribute, TLSStream

READ_BYTES = 8 * 1024
"""Bytes read from a socket at once. asyncio's default is 256 KB, and copies are held while a client does not read."""
_MAX_IDLE = 100
"""Idle connections kept for the next request."""
_IDLE_SECONDS = 2.0
"""How long they are kept: well below the 5 seconds after which many servers close an idle connection. If a server
closes it while a request is on its way, nobody knows whether the request was processed, and requests are never sent
twice."""
_HAPPY_EYEBALLS = 0.25
"""Seconds before the next address of a host is tried in parallel (RFC 8305)."""

NETWORK_ERRORS = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.UnsupportedProtocol)
"""What can go wrong on a connection, besides `httpcore2.TimeoutException`."""


class _TcpStream(asyncio.BufferedProtocol, ByteStream):
    """A TCP connection that reads only when asked to, and then at most `READ_BYTES`."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._received = b""
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._ended = False
        self._closed = False
        self._error: Exception | None = None

    @property
    def has_input(self) -> bool:
        """Whether a read would return at once: data, or the end of the stream."""
        sock = self._transport.get_extra_info("socket")
        if self._received or self._ended or sock is None or sock.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stop reading until somebody receives."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.pause_reading()
        self._transport.set_write_buffer_limits(high=0)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Bound what the transport reads at once."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read, and stop reading."""
        self._received += bytes(self._buffer[:nbytes])
        self._transport.pause_reading()
        self._readable.set()

    def eof_received(self) -> bool:
        """The peer has sent everything; the connection stays open until it is closed here."""
        self._ended = True
        self._readable.set()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake up readers and writers."""
        self._ended = True
        self._error = exc
        self._readable.set()
        self._writable.set()

    def pause_writing(self) -> None:
        """The system takes no more bytes."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The system has taken all bytes."""
        self._writable.set()

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """Read what is there, or wait for it. Raises `anyio.EndOfStream` and the errors of a broken connection."""
        if not self._received and not self._ended:
            self._readable.clear()
            self._transport.resume_reading()
            try:
                await self._readable.wait()
            finally:
                self._transport.pause_reading()
        data, self._received = self._received[:max_bytes], self._received[max_bytes:]
        if data:
            return data
        self._raise_broken()
        raise anyio.EndOfStream

    async def send(self, item: bytes) -> None:
        """Write bytes, and wait until the system has taken them."""
        self._raise_broken()
        if self._transport.is_closing():
            raise anyio.BrokenResourceError
        self._transport.write(item)
        await self._writable.wait()
        self._raise_broken()

    async def send_eof(self) -> None:
        """Tell the peer that nothing more will be sent."""
        with suppress(OSError):
            self._transport.write_eof()

    async def aclose(self) -> None:
        """Close the connection; bytes that were not sent yet are dropped."""
        self._closed = True
        if not self._transport.is_closing():
            await self.send_eof()
            self._transport.close()
            await asyncio.sleep(0)
            self._transport.abort()

    def _raise_broken(self) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
        if self._error is not None:
            raise anyio.BrokenResourceError from self._error


class _NetworkStream(httpcore2.AsyncNetworkStream):
    """A connection as httpcore reads and writes it, plain or encrypted."""

    def __init__(self, tcp: _TcpStream, tls: TLSStream | None = None) -> None:
        self._tcp = tcp
        self._stream: ByteStream = tls or tcp

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read what is there; nothing at the end of the stream."""
        with _translated(httpcore2.ReadTimeout, httpcore2.ReadError), anyio.fail_after(timeout):
            try:
                return await self._stream.receive(max_bytes)
            except anyio.EndOfStream:
                return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all of it."""
        if buffer:
            with _translated(httpcore2.WriteTimeout, httpcore2.WriteError), anyio.fail_after(timeout):
                await self._stream.send(buffer)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        """Encrypt the connection."""
        try:
            with _translated(httpcore2.ConnectTimeout, httpcore2.ConnectError), anyio.fail_after(timeout):
                tls = await TLSStream.wrap(
                    self._tcp,
                    ssl_context=ssl_context,
                    hostname=server_hostname,
                    standard_compatible=False,
                    server_side=False,
                )
        except Exception:
            await self.aclose()
            raise
        return _NetworkStream(self._tcp, tls)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401  # as httpcore declares it
        """Answer what httpcore needs to know of a connection."""
        if info == "is_readable":
            return self._tcp.has_input
        if info == "ssl_object":
            return self._stream.extra(TLSAttribute.ssl_object, None)  # noqa: S610  # anyio's, not Django's
        return None


class _Network(httpcore2.AsyncNetworkBackend):
    """Opens connections for httpcore."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to an address."""
        local = (local_address, 0) if local_address else None
        with _translated(httpcore2.ConnectTimeout, httpcore2.ConnectError), anyio.fail_after(timeout):
            transport, tcp = await asyncio.get_running_loop().create_connection(
                _TcpStream, host, port, local_addr=local, happy_eyeballs_delay=_HAPPY_EYEBALLS
            )
        for option in socket_options or ():
            transport.get_extra_info("socket").setsockopt(*option)
        return _NetworkStream(tcp)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


@contextmanager
def _translated(late: type[Exception], broken: type[Exception]) -> Iterator[None]:
    """Raise errors of the network as those of httpcore."""
    try:
        yield
    except TimeoutError as error:
        raise late(error) from error
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream) as error:
        raise broken(error) from error


@dataclass(slots=True, kw_only=True)
class UpstreamConnections:
    """The connections to one upstream; they belong to one event loop."""

    connect_seconds: float
    read_seconds: float
    _idle: list[httpcore2.AsyncHTTPConnection] = field(default_factory=list, init=False)
    """The one used last is at the end and is reused first."""
    _active: dict[httpcore2.AsyncHTTPConnection, httpcore2.Response | None] = field(default_factory=dict, init=False)
    """With the response of each: releasing a response twice must not release the next one."""
    _network: _Network = field(default_factory=_Network, init=False)
    _ssl_context: ssl.SSLContext | None = field(default=None, init=False)

    async def send(
        self, method: str, url: str, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> tuple[httpcore2.Response, Callable[[], Awaitable[None]]]:
        """Send a request.

        Returns the response, whose body is not read yet, and a function that releases its connection.

        Raises:
            One of `NETWORK_ERRORS`, or `httpcore2.TimeoutException`.
        """
        parsed = httpx2.URL(url)
        target = httpcore2.URL(scheme=parsed.raw_scheme, host=parsed.raw_host, port=parsed.port, target=parsed.raw_path)
        length = [(b"content-length", str(len(body)).encode())] if body else []
        timeouts: Mapping[str, float] = {
            "connect": self.connect_seconds,
            "read": self.read_seconds,
            "write": self.read_seconds,
        }
        request = httpcore2.Request(
            method,
            target,
            headers=[(b"host", parsed.netloc), *headers, *length],
            content=body,
            extensions={"timeout": dict(timeouts)},
        )
        connection = await self._acquire(target.origin)
        self._active[connection] = None
        try:
            response = self._active[connection] = await connection.handle_async_request(request)
        except BaseException:
            self._active.pop(connection, None)
            raise
        return response, partial(self._release, connection, response)

    async def close(self) -> None:
        """Close all connections."""
        connections = [*self._idle, *self._active]
        self._idle, self._active = [], {}
        for connection in connections:
            with suppress(Exception):
                await connection.aclose()

    async def _release(self, connection: httpcore2.AsyncHTTPConnection, response: httpcore2.Response) -> None:
        """Keep a connection whose response was read to its end; close any other."""
        await response.aclose()
        if self._active.get(connection) is response:
            del self._active[connection]
            if connection.is_idle() and len(self._idle) < _MAX_IDLE:
                self._idle.append(connection)
            else:
                await connection.aclose()

    async def _acquire(self, origin: httpcore2.Origin) -> httpcore2.AsyncHTTPConnection:
        """Return an idle connection that the server has not closed meanwhile, or a new one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_available() and not connection.has_expired():
                return connection
            await connection.aclose()
        if origin.scheme == b"https" and self._ssl_context is None:
            self._ssl_context = httpx2.create_ssl_context(trust_env=False)
        return httpcore2.AsyncHTTPConnection(
            origin, ssl_context=self._ssl_context, keepalive_expiry=_IDLE_SECONDS, network_backend=self._network
        )
