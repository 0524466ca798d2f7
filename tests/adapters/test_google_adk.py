"""Google ADK's own runner, with a scripted model: the session's events stay whole, the model gets a working set."""

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
from bench.adapters.scenario import look_up as looked_up
from bench.adapters.scripted_google_adk import Scripted, seen
from tests.adapters.judging import NAMES, Script, fence, knows, question_about, sound, spoken, text_of
from tests.environments import ROOT

import recto
from recto.errors import StoreError

warnings.simplefilter("ignore")
from google import genai  # noqa: E402  # it warns of its own parts
from google.adk.agents import LlmAgent  # noqa: E402  # it warns of its own parts
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
    return looked_up(shelf)


def agent_with(script: Script, **more: Any) -> LlmAgent:
    return LlmAgent(name="keeper", model=Scripted(script=script, **more), instruction=SYSTEM, tools=[look_up])


def runner_with(agent: LlmAgent, plugin: RectoPlugin, service: Any = None) -> Runner:
    app = App(name="shop", root_agent=agent, plugins=[plugin])
    return Runner(app=app, session_service=service) if service else InMemoryRunner(app=app)


async def ask(runner: Runner, said: str, session: str = "one", user: str = "u", streamed: bool = False) -> str:
    where = {"app_name": "shop", "user_id": user, "session_id": session}
    if await runner.session_service.get_session(**where) is None:
        await runner.session_service.create_session(**where)
    config = RunConfig(streaming_mode=StreamingMode.SSE if streamed else StreamingMode.NONE)
    message = types.Content(role="user", parts=[types.Part(text=said)])
    last = ""
    async for event in runner.run_async(user_id=user, session_id=session, new_message=message, run_config=config):
        if event.content and event.content.parts and event.content.parts[-1].text:
            last = event.content.parts[-1].text
    return last


async def talk(runner: Runner, turns: int, **where: Any) -> None:
    for turn in range(turns):
        await ask(runner, f"Task {turn}: check the next shelves.", **where)


async def events_of(runner: Runner, session: str = "one", user: str = "u") -> list[types.Content]:
    found = await runner.session_service.get_session(app_name="shop", user_id=user, session_id=session)
    return [event.content for event in found.events if event.content]


def told(messages: list[dict[str, Any]]) -> list[tuple[str, str, list[str]]]:
    """Messages as far as the two ways of writing them agree."""
    called = [[call["function"]["arguments"] for call in one.get("tool_calls", ())] for one in messages]
    return [(one["role"], text_of(one), calls) for one, calls in zip(messages, called, strict=True)]


@pytest.mark.parametrize(("streamed", "names_calls"), [(False, False), (True, True)])
def test_a_long_conversation_fits_and_both_the_events_and_the_transcript_hold_all_of_it(streamed, names_calls):
    script = Script()
    plugin = RectoPlugin("memory:", **NAMES)
    runner = runner_with(agent_with(script, names_calls=names_calls), plugin)

    async def check() -> None:
        await talk(runner, 14, streamed=streamed)
        sound(script.prompts)
        assert all(prompt[0]["content"].startswith(SYSTEM) for prompt in script.prompts)
        session = plugin.conversations.of("shop/u/one").session
        assert told(seen(await events_of(runner))) == told(spoken(session))
        assert len(spoken(session)) == 14 * 7
        assert session.key == "agent:default:shop/u/one"
        assert session.report().left_messages > 0
        assert session.verify().ok
        assert not knows(script.prompts[-1], script.shelves[0])
        await ask(runner, question_about(script.shelves[0]))
        assert knows(script.prompts[-1], script.shelves[0])

    asyncio.run(check())


def test_another_process_goes_on_and_users_with_the_same_session_id_do_not_mix(tmp_path):
    script = Script()

    async def both() -> None:
        plugin = RectoPlugin(tmp_path / "a.db", **NAMES)
        runner = runner_with(agent_with(script), plugin, SqliteSessionService(str(tmp_path / "own.db")))
        await asyncio.gather(*(talk(runner, 4, user=user) for user in ("u", "v")))
        for user in ("u", "v"):
            session = plugin.conversations.of(f"shop/{user}/one").session
            assert session.key == f"agent:default:shop/{user}/one"
            assert told(seen(await events_of(runner, user=user))) == told(spoken(session))
        await plugin.close()

    asyncio.run(both())
    asyncio.run(both())
    sound(script.prompts)
    with recto.open(tmp_path / "a.db", session="agent:default:shop/u/one") as session:
        assert sum(one["role"] == "user" for one in spoken(session)) == 8


def test_the_same_call_twice_is_two_calls_and_both_get_their_own_result():
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
    telling = ContentsReader()
    messages = [one for content in contents for one in telling.written(content)]
    ids = [one["id"] for one in messages[1]["tool_calls"]]
    assert len(set(ids)) == 2
    assert [(one["tool_call_id"], one["content"]) for one in messages[2:]] == list(
        zip(ids, ("first", "second"), strict=True)
    )
    assert [*read(messages[1:])] == contents[1:]


class Repeating(Script):
    """Looks up the same shelf in every turn."""

    def reply(self, prompt: Any) -> dict[str, Any]:
        said = super().reply(prompt)
        for call in said.get("tool_calls", ()):
            call["function"]["arguments"] = json.dumps({"shelf": "S-0"})
        return said


def test_the_same_call_in_every_turn_makes_no_branch_and_nothing_is_stored_twice():
    script = Repeating()
    plugin = RectoPlugin("memory:", **NAMES)
    runner = runner_with(agent_with(script), plugin)

    async def check() -> None:
        await talk(runner, 8)
        session = plugin.conversations.of("shop/u/one").session
        assert told(seen(await events_of(runner))) == told(spoken(session))
        assert session.key == "agent:default:shop/u/one"

    asyncio.run(check())
    sound(script.prompts)


def test_a_sub_agent_has_a_conversation_of_its_own():
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
        assert "look_up" not in json.dumps(spoken(first))
        assert "look_up" in json.dumps(spoken(second))

    asyncio.run(check())


def test_a_prompt_that_the_model_finds_too_long_is_sent_once_more_and_smaller():
    script = Script()
    agent = agent_with(script)
    runner = runner_with(agent, RectoPlugin("memory:", **NAMES))

    async def check() -> None:
        await talk(runner, 6)
        agent.model.refuses = ["The input token count (5000) exceeds the maximum number of tokens allowed (3000)."]
        await talk(runner, 1)
        sound(script.prompts[-3:], window=3_000)
        agent.model.refuses = ["Nobody is here."]
        with pytest.raises(ValueError, match="Nobody"):
            await talk(runner, 1)

    asyncio.run(check())


def test_an_error_of_the_store_is_told_as_the_cause(tmp_path):
    plugin = RectoPlugin(tmp_path / "a.db", **NAMES)
    plugin.conversations.close()
    with pytest.raises(RuntimeError) as told_as:
        asyncio.run(ask(runner_with(agent_with(Script()), plugin), "Are you there?"))
    assert isinstance(told_as.value.__cause__, StoreError)


def test_it_closes_what_it_opened(tmp_path):
    async def use() -> None:
        async with RectoPlugin(tmp_path / "a.db", **NAMES) as plugin:
            plugin.conversations.of("1").fitted([{"role": "user", "content": "Hello."}])
        with pytest.raises(StoreError):
            plugin.conversations.of("2").fitted([{"role": "user", "content": "Hello."}])

    asyncio.run(use())


@pytest.mark.parametrize("which", ["before", "after"])
def test_the_example_of_the_page_runs(which, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = Script()
    given: dict[str, Any] = {"agent": agent_with(script)}
    exec(fence("google-adk.md", which), given)

    async def check() -> None:
        await ask(given["runner"], "Task 1: check the next shelves.")
        assert (await ask(given["runner"], question_about("S-0"))).startswith("Asked for")

    asyncio.run(check())
    assert batch_of("S-0") in json.dumps(script.prompts[-1])


MODEL = "gemini-3.8-flash"


def read_file(path: str) -> str:
    """Reads a file."""
    return f"{path} says: " + "boats and weather and sails " * 60


@contextmanager
def gateway(window: int) -> Iterator[tuple[genai.Client, list[dict[str, Any]], dict[str, str]]]:
    """The SDK's client at a gateway, which runs in Recto's own environment; the list gets what was heard and stored."""
    heard: list[dict[str, Any]] = []
    command = [ROOT / ".venv" / "bin" / "python", "-m", "tests.gateway.serve_scripted", "gemini", MODEL, str(window)]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True, cwd=ROOT, env=environ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())
        yield genai.Client(api_key=address["key"], http_options={"base_url": address["url"]}), heard, address
        server.stdin.close()
        heard.append(json.loads(server.stdout.readline()))


def test_the_sdk_talks_to_gemini_through_the_gateway_in_one_session_within_the_window():
    config = types.GenerateContentConfig(tools=[read_file], system_instruction="Be brief.")
    with gateway(6_000) as (client, heard, _):
        chat = client.chats.create(model=MODEL, config=config)
        for turn in range(12):  # streamed and not; the SDK calls the function by itself
            if turn % 2:
                pieces = list(chat.send_message_stream(f"Read the files of day {turn}."))
                assert "all is well" in "".join(piece.text or "" for piece in pieces)
            else:
                assert "all is well" in (chat.send_message(f"Read the files of day {turn}.").text or "")
        counted = client.models.count_tokens(model=MODEL, contents="How many tokens is this?")
        assert (counted.total_tokens or 0) > 5
        assert [model.name for model in client.models.list()] == ["models/gemini-3.8-flash"]
    (found,) = heard
    assert [one["problems"] for one in found["asked"]] == [[]] * 24
    assert max(one["tokens"] for one in found["asked"]) < 6_000
    (session,) = found["sessions"]
    assert [one["parts"][0]["text"] for one in session if one["role"] == "user" and "text" in one["parts"][0]] == [
        f"Read the files of day {turn}." for turn in range(12)
    ]
    assert json.dumps(session).count("a.txt says:") == 12
    assert [one["role"] for one in session] == ["user", "model"] * 24
    assert "still running" not in json.dumps(found["asked"])


def test_the_sdk_raises_its_own_errors_for_those_of_the_gateway():
    with gateway(9_000) as (client, _, address):
        with pytest.raises(errors.ClientError, match="exceeds the maximum number of tokens") as refused:
            client.models.generate_content(model=MODEL, contents="a long text " * 20_000)
        assert (refused.value.code, refused.value.status) == (400, "INVALID_ARGUMENT")
        stranger = genai.Client(api_key="rk-unknown", http_options={"base_url": address["url"]})
        with pytest.raises(errors.ClientError) as denied:
            stranger.models.generate_content(model=MODEL, contents="Hello?")
        assert denied.value.code == 401
