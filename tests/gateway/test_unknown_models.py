"""Models that no registry lists: their windows come from the upstream's own list or from its refusals."""

from __future__ import annotations

from contextlib import contextmanager

import httpx2
import pytest
from tests.gateway.gateways import gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running

PATHS = {"chat": "chat/completions", "responses": "responses", "messages": "messages"}
MODEL = "made-this-morning"
HISTORY = [
    message
    for number in range(60)
    for message in (
        {"role": "user", "content": f"Question {number}. " + "Some more words to read. " * 50},
        {"role": "assistant", "content": f"Answer {number}. " + "And here is why it is so. " * 50},
    )
]
"""About 32,000 tokens."""


@contextmanager
def place(folder, **options):
    scripted = ScriptedUpstream(lambda request: Says(text="So it is."), **options)
    with running(scripted) as upstream, gateway(folder, upstream.url) as gw:
        yield gw, upstream


def ask(gw, wire="chat", last="And now?", model=MODEL):
    messages = [*HISTORY, {"role": "user", "content": last}]
    body = {"model": model, "input" if wire == "responses" else "messages": messages}
    if wire == "messages":
        body["max_tokens"] = 500
    headers = {"authorization": f"Bearer {gw.secret}"}
    answer = httpx2.post(f"{gw.url}/v1/{PATHS[wire]}", json=body, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer


@pytest.mark.parametrize("wire", PATHS)
def test_the_prompt_of_an_unknown_model_is_passed_on_whole(tmp_path, wire):
    with place(tmp_path) as (gw, upstream):
        answer = ask(gw, wire)
        assert len(upstream.asked[-1].messages) == len(HISTORY) + 1
        assert answer.headers["x-recto-decisions"] == "none"


@pytest.mark.requirement("tokens.window-source")
def test_the_upstreams_list_names_the_window_and_is_requested_once(tmp_path):
    with place(tmp_path, models=[{"id": MODEL, "max_model_len": 16_000}, {"id": "of another size"}]) as (gw, upstream):
        for last in ("And now?", "And then?"):
            answer = ask(gw, last=last)
            assert upstream.asked[-1].tokens < 16_000
            assert int(answer.headers["x-recto-tokens"].split("/")[1]) < 16_000
        ask(gw, model="of another size")
        assert len(upstream.asked[-1].messages) == len(HISTORY) + 1
        assert upstream.lists == 1


def test_the_list_is_requested_at_the_start_and_not_for_a_known_model(tmp_path):
    with place(tmp_path) as (gw, upstream):
        assert upstream.listed.wait(20)
        ask(gw, model="gpt-4o")
        assert upstream.lists == 1


def test_a_list_that_was_empty_at_the_start_is_requested_again_at_the_first_use(tmp_path):
    with place(tmp_path, models=[]) as (gw, upstream):
        assert upstream.listed.wait(20)  # it named nothing
        upstream.models[:] = [{"id": MODEL, "max_model_len": 16_000}]
        ask(gw)
        assert upstream.asked[-1].tokens < 16_000


def test_a_gateway_starts_although_its_upstream_cannot_be_reached(tmp_path):
    upstreams = {"main": {"url": "http://127.0.0.1:9/v1", "key": "sk", "models": [MODEL]}}
    with gateway(tmp_path, gateway={"upstreams": upstreams}) as gw:
        assert httpx2.get(f"{gw.url}/healthz").status_code == 200


def test_an_upstream_without_a_list_is_still_used(tmp_path):
    with place(tmp_path, models=["no", {"object": 3}]) as (gw, upstream):  # type: ignore[list-item]
        ask(gw)
        assert len(upstream.asked[-1].messages) == len(HISTORY) + 1


def test_a_limit_named_in_a_refusal_applies_from_then_on(tmp_path):
    with place(tmp_path, window=24_000) as (gw, upstream):
        ask(gw)
        ask(gw, last="And then?")
        tokens = [request.tokens for request in upstream.asked]
        assert tokens[0] > 24_000
        assert all(count <= 24_000 for count in tokens[1:])
        assert len(tokens) == 3  # refused once, and never again
