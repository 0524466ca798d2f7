"""Telemetry of requests: the record of each request, its line in the access log, and its metrics.

The guard makes a record for each request, handlers fill it in, and the guard reports it when the request is over.

Lines of the access log are ASCII and bounded, and everything that clients send is escaped, so no request can forge a
line or act on a terminal. A thread of its own writes them: a reader of the log that has stopped reading holds up no
request. Lines that find no place are lost and counted.

Labels of metrics have few values, and none names a session. Series of API keys and tenants are shown to a key without a
tenant, and to the keys of that tenant.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Any, Final, Literal, Self

from prometheus_client import Counter, Gauge, Histogram
from starlette.types import Scope

from recto.formats import Usage
from recto.gateway.api_keys import Key
from recto.gateway.turn import GatewayTurn
from recto.gateway.upstreams.http import UpstreamResponse
from recto.health.exporters.exporter import MAX_KEYS, BoundedLabels, format_time
from recto.health.exporters.json_log import render_line
from recto.health.exporters.prometheus import Metrics
from recto.transcript.entries import Clock
from recto.transcript.protocols import Replica

_RECORD: Final = "recto.record"
CLIENT_CLOSED: Final = 499
"""The status of a request whose client disconnected before there was a response, as nginx logs it."""
Style = Literal["text", "json"]
_MAX_WAITING: Final = 10_000
"""Lines that wait to be written."""
_GATHER_SECONDS: Final = 0.05
"""How long lines wait for others to be written with them: waking the thread for each line costs more than the line."""
_CLOSE_SECONDS: Final = 2.0
"""How long to wait at the end until everything is written."""
_MAX_DECISIONS: Final = 32
_MAX_TEXT: Final = 512
_PLAIN = re.compile(r"[A-Za-z0-9._:/@,+~-]+", re.ASCII)
_PROBES: Final = frozenset({"/healthz", "/readyz"})
"""Requests of orchestrators, every few seconds: only those that fail are logged."""
_DURATIONS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_OVERHEAD = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


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


class AccessLog:
    """Writes one line for each request."""

    def __init__(self, style: Style, clock: Clock) -> None:
        self.dropped = 0
        self._style = style
        self._clock = clock
        self._lines: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def write(self, record: RequestRecord) -> None:
        """Log a request that is over. Never blocks."""
        if record.path in _PROBES and record.status < 400:
            return
        fields = fields_of(record, format_time(self._clock.now()))
        line = render_line(fields) if self._style == "json" else _as_text(fields)
        with self._changed:
            if len(self._lines) >= _MAX_WAITING or self._closing.is_set():
                self.dropped += 1
                return
            self._lines.append(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="recto-access-log", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Write what waits, unless it is not read."""
        with self._changed:
            self._closing.set()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._lines and not self._closing.is_set():
                    self._changed.wait()
            self._closing.wait(_GATHER_SECONDS)
            with self._changed:
                lines, self._lines = self._lines, deque()
            if not lines:
                return
            try:
                sys.stderr.write(b"".join(lines).decode("ascii"))
                sys.stderr.flush()
            except Exception:  # noqa: BLE001  # a log never fails a request, whatever is wrong with it
                self.dropped += len(lines)


def fields_of(record: RequestRecord, now: str) -> dict[str, Any]:
    """Return the fields of a line. A field that has no value is left out."""
    key, turn = record.key, record.turn
    fields: dict[str, Any] = {
        "request": record.id,
        "method": record.method,
        "path": record.path,
        "status": record.status,
        "outcome": record.outcome,
        "reason": record.reason,
        "client": record.client,
    }
    if key is not None:
        fields |= {"key": key.id, "tenant": key.tenant, "agent": key.agent}
    fields |= {"model": record.model, "upstream": record.upstream}
    if record.wire:
        fields["streamed"] = record.is_streamed
    if record.is_replayed:
        fields["replayed"] = True
    if turn is not None:
        fields |= {
            "input_tokens": turn.usage.prompt,
            "output_tokens": turn.usage.output,
            "cached_tokens": turn.usage.cache_read,
            "counted_by": "recto" if turn.is_estimated else "upstream",
            "decisions": ",".join(map(str, turn.decisions[:_MAX_DECISIONS])) or "none",
            "recalled": len(turn.prompt.recalled),
        }
    fields |= {"added_ms": _milliseconds(record.added_seconds), "total_ms": _milliseconds(record.seconds)}
    fields = {name: value for name, value in fields.items() if value != ""}
    common = {"time": now, "level": "error" if record.status >= 500 else "info", "what": "request"}
    return {**common, "session": turn.resolved.name if turn is not None else "", **fields}


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1_000, 1)


def _as_text(fields: Mapping[str, Any]) -> bytes:
    """Return a line of `name=value` after the time. Values that are not plain are quoted as in JSON."""
    words = [f"{name}={_word(value)}" for name, value in fields.items() if name != "time" and value != ""]
    return f"{' '.join((fields['time'], *words))}\n".encode("ascii")


def _word(value: object) -> str:
    if isinstance(value, str):
        value = value[:_MAX_TEXT]
        return value if _PLAIN.fullmatch(value) else json.dumps(value).replace("\x7f", "\\u007f")
    return repr(value) if type(value) in (int, float) else json.dumps(value)


class RequestMetrics:
    """Counts model requests."""

    def __init__(self, metrics: Metrics, in_flight: Callable[[], int], *, known_model: Callable[[str], bool]) -> None:
        self._models = BoundedLabels(known_model)
        labels = ("api", "model", "outcome")
        registry = metrics.registry
        self._registry = registry
        self._requests = Counter(
            "recto_requests",
            "Requests to models, by how they ended: ok, upstream_error, refused, failed, cut.",
            labels,
            registry=registry,
        )
        self._seconds = Histogram(
            "recto_request_seconds",
            "From the first look at a request to the end of its answer.",
            ("api",),
            buckets=_DURATIONS,
            registry=registry,
        )
        self._overhead = Histogram(
            "recto_overhead_seconds",
            "The gateway's own work before the upstream is asked: store, relieve, recall, build.",
            ("api",),
            buckets=_OVERHEAD,
            registry=registry,
        )
        self._key_ids, self._tenants = BoundedLabels(most=MAX_KEYS), BoundedLabels(most=MAX_KEYS)
        self._key_requests = Counter(
            "recto_key_requests",
            "Requests of each API key, by its id: to models, streamed or not, and passed on to an upstream.",
            ("key", "tenant", "outcome", "streamed"),
            registry=registry,
        )
        self._key_tokens = Counter(
            "recto_key_tokens",
            "Tokens of each API key's requests: input (cached or not), output, and cached.",
            ("key", "tenant", "kind"),
            registry=registry,
        )
        self._counted: dict[tuple[str, str, str], tuple[Counter, Histogram, Histogram]] = {}
        """The metrics of each combination of labels: looking them up takes longer than counting."""
        gauge = Gauge("recto_requests_under_way", "Requests that are worked on now.", registry=registry)
        gauge.set_function(in_flight)

    def watch(self, replica: Replica) -> None:
        """Report the lag of a replica, too."""

        def behind() -> float:
            seconds = replica.behind
            return nan if seconds is None else seconds

        says = "By how much the replica is behind, at most; not a number while that is not known."
        Gauge("recto_replica_behind_seconds", says, registry=self._registry).set_function(behind)

    def count(self, record: RequestRecord) -> None:
        """Count a request whose outcome is known."""
        api = record.wire
        labels = api, self._models.of(record.model), record.outcome
        found = self._counted.get(labels)
        if found is None:
            found = self._requests.labels(*labels), self._seconds.labels(api), self._overhead.labels(api)
            self._counted[labels] = found
        requests, seconds, overhead = found
        requests.inc()
        seconds.observe(record.settled_seconds)
        overhead.observe(record.settled_seconds if record.gateway_seconds is None else record.gateway_seconds)
        if record.key is not None:
            self._count_key(record, record.key)

    def _count_key(self, record: RequestRecord, key: Key) -> None:
        self._key_requests.labels(*self._owner(key), record.outcome, str(record.is_streamed).lower()).inc()
        if record.turn is not None:
            self.count_tokens(key, record.turn.usage)

    def count_tokens(self, key: Key, usage: Usage) -> None:
        """Count the tokens of a request."""
        owner = self._owner(key)
        for kind, tokens in (("input", usage.prompt), ("output", usage.output), ("cached", usage.cache_read)):
            if tokens:
                self._key_tokens.labels(*owner, kind).inc(tokens)

    def _owner(self, key: Key) -> tuple[str, str]:
        return self._key_ids.of(key.id), self._tenants.of(key.tenant) if key.tenant else ""
