"""Limits on concurrency, rate and memory, for the gateway and for each API key.

A request over a limit is refused with the time to retry and holds nothing meanwhile. Everything here belongs to one
event loop, so nothing is locked.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from recto.config.settings import GatewaySettings
from recto.errors import RequestRefused
from recto.formats.errors import OVERLOADED, RATE_LIMITED
from recto.gateway.api_keys import Key

_MAX_BODIES = 8
"""How many requests of the largest size fit into memory at once."""
_RESERVED_SHARE = 8
"""One in this many slots is reserved for keys with few requests: a key with many cannot take all slots."""
_MAX_KEYS = 20_000
"""Keys whose usage is tracked; there are fewer."""


@dataclass(slots=True)
class _KeyUsage:
    """The requests a key may still make: a token bucket that refills evenly, up to one minute's worth."""

    tokens: float
    at: float
    in_flight: int = 0
    working: int = 0


class MemoryReservation:
    """The bytes reserved for one request, until it is left."""

    __slots__ = ("_limits", "size")

    def __init__(self, limits: RateLimits) -> None:
        self._limits = limits
        self.size = 0

    def take(self, size: int) -> None:
        """Reserve more. Raises `RequestRefused` where other requests hold too much."""
        self._limits.reserve(size)
        self.size += size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._limits.free(self.size)


class RequestSlot:
    """A request of a key, counted while it is entered. Entering raises `RequestRefused`."""

    __slots__ = ("_key", "_limits", "_usage")

    def __init__(self, limits: RateLimits, key: Key) -> None:
        self._limits = limits
        self._key = key

    def __enter__(self) -> None:
        self._usage = self._limits.start_request(self._key)

    def __exit__(self, *error: object) -> None:
        self._usage.in_flight -= 1


class WorkSlot:
    """A request being handled, counted while it is entered. Entering raises `RequestRefused`."""

    __slots__ = ("_key", "_limits", "_usage")

    def __init__(self, limits: RateLimits, key: Key) -> None:
        self._limits = limits
        self._key = key

    def __enter__(self) -> None:
        self._usage = self._limits.start_work(self._key)

    def __exit__(self, *error: object) -> None:
        self._limits.in_flight -= 1
        self._usage.working -= 1


class RateLimits:
    """The requests in flight of one gateway."""

    def __init__(self, gateway: GatewaySettings, now: Callable[[], float] = time.monotonic) -> None:
        self._max_requests = gateway.concurrency
        self._max_bytes = _MAX_BODIES * gateway.body_bytes
        self._now = now
        self._usage: dict[str, _KeyUsage] = {}
        self._reserved = 0
        self.in_flight = 0

    def request(self, key: Key) -> RequestSlot:
        """Count a request of a key, from its headers to the end of its response."""
        return RequestSlot(self, key)

    def work(self, key: Key) -> WorkSlot:
        """Count a request being handled, from its last byte to the end of its response."""
        return WorkSlot(self, key)

    def memory(self) -> MemoryReservation:
        """Track the memory of one request."""
        return MemoryReservation(self)

    def start_request(self, key: Key) -> _KeyUsage:
        """Count one more request of a key. Raises `RequestRefused`."""
        usage = self._usage_of(key)
        if key.concurrency and usage.in_flight >= key.concurrency:
            raise RequestRefused(
                429, RATE_LIMITED, f"{usage.in_flight} requests of this key are under way, and no more are allowed", 1
            )
        if key.requests_per_minute:
            if usage.tokens < 1:
                wait = math.ceil((1 - usage.tokens) * 60 / key.requests_per_minute)
                text = f"this key may make {key.requests_per_minute} requests a minute; the next one in {wait} s"
                raise RequestRefused(429, RATE_LIMITED, text, max(wait, 1))
            usage.tokens -= 1
        usage.in_flight += 1
        return usage

    def start_work(self, key: Key) -> _KeyUsage:
        """Count one more request that is handled. Raises `RequestRefused`."""
        usage, few = self._usage_of(key), self._max_requests // _RESERVED_SHARE
        if self.in_flight >= (self._max_requests if usage.working < few else self._max_requests - few):
            raise RequestRefused(503, OVERLOADED, "the gateway has all the work it takes at once; come back", 1)
        self.in_flight += 1
        usage.working += 1
        return usage

    def reserve(self, size: int) -> None:
        """Reserve memory. Raises `RequestRefused`."""
        if self._reserved + size > self._max_bytes:
            raise RequestRefused(503, OVERLOADED, "the gateway holds as many large requests as it can; come back", 1)
        self._reserved += size

    def free(self, size: int) -> None:
        """Free reserved memory."""
        self._reserved -= size

    def _usage_of(self, key: Key) -> _KeyUsage:
        now, limit = self._now(), float(key.requests_per_minute)
        usage = self._usage.get(key.id)
        if usage is None:
            if len(self._usage) >= _MAX_KEYS:
                self._usage = {id: usage for id, usage in self._usage.items() if usage.in_flight}
            usage = self._usage[key.id] = _KeyUsage(tokens=limit, at=now)
        usage.tokens = min(usage.tokens + max(now - usage.at, 0.0) * limit / 60, limit)
        usage.at = now
        return usage
