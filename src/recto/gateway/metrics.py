"""Metrics of gateway requests, besides those of turns. Labels have few values, and none names a session.

Series of API keys and tenants are shown to a key without a tenant, and to the keys of that tenant.
"""

from __future__ import annotations

from collections.abc import Callable
from math import nan

from prometheus_client import Counter, Gauge, Histogram

from recto.formats import Usage
from recto.gateway.api_keys import Key
from recto.gateway.request_record import RequestRecord
from recto.health.exporters.base import MAX_KEYS, BoundedLabels
from recto.health.exporters.prometheus import Metrics
from recto.transcript.protocols import Replica

_DURATIONS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_OVERHEAD = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


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
