"""A lone surrogate in any string of a request gets an answer or a protocol error, never a server failure."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from tests.gateway.gateways import gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running

from recto.gateway import lineage

HALF = ("\ud800", "x\udfff", "\udc00\ud800", "agent:default:\ud83d")
TOOL = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}}
CHAT = {
    "model": "gpt-4o",
    "messages": [
        {"role": "system", "content": "be kind", "name": "s"},
        {"role": "user", "content": [{"type": "text", "text": "hello"}]},
        {"role": "assistant", "content": None,
         "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "user", "content": "go on"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}],
    "tool_choice": "auto", "user": "me", "metadata": {"session_id": "s1", "k": "v"}, "stop": ["end"],
    "prompt_cache_key": "p", "safety_identifier": "i",
}  # fmt: skip
RESPONSES = {
    "model": "gpt-4o", "instructions": "be kind", "previous_response_id": "resp_1", "metadata": {"k": "v"},
    "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}],
    "tools": [TOOL], "tool_choice": "auto", "user": "me", "prompt_cache_key": "p", "include": ["reasoning"],
}  # fmt: skip
CONVERSATION = {**{key: value for key, value in RESPONSES.items() if key != "previous_response_id"},
                "conversation": "conv_1"}  # fmt: skip
COMPACTED = {
    "model": "gpt-4o",
    "input": [
        {"id": "cmp_1", "type": "compaction", "encrypted_content": "recto:cmp_1"},
        {"role": "user", "content": "on"},
    ],
}
MESSAGES = {
    "model": "gpt-4o", "max_tokens": 9, "system": [{"type": "text", "text": "be kind"}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hello"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {"a": "b"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "done"}]},
    ],
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
    "metadata": {"user_id": "session_1"}, "stop_sequences": ["end"],
}  # fmt: skip
OPENING = {"metadata": {"topic": "demo"}, "items": [{"type": "message", "role": "user", "content": "hello"}]}
REQUESTS = [
    ("chat/completions", CHAT), ("responses", RESPONSES), ("responses", CONVERSATION), ("responses", COMPACTED),
    ("responses/compact", COMPACTED), ("responses/compact", RESPONSES), ("responses/input_tokens", RESPONSES),
    ("responses/input_tokens", COMPACTED), ("messages", MESSAGES), ("messages/count_tokens", MESSAGES),
    ("conversations", OPENING), ("embeddings", {"model": "m", "input": ["text"]}),
]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with (
        running(ScriptedUpstream(lambda request: Says(text="heard"))) as upstream,
        gateway(tmp_path_factory.mktemp("halves"), upstream.url) as gw,
    ):
        yield gw


def with_half(value: Any, half: str) -> Iterator[Any]:
    """Yields the value with a lone surrogate in each of its strings and names in turn."""
    if isinstance(value, str):
        yield half
        yield value + half
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from ([*value[:at], bent, *value[at + 1 :]] for bent in with_half(item, half))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from ({**value, key: bent} for bent in with_half(item, half))
        yield {**value, half: "unknown"}


def send(gw, path: str, body: dict, headers: dict | None = None) -> httpx2.Response:
    return httpx2.post(
        f"{gw.url}/v1/{path}",
        content=json.dumps(body).encode(),  # as escapes: that is valid JSON
        headers={"authorization": f"Bearer {gw.secret}", "content-type": "application/json"} | (headers or {}),
        timeout=30,
    )


@pytest.mark.promise
@pytest.mark.parametrize(("path", "body"), REQUESTS, ids=[f"{path}-{at}" for at, (path, _) in enumerate(REQUESTS)])
def test_a_lone_surrogate_in_any_field_never_fails_the_gateway(place, scale, path, body):
    bent = [(stream, half, variant) for stream in (False, True) for half in HALF for variant in with_half(body, half)]
    random.Random(path).shuffle(bent)
    for stream, half, variant in bent[: scale(12, ci=100, release=10_000)]:
        answer = send(place, path, {**variant, "stream": stream} if stream else variant)
        failed = ascii((path, half, variant, answer.text)) if answer.status_code >= 500 else ""
        assert not failed
        if "event-stream" not in answer.headers.get("content-type", ""):
            json.loads(answer.content)
        else:
            assert b"heard" in answer.content


def test_afterwards_the_gateway_still_works(place):
    headers = {"authorization": f"Bearer {place.secret}"}
    assert send(place, "chat/completions", CHAT).status_code == 200
    for path in ("models", "conversations/conv_%ED%A0%80"):
        assert httpx2.get(f"{place.url}/v1/{path}", headers=headers).status_code < 500
    assert httpx2.get(f"{place.url}/metrics", headers=headers).status_code < 500
    for session in list(place.store.sessions())[:50]:
        assert place.store.head(session.session).seq


def test_a_fragile_lookup_is_detected(place, monkeypatch):
    monkeypatch.setattr(lineage, "_key", lambda name: name.hex() if isinstance(name, bytes) else name.encode().hex())
    assert send(place, "responses", {**RESPONSES, "previous_response_id": "\ud800"}).status_code == 500
