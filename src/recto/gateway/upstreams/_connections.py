"""Connections to one upstream: HTTP/1.1, reused for the next request, and read in small pieces.

Bytes that an upstream has sent and the client has not read yet stay with the sender, not in this process: a connection
holds at most `READ_BYTES` beside the piece that is passed on. Finding a free connection costs the same however many
there are. The number of connections is not limited here: each belongs to an admitted request.
"""

from __future__ import annotations

import asyncio
import re
import select
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from ipaddress import ip_address
from typing import Literal, NamedTuple, Self, cast

import anyio
import httpx2
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

READ_BYTES = 8 * 1024
"""Bytes read from a socket at once. asyncio's default is 256 KB, and copies are held while a client does not read."""
_JOINED_BYTES = 64 * 1024
"""A body up to this size is sent in one piece with its headers."""
_MAX_IDLE = 100
"""Idle connections kept for the next request."""
_IDLE_SECONDS = 2.0
"""How long they are kept: well below the 5 seconds after which many servers close an idle connection. If a server
closes it while a request is on its way, it is unknown whether the request was processed, and requests are never sent
twice."""
_HAPPY_EYEBALLS = 0.25
"""Seconds before the next address of a host is tried in parallel (RFC 8305)."""
_MAX_HEAD_BYTES = 100 * 1024
"""Status line and headers of a response."""
_MAX_CHUNK_LINE = 4 * 1024
"""The size of a chunk with its extensions, and each trailer."""
_MAX_TRAILER_BYTES = 64 * 1024

_HEADER_LINES = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\0\r\n]*\r\n)*")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_LINE_END = re.compile(rb"\r?\n")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\0\r\n]*)?")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\0\r\n]*?)[ \t]*")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")
_PLAIN_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})\r\n")
"""The size of a chunk without extensions, as nearly all are written."""
_DIGITS = re.compile(rb"[0-9]{1,18}")
_NO_BODY = frozenset((204, 304))


class UpstreamTimedOut(Exception):  # named for what happened
    """The upstream did not connect, read or answer in time."""


class ConnectFailed(Exception):  # named for what happened
    """There is no connection to the upstream."""


class ReadFailed(Exception):  # named for what happened
    """The connection broke off."""


class ProtocolViolated(Exception):  # named for what happened
    """What was to be sent, or what the upstream sent, is not HTTP/1.1."""


NETWORK_ERRORS = (ConnectFailed, ReadFailed, ProtocolViolated)
"""What can go wrong on a connection, besides `UpstreamTimedOut`."""


class _TcpStream(asyncio.BufferedProtocol, ByteStream):
    """A TCP connection that stops reading when something arrives that no reader waits for, of at most `READ_BYTES`.

    It goes on reading while a reader waits: to stop and start again for every read takes longer than the read.
    """

    def __init__(self, read_seconds: float) -> None:
        self._read_seconds = read_seconds
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._received = b""
        self._is_paused = False
        self._reader: asyncio.Future[None] | None = None
        self._deadline = 0.0
        """Until when the reader waits."""
        self._timer: asyncio.TimerHandle | None = None
        """Looks at the deadline. Set again only when it fires, not for every read."""
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

    def abort(self) -> None:
        """Close the connection without waiting for anything."""
        self._closed = True
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to read."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Bound what the transport reads at once."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read; stop reading if no reader waits for it."""
        self._received += bytes(self._buffer[:nbytes])
        if self._reader is None or self._reader.done():
            self._is_paused = True
            self._transport.pause_reading()
        else:
            self._reader.set_result(None)

    def eof_received(self) -> bool:
        """The peer has sent everything; the connection stays open until it is closed here."""
        self._ended = True
        self._wake_reader()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake up readers and writers."""
        self._ended = True
        self._error = exc
        self._wake_reader()
        if self._timer is not None:
            self._timer.cancel()
        self._writable.set()

    def pause_writing(self) -> None:
        """The system takes no more bytes."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The system has taken all bytes."""
        self._writable.set()

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """Read what is there, or wait for it.

        Raises `UpstreamTimedOut`, `anyio.EndOfStream` and the errors of a broken connection.
        """
        if not self._received and not self._ended:
            self._reader = self._loop.create_future()
            self._deadline = self._loop.time() + self._read_seconds
            if self._timer is None:
                self._timer = self._loop.call_at(self._deadline, self._check_deadline)
            if self._is_paused:
                self._is_paused = False
                self._transport.resume_reading()
            try:
                await self._reader
            finally:
                self._reader = None
            if not self._received and not self._ended:
                raise UpstreamTimedOut
        data, self._received = self._received[:max_bytes], self._received[max_bytes:]
        if data:
            return data
        self._raise_broken()
        raise anyio.EndOfStream

    async def send(self, item: bytes) -> None:
        """Write bytes, and wait until the system has taken them. Raises `UpstreamTimedOut`."""
        self._raise_broken()
        if self._transport.is_closing():
            raise anyio.BrokenResourceError
        self._transport.write(item)
        if not self._writable.is_set():
            try:
                async with asyncio.timeout(self._read_seconds):
                    await self._writable.wait()
            except TimeoutError:  # an `OSError`, which TLS would take for a broken connection
                raise UpstreamTimedOut from None
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

    def _check_deadline(self) -> None:
        self._timer = None
        if self._reader is None:
            return
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._check_deadline)
        else:
            self._wake_reader()

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _raise_broken(self) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
        if self._error is not None:
            raise anyio.BrokenResourceError from self._error


class Target(NamedTuple):
    """Where a request goes."""

    is_encrypted: bool
    host: str
    port: int
    netloc: bytes
    path: bytes


@lru_cache(maxsize=256)
def _target(url: str) -> Target:
    parsed = httpx2.URL(url)
    is_encrypted = parsed.scheme == "https"
    port = parsed.port or (443 if is_encrypted else 80)
    return Target(is_encrypted, parsed.raw_host.decode("ascii"), port, parsed.netloc, parsed.raw_path)


def _is_public(address: str) -> bool:
    """Whether an IP address is reachable by everybody."""
    try:
        return ip_address(address.partition("%")[0]).is_global
    except ValueError:
        return False


class Upload(NamedTuple):
    """A request body that is sent while it arrives."""

    pieces: AsyncIterator[bytes]
    length: int | None
    """Its bytes; None: not known before its end."""


class _Connection:
    """One connection: sends a request, and reads its response."""

    def __init__(self, tcp: _TcpStream, stream: ByteStream, target: Target) -> None:
        self._tcp = tcp
        self._stream = stream
        self.origin = target[:3]
        self.buffer = b""
        """What was received and not read yet."""
        self.idle_since = 0.0

    @property
    def is_usable(self) -> bool:
        """Whether an idle connection can take a request: it is young, and the server has not closed it."""
        return asyncio.get_running_loop().time() - self.idle_since < _IDLE_SECONDS and not self._tcp.has_input

    async def request(
        self, method: str, target: Target, headers: Sequence[tuple[bytes, bytes]], body: bytes | Upload
    ) -> None:
        """Send a request. An upstream that stops reading may have answered already, so that is not an error."""
        lines = b"".join(b"%s: %s\r\n" % header for header in ((b"host", target.netloc), *headers))
        if not _HEADER_LINES.fullmatch(lines) or lines.count(b"\n") != len(headers) + 1:
            raise ProtocolViolated("a header has a character that none may have")
        size = body.length if isinstance(body, Upload) else len(body)
        length = (
            b"transfer-encoding: chunked\r\n" if size is None else b"content-length: %d\r\n" % size if body else b""
        )
        head = b"%s %s HTTP/1.1\r\n%s%s\r\n" % (method.encode(), target.path, lines, length)
        try:
            if isinstance(body, Upload):
                await self._stream.send(head)
                await self._send_pieces(body)
            elif len(body) <= _JOINED_BYTES:
                await self._stream.send(head + body)
            else:
                await self._stream.send(head)
                await self._stream.send(body)
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass

    async def _send_pieces(self, upload: Upload) -> None:
        async for piece in upload.pieces:
            if piece:
                await self._stream.send(piece if upload.length is not None else b"%x\r\n%s\r\n" % (len(piece), piece))
        if upload.length is None:
            await self._stream.send(b"0\r\n\r\n")

    async def receive(self) -> bytes:
        """Read what is there, or wait for it; empty at the end of the stream."""
        try:
            return await self._stream.receive(READ_BYTES)
        except anyio.EndOfStream:
            return b""
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise ReadFailed(type(error).__name__) from error

    async def response_head(self) -> tuple[bytes, int, list[tuple[bytes, bytes]]]:
        """Read the head of the response: the minor version, the status and the headers."""
        while True:
            while (end := _HEAD_END.search(self.buffer)) is None:
                if len(self.buffer) > _MAX_HEAD_BYTES:
                    raise ProtocolViolated("headers without an end")
                self.buffer += await self._more()
            first, *lines = _LINE_END.split(self.buffer[: end.start()])
            self.buffer = self.buffer[end.end() :]
            status = _STATUS_LINE.fullmatch(first)
            headers = [_HEADER.fullmatch(line) for line in lines]
            if status is None or not all(headers) or status[2] == b"101":
                raise ProtocolViolated("not a response")
            if not status[2].startswith(b"1"):  # else more follows
                return status[1], int(status[2]), [(found[1], found[2]) for found in headers if found is not None]

    async def _more(self) -> bytes:
        data = await self.receive()
        if not data:
            raise ProtocolViolated("it closed the connection")
        return data

    def close(self) -> None:
        """Close the connection at once."""
        self._tcp.abort()


class UpstreamReply:
    """A response. Iterating over it reads its body, in pieces of at most `READ_BYTES`."""

    def __init__(
        self, connection: _Connection, version: bytes, status: int, headers: list[tuple[bytes, bytes]]
    ) -> None:
        self.status = status
        self.headers = headers
        self._connection = connection
        named = [(name.lower(), value.lower()) for name, value in headers]
        codings = [value for name, value in named if name == b"transfer-encoding"]
        lengths = {value for name, value in named if name == b"content-length"}
        if len(lengths) > 1 or not all(map(_DIGITS.fullmatch, lengths)) or codings not in ([], [b"chunked"]):
            raise ProtocolViolated("a body of unknown length")
        has_body = status not in _NO_BODY
        self._decoder = _ChunkDecoder() if codings and has_body else None
        self._left = 0 if not has_body else int(next(iter(lengths))) if lengths and not codings else None
        """Bytes of a body of known length that are still to come."""
        closes = any(name == b"connection" and b"close" in value for name, value in named)
        has_end = self._decoder is not None or self._left is not None
        # Both a length and chunks: two readers may disagree on where the next response begins.
        self._keeps_alive = version == b"1" and has_end and not closes and not (lengths and codings)
        self._is_complete = self._decoder is None and self._left == 0
        self._start = b""
        """What was received together with the headers."""
        if not self._is_complete:
            self._start, connection.buffer = connection.buffer, b""
        self.is_released = False

    @property
    def leaves_connection_usable(self) -> bool:
        """Whether the body was read to its end and the connection can take another request."""
        return self._is_complete and self._keeps_alive and not self._connection.buffer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        # No generator: the event loop would track it, for every response.
        while not self._is_complete:
            data, self._start = self._start, b""
            if not data:
                data = await self._connection.receive()
                if not data:
                    if self._decoder is not None or self._left is not None:
                        raise ProtocolViolated("the body ended too early")
                    self._is_complete = True
                    break
            piece = self._decoded(data)
            if piece:
                return piece
        raise StopAsyncIteration

    async def read(self) -> bytes:
        """Read the complete body."""
        return b"".join([piece async for piece in self])

    def _decoded(self, data: bytes) -> bytes:
        if self._decoder is not None:
            piece = self._decoder.feed(data)
            self._is_complete, self._connection.buffer = self._decoder.is_complete, self._decoder.rest
            return piece
        if self._left is None:
            return data
        piece, self._connection.buffer = data[: self._left], data[self._left :]
        self._left -= len(piece)
        self._is_complete = not self._left
        return piece


class _ChunkDecoder:
    """Decodes a chunked body; chunks that were received together are one piece."""

    def __init__(self) -> None:
        self.is_complete = False
        self.rest = b""
        """What was fed and not decoded: half a line, or what follows the body."""
        self._left = 0
        """Bytes of the current chunk that are still to come."""
        self._next: Literal["size", "end", "trailer"] = "size"
        """Which line comes after them."""
        self._trailer_bytes = 0

    def feed(self, data: bytes) -> bytes:
        """Decode more bytes. Raises `ProtocolViolated`."""
        data = self.rest + data if self.rest else data
        at = 0
        pieces: list[bytes] = []
        while not self.is_complete:
            if self._left:
                pieces.append(data[at : at + self._left])
                at += len(pieces[-1])
                self._left -= len(pieces[-1])
                if self._left:
                    break
            end = data.find(b"\n", at)
            if end < 0:
                break
            if self._next == "size" and (size := _PLAIN_SIZE.match(data, at)):
                self._left = int(size[1], 16)
                self._next = "end" if self._left else "trailer"
            elif self._next == "end" and end - at == 1 and data[at] == 0x0D:  # the end of a chunk, as nearly all end
                self._next = "size"
            else:
                self._take(data[at:end].removesuffix(b"\r"))
            at = end + 1
        self.rest = data[at:]
        if len(self.rest) > _MAX_CHUNK_LINE and not self.is_complete:
            raise ProtocolViolated("a line without an end")
        return b"".join(pieces)

    def _take(self, line: bytes) -> None:
        """Read the line after a chunk, before one, or after all."""
        if self._next == "end":
            if line:
                raise ProtocolViolated("a chunk is longer than its size")
            self._next = "size"
        elif self._next == "size":
            size = _CHUNK_SIZE.fullmatch(line)
            if size is None:
                raise ProtocolViolated("a chunk without a size")
            self._left = int(size[1], 16)
            self._next = "end" if self._left else "trailer"
        else:
            self.is_complete = not line
            self._trailer_bytes += len(line)
            if self._trailer_bytes > _MAX_TRAILER_BYTES:
                raise ProtocolViolated("trailers without an end")


@dataclass(slots=True, kw_only=True)
class UpstreamConnections:
    """The connections to one upstream; they belong to one event loop."""

    connect_seconds: float
    read_seconds: float
    public_only: bool = False
    """Whether a connection to a private address is refused, before a byte is sent."""
    _idle: list[_Connection] = field(default_factory=list, init=False)
    """The one used last is at the end and is reused first."""
    _active: set[_Connection] = field(default_factory=set, init=False)
    _ssl_context: ssl.SSLContext | None = field(default=None, init=False)

    async def send(
        self, method: str, url: str, headers: Sequence[tuple[bytes, bytes]], body: bytes | Upload
    ) -> tuple[UpstreamReply, Callable[[], Awaitable[None]]]:
        """Send a request.

        Returns the response, whose body is not read yet, and a function that releases its connection.

        Raises:
            One of `NETWORK_ERRORS`, or `UpstreamTimedOut`.
        """
        target = _target(url)
        connection = self._reused(target) or await self._connected(target)
        self._active.add(connection)
        try:
            await connection.request(method, target, headers, body)
            reply = UpstreamReply(connection, *await connection.response_head())
        except BaseException:
            self._active.discard(connection)
            connection.close()
            raise
        return reply, partial(self._release, connection, reply)

    async def close(self) -> None:
        """Close all connections."""
        connections = [*self._idle, *self._active]
        self._idle, self._active = [], set()
        for connection in connections:
            connection.close()

    async def _release(self, connection: _Connection, reply: UpstreamReply) -> None:
        """Keep a connection whose response was read to its end; close any other."""
        if reply.is_released:  # the connection may belong to the next request
            return
        reply.is_released = True
        self._active.discard(connection)
        if reply.leaves_connection_usable and len(self._idle) < _MAX_IDLE:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.close()

    def _reused(self, target: Target) -> _Connection | None:
        """Return an idle connection that the server has not closed meanwhile."""
        while self._idle:
            connection = self._idle.pop()
            if connection.origin == target[:3] and connection.is_usable:
                return connection
            connection.close()
        return None

    async def _connected(self, target: Target) -> _Connection:
        if target.is_encrypted and self._ssl_context is None:
            self._ssl_context = httpx2.create_ssl_context(trust_env=False)
        loop = asyncio.get_running_loop()
        tcp: _TcpStream | None = None
        try:
            async with asyncio.timeout(self.connect_seconds):
                transport, tcp = await loop.create_connection(
                    partial(_TcpStream, self.read_seconds),
                    target.host,
                    target.port,
                    happy_eyeballs_delay=_HAPPY_EYEBALLS,
                )
                if self.public_only and not _is_public(str(transport.get_extra_info("peername")[0])):
                    raise ConnectionRefusedError
                stream: ByteStream = tcp
                if self._ssl_context is not None and target.is_encrypted:
                    stream = await TLSStream.wrap(
                        tcp, ssl_context=self._ssl_context, hostname=target.host, standard_compatible=False
                    )
        except BaseException as error:
            if tcp is not None:
                tcp.abort()
            if isinstance(error, TimeoutError):
                raise UpstreamTimedOut from None
            if isinstance(error, OSError | anyio.BrokenResourceError | anyio.ClosedResourceError | anyio.EndOfStream):
                raise ConnectFailed(type(error).__name__) from error
            raise
        return _Connection(tcp, stream, target)
