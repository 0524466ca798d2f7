"""Prometheus metrics: one registry, base units, few labels, no session ids.

Needs `prometheus_client`, which comes with `recto[metrics]` and `recto[gateway]`. Programs may add metrics of their own
to `Metrics.registry`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from recto.health.exporters._active_sessions import ActiveSessions
from recto.health.exporters.base import Exporter, ModelLabels, freed_tokens
from recto.health.exporters.fields import COMPONENTS, DECISIONS, OTHER, POLICIES, ZONES, event_fields
from recto.health.metrics import Alert, AlertName, Grade, TurnHealth
from recto.health.protocols import HealthSink, LossySink
from recto.transcript.entries import Entry
from recto.version import __version__

_SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.92, 0.95, 1.0)
_TOKENS = tuple(float(4**power) for power in range(3, 12))
"""64 to 4,194,304: from a greeting to the largest context window."""
_RATIOS = (1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0)
_SCORES = (0.25, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
_ERRORS = (-0.5, -0.2, -0.1, -0.05, -0.02, 0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_GRADES: tuple[str, ...] = get_args(Grade)
_ALERTS: tuple[str, ...] = get_args(AlertName)
_MAX_SINKS = 16


class Metrics(Exporter):
    """Counts turns, alerts and events."""

    name = "metrics"

    def __init__(
        self,
        *,
        known_model: Callable[[str], bool] | None = None,
        registry: CollectorRegistry | None = None,
        active: ActiveSessions | None = None,
    ) -> None:
        """`known_model` says which model names may be labels; without it the first 50 may."""
        self.registry = registry or CollectorRegistry()
        self.active = active or ActiveSessions()
        self._models = ModelLabels(known_model)
        self._sinks: list[LossySink] = []
        self._make_turn_metrics()
        self._make_event_metrics()
        self.registry.register(_ScrapeCollector(self.active, self._sinks))

    def watch(self, sink: HealthSink) -> None:
        """Also count what another sink drops, if it is a `LossySink`."""
        if isinstance(sink, LossySink) and len(self._sinks) < _MAX_SINKS:
            self._sinks.append(sink)

    def exposition(self) -> tuple[bytes, str]:
        """Return the metrics in Prometheus text format, and the content type."""
        return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4

    def turn(self, session: str, turn: TurnHealth) -> None:
        """Count a finished turn."""
        self.active.turn(session, turn)
        model = self._models.of(turn.model)
        self._turns.labels(model).inc()
        self._prompt.labels(model).observe(turn.tokens)
        self._burn.observe(turn.burn)
        for histogram, value in (
            (self._utilization, turn.utilization),
            (self._bloat, turn.bloat),
            (self._prefix, turn.prefix),
            (self._protected, turn.protected),
            (self._ratio, turn.ratio),
            (self._fidelity, turn.fidelity),
            (self._error, turn.estimate_error),
        ):
            if value is not None and isfinite(value):
                histogram.observe(value)
        for counter, number in (
            (self._evicted, turn.evicted),
            (self._hits, turn.recall_hits),
            (self._misses, turn.recall_misses),
            (self._regrets, turn.regret),
            (self._cache_read, turn.cache_read),
            (self._cache_write, turn.cache_write),
        ):
            if number > 0:
                counter.inc(number)

    def alert(self, alert: Alert) -> None:
        """Count an alert that was raised or has ended."""
        self.active.alert(alert)
        if not alert.ended:
            self._alerts.labels(alert.name, alert.grade).inc()

    def event(self, entry: Entry) -> None:
        """Count an event."""
        match entry.kind:
            case "window_overflow":
                self._overflows.inc()
            case "index_failed":
                self._index_failures.inc()
            case "zone_changed":
                self._zones.labels(str(event_fields(entry).get("after", OTHER))).inc()
            case "budget_violation":
                self._violations.labels(str(event_fields(entry).get("component", OTHER))).inc()
            case "restored":
                self._restored.inc()
            case kind if kind in DECISIONS:
                self._decisions.labels(kind).inc()
                freed, policy = freed_tokens(event_fields(entry))
                if freed > 0:
                    self._freed.labels(policy).inc(freed)
            case _:
                pass

    def _make_turn_metrics(self) -> None:
        counter, histogram = self._counter, self._histogram
        self._turns = counter("recto_turns", "Prompts that got their answer.", "model")
        self._prompt = histogram("recto_prompt_tokens", "Tokens of a prompt.", _TOKENS, "model")
        self._burn = histogram("recto_burn_tokens", "Tokens that came in since the turn before.", _TOKENS)
        self._utilization = histogram("recto_utilization_ratio", "Share of its room that a prompt takes.", _SHARES)
        self._bloat = histogram("recto_tool_result_ratio", "Share of a prompt that is tool results.", _SHARES)
        self._prefix = histogram(
            "recto_cache_prefix_ratio", "Share of a prompt that stood unchanged at the beginning of the last.", _SHARES
        )
        self._protected = histogram("recto_protected_ratio", "Share of the room that may not leave.", _SHARES)
        self._ratio = histogram("recto_compression_ratio", "How many times shorter text was made.", _RATIOS)
        self._fidelity = histogram("recto_fidelity_ratio", "How much of its sources a summary still tells.", _SCORES)
        self._error = histogram(
            "recto_estimate_error_ratio",
            "How far the provider's count of a prompt was off ours: 0.1 is 10 % more.",
            _ERRORS,
        )
        self._evicted = counter("recto_messages_evicted", "Messages that left prompts.")
        self._hits = counter("recto_recall_hits", "Times that recall brought something back.")
        self._misses = counter("recto_recall_misses", "Times that it found nothing relevant enough.")
        self._regrets = counter("recto_regrets", "Things that left and were soon fetched or asked for again.")
        cached = counter(
            "recto_upstream_cache_tokens",
            "Prompt tokens read from the provider's cache or written to it, as it told.",
            "kind",
        )
        self._cache_read, self._cache_write = cached.labels("read"), cached.labels("write")

    def _make_event_metrics(self) -> None:
        counter = self._counter
        self._decisions = counter("recto_decisions", "Decisions by which a prompt became smaller.", "kind")
        self._freed = counter("recto_tokens_freed", "Tokens that decisions freed.", "policy")
        self._overflows = counter("recto_overflows", "Prompts that could not be made to fit.")
        self._index_failures = counter("recto_index_failures", "Times that the recall index failed.")
        self._zones = counter("recto_zone_changes", "Times that a session came into a zone of pressure.", "zone")
        self._violations = counter("recto_budget_violations", "Times that a component outgrew its budget.", "component")
        self._restored = counter("recto_restores", "Decisions that were undone.")
        self._alerts = counter("recto_alerts", "Alerts that began.", "alert", "grade")
        build = Gauge("recto_build_info", "Which Recto this is; always 1.", ["version"], registry=self.registry)
        build.labels(__version__).set(1)
        # Prometheus sees no increase in a counter that appears with its first event, so all counters start at 0.
        for kinds, children in (
            (DECISIONS, self._decisions),
            (POLICIES, self._freed),
            (ZONES, self._zones),
            (COMPONENTS, self._violations),
        ):
            for kind in sorted(kinds):
                children.labels(kind)
        for name in _ALERTS:
            for grade in _GRADES:
                self._alerts.labels(name, grade)

    def _counter(self, name: str, description: str, *labels: str) -> Counter:
        return Counter(name, description, labels, registry=self.registry)

    def _histogram(self, name: str, description: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, description, labels, buckets=buckets, registry=self.registry)


class _ScrapeCollector:
    """Computes values at scrape time."""

    def __init__(self, active: ActiveSessions, sinks: list[LossySink]) -> None:
        self._active = active
        self._sinks = sinks

    def collect(self) -> Iterator[Metric]:
        stats = self._active.stats()
        yield GaugeMetricFamily(
            "recto_sessions_live", "Sessions at work: those with a turn in the last 15 minutes.", stats.sessions
        )
        yield GaugeMetricFamily(
            "recto_utilization_max_ratio",
            "Share of its room that the fullest session at work takes.",
            stats.utilization,
        )
        yield GaugeMetricFamily(
            "recto_protected_max_ratio",
            "Largest share of a room that may not leave, over sessions at work.",
            stats.protected,
        )
        yield GaugeMetricFamily(
            "recto_index_lag_messages", "Messages not indexed yet, in the session furthest behind.", stats.lag
        )
        active = GaugeMetricFamily(
            "recto_alerts_active", "Sessions at work with this alert.", labels=["alert", "grade"]
        )
        for name in _ALERTS:
            for grade in _GRADES:
                active.add_metric([name, grade], stats.alerts.get((name, grade), 0))
        yield active
        dropped = CounterMetricFamily(
            "recto_telemetry_dropped", "What a sink should have told and did not.", labels=["sink"]
        )
        for name in sorted({sink.name for sink in self._sinks}):
            dropped.add_metric([name], sum(sink.dropped for sink in self._sinks if sink.name == name))
        yield dropped
