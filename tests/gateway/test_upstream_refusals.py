"""Errors for upstreams that refuse a key or interrupt a stream: they name whose key it was and what is stored."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx2
import openai
import pytest
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from tests.gateway.gateways import gateway
from tests.gateway.upstream import serving

REFUSED = {"error": {"message": "Incorrect API key provided: sk-up***.", "type": "x", "code": "invalid_api_key"}}
BEGUN = b'data: {"id":"a","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"half"}}]}\n\n'


def upstream_with(respond: Any) -> Any:
    app = Starlette(routes=[Route("/v1/{rest:path}", respond, methods=["GET", "POST"])])
    return serving(app)


def ask(gw: Any, path: str = "chat/completions", **more: Any) -> httpx2.Response:
    body = {"model": "gpt-4o", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}], **more}
    return httpx2.post(f"{gw.url}/v1/{path}", json=body, headers={"authorization": f"Bearer {gw.secret}"})


async def refuse(request: Any) -> Response:
    return JSONResponse(REFUSED, 401)


async def break_off(request: Any) -> Response:
    return Response(BEGUN, media_type="text/event-stream")


@pytest.mark.parametrize(
    ("options", "explanation"),
    [
        ({"key": "sk-upstream"}, "refused the key that Recto has for upstream 'main'; your key for Recto is right"),
        ({}, "refused a request without a key; your key for Recto is right"),
        ({"auth": "client"}, "the key that your client sent, which Recto passed on to upstream 'main'"),
    ],
    ids=["own", "none", "client"],
)
@pytest.mark.parametrize("path", ["chat/completions", "messages"])
def test_the_error_for_a_refused_key_names_whose_key_it_was(tmp_path, options, explanation, path):
    with upstream_with(refuse) as url:
        own = {"main": {"url": f"{url}/v1", "speaks": "chat", **options}}
        with gateway(tmp_path, gateway={"upstreams": own}) as gw:
            answer = ask(gw, path)
            message = answer.json()["error"]["message"]
    assert answer.status_code == 401
    assert message.startswith("Incorrect API key provided: sk-up***. ")
    assert explanation in message
    assert "The messages of this request are stored" in message


async def show_page(request: Any) -> Response:
    return HTMLResponse("<html><body>Please log in</body></html>")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["chat/completions", "messages"])
def test_the_error_for_a_web_page_in_place_of_an_answer_names_the_upstream_and_its_url(tmp_path, path, stream):
    with upstream_with(show_page) as url, gateway(tmp_path, url, speaks=("chat",)) as gw:
        answer = ask(gw, path, stream=stream)
    assert answer.status_code == 502
    assert "upstream 'main' answered with a web page (text/html): check its 'url', with '/v1'" in answer.text
    assert "The messages of this request are stored" in answer.text


def test_the_error_of_an_interrupted_stream_names_what_is_stored(tmp_path):
    with upstream_with(break_off) as url, gateway(tmp_path, url, speaks=("chat",)) as gw:
        answer = ask(gw, stream=True)
        events = [entry for entry in gw.store.read(answer.headers["x-recto-session-id"]) if entry.kind == "reply_cut"]
    assert "the upstream's stream ended before its message did. The messages of this request are stored" in answer.text
    assert "what arrived of the answer as an event" in answer.text
    assert b"half" in events[0].content


def test_a_request_without_a_model_is_refused_for_that_reason(tmp_path):
    with upstream_with(refuse) as url:
        own = {"main": {"url": f"{url}/v1", "speaks": "chat", "models": ["gpt-4o"]}}
        with gateway(tmp_path, gateway={"upstreams": own}) as gw:
            named = ask(gw, model="other").json()["error"]["message"]
            missing = ask(gw, model=None).json()["error"]["message"]
    assert "no upstream has the model 'other'" in named
    assert "the request names no 'model'" in missing


COMPLETE = {
    "id": "a",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-4o",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "It is whole."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
}


async def answer_at_once(request: Any) -> Response:
    return JSONResponse(COMPLETE)


def test_a_client_that_asks_for_a_stream_gets_one_also_from_an_upstream_that_does_not_stream(tmp_path):
    # The client's library read the plain body as a stream without any event: an empty answer.
    messages = [{"role": "user", "content": "hello"}]
    with upstream_with(answer_at_once) as url, gateway(tmp_path, url, speaks=("chat",)) as gw:
        with openai.OpenAI(base_url=f"{gw.url}/v1", api_key=gw.secret, max_retries=0) as client:
            usage = {"include_usage": True}
            chunks = list(
                client.chat.completions.create(model="gpt-4o", messages=messages, stream=True, stream_options=usage)
            )
        with (
            anthropic.Anthropic(base_url=gw.url, api_key=gw.secret, max_retries=0) as client,
            client.messages.stream(model="gpt-4o", max_tokens=9, messages=messages) as stream,
        ):
            text = stream.get_final_text()
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "It is whole."
    assert chunks[-1].usage.prompt_tokens == 9
    assert text == "It is whole."


async def fail_without_a_word(request: Any) -> Response:
    return Response(b"", 503)


async def fail_as_fastapi(request: Any) -> Response:
    return JSONResponse({"detail": [{"loc": ["body", "messages"], "msg": "field required"}]}, 422)


@pytest.mark.parametrize(
    ("respond", "path", "explanation"),
    [
        (fail_without_a_word, "chat/completions", "upstream 'main' answered with status 503 and no text"),
        (fail_without_a_word, "messages", "upstream 'main' answered with status 503 and no text"),
        (fail_as_fastapi, "messages", "field required"),
    ],
)
def test_an_upstream_s_error_without_a_message_still_says_what_happened(tmp_path, respond, path, explanation):
    with upstream_with(respond) as url, gateway(tmp_path, url, speaks=("chat",)) as gw:
        answer = ask(gw, path)
    assert explanation in answer.json()["error"]["message"]
