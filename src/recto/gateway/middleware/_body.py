"""Reads request bodies: within a time, a size and a nesting depth, and decompressed.

Admission control for large bodies bounds the bytes buffered at once, per key and in total. A body that is too large is
refused before it is buffered, one that decompresses to too much at the first byte over the limit, and one that is
nested too deeply never reaches a recursive parser.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self

import numpy as np
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from recto.config.settings import GatewaySettings
from recto.engine.async_session import on_a_thread
from recto.errors import RequestRefused
from recto.formats.errors import MALFORMED, OVERLOADED, TIMED_OUT, TOO_LARGE
from recto.gateway.middleware.rate_limit import MemoryReservation
from recto.gateway.request import KnownPrefix

if TYPE_CHECKING:
    from numpy.typing import NDArray


_FREE_BYTES = 1 << 20
"""Bytes of a body that need no admission: nearly all requests are smaller."""
_CAPACITY = 10 << 20
"""Bytes for all larger bodies together, besides the oldest, which may always continue."""
_KEY_SHARE = 2
"""A key may use the capacity divided by this."""
_RATE = 64 << 20
"""Bytes per second at which a large body is read: all clients share the event loop."""
_WAIT_SECONDS = 10.0
"""How long a body waits for capacity before it is refused."""


class BodyAdmission:
    """Admits large bodies that are being received."""

    def __init__(self, capacity: int = _CAPACITY, *, rate: float = _RATE, wait_seconds: float = _WAIT_SECONDS) -> None:
        self._capacity = capacity
        self._rate = rate
        self._wait_seconds = wait_seconds
        self._bodies: dict[AdmittedBody, int] = {}
        """The bytes buffered for each; the oldest comes first."""
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def buffered(self) -> int:
        """Bytes of large bodies that are still being received."""
        return sum(self._bodies.values())

    def body(self, key: str) -> AdmittedBody:
        """Track one body, from its first byte to its last."""
        return AdmittedBody(self, key)

    def discard(self, body: AdmittedBody) -> None:
        """Note that a body is received no longer."""
        if self._bodies.pop(body, None) is not None:
            self._wake()

    async def admit(self, body: AdmittedBody, size: int) -> None:
        """Wait for capacity. Raises `RequestRefused` after `wait_seconds`."""
        self._bodies.setdefault(body, 0)
        try:
            async with asyncio.timeout(self._wait_seconds):
                while not self._fits(body, size):
                    turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiting.append(turn)
                    await turn
        except TimeoutError:
            text = "the gateway takes in as many large requests as it can; come back"
            raise RequestRefused(503, OVERLOADED, text, 1) from None
        self._bodies[body] += size
        await asyncio.sleep(size / self._rate)

    def _fits(self, body: AdmittedBody, size: int) -> bool:
        oldest, *others = self._bodies
        if body is oldest:
            return True
        total = sum(self._bodies[other] for other in others)
        own = sum(self._bodies[other] for other in others if other.key == body.key)
        return total + size <= self._capacity and own + size <= self._capacity // _KEY_SHARE

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)


class AdmittedBody:
    """One body that is being received."""

    def __init__(self, admission: BodyAdmission, key: str) -> None:
        self._admission = admission
        self._size = 0
        self.key = key

    async def take(self, size: int) -> None:
        """Admit more bytes of it. Raises `RequestRefused`."""
        self._size += size
        if self._size > _FREE_BYTES:
            await self._admission.admit(self, size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._size > _FREE_BYTES:
            self._admission.discard(self)


_CODINGS = ("", "identity", "gzip", "x-gzip", "deflate", "zstd")
_MAX_PARTS = 64
"""Members of a gzip body, frames of a zstd body: starting one costs more than its bytes."""
_ZSTD_WINDOW = 1 << 23
"""Memory that a zstd body may require; its format recommends that decoders support this much."""
_ZSTD_STEP = 512
"""Compressed bytes read at once: they decompress to at most 16 MiB."""
_INLINE_BYTES = 1 << 18
"""Bytes that are scanned on the event loop: it takes well under a millisecond."""
_MAX_DECOMPRESSING = 4
"""Bodies decompressed at once."""

_MESSAGES_DEPTH = 2
"""How deep the end of a message is nested: in the array of messages, in the body."""
_BRACKETS = b'"[]{}'
_OTHER_BYTES = bytes(set(range(256)) - set(_BRACKETS))
_DEPTH_STEPS = np.zeros(256, dtype=np.int8)
_DEPTH_STEPS[list(b"[{")] = 1
_DEPTH_STEPS[list(b"]}")] = -1
_PIECE = 1 << 20


class BodyReader:
    """Reads the bodies of one gateway's requests."""

    def __init__(self, gateway: GatewaySettings) -> None:
        self._seconds = gateway.body_seconds
        self._depth = gateway.depth
        self._decompressing = asyncio.Semaphore(_MAX_DECOMPRESSING)
        self._admission = BodyAdmission()

    async def read(
        self,
        headers: Mapping[bytes, bytes],
        receive: Receive,
        memory: MemoryReservation,
        limit: int,
        key: str = "",
        match: Callable[[bytes], KnownPrefix | None] = lambda body: None,
    ) -> tuple[bytes, KnownPrefix | None]:
        """Read the complete body of a key's request, decompressed.

        Returns it with the earlier request that it begins with, if `match` finds one: what they share was checked then.

        Raises:
            RequestRefused: It is too large, too slow, too deep or damaged.
            ClientDisconnect: The client has disconnected.
        """
        coding = headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()
        if coding not in _CODINGS:
            raise RequestRefused(
                415, "unsupported_encoding", "send the body as it is, or packed once by gzip, deflate or zstd"
            )
        if int(headers.get(b"content-length", b"0")) > limit:
            raise _too_large(limit)
        try:
            async with asyncio.timeout(self._seconds):
                with self._admission.body(key) as admitted:
                    body = await _receive_body(receive, memory, admitted, limit)
        except TimeoutError:
            raise RequestRefused(
                408, TIMED_OUT, f"the body did not arrive within {self._seconds:g} s; send it again"
            ) from None
        if body and coding not in ("", "identity"):
            async with self._decompressing:
                packed, body = len(body), await on_a_thread(decompress, body, coding, limit)
            memory.take(max(len(body) - packed, 0))
        known = match(body)
        rest = body if known is None else body[known.end : known.end + known.new_bytes(body)]
        limit = self._depth - (0 if known is None else _MESSAGES_DEPTH)
        if len(rest) > _INLINE_BYTES:
            depth = await on_a_thread(nesting_depth, rest)
        else:  # most requests have fewer brackets than they may be deep
            depth = nesting_depth(rest) if rest.count(b"[") + rest.count(b"{") > limit else 0
        if depth > limit:
            raise RequestRefused(400, "too_deep", f"the JSON is nested more than {self._depth} deep; send it flatter")
        return body, known


async def _receive_body(receive: Receive, memory: MemoryReservation, admitted: AdmittedBody, limit: int) -> bytes:
    pieces: list[bytes] = []
    try:
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            piece = message.get("body", b"")
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            memory.take(len(piece))
            await admitted.take(len(piece))
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)
    finally:
        pieces.clear()  # the traceback of an error would keep them alive until the error is sent


def decompress(packed: bytes, coding: str, limit: int) -> bytes:
    """Decompress a body. Raises `RequestRefused` at the first byte over the limit, or where it is damaged."""
    try:
        if coding == "zstd":
            return _from_zstd(packed, limit)
        return _from_zlib(packed, coding, limit)
    except (zlib.error, EOFError) as error:
        raise RequestRefused(400, MALFORMED, f"the body is not what '{coding}' unpacks: {error}") from None


def nesting_depth(body: bytes) -> int:
    """Return how deep the brackets of a JSON text are nested, in linear time and without recursion.

    A backslash outside of a string is not JSON: what follows it does not matter, because no parser gets there.
    """
    if b"[" not in body and b"{" not in body:
        return 0
    brackets = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHER_BYTES)
    deepest = depth = quotes = 0
    for start in range(0, len(brackets), _PIECE):
        piece = np.frombuffer(brackets, dtype=np.uint8, count=min(_PIECE, len(brackets) - start), offset=start)
        counted: NDArray[np.int64] = np.cumsum(piece == ord('"'), dtype=np.int64) + quotes
        depths: NDArray[np.int64] = np.cumsum(np.where(counted & 1, 0, _DEPTH_STEPS[piece]), dtype=np.int64) + depth
        deepest = max(deepest, int(depths.max()))
        depth, quotes = int(depths[-1]), int(counted[-1])
    return deepest


def _from_zlib(packed: bytes, coding: str, limit: int) -> bytes:
    bits = 31 if coding != "deflate" else 15 if _has_zlib_header(packed) else -15
    pieces: list[bytes] = []
    size = 0
    for _ in range(_MAX_PARTS):
        decoder = zlib.decompressobj(bits)
        piece = decoder.decompress(packed, limit + 1 - size)
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        if not decoder.eof:
            raise EOFError("it ends too early")
        pieces.append(piece)
        packed = decoder.unused_data
        if not packed:
            return b"".join(pieces)
    raise EOFError(f"it has more than {_MAX_PARTS} parts")


def _has_zlib_header(packed: bytes) -> bool:
    """Whether a 'deflate' body has a zlib header: clients disagree on what the name means."""
    return len(packed) >= 2 and packed[0] & 0x0F == 8 and int.from_bytes(packed[:2]) % 31 == 0


def _from_zstd(packed: bytes, limit: int) -> bytes:
    import zstandard  # noqa: PLC0415  # only where it is used

    pieces: list[bytes] = []
    size = 0
    for _ in range(_MAX_PARTS):
        decoder = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
        for start in range(0, len(packed), _ZSTD_STEP):
            try:
                pieces.append(decoder.decompress(packed[start : start + _ZSTD_STEP]))
            except zstandard.ZstdError as error:
                raise EOFError(str(error)) from None
            size += len(pieces[-1])
            if size > limit:
                raise _too_large(limit)
            if decoder.eof:
                packed = decoder.unused_data + packed[start + _ZSTD_STEP :]
                break
        else:
            raise EOFError("it ends too early")
        if not packed:
            return b"".join(pieces)
    raise EOFError(f"it has more than {_MAX_PARTS} parts")


def _too_large(limit: int) -> RequestRefused:
    return RequestRefused(
        413, TOO_LARGE, f"the request is larger than {limit:,} bytes; 'gateway.body_bytes' or its key allows no more"
    )
