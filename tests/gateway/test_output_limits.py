"""The output limit of a request is reserved in every format alike, and is no part of the prompt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running

WINDOW, RESERVE = 16_000, 4_000
_TEXT = "How high is the tide? " + "It came in and went out. " * 200


def _body(key: str) -> dict[str, Any]:
    return {key: [{"role": "user", "content": _TEXT}]}


FORMS: dict[str, tuple[str, dict[str, Any], str]] = {
    "chat": ("v1/chat/completions", _body("messages"), "max_completion_tokens"),
    "chat, older": ("v1/chat/completions", _body("messages"), "max_tokens"),
    "responses": ("v1/responses", _body("input"), "max_output_tokens"),
    "messages": ("v1/messages", _body("messages"), "max_tokens"),
    "gemini": (
        "v1beta/models/gpt-4o:generateContent",
        {"contents": [{"role": "user", "parts": [{"text": _TEXT}]}]},
        "generationConfig.maxOutputTokens",
    ),
}


@pytest.fixture(scope="module")
def gw(tmp_path_factory) -> Iterator[Running]:
    with ExitStack() as stack:
        upstream = stack.enter_context(running(ScriptedUpstream(lambda request: Says("High."))))
        speaks = ("chat", "responses", "messages", "gemini")
        models = {"gpt-4o": {"window": WINDOW}}
        yield stack.enter_context(
            gateway(tmp_path_factory.mktemp("limits"), upstream.url, speaks=speaks, models=models)
        )


def ask(gw: Running, form: str, limit: int) -> httpx2.Response:
    path, body, name = FORMS[form]
    group, _, field = name.rpartition(".")
    limited = {group: {field: limit}} if group else {field: limit}
    headers = {"authorization": f"Bearer {gw.secret}"}
    reply = httpx2.post(f"{gw.url}/{path}", json={"model": "gpt-4o", **body, **limited}, headers=headers, timeout=60)
    assert reply.status_code == 200, reply.text
    return reply


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("limit", "room"),
    [
        (500, WINDOW - RESERVE),
        (RESERVE, WINDOW - RESERVE),
        (RESERVE + 3_000, WINDOW - RESERVE - 3_000),
        (60_000, (WINDOW - RESERVE) // 2),  # never more than half of the input budget
    ],
)
def test_a_larger_output_limit_lowers_the_input_budget_in_every_format_alike(gw, form, limit, room):
    tokens, had = ask(gw, form, limit).headers["x-recto-tokens"].split("/")
    assert int(had) == room
    least = ask(gw, "chat", 500).headers["x-recto-tokens"].split("/")[0]
    assert abs(int(tokens) - int(least)) <= 8, "the output limit is no part of the prompt"


@pytest.mark.parametrize("form", FORMS)
def test_reported_usage_is_compared_with_the_prompt_alone(gw, form):
    counted = []
    for limit in (500, RESERVE + 3_000):
        entries = gw.store.read(ask(gw, form, limit).headers["x-recto-session-id"])
        [reported] = [json.loads(entry.content) for entry in entries if entry.kind == "usage_reported"]
        counted.append(reported["counted"])
    assert counted[0] == counted[1]


@pytest.mark.parametrize(("limit", "status"), [(RESERVE, 200), (RESERVE + 3_000, 400)])
def test_tools_that_do_not_fit_next_to_the_output_limit_are_refused_before_the_upstream_is_called(gw, limit, status):
    tools = [
        {"type": "function", "function": {"name": f"tool_{number}", "description": "The tide comes in. " * 100}}
        for number in range(18)
    ]
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}], "tools": tools, "max_tokens": limit}
    headers = {"authorization": f"Bearer {gw.secret}"}
    answer = httpx2.post(f"{gw.url}/v1/chat/completions", json=body, headers=headers, timeout=60)
    assert answer.status_code == status, answer.text
    if status == 400:
        assert answer.json()["error"]["code"] == "window_too_small"
        assert "a shorter conversation does not help" in answer.json()["error"]["message"]
