"""The gateway as a whole: open routes, metrics, the choice of the upstream, and the embedded model."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx2
import pytest
from tests.gateway.gateways import gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running

from recto.gateway import session_pool
from recto.gateway.api_keys import Key
from recto.gateway.telemetry import RequestMetrics, RequestRecord
from recto.health.exporters.exporter import MAX_KEYS
from recto.health.exporters.prometheus import Metrics
from recto.models import weights
from recto.tokens.model_registry import UnknownModelWarning


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with ExitStack() as stack:
        upstream = stack.enter_context(running(ScriptedUpstream(lambda request: Says(text="fine"))))
        yield stack.enter_context(gateway(tmp_path_factory.mktemp("app"), upstream.url)), upstream


def bearer(secret: str, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}", **more}


def body(**more):
    return {"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}], **more}


def test_every_route_has_a_declared_right(place):
    running_gateway, _ = place
    made = running_gateway.gateway
    assert len(made.routes) > 20
    assert made.authority.missing(made.routes) == []


def test_health_and_readiness_need_no_key_and_metrics_need_one_that_may_read(place):
    gw, _ = place
    assert httpx2.get(f"{gw.url}/healthz").json() == {"status": "ok"}
    assert httpx2.get(f"{gw.url}/readyz").json() == {"status": "ready"}
    assert httpx2.get(f"{gw.url}/metrics").status_code == 401
    assert httpx2.get(f"{gw.url}/metrics", headers=bearer(gw.key(rights=frozenset({"ask"})))).status_code == 403


REFUSED_WHILE_STOPPING = {
    "/v1/chat/completions": (503, {"error": {"type": "server_error", "code": "overloaded"}}),
    "/v1/responses": (503, {"error": {"type": "server_error", "code": "overloaded"}}),
    "/v1/messages": (529, {"type": "error", "error": {"type": "overloaded_error"}}),
    "/v1beta/models/gemini-2.5-pro:generateContent": (503, {"error": {"code": 503, "status": "UNAVAILABLE"}}),
}


def test_a_gateway_that_stops_is_not_ready_and_refuses_requests_until_those_under_way_are_answered(tmp_path):
    begun, go_on = threading.Event(), threading.Event()

    def wait(request):
        begun.set()
        assert go_on.wait(30)
        return Says(text="fine")

    def stopping(url: str) -> int:
        return httpx2.get(f"{url}/readyz").status_code

    with (
        running(ScriptedUpstream(wait)) as upstream,
        gateway(tmp_path, upstream.url) as gw,
        ThreadPoolExecutor() as pool,
    ):
        url, headers = f"{gw.url}/v1/chat/completions", bearer(gw.secret)
        under_way = pool.submit(httpx2.post, url, json=body(), headers=headers, timeout=60)
        assert begun.wait(30)
        gw.server.should_exit = True
        assert any(stopping(gw.url) == 503 for _ in range(1_000))
        for path, (status, error) in REFUSED_WHILE_STOPPING.items():
            refused = httpx2.post(gw.url + path, json=body(), headers=headers)
            assert (refused.status_code, refused.headers["retry-after"]) == (status, "1")
            assert "is being stopped" in refused.json()["error"]["message"]
            assert includes(refused.json(), error)
        assert httpx2.get(f"{gw.url}/readyz").json() == {"status": "stopping"}
        go_on.set()
        assert under_way.result(60).json()["choices"][0]["message"]["content"] == "fine"
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{gw.url}/readyz")


def includes(found, expected) -> bool:
    if not isinstance(expected, dict):
        return found == expected
    return all(key in found and includes(found[key], value) for key, value in expected.items())


def test_requests_are_counted_by_protocol_model_and_outcome_without_naming_sessions(place):
    gw, _ = place
    headers = bearer(gw.secret, **{"x-recto-session-id": "a-name-that-must-not-be-told"})
    assert httpx2.post(f"{gw.url}/v1/chat/completions", json=body(), headers=headers).status_code == 200
    metrics = httpx2.get(f"{gw.url}/metrics", headers=bearer(gw.secret)).text
    assert 'recto_requests_total{api="openai.chat",model="gpt-4o",outcome="ok"}' in metrics
    assert "recto_turns_total" in metrics
    assert "recto_overhead_seconds_count" in metrics
    assert "a-name-that-must-not-be-told" not in metrics


STREAMED = {
    "/v1/chat/completions": ("openai.chat", body(stream=True)),
    "/v1/responses": ("openai.responses", {"model": "gpt-4o", "input": "hello", "stream": True}),
    "/v1/messages": ("anthropic.messages", body(max_tokens=9, stream=True)),
}


def request_counts(gw) -> dict[tuple[str, str], float]:
    metrics = httpx2.get(f"{gw.url}/metrics", headers=bearer(gw.secret)).text
    line = re.compile(r'recto_requests_total\{api="([^"]*)",model="[^"]*",outcome="([^"]*)"\} (.*)')
    counts = Counter()
    for api, outcome, count in line.findall(metrics):
        counts[api, outcome] += int(float(count))
    return counts


@pytest.mark.parametrize("path", STREAMED)
def test_every_streamed_request_is_counted_once_with_its_outcome(place, path):
    """A client closes its connection as soon as it has the end, which must not cancel the count."""
    gw, _ = place
    api, sent = STREAMED[path]
    before = request_counts(gw)
    for _ in range(20):
        with httpx2.stream("POST", f"{gw.url}{path}", json=sent, headers=bearer(gw.secret)) as answer:
            assert answer.status_code == 200
            for _line in answer.iter_lines():
                pass
    assert request_counts(gw) - before == {(api, "ok"): 20}


def test_requests_that_are_refused_before_anything_is_stored_are_counted_too(place):
    gw, _ = place
    before = request_counts(gw)
    url, headers = f"{gw.url}/v1/chat/completions", bearer(gw.secret)
    assert httpx2.post(url, content=b"{", headers=headers | {"content-type": "application/json"}).status_code == 400
    assert httpx2.post(url, json=body(messages="none"), headers=headers).status_code == 400
    assert request_counts(gw) - before == {("openai.chat", "refused"): 2}


def test_model_names_that_clients_choose_print_no_warnings_and_are_logged_once_each_up_to_a_limit(tmp_path, caplog):
    with (
        running(ScriptedUpstream(lambda request: Says(text="fine"))) as upstream,
        gateway(tmp_path, upstream.url) as gw,
    ):
        with warnings.catch_warnings(record=True) as printed, caplog.at_level(logging.WARNING, logger="recto.gateway"):
            warnings.simplefilter("always")
            for number in (*range(session_pool._MAX_UNKNOWN_LOGGED + 4), 0, 1):
                sent = body(model=f"nobody-knows-{number}")
                answer = httpx2.post(f"{gw.url}/v1/chat/completions", json=sent, headers=bearer(gw.secret))
                assert answer.status_code == 200
        assert not [warning for warning in printed if issubclass(warning.category, UnknownModelWarning)]
        logged = [line.getMessage() for line in caplog.records if "is not known" in line.getMessage()]
        assert len(logged) == len(set(logged)) == session_pool._MAX_UNKNOWN_LOGGED


def test_the_upstream_gets_its_own_key_and_never_the_gateways(place):
    gw, upstream = place
    sent = bearer(gw.secret, cookie="a=b", **{"x-recto-session-id": "keys-apart", "x-vendor": "kept"})
    httpx2.post(f"{gw.url}/v1/chat/completions", json=body(), headers=sent)
    httpx2.post(f"{gw.url}/v1/messages", json=body(max_tokens=9), headers={"x-api-key": gw.secret})
    chat, messages = upstream.asked[-2:]
    assert chat.headers["authorization"] == "Bearer sk-upstream"
    assert messages.headers["x-api-key"] == "sk-upstream"
    for received in (chat, messages):
        assert gw.secret not in json.dumps(received.headers)
        assert "cookie" not in received.headers
    assert chat.headers["x-vendor"] == "kept"


def test_a_client_may_send_the_upstreams_key_along_with_the_gateways(tmp_path):
    with running(ScriptedUpstream(lambda request: Says(text="fine"))) as upstream:
        named = {"main": {"url": f"{upstream.url}/v1", "speaks": "chat", "auth": "client"}}
        with gateway(tmp_path, gateway={"upstreams": named}) as gw:
            headers = bearer("sk-of-the-client", **{"x-recto-key": gw.secret})
            assert httpx2.post(f"{gw.url}/v1/chat/completions", json=body(), headers=headers).status_code == 200
            assert upstream.asked[-1].headers["authorization"] == "Bearer sk-of-the-client"
            assert "x-recto-key" not in upstream.asked[-1].headers


def test_a_request_goes_to_the_upstream_that_has_its_model(tmp_path):
    with ExitStack() as stack:
        first = stack.enter_context(running(ScriptedUpstream(lambda request: Says(text="first"))))
        second = stack.enter_context(running(ScriptedUpstream(lambda request: Says(text="second"))))
        named = {
            "a": {"url": f"{first.url}/v1", "speaks": "chat", "models": ["gpt-*"]},
            "b": {"url": f"{second.url}/v1", "speaks": "messages", "models": ["claude-*"]},
        }
        gw = stack.enter_context(gateway(tmp_path, gateway={"upstreams": named}))
        url, headers = f"{gw.url}/v1/chat/completions", bearer(gw.secret)
        answers = [
            httpx2.post(url, json=body(model=name), headers=headers) for name in ("gpt-4o", "claude-sonnet-5", "x")
        ]
        assert [answer.json()["choices"][0]["message"]["content"] for answer in answers[:2]] == ["first", "second"]
        assert answers[2].status_code == 404
        assert "gpt-*" in answers[2].json()["error"]["message"]
        bound = gw.key(upstream="b")
        assert (
            httpx2.post(url, json=body(model="gpt-4o"), headers=bearer(bound)).json()["choices"][0]["message"][
                "content"
            ]
            == "second"
        )


def test_an_upstream_that_hangs_up_is_not_reported_as_unreachable(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)

        thread = threading.Thread(target=hang_up)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        own = {"main": {"url": url, "speaks": "chat", "auth": "client"}}  # without a key its models are not listed
        with gateway(tmp_path, gateway={"upstreams": own}) as gw:
            answer = httpx2.post(f"{gw.url}/v1/chat/completions", json=body(), headers=bearer(gw.secret))
        thread.join()
    assert answer.status_code == 502
    assert "could not be reached" not in answer.text
    assert "closed the connection" in answer.json()["error"]["message"]


def test_an_unreachable_upstream_is_reported_as_such_and_the_message_is_stored(tmp_path):
    named = {"main": {"url": "http://127.0.0.1:1/v1", "speaks": "chat"}}
    with gateway(tmp_path, gateway={"upstreams": named}) as gw:
        answer = httpx2.post(f"{gw.url}/v1/chat/completions", json=body(), headers=bearer(gw.secret))
        assert answer.status_code == 502
        assert answer.json()["error"]["code"] == "upstream_failed"
        assert answer.json()["error"]["message"] == (
            "upstream 'main' could not be reached: there is no connection to its address. "
            "The messages of this request are stored; send the request again."
        )
        kinds = [entry.kind for entry in gw.store.read(answer.headers["x-recto-session-id"])]
        assert kinds[0] == "message"
        assert "upstream_failed" in kinds


@pytest.mark.skipif(weights.find("smollm2") is None, reason="the weights of smollm2 are not here: make weights")
def test_the_embedded_model_answers_in_all_protocols_and_its_session_is_stored(tmp_path):
    with gateway(tmp_path) as gw:
        headers = {**bearer(gw.secret), "x-recto-session-id": "main"}
        short = {"model": "gpt-4", "max_tokens": 4}
        first = httpx2.post(
            f"{gw.url}/v1/chat/completions",
            json={**short, "messages": [{"role": "user", "content": "Say yes."}]},
            headers=headers,
            timeout=120,
        )
        assert first.json()["choices"][0]["message"]["role"] == "assistant"
        stream = {**short, "stream": True, "messages": [{"role": "user", "content": "And no."}]}
        second = httpx2.post(f"{gw.url}/v1/messages", json=stream, headers=headers, timeout=120)
        assert second.text.rstrip().endswith('{"type":"message_stop"}')
        assert second.headers["x-recto-session-id"] == first.headers["x-recto-session-id"] == "agent:default:main"
        spoken = [entry for entry in gw.store.read("agent:default:main") if entry.kind == "message"]
        assert [entry.role for entry in spoken] == ["user", "assistant", "user", "assistant"]
        assert [entry.surface for entry in spoken][1::2] == ["gateway chat", "gateway messages"]
        overview = httpx2.get(
            f"{gw.url}/api/v1/session", params={"session": "agent:default:main"}, headers=bearer(gw.secret)
        ).json()
        assert overview["requested_model"] == "gpt-4"
        assert overview["model"].startswith("smollm2")
        assert overview["upstream"] == "embedded"


def key_series(gw, secret: str) -> dict[tuple[str, ...], float]:
    metrics = httpx2.get(f"{gw.url}/metrics", headers=bearer(secret)).text
    names = re.compile(r"recto_key_(requests|tokens)_total\{(.*)\} (.*)")
    return {(name, *re.findall(r'"([^"]*)"', labels)): float(count) for name, labels, count in names.findall(metrics)}


def test_requests_and_tokens_are_counted_by_key_and_tenant(place):
    gw, _ = place
    secret = gw.key(tenant="north")
    id = gw.gateway.keys.list()[-1].id
    for stream in (False, True):
        sent = body(stream=stream)
        assert httpx2.post(f"{gw.url}/v1/chat/completions", json=sent, headers=bearer(secret)).status_code == 200
    bad = {"model": "gpt-4o", "messages": 3}
    assert httpx2.post(f"{gw.url}/v1/chat/completions", json=bad, headers=bearer(secret)).status_code == 400
    found = key_series(gw, gw.secret)
    assert found["requests", id, "ok", "false", "north"] == 1
    assert found["requests", id, "ok", "true", "north"] == 1
    assert found["requests", id, "refused", "false", "north"] == 1
    assert found["tokens", id, "input", "north"] > 0
    assert found["tokens", id, "output", "north"] > 0


def test_the_key_of_a_tenant_sees_no_series_of_another(place):
    gw, _ = place
    secrets = {tenant: gw.key(tenant=tenant) for tenant in ("north", "south")}
    for secret in (*secrets.values(), gw.secret):
        httpx2.post(f"{gw.url}/v1/chat/completions", json=body(), headers=bearer(secret))
    assert {labels[-1] for labels in key_series(gw, secrets["north"])} == {"north"}
    assert {labels[-1] for labels in key_series(gw, gw.secret)} == {"north", "south", ""}


def test_key_labels_are_bounded():
    metrics = Metrics()
    requests = RequestMetrics(metrics, lambda: 0, known_model=lambda model: True)
    for number in range(MAX_KEYS + 50):
        key = Key(id=f"{number:012x}", name="x", tenant=f"t{number}")
        requests.count(RequestRecord(wire="openai.chat", outcome="ok", key=key))
    families = [family for family in metrics.registry.collect() if family.name == "recto_key_requests"]
    samples = [sample for family in families for sample in family.samples if sample.name.endswith("_total")]
    assert len(samples) == MAX_KEYS + 1
    assert {sample.value for sample in samples if sample.labels["key"] == "other"} == {50}
