"""Promise 11 at the gateway: every request gets a response, and an upstream never gets one that it would refuse.

Seeded mutations of real requests in three formats pass through the whole gateway: guard, store, prompt, a provider over
TCP. A failure shows the bytes that reproduce it.
"""

from __future__ import annotations

import asyncio
import json
import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from chaos import PATHS, TOOLS, Direct, GatewayResponse, Provider, direct, is_refusal
from tests.gateway.upstream import Says, ScriptedUpstream

from recto.formats.anthropic import ANTHROPIC
from recto.formats.openai_chat import CHAT
from recto.formats.openai_responses import RESPONSES
from recto.gateway import proxy, turn
from recto.gateway.request import open_request

pytestmark = [pytest.mark.timeout(0), pytest.mark.filterwarnings("ignore:model:UserWarning")]
AT_ONCE = 16

CALL = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": "{}"}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
REQUESTS: dict[str, list[dict[str, Any]]] = {
    CHAT: [
        {"messages": [{"role": "user", "content": "hello"}]},
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "look"}, IMAGE]},
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": "done"},
            ],
            "tools": TOOLS[CHAT],
            "max_tokens": 100,
            "stream": True,
            "stream_options": {"include_usage": True},
            "metadata": {"session_id": "a-session-of-mine"},
        },
    ],
    RESPONSES: [
        {"input": "hello", "instructions": "Be brief.", "store": False},
        {
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "look"}]},
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
                {"type": "function_call", "call_id": "c1", "name": "run", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "done"},
            ],
            "tools": TOOLS[RESPONSES],
            "max_output_tokens": 100,
            "stream": True,
            "conversation": None,
            "previous_response_id": None,
            "prompt_cache_key": "a-session-of-mine",
            "context_management": [{"type": "compaction", "compact_threshold": 1000}],
        },
    ],
    ANTHROPIC: [
        {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 100, "system": "Be brief."},
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}}]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "run", "input": {"a": 1}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "done"}]},
            ],
            "system": [{"type": "text", "text": "Be brief."}],
            "tools": TOOLS[ANTHROPIC],
            "max_tokens": 100,
            "stream": True,
            "metadata": {"user_id": '{"session_id": "a-session-of-mine"}'},
            "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
            "thread": None,
        },
    ],
}
OTHERS = {
    "/v1/messages/count_tokens": ANTHROPIC,
    "/v1/responses/input_tokens": RESPONSES,
    "/v1/responses/compact": RESPONSES,
    "/v1/conversations": RESPONSES,
    "/v1/embeddings": CHAT,
}
"""Other endpoints, and the format of their bodies."""

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**31, 2**63, 2**64, -(2**70), 1e308, 0.1, "", " ", "\0", "a\0b", "\u202e", "\ud800"),
    *([], {}, [[]], [None], [{}], {"": ""}, {"type": None}, "x" * 3_000, [0] * 50, {"role": {"role": "user"}}),
    *(
        "user",
        "system",
        "assistant",
        "tool",
        "developer",
        "function",
        "compaction",
        "item_reference",
        "text",
        "tool_use",
    ),
    *("function_call_output", "recto:cmp_0", "conv_0", "resp_0", "c1", "t1", "../../etc/passwd", "' OR 1=1 --"),
    *({"type": "compaction", "encrypted_content": "recto:x"}, {"type": "item_reference", "id": "msg_1"}),
    *({"role": "user", "content": "more"}, {"role": "tool", "tool_call_id": "nobody", "content": "r"}),
    *({"type": "tool_result", "tool_use_id": "nobody"}, {"type": "function_call_output", "call_id": "nobody"}),
    *({"type": "function_call", "call_id": "open", "name": "run", "arguments": "{}"}, {"type": "unknown_item"}),
    *({"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "image", "source": {"data": "/9j/"}}),
)
SPITE = (
    *(
        b"\x00",
        b"\\u0000",
        b"\\ud800",
        b"\xed\xa0\x80",
        b"\xff",
        b"\xef\xbb\xbf",
        b"NaN",
        b"-Infinity",
        b"1e400",
        b"-0",
    ),
    *(b"1" * 5_000, b"[" * 200, b'{"a":' * 150, b'"', b"\\", b",", b"}", b"]", b"{}", b"\n\n", b"data: [DONE]\n\n"),
    *(b'"role":"user",', b'"messages":[],', b'"input":"x",', b'"model":7,', b'"stream":1,', b"\xf0\x9f\x92\xa9", b"'"),
)
WHOLE = (
    *(b"", b" ", b"null", b"[]", b"{}", b"0", b'"x"', b"\xff\xfe{\x00}\x00", b"{" * 100_000, b"[" * 100_000, b"1e999"),
    *(b'{"messages":null}', b'{"input":null}', b'{"messages":{}}', b'{"messages":[[]]}', b'{"messages":[null]}'),
    *(
        b'{"messages":"x"}',
        b'{"input":[""]}',
        b'{"messages":[],"messages":[]}',
        b'{"input":{"role":"user"}}',
        b"--x\r\n",
    ),
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Returns the path to each value inside a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way for key, child in inside for way in ((*at, key), *places(child, (*at, key)))]


def bent(rng: random.Random, wire: str) -> bytes:
    """Returns a request with up to three mutations and, at times, disturbed bytes."""
    body = json.loads(json.dumps({"model": "gpt-4o", **rng.choice(REQUESTS[wire])}))
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        way = rng.choice(places(body) or [("model",)])
        value = deepcopy(rng.choice(VALUES))
        holder: Any = body
        for key in way[:-1]:
            holder = holder[key]
        match rng.randrange(6) if way[0] in body else 0:
            case 0 | 1 | 2:
                holder[way[-1]] = value
            case 3 if len(way) > 1:
                del holder[way[-1]]
            case 4 if isinstance(holder, list):
                holder.insert(way[-1], deepcopy(holder[way[-1]]) if rng.random() < 0.3 else value)
            case 4:
                holder[rng.choice(("", "x", "id", "type", "role", "call_id", "\ud800"))] = value
            case _:
                for _ in range(rng.choice((1, 30, 200))):
                    holder[way[-1]] = [holder[way[-1]]] if rng.random() < 0.5 else {"a": holder[way[-1]]}
    raw = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if rng.random() < 0.25:
        at = rng.randrange(len(raw) + 1)
        raw = raw[:at] + rng.choice(SPITE) + raw[at + rng.choice((0, 0, 1, 20)) :]
    return raw


NAMES = ("a", "recto:keys", "agent:a:b", "agent:default:b", "tenant:x/agent:a:b", "\xff", " ", "x" * 900)
HEADERS: tuple[tuple[str, str], ...] = (
    *(("x-recto-session-id", name) for name in NAMES),
    *(("x-session-id", name) for name in ("\u00e9" * 8, "a-session-of-mine", "../../..")),
    *(("anthropic-beta", "a,b,\u00ff"), ("x-custom", "\u00e9"), ("x-custom", "tab\there"), ("te", "trailers")),
    *(("accept-encoding", "gzip"), ("cookie", "a=b"), ("expect", "100-continue"), ("openai-organization", "")),
)
QUERIES = ("", "", "", "beta=true", "a=%00", "%", "a=%zz", "a=\x7f", "a=\u00ff", 'a=[]&b={}|^`<>"', "?" * 50)


async def fuzzed(gw: Direct, provider: Provider, rng: random.Random, many: int) -> tuple[list[Any], int]:
    """Returns every finding with its request, and how many requests were answered with status 200."""
    wrong: list[Any] = []
    answered = 0

    async def send_one(rng: random.Random) -> None:
        nonlocal answered
        if rng.random() < 0.85:
            wire, path = rng.choice(list(PATHS.items()))
        else:
            path, wire = rng.choice(list(OTHERS.items()))
        body = rng.choice(WHOLE) if rng.random() < 0.05 else bent(rng, wire)
        headers = dict(rng.sample(HEADERS, 1)) if rng.random() < 0.2 else {}
        query = rng.choice(QUERIES)
        try:
            async with asyncio.timeout(60):
                answer = await gw.ask("POST", path, body, query=query, headers=headers)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
            wrong.append((path, query, headers, body, repr(error)))
            return
        answered += answer.status == 200
        if not good(wire, answer):
            wrong.append((path, query, headers, body, answer))

    for _ in range(0, many, AT_ONCE):
        await asyncio.gather(*(send_one(random.Random(rng.random())) for _ in range(AT_ONCE)))
    wrong += [(request.wire, request.raw, request.problems) for request in provider.scripted.asked if request.problems]
    return wrong, answered


def good(wire: str, answer: GatewayResponse) -> bool:
    if answer.status == 200:
        return bool(answer.body)
    return 400 <= answer.status < 500 and is_refusal(wire, answer)


def run(folder: Path, seed: int, many: int) -> tuple[list[Any], int]:
    async def work() -> tuple[list[Any], int]:
        scripted = ScriptedUpstream(lambda request: Says(text="An answer."))
        async with Provider(scripted).listening() as provider, direct(folder, provider.url) as gw:
            return await fuzzed(gw, provider, random.Random(seed), many)

    return asyncio.run(work())


@pytest.mark.promise
def test_malformed_requests_are_answered_or_refused_and_no_upstream_gets_one_it_would_refuse(swift_folder, scale):
    many = scale(200, ci=1_000, release=200_000)
    wrong, answered = run(swift_folder, 1, many)
    assert wrong == []
    assert answered > many // 20
    assert answered < many * 19 // 20


OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "done"}
HELLO = {"role": "user", "content": "hello"}
DONE = {"role": "tool", "tool_call_id": "c1", "content": "done"}
USE = [{"type": "tool_use", "id": "t1", "name": "run", "input": {}}]
RESULT = [{"type": "tool_result", "tool_use_id": "t1", "content": "done"}]


def response_call(**more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": "c1", "name": "run", "arguments": "{}", **more}


IMPOSSIBLE: dict[str, list[list[dict[str, Any]]]] = {
    CHAT: [
        *(
            [HELLO, {"role": role, "content": "x", "tool_calls": [CALL]}, DONE]
            for role in ("user", "system", "developer")
        ),
        [HELLO, {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]}, DONE],
    ],
    RESPONSES: [
        *([HELLO, response_call(role=role), OUTPUT] for role in ("user", "system", "developer", "tool")),
        [response_call(role="system"), OUTPUT, HELLO],
        [HELLO, response_call(role="developer")],
        [HELLO, {"type": "computer_call", "call_id": ""}],
    ],
    ANTHROPIC: [
        [HELLO, {"role": "assistant", "content": USE}, {"role": "system", "content": RESULT}],
        [HELLO, {"role": "assistant", "content": USE}, {"role": "developer", "content": RESULT}, HELLO],
        [HELLO, {"role": "system", "content": USE}, {"role": "user", "content": RESULT}],
        [HELLO, {"role": "system", "content": USE}],
        [{"role": "system", "content": "Be brief."}, HELLO],
        [HELLO, {"role": "assistant", "content": [*USE, *USE]}, {"role": "user", "content": RESULT}],
        [HELLO, {"role": "assistant", "content": USE}, {"role": "user", "content": [*RESULT, *RESULT]}],
    ],
}
"""Calls and results in the wrong role, duplicate ids in a message, and messages before the first of the user."""


@pytest.mark.parametrize("wire", IMPOSSIBLE)
def test_an_impossible_call_or_result_is_refused_before_it_is_stored(swift_folder, wire):
    def body(messages: list[dict[str, Any]]) -> dict[str, Any]:
        return {"model": "gpt-4o", "max_tokens": 9, "input" if wire == RESPONSES else "messages": messages}

    async def work() -> None:
        scripted = ScriptedUpstream(lambda request: Says(text="An answer."))
        async with Provider(scripted).listening() as provider, direct(swift_folder, provider.url) as gw:
            for messages in IMPOSSIBLE[wire]:
                answer = await gw.post(PATHS[wire], body(messages), x_recto_session_id="mine")
                assert (answer.status, is_refusal(wire, answer)) == (400, True), messages
            assert scripted.asked == []
            answer = await gw.post(PATHS[wire], body([HELLO]), x_recto_session_id="mine")
            assert answer.status == 200
            assert [request.messages for request in scripted.asked] == [[HELLO]]

    asyncio.run(work())


def test_a_conversation_does_not_begin_with_an_impossible_call(swift_folder):
    async def work() -> None:
        scripted = ScriptedUpstream(lambda request: Says(text="An answer."))
        async with Provider(scripted).listening() as provider, direct(swift_folder, provider.url) as gw:
            for items in IMPOSSIBLE[RESPONSES]:
                answer = await gw.post("/v1/conversations", {"items": items})
                assert (answer.status, is_refusal(RESPONSES, answer)) == (400, True), items
            answer = await gw.post("/v1/conversations", {"items": [HELLO, response_call(role="assistant"), OUTPUT]})
            assert answer.status == 200

    asyncio.run(work())


def test_a_gateway_that_forwards_every_request_is_caught(swift_folder, monkeypatch):
    monkeypatch.setattr(turn, "refuse_defects", lambda messages, wire: None)
    monkeypatch.setattr(turn, "_refuse_empty", lambda request: None)
    wrong, _ = run(swift_folder, 1, 200)
    assert [finding for finding in wrong if finding[0] in PATHS], "no upstream got a request that it would refuse"


def test_a_gateway_with_a_fragile_parser_is_caught(swift_folder, monkeypatch):
    fragile = lambda raw, wire: open_request(json.dumps(json.loads(raw)).encode(), wire)  # noqa: E731
    monkeypatch.setattr(proxy, "open_request", fragile)
    wrong, _ = run(swift_folder, 1, 64)
    assert [finding for finding in wrong if "Error(" in str(finding[-1])]
