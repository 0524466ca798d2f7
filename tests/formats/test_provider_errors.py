"""Error responses: the vendors' own clients raise their own error types."""

from __future__ import annotations

import json

import anthropic
import httpx2
import openai
import pytest

from recto.formats import errors, format_named
from recto.formats.anthropic import ANTHROPIC
from recto.formats.openai_chat import CHAT
from recto.formats.openai_responses import RESPONSES
from recto.formats.streaming import SseReader, sse

WIRES = [CHAT, RESPONSES, ANTHROPIC]
EVENTS = "text/event-stream"


def client_error(wire, status, body, kind="application/json", *, stream=False):
    """Returns the error that the vendor's own client raises for a response."""
    transport = httpx2.MockTransport(lambda _: httpx2.Response(status, content=body, headers={"content-type": kind}))
    http = httpx2.Client(transport=transport)
    ask = {"model": "m", "stream": stream}
    messages = [{"role": "user", "content": "x"}]
    try:
        if wire == ANTHROPIC:
            client = anthropic.Anthropic(api_key="k", base_url="http://t", http_client=http, max_retries=0)
            found = client.messages.create(messages=messages, max_tokens=1, **ask)
        else:
            client = openai.OpenAI(api_key="k", base_url="http://t", http_client=http, max_retries=0)
            found = (
                client.chat.completions.create(messages=messages, **ask)
                if wire == CHAT
                else client.responses.create(input="x", **ask)
            )
        return list(found)
    except (openai.APIError, anthropic.APIError) as error:
        return error


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (errors.UNAUTHORISED, "AuthenticationError"),
        (errors.FORBIDDEN, "PermissionDeniedError"),
        (errors.NOT_FOUND, "NotFoundError"),
        (errors.RATE_LIMITED, "RateLimitError"),
        (errors.MALFORMED, "BadRequestError"),
        (errors.CANNOT_CROSS, "BadRequestError"),
        (errors.OVERLOADED, None),
        (errors.TIMED_OUT, None),
        (errors.UPSTREAM_FAILED, None),
        (errors.TOO_LARGE, None),
    ],
)
@pytest.mark.parametrize("wire", WIRES)
def test_the_clients_raise_their_own_errors(wire, code, name):
    status = format_named(wire).errors.status_for(code)
    error = client_error(
        wire, status, format_named(wire).errors.error_body(status, code, "not so", param="model", request_id="r1")
    )
    assert name is None or type(error).__name__ == name
    assert error.status_code == status
    assert "not so" in str(error)
    if wire == ANTHROPIC:
        assert error.error_code == code
        assert error.body["request_id"] == "r1"
    else:
        assert (error.code, error.param) == (code, "model")


def test_anthropic_overload_has_its_own_status():
    assert (
        format_named(ANTHROPIC).errors.status_for(errors.OVERLOADED),
        format_named(CHAT).errors.status_for(errors.OVERLOADED),
    ) == (529, 503)
    assert (
        json.loads(format_named(ANTHROPIC).errors.error_body(529, errors.OVERLOADED, "x"))["error"]["type"]
        == "overloaded_error"
    )


@pytest.mark.parametrize("wire", WIRES)
def test_an_overflow_has_the_wording_that_clients_match(wire):
    status, body = format_named(wire).errors.overflow(250_000, 200_000, detail="Pinned text holds it.")
    error = client_error(wire, status, body)
    if wire == ANTHROPIC:
        assert "prompt is too long: 250000 tokens > 200000 maximum" in str(error)
        assert json.loads(body)["error"]["type"] == "invalid_request_error"
    else:
        assert error.code == "context_length_exceeded"
        assert error.type == "invalid_request_error"
        assert "This model's maximum context length is 200000 tokens" in str(error)
    assert "Pinned text holds it." in str(error)


def test_a_client_resends_everything_after_its_thread_is_refused():
    requests = []

    def respond(request):
        body = json.loads(request.content)
        requests.append(body)
        if "thread" in body:
            status, refused = format_named(ANTHROPIC).errors.unsupported_request(body, "")
            return httpx2.Response(status, content=refused, headers={"content-type": "application/json"})
        block = {"type": "text", "text": "done"}
        message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [block]}
        usage = {"input_tokens": 1, "output_tokens": 1}
        return httpx2.Response(200, json={**message, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage})

    http = httpx2.Client(transport=httpx2.MockTransport(respond))
    client = anthropic.Anthropic(api_key="k", base_url="http://t", http_client=http, max_retries=0)
    runner = client.beta.messages.tool_runner(
        model="m", max_tokens=5, tools=[], messages=[{"role": "user", "content": "x"}]
    )
    assert runner.until_done().content[0].text == "done"
    assert "thread" in requests[0]
    assert "thread" not in requests[-1]
    assert requests[-1]["messages"] == [{"role": "user", "content": "x"}]


@pytest.mark.parametrize("wire", [CHAT, ANTHROPIC])
def test_the_client_raises_an_error_in_a_running_stream(wire):
    begun = (
        sse(None, '{"id":"c","choices":[{"index":0,"delta":{"content":"a"}}]}')
        if wire == CHAT
        else sse("message_start", '{"type":"message_start","message":{"id":"m","content":[],"usage":{}}}')
    )
    body = begun + format_named(wire).errors.stream_error(errors.UPSTREAM_FAILED, "it broke")
    error = client_error(wire, 200, body, EVENTS, stream=True)
    assert "it broke" in str(error)


def test_a_failed_responses_stream_ends_with_response_failed():
    response = {"id": "resp", "object": "response", "output": [], "status": "in_progress"}
    created = {"type": "response.created", "sequence_number": 0, "response": response}
    begun = sse("response.created", json.dumps(created))
    body = begun + format_named(RESPONSES).errors.stream_error(errors.OVERLOADED, "it broke", 1, response=response)
    found = client_error(RESPONSES, 200, body, EVENTS, stream=True)
    assert [event.type for event in found] == ["response.created", "error", "response.failed"]
    assert [event.sequence_number for event in found] == [0, 1, 2]
    assert found[1].message == found[2].response.error.message == "it broke"
    assert SseReader().feed(body)[-1].data == "[DONE]"
