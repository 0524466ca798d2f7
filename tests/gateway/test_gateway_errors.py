"""The errors that clients get: whether the prompt is at fault, or whether to retry."""

import json

import httpx2
import pytest
from tests.gateway.gateways import gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running

from recto.errors import WindowOverflow
from recto.formats import format_named
from recto.formats.anthropic import ANTHROPIC
from recto.formats.gemini import GEMINI
from recto.formats.openai_chat import CHAT
from recto.formats.openai_responses import RESPONSES
from recto.gateway.errors import error_response
from recto.transcript.entries import MESSAGE


@pytest.mark.parametrize("wire", [CHAT, RESPONSES, ANTHROPIC])
def test_protected_content_that_does_not_fit_is_an_overflow(wire):
    answer = error_response(WindowOverflow(20_000, 12_000, [("entry 1 (user)", 20_000)]), format_named(wire), "req_1")
    assert answer.status_code == 400
    assert b"12000" in answer.body or b"12,000" in answer.body


@pytest.mark.parametrize(("wire", "status"), [(CHAT, 503), (RESPONSES, 503), (ANTHROPIC, 529)])
def test_an_overflow_while_the_index_is_late_is_a_retryable_error(wire, status):
    late = WindowOverflow(20_000, 12_000, [("entry 1 (user)", 20_000)], "the words index was not ready in time")
    answer = error_response(late, format_named(wire), "req_1")
    assert answer.status_code == status
    assert "context_length_exceeded" not in answer.body.decode()
    assert "the words index was not ready in time" in json.dumps(json.loads(answer.body))


@pytest.mark.parametrize("wire", [CHAT, RESPONSES, ANTHROPIC, GEMINI.name])
def test_tools_and_system_text_that_do_not_fit_are_not_reported_as_an_overflow(
    wire,
):
    large = WindowOverflow(20_000, 12_000, [("tools and frame", 15_000)], fixed=15_000)
    answer = error_response(large, format_named(wire), "req_1")
    assert answer.status_code == 400
    text = answer.body.decode()
    assert "window_too_small" in text
    assert "a shorter conversation does not help" in text
    for read_as_overflow in ("context_length_exceeded", "prompt is too long", "maximum", "exceeds"):
        assert read_as_overflow not in text


@pytest.mark.parametrize("fixed", [0, 12_000])
def test_an_overflow_with_tools_and_system_text_that_fit_stays_an_overflow(fixed):
    long = WindowOverflow(20_000, 12_000, [("entry 1 (user)", 20_000)], fixed=fixed)
    assert "context_length_exceeded" in error_response(long, format_named(CHAT), "req_1").body.decode()


@pytest.mark.parametrize("wire", [CHAT, RESPONSES, ANTHROPIC])
def test_an_overflow_reads_as_whole_sentences(wire):
    answer = error_response(WindowOverflow(20_000, 12_000, [("entry 1 (user)", 20_000)]), format_named(wire), "req_1")
    assert ". The prompt needs 20,000 tokens" in answer.body.decode()


def stored_messages(gw):
    entries = [entry for summary in gw.store.sessions() for entry in gw.store.read(summary.session)]
    return [entry.content for entry in entries if entry.kind == MESSAGE]


EMPTY_REQUESTS = {
    "/v1/messages": {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": [{"role": "user", "content": ""}]},
    "/v1beta/models/gemini-2.5-pro:generateContent": {"contents": [{"role": "user", "parts": [{"text": ""}]}]},
}


@pytest.mark.parametrize(("path", "body"), EMPTY_REQUESTS.items(), ids=EMPTY_REQUESTS)
def test_a_request_whose_only_message_is_empty_is_refused_for_that_reason(tmp_path, path, body):
    upstream = ScriptedUpstream(answer=lambda request: Says(text="Fine."))
    with running(upstream), gateway(tmp_path, upstream.url, speaks=("messages", "gemini")) as gw:
        headers = {"x-api-key": gw.secret, "x-goog-api-key": gw.secret}
        refused = httpx2.post(gw.url + path, json=body, headers=headers, timeout=60)
        assert refused.status_code == 400
        assert "the only message is empty" in refused.json()["error"]["message"]
        assert not upstream.asked
        assert not stored_messages(gw)


HISTORY = ["What is 6 times 7?", "42."]
EMPTY_ANSWERS = {
    "/v1/messages": {
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "messages": [
            {"role": role, "content": text}
            for role, text in zip(("user", "assistant", "user"), (*HISTORY, ""), strict=True)
        ],
    },
    "/v1beta/models/gemini-2.5-pro:generateContent": {
        "contents": [
            {"role": role, "parts": [{"text": text}]}
            for role, text in zip(("user", "model", "user"), (*HISTORY, ""), strict=True)
        ]
    },
}


@pytest.mark.parametrize(("path", "body"), EMPTY_ANSWERS.items(), ids=EMPTY_ANSWERS)
def test_an_empty_message_behind_a_history_is_refused_and_not_stored(tmp_path, path, body):
    upstream = ScriptedUpstream(answer=lambda request: Says(text="Fine."))
    with running(upstream), gateway(tmp_path, upstream.url, speaks=("messages", "gemini")) as gw:
        headers = {"x-api-key": gw.secret, "x-goog-api-key": gw.secret}
        refused = httpx2.post(gw.url + path, json=body, headers=headers, timeout=60)
        assert refused.status_code == 400
        assert "the new messages are empty" in refused.json()["error"]["message"]
        assert not upstream.asked
        assert not stored_messages(gw)


RESULTS_ONLY = {
    "/v1/chat/completions": {"messages": [{"role": "tool", "tool_call_id": "a", "content": "42"}]},
    "/v1/responses": {"input": [{"type": "function_call_output", "call_id": "a", "output": "42"}]},
    "/v1/messages": {
        "max_tokens": 100,
        "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "42"}]}],
    },
    "/v1beta/models/gemini-2.5-pro:generateContent": {
        "contents": [{"role": "user", "parts": [{"functionResponse": {"name": "x", "response": {"output": "42"}}}]}]
    },
}


@pytest.mark.parametrize(("path", "body"), RESULTS_ONLY.items(), ids=RESULTS_ONLY)
def test_a_request_that_is_only_a_result_without_its_call_is_refused(tmp_path, path, body):
    upstream = ScriptedUpstream(answer=lambda request: Says(text="Fine."))
    speaks = ("chat", "responses", "messages", "gemini")
    with running(upstream), gateway(tmp_path, upstream.url, speaks=speaks) as gw:
        headers = {"authorization": f"Bearer {gw.secret}"}
        refused = httpx2.post(gw.url + path, json={"model": "gpt-4o", **body}, headers=headers, timeout=60)
        assert refused.status_code == 400
        assert "only tool results without their calls" in refused.json()["error"]["message"]
        assert not upstream.asked
        assert not stored_messages(gw)


EMPTY_ALLOWED = {
    "/v1/chat/completions": {"model": "gpt-4o", "messages": [{"role": "user", "content": ""}]},
    "/v1/responses": {"model": "gpt-4o", "input": [{"role": "user", "content": ""}]},
}


@pytest.mark.parametrize(("path", "body"), EMPTY_ALLOWED.items(), ids=EMPTY_ALLOWED)
def test_an_empty_message_is_sent_where_the_provider_accepts_it(tmp_path, path, body):
    upstream = ScriptedUpstream(answer=lambda request: Says(text="Fine."))
    with running(upstream), gateway(tmp_path, upstream.url) as gw:
        headers = {"authorization": f"Bearer {gw.secret}"}
        assert httpx2.post(gw.url + path, json=body, headers=headers, timeout=60).status_code == 200
        assert len(upstream.asked) == 1
