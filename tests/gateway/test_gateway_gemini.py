"""Clients of Gemini's API through the gateway: addresses with the model in them, both kinds of streams, its errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from starlette.responses import JSONResponse
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Asked, Says, ScriptedUpstream, running

from recto.formats import problems
from recto.transcript.entries import MESSAGE

GEMINI = "google.gemini"
MODEL = "gemini-3.8-flash"
TOOLS = [{"functionDeclarations": [{"name": "read_file", "parameters": {"type": "OBJECT", "properties": {}}}]}]


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    with running(ScriptedUpstream(lambda asked: Says(text="Yes, of course."))) as found:
        yield found


@pytest.fixture
def gw(tmp_path, upstream) -> Iterator[Running]:
    with gateway(tmp_path, upstream.url, speaks=("gemini",)) as running_gateway:
        yield running_gateway


def user(*texts: str) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": text} for text in texts]}


def post(gw: Running, contents: list[dict[str, Any]], method: str = "generateContent", **more: Any) -> httpx2.Response:
    query, root = more.pop("query", ""), more.pop("root", "v1beta")
    headers = more.pop("headers", {"x-goog-api-key": gw.secret})
    model = more.pop("model", MODEL)
    url = f"{gw.url}/{root}/models/{model}:{method}{query}"
    return httpx2.post(url, json={"contents": contents, **more}, headers=headers, timeout=60)


def content_of(answer: httpx2.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    return answer.json()["candidates"][0]["content"]


def messages(gw: Running) -> list[Any]:
    entries = [entry for one in gw.store.sessions() for entry in gw.store.read(one.session) if entry.kind == MESSAGE]
    return [json.loads(entry.content) for entry in entries if entry.wire == GEMINI]


@pytest.mark.parametrize("root", ["v1beta", "v1", "v1alpha"])
def test_a_question_is_answered_and_both_are_stored_as_they_came(gw, upstream, root):
    question = {
        "role": "user",
        "parts": [{"text": "Who am I?"}, {"inline_data": {"mime_type": "text/x", "data": "eA=="}}],
    }
    answer = post(gw, [question], root=root, system_instruction={"parts": [{"text": "Be kind."}]}, vendor_note=3)
    assert content_of(answer) == {"parts": [{"text": "Yes, of course."}], "role": "model"}
    (asked,) = upstream.asked
    assert not asked.problems
    assert (
        asked.raw
        == json.dumps(
            {"contents": [question], "systemInstruction": {"parts": [{"text": "Be kind."}]}, "vendor_note": 3},
            separators=(",", ":"),
        ).encode()
    )
    assert asked.headers["x-goog-api-key"] == "sk-upstream"
    assert asked.body["model"] == MODEL
    assert messages(gw) == [question, content_of(answer)]
    assert answer.headers["x-recto-session-id"]


def test_the_key_may_stand_in_the_address_and_does_not_go_on(gw, upstream):
    answer = post(gw, [user("Hello?")], query=f"?key={gw.secret}&prettyPrint=false", headers={})
    assert answer.status_code == 200
    assert gw.secret not in str(upstream.asked[0].headers)
    refused = post(gw, [user("Hello?")], headers={"x-goog-api-key": "rk-wrong"})
    assert refused.status_code == 401
    assert refused.json()["error"]["status"] == "UNAUTHENTICATED"


@pytest.mark.parametrize("query", ["?alt=sse", ""])
def test_a_stream_comes_as_events_or_as_an_array_and_is_stored_whole(gw, upstream, query):
    upstream.answer = lambda asked: Says(text="One two three four five.", calls=(("read_file", {"path": "a"}),))
    answer = post(gw, [user("Count.")], "streamGenerateContent", query=query, tools=TOOLS)
    assert answer.status_code == 200, answer.text
    if query:
        assert answer.headers["content-type"].startswith("text/event-stream")
        chunks = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line]
    else:
        assert answer.headers["content-type"] == "application/json"
        chunks = answer.json()
    parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
    assert "".join(part.get("text", "") for part in parts) == "One two three four five."
    assert len(chunks) > 2
    stored = messages(gw)[-1]
    assert stored == {"role": "model", "parts": [{"text": "One two three four five."}, parts[-1]]}
    assert "thoughtSignature" in parts[-1]


def test_history_finds_its_session_though_clients_rewrite_it(gw, upstream):
    first = post(gw, [user("Begin.")])
    told = content_of(first)
    second = post(gw, [user("Begin."), told, user("Go on.")])
    # a client of streams sends every chunk back as a content of its own, without thoughts, and may leave out the role
    pieces = [{"role": "model", "parts": [{"text": piece}]} for piece in ("Yes, ", "of course.")]
    begin = {"parts": [{"text": "Begin."}]}
    third = post(gw, [begin, *pieces, user("Go on."), *pieces, user("And now?")])
    sessions = {answer.headers["x-recto-session-id"] for answer in (first, second, third)}
    assert len(sessions) == 1
    assert [one["parts"][0]["text"] for one in messages(gw)] == [
        "Begin.",
        "Yes, of course.",
        "Go on.",
        "Yes, of course.",
        "And now?",
        "Yes, of course.",
    ]


@pytest.mark.parametrize("ids", [True, False])
def test_a_long_tool_loop_stays_bounded_valid_and_signed(tmp_path, upstream, ids):
    def answer(asked: Asked) -> Says:
        done = len(asked.messages)
        return Says(calls=(("read_file", {"path": f"{done}.txt"}), ("read_file", {"path": f"{done}.md"})))

    upstream.answer, upstream.gives_ids = answer, ids  # older models give none
    models = {MODEL: {"window": 9_000, "max_output": 500}}
    with gateway(tmp_path, upstream.url, speaks=("gemini",), models=models) as gw:
        contents = [user("Read everything.")]
        for step in range(25):
            told = content_of(post(gw, contents, tools=TOOLS))
            calls = [part["functionCall"] for part in told["parts"]]
            # Gemini CLI makes ids for results of calls that have none
            made = [{"id": call.get("id", f"read_file-1700000000{step}-{n}")} for n, call in enumerate(calls)]
            results = [
                {"functionResponse": {**id, "name": call["name"], "response": {"output": f"{call['args']} " * 90}}}
                for id, call in zip(made, calls, strict=True)
            ]
            contents += [told, {"role": "user", "parts": results}]
        assert [asked.problems for asked in upstream.asked] == [[]] * 25
        assert max(asked.tokens for asked in upstream.asked) < 9_000
        assert len({answer.session for answer in gw.store.sessions() if messages_in(gw, answer.session)}) == 1
        assert len(messages(gw)) >= 50
        assert len(upstream.asked[-1].messages) < 50


def messages_in(gw: Running, session: str) -> int:
    return sum(entry.kind == MESSAGE for entry in gw.store.read(session))


def test_errors_have_geminis_shape(gw, upstream):
    empty = post(gw, [])
    assert (empty.status_code, empty.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")
    odd = post(gw, [{"role": "critic", "parts": [{"text": "x"}]}])
    assert (odd.status_code, odd.json()["error"]["code"]) == (400, 400)
    upstream.fail = lambda asked: JSONResponse({"error": {"code": 429, "message": "slow", "status": "X"}}, 429)
    passed = post(gw, [user("Hello?")])
    assert (passed.status_code, passed.json()["error"]["message"]) == (429, "slow")
    array = post(gw, [user("Hello!")], "streamGenerateContent")
    assert (array.status_code, array.json()[0]["error"]["message"]) == (429, "slow")
    missing = httpx2.get(f"{gw.url}/v1beta/models/x:nothing", headers={"x-goog-api-key": gw.secret})
    assert missing.status_code in (404, 405)


def test_a_prompt_that_the_upstream_finds_too_long_is_shortened_and_sent_again(tmp_path, upstream):
    upstream.window = 8_000
    models = {MODEL: {"window": 60_000, "max_output": 500}}
    with gateway(tmp_path, upstream.url, speaks=("gemini",), models=models) as gw:
        told = {"role": "model", "parts": [{"text": "Noted. " * 40}]}
        contents = [one for n in range(90) for one in (user(f"Part {n}. " + "words and words " * 30), told)]
        answer = post(gw, [*contents, user("And?")])
        assert answer.status_code == 200, answer.text
        assert [asked.tokens <= 8_000 for asked in upstream.asked] == [False, True]
        assert problems([json.dumps(one).encode() for one in upstream.asked[-1].messages], GEMINI) == []


def test_tokens_are_counted_and_models_listed(gw, upstream):
    counted = post(gw, [user("How many tokens is this?")], "countTokens").json()
    wrapped = httpx2.post(
        f"{gw.url}/v1beta/models/{MODEL}:countTokens",
        json={"generateContentRequest": {"model": f"models/{MODEL}", "contents": [user("How many tokens is this?")]}},
        headers={"x-goog-api-key": gw.secret},
    ).json()
    assert counted["totalTokens"] == wrapped["totalTokens"] > 5
    assert not upstream.asked
    listed = httpx2.get(f"{gw.url}/v1beta/models", headers={"x-goog-api-key": gw.secret}).json()
    assert listed["models"][0]["name"] == "models/gemini-3.8-flash"


def test_usage_is_recorded_with_thoughts_as_output(gw, upstream):
    post(gw, [user("Hello?")])
    (session,) = [one.session for one in gw.store.sessions() if messages_in(gw, one.session)]
    (reported,) = [json.loads(entry.content) for entry in gw.store.read(session) if entry.kind == "usage_reported"]
    assert reported["output"] == 10


CROSSING = {
    "chat": ("v1/chat/completions", lambda said: {"messages": said}),
    "responses": ("v1/responses", lambda said: {"input": said}),
    "messages": ("v1/messages", lambda said: {"messages": said, "max_tokens": 50}),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("speaks", CROSSING)
def test_a_client_of_gemini_talks_to_an_upstream_of_another_format(tmp_path, speaks, stream):
    def answer(asked: Asked) -> Says:
        return Says(text="Done.") if len(asked.messages) > 2 else Says(calls=(("read_file", {"path": "a"}),))

    method, query = ("streamGenerateContent", "?alt=sse") if stream else ("generateContent", "")

    def told(answer: httpx2.Response) -> list[dict[str, Any]]:
        assert answer.status_code == 200, answer.text
        lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
        chunks = [json.loads(line) for line in lines] if stream else [answer.json()]
        assert chunks[-1]["candidates"][0]["finishReason"] == "STOP"
        assert chunks[-1]["usageMetadata"]["promptTokenCount"] > 0 or speaks == "chat"
        return [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]

    with running(ScriptedUpstream(answer)) as upstream, gateway(tmp_path, upstream.url, speaks=(speaks,)) as gw:
        more = {"tools": TOOLS, "systemInstruction": {"parts": [{"text": "Be kind."}]}, "model": "gpt-4o"}
        config = {"temperature": 0.5, "maxOutputTokens": 100}
        parts = told(post(gw, [user("Read a.")], method, query=query, generationConfig=config, **more))
        call = next(part["functionCall"] for part in parts if "functionCall" in part)
        assert (call["name"], call["args"]) == ("read_file", {"path": "a"})
        result = {"functionResponse": {"id": call["id"], "name": "read_file", "response": {"output": "words"}}}
        kept = [part for part in parts if part != {"text": ""}]
        contents = [user("Read a."), {"role": "model", "parts": kept}, {"role": "user", "parts": [result]}]
        parts = told(post(gw, contents, method, query=query, **more))
        assert "".join(part.get("text", "") for part in parts) == "Done."
        assert [asked.problems for asked in upstream.asked] == [[], []]
        assert "words" in upstream.asked[-1].raw.decode()
        assert "Be kind." in upstream.asked[-1].raw.decode()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", CROSSING)
def test_a_client_of_another_format_talks_to_gemini(tmp_path, upstream, wire, stream):
    path, body = CROSSING[wire]
    with gateway(tmp_path, upstream.url, speaks=("gemini",)) as gw:
        asked = {"model": "gemini-3-pro", **body([{"role": "user", "content": "Hello?"}]), "stream": stream}
        answer = httpx2.post(f"{gw.url}/{path}", json=asked, headers={"authorization": f"Bearer {gw.secret}"})
        assert answer.status_code == 200, answer.text
        assert not upstream.asked[0].problems
        stored = [entry for one in gw.store.sessions() for entry in gw.store.read(one.session)]
        told = [json.loads(entry.content) for entry in stored if entry.kind == MESSAGE and entry.role == "assistant"]
        assert [str(one).count("Yes, of course.") for one in told] == [1]
        assert upstream.asked[0].body["model"] == "gemini-3-pro"


SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
FUNCTION = {"name": "read_file", "description": "Reads a file.", "parameters": SCHEMA}
OFFERED = {
    "chat": [{"type": "function", "function": FUNCTION}],
    "responses": [{"type": "function", **FUNCTION}],
    "messages": [{"name": "read_file", "description": "Reads a file.", "input_schema": SCHEMA}],
}


def events(answer: httpx2.Response) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


def loop_of_chat(answer: httpx2.Response, stream: bool) -> tuple[str, list[dict[str, Any]]]:
    """What was said, and what the client sends next: the calls, and a result for each."""
    if stream:
        deltas = [chunk["choices"][0]["delta"] for chunk in events(answer) if chunk["choices"]]
        said = "".join(delta.get("content") or "" for delta in deltas)
        calls: dict[int, dict[str, Any]] = {}
        for one in (one for delta in deltas for one in delta.get("tool_calls", [])):
            call = calls.setdefault(one["index"], {"type": "function", "function": {"name": "", "arguments": ""}})
            call |= {"id": one["id"]} if one.get("id") else {}
            for name, piece in one["function"].items():
                call["function"][name] += piece or ""
        called = list(calls.values())
    else:
        message = answer.json()["choices"][0]["message"]
        said, called = message.get("content") or "", message.get("tool_calls", [])
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": f"words of {call['function']['arguments']}"}
        for call in called
    ]
    return said, [{"role": "assistant", "content": said or None, "tool_calls": called}, *results]


def loop_of_responses(answer: httpx2.Response, stream: bool) -> tuple[str, list[dict[str, Any]]]:
    response = events(answer)[-1]["response"] if stream else answer.json()
    said = "".join(part["text"] for item in response["output"] for part in item.get("content", []))
    called = [item for item in response["output"] if item["type"] == "function_call"]
    results = [
        {"type": "function_call_output", "call_id": one["call_id"], "output": f"words of {one['arguments']}"}
        for one in called
    ]
    return said, [*response["output"], *results]


def loop_of_messages(answer: httpx2.Response, stream: bool) -> tuple[str, list[dict[str, Any]]]:
    blocks: list[dict[str, Any]] = []
    if stream:
        for event in events(answer):
            if event["type"] == "content_block_start":
                blocks.append({**event["content_block"], "partial": ""})
            elif event["type"] == "content_block_delta":
                delta = event["delta"]
                if "text" in delta:
                    blocks[-1]["text"] += delta["text"]
                blocks[-1]["partial"] += delta.get("partial_json", "")
        for block in blocks:
            partial = block.pop("partial")
            if block["type"] == "tool_use":
                block["input"] = json.loads(partial or "{}")
    else:
        blocks = answer.json()["content"]
    said = "".join(block.get("text", "") for block in blocks)
    results = [
        {"type": "tool_result", "tool_use_id": one["id"], "content": f"words of {json.dumps(one['input'])}"}
        for one in blocks
        if one["type"] == "tool_use"
    ]
    return said, [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]


LOOPS = {"chat": loop_of_chat, "responses": loop_of_responses, "messages": loop_of_messages}


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", CROSSING)
def test_the_tools_of_a_client_of_another_format_are_called_by_gemini(tmp_path, upstream, wire, stream, ids):
    def answer(asked: Asked) -> Says:
        step = sum("functionCall" in str(one) for one in asked.messages)
        if step == 2:
            return Says(text="Both are read.")
        return Says(text="Let me see.", calls=tuple(("read_file", {"path": f"{step}{name}.txt"}) for name in "ab"))

    upstream.answer, upstream.gives_ids = answer, ids
    path, body = CROSSING[wire]
    with gateway(tmp_path, upstream.url, speaks=("gemini",)) as gw:
        said: list[dict[str, Any]] = [{"role": "user", "content": "Read the files."}]
        for step in range(3):
            asked = {"model": "gemini-3-pro", **body(said), "stream": stream, "tools": OFFERED[wire]}
            got = httpx2.post(f"{gw.url}/{path}", json=asked, headers={"authorization": f"Bearer {gw.secret}"})
            assert got.status_code == 200, got.text
            text, more = LOOPS[wire](got, stream)
            assert text == ("Let me see." if step < 2 else "Both are read.")
            said += more
        assert [one.problems for one in upstream.asked] == [[]] * 3
        assert "read_file" in str(upstream.asked[0].body["tools"])
        parts = [part for one in upstream.asked[-1].messages for part in one["parts"]]
        calls = [part["functionCall"]["args"]["path"] for part in parts if "functionCall" in part]
        results = [str(part["functionResponse"]["response"]) for part in parts if "functionResponse" in part]
        assert calls == ["0a.txt", "0b.txt", "1a.txt", "1b.txt"]
        assert all(name in result and "words of" in result for name, result in zip(calls, results, strict=True))
        sessions = {one.session for one in gw.store.sessions() if messages_in(gw, one.session)}
        assert len(sessions) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_model_asks_for_a_new_window_and_goes_on_with_its_task(tmp_path, upstream, stream):
    steps = [Says(calls=(("new_context", {"plan": ["the roof"]}),)), Says(calls=(("read_file", {"path": "a"}),))]
    upstream.answer = lambda asked: steps.pop(0)
    said = [user("Build the house."), {"role": "model", "parts": [{"text": "The walls are up. " * 400}]}]
    said += [user("Go on."), {"role": "model", "parts": [{"text": "Done."}]}, user("And the roof?")]
    settings = {"gateway": {"new_windows": True}, "models": {MODEL: {"window": 16_000}}}
    with gateway(tmp_path, upstream.url, speaks=("gemini",), **settings) as gw:
        method, query = ("streamGenerateContent", "?alt=sse") if stream else ("generateContent", "")
        answer = post(gw, said, method, query=query, tools=TOOLS)
    assert answer.status_code == 200, answer.text
    first, second = upstream.asked
    assert first.problems == second.problems == []
    names = [function["name"] for tool in second.body["tools"] for function in tool["functionDeclarations"]]
    assert names == ["read_file", "new_context", "history_search", "history_read", "note"]
    assert "The walls are up. " * 400 in first.raw.decode()
    assert "The walls are up. " * 400 not in second.raw.decode()
    assert "the roof" in second.raw.decode()
    assert '"read_file"' in answer.text
    assert "new_context" not in answer.text
