"""How much may be under way at once, and how fast it may come: for the gateway, and for each key.

Whoever is over a limit is told when to come back and holds nothing meanwhile. Everything here belongs to one event
loop, so nothing is locked.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from recto.config.settings import GatewaySettings
from recto.errors import RequestRefused
from recto.formats.errors import OVERLOADED, RATE_LIMITED
from recto.gateway.api_keys import Key

_BODIES = 8
"""How many of the largest requests are held in memory at once."""
_KEPT_FREE = 8
"""One of so many places to work is kept for keys that have few: one that has many cannot take them all."""
_TRACKED = 20_000
"""Keys whose pace is remembered; there are fewer."""


@dataclass(slots=True)
class _Pace:
    """The requests a key may still make: it fills evenly, up to a minute's worth."""

    left: float
    at: float
    in_flight: int = 0
    at_work: int = 0


class Room:
    """The bytes that one request holds."""

    def __init__(self, limits: RateLimits) -> None:
        self._limits = limits
        self.held = 0

    def take(self, size: int) -> None:
        """Makes room for more. Raises `RequestRefused` where others hold too much."""
        self._limits.hold(size)
        self.held += size


class RateLimits:
    """What is under way in one gateway."""

    def __init__(self, gateway: GatewaySettings, now: Callable[[], float] = time.monotonic) -> None:
        self._most = gateway.concurrency
        self._most_bytes = _BODIES * gateway.body_bytes
        self._now = now
        self._paces: dict[str, _Pace] = {}
        self._held = 0
        self.in_flight = 0

    @contextmanager
    def of(self, key: Key) -> Iterator[None]:
        """One request of a key, from its headers to the end of its answer."""
        pace = self._paced(key)
        if key.concurrency and pace.in_flight >= key.concurrency:
            raise RequestRefused(
                429, RATE_LIMITED, f"{pace.in_flight} requests of this key are under way, and no more are allowed", 1
            )
        if key.requests_per_minute:
            if pace.left < 1:
                wait = math.ceil((1 - pace.left) * 60 / key.requests_per_minute)
                text = f"this key may make {key.requests_per_minute} requests a minute; the next one in {wait} s"
                raise RequestRefused(429, RATE_LIMITED, text, max(wait, 1))
            pace.left -= 1
        pace.in_flight += 1
        try:
            yield
        finally:
            pace.in_flight -= 1

    @contextmanager
    def work(self, key: Key) -> Iterator[None]:
        """One request that is worked on, from its last byte to the end of its answer."""
        pace, few = self._paced(key), self._most // _KEPT_FREE
        if self.in_flight >= (self._most if pace.at_work < few else self._most - few):
            raise RequestRefused(503, OVERLOADED, "the gateway has all the work it takes at once; come back", 1)
        self.in_flight += 1
        pace.at_work += 1
        try:
            yield
        finally:
            self.in_flight -= 1
            pace.at_work -= 1

    @contextmanager
    def room(self) -> Iterator[Room]:
        """The memory of one request."""
        room = Room(self)
        try:
            yield room
        finally:
            self._held -= room.held

    def hold(self, size: int) -> None:
        """Takes memory; `Room` gives it back."""
        if self._held + size > self._most_bytes:
            raise RequestRefused(503, OVERLOADED, "the gateway holds as many large requests as it can; come back", 1)
        self._held += size

    def _paced(self, key: Key) -> _Pace:
        now, most = self._now(), float(key.requests_per_minute)
        pace = self._paces.get(key.id)
        if pace is None:
            if len(self._paces) >= _TRACKED:
                self._paces = {id: pace for id, pace in self._paces.items() if pace.in_flight}
            pace = self._paces[key.id] = _Pace(left=most, at=now)
        pace.left = min(pace.left + max(now - pace.at, 0.0) * most / 60, most)
        pace.at = now
        return pace
