"""What is known of one request, from its first byte to the end of its response: for the access log and the metrics.

The guard makes a record for each request, handlers fill it in, and the guard reports it when the request is over.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Self

from starlette.types import Scope

from recto.gateway.api_keys import Key
from recto.gateway.turn import GatewayTurn
from recto.gateway.upstreams.http import UpstreamResponse

_RECORD: Final = "recto.record"
CLIENT_CLOSED: Final = 499
"""The status of a request whose client disconnected before there was a response, as nginx logs it."""


def _request_id() -> str:
    return f"req_{os.urandom(16).hex()}"


@dataclass(slots=True, kw_only=True, eq=False)
class RequestRecord:
    """One request. Its outcome is set once: the first one counts."""

    report: Callable[[RequestRecord], None] = lambda record: None
    """Called when the outcome of a request to a model or an upstream is known; nothing can cancel it."""
    id: str = field(default_factory=_request_id)
    method: str = ""
    path: str = ""
    client: str = ""
    """The address of the client."""
    key: Key | None = None
    wire: str = ""
    """The wire format of a model request; `other`: passed on to an upstream; empty: the gateway's own API."""
    model: str = ""
    upstream: str = ""
    is_streamed: bool = False
    is_replayed: bool = False
    """Whether the answer is that of an earlier attempt: the upstream was not asked."""
    turn: GatewayTurn | None = None
    status: int = 0
    """0: nothing was sent."""
    outcome: str = ""
    """`ok`, `upstream_error`, `refused`, `failed` or `cut`; empty while it is not known."""
    reason: str = ""
    """The code of the error; empty without one."""
    settled_seconds: float = 0.0
    """When the outcome was known."""
    gateway_seconds: float | None = None
    """Seconds of the gateway's own work before the upstream was called."""
    upstream_seconds: float = 0.0
    """Seconds spent waiting for the upstream."""
    client_seconds: float = 0.0
    """Seconds spent waiting for the client to send or to read."""
    now: Callable[[], float] = time.monotonic
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self.now()

    @property
    def seconds(self) -> float:
        """Seconds since the headers of the request arrived."""
        return self.now() - self._started

    @property
    def added_seconds(self) -> float:
        """Seconds so far that neither the upstream nor the client took."""
        return max(self.seconds - self.upstream_seconds - self.client_seconds, 0.0)

    def settle(self, outcome: str, reason: str = "") -> None:
        """Set the outcome, unless one is set."""
        if self.outcome:
            return
        self.outcome, self.reason = outcome, reason
        self.settled_seconds = self.seconds
        if self.wire:
            self.report(self)

    async def timed(self, asking: Awaitable[UpstreamResponse]) -> UpstreamResponse:
        """Await a response of the upstream. The time until it begins, and between its pieces, is the upstream's."""
        began = self.now()
        try:
            answer = await asking
        finally:
            self.upstream_seconds += self.now() - began
        pieces = _TimedBody(answer.pieces, self)
        return UpstreamResponse(status=answer.status, headers=answer.headers, pieces=pieces, close=answer.close)


class _TimedBody:
    """The body of a response, piece by piece."""

    def __init__(self, pieces: AsyncIterator[bytes], record: RequestRecord) -> None:
        self._pieces = pieces
        self._record = record
        if callable(close := getattr(pieces, "aclose", None)):
            self.aclose = close

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        began = self._record.now()
        try:
            return await self._pieces.__anext__()
        finally:
            self._record.upstream_seconds += self._record.now() - began


def keep_record(scope: Scope, record: RequestRecord) -> None:
    """Put the record of a request into its scope."""
    scope[_RECORD] = record


def record_of(scope: Scope) -> RequestRecord:
    """Return the record of a request; where no guard made one, a record that is not read."""
    record: RequestRecord = scope.get(_RECORD) or RequestRecord()
    return record
