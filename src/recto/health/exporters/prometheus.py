"""Prometheus metrics: one registry, base units, few labels, no session ids.

Needs `prometheus_client`, which comes with the extras `metrics` and `gateway`. Programs may add metrics of their own
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
from recto.health.exporters.exporter import (
    COMPONENTS,
    DECISIONS,
    OTHER,
    POLICIES,
    ZONES,
    BoundedLabels,
    Exporter,
    event_fields,
    freed_tokens,
)
from recto.health.metrics import TOKEN_BUCKETS, TURN_METRICS, Alert, AlertName, Grade, TurnHealth
from recto.health.protocols import HealthSink, LossySink
from recto.transcript.entries import Entry
from recto.version import __version__

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
        self._models = BoundedLabels(known_model)
        self._sinks: list[LossySink] = []
        self._by_model: dict[str, tuple[Counter, Histogram]] = {}
        """The metrics of each model: looking them up takes longer than counting."""
        self._make_turn_metrics()
        self._make_event_metrics()
        self.registry.register(_ScrapeCollector(self.active, self._sinks))

    def watch(self, sink: HealthSink) -> None:
        """Also count what another sink drops, if it is a `LossySink`."""
        if isinstance(sink, LossySink) and len(self._sinks) < _MAX_SINKS:
            self._sinks.append(sink)

    def exposition(self, tenant: str = "") -> tuple[bytes, str]:
        """Return the metrics in Prometheus text format, and the content type; for a tenant, without those of others."""
        registry = _TenantView(self.registry, tenant) if tenant else self.registry
        return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4

    def turn(self, session: str, turn: TurnHealth) -> None:
        """Count a finished turn."""
        self.active.turn(session, turn)
        model = self._models.of(turn.model)
        found = self._by_model.get(model)
        if found is None:
            found = self._by_model[model] = self._turns.labels(model), self._prompt.labels(model)
        turns, prompt = found
        turns.inc()
        prompt.observe(turn.tokens)
        for field, histogram in self._histograms.items():
            value = getattr(turn, field)
            if value is not None and isfinite(value):
                histogram.observe(value)
        for field, counter in self._counters.items():
            if (number := getattr(turn, field)) > 0:
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
        self._prompt = histogram("recto_prompt_tokens", "Tokens of a prompt.", TOKEN_BUCKETS, "model")
        exported = [metric for metric in TURN_METRICS if metric.prometheus]
        self._histograms = {
            metric.field: histogram(metric.prometheus, metric.help, metric.buckets)
            for metric in exported
            if metric.buckets
        }
        self._counters = {
            metric.field: counter(metric.prometheus, metric.help) for metric in exported if not metric.buckets
        }
        cached = counter(
            "recto_upstream_cache_tokens",
            "Prompt tokens read from the provider's cache or written to it, as it reported.",
            "kind",
        )
        self._counters |= {"cache_read": cached.labels("read"), "cache_write": cached.labels("write")}

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


class _TenantView(CollectorRegistry):
    """The metrics of a registry as one tenant may see them: without the samples of other tenants."""

    def __init__(self, registry: CollectorRegistry, tenant: str) -> None:
        super().__init__()
        self._registry = registry
        self._tenant = tenant

    def collect(self) -> Iterator[Metric]:
        """The metrics, without samples that have another tenant's label."""
        for metric in self._registry.collect():
            shown = [sample for sample in metric.samples if sample.labels.get("tenant", self._tenant) == self._tenant]
            visible = Metric(metric.name, metric.documentation, metric.type, metric.unit)
            visible.samples = shown
            yield visible


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
            "Largest protected share of an input budget, over sessions at work.",
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
            "recto_telemetry_dropped", "What a sink should have exported and did not.", labels=["sink"]
        )
        for name in sorted({sink.name for sink in self._sinks}):
            dropped.add_metric([name], sum(sink.dropped for sink in self._sinks if sink.name == name))
        yield dropped
