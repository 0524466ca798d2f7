"""Clients of Gemini's API through the gateway: model names in paths, both kinds of streams, and error responses."""

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
    with running(ScriptedUpstream(lambda request: Says(text="Yes, of course."))) as found:
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
    entries = [
        entry for summary in gw.store.sessions() for entry in gw.store.read(summary.session) if entry.kind == MESSAGE
    ]
    return [json.loads(entry.content) for entry in entries if entry.wire == GEMINI]


@pytest.mark.parametrize("root", ["v1beta", "v1", "v1alpha"])
def test_a_question_is_answered_and_both_messages_are_stored_unchanged(gw, upstream, root):
    question = {
        "role": "user",
        "parts": [{"text": "Who am I?"}, {"inline_data": {"mime_type": "text/x", "data": "eA=="}}],
    }
    answer = post(gw, [question], root=root, system_instruction={"parts": [{"text": "Be kind."}]}, vendor_note=3)
    assert content_of(answer) == {"parts": [{"text": "Yes, of course."}], "role": "model"}
    (request,) = upstream.asked
    assert not request.problems
    assert (
        request.raw
        == json.dumps(
            {"contents": [question], "systemInstruction": {"parts": [{"text": "Be kind."}]}, "vendor_note": 3},
            separators=(",", ":"),
        ).encode()
    )
    assert request.headers["x-goog-api-key"] == "sk-upstream"
    assert request.body["model"] == MODEL
    assert messages(gw) == [question, content_of(answer)]
    assert answer.headers["x-recto-session-id"]


def test_a_key_in_the_query_is_accepted_and_not_passed_on(gw, upstream):
    answer = post(gw, [user("Hello?")], query=f"?key={gw.secret}&prettyPrint=false", headers={})
    assert answer.status_code == 200
    assert gw.secret not in str(upstream.asked[0].headers)
    refused = post(gw, [user("Hello?")], headers={"x-goog-api-key": "rk-wrong"})
    assert refused.status_code == 401
    assert refused.json()["error"]["status"] == "UNAUTHENTICATED"


@pytest.mark.parametrize("query", ["?alt=sse", ""])
def test_a_stream_is_sent_as_events_or_as_an_array_and_is_stored_whole(gw, upstream, query):
    upstream.answer = lambda request: Says(text="One two three four five.", calls=(("read_file", {"path": "a"}),))
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


def test_a_rewritten_history_stays_in_its_session(gw, upstream):
    first = post(gw, [user("Begin.")])
    reply = content_of(first)
    second = post(gw, [user("Begin."), reply, user("Go on.")])
    # a client of streams sends every chunk back as a content of its own, without thoughts, and may leave out the role
    pieces = [{"role": "model", "parts": [{"text": piece}]} for piece in ("Yes, ", "of course.")]
    begin = {"parts": [{"text": "Begin."}]}
    third = post(gw, [begin, *pieces, user("Go on."), *pieces, user("And now?")])
    sessions = {answer.headers["x-recto-session-id"] for answer in (first, second, third)}
    assert len(sessions) == 1
    assert [content["parts"][0]["text"] for content in messages(gw)] == [
        "Begin.",
        "Yes, of course.",
        "Go on.",
        "Yes, of course.",
        "And now?",
        "Yes, of course.",
    ]


@pytest.mark.parametrize("ids", [True, False])
def test_a_long_tool_loop_stays_bounded_valid_and_signed(tmp_path, upstream, ids):
    def answer(request: Asked) -> Says:
        done = len(request.messages)
        return Says(calls=(("read_file", {"path": f"{done}.txt"}), ("read_file", {"path": f"{done}.md"})))

    upstream.answer, upstream.gives_ids = answer, ids  # older models give none
    models = {MODEL: {"window": 9_000, "max_output": 500}}
    with gateway(tmp_path, upstream.url, speaks=("gemini",), models=models) as gw:
        contents = [user("Read everything.")]
        for step in range(25):
            reply = content_of(post(gw, contents, tools=TOOLS))
            calls = [part["functionCall"] for part in reply["parts"]]
            # Gemini CLI makes ids for results of calls that have none
            made = [{"id": call.get("id", f"read_file-1700000000{step}-{n}")} for n, call in enumerate(calls)]
            results = [
                {"functionResponse": {**id, "name": call["name"], "response": {"output": f"{call['args']} " * 90}}}
                for id, call in zip(made, calls, strict=True)
            ]
            contents += [reply, {"role": "user", "parts": results}]
        assert [request.problems for request in upstream.asked] == [[]] * 25
        assert max(request.tokens for request in upstream.asked) < 9_000
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
    upstream.fail = lambda request: JSONResponse({"error": {"code": 429, "message": "slow", "status": "X"}}, 429)
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
        reply = {"role": "model", "parts": [{"text": "Noted. " * 40}]}
        contents = [content for n in range(90) for content in (user(f"Part {n}. " + "words and words " * 30), reply)]
        answer = post(gw, [*contents, user("And?")])
        assert answer.status_code == 200, answer.text
        assert [request.tokens <= 8_000 for request in upstream.asked] == [False, True]
        assert problems([json.dumps(content).encode() for content in upstream.asked[-1].messages], GEMINI) == []


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
    (session,) = [summary.session for summary in gw.store.sessions() if messages_in(gw, summary.session)]
    (reported,) = [json.loads(entry.content) for entry in gw.store.read(session) if entry.kind == "usage_reported"]
    assert reported["output"] == 10


CROSSINGS = {
    "chat": ("v1/chat/completions", lambda history: {"messages": history}),
    "responses": ("v1/responses", lambda history: {"input": history}),
    "messages": ("v1/messages", lambda history: {"messages": history, "max_tokens": 50}),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("speaks", CROSSINGS)
def test_a_client_of_gemini_talks_to_an_upstream_of_another_format(tmp_path, speaks, stream):
    def answer(request: Asked) -> Says:
        return Says(text="Done.") if len(request.messages) > 2 else Says(calls=(("read_file", {"path": "a"}),))

    method, query = ("streamGenerateContent", "?alt=sse") if stream else ("generateContent", "")

    def parts_of(answer: httpx2.Response) -> list[dict[str, Any]]:
        assert answer.status_code == 200, answer.text
        lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
        chunks = [json.loads(line) for line in lines] if stream else [answer.json()]
        assert chunks[-1]["candidates"][0]["finishReason"] == "STOP"
        assert chunks[-1]["usageMetadata"]["promptTokenCount"] > 0 or speaks == "chat"
        return [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]

    with running(ScriptedUpstream(answer)) as upstream, gateway(tmp_path, upstream.url, speaks=(speaks,)) as gw:
        more = {"tools": TOOLS, "systemInstruction": {"parts": [{"text": "Be kind."}]}, "model": "gpt-4o"}
        config = {"temperature": 0.5, "maxOutputTokens": 100}
        parts = parts_of(post(gw, [user("Read a.")], method, query=query, generationConfig=config, **more))
        call = next(part["functionCall"] for part in parts if "functionCall" in part)
        assert (call["name"], call["args"]) == ("read_file", {"path": "a"})
        result = {"functionResponse": {"id": call["id"], "name": "read_file", "response": {"output": "words"}}}
        reply_parts = [part for part in parts if part != {"text": ""}]
        contents = [user("Read a."), {"role": "model", "parts": reply_parts}, {"role": "user", "parts": [result]}]
        parts = parts_of(post(gw, contents, method, query=query, **more))
        assert "".join(part.get("text", "") for part in parts) == "Done."
        assert [request.problems for request in upstream.asked] == [[], []]
        assert "words" in upstream.asked[-1].raw.decode()
        assert "Be kind." in upstream.asked[-1].raw.decode()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", CROSSINGS)
def test_a_client_of_another_format_talks_to_gemini(tmp_path, upstream, wire, stream):
    path, body = CROSSINGS[wire]
    with gateway(tmp_path, upstream.url, speaks=("gemini",)) as gw:
        payload = {"model": "gemini-3-pro", **body([{"role": "user", "content": "Hello?"}]), "stream": stream}
        answer = httpx2.post(f"{gw.url}/{path}", json=payload, headers={"authorization": f"Bearer {gw.secret}"})
        assert answer.status_code == 200, answer.text
        assert not upstream.asked[0].problems
        stored = [entry for summary in gw.store.sessions() for entry in gw.store.read(summary.session)]
        replies = [json.loads(entry.content) for entry in stored if entry.kind == MESSAGE and entry.role == "assistant"]
        assert [str(reply).count("Yes, of course.") for reply in replies] == [1]
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
    """Returns the text of a response and the messages that the client sends next: the calls, and a result for each."""
    if stream:
        deltas = [chunk["choices"][0]["delta"] for chunk in events(answer) if chunk["choices"]]
        text = "".join(delta.get("content") or "" for delta in deltas)
        calls: dict[int, dict[str, Any]] = {}
        for delta_call in (delta_call for delta in deltas for delta_call in delta.get("tool_calls", [])):
            call = calls.setdefault(
                delta_call["index"], {"type": "function", "function": {"name": "", "arguments": ""}}
            )
            call |= {"id": delta_call["id"]} if delta_call.get("id") else {}
            for name, piece in delta_call["function"].items():
                call["function"][name] += piece or ""
        called = list(calls.values())
    else:
        message = answer.json()["choices"][0]["message"]
        text, called = message.get("content") or "", message.get("tool_calls", [])
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": f"words of {call['function']['arguments']}"}
        for call in called
    ]
    return text, [{"role": "assistant", "content": text or None, "tool_calls": called}, *results]


def loop_of_responses(answer: httpx2.Response, stream: bool) -> tuple[str, list[dict[str, Any]]]:
    response = events(answer)[-1]["response"] if stream else answer.json()
    text = "".join(part["text"] for item in response["output"] for part in item.get("content", []))
    called = [item for item in response["output"] if item["type"] == "function_call"]
    results = [
        {"type": "function_call_output", "call_id": call["call_id"], "output": f"words of {call['arguments']}"}
        for call in called
    ]
    return text, [*response["output"], *results]


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
    text = "".join(block.get("text", "") for block in blocks)
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": f"words of {json.dumps(block['input'])}"}
        for block in blocks
        if block["type"] == "tool_use"
    ]
    return text, [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]


LOOPS = {"chat": loop_of_chat, "responses": loop_of_responses, "messages": loop_of_messages}


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", CROSSINGS)
def test_the_tools_of_a_client_of_another_format_are_called_by_gemini(tmp_path, upstream, wire, stream, ids):
    def answer(payload: Asked) -> Says:
        step = sum("functionCall" in str(message) for message in payload.messages)
        if step == 2:
            return Says(text="Both are read.")
        return Says(text="Let me see.", calls=tuple(("read_file", {"path": f"{step}{name}.txt"}) for name in "ab"))

    upstream.answer, upstream.gives_ids = answer, ids
    path, body = CROSSINGS[wire]
    with gateway(tmp_path, upstream.url, speaks=("gemini",)) as gw:
        history: list[dict[str, Any]] = [{"role": "user", "content": "Read the files."}]
        for step in range(3):
            payload = {"model": "gemini-3-pro", **body(history), "stream": stream, "tools": OFFERED[wire]}
            got = httpx2.post(f"{gw.url}/{path}", json=payload, headers={"authorization": f"Bearer {gw.secret}"})
            assert got.status_code == 200, got.text
            text, more = LOOPS[wire](got, stream)
            assert text == ("Let me see." if step < 2 else "Both are read.")
            history += more
        assert [request.problems for request in upstream.asked] == [[]] * 3
        assert "read_file" in str(upstream.asked[0].body["tools"])
        parts = [part for content in upstream.asked[-1].messages for part in content["parts"]]
        calls = [part["functionCall"]["args"]["path"] for part in parts if "functionCall" in part]
        results = [str(part["functionResponse"]["response"]) for part in parts if "functionResponse" in part]
        assert calls == ["0a.txt", "0b.txt", "1a.txt", "1b.txt"]
        assert all(name in result and "words of" in result for name, result in zip(calls, results, strict=True))
        sessions = {summary.session for summary in gw.store.sessions() if messages_in(gw, summary.session)}
        assert len(sessions) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_model_requests_a_new_window_and_continues_its_task(tmp_path, upstream, stream):
    steps = [Says(calls=(("new_context", {"plan": ["the roof"]}),)), Says(calls=(("read_file", {"path": "a"}),))]
    upstream.answer = lambda request: steps.pop(0)
    contents = [user("Build the house."), {"role": "model", "parts": [{"text": "The walls are up. " * 400}]}]
    contents += [user("Go on."), {"role": "model", "parts": [{"text": "Done."}]}, user("And the roof?")]
    settings = {"gateway": {"new_windows": True}, "models": {MODEL: {"window": 16_000}}}
    with gateway(tmp_path, upstream.url, speaks=("gemini",), **settings) as gw:
        method, query = ("streamGenerateContent", "?alt=sse") if stream else ("generateContent", "")
        answer = post(gw, contents, method, query=query, tools=TOOLS)
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
