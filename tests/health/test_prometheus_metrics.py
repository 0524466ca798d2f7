"""What Prometheus is shown: the right numbers, in few series, with no session in them."""

from __future__ import annotations

import http.client
import socket
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import pytest
from prometheus_client import Counter
from prometheus_client.parser import text_string_to_metric_families
from tests.health.sample_turns import SECRET, SESSION, alert, compaction, event, turn

from recto.config import load
from recto.config.factory import make_metrics
from recto.health.exporters._active_sessions import ActiveSessions
from recto.health.exporters.exporter import MAX_MODELS
from recto.health.exporters.json_log import JsonLog
from recto.health.exporters.prometheus import Metrics
from recto.health.exporters.prometheus_server import serve_metrics


def samples(metrics: Metrics) -> dict:
    text = metrics.exposition()[0].decode()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_turn_is_counted_in_every_measure_it_has():
    metrics = Metrics()
    metrics.turn(
        SESSION,
        turn(
            evicted=4, recall_hits=2, recall_misses=1, regret=3, ratio=2.5, fidelity=0.8, estimate_error=-0.05,
            utilization=0.91, cache_read=700, cache_write=90, index_lag=7, protected=0.3,
        ),
    )  # fmt: skip
    found = samples(metrics)
    assert found["recto_turns_total", ("model", "gpt-4o")] == 1
    assert found["recto_prompt_tokens_sum", ("model", "gpt-4o")] == 5_000
    assert found["recto_utilization_ratio_bucket", ("le", "0.9")] == 0
    assert found["recto_utilization_ratio_bucket", ("le", "0.92")] == 1
    assert found["recto_estimate_error_ratio_bucket", ("le", "-0.1")] == 0
    assert found["recto_estimate_error_ratio_bucket", ("le", "-0.05")] == 1
    for name, value in {
        "recto_messages_evicted_total": 4,
        "recto_recall_hits_total": 2,
        "recto_recall_misses_total": 1,
        "recto_regrets_total": 3,
        "recto_compression_ratio_sum": 2.5,
        "recto_fidelity_ratio_sum": 0.8,
        "recto_tool_result_ratio_sum": 0.1,
        "recto_cache_prefix_ratio_sum": 0.9,
        "recto_protected_ratio_sum": 0.3,
        "recto_burn_tokens_sum": 300,
        "recto_sessions_live": 1,
        "recto_utilization_max_ratio": 0.91,
        "recto_protected_max_ratio": 0.3,
        "recto_index_lag_messages": 7,
    }.items():
        assert found[name,] == value, name
    assert found["recto_upstream_cache_tokens_total", ("kind", "read")] == 700
    assert found["recto_upstream_cache_tokens_total", ("kind", "write")] == 90


def test_a_turn_without_a_measure_leaves_that_one_alone():
    metrics = Metrics()
    metrics.turn(SESSION, turn(utilization=float("nan")))
    found = samples(metrics)
    assert found["recto_utilization_ratio_sum",] == 0
    for name in (
        "recto_compression_ratio",
        "recto_fidelity_ratio",
        "recto_estimate_error_ratio",
        "recto_utilization_ratio",
    ):
        assert found[f"{name}_count",] == 0


def test_a_decision_is_counted_by_its_kind_and_its_tokens_by_the_policy():
    metrics = Metrics()
    metrics.event(compaction())
    metrics.event(event("units_evicted", {"policy": SECRET, "frees": 5, "left": [], "shrunk": {}}))
    metrics.event(event("window_overflow", {"tokens": 9}))
    metrics.event(event("index_failed", {}))
    metrics.event(event("zone_changed", {"after": "red"}))
    metrics.event(event("budget_violation", {"component": "results"}))
    metrics.event(event("restored", {"decision": 4}))
    metrics.event(event("something_new", {"frees": 5}))
    metrics.event(event("compaction", b"not JSON"))
    found = samples(metrics)
    assert found["recto_decisions_total", ("kind", "compaction")] == 2
    assert found["recto_tokens_freed_total", ("policy", "compact")] == 6884
    assert found["recto_tokens_freed_total", ("policy", "other")] == 5
    assert found["recto_zone_changes_total", ("zone", "red")] == 1
    assert found["recto_budget_violations_total", ("component", "results")] == 1
    assert [
        found[name,] for name in ("recto_overflows_total", "recto_index_failures_total", "recto_restores_total")
    ] == [1] * 3
    assert SECRET not in metrics.exposition()[0].decode()


def test_an_alert_is_active_from_its_beginning_to_its_end_and_each_session_counts_once():
    metrics = Metrics()
    where = "recto_alerts_active", ("alert", "utilization"), ("grade", "critical")
    assert samples(metrics)[where] == 0
    metrics.alert(alert())
    metrics.alert(alert(turn=9))
    metrics.alert(alert(session="another"))
    assert samples(metrics)[where] == 2
    assert samples(metrics)["recto_alerts_total", *where[1:]] == 3
    metrics.alert(alert(ended=True))
    assert samples(metrics)[where] == 1
    assert samples(metrics)["recto_alerts_total", *where[1:]] == 3


def test_a_session_that_has_fallen_silent_counts_no_more():
    clock = [0.0]
    live = ActiveSessions(seconds=60, now=lambda: clock[0])
    live.turn("a", turn(utilization=0.99))
    live.alert(alert(session="a"))
    clock[0] = 50.0
    live.turn("b", turn(utilization=0.4))
    assert (live.stats().sessions, live.stats().utilization) == (2, 0.99)
    clock[0] = 61.0
    assert (live.stats().sessions, live.stats().utilization, live.stats().alerts) == (1, 0.4, {})


def test_the_sessions_that_are_remembered_are_bounded():
    live = ActiveSessions(max_sessions=3)
    for number in range(10):
        live.turn(str(number), turn(utilization=number / 10))
    assert live.stats().sessions == 3
    assert live.stats().utilization == 0.9


def test_no_session_stands_in_the_metrics_and_their_number_does_not_grow_with_sessions():
    metrics = Metrics()
    metrics.turn("first", turn())
    metrics.alert(alert(session="first"))
    before = len(samples(metrics))
    for number in range(100):
        metrics.turn(f"tenant:{number}", turn())
        metrics.alert(alert(session=f"tenant:{number}"))
    assert len(samples(metrics)) == before
    assert "tenant" not in metrics.exposition()[0].decode()


def test_models_beyond_the_first_fifty_are_told_as_other():
    metrics = Metrics()
    for number in range(MAX_MODELS + 30):
        metrics.turn(SESSION, turn(model=f"model-{number}"))
    models = {labels[0][1] for name, *labels in samples(metrics) if name == "recto_turns_total"}
    assert len(models) == MAX_MODELS + 1
    assert samples(metrics)["recto_turns_total", ("model", "other")] == 30


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb", 'm{"}', "ünknown", "no-such-model"])
def test_only_models_that_are_known_have_a_name(name):
    metrics = make_metrics(load(environ={}, arguments={"models": {"mine": {"window": 9000}}}))
    for model in (name, "mine", "gpt-4o"):
        metrics.turn(SESSION, turn(model=model))
    models = {labels[0][1] for found, *labels in samples(metrics) if found == "recto_turns_total"}
    assert models == {"other", "mine", "gpt-4o"}


def test_what_another_sink_lost_is_counted(tmp_path):
    log = JsonLog(str(tmp_path / "nowhere" / "log"))
    metrics = make_metrics(load(environ={}), [log])
    log.turn(SESSION, turn())
    assert samples(metrics)["recto_telemetry_dropped_total", ("sink", "log")] == 1


def test_others_may_add_metrics_of_their_own():
    metrics = Metrics()
    Counter("recto_requests", "Requests.", registry=metrics.registry).inc()
    assert samples(metrics)["recto_requests_total",] == 1


def test_metrics_are_served_on_loopback_until_the_block_is_left():
    metrics = Metrics()
    with serve_metrics(metrics, port=0) as url:
        with urllib.request.urlopen(url) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert b"recto_build_info" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(url.replace("/metrics", "/else"))
        with pytest.raises(urllib.error.HTTPError, match="501"):
            urllib.request.urlopen(url, data=b"x")
    address = urlsplit(url)
    assert address.hostname == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection(address.hostname, address.port).request("GET", "/metrics")


def test_clients_that_connect_and_say_nothing_are_held_only_so_many_at_once():
    with serve_metrics(Metrics(), port=0) as url:
        address = urlsplit(url)
        silent = [socket.create_connection((address.hostname, address.port)) for _ in range(9)]
        assert silent[-1].recv(1) == b""
        for one in silent:
            one.close()
