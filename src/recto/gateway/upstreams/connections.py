"""Connections to one upstream: kept for its next request, and read a little at a time.

What an upstream has said and nobody has read yet waits with its sender, not in this process. Finding a connection costs
the same however many there are. Nothing here knows what is asked or answered, nor how many may ask: each connection
belongs to a request that was let in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from ssl import SSLContext

import httpcore2
import httpx2

_SIP = 8 * 1024
"""Bytes taken from the system at once; by itself the loop takes 256 KB, and copies of them are held while a client does
not read."""
_KEPT = 100
"""Connections that wait for a next request."""
_KEPT_SECONDS = 2.0
"""For so long: well below the five after which many servers hang up. Who hangs up while a request is on its way has not
been asked, and whether it has cannot be told, so nothing is ever sent twice."""

FAILURES = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.UnsupportedProtocol)
"""What goes wrong on a line, beside `httpcore2.TimeoutException`."""


class _Sipping(httpcore2.AnyIOBackend):
    """Connects as usual, and then reads little at once."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to an address."""
        stream = await super().connect_tcp(host, port, timeout, local_address, socket_options)
        stream._stream._transport.max_size = _SIP  # type: ignore[attr-defined]  # neither library has a name for it
        return stream


@dataclass(slots=True, kw_only=True)
class Lines:
    """The connections to one upstream; they belong to one event loop."""

    connect_seconds: float
    silent_seconds: float
    _idle: list[httpcore2.AsyncHTTPConnection] = field(default_factory=list, init=False)
    """The one that was used last stands last, and is used first."""
    _used: dict[httpcore2.AsyncHTTPConnection, httpcore2.Response | None] = field(default_factory=dict, init=False)
    """With the answer that each is used for: one that is over twice must not end the next."""
    _backend: _Sipping = field(default_factory=_Sipping, init=False)
    _trusted: SSLContext | None = field(default=None, init=False)

    async def ask(
        self, method: str, url: str, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> tuple[httpcore2.Response, Callable[[], Awaitable[None]]]:
        """Sends a request; an answer that has begun, and what says that it is over, however much of it was read.

        Raises one of `FAILURES`, or `httpcore2.TimeoutException`.
        """
        place = httpx2.URL(url)
        where = httpcore2.URL(scheme=place.raw_scheme, host=place.raw_host, port=place.port, target=place.raw_path)
        length = [(b"content-length", str(len(body)).encode())] if body else []
        seconds = {"connect": self.connect_seconds, "read": self.silent_seconds, "write": self.silent_seconds}
        request = httpcore2.Request(
            method,
            where,
            headers=[(b"host", place.netloc), *headers, *length],
            content=body,
            extensions={"timeout": seconds},
        )
        line = await self._free(where.origin)
        self._used[line] = None
        try:
            answer = self._used[line] = await line.handle_async_request(request)
        except BaseException:
            self._used.pop(line, None)
            raise
        return answer, partial(self._over, line, answer)

    async def close(self) -> None:
        """Lets go of all of them."""
        lines = [*self._idle, *self._used]
        self._idle, self._used = [], {}
        for line in lines:
            with suppress(Exception):
                await line.aclose()

    async def _over(self, line: httpcore2.AsyncHTTPConnection, answer: httpcore2.Response) -> None:
        """A connection whose answer was read to its end waits for the next request; any other is closed."""
        await answer.aclose()
        if self._used.get(line) is answer:
            del self._used[line]
            if line.is_idle() and len(self._idle) < _KEPT:
                self._idle.append(line)
            else:
                await line.aclose()

    async def _free(self, origin: httpcore2.Origin) -> httpcore2.AsyncHTTPConnection:
        """One that waits, where its other end has not gone meanwhile; else a new one."""
        while self._idle:
            line = self._idle.pop()
            if line.is_available() and not line.has_expired():
                return line
            await line.aclose()
        if origin.scheme == b"https" and self._trusted is None:
            self._trusted = httpx2.create_ssl_context(trust_env=False)
        return httpcore2.AsyncHTTPConnection(
            origin, ssl_context=self._trusted, keepalive_expiry=_KEPT_SECONDS, network_backend=self._backend
        )
