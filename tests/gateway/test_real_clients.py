"""The real client libraries work against the gateway unchanged, over HTTP, streaming and not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from starlette.responses import JSONResponse
from tests.gateway.clients import MODEL, PARAMETERS, SPOKEN, TOOL_DESCRIPTION, Agent, file
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Asked, Says, ScriptedUpstream, running

from recto.transcript.entries import MESSAGE

WINDOW = 8_000
FORMATS = ("chat", "responses", "messages")


@dataclass
class World:
    """One upstream, and a gateway in front of it for each set of formats."""

    upstream: ScriptedUpstream
    folder: Path
    stack: ExitStack
    steps: list[Says] = field(default_factory=list)
    _gateways: dict[tuple[str, ...], Running] = field(default_factory=dict)

    def gateway(self, *speaks: str) -> Running:
        if speaks not in self._gateways:
            folder = self.folder / "-".join(speaks)
            folder.mkdir()
            made = gateway(folder, self.upstream.url, speaks=speaks, models={MODEL: {"window": WINDOW}})
            self._gateways[speaks] = self.stack.enter_context(made)
        return self._gateways[speaks]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Iterator[World]:
    with ExitStack() as stack:
        upstream = ScriptedUpstream(lambda request: Says(text="never"))
        stack.enter_context(running(upstream))
        yield World(upstream, tmp_path_factory.mktemp("clients"), stack)


@pytest.fixture
def world(built) -> World:
    """The world that all tests share, without recorded requests or scripted steps."""
    built.upstream.asked.clear()
    built.upstream.fail = lambda request: None
    built.upstream.answer = lambda request: built.steps.pop(0) if built.steps else Says(text="Yes.")
    built.steps.clear()
    return built


@dataclass
class Story:
    """A script of the model: for each question it reads files, two of them at once, and then answers."""

    steps: list[Says] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)


def story(name: str, questions: int, reads: int) -> Story:
    result = Story()
    for question in range(questions):
        for read in range(reads):
            paths = [f"{name}-{len(result.files) + more}.txt" for more in range(2 if read == 1 else 1)]
            result.files += paths
            words = "I read two files at once." if read == 1 else ""
            result.steps.append(Says(text=words, calls=tuple(("read_file", {"path": path}) for path in paths)))
        result.answers.append(f"Answer {question} of {name}: “schön” \\ \n done.")
        result.steps.append(Says(text=result.answers[-1]))
    return result


def run_story(world: World, gw: Running, client: Callable[..., None], expected: Story, *streams: bool) -> None:
    """Runs an agent through a story and checks its answers, the upstream's requests and the transcript."""
    before = {summary.session for summary in gw.store.sessions()}
    world.steps += expected.steps
    agent = Agent(gw)
    client(agent, [(f"Question {number} about {expected.files[0]}", stream) for number, stream in enumerate(streams)])

    assert agent.answers == expected.answers
    assert sorted(agent.read) == sorted(expected.files)  # parallel calls may run in any order
    assert len(world.upstream.asked) == len(expected.steps)
    for number, request in enumerate(world.upstream.asked):
        assert request.problems == []
        assert request.tokens + 500 <= WINDOW
        assert request.headers["x-api-key" if request.wire == "anthropic.messages" else "authorization"].endswith(
            "sk-upstream"
        )
        assert gw.secret not in json.dumps(request.headers)
        assert bool(request.body.get("stream")) is streams[number * len(streams) // len(expected.steps)]

    opened = {summary.session for summary in gw.store.sessions()} - before
    sessions = [name for name in opened if name.startswith("agent:")]
    assert len(sessions) == 1, "the whole story is one session"
    stored = [json.loads(entry.content) for entry in gw.store.read(sessions[0]) if entry.kind == MESSAGE]
    spoken = [json.dumps(message, ensure_ascii=False) for message in stored]
    for number, answer in enumerate(expected.answers):
        assert sum(json.dumps(answer, ensure_ascii=False)[1:-1] in text for text in spoken) == 1
        assert sum(f"Question {number} about" in text for text in spoken) == 1
    for path in expected.files:
        assert sum(file(path) in text for text in spoken) == 1
    assert sum(len(text) for text in spoken) // 4 > WINDOW


@pytest.mark.parametrize("client", SPOKEN, ids=lambda client: client.__name__)
def test_an_agent_works_unchanged_past_its_window_streaming_or_not(world, client):
    expected = story(client.__name__, questions=2, reads=3)
    run_story(world, world.gateway(*FORMATS), client, expected, False, True)
    history = sum(len(file(path)) for path in expected.files) // 4
    assert history > 2.5 * WINDOW
    assert {request.wire.rpartition(".")[2] for request in world.upstream.asked} == {SPOKEN[client]}


CROSSED = [
    pytest.param(client, other, FORMATS.index(other) > FORMATS.index(own), id=f"{client.__name__}-on-{other}")
    for client, own in SPOKEN.items()
    for other in FORMATS
    if other != own
]


@pytest.mark.parametrize(("client", "speaks", "stream"), CROSSED)
def test_an_agent_works_with_a_model_that_speaks_another_format(world, client, speaks, stream):
    expected = story(f"{client.__name__}-on-{speaks}", questions=1, reads=2)
    run_story(world, world.gateway(speaks), client, expected, stream)
    assert {request.wire.rpartition(".")[2] for request in world.upstream.asked} == {speaks}


def openai_client(gw: Running, secret: str = "") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{gw.url}/v1", api_key=secret or gw.secret, max_retries=0)


def anthropic_client(gw: Running, secret: str = "") -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=gw.url, api_key=secret or gw.secret, max_retries=0)


def ask(gw: Running, wire: str, text: str, *, secret: str = "", **more: Any) -> Any:
    """Asks a question with the library of a format and returns the raw response."""
    messages: list[Any] = [{"role": "user", "content": text}]
    if wire == "chat":
        with openai_client(gw, secret) as client:
            return client.chat.completions.with_raw_response.create(model=MODEL, messages=messages, **more)
    if wire == "responses":
        with openai_client(gw, secret) as client:
            return client.responses.with_raw_response.create(model=MODEL, input=messages, **more)
    with anthropic_client(gw, secret) as other:
        return other.messages.with_raw_response.create(model=MODEL, messages=messages, max_tokens=500, **more)


TOOLS: dict[str, list[Any]] = {
    "chat": [
        {
            "type": "function",
            "function": {"name": "read_file", "description": TOOL_DESCRIPTION, "parameters": PARAMETERS},
        }
    ],
    "responses": [{"type": "function", "name": "read_file", "description": TOOL_DESCRIPTION, "parameters": PARAMETERS}],
    "messages": [{"name": "read_file", "description": TOOL_DESCRIPTION, "input_schema": PARAMETERS}],
}


@pytest.mark.parametrize("speaks", FORMATS)
@pytest.mark.parametrize("wire", FORMATS)
def test_headers_report_the_prompt_and_usage_is_the_upstreams_own(world, wire, speaks):
    gw = world.gateway(speaks)
    answer = ask(gw, wire, f"who counts, {wire} and {speaks}?", tools=TOOLS[wire])
    room = int(answer.headers["x-recto-tokens"].split("/")[1])
    assert answer.headers["x-recto-session-id"].startswith("agent:default:")
    assert 0 < int(answer.headers["x-recto-tokens"].split("/")[0]) <= room < WINDOW
    assert answer.headers["x-recto-decisions"] == "none"
    assert answer.headers["x-recto-recall"] == "0"
    usage = answer.parse().usage
    counted = world.upstream.asked[-1].tokens
    if wire == "chat":
        assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (counted, 7, counted + 7)
    else:
        assert (usage.input_tokens, usage.output_tokens) == (counted, 7)


def test_headers_name_the_decisions_of_a_prompt_that_was_relieved(world):
    gw = world.gateway(*FORMATS)
    history: list[Any] = []
    for number in range(6):
        history += [
            {"role": "user", "content": f"Tell me of {number}"},
            {"role": "assistant", "content": file(f"relieved-{number}")},
        ]
    history.append({"role": "user", "content": "And now?"})
    with openai_client(gw) as client:
        raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=history)
    decisions = [int(seq) for seq in raw.headers["x-recto-decisions"].split(",")]
    kinds = {entry.kind for seq in decisions for entry in gw.store.read(raw.headers["x-recto-session-id"], seq, seq)}
    assert kinds == {"context_window_pruned"}
    assert len(world.upstream.asked[-1].messages) < len(history)


def test_a_thread_is_refused_so_that_the_library_sends_its_whole_history(world):
    gw = world.gateway(*FORMATS)
    with anthropic_client(gw) as client, pytest.raises(anthropic.BadRequestError) as caught:
        client.beta.messages.create(
            model=MODEL,
            max_tokens=10,
            messages=[{"role": "user", "content": "hold this"}],
            thread={"type": "create"},
            betas=["message-threads-2026-08-12"],
        )
    error: Any = caught.value.body
    assert error["error"]["type"] == "invalid_request_error"
    assert error["error"]["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    assert world.upstream.asked == []


def test_a_prompt_is_counted_before_it_is_sent_and_nothing_is_stored(world):
    gw = world.gateway(*FORMATS)
    before = len(gw.store.sessions())
    words = "one two three four five six seven eight nine ten " * 20
    with anthropic_client(gw) as client:
        few = client.messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": "hello"}])
        many = client.messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": words}], system="Be.")
    with openai_client(gw) as other:
        same = other.responses.input_tokens.count(model=MODEL, input=words, instructions="Be.")
    assert 0 < few.input_tokens < 20
    assert 200 <= many.input_tokens < 300
    assert same.object == "response.input_tokens"
    assert abs(same.input_tokens - many.input_tokens) < 10
    assert len(gw.store.sessions()) == before
    assert world.upstream.asked == []


def test_a_history_longer_than_the_window_is_never_counted_above_it(world):
    with anthropic_client(world.gateway(*FORMATS)) as client:
        history = [{"role": role, "content": file("x")} for _ in range(5) for role in ("user", "assistant")]
        found = client.messages.count_tokens(model=MODEL, messages=[*history, {"role": "user", "content": "so?"}])  # type: ignore[arg-type]
    assert found.input_tokens <= WINDOW


@pytest.mark.parametrize("speaks", FORMATS)
def test_a_response_can_be_continued_by_its_id_even_if_the_upstream_does_not_speak_responses(world, speaks):
    gw = world.gateway(speaks)
    world.steps += [Says(text="I will."), Says(text="The milk.")]
    with openai_client(gw) as client:
        first = client.responses.create(model=MODEL, input=f"Remember the milk, {speaks}.", tools=TOOLS["responses"])
        second = client.responses.create(model=MODEL, input="What?", previous_response_id=first.id)
    assert (first.output_text, second.output_text) == ("I will.", "The milk.")
    assert first.id != second.id
    sent = json.dumps(world.upstream.asked[-1].messages)
    assert f"Remember the milk, {speaks}." in sent
    assert "I will." in sent
    assert len(world.upstream.asked[-1].messages) == 3
    assert world.upstream.asked[-1].problems == []


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_conversation_is_stored_and_can_be_read(world, stream):
    gw = world.gateway(*FORMATS)
    world.steps += [Says(text="Hello Ada."), Says(text="Ada.")]
    with openai_client(gw) as client:
        begun = client.conversations.create(
            metadata={"topic": "names"}, items=[{"type": "message", "role": "user", "content": "I am Ada."}]
        )
        for text in ("Greet me.", "Who am I?"):
            if stream:
                with client.responses.stream(model=MODEL, input=text, conversation=begun.id) as events:
                    events.get_final_response()
            else:
                client.responses.create(model=MODEL, input=text, conversation=begun.id)
        assert client.conversations.retrieve(begun.id).metadata == {"topic": "names"}
        first = client.conversations.items.list(begun.id, order="asc", limit=2)
        items: list[Any] = list(first)  # the library turns the pages itself
        newest = client.conversations.items.list(begun.id, limit=1).data
        with pytest.raises(openai.NotFoundError):
            client.conversations.retrieve("conv_of_nobody")
    texts = [item.content if isinstance(item.content, str) else item.content[0].text for item in items]
    assert texts == ["I am Ada.", "Greet me.", "Hello Ada.", "Who am I?", "Ada."]
    assert newest[0].id == items[-1].id
    assert len(world.upstream.asked[-1].messages) == 4
    assert "conversation" not in world.upstream.asked[-1].body


def test_models_are_listed_in_the_shape_that_each_library_expects(world):
    gw = world.gateway(*FORMATS)
    with openai_client(gw) as client:
        assert [model.id for model in client.models.list()] == [MODEL]
    with anthropic_client(gw) as other:
        listed = list(other.models.list())
    assert [(model.id, model.type) for model in listed] == [(MODEL, "model")]


def test_a_window_that_the_settings_name_is_never_widened_by_what_an_upstream_lists(world):
    gw = world.gateway(*FORMATS)
    with openai_client(gw) as client:
        client.models.list()  # the upstream says 128,000 there
    answer = ask(gw, "chat", "how much room is there after the list?", tools=TOOLS["chat"])
    assert int(answer.headers["x-recto-tokens"].split("/")[1]) < WINDOW


def test_embeddings_of_the_upstream_are_returned_in_the_requested_encoding(world):
    with openai_client(world.gateway(*FORMATS)) as client:
        packed = client.embeddings.create(model="text-embedding-3-small", input=["one", "two"])
        plain = client.embeddings.create(model="text-embedding-3-small", input="one", encoding_format="float")
    assert [item.embedding for item in packed.data] == [[0.5, 0.5], [0.5, 0.5]]
    assert plain.data[0].embedding == [0.5, 0.5]


def refused(world: World, wire: str, speaks: str = "", text: str = "hello?", **more: Any) -> Any:
    """Returns the exception that the library of a format raises."""
    gw = world.gateway(speaks) if speaks else world.gateway(*FORMATS)
    with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as caught:
        ask(gw, wire, text, tools=TOOLS[wire], **more)
    return caught.value


def kind_and_code(error: Any, wire: str) -> tuple[str, str, str]:
    """Returns the exception's class, type and code."""
    body: Any = error.body
    if wire == "messages":
        assert body["type"] == "error"
        return type(error).__name__, body["error"]["type"], body["error"].get("details", {}).get("error_code", "")
    return type(error).__name__, error.type, error.code


@pytest.mark.parametrize("wire", FORMATS)
def test_a_wrong_key_is_an_authentication_error(world, wire):
    error = refused(world, wire, secret="not-a-key-of-ours")
    assert kind_and_code(error, wire) == ("AuthenticationError", "authentication_error", "invalid_api_key")
    assert world.upstream.asked == []


@pytest.mark.parametrize("wire", FORMATS)
def test_a_message_that_cannot_fit_is_an_overflow_with_the_message_that_clients_parse(world, wire):
    error = refused(world, wire, text="so many words " * 5_000)
    assert kind_and_code(error, wire) == ("BadRequestError", "invalid_request_error", "context_length_exceeded")
    assert ("prompt is too long: " if wire == "messages" else "maximum context length is ") in str(error)
    assert world.upstream.asked == []


@pytest.mark.parametrize("wire", FORMATS)
def test_a_malformed_request_is_refused_and_not_sent(world, wire):
    error = refused(world, wire, extra_body={"input" if wire == "responses" else "messages": 7})
    assert kind_and_code(error, wire) == ("BadRequestError", "invalid_request_error", "malformed_request")
    assert world.upstream.asked == []


@pytest.mark.parametrize("wire", FORMATS)
def test_a_model_without_an_upstream_is_not_found(world, wire):
    gw = world.gateway(*FORMATS)
    error = refused(world, wire, secret=gw.key(upstream="elsewhere"))
    assert kind_and_code(error, wire) == ("NotFoundError", "not_found_error", "not_found")
    assert error.request_id.startswith("req_")


LIMITED = {
    "chat": {"error": {"message": "Slow down.", "type": "requests", "param": None, "code": "rate_limit_exceeded"}},
    "responses": {"error": {"message": "Slow down.", "type": "requests", "param": None, "code": "rate_limit_exceeded"}},
    "messages": {"type": "error", "error": {"type": "rate_limit_error", "message": "Slow down."}},
}


@pytest.mark.parametrize("speaks", FORMATS)
@pytest.mark.parametrize("wire", FORMATS)
def test_the_retry_time_of_a_busy_upstream_is_passed_on(world, wire, speaks):
    headers = {"retry-after": "7", "x-request-id": "req_of_theirs", "x-ratelimit-remaining-requests": "0"}
    world.upstream.fail = lambda request: JSONResponse(LIMITED[speaks], 429, headers)
    error = refused(world, wire, speaks, f"busy {wire} {speaks}")
    assert type(error).__name__ == "RateLimitError"
    assert error.response.headers["retry-after"] == "7"
    assert "Slow down." in str(error)
    if wire == speaks:
        assert error.response.json() == LIMITED[speaks]
        assert error.response.headers["x-request-id"] == "req_of_theirs"
        assert error.response.headers["x-ratelimit-remaining-requests"] == "0"


@pytest.mark.parametrize("speaks", FORMATS)
@pytest.mark.parametrize("wire", FORMATS)
def test_an_upstream_failure_is_a_server_error_and_the_question_is_stored(world, wire, speaks):
    def broken(request: Asked) -> JSONResponse:
        return JSONResponse({"error": {"message": "Something broke."}}, 500)

    world.upstream.fail = broken
    error = refused(world, wire, speaks, f"broken {wire} {speaks}")
    assert type(error).__name__ == "InternalServerError"
    assert "Something broke." in str(error)
    gw, session = world.gateway(speaks), error.response.headers["x-recto-session-id"]
    kinds = [entry.kind for entry in gw.store.read(session)]
    assert kinds.count(MESSAGE) == 1
    assert "upstream_failed" in kinds
