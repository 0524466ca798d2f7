"""Upstreams that refuse a prompt as too long although it fits the known window: the gateway learns the limit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import httpx2
import pytest
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Asked, Says, ScriptedUpstream, running

from recto.transcript.entries import MESSAGE

PATHS = {"chat": "chat/completions", "responses": "responses", "messages": "messages"}
FORMATS = tuple(PATHS)
TOOL = {"type": "function", "name": "f", "function": {"name": "f"}, "input_schema": {"type": "object"}}
WINDOW, REAL = 16_000, 6_000
"""The configured window of a model, and the one that its upstream accepts."""
_MODELS = count()


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Iterator[tuple[ScriptedUpstream, dict[tuple[str, ...], Running]]]:
    """One upstream, a gateway in front of it for each format, and one gateway for all formats."""
    with ExitStack() as stack:
        upstream = stack.enter_context(running(ScriptedUpstream(lambda request: Says(text="So it is."))))
        models = {f"gpt-4o-{number}": {"window": WINDOW} for number in range(100)}
        models |= {"gpt-4o-real": {"window": REAL}}
        models |= {f"gemini-2.5-pro-{wire}": {"window": 1_000_000} for wire in FORMATS}
        window = {"record_percent": 0}  # tokens reserved for a record would make the first prompt fit
        gateways = {
            speaks: stack.enter_context(
                gateway(tmp_path_factory.mktemp("overflow"), upstream.url, speaks=speaks, models=models, window=window)
            )
            for speaks in (*((name,) for name in FORMATS), FORMATS)
        }
        yield upstream, gateways


@pytest.fixture
def upstream(built) -> ScriptedUpstream:
    """The upstream without recorded requests, with a smaller window than configured."""
    found = built[0]
    found.asked.clear()
    found.window, found.fail = REAL, lambda request: None
    return found


@pytest.fixture
def gateway_for(built):
    """Returns the gateway whose upstream speaks the given formats."""
    return lambda *speaks: built[1][speaks]


@pytest.fixture
def model() -> str:
    """A model whose limit no other test has learned."""
    return f"gpt-4o-{next(_MODELS)}"


def ask(gw: Running, model: str, wire: str, messages: list[dict[str, Any]], **more: Any) -> httpx2.Response:
    body = {"model": model, "input" if wire == "responses" else "messages": messages, **more}
    if wire == "messages":
        body = {"max_tokens": 500, **body}
    headers = {"authorization": f"Bearer {gw.secret}"}
    return httpx2.post(f"{gw.url}/v1/{PATHS[wire]}", json=body, headers=headers, timeout=60)


def long_history(name: str, exchanges: int = 12) -> list[dict[str, Any]]:
    """About 10,000 tokens: more than the upstream accepts, less than the configured window."""
    messages: list[dict[str, Any]] = []
    for number in range(exchanges):
        messages.append({"role": "user", "content": f"Number {number} of {name}? " + "Some more words to read. " * 70})
        messages.append({"role": "assistant", "content": f"It is {number}. " + "And here is why it is so. " * 60})
    return [*messages, {"role": "user", "content": "What was the first?"}]


CROSSINGS = [(wire, wire) for wire in FORMATS] + [
    ("chat", "messages"),
    ("messages", "responses"),
    ("responses", "chat"),
]


@pytest.mark.parametrize(
    ("wire", "speaks", "stream"),
    [*((*both, False) for both in CROSSINGS), *((*both, True) for both in CROSSINGS[:4])],
)
@pytest.mark.requirement("window.provider-overflow")
def test_a_prompt_that_the_upstream_finds_too_long_is_shortened_and_sent_again_without_a_client_error(
    gateway_for, upstream, model, wire, speaks, stream
):
    gw, history = gateway_for(speaks), long_history(f"{wire} {speaks}")
    answer = ask(gw, model, wire, history, stream=stream, tools=[] if wire != speaks else [TOOL])
    assert answer.status_code == 200, answer.text
    assert "So it is" in answer.text
    first, second = upstream.asked
    assert first.tokens > REAL >= second.tokens
    assert first.problems == second.problems == []
    assert json.dumps(second.messages).count("What was the first?") == 1
    session = answer.headers["x-recto-session-id"]
    spoken = [entry for entry in gw.store.read(session) if entry.kind == MESSAGE]
    assert len(spoken) == len(history) + 1
    assert answer.headers["x-recto-decisions"] != "none"
    assert int(answer.headers["x-recto-tokens"].split("/")[1]) <= REAL


@pytest.mark.parametrize("wire", FORMATS)
def test_the_limit_is_learned_for_this_and_later_sessions_and_for_no_other_model(gateway_for, upstream, model, wire):
    gw, history = gateway_for(*FORMATS), long_history("learning")
    reply = ask(gw, model, wire, history, tools=[TOOL])
    assert len(upstream.asked) == 2
    body = reply.json()
    more = (
        [body["choices"][0]["message"]]
        if wire == "chat"
        else body["output"]
        if wire == "responses"
        else [{"role": "assistant", "content": body["content"]}]
    )
    ask(gw, model, wire, [*history, *more, {"role": "user", "content": "Go on. " + "More. " * 500}], tools=[TOOL])
    ask(gw, model, wire, long_history("another session"), tools=[TOOL])
    assert len(upstream.asked) == 4  # nothing was refused again
    assert all(request.tokens <= REAL for request in upstream.asked[1:])
    upstream.window = WINDOW
    ask(gw, f"gpt-4o-{next(_MODELS)}", wire, long_history("another model"), tools=[TOOL])
    assert upstream.asked[-1].tokens > REAL


def input_budget(answer: httpx2.Response) -> int:
    assert answer.status_code == 200, answer.text
    return int(answer.headers["x-recto-tokens"].split("/")[1])


@pytest.mark.parametrize("wire", ["chat", "responses"])  # Anthropic's error names the largest prompt, not the window
def test_a_learned_window_has_the_same_input_budget_as_a_configured_one(gateway_for, upstream, model, wire):
    gw = gateway_for(*FORMATS)
    learned = ask(gw, model, wire, long_history("refused"))
    later = ask(gw, model, wire, long_history("later"))
    upstream.window = WINDOW
    known = ask(gw, "gpt-4o-real", wire, long_history("known"))
    assert input_budget(learned) == input_budget(later) == input_budget(known) == REAL * 3 // 4


@pytest.mark.parametrize("wire", FORMATS)
def test_a_limit_below_the_output_reserve_of_a_large_window_is_respected_at_the_next_attempt(
    gateway_for, upstream, wire
):
    answer = ask(gateway_for(*FORMATS), f"gemini-2.5-pro-{wire}", wire, long_history("large"), max_tokens=500)
    assert [request.tokens <= REAL for request in upstream.asked] == [False, True]
    assert input_budget(answer) == REAL * 3 // 4


@pytest.mark.parametrize(("wire", "speaks"), CROSSINGS[2:])
def test_a_second_refusal_is_passed_on_and_the_request_is_not_sent_a_third_time(
    gateway_for, upstream, model, wire, speaks
):
    upstream.window = 0
    answer = ask(gateway_for(speaks), model, wire, long_history("stubborn"))
    assert len(upstream.asked) == 2
    assert answer.status_code == 400
    error = answer.json()["error"]
    if wire == "messages":
        assert answer.json()["type"] == "error"
        assert "prompt is too long" in error["message"]
    else:
        assert error["code"] == "context_length_exceeded"
    assert error["type"] == "invalid_request_error"
    assert answer.headers["x-recto-session-id"]


@pytest.mark.parametrize("wire", FORMATS)
def test_an_upstream_that_names_no_limit_still_gets_a_shorter_prompt(gateway_for, upstream, model, wire):
    upstream.window = 1_000_000
    refusal = {"error": {"message": "Your input exceeds the context window of this model.", "type": "bad"}}
    refusals = [refusal]

    def once(request: Asked) -> Any:
        from starlette.responses import JSONResponse

        return JSONResponse(refusals.pop(), 400) if refusals else None

    upstream.fail = once
    answer = ask(gateway_for(*FORMATS), model, wire, long_history("nameless"))
    assert answer.status_code == 200
    first, second = upstream.asked
    assert second.tokens < 0.9 * first.tokens


@pytest.mark.parametrize("wire", FORMATS)
def test_another_error_with_the_same_status_is_not_retried(gateway_for, upstream, model, wire):
    from starlette.responses import JSONResponse

    refusal = {"error": {"message": "Invalid 'tools': too many.", "type": "invalid_request_error", "code": None}}
    upstream.fail = lambda request: JSONResponse(refusal, 400)
    answer = ask(gateway_for(*FORMATS), model, wire, long_history("invalid"))
    assert (answer.status_code, answer.json(), len(upstream.asked)) == (400, refusal, 1)


@pytest.mark.parametrize("wire", FORMATS)
def test_protected_content_that_does_not_fit_is_refused_in_the_protocols_own_shape(gateway_for, upstream, model, wire):
    gw = gateway_for(*FORMATS)
    answer = ask(gw, model, wire, [{"role": "user", "content": "too many words " * 8_000}], tools=[TOOL])
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    if wire == "messages":
        assert answer.json()["type"] == "error"
        assert error["message"].startswith("prompt is too long: ")
        assert answer.json()["request_id"] == answer.headers["request-id"]
    else:
        assert error["code"] == "context_length_exceeded"
        assert error["param"] == ("input" if wire == "responses" else "messages")
        assert error["message"].startswith("This model's maximum context length is ")
    assert upstream.asked == []


def test_a_message_that_did_not_fit_is_stored_and_the_next_one_in_the_session_is_answered(gateway_for, upstream, model):
    gw = gateway_for(*FORMATS)
    too_much = {"role": "user", "content": "far too many words " * 8_000}
    few = {"role": "user", "content": "few words"}
    headers = {"authorization": f"Bearer {gw.key(agent='talkative', canonical=True)}"}
    answers = [
        httpx2.post(
            f"{gw.url}/v1/chat/completions", json={"model": model, "messages": [message]}, headers=headers, timeout=60
        )
        for message in (too_much, few)
    ]
    assert [answer.status_code for answer in answers] == [400, 200]
    stored = [json.loads(entry.content) for entry in gw.store.read("agent:talkative:main") if entry.kind == MESSAGE]
    assert stored[:2] == [too_much, few]
    assert len(stored) == 3
    assert few in upstream.asked[-1].messages
    assert upstream.asked[-1].tokens < REAL
