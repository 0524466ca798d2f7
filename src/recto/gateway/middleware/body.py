"""Takes in the body of a request: all of it, within a time and a size, unpacked, and not nested too deep to be read.

Nothing here knows what a body means. A body that is too large is let go before it is held, one that unpacks to too much
is let go at the first byte that is too many, and one that is nested too deep never reaches a reader that recurses.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from recto.config.settings import GatewaySettings
from recto.engine.async_session import on_a_thread
from recto.errors import RequestRefused
from recto.formats.errors import MALFORMED, OVERLOADED, TIMED_OUT, TOO_LARGE
from recto.gateway.middleware.rate_limit import Room

if TYPE_CHECKING:
    from numpy.typing import NDArray


_SMALL = 1 << 20
"""Bytes of a body that come in without asking: nearly all requests are smaller."""
_ROOM = 10 << 20
"""Bytes for all that have more, beside the one that may always go on."""
_SHARE = 2
"""One key has one part of so many of it."""
_PACE = 64 << 20
"""Bytes a second at which a large body is read: the loop that reads it is everybody's."""
_PATIENCE = 10.0
"""Seconds that a body waits for room before it is told to come back."""


class Arrivals:
    """All large bodies on their way in."""

    def __init__(self, room: int = _ROOM, *, pace: float = _PACE, patience: float = _PATIENCE) -> None:
        self._room = room
        self._pace = pace
        self._patience = patience
        self._bodies: dict[Arrival, int] = {}
        """The bytes that each holds; the one that came first stands first."""
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def held(self) -> int:
        """Bytes of large bodies that have not arrived yet."""
        return sum(self._bodies.values())

    @contextmanager
    def of(self, key: str) -> Iterator[Arrival]:
        """One body, from its first byte to its last."""
        arrival = Arrival(self, key)
        try:
            yield arrival
        finally:
            if self._bodies.pop(arrival, None) is not None:
                self._tell()

    async def let_in(self, arrival: Arrival, size: int) -> None:
        """Waits for room. Raises `RequestRefused` where there was none for long."""
        self._bodies.setdefault(arrival, 0)
        try:
            async with asyncio.timeout(self._patience):
                while not self._fits(arrival, size):
                    turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiting.append(turn)
                    await turn
        except TimeoutError:
            text = "the gateway takes in as many large requests as it can; come back"
            raise RequestRefused(503, OVERLOADED, text, 1) from None
        self._bodies[arrival] += size
        await asyncio.sleep(size / self._pace)

    def _fits(self, arrival: Arrival, size: int) -> bool:
        first, *others = self._bodies
        if arrival is first:
            return True
        held = sum(self._bodies[one] for one in others)
        own = sum(self._bodies[one] for one in others if one.key == arrival.key)
        return held + size <= self._room and own + size <= self._room // _SHARE

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)


class Arrival:
    """One body on its way in."""

    def __init__(self, arrivals: Arrivals, key: str) -> None:
        self._arrivals = arrivals
        self._size = 0
        self.key = key

    async def take(self, size: int) -> None:
        """Takes in more of it, when there is room. Raises `RequestRefused`."""
        self._size += size
        if self._size > _SMALL:
            await self._arrivals.let_in(self, size)


_CODINGS = ("", "identity", "gzip", "x-gzip", "deflate", "zstd")
_MOST_PARTS = 64
"""Members of one gzip body, frames of one zstd body: each costs more to begin than its bytes."""
_ZSTD_WINDOW = 1 << 23
"""Memory that a zstd body may ask for; its format recommends that readers offer so much."""
_ZSTD_STEP = 512
"""Packed bytes read at once: they unpack to 16 MiB at the very most."""
_SMALL_BODIES = 1 << 18
"""Bytes that are looked through without leaving the event loop: well under a millisecond."""
_UNPACKING = 4
"""Bodies unpacked at once."""

_SIGNS = b'"[]{}'
_OTHERS = bytes(set(range(256)) - set(_SIGNS))
_STEPS = np.zeros(256, dtype=np.int8)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1
_PIECE = 1 << 20


class Bodies:
    """Takes in the bodies of one gateway."""

    def __init__(self, gateway: GatewaySettings) -> None:
        self._seconds = gateway.body_seconds
        self._depth = gateway.depth
        self._unpacking = asyncio.Semaphore(_UNPACKING)
        self._arrivals = Arrivals()

    async def read(
        self, headers: Mapping[bytes, bytes], receive: Receive, room: Room, most: int, key: str = ""
    ) -> bytes:
        """The whole body of a key's request, unpacked.

        Raises `RequestRefused`, or `ClientDisconnect` where the client has gone.
        """
        coding = headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()
        if coding not in _CODINGS:
            raise RequestRefused(
                415, "unsupported_encoding", "send the body as it is, or packed once by gzip, deflate or zstd"
            )
        if int(headers.get(b"content-length", b"0")) > most:
            raise _too_large(most)
        try:
            async with asyncio.timeout(self._seconds):
                with self._arrivals.of(key) as arrival:
                    body = await _received(receive, room, arrival, most)
        except TimeoutError:
            raise RequestRefused(
                408, TIMED_OUT, f"the body did not arrive within {self._seconds:g} s; send it again"
            ) from None
        if body and coding not in ("", "identity"):
            async with self._unpacking:
                packed, body = len(body), await on_a_thread(unpacked, body, coding, most)
            room.take(max(len(body) - packed, 0))
        deep = deepest(body) if len(body) <= _SMALL_BODIES else await on_a_thread(deepest, body)
        if deep > self._depth:
            raise RequestRefused(400, "too_deep", f"the JSON is nested more than {self._depth} deep; send it flatter")
        return body


async def _received(receive: Receive, room: Room, arrival: Arrival, most: int) -> bytes:
    pieces: list[bytes] = []
    try:
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            piece = message.get("body", b"")
            size += len(piece)
            if size > most:
                raise _too_large(most)
            room.take(len(piece))
            await arrival.take(len(piece))
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)
    finally:
        pieces.clear()  # an error would hold them for as long as it is told to the client


def unpacked(packed: bytes, coding: str, most: int) -> bytes:
    """The body that was packed. Raises `RequestRefused` at the first byte over the limit, or where it is damaged."""
    try:
        if coding == "zstd":
            return _from_zstd(packed, most)
        return _from_zlib(packed, coding, most)
    except (zlib.error, EOFError) as error:
        raise RequestRefused(400, MALFORMED, f"the body is not what '{coding}' unpacks: {error}") from None


def deepest(body: bytes) -> int:
    """How deep the brackets of a JSON text are nested, in time linear in its length and without recursion.

    A backslash outside of a string is no JSON: what follows it does not matter, for no reader gets there.
    """
    if b"[" not in body and b"{" not in body:
        return 0
    signs = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS)
    most = depth = quotes = 0
    for start in range(0, len(signs), _PIECE):
        piece = np.frombuffer(signs, dtype=np.uint8, count=min(_PIECE, len(signs) - start), offset=start)
        counted: NDArray[np.int64] = np.cumsum(piece == ord('"'), dtype=np.int64) + quotes
        depths: NDArray[np.int64] = np.cumsum(np.where(counted & 1, 0, _STEPS[piece]), dtype=np.int64) + depth
        most = max(most, int(depths.max()))
        depth, quotes = int(depths[-1]), int(counted[-1])
    return most


def _from_zlib(packed: bytes, coding: str, most: int) -> bytes:
    bits = 31 if coding != "deflate" else 15 if _has_zlib_header(packed) else -15
    pieces: list[bytes] = []
    size = 0
    for _ in range(_MOST_PARTS):
        unpacker = zlib.decompressobj(bits)
        piece = unpacker.decompress(packed, most + 1 - size)
        size += len(piece)
        if size > most:
            raise _too_large(most)
        if not unpacker.eof:
            raise EOFError("it ends too early")
        pieces.append(piece)
        packed = unpacker.unused_data
        if not packed:
            return b"".join(pieces)
    raise EOFError(f"it has more than {_MOST_PARTS} parts")


def _has_zlib_header(packed: bytes) -> bool:
    """What 'deflate' means was never agreed on: some send it with zlib's two bytes, some without."""
    return len(packed) >= 2 and packed[0] & 0x0F == 8 and int.from_bytes(packed[:2]) % 31 == 0


def _from_zstd(packed: bytes, most: int) -> bytes:
    import zstandard  # noqa: PLC0415  # only for who sends it

    pieces: list[bytes] = []
    size = 0
    for _ in range(_MOST_PARTS):
        unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
        for start in range(0, len(packed), _ZSTD_STEP):
            try:
                pieces.append(unpacker.decompress(packed[start : start + _ZSTD_STEP]))
            except zstandard.ZstdError as error:
                raise EOFError(str(error)) from None
            size += len(pieces[-1])
            if size > most:
                raise _too_large(most)
            if unpacker.eof:
                packed = unpacker.unused_data + packed[start + _ZSTD_STEP :]
                break
        else:
            raise EOFError("it ends too early")
        if not packed:
            return b"".join(pieces)
    raise EOFError(f"it has more than {_MOST_PARTS} parts")


def _too_large(most: int) -> RequestRefused:
    return RequestRefused(
        413, TOO_LARGE, f"the request is larger than {most:,} bytes; 'gateway.body_bytes' or its key allows no more"
    )
