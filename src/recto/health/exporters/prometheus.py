"""Metrics for Prometheus: one registry, base units, few labels, no session ids.

Needs `prometheus_client`, which comes with `recto[metrics]` and `recto[gateway]`. Whoever serves them may add metrics
of its own to `Metrics.registry`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from math import isfinite
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from recto.health.exporters.active_sessions import Live
from recto.health.exporters.fields import COMPONENTS, DECISIONS, OTHER, POLICIES, ZONES, facts_of
from recto.health.metrics import Alert, AlertName, Grade, TurnHealth
from recto.health.protocols import Dropping, HealthSink
from recto.transcript.entries import Entry
from recto.version import __version__

MODELS_MOST = 50
"""Names that one process tells apart; all others are told as `other`."""
_LENGTH = 64


class ModelLabels:
    """Gives each model its label, from any thread."""

    def __init__(self, known: Callable[[str], bool] | None = None, most: int = MODELS_MOST) -> None:
        self._known = known
        self._most = most
        self._labels: dict[str, str] = {}
        self._lock = threading.Lock()

    def of(self, model: str) -> str:
        """The name itself where it is a known one and there are few so far, else `other`."""
        label = self._labels.get(model)
        return self._first(model) if label is None else label

    def _first(self, model: str) -> str:
        usable = bool(model) and len(model) <= _LENGTH and model.isascii() and model.isprintable()
        if not usable or not (self._known is None or self._known(model)):
            return OTHER  # not remembered: of strange names there is no end
        with self._lock:
            if model in self._labels or len(self._labels) < self._most:
                return self._labels.setdefault(model, model)
            return OTHER


_SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.92, 0.95, 1.0)
_TOKENS = tuple(float(4**power) for power in range(3, 12))
"""64 to 4,194,304: from a greeting to the largest window there is."""
_RATIOS = (1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0)
_SCORES = (0.25, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
_ERRORS = (-0.5, -0.2, -0.1, -0.05, -0.02, 0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_GRADES: tuple[str, ...] = get_args(Grade)
_ALERTS: tuple[str, ...] = get_args(AlertName)
_SINKS_MOST = 16


class Metrics:
    """A `HealthSink` that counts."""

    name = "metrics"

    def __init__(
        self,
        *,
        known_model: Callable[[str], bool] | None = None,
        registry: CollectorRegistry | None = None,
        live: Live | None = None,
    ) -> None:
        """`known_model` says which names may be labels; without it any may, until there are 50."""
        self.registry = registry or CollectorRegistry()
        self.live = live or Live()
        self._models = ModelLabels(known_model)
        self._sinks: list[Dropping] = []
        self._make_turn_metrics()
        self._make_event_metrics()
        self.registry.register(_Now(self.live, self._sinks))

    def watch(self, sink: HealthSink) -> None:
        """Counts also what another sink loses, where it has a `name` and counts what it `dropped`."""
        if isinstance(sink, Dropping) and len(self._sinks) < _SINKS_MOST:
            self._sinks.append(sink)

    def exposition(self) -> tuple[bytes, str]:
        """Everything as Prometheus reads it, and the type of that content."""
        return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4

    def turn(self, session: str, turn: TurnHealth) -> None:
        """A turn is over."""
        self.live.turn(session, turn)
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
        """Something should be looked at, or is over."""
        self.live.alert(alert)
        if not alert.ended:
            self._alerts.labels(alert.name, alert.grade).inc()

    def event(self, entry: Entry) -> None:
        """Something happened to a session."""
        match entry.kind:
            case "window_overflow":
                self._overflows.inc()
            case "index_failed":
                self._index_failures.inc()
            case "zone_changed":
                self._zones.labels(str(facts_of(entry).get("after", OTHER))).inc()
            case "budget_violation":
                self._violations.labels(str(facts_of(entry).get("component", OTHER))).inc()
            case "restored":
                self._restored.inc()
            case kind if kind in DECISIONS:
                facts = facts_of(entry)
                self._decisions.labels(kind).inc()
                frees = facts.get("frees", 0)
                if isinstance(frees, int | float) and frees > 0:
                    self._freed.labels(str(facts.get("policy", OTHER))).inc(frees)
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
        # A counter that appears with its first event has no increase for Prometheus to see: all begin at nothing.
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

    def _counter(self, name: str, says: str, *labels: str) -> Counter:
        return Counter(name, says, labels, registry=self.registry)

    def _histogram(self, name: str, says: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, says, labels, buckets=buckets, registry=self.registry)


class _Now:
    """What is only known when somebody asks."""

    def __init__(self, live: Live, sinks: list[Dropping]) -> None:
        self._live = live
        self._sinks = sinks

    def collect(self) -> Iterator[Metric]:
        standing = self._live.standing()
        yield GaugeMetricFamily(
            "recto_sessions_live", "Sessions at work: those with a turn in the last 15 minutes.", standing.sessions
        )
        yield GaugeMetricFamily(
            "recto_utilization_max_ratio",
            "Share of its room that the fullest session at work takes.",
            standing.utilization,
        )
        yield GaugeMetricFamily(
            "recto_protected_max_ratio",
            "Largest share of a room that may not leave, over sessions at work.",
            standing.protected,
        )
        yield GaugeMetricFamily(
            "recto_index_lag_messages", "Messages not indexed yet, in the session furthest behind.", standing.lag
        )
        active = GaugeMetricFamily(
            "recto_alerts_active", "Sessions at work with this alert.", labels=["alert", "grade"]
        )
        for name in _ALERTS:
            for grade in _GRADES:
                active.add_metric([name, grade], standing.alerts.get((name, grade), 0))
        yield active
        lost = CounterMetricFamily(
            "recto_telemetry_dropped", "What a sink should have told and did not.", labels=["sink"]
        )
        for name in sorted({sink.name for sink in self._sinks}):
            lost.add_metric([name], sum(sink.dropped for sink in self._sinks if sink.name == name))
        yield lost
