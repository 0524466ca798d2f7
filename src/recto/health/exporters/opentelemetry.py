"""OpenTelemetry spans and metrics, named after the GenAI semantic conventions.

Needs `opentelemetry-api` (extra `telemetry`); without an SDK configured by the application it does nothing. A turn is
known only when it is over, so its span begins and ends with its answer; the caller of the model reports durations with
`took`. No message text is exported.

Recall for a prompt is a `search_memory` span, a note `create_memory`, a judgement of a recalled message
`update_memory`, and a search that a program or a model asks for `retrieval`. The conventions have no span for a
decision about the window yet: `compact_context` is the one that docs/telemetry.md proposes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.util.types import AttributeValue

from recto.health.exporters.exporter import (
    DECISIONS,
    FIELDS,
    OTHER,
    BoundedLabels,
    Exporter,
    FieldValue,
    event_fields,
    freed_tokens,
)
from recto.health.metrics import TURN_METRICS, Alert, SearchHealth, TurnHealth
from recto.transcript.entries import Entry
from recto.transcript.session_keys import pointer_to
from recto.version import __version__

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
CONVERSATION: Final = "gen_ai.conversation.id"
COMPACTED: Final = "gen_ai.conversation.compacted"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE: Final = "gen_ai.usage.cache_creation.input_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105  # the name of an attribute
TOKEN_USAGE: Final = "gen_ai.client.token.usage"  # noqa: S105
DURATION: Final = "gen_ai.client.operation.duration"
ERROR: Final = "error.type"
CHAT: Final = "chat"
STORE: Final = "gen_ai.memory.store.id"
RECORD: Final = "gen_ai.memory.record.id"
RECORDS: Final = "gen_ai.memory.record.count"
DATA_SOURCE: Final = "gen_ai.data_source.id"
TOP_K: Final = "gen_ai.request.top_k"
SEARCH_MEMORY, CREATE_MEMORY, UPDATE_MEMORY, RETRIEVAL = "search_memory", "create_memory", "update_memory", "retrieval"
COMPACT, EVENT, ALERT = "compact_context", "recto.event", "recto.alert"
"""Spans that the conventions do not have: a decision about the window, another event, an alert."""
_MEMORY_OPERATIONS: Final[Mapping[str, str]] = {
    "recall_injected": SEARCH_MEMORY,
    "recall_miss": SEARCH_MEMORY,
    "note": CREATE_MEMORY,
    "recall_judged": UPDATE_MEMORY,
}
"""Events that are memory operations of the conventions."""
_COMPACTION: Final[Mapping[str, str]] = {
    "policy": "recto.compaction.policy",
    "messages": "recto.compaction.messages.dropped",
    "results": "recto.compaction.messages.shortened",
    "kept": "recto.compaction.messages.kept",
    "tokens_before": "recto.compaction.tokens.before",
    "tokens_after": "recto.compaction.tokens.after",
    "frees": "recto.compaction.tokens.freed",
    "fidelity": "recto.compaction.score",
}
"""Fields of a decision and their attributes in its span."""
_TOKEN_BUCKETS = tuple(float(4**power) for power in range(14))
_SECOND_BUCKETS = tuple(0.01 * 2**power for power in range(14))
_SHARE_BUCKETS = (0.1, 0.25, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)
_MAX_PENDING_SESSIONS = 1_000
"""Sessions for which the output tokens are remembered until their turn is over."""
_FAILURES = frozenset({"window_overflow", "index_failed"})
_TURN_ATTRIBUTES = {metric.attribute: metric.field for metric in TURN_METRICS if metric.attribute}
"""Recto's own turn attributes and the metric each holds; attributes without a value are omitted."""


class Telemetry(Exporter):
    """Records spans and metrics."""

    name = "telemetry"

    def __init__(
        self,
        *,
        provider_of: Callable[[str], str] | None = None,
        known_model: Callable[[str], bool] | None = None,
        tracers: TracerProvider | None = None,
        meters: MeterProvider | None = None,
    ) -> None:
        """`provider_of` returns the provider of a model; `tracers` and `meters` default to the application's own."""
        self._provider_of = provider_of or (lambda _model: "")
        self._models = BoundedLabels(known_model)
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
        """Record a finished turn."""
        shared: dict[str, AttributeValue] = {OPERATION: CHAT, PROVIDER: self._provider_of(turn.model) or OTHER}
        attributes: dict[str, AttributeValue] = shared | {
            REQUEST_MODEL: turn.model,
            CONVERSATION: session,
            COMPACTED: turn.evicted > 0 or turn.freed > 0,
            INPUT_TOKENS: turn.tokens,
        }
        with self._lock:
            output = self._answers.pop(session, 0)
        if output:
            attributes[OUTPUT_TOKENS] = output
        if turn.cache_read or turn.cache_write:
            attributes |= {CACHE_READ: turn.cache_read, CACHE_WRITE: turn.cache_write}
        for key, measure in _TURN_ATTRIBUTES.items():
            value = getattr(turn, measure)
            if value is not None and isfinite(value):
                attributes[key] = value
        label = self._models.of(turn.model)
        self._span(f"{CHAT} {label}", SpanKind.CLIENT, attributes, turn.ts)
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
        """Record the duration of a model call, and its error type if it failed. Called by the gateway."""
        attributes: dict[str, AttributeValue] = {OPERATION: CHAT, PROVIDER: self._provider_of(model) or OTHER}
        attributes |= {REQUEST_MODEL: self._models.of(model)} | ({ERROR: error} if error else {})
        self._seconds.record(seconds, attributes)

    def alert(self, alert: Alert) -> None:
        """Record an alert that was raised or has ended."""
        attributes: dict[str, AttributeValue] = {
            CONVERSATION: alert.session,
            "recto.alert.name": alert.name,
            "recto.alert.grade": alert.grade,
            "recto.alert.ended": alert.ended,
            "recto.alert.value": alert.value,
            "recto.alert.threshold": alert.threshold,
            "recto.turn": alert.turn,
        }
        self._span(ALERT, SpanKind.INTERNAL, attributes, alert.ts)
        if not alert.ended:
            self._alerts.add(1, {"recto.alert.name": alert.name, "recto.alert.grade": alert.grade})

    def event(self, entry: Entry) -> None:
        """Record an event."""
        operation = _MEMORY_OPERATIONS.get(entry.kind, "")
        if entry.kind not in FIELDS and not operation:
            return
        values = event_fields(entry)
        attributes: dict[str, AttributeValue] = {CONVERSATION: entry.session, "recto.event.kind": entry.kind}
        attributes |= {f"recto.event.{name}": value for name, value in values.items()}
        is_decision = entry.kind in DECISIONS
        failed = entry.kind if entry.kind in _FAILURES else ""
        if operation:
            attributes |= _memory_attributes(operation, entry, values)
        elif is_decision:
            attributes |= {OPERATION: COMPACT, "recto.compaction.undo.id": pointer_to(entry.session, entry.seq)}
            attributes |= {_COMPACTION[name]: value for name, value in values.items() if name in _COMPACTION}
        self._span(operation or (COMPACT if is_decision else EVENT), SpanKind.INTERNAL, attributes, entry.ts, failed)
        if entry.kind == "usage_reported":
            self._remember_output(entry.session, values.get("output"))
        if is_decision:
            self._decisions.add(1, {"recto.event.kind": entry.kind})
            freed, policy = freed_tokens(values)
            if freed > 0:
                self._freed.add(freed, {"recto.policy": policy})

    def searched(self, session: str, search: SearchHealth) -> None:
        """Record a search of the history that a program or a model asked for."""
        source = f"recto.{search.scope}"
        attributes: dict[str, AttributeValue] = {
            OPERATION: RETRIEVAL,
            DATA_SOURCE: source,
            CONVERSATION: session,
            TOP_K: float(search.most),
            "recto.retrieval.hits": search.hits,
            "recto.retrieval.searched": search.searched,
        }
        name = f"{RETRIEVAL} {source}"
        self._span(name, SpanKind.INTERNAL, attributes, search.began, search.error, ended=search.ended)

    def _remember_output(self, session: str, output: FieldValue | None) -> None:
        """Remember the output tokens, which are reported before the turn ends."""
        if isinstance(output, int) and output > 0:
            with self._lock:
                while len(self._answers) >= _MAX_PENDING_SESSIONS:
                    self._answers.pop(next(iter(self._answers)))
                self._answers[session] = output

    def _span(
        self,
        name: str,
        kind: SpanKind,
        attributes: dict[str, AttributeValue],
        ts: int,
        failed: str = "",
        *,
        ended: int = 0,
    ) -> None:
        """Record a span; without `ended`, it ends as it begins."""
        timestamp = max(ts, 0) * 1000
        span = self._tracer.start_span(name, kind=kind, attributes=attributes, start_time=timestamp)
        if failed:
            span.set_attribute("error.type", failed)
            span.set_status(Status(StatusCode.ERROR))
        span.end(max(timestamp, ended * 1000))


def _memory_attributes(operation: str, entry: Entry, values: Mapping[str, FieldValue]) -> dict[str, AttributeValue]:
    """Return the attributes of a memory operation: the store is the session, a record is an entry of it."""
    if operation == SEARCH_MEMORY:
        return {OPERATION: operation, STORE: entry.session, RECORDS: values.get("hits", 0)}
    seq = values.get("entry") if operation == UPDATE_MEMORY else entry.seq
    record = {RECORD: pointer_to(entry.session, seq)} if isinstance(seq, int) else {}
    return {OPERATION: operation, STORE: entry.session, RECORDS: 1, **record}
