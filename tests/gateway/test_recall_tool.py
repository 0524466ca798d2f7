"""The `recall` tool that the gateway answers itself: the model reads evicted messages, invisible to the client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import Any

import httpx2
import openai
import pytest
from starlette.responses import JSONResponse
from tests.gateway.clients import SPOKEN, Agent, file
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Asked, Says, ScriptedUpstream, running

from recto.formats import FORMATS as BY_NAME
from recto.formats.openai_chat import CHAT
from recto.formats.streaming import SseReader, sse
from recto.formats.tool_calls import NewToolResult
from recto.gateway._own_tool_rounds import StreamedRounds
from recto.gateway.api_keys import Key
from recto.gateway.request import open_request
from recto.gateway.responses import StreamedResponse
from recto.gateway.session_resolver import SessionHint
from recto.gateway.upstreams.http import UpstreamResponse
from recto.transcript.entries import MESSAGE, Entry, is_hidden

PATHS = {"chat": "chat/completions", "responses": "responses", "messages": "messages"}
FORMATS = tuple(PATHS)
MODEL, WINDOW = "gpt-4o", 8_000
ALONE: dict[str, Any] = {
    "models": {MODEL: {"window": WINDOW}},
    "recall": {"embedder": {"use": "none"}, "inject": False},
    "window": {"record_percent": 0},
}
"""Settings with which only the tool recalls evicted messages."""
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS: dict[str, list[Any]] = {
    "chat": [{"type": "function", "function": {"name": "read_file", "parameters": SCHEMA}}],
    "responses": [{"type": "function", "name": "read_file", "parameters": SCHEMA}],
    "messages": [{"name": "read_file", "input_schema": SCHEMA}],
}
SECRET = "The harbour gate opens with the code 7381-tango."
_NUMBERS = count()


@dataclass
class World:
    """One upstream, and a gateway in front of it for each set of formats and settings."""

    upstream: ScriptedUpstream
    make: Callable[..., Running]

    def gateway(self, *speaks: str, **more: Any) -> Running:
        return self.make(speaks or FORMATS, more)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Iterator[World]:
    with ExitStack() as stack:
        upstream = stack.enter_context(running(ScriptedUpstream(lambda request: Says(text="never"))))
        made: dict[str, Running] = {}

        def make(speaks: tuple[str, ...], more: dict[str, Any]) -> Running:
            name = f"{speaks} {more}"
            if name not in made:
                folder = tmp_path_factory.mktemp("recall")
                made[name] = stack.enter_context(gateway(folder, upstream.url, speaks=speaks, **ALONE, **more))
            return made[name]

        yield World(upstream, make)


@pytest.fixture
def world(built) -> World:
    built.upstream.asked.clear()
    built.upstream.fail = lambda request: None
    built.upstream.answer = lambda request: Says(text="Yes.")
    return built


def says(world: World, *steps: Says) -> None:
    """Scripts the model's responses: the given steps, and then always `Done.`"""
    left = list(steps)
    world.upstream.answer = lambda request: left.pop(0) if left else Says(text="Done.")


def history(exchanges: int = 12) -> list[dict[str, Any]]:
    """Returns a history larger than the window, with a secret near its beginning that no later message repeats."""
    name = f"number {next(_NUMBERS)}"
    messages: list[dict[str, Any]] = []
    for place in range(exchanges):
        words = SECRET if place == 1 else f"Chapter {place} is about boats, sails and weather of {place}. "
        messages.append(
            {"role": "user", "content": f"Chapter {place} of {name}, please. {words} " + "More words. " * 120}
        )
        messages.append({"role": "assistant", "content": f"Chapter {place} is noted. " + "And so on it goes. " * 120})
    return [*messages, {"role": "user", "content": f"Go on with {name}."}]


def body_of(wire: str, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": MODEL,
        "input" if wire == "responses" else "messages": messages,
        "tools": TOOLS[wire],
    }
    if wire == "messages":
        body["max_tokens"] = 500
    if wire == "chat" and more.get("stream"):
        body["stream_options"] = {"include_usage": True}
    return body | more


def ask(gw: Running, wire: str, messages: list[dict[str, Any]], **more: Any) -> httpx2.Response:
    headers = {"authorization": f"Bearer {more.pop('secret', gw.secret)}"}
    url = f"{gw.url}/v1/{PATHS[wire]}"
    return httpx2.post(url, json=body_of(wire, messages, **more), headers=headers, timeout=60)


def format_of(wire: str) -> Any:
    return next(format for format in BY_NAME.values() if format.short_name == wire)


def results_of(wire: str, *results: NewToolResult) -> list[dict[str, Any]]:
    return [json.loads(raw) for raw in format_of(wire).edits.result_messages(results)]


def reply_in(answer: httpx2.Response, wire: str, stream: bool) -> Any:
    """Returns the response as a client assembles it."""
    assert answer.status_code == 200, answer.text
    format = format_of(wire)
    if not stream:
        return format.read_response(answer.text, answer.json())
    capture = format.capture()
    for event in SseReader().feed(answer.content):
        capture.take(event)
    assert capture.ended, answer.text
    assert not capture.failed
    return capture.reply()


def messages_in(reply: Any) -> list[dict[str, Any]]:
    return [json.loads(raw) for raw in reply.messages]


def text_of(reply: Any, wire: str) -> str:
    parts = [part for raw in reply.messages for part in format_of(wire).messages.read(raw).parts]
    return " | ".join(part.text for part in parts if part.kind == "text")


def messages_of(gw: Running, answer: httpx2.Response) -> list[Entry]:
    return [entry for entry in gw.store.read(answer.headers["x-recto-session-id"]) if entry.kind == MESSAGE]


def names_in(request: Asked) -> list[str]:
    return [tool.get("name") or tool["function"]["name"] for tool in request.body["tools"]]


def recall(query: str = "code of the harbour gate") -> tuple[str, dict[str, Any]]:
    return "recall", {"query": query}


def with_answer(wire: str, messages: list[dict[str, Any]], reply: Any, question: str) -> list[dict[str, Any]]:
    """Returns the messages of the next request of a client that sends its history."""
    return [*messages, *messages_in(reply), {"role": "user", "content": question}]


CROSSINGS = [(wire, wire) for wire in FORMATS] + [
    ("chat", "messages"),
    ("messages", "responses"),
    ("responses", "chat"),
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("wire", "speaks"), CROSSINGS)
def test_the_model_reads_evicted_messages_and_the_client_gets_one_response(world, wire, speaks, stream):
    gw, messages = world.gateway(speaks), history()
    says(world, Says(text="Let me look.", calls=(recall(),)), Says(text="It is 7381-tango."))
    answer = ask(gw, wire, messages, stream=stream)
    reply = reply_in(answer, wire, stream)

    first, second = world.upstream.asked
    assert first.problems == second.problems == []
    assert names_in(first) == names_in(second) == ["read_file", "recall"]
    assert "7381-tango" not in first.raw.decode()
    assert "7381-tango" in second.raw.decode()
    assert "call the tool recall" in first.raw.decode()
    assert answer.headers["x-recto-recall-tool"] == "offered"
    # the client gets the text of both rounds, and nothing of the call
    assert " ".join(text_of(reply, wire).replace("|", " ").split()) == "Let me look. It is 7381-tango."
    assert '"recall"' not in answer.text
    assert reply.usage.prompt == first.tokens + second.tokens
    assert reply.usage.output == 14
    # the transcript has what the model sent and received, in order
    stored = messages_of(gw, answer)[len(messages) :]
    assert [is_hidden(entry.meta) for entry in stored][-1] is False
    assert sum(is_hidden(entry.meta) for entry in stored) == 2
    assert sum(b"7381-tango" in entry.content for entry in stored) == 2

    # the next request does not contain the call, continues in the same session, and the model still sees the call
    world.upstream.asked.clear()
    later = ask(gw, wire, with_answer(wire, messages, reply, "And now?"), stream=stream)
    reply_in(later, wire, stream)
    assert later.headers["x-recto-session-id"] == answer.headers["x-recto-session-id"]
    (third,) = world.upstream.asked
    assert third.problems == []
    assert third.raw.count(b"Let me look.") == 1
    assert third.raw.decode().count("It is 7381-tango.") == 1
    assert third.raw.decode().count("code of the harbour gate") == 1
    assert names_in(third) == ["read_file", "recall"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("speaks", ["chat", "messages", "gemini"])
def test_the_items_of_all_rounds_have_different_ids(world, speaks, stream):
    gw, messages = world.gateway(speaks), history()
    says(
        world,
        Says(text="Let me look.", calls=(recall(),)),
        Says(text="Once more.", calls=(recall(),)),
        Says(text="It is 7381-tango.", calls=(("read_file", {"path": "a.txt"}),)),
    )
    client = openai.OpenAI(api_key=gw.secret, base_url=f"{gw.url}/v1", max_retries=0)
    if stream:
        with client.responses.stream(model=MODEL, input=messages, tools=TOOLS["responses"]) as streamed:
            response = streamed.get_final_response()
    else:
        response = client.responses.create(model=MODEL, input=messages, tools=TOOLS["responses"])
    assert response.output_text == "Let me look.Once more.It is 7381-tango."
    assert len({item.id for item in response.output}) == len(response.output) >= 4


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("wire", "speaks"), CROSSINGS)
def test_a_recall_call_along_with_a_client_tool_call_is_answered_in_the_next_request(world, wire, speaks, stream):
    gw, messages = world.gateway(speaks), history()
    says(world, Says(text="Both.", calls=(recall(), ("read_file", {"path": "a.txt"}))))
    answer = ask(gw, wire, messages, stream=stream)
    reply = reply_in(answer, wire, stream)
    calls = [part for raw in reply.messages for part in format_of(wire).messages.read(raw).calls]
    assert [call.name for call in calls] == ["read_file"]
    assert '"recall"' not in answer.text
    assert len(world.upstream.asked) == 1

    results = results_of(wire, NewToolResult(calls[0].call_id, "File a.", calls[0].name))
    later = ask(gw, wire, [*messages, *messages_in(reply), *results], stream=stream)
    reply_in(later, wire, stream)
    assert later.headers["x-recto-session-id"] == answer.headers["x-recto-session-id"]
    second = world.upstream.asked[1]
    assert second.problems == []
    text = second.raw.decode()
    assert "7381-tango" in text
    assert text.count("File a.") == text.count("code of the harbour gate") == 1
    # an edit of the following message opens a branch that keeps the call with its result
    world.upstream.asked.clear()
    other = results_of(wire, NewToolResult(calls[0].call_id, "File b.", calls[0].name))
    branch = ask(gw, wire, [*messages, *messages_in(reply), *other], stream=stream)
    reply_in(branch, wire, stream)
    assert world.upstream.asked[0].problems == []
    assert "7381-tango" in world.upstream.asked[0].raw.decode()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", FORMATS)
def test_a_model_that_only_calls_recall_has_to_answer_after_three_rounds(world, wire, stream):
    gw, messages = world.gateway(), history()
    world.upstream.answer = lambda request: Says(
        text="At last." if (request.body.get("tool_choice") or "auto") in ("none", {"type": "none"}) else "",
        calls=() if request.body.get("tool_choice") in ("none", {"type": "none"}) else (recall(),),
    )
    reply = reply_in(ask(gw, wire, messages, stream=stream), wire, stream)
    assert text_of(reply, wire) == "At last."
    assert len(world.upstream.asked) == 4
    assert all(request.problems == [] for request in world.upstream.asked)
    assert reply.usage.prompt == sum(request.tokens for request in world.upstream.asked)
    # a model that still calls it gets no fifth round, and the client gets a response without calls
    world.upstream.asked.clear()
    world.upstream.answer = lambda request: Says(calls=(recall(),))
    messages = history()
    answer = ask(gw, wire, messages, stream=stream)
    reply = reply_in(answer, wire, stream)
    assert len(world.upstream.asked) == 4
    assert '"recall"' not in answer.text
    assert reply.stop_reason in ("stop", "end_turn", "completed")
    says(world)
    world.upstream.asked.clear()
    reply_in(ask(gw, wire, with_answer(wire, messages, reply, "And?"), stream=stream), wire, stream)
    assert world.upstream.asked[0].problems == []


@pytest.mark.parametrize("wire", FORMATS)
def test_requests_pass_unchanged_until_messages_are_evicted(world, wire):
    gw = world.gateway()
    answer = ask(gw, wire, [{"role": "user", "content": f"Hello {next(_NUMBERS)}"}])
    assert names_in(world.upstream.asked[0]) == ["read_file"]
    assert answer.headers["x-recto-recall-tool"] == "not offered: nothing is evicted yet"
    always = world.gateway(gateway={"recall_tool": "always"})
    answer = ask(always, wire, [{"role": "user", "content": f"Hello {next(_NUMBERS)}"}])
    assert names_in(world.upstream.asked[1]) == ["read_file", "recall"]
    never = world.gateway(gateway={"recall_tool": "never"})
    answer = ask(never, wire, history())
    assert names_in(world.upstream.asked[2]) == ["read_file"]
    assert answer.headers["x-recto-recall-tool"] == "not offered: gateway.recall_tool is never"
    assert b"call the tool" not in world.upstream.asked[2].raw


RESTRICTED: dict[str, list[Any]] = {
    "chat": ["none", {"type": "function", "function": {"name": "read_file"}}],
    "responses": ["none", {"type": "function", "name": "read_file"}],
    "messages": [{"type": "none"}, {"type": "tool", "name": "read_file"}],
}


@pytest.mark.parametrize("wire", FORMATS)
def test_the_tool_is_not_offered_to_clients_that_it_would_confuse_and_the_header_explains_why(world, wire):
    gw = world.gateway()
    own = json.loads(json.dumps(TOOLS[wire]).replace("read_file", "recall"))
    by_mcp = json.loads(json.dumps(TOOLS[wire]).replace("read_file", "mcp__recto__recall"))
    for more, reason in (
        ({"tools": []}, "the request brings no tools"),
        ({"tools": own}, "the client has a tool of this name"),
        ({"tools": by_mcp}, "the client brings Recto's own tools"),
        *(({"tool_choice": choice}, "the request restricts which tool is called") for choice in RESTRICTED[wire]),
        *([({"n": 2}, "the request asks for several answers")] if wire == "chat" else []),
    ):
        world.upstream.asked.clear()
        answer = ask(gw, wire, history(), **more)
        assert answer.headers["x-recto-recall-tool"] == f"not offered: {reason}"
        raw = world.upstream.asked[0].raw.decode()
        assert ("call the tool mcp__recto__recall to look" in raw) is (more.get("tools") == by_mcp)
        assert "call the tool recall" not in raw


@pytest.mark.parametrize("wire", FORMATS)
def test_once_offered_the_tool_stays_so_that_the_cached_prefix_does_not_change(world, wire):
    gw, messages = world.gateway(), history()
    first = ask(gw, wire, messages)
    restricted = with_answer(wire, messages, reply_in(first, wire, False), "In words only.")
    second = ask(gw, wire, restricted, tool_choice=RESTRICTED[wire][0])
    assert second.headers["x-recto-recall-tool"] == "offered"
    raw_before, raw_after = (request.raw for request in world.upstream.asked)
    assert names_in(world.upstream.asked[1]) == ["read_file", "recall"]
    marker = raw_before.index(b"earlier messages")
    assert raw_before[raw_before.rindex(b"{", 0, marker) : marker + 300] in raw_after


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", FORMATS)
def test_after_a_failed_round_the_same_request_continues_in_its_session(world, tmp_path, wire, stream):
    messages = history()
    says(world, Says(text="Let me look.", calls=(recall(),)), Says(text="It is 7381-tango."))
    world.upstream.fail = lambda request: (
        JSONResponse({"error": {"message": "Busy.", "type": "invalid_request_error", "code": "x"}}, 422)
        if len(world.upstream.asked) == 2
        else None
    )
    with gateway(tmp_path, world.upstream.url, **ALONE) as gw:
        failed = ask(gw, wire, messages, stream=stream)
        assert "Busy." in failed.text
        assert "tango" not in failed.text
        assert failed.status_code == (200 if stream else 422)
        session = failed.headers["x-recto-session-id"]
        kinds = [entry.kind for entry in gw.store.read(session)]
        assert "message_refused" not in kinds
    # another process, as after a crash
    with gateway(tmp_path, world.upstream.url, **ALONE) as gw:
        again = ask(gw, wire, messages, stream=stream)
        assert again.headers["x-recto-session-id"] == session
        assert "7381-tango" in text_of(reply_in(again, wire, stream), wire)
        last = world.upstream.asked[-1]
        assert last.problems == []
        assert last.raw.count(b"Let me look.") == 1
        stored = messages_of(gw, again)
        assert len(stored) == len(messages) + sum(is_hidden(entry.meta) for entry in stored) + (
            2 if wire == "responses" else 1
        )


def test_an_entry_is_read_in_parts_and_entries_of_other_agents_and_tenants_are_not_found(world):
    gw = world.gateway()
    long = "".join(f"Line {number} of the log of the ferry. " for number in range(1500))
    messages = history()
    messages[3] = {"role": "assistant", "content": long}
    strangers = [
        ask(gw, "chat", history(), secret=gw.key(**key_fields)) for key_fields in ({"agent": "b"}, {"tenant": "acme"})
    ]
    pointers = [
        f"recto://{name}/{seq}"
        for answer in strangers
        for name in (answer.headers["x-recto-session-id"], f"tenant:acme:{answer.headers['x-recto-session-id']}")
        for seq in (3,)
    ]
    results: list[str] = []

    def answer(request: Asked) -> Says:
        if (text := request.messages[-1].get("content")) and request.messages[-1]["role"] == "tool":
            results.append(text)
        calls: list[dict[str, Any]] = [{"entry": "4"}, {"entry": 4, "part": 2}, {}, {"entry": "999999"}]
        calls += [{"entry": pointer} for pointer in pointers] + [{"query": "no such words anywhere xyzzy"}]
        return Says(calls=(("recall", calls[len(results)]),)) if len(results) < len(calls) else Says(text="Done.")

    world.upstream.answer = answer
    world.upstream.asked.clear()
    while len(results) < 5 + len(pointers):
        reply = reply_in(ask(gw, "chat", messages), "chat", False)
        messages = with_answer("chat", messages, reply, "Go on.")
    assert results[0].startswith("[Quoted from earlier")
    assert "Line 0 of" in results[0]
    assert "(part 1 of " in results[0]
    assert "Line 0 of" not in results[1]
    assert "(part 2 of " in results[1]
    assert results[2].startswith("[recall needs")
    assert "there is nothing at" in results[3]
    for result in results[4:-1]:
        assert "tango" not in result
        assert "there is nothing at" in result or "not a pointer" in result
    assert all(len(result) // 4 < WINDOW // 4 for result in results)


@pytest.mark.parametrize("client", SPOKEN, ids=lambda client: client.__name__)
def test_client_libraries_work_unchanged_streaming_or_not(world, client):
    gw, name = world.gateway(), f"{client.__name__} {next(_NUMBERS)}"
    files = [f"{name}-{number}.txt" for number in range(6)]
    steps = [
        *(Says(text="Reading.", calls=(("read_file", {"path": path}),)) for path in files[:4]),
        Says(text="Let me look.", calls=(recall(f"{files[0]} begins"),)),
        Says(text="", calls=(recall(f"{files[1]} begins"), recall(f"{files[0]} ends"))),
        Says(text="First answer."),
        Says(text="", calls=(recall(f"{files[0]} begins"), ("read_file", {"path": files[4]}))),
        Says(text="", calls=(("read_file", {"path": files[5]}), recall(f"{files[1]} begins"))),
        Says(text="", calls=(recall(f"{files[1]} begins"),)),
        Says(text="Second answer."),
    ]
    left = list(steps)
    world.upstream.answer = lambda request: left.pop(0)
    before = {summary.session for summary in gw.store.sessions()}
    agent = Agent(gw)
    client(agent, [(f"Question one about {name}", False), (f"Question two about {name}", True)])
    assert not left
    assert agent.answers[0] == "First answer." or agent.answers[0].startswith("Let me look.")
    assert agent.answers[0].endswith("First answer.")
    assert agent.answers[1] == "Second answer."
    assert agent.read == files
    assert len(world.upstream.asked) == len(steps)
    for request in world.upstream.asked:
        assert request.problems == []
        assert request.tokens + 500 <= WINDOW
    opened = {summary.session for summary in gw.store.sessions()} - before
    (session,) = [key for key in opened if key.startswith("agent:")]
    stored = [entry for entry in gw.store.read(session) if entry.kind == MESSAGE]
    for path in files:
        assert sum(json.dumps(file(path)) in entry.content.decode() for entry in stored) == 1
    assert sum(is_hidden(entry.meta) for entry in stored if entry.role == "tool") in (5, 6)


def test_after_a_disconnect_in_a_later_round_the_same_request_continues_in_its_session(world):
    gw, messages = world.gateway(), history()
    turns, key = gw.gateway.turns, Key(id="", name="test")
    request = open_request(json.dumps(body_of("chat", messages, stream=True)).encode(), CHAT)
    hint = SessionHint(name="", is_explicit=False)
    turn = turns.begin(key, request, hint)
    closed: list[str] = []

    def answer(name: str, *deltas: dict[str, Any], finish: str) -> UpstreamResponse:
        async def pieces() -> AsyncIterator[bytes]:
            for delta in deltas:
                yield sse(None, json.dumps({"choices": [{"index": 0, "delta": delta}]}))
            yield sse(None, json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}))

        async def close() -> None:
            closed.append(name)

        return UpstreamResponse(status=200, headers=[], pieces=pieces(), close=close)

    call = {"index": 0, "id": "call_1", "function": {"name": "recall", "arguments": '{"query": "harbour gate"}'}}
    first = answer("first", {"content": "Let me look."}, {"tool_calls": [call]}, finish="tool_calls")

    async def ask() -> UpstreamResponse:
        return answer("second", {"content": "It is"}, {"content": " gone."}, finish="stop")

    async def send(message: Any) -> None:
        if b" gone." in message.get("body", b""):
            raise OSError("nobody is there")

    async def receive() -> Any:
        await asyncio.Event().wait()

    rounds = StreamedRounds(turn, turns, ask, lambda: None).response(first)
    streamed = StreamedResponse(turn=turn, turns=turns, answer=rounds, format=format_of("chat"), headers=[])
    asyncio.run(streamed({"type": "http"}, receive, send))
    assert turn.ended
    assert {*closed} == {"first", "second"}
    entries = list(gw.store.read(turn.resolved.key))
    stored = [entry for entry in entries if entry.kind == MESSAGE]
    assert [is_hidden(entry.meta) for entry in stored[len(messages) :]] == [True, True]
    assert entries[-1].kind == "reply_cut"
    again = turns.begin(key, request, hint)
    turns.end(again)
    assert again.resolved.key == turn.resolved.key
    assert again.resolved.new_messages == ()
    assert "7381-tango" in again.body.decode()
    # text that the tool quoted is not found as a message of its own
    with gw.gateway.sessions.use(key, again.resolved.name, MODEL) as session:
        found = {hit.seq for hit in session.recall("harbour gate code tango", most=20).hits}
    assert found
    assert found.isdisjoint(entry.seq for entry in stored[len(messages) :])
