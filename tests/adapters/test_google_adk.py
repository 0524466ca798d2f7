"""Google ADK's runner with a scripted model: the session keeps all events, the model gets a working set."""

from __future__ import annotations

import asyncio
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE, Popen
from typing import Any

import pytest
from bench.adapters.scenario import batch_of
from bench.adapters.scenario import look_up as look_up_shelf
from bench.adapters.scripted_google_adk import Scripted, seen
from tests.adapters.judging import (
    NAMES,
    Script,
    assert_prompts_fit,
    has_fact,
    page_example,
    question_about,
    stored_messages,
    text_of,
)
from tests.environments import ROOT

import recto
from recto.errors import StoreError

warnings.simplefilter("ignore")
from google import genai  # noqa: E402  # it warns about its own modules
from google.adk.agents import LlmAgent  # noqa: E402  # it warns about its own modules
from google.adk.agents.run_config import RunConfig, StreamingMode  # noqa: E402
from google.adk.apps.app import App  # noqa: E402
from google.adk.models.llm_response import LlmResponse  # noqa: E402
from google.adk.runners import InMemoryRunner, Runner  # noqa: E402
from google.adk.sessions.sqlite_session_service import SqliteSessionService  # noqa: E402
from google.genai import errors, types  # noqa: E402

from recto.adapters.google_adk import (  # noqa: E402
    ContentsReader,
    RectoPlugin,
    read,
)

SYSTEM = "You look after a warehouse."


def look_up(shelf: str) -> str:
    """Looks up everything that is known about a shelf."""
    return look_up_shelf(shelf)


def agent_with(script: Script, **more: Any) -> LlmAgent:
    return LlmAgent(name="keeper", model=Scripted(script=script, **more), instruction=SYSTEM, tools=[look_up])


def runner_with(agent: LlmAgent, plugin: RectoPlugin, service: Any = None) -> Runner:
    app = App(name="shop", root_agent=agent, plugins=[plugin])
    return Runner(app=app, session_service=service) if service else InMemoryRunner(app=app)


async def ask(runner: Runner, text: str, session: str = "one", user: str = "u", streamed: bool = False) -> str:
    where = {"app_name": "shop", "user_id": user, "session_id": session}
    if await runner.session_service.get_session(**where) is None:
        await runner.session_service.create_session(**where)
    config = RunConfig(streaming_mode=StreamingMode.SSE if streamed else StreamingMode.NONE)
    message = types.Content(role="user", parts=[types.Part(text=text)])
    last = ""
    async for event in runner.run_async(user_id=user, session_id=session, new_message=message, run_config=config):
        if event.content and event.content.parts and event.content.parts[-1].text:
            last = event.content.parts[-1].text
    return last


async def talk(runner: Runner, turns: int, **where: Any) -> None:
    for turn in range(turns):
        await ask(runner, f"Task {turn}: check the next shelves.", **where)


async def events_of(runner: Runner, session: str = "one", user: str = "u") -> list[types.Content]:
    record = await runner.session_service.get_session(app_name="shop", user_id=user, session_id=session)
    return [event.content for event in record.events if event.content]


def comparable(messages: list[dict[str, Any]]) -> list[tuple[str, str, list[str]]]:
    """The parts of messages that both formats share."""
    called = [[call["function"]["arguments"] for call in message.get("tool_calls", ())] for message in messages]
    return [(message["role"], text_of(message), calls) for message, calls in zip(messages, called, strict=True)]


@pytest.mark.parametrize(("streamed", "names_calls"), [(False, False), (True, True)])
def test_a_long_conversation_fits_and_events_and_transcript_are_complete(streamed, names_calls):
    script = Script()
    plugin = RectoPlugin("memory:", **NAMES)
    runner = runner_with(agent_with(script, names_calls=names_calls), plugin)

    async def check() -> None:
        await talk(runner, 14, streamed=streamed)
        assert_prompts_fit(script.prompts)
        assert all(prompt[0]["content"].startswith(SYSTEM) for prompt in script.prompts)
        session = plugin.conversations.of("shop/u/one").session
        assert comparable(seen(await events_of(runner))) == comparable(stored_messages(session))
        assert len(stored_messages(session)) == 14 * 7
        assert session.key == "agent:default:shop/u/one"
        assert session.report().left_messages > 0
        assert session.verify().ok
        assert not has_fact(script.prompts[-1], script.shelves[0])
        await ask(runner, question_about(script.shelves[0]))
        assert has_fact(script.prompts[-1], script.shelves[0])

    asyncio.run(check())


def test_another_process_resumes_and_users_with_the_same_session_id_do_not_mix(tmp_path):
    script = Script()

    async def both() -> None:
        plugin = RectoPlugin(tmp_path / "a.db", **NAMES)
        runner = runner_with(agent_with(script), plugin, SqliteSessionService(str(tmp_path / "own.db")))
        await asyncio.gather(*(talk(runner, 4, user=user) for user in ("u", "v")))
        for user in ("u", "v"):
            session = plugin.conversations.of(f"shop/{user}/one").session
            assert session.key == f"agent:default:shop/{user}/one"
            assert comparable(seen(await events_of(runner, user=user))) == comparable(stored_messages(session))
        await plugin.close()

    asyncio.run(both())
    asyncio.run(both())
    assert_prompts_fit(script.prompts)
    with recto.open(tmp_path / "a.db", session="agent:default:shop/u/one") as session:
        assert sum(message["role"] == "user" for message in stored_messages(session)) == 8


def test_two_identical_calls_each_get_their_own_result():
    call = types.Part(function_call=types.FunctionCall(name="look_up", args={"shelf": "A"}))
    results = [
        types.Part(function_response=types.FunctionResponse(name="look_up", response={"result": text}))
        for text in ("first", "second")
    ]
    contents = [
        types.Content(
            role="user", parts=[types.Part(text="Go."), types.Part.from_bytes(data=b"x", mime_type="image/png")]
        ),
        types.Content(role="model", parts=[call, call]),
        types.Content(role="user", parts=results),
    ]
    reader = ContentsReader()
    messages = [message for content in contents for message in reader.written(content)]
    ids = [call["id"] for call in messages[1]["tool_calls"]]
    assert len(set(ids)) == 2
    assert [(message["tool_call_id"], message["content"]) for message in messages[2:]] == list(
        zip(ids, ("first", "second"), strict=True)
    )
    assert [*read(messages[1:])] == contents[1:]


class Repeating(Script):
    """Looks up the same shelf in every turn."""

    def reply(self, prompt: Any) -> dict[str, Any]:
        message = super().reply(prompt)
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.dumps({"shelf": "S-0"})
        return message


def test_a_repeated_call_makes_no_branch_and_no_duplicates():
    script = Repeating()
    plugin = RectoPlugin("memory:", **NAMES)
    runner = runner_with(agent_with(script), plugin)

    async def check() -> None:
        await talk(runner, 8)
        session = plugin.conversations.of("shop/u/one").session
        assert comparable(seen(await events_of(runner))) == comparable(stored_messages(session))
        assert session.key == "agent:default:shop/u/one"

    asyncio.run(check())
    assert_prompts_fit(script.prompts)


def test_a_sub_agent_has_its_own_conversation():
    script = Script()
    plugin = RectoPlugin("memory:", **NAMES)
    below = agent_with(Script())
    below.name = "below"

    class Passing(Scripted):
        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            call = types.FunctionCall(name="transfer_to_agent", args={"agent_name": "below"})
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(function_call=call)]))

    above = LlmAgent(name="above", model=Passing(script=script), instruction=SYSTEM, sub_agents=[below])
    runner = runner_with(above, plugin)

    async def check() -> None:
        await ask(runner, "Task 1: check the next shelves.")
        first = plugin.conversations.of("shop/u/one").session
        second = plugin.conversations.of("shop/u/one/below/").session
        assert "look_up" not in json.dumps(stored_messages(first))
        assert "look_up" in json.dumps(stored_messages(second))

    asyncio.run(check())


def test_a_prompt_rejected_as_too_long_is_retried_smaller():
    script = Script()
    agent = agent_with(script)
    runner = runner_with(agent, RectoPlugin("memory:", **NAMES))

    async def check() -> None:
        await talk(runner, 6)
        agent.model.refuses = ["The input token count (5000) exceeds the maximum number of tokens allowed (3000)."]
        await talk(runner, 1)
        assert_prompts_fit(script.prompts[-3:], window=3_000)
        agent.model.refuses = ["Nobody is here."]
        with pytest.raises(ValueError, match="Nobody"):
            await talk(runner, 1)

    asyncio.run(check())


def test_a_store_error_is_chained_as_the_cause(tmp_path):
    plugin = RectoPlugin(tmp_path / "a.db", **NAMES)
    plugin.conversations.close()
    with pytest.raises(RuntimeError) as raised:
        asyncio.run(ask(runner_with(agent_with(Script()), plugin), "Are you there?"))
    assert isinstance(raised.value.__cause__, StoreError)


def test_the_adapter_closes_only_what_it_opened(tmp_path):
    async def use() -> None:
        async with RectoPlugin(tmp_path / "a.db", **NAMES) as plugin:
            plugin.conversations.of("1").fitted([{"role": "user", "content": "Hello."}])
        with pytest.raises(StoreError):
            plugin.conversations.of("2").fitted([{"role": "user", "content": "Hello."}])

    asyncio.run(use())


@pytest.mark.parametrize("which", ["before", "after"])
def test_the_documented_example_runs(which, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = Script()
    namespace: dict[str, Any] = {"agent": agent_with(script)}
    exec(page_example("google-adk.md", which), namespace)

    async def check() -> None:
        await ask(namespace["runner"], "Task 1: check the next shelves.")
        assert (await ask(namespace["runner"], question_about("S-0"))).startswith("Asked for")

    asyncio.run(check())
    assert batch_of("S-0") in json.dumps(script.prompts[-1])


MODEL = "gemini-3.8-flash"


def read_file(path: str) -> str:
    """Reads a file."""
    return f"{path} says: " + "boats and weather and sails " * 60


@contextmanager
def gateway(window: int) -> Iterator[tuple[genai.Client, list[dict[str, Any]], dict[str, str]]]:
    """An SDK client for a gateway in Recto's own environment; at the end the list gets its requests and messages."""
    records: list[dict[str, Any]] = []
    command = [ROOT / ".venv" / "bin" / "python", "-m", "tests.gateway.serve_scripted", "gemini", MODEL, str(window)]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True, cwd=ROOT, env=environ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())
        yield genai.Client(api_key=address["key"], http_options={"base_url": address["url"]}), records, address
        server.stdin.close()
        records.append(json.loads(server.stdout.readline()))


def test_the_sdk_talks_to_gemini_through_the_gateway_in_one_session_within_the_window():
    config = types.GenerateContentConfig(tools=[read_file], system_instruction="Be brief.")
    with gateway(6_000) as (client, records, _):
        chat = client.chats.create(model=MODEL, config=config)
        for turn in range(12):  # alternately streamed; the SDK calls the function itself
            if turn % 2:
                pieces = list(chat.send_message_stream(f"Read the files of day {turn}."))
                assert "all is well" in "".join(piece.text or "" for piece in pieces)
            else:
                assert "all is well" in (chat.send_message(f"Read the files of day {turn}.").text or "")
        counted = client.models.count_tokens(model=MODEL, contents="How many tokens is this?")
        assert (counted.total_tokens or 0) > 5
        assert [model.name for model in client.models.list()] == ["models/gemini-3.8-flash"]
    (record,) = records
    assert [request["problems"] for request in record["asked"]] == [[]] * 24
    assert max(request["tokens"] for request in record["asked"]) < 6_000
    (session,) = record["sessions"]
    assert [
        content["parts"][0]["text"]
        for content in session
        if content["role"] == "user" and "text" in content["parts"][0]
    ] == [f"Read the files of day {turn}." for turn in range(12)]
    assert json.dumps(session).count("a.txt says:") == 12
    assert [content["role"] for content in session] == ["user", "model"] * 24
    assert "still running" not in json.dumps(record["asked"])


def test_the_sdk_raises_its_own_errors_for_gateway_errors():
    with gateway(9_000) as (client, _, address):
        with pytest.raises(errors.ClientError, match="exceeds the maximum number of tokens") as refused:
            client.models.generate_content(model=MODEL, contents="a long text " * 20_000)
        assert (refused.value.code, refused.value.status) == (400, "INVALID_ARGUMENT")
        stranger = genai.Client(api_key="rk-unknown", http_options={"base_url": address["url"]})
        with pytest.raises(errors.ClientError) as denied:
            stranger.models.generate_content(model=MODEL, contents="Hello?")
        assert denied.value.code == 401
