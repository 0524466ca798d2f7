"""Limits of models are learned from upstreams; no client can set one for others."""

from __future__ import annotations

import json

import httpx2
import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response
from tests.gateway.gateways import gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running

from recto.formats import FORMATS
from recto.gateway import proxy
from recto.gateway.upstreams import learned_limits
from recto.gateway.upstreams.learned_limits import LIFETIME, LearnedLimits
from recto.stores.memory import MemoryStore
from recto.testing import FakeClock
from recto.tokens.limits import ModelLimits, limits_in_error

MODEL = "gpt-4o"
PATHS = {format.short_name: format.api.path for format in FORMATS.values()}
CLAIMS = (
    "maximum context length is 600 tokens",
    "MAXIMUM context length is 1,024",
    "prompt is too long: 9999 tokens > 700 maximum",
    "This model's context window is 900 tokens",
    "input tokens exceed the configured limit of 800",
)


class Echo:
    """An upstream that refuses a parameter and repeats it in its error, as providers do."""

    form = "structured"

    def __call__(self, request) -> Response | None:
        words = request.body.get("tool_choice")
        if not isinstance(words, str) or words == "auto":
            return None
        message = f"Invalid value for 'tool_choice': '{words}'."
        if self.form == "text":
            return PlainTextResponse(message, 400)
        error = {"message": message, "type": "invalid_request_error", "code": "invalid_value"}
        return JSONResponse({"type": "error", "error": error}, 400)


@pytest.fixture
def place(tmp_path):
    echo = Echo()
    with (
        running(ScriptedUpstream(lambda request: Says(text="fine"), fail=echo)) as upstream,
        gateway(tmp_path, upstream.url, speaks=tuple(PATHS), models={MODEL: {"window": 16_000}}) as gw,
    ):
        yield gw, upstream, echo


def ask(gw, wire: str, words: str, *, secret: str = "", **more) -> httpx2.Response:
    messages = [{"role": "user", "content": words}]
    body = {"model": MODEL, "input" if wire == "responses" else "messages": messages, **more}
    if wire == "messages":
        body["max_tokens"] = 100
    if wire == "gemini":
        body = {"contents": [{"role": "user", "parts": [{"text": words}]}], **more}
    headers = {"authorization": f"Bearer {secret or gw.secret}"}
    return httpx2.post(gw.url + PATHS[wire].format(model=MODEL), json=body, headers=headers, timeout=30)


def room(gw, secret: str) -> int:
    answer = ask(gw, "chat", "hello", secret=secret)
    assert answer.status_code == 200
    return int(answer.headers["x-recto-tokens"].split("/")[1])


@pytest.mark.parametrize("form", ["structured", "text"])
@pytest.mark.parametrize("wire", PATHS)
def test_client_text_repeated_by_an_upstream_changes_no_limit(place, wire, form):
    gw, upstream, echo = place
    echo.form = form
    others = gw.key(tenant="other", canonical=False)
    before = room(gw, others)
    hostile = gw.key(tenant="hostile", canonical=False)
    for size in (1, 400, 2_000):
        for claim in CLAIMS:
            answer = ask(gw, wire, "word " * size, secret=hostile, tool_choice=claim)
            assert answer.status_code == 400
            request = upstream.asked[-1]
            assert request.body["tool_choice"] == claim
    assert room(gw, others) == before
    assert not gw.store.head(learned_limits.SESSION).seq


def test_without_the_check_the_same_text_lowers_the_limit_for_all(place, monkeypatch):
    gw, _, _ = place
    monkeypatch.setattr(proxy, "_overflow_in", lambda error, request: limits_in_error(error))
    others = gw.key(tenant="other", canonical=False)
    before = room(gw, others)
    for _ in range(2):
        gw.gateway.sessions.limits._accepted = learned_limits.BoundedCache(10)
        ask(gw, "chat", "word " * 2_000, secret=gw.key(tenant="hostile", canonical=False), tool_choice=CLAIMS[0])
    assert room(gw, gw.key(tenant="third", canonical=False)) < before


def test_a_real_limit_is_learned_for_its_upstream_and_model_and_survives_a_restart(tmp_path):
    settings = {"models": {MODEL: {"window": 16_000}}, "window": {"record_percent": 0}}
    messages = [
        {"role": ("user", "assistant")[at % 2], "content": f"Number {at}. " + "Some words. " * 170} for at in range(25)
    ]
    with running(ScriptedUpstream(lambda request: Says(text="fine"), window=6_000)) as upstream:
        with gateway(tmp_path, upstream.url, **settings) as gw:
            headers = {"authorization": f"Bearer {gw.key(tenant='a', canonical=False)}"}
            body = {"model": MODEL, "messages": messages}
            answer = httpx2.post(f"{gw.url}/v1/chat/completions", json=body, headers=headers, timeout=30)
            assert (answer.status_code, len(upstream.asked)) == (200, 2)
            assert room(gw, gw.key(tenant="b", canonical=False)) <= 6_000
            assert gw.gateway.sessions.limits.of("main", MODEL)["window"] == 6_000
            assert gw.gateway.sessions.limits.of("another", MODEL) == {}
            assert gw.gateway.sessions.limits.of("main", "another") == {}
        with gateway(tmp_path, upstream.url, **settings) as gw:
            assert room(gw, gw.key(tenant="c", canonical=False)) <= 6_000


def test_a_limit_is_learned_only_near_its_size_above_accepted_sizes_and_expires():
    store, clock = MemoryStore(), FakeClock()
    limits = LearnedLimits(store, clock)
    assert not limits.learn("main", MODEL, ModelLimits(window=8_000), tokens=300)  # the prompt was much smaller
    limits.accept("main", MODEL, 5_000)
    assert not limits.learn("main", MODEL, ModelLimits(window=4_000), tokens=6_000)  # more was accepted before
    assert limits.of("main", MODEL) == {}
    assert limits.learn("main", MODEL, ModelLimits(window=8_000), tokens=9_000)
    assert limits.of("main", MODEL) == {"window": 8_000}
    assert LearnedLimits(store, clock).of("main", MODEL) == {"window": 8_000}
    limits.accept("main", MODEL, 9_000)  # it was wrong
    assert limits.of("main", MODEL) == {}
    clock.time += LIFETIME
    assert LearnedLimits(store, clock).of("main", MODEL) == {}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_limit_in_an_error_is_ignored_if_the_request_contains_it(claim):
    error = {"error": {"message": f"Invalid value: '{claim}'", "type": "invalid_request_error"}}
    assert limits_in_error(error) is not None
    assert limits_in_error(error, json.dumps({"tool_choice": claim})) is None
    overflow = {"error": {"message": claim, "code": "context_length_exceeded"}}
    assert limits_in_error(overflow, claim) == ModelLimits()  # the overflow is believed, the number is not
