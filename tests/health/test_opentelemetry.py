"""OpenTelemetry, with its own SDK: what an application that has set one up is given."""

from __future__ import annotations

import json
import sys

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tests.health.sample_turns import SECRET, SESSION, TS, alert, compaction, event, turn

import recto
from recto.config import load
from recto.config.factory import make_sinks
from recto.errors import RectoError, SettingsError
from recto.health.exporters.opentelemetry import Telemetry


class Seen:
    """A real SDK that keeps what it is given."""

    def __init__(self, **given) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers, self.meters = TracerProvider(), MeterProvider([self._reader])
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.sink = Telemetry(tracers=self.tracers, meters=self.meters, **given)

    @property
    def spans(self) -> list:
        return list(self._exporter.get_finished_spans())

    def points(self) -> dict:
        found = {}
        data = self._reader.get_metrics_data()
        for scope in data.resource_metrics[0].scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    value = point.sum if hasattr(point, "sum") else point.value
                    found[metric.name, *sorted(point.attributes.items())] = value
        return found


@pytest.fixture
def seen():
    opened = Seen(provider_of=lambda name: "openai")
    yield opened
    opened.tracers.shutdown()
    opened.meters.shutdown()


def test_a_turn_is_a_chat_span_with_the_conventions_names(seen):
    seen.sink.turn(SESSION, turn(evicted=3, freed=900, cache_read=70, cache_write=5, fidelity=0.9))
    (span,) = seen.spans
    assert (span.name, span.kind) == ("chat gpt-4o", SpanKind.CLIENT)
    assert (span.start_time, span.end_time) == (TS * 1000, TS * 1000)
    told = dict(span.attributes)
    assert {key: value for key, value in told.items() if key.startswith("gen_ai.")} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.conversation.id": SESSION,
        "gen_ai.conversation.compacted": True,
        "gen_ai.usage.input_tokens": 5_000,
        "gen_ai.usage.cache_read.input_tokens": 70,
        "gen_ai.usage.cache_creation.input_tokens": 5,
    }
    assert (told["recto.messages.evicted"], told["recto.fidelity"]) == (3, 0.9)
    assert "recto.compression.ratio" not in told
    labels = [("gen_ai.operation.name", "chat"), ("gen_ai.provider.name", "openai"), ("gen_ai.request.model", "gpt-4o")]
    points = seen.points()
    assert points["gen_ai.client.token.usage", *labels, ("gen_ai.token.type", "input")] == 5_000
    assert points["recto.turns", *labels] == 1
    assert points["recto.messages.evicted", *labels] == 3


def test_the_length_of_the_answer_is_told_with_its_turn(seen):
    seen.sink.event(event("usage_reported", {"counted": 5_000, "reported": 5_100, "output": 42}))
    seen.sink.turn(SESSION, turn())
    seen.sink.turn(SESSION, turn(turn=2))
    outputs = [span.attributes.get("gen_ai.usage.output_tokens") for span in seen.spans if span.name == "chat gpt-4o"]
    assert outputs == [42, None]
    told = [value for (name, *labels), value in seen.points().items() if ("gen_ai.token.type", "output") in labels]
    assert told == [42]


def test_the_answers_that_are_remembered_are_bounded(seen):
    for number in range(1_100):
        seen.sink.event(event("usage_reported", {"output": 42}, session=str(number)))
    seen.sink.turn("0", turn())
    seen.sink.turn("1099", turn())
    assert [span.attributes.get("gen_ai.usage.output_tokens") for span in seen.spans[-2:]] == [None, 42]


def test_a_conversation_that_lost_nothing_is_not_compacted(seen):
    seen.sink.turn(SESSION, turn())
    assert seen.spans[0].attributes["gen_ai.conversation.compacted"] is False
    assert "gen_ai.usage.cache_read.input_tokens" not in seen.spans[0].attributes


def test_decisions_alerts_and_failures_are_spans_of_their_own_without_a_word_of_the_session(seen):
    seen.sink.event(compaction())
    seen.sink.alert(alert())
    seen.sink.alert(alert(ended=True))
    seen.sink.event(event("window_overflow", {"tokens": 12, "room": 10, "holders": [["tool", SECRET]]}))
    seen.sink.event(event("note", {"text": SECRET}))
    compacted, began, ended, overflow, _ = seen.spans
    assert compacted.name == "compact_context"
    assert compacted.attributes["recto.event.policy"] == "compact"
    assert compacted.attributes["recto.event.messages"] == 14
    assert (began.name, began.attributes["recto.alert.name"]) == ("recto.alert", "utilization")
    assert ended.attributes["recto.alert.ended"] is True
    assert overflow.status.status_code is StatusCode.ERROR
    assert overflow.attributes["error.type"] == "window_overflow"
    assert SECRET not in json.dumps([span.to_json() for span in seen.spans])
    points = seen.points()
    assert points["recto.tokens.freed", ("recto.policy", "compact")] == 6884
    assert points["recto.decisions", ("recto.event.kind", "compaction")] == 1
    assert points["recto.alerts", ("recto.alert.grade", "critical"), ("recto.alert.name", "utilization")] == 1


def test_a_decision_is_a_compaction_span_with_what_was_kept_and_dropped_its_score_and_how_to_undo_it(seen):
    about = json.loads(compaction().content) | {"kept": [[1, 2], [18, 20]]}
    seen.sink.event(event("compaction", about))
    (span,) = seen.spans
    assert span.kind is SpanKind.INTERNAL
    names = ("gen_ai.operation.name", "gen_ai.conversation.id")
    assert {
        key: value for key, value in span.attributes.items() if key.startswith("recto.compaction.") or key in names
    } == {
        "gen_ai.operation.name": "compact_context",
        "gen_ai.conversation.id": SESSION,
        "recto.compaction.policy": "compact",
        "recto.compaction.messages.kept": 5,
        "recto.compaction.messages.dropped": 14,
        "recto.compaction.messages.shortened": 1,
        "recto.compaction.tokens.before": 9008,
        "recto.compaction.tokens.after": 3564,
        "recto.compaction.tokens.freed": 6884,
        "recto.compaction.score": 0.91,
        "recto.compaction.undo.id": f"recto://{SESSION}/12",
    }


def test_recall_notes_and_searches_are_memory_and_retrieval_spans_of_the_conventions(seen, tmp_path):
    store = str(tmp_path / "a.db")
    with recto.open(store=store, model="gpt-4o", recall={"embedder": {"use": "none"}}) as session:
        session.health.watch(seen.sink)
        session.append({"role": "user", "content": f"The keel is oak, and {SECRET}."})
        note = session.note("decisions", f"Oak it is: {SECRET}.")
        found = session.recall("What is the keel made of?", most=3)
        assert found.hits
    seen.sink.event(event("recall_injected", {"question": 9, "searched": 40, "hits": [{"text": SECRET}, {}]}))
    seen.sink.event(event("recall_miss", {"question": 9, "searched": 40}))
    seen.sink.event(event("recall_judged", {"entry": 3, "question": 9, "verdict": SECRET}))
    created, retrieved, searched, missed, judged = seen.spans
    assert (created.name, created.kind) == ("create_memory", SpanKind.INTERNAL)
    assert created.attributes["gen_ai.memory.record.id"] == f"recto://{SESSION}/{note.seq}"
    assert (retrieved.name, retrieved.attributes["gen_ai.data_source.id"]) == (
        "retrieval recto.session",
        "recto.session",
    )
    assert retrieved.attributes["gen_ai.request.top_k"] == 3.0
    assert retrieved.attributes["recto.retrieval.hits"] == len(found.hits)
    assert retrieved.end_time > retrieved.start_time
    assert [span.name for span in (searched, missed, judged)] == ["search_memory", "search_memory", "update_memory"]
    assert [span.attributes["gen_ai.memory.record.count"] for span in (created, searched, missed, judged)] == [
        1,
        2,
        0,
        1,
    ]
    assert judged.attributes["gen_ai.memory.record.id"] == f"recto://{SESSION}/3"
    for span in seen.spans:
        assert span.attributes["gen_ai.operation.name"] == span.name.split()[0]
        assert span.attributes["gen_ai.conversation.id"] == SESSION
    assert SECRET not in json.dumps([span.to_json() for span in seen.spans])


def test_a_search_that_fails_is_a_span_with_its_error(seen):
    with recto.open(store="memory:", recall={"enabled": False}) as session:
        session.health.watch(seen.sink)
        with pytest.raises(RectoError) as failed:
            session.recall("anything")
    (span,) = seen.spans
    assert (span.status.status_code, span.attributes["error.type"]) == (
        StatusCode.ERROR,
        type(failed.value).__name__,
    )


def test_spans_stand_under_the_one_that_the_application_has_open(seen):
    with seen.tracers.get_tracer("app").start_as_current_span("agent step") as above:
        seen.sink.turn(SESSION, turn())
    span = next(span for span in seen.spans if span.name.startswith("chat"))
    assert span.parent.span_id == above.get_span_context().span_id


def test_how_long_a_call_took_is_told_by_who_knows_it_with_how_it_failed(seen):
    seen.sink.took("gpt-4o", 1.5)
    seen.sink.took("a name that somebody made up", 0.5, "upstream_error")
    took = {name: value for name, value in seen.points().items() if name[0] == "gen_ai.client.operation.duration"}
    assert sorted(took.values()) == [0.5, 1.5]
    failed = next(name for name, value in took.items() if value == 0.5)
    assert ("error.type", "upstream_error") in failed


def test_numbers_that_are_none_are_not_told(seen):
    seen.sink.turn(SESSION, turn(utilization=float("inf"), model="x" * 1000))
    assert "recto.utilization" not in seen.spans[0].attributes
    assert seen.spans[0].name == "chat other"


def test_without_an_sdk_nothing_happens_and_nothing_fails():
    (sink,) = make_sinks(load(environ={}, arguments={"health": {"telemetry": True}}))
    sink.turn(SESSION, turn())
    sink.alert(alert())
    sink.event(compaction())


def test_without_its_api_the_setting_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "recto.health.exporters.opentelemetry")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(SettingsError, match=r"recto-ai\[telemetry\]"):
        make_sinks(load(environ={}, arguments={"health": {"telemetry": True}}))
