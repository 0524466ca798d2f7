"""Spans and metrics for OpenTelemetry, with the names that its GenAI conventions have now.

Needs `opentelemetry-api` (`recto[telemetry]`). Without an SDK that the application sets up, nothing comes of it. A turn
is known here only when it is over, so its span begins and ends with its answer; how long it took tells whoever called
the model, with `took`. Never a word of a message.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import isfinite
from types import MappingProxyType
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.util.types import AttributeValue

from recto.health.exporters.fields import DECISIONS, FIELDS, OTHER, Fact, facts_of
from recto.health.exporters.prometheus import ModelLabels
from recto.health.metrics import Alert, TurnHealth
from recto.transcript.entries import Entry
from recto.version import __version__

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
CONVERSATION: Final = "gen_ai.conversation.id"
COMPACTED: Final = "gen_ai.conversation.compacted"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE: Final = "gen_ai.usage.cache_write.input_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105  # the name of an attribute
TOKEN_USAGE: Final = "gen_ai.client.token.usage"  # noqa: S105
DURATION: Final = "gen_ai.client.operation.duration"
ERROR: Final = "error.type"
CHAT: Final = "chat"
RELIEF, EVENT, ALERT = "recto.relief", "recto.event", "recto.alert"
"""Names of Recto's own spans: a decision, another event, an alert."""
_TOKEN_BUCKETS = tuple(float(4**power) for power in range(14))
_SECOND_BUCKETS = tuple(0.01 * 2**power for power in range(14))
_SHARE_BUCKETS = (0.1, 0.25, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
_SESSIONS_MOST = 1_000
"""Sessions of which the length of an answer is remembered until their turn is over."""
_FAILURES = frozenset({"window_overflow", "index_failed"})
_OURS = MappingProxyType(
    {
        "recto.turn": "turn",
        "recto.room": "room",
        "recto.utilization": "utilization",
        "recto.messages.evicted": "evicted",
        "recto.tokens.freed": "freed",
        "recto.tokens.burnt": "burn",
        "recto.compression.ratio": "ratio",
        "recto.fidelity": "fidelity",
        "recto.tool_results.share": "bloat",
        "recto.cache.prefix": "prefix",
        "recto.recall.hits": "recall_hits",
        "recto.recall.misses": "recall_misses",
        "recto.regrets": "regret",
        "recto.index.lag": "index_lag",
        "recto.protected": "protected",
        "recto.estimate.error": "estimate_error",
    }
)
"""Recto's own attributes of a turn, and the measure that each holds; those without a value are left out."""


class Telemetry:
    """A `HealthSink` that makes spans and measurements."""

    name = "telemetry"

    def __init__(
        self,
        *,
        provider_of: Callable[[str], str] | None = None,
        known_model: Callable[[str], bool] | None = None,
        tracers: TracerProvider | None = None,
        meters: MeterProvider | None = None,
    ) -> None:
        """`provider_of` names who serves a model; without `tracers` and `meters` the application's own are taken."""
        self._provider_of = provider_of or (lambda _model: "")
        self._models = ModelLabels(known_model)
        self._answers: dict[str, int] = {}
        self._lock = threading.Lock()
        self._tracer = trace.get_tracer("recto", __version__, tracers)
        meter = metrics.get_meter("recto", __version__, meters)
        self._usage = meter.create_histogram(
            TOKEN_USAGE, "{token}", "Tokens of prompts.", explicit_bucket_boundaries_advisory=_TOKEN_BUCKETS
        )
        self._utilization = meter.create_histogram(
            "recto.utilization",
            "1",
            "Share of its room that a prompt takes.",
            explicit_bucket_boundaries_advisory=_SHARE_BUCKETS,
        )
        self._seconds = meter.create_histogram(
            DURATION,
            "s",
            "From a request to the end of its answer.",
            explicit_bucket_boundaries_advisory=_SECOND_BUCKETS,
        )
        self._turns = meter.create_counter("recto.turns", "{turn}", "Prompts that got their answer.")
        self._evicted = meter.create_counter("recto.messages.evicted", "{message}", "Messages that left prompts.")
        self._freed = meter.create_counter("recto.tokens.freed", "{token}", "Tokens that decisions freed.")
        self._decisions = meter.create_counter("recto.decisions", "{decision}", "Decisions, by kind.")
        self._alerts = meter.create_counter("recto.alerts", "{alert}", "Alerts that began.")

    def turn(self, session: str, turn: TurnHealth) -> None:
        """A turn is over."""
        shared: dict[str, AttributeValue] = {OPERATION: CHAT, PROVIDER: self._provider_of(turn.model) or OTHER}
        about: dict[str, AttributeValue] = shared | {
            REQUEST_MODEL: turn.model,
            CONVERSATION: session,
            COMPACTED: turn.evicted > 0 or turn.freed > 0,
            INPUT_TOKENS: turn.tokens,
        }
        with self._lock:
            output = self._answers.pop(session, 0)
        if output:
            about[OUTPUT_TOKENS] = output
        if turn.cache_read or turn.cache_write:
            about |= {CACHE_READ: turn.cache_read, CACHE_WRITE: turn.cache_write}
        for key, measure in _OURS.items():
            value = getattr(turn, measure)
            if value is not None and isfinite(value):
                about[key] = value
        label = self._models.of(turn.model)
        self._span(f"{CHAT} {label}", SpanKind.CLIENT, about, turn.ts)
        shared[REQUEST_MODEL] = label
        self._turns.add(1, shared)
        self._usage.record(turn.tokens, shared | {TOKEN_TYPE: "input"})
        if output:
            self._usage.record(output, shared | {TOKEN_TYPE: "output"})
        if isfinite(turn.utilization):
            self._utilization.record(turn.utilization, shared)
        if turn.evicted > 0:
            self._evicted.add(turn.evicted, shared)

    def took(self, model: str, seconds: float, error: str = "") -> None:
        """A model was called, by who knows how long that took: the gateway. `error` is how it failed, if it did."""
        about: dict[str, AttributeValue] = {OPERATION: CHAT, PROVIDER: self._provider_of(model) or OTHER}
        about |= {REQUEST_MODEL: self._models.of(model)} | ({ERROR: error} if error else {})
        self._seconds.record(seconds, about)

    def alert(self, alert: Alert) -> None:
        """Something should be looked at, or is over."""
        about: dict[str, AttributeValue] = {
            CONVERSATION: alert.session,
            "recto.alert.name": alert.name,
            "recto.alert.grade": alert.grade,
            "recto.alert.ended": alert.ended,
            "recto.alert.value": alert.value,
            "recto.alert.threshold": alert.threshold,
            "recto.turn": alert.turn,
        }
        self._span(ALERT, SpanKind.INTERNAL, about, alert.ts)
        if not alert.ended:
            self._alerts.add(1, {"recto.alert.name": alert.name, "recto.alert.grade": alert.grade})

    def event(self, entry: Entry) -> None:
        """Something happened to a session."""
        if entry.kind not in FIELDS:
            return
        facts = facts_of(entry)
        about: dict[str, AttributeValue] = {CONVERSATION: entry.session, "recto.event.kind": entry.kind}
        about |= {f"recto.event.{name}": fact for name, fact in facts.items()}
        decided = entry.kind in DECISIONS
        failed = entry.kind if entry.kind in _FAILURES else ""
        self._span(RELIEF if decided else EVENT, SpanKind.INTERNAL, about, entry.ts, failed)
        if entry.kind == "usage_reported":
            self._remember(entry.session, facts.get("output"))
        if decided:
            self._decisions.add(1, {"recto.event.kind": entry.kind})
            frees = facts.get("frees", 0)
            if isinstance(frees, int | float) and frees > 0:
                self._freed.add(frees, {"recto.policy": str(facts.get("policy", OTHER))})

    def _remember(self, session: str, output: Fact | None) -> None:
        """How long the answer is comes before its turn is over."""
        if isinstance(output, int) and output > 0:
            with self._lock:
                while len(self._answers) >= _SESSIONS_MOST:
                    self._answers.pop(next(iter(self._answers)))
                self._answers[session] = output

    def _span(self, name: str, kind: SpanKind, about: dict[str, AttributeValue], ts: int, failed: str = "") -> None:
        moment = max(ts, 0) * 1000
        span = self._tracer.start_span(name, kind=kind, attributes=about, start_time=moment)
        if failed:
            span.set_attribute("error.type", failed)
            span.set_status(Status(StatusCode.ERROR))
        span.end(moment)
