"""An upstream that says a prompt is too long, though it was thought to fit: the limit is learned, and it fits."""

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
"""What is thought of a model, and what its upstream takes."""
_MODELS = count()


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Iterator[tuple[ScriptedUpstream, dict[tuple[str, ...], Running]]]:
    """One upstream, and a gateway in front of it for each format that it is said to speak, and one for all."""
    with ExitStack() as stack:
        upstream = stack.enter_context(running(ScriptedUpstream(lambda asked: Says(text="So it is."))))
        models = {f"gpt-4o-{number}": {"window": WINDOW} for number in range(100)}
        models |= {"gpt-4o-real": {"window": REAL}}
        models |= {f"gemini-2.5-pro-{wire}": {"window": 1_000_000} for wire in FORMATS}
        window = {"record_percent": 0}  # what is left room for in a record would make the first prompt fit
        gateways = {
            speaks: stack.enter_context(
                gateway(tmp_path_factory.mktemp("overflow"), upstream.url, speaks=speaks, models=models, window=window)
            )
            for speaks in (*((name,) for name in FORMATS), FORMATS)
        }
        yield upstream, gateways


@pytest.fixture
def upstream(built) -> ScriptedUpstream:
    """With nothing heard yet, and with less room than is thought."""
    found = built[0]
    found.asked.clear()
    found.window, found.fail = REAL, lambda asked: None
    return found


@pytest.fixture
def opened(built):
    """Gives the gateway in front of an upstream, by what it is said to speak."""
    return lambda *speaks: built[1][speaks]


@pytest.fixture
def model() -> str:
    """A model that no other test has learned anything of."""
    return f"gpt-4o-{next(_MODELS)}"


def ask(gw: Running, model: str, wire: str, said: list[dict[str, Any]], **more: Any) -> httpx2.Response:
    body = {"model": model, "input" if wire == "responses" else "messages": said, **more}
    if wire == "messages":
        body = {"max_tokens": 500, **body}
    headers = {"authorization": f"Bearer {gw.secret}"}
    return httpx2.post(f"{gw.url}/v1/{PATHS[wire]}", json=body, headers=headers, timeout=60)


def long_history(name: str, exchanges: int = 12) -> list[dict[str, Any]]:
    """About 10,000 tokens: more than the upstream takes, less than is thought."""
    said: list[dict[str, Any]] = []
    for number in range(exchanges):
        said.append({"role": "user", "content": f"Number {number} of {name}? " + "Some more words to read. " * 70})
        said.append({"role": "assistant", "content": f"It is {number}. " + "And here is why it is so. " * 60})
    return [*said, {"role": "user", "content": "What was the first?"}]


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
def test_a_prompt_that_is_found_too_long_is_sent_once_more_tighter_and_the_client_sees_no_error(
    opened, upstream, model, wire, speaks, stream
):
    gw, history = opened(speaks), long_history(f"{wire} {speaks}")
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
def test_the_limit_is_learned_for_the_session_and_for_those_that_come_later_and_for_no_other_model(
    opened, upstream, model, wire
):
    gw, history = opened(*FORMATS), long_history("learning")
    reply = ask(gw, model, wire, history, tools=[TOOL])
    assert len(upstream.asked) == 2
    said = reply.json()
    more = (
        [said["choices"][0]["message"]]
        if wire == "chat"
        else said["output"]
        if wire == "responses"
        else [{"role": "assistant", "content": said["content"]}]
    )
    ask(gw, model, wire, [*history, *more, {"role": "user", "content": "Go on. " + "More. " * 500}], tools=[TOOL])
    ask(gw, model, wire, long_history("another session"), tools=[TOOL])
    assert len(upstream.asked) == 4  # nothing was refused again
    assert all(asked.tokens <= REAL for asked in upstream.asked[1:])
    upstream.window = WINDOW
    ask(gw, f"gpt-4o-{next(_MODELS)}", wire, long_history("another model"), tools=[TOOL])
    assert upstream.asked[-1].tokens > REAL


def input_budget(answer: httpx2.Response) -> int:
    assert answer.status_code == 200, answer.text
    return int(answer.headers["x-recto-tokens"].split("/")[1])


@pytest.mark.parametrize("wire", ["chat", "responses"])  # Anthropic's error names the largest prompt, not the window
def test_a_learned_window_leaves_the_input_budget_of_a_window_that_is_set_so(opened, upstream, model, wire):
    gw = opened(*FORMATS)
    learned = ask(gw, model, wire, long_history("refused"))
    later = ask(gw, model, wire, long_history("later"))
    upstream.window = WINDOW
    known = ask(gw, "gpt-4o-real", wire, long_history("known"))
    assert input_budget(learned) == input_budget(later) == input_budget(known) == REAL * 3 // 4


@pytest.mark.parametrize("wire", FORMATS)
def test_a_limit_below_the_output_reserve_of_a_large_window_is_kept_at_the_next_attempt(opened, upstream, wire):
    answer = ask(opened(*FORMATS), f"gemini-2.5-pro-{wire}", wire, long_history("large"), max_tokens=500)
    assert [asked.tokens <= REAL for asked in upstream.asked] == [False, True]
    assert input_budget(answer) == REAL * 3 // 4


@pytest.mark.parametrize(("wire", "speaks"), CROSSINGS[2:])
def test_a_second_refusal_is_passed_on_and_the_request_is_not_sent_a_third_time(opened, upstream, model, wire, speaks):
    upstream.window = 0
    answer = ask(opened(speaks), model, wire, long_history("stubborn"))
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
def test_an_upstream_that_names_no_limit_gets_a_shorter_prompt_all_the_same(opened, upstream, model, wire):
    upstream.window = 1_000_000
    said = {"error": {"message": "Your input exceeds the context window of this model.", "type": "bad"}}
    refusals = [said]

    def once(asked: Asked) -> Any:
        from starlette.responses import JSONResponse

        return JSONResponse(refusals.pop(), 400) if refusals else None

    upstream.fail = once
    answer = ask(opened(*FORMATS), model, wire, long_history("nameless"))
    assert answer.status_code == 200
    first, second = upstream.asked
    assert second.tokens < 0.9 * first.tokens


@pytest.mark.parametrize("wire", FORMATS)
def test_another_error_with_the_same_status_is_no_reason_to_send_anything_again(opened, upstream, model, wire):
    from starlette.responses import JSONResponse

    said = {"error": {"message": "Invalid 'tools': too many.", "type": "invalid_request_error", "code": None}}
    upstream.fail = lambda asked: JSONResponse(said, 400)
    answer = ask(opened(*FORMATS), model, wire, long_history("invalid"))
    assert (answer.status_code, answer.json(), len(upstream.asked)) == (400, said, 1)


@pytest.mark.parametrize("wire", FORMATS)
def test_what_may_not_leave_and_does_not_fit_is_refused_here_in_the_protocols_own_shape(opened, upstream, model, wire):
    gw = opened(*FORMATS)
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


def test_what_did_not_fit_is_kept_and_the_next_thing_said_in_the_same_session_goes_through(opened, upstream, model):
    gw = opened(*FORMATS)
    too_much = {"role": "user", "content": "far too many words " * 8_000}
    few = {"role": "user", "content": "few words"}
    headers = {"authorization": f"Bearer {gw.key(agent='talkative', canonical=True)}"}
    answers = [
        httpx2.post(
            f"{gw.url}/v1/chat/completions", json={"model": model, "messages": [said]}, headers=headers, timeout=60
        )
        for said in (too_much, few)
    ]
    assert [answer.status_code for answer in answers] == [400, 200]
    stored = [json.loads(one.content) for one in gw.store.read("agent:talkative:main") if one.kind == MESSAGE]
    assert stored[:2] == [too_much, few]
    assert len(stored) == 3
    assert few in upstream.asked[-1].messages
    assert upstream.asked[-1].tokens < REAL
