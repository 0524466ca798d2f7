"""Unknown data passes through untouched in both directions: members, vendor fields, headers, events, comments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import serving

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
TOOLS = b'"tools":[{"type":"function","name":"f","function":{"name":"f"},"input_schema":{}}]'


@dataclass
class Echo:
    """A provider that records the bytes that it receives and sends a fixed body."""

    body: bytes = b""
    kind: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)
    got: list[bytes] = field(default_factory=list)
    got_headers: list[dict[str, str]] = field(default_factory=list)
    pieces: int = 1
    """The number of pieces in which a body is sent."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if scope["method"] == "POST":  # the gateway requests the list of models by itself when it starts
            self.got.append(body)
            self.got_headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        response_headers = [("content-type", self.kind), *self.headers]
        raw = [(name.encode(), value.encode()) for name, value in response_headers]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        size = -(-len(self.body) // self.pieces)
        for at in range(0, len(self.body), size):
            await send({"type": "http.response.body", "body": self.body[at : at + size], "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[tuple[Running, Echo]]:
    echo = Echo()
    with ExitStack() as stack:
        url = stack.enter_context(serving(echo))
        betas = {"Anthropic-Beta": "ours-1,theirs-2"}
        upstream = {"url": f"{url}/v1", "speaks": list(PATHS), "key": "sk-up", "headers": betas}
        folder = tmp_path_factory.mktemp("verbatim")
        yield stack.enter_context(gateway(folder, gateway={"upstreams": {"main": upstream}})), echo


@pytest.fixture
def gw(place) -> Running:
    return place[0]


@pytest.fixture
def echo(place) -> Echo:
    """The provider in its initial state."""
    found = place[1]
    found.__dict__ |= Echo().__dict__
    return found


def post(gw: Running, wire: str, body: bytes, headers: Sequence[tuple[str, str]] = ()) -> httpx2.Response:
    own = [("authorization", f"Bearer {gw.secret}"), ("content-type", "application/json")]
    return httpx2.post(f"{gw.url}{PATHS[wire]}", content=body, headers=[*own, *headers], timeout=60)


WHOLE = {
    "chat": b'{ "id":"c1", "object":"chat.completion","created":1, "model":"gpt-4o",\n "choices":[{"index":0,'
    b'"finish_reason":"stop","message":{"role":"assistant","content":"Hi \\u00e4","reasoning_content":"hm",'
    b'"vendor":{"deep":[1.0,2]}}}],"usage":{"prompt_tokens":9,"completion_tokens":1,"cost":0.10},"x_new":null }',
    "responses": b'{ "id":"r1","object":"response","created_at":1,"model":"gpt-4o","status":"completed","output":['
    b'{"type":"vendor:trace","id":"t1","status":"completed","x":1.50},{"type":"message","id":"m1","role":"assistant",'
    b'"status":"completed","content":[{"type":"output_text","text":"Hi","annotations":[],"x_part":true}]}],'
    b'"usage":{"input_tokens":9,"output_tokens":1,"total_tokens":10,"x_usage":1},"x_new":null }',
    "messages": b'{ "id":"m1","type":"message","role":"assistant","model":"claude","content":[{"type":"thinking",'
    b'"thinking":"hm","signature":"c2ln"},{"type":"text","text":"Hi","x_block":1e3}],"stop_reason":"end_turn",'
    b'"usage":{"input_tokens":9,"output_tokens":1,"x_usage":1},"x_new":null }',
}
REQUESTS = {
    "chat": b'{ "model" : "gpt-4o","x_vendor":{"a":[1.0, 1e2]} , "messages":[ {"role":"user","content":"%s",'
    b'"x_message":"\\u00e4"} ] , ' + TOOLS + b',"temperature":0.70 }',
    "responses": b'{ "model" : "gpt-4o","x_vendor":{"a":[1.0, 1e2]} , "input":[ {"role":"user","content":"%s",'
    b'"x_message":"\\u00e4"} ] , ' + TOOLS + b',"temperature":0.70 }',
    "messages": b'{ "model" : "gpt-4o","max_tokens":100,"x_vendor":{"a":[1.0, 1e2]} , "messages":[ {"role":"user",'
    b'"content":"%s","x_message":"\\u00e4"} ] , ' + TOOLS + b',"temperature":0.70 }',
}


@pytest.mark.parametrize("wire", PATHS)
def test_a_request_and_its_whole_answer_pass_byte_for_byte(gw, echo, wire):
    echo.body = WHOLE[wire]
    payload = REQUESTS[wire] % b"whole"
    answer = post(gw, wire, payload)
    assert answer.status_code == 200, answer.text
    assert echo.got == [payload]
    assert answer.content == WHOLE[wire]
    stored = [entry for entry in gw.store.read(answer.headers["x-recto-session-id"]) if entry.role == "user"]
    assert b"x_message" in stored[0].content


STREAMS = {
    "chat": b': keep-alive\n\ndata: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":'
    b'{"role":"assistant","content":"","reasoning_content":"hm "},"finish_reason":null}],"obfuscation":"xyz"}\n\n'
    b'event: vendor.progress\ndata: {"choices":[],"done": 0.50}\n\n'
    b'data:{"id":"c1","choices":[{"index":0,"delta":{"content":"Hi \\u00e4","tool_calls":[{"index":0,"id":"call_1",'
    b'"type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"c2ln"'
    b'}}}]},"finish_reason":null}]}\r\n\r\n'
    b'data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":null}\n\n: ping\n\n'
    b'data: {"id":"c1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10,"cost":0.10}}'
    b"\n\ndata: [DONE]\n\n",
    "responses": b'event: response.created\ndata: {"type":"response.created","sequence_number":0,"response":{"id":"r2"'
    b',"object":"response","status":"in_progress","output":[]}}\n\n: note\n\n'
    b'event: vendor:trace_event\ndata: {"type":"vendor:trace_event","sequence_number":1,"x":1.50}\n\n'
    b'event: response.output_item.added\ndata: {"type":"response.output_item.added","sequence_number":2,'
    b'"output_index":0,"item":{"type":"message","id":"m1","role":"assistant","status":"in_progress","content":[]}}\n\n'
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","sequence_number":3,"item_id":"m1"'
    b',"output_index":0,"content_index":0,"delta":"Hi","obfuscation":"q"}\r\n\r\n'
    b'event: response.output_item.done\ndata: {"type":"response.output_item.done","sequence_number":4,"output_index":0'
    b',"item":{"type":"message","id":"m1","role":"assistant","status":"completed","content":[{"type":"output_text",'
    b'"text":"Hi","annotations":[]}],"x_item":1}}\n\n'
    b'event: response.completed\ndata: {"type":"response.completed","sequence_number":5,"response":{"id":"r2","object"'
    b':"response","status":"completed","output":[{"type":"message","id":"m1","role":"assistant","status":"completed",'
    b'"content":[{"type":"output_text","text":"Hi","annotations":[]}],"x_item":1}],"usage":{"input_tokens":9,'
    b'"output_tokens":1,"total_tokens":10}}}\n\ndata: [DONE]\n\n',
    "messages": b'event: message_start\ndata: {"type":"message_start","message":{"id":"m2","type":"message","role":'
    b'"assistant","model":"claude","content":[],"usage":{"input_tokens":9,"output_tokens":1},"x_new":1.0}}\n\n'
    b'event: ping\ndata: {"type": "ping"}\n\n'
    b'event: vendor_event\ndata: {"type":"vendor_event","x":1.50}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text",'
    b'"text":""}}\r\n\r\n: note\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":'
    b'"Hi"}}\n\nevent: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2'
    b'},"x_new":null}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n',
}


@pytest.mark.parametrize("pieces", [1, 7, 97])
@pytest.mark.parametrize("wire", PATHS)
def test_a_stream_passes_byte_for_byte_wherever_it_was_cut(gw, echo, wire, pieces):
    echo.body, echo.kind, echo.pieces = STREAMS[wire], "text/event-stream; charset=utf-8", pieces
    payload = (REQUESTS[wire] % b"streamed %d" % pieces).replace(b'"temperature"', b'"stream": true,"temperature"')
    answer = post(gw, wire, payload)
    assert answer.content == STREAMS[wire]
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert echo.got == [payload]
    stored = [entry for entry in gw.store.read(answer.headers["x-recto-session-id"]) if entry.role == "assistant"]
    assert len(stored) == 1
    assert b"Hi" in stored[0].content


def test_fields_that_a_vendor_added_to_an_answer_are_sent_back(gw, echo):
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "c2lnbmF0dXJl"}},
    }
    reply = {"role": "assistant", "content": None, "reasoning_content": "I should call it.", "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": reply}
    echo.body = json.dumps({"id": "c", "object": "chat.completion", "choices": [choice]}).encode()
    tools = [{"type": "function", "function": {"name": "f"}}]
    messages: list[Any] = [{"role": "user", "content": "call it and sign"}]
    first = post(gw, "chat", json.dumps({"model": "gpt-4o", "messages": messages, "tools": tools}).encode())
    messages += [first.json()["choices"][0]["message"], {"role": "tool", "tool_call_id": "call_1", "content": "done"}]
    second = post(gw, "chat", json.dumps({"model": "gpt-4o", "messages": messages, "tools": tools}).encode())
    assert second.headers["x-recto-session-id"] == first.headers["x-recto-session-id"]
    assert json.loads(echo.got[-1])["messages"] == [messages[0], reply, messages[2]]


def test_fields_of_a_vendor_are_sent_back_even_if_the_client_dropped_them(gw, echo):
    reply = {"role": "assistant", "content": "Yes.", "reasoning_content": "I think so."}
    choice = {"index": 0, "finish_reason": "stop", "message": reply}
    echo.body = json.dumps({"id": "c", "object": "chat.completion", "choices": [choice]}).encode()
    messages: list[Any] = [{"role": "user", "content": "is it dropped"}]
    body = {"model": "gpt-4o", "tools": [{"type": "function", "function": {"name": "f"}}]}
    post(gw, "chat", json.dumps({**body, "messages": messages}).encode())
    messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "and now?"}]
    post(gw, "chat", json.dumps({**body, "messages": messages}).encode())
    assert json.loads(echo.got[-1])["messages"][1] == reply


def test_unknown_headers_pass_both_ways_and_gateway_and_connection_headers_do_not(gw, echo):
    echo.body = WHOLE["chat"]
    echo.headers = [
        ("x-request-id", "req_theirs"),
        ("x-ratelimit-remaining-tokens", "12"),
        ("openai-processing-ms", "34"),
        ("x-vendor-note", "kept"),
        ("set-cookie", "session=theirs"),
        ("x-recto-session-id", "forged"),
    ]
    request_headers = {"x-vendor-hint": "fast", "openai-organization": "org-1", "x-stainless-lang": "python"}
    answer = post(
        gw, "chat", REQUESTS["chat"] % b"headers", [*request_headers.items(), ("cookie", "a=b"), ("x-recto-note", "1")]
    )
    assert {name: echo.got_headers[0][name] for name in request_headers} == request_headers
    assert echo.got_headers[0]["authorization"] == "Bearer sk-up"
    assert not {"cookie", "x-recto-note", "x-forwarded-for"} & echo.got_headers[0].keys()
    for name, value in echo.headers[:4]:
        assert answer.headers[name] == value
    assert "set-cookie" not in answer.headers
    assert answer.headers["x-recto-session-id"].startswith("agent:")


def test_betas_of_the_client_and_of_the_settings_are_sent_together(gw, echo):
    echo.body = WHOLE["messages"]
    betas = [("anthropic-beta", "a-1, theirs-2"), ("anthropic-beta", "b-3"), ("anthropic-version", "2026-10-21")]
    assert post(gw, "messages", REQUESTS["messages"] % b"betas", betas).status_code == 200
    assert echo.got_headers[0]["anthropic-beta"] == "a-1,theirs-2,b-3,ours-1"
    assert echo.got_headers[0]["anthropic-version"] == "2026-10-21"
