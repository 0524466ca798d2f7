"""Microsoft Agent Framework's own agents, with a scripted client: providers keep their history, the model gets less."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    Content,
    ContextProvider,
    InMemoryHistoryProvider,
    Message,
)
from agent_framework.exceptions import ChatClientException
from bench.adapters.scenario import batch_of
from bench.adapters.scenario import look_up as looked_up
from bench.adapters.scripted_agent_framework import Scripted, seen
from tests.adapters.judging import NAMES, Script, closes_itself, fence, knows, question_about, sound, spoken, text_of

import recto
from recto.adapters.agent_framework import RectoMiddleware, read, written
from recto.errors import StoreError

SYSTEM = "You look after a warehouse."


def look_up(shelf: str) -> str:
    """Looks up everything that is known about a shelf."""
    return looked_up(shelf)


def agent_with(client: Scripted, middleware: RectoMiddleware, **more: Any) -> Agent:
    return Agent(client, instructions=SYSTEM, tools=[look_up], middleware=[middleware], **more)


async def talk(agent: Agent, session: AgentSession, turns: int, streamed: bool = False) -> None:
    for turn in range(turns):
        said = f"Task {turn}: check the next shelves."
        if streamed:
            stream = agent.run(said, session=session, stream=True)
            async for _ in stream:
                pass
            await stream.get_final_response()
        else:
            await agent.run(said, session=session)


def history_of(session: AgentSession) -> list[Message]:
    """What their own provider keeps."""
    return next(list(state["messages"]) for state in session.state.values() if "messages" in state)


def told(messages: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Messages as far as the two ways of writing them agree."""
    return [(one["role"], text_of(one), json.dumps(one.get("tool_calls"))) for one in messages]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_long_conversation_fits_and_both_the_history_and_the_transcript_hold_all_of_it(streamed):
    script = Script()
    middleware = RectoMiddleware("memory:", **NAMES)
    agent = agent_with(Scripted(script), middleware)
    session = agent.create_session(session_id="thread-1")
    asyncio.run(talk(agent, session, 14, streamed))
    sound(script.prompts)
    assert all(prompt[0] == {"role": "system", "content": SYSTEM} for prompt in script.prompts)
    kept = middleware.conversations.of("thread-1").session
    assert told(seen(history_of(session))) == told(spoken(kept))
    assert len(spoken(kept)) == 14 * 7
    assert kept.key == "agent:default:thread-1"
    assert kept.report().left_messages > 0
    assert kept.verify().ok
    assert not knows(script.prompts[-1], script.shelves[0])
    asyncio.run(agent.run(question_about(script.shelves[0]), session=session))
    assert knows(script.prompts[-1], script.shelves[0])


def test_another_process_goes_on_and_two_conversations_at_once_do_not_mix(tmp_path):
    script = Script()
    saved: dict[str, Any] = {}

    async def both() -> None:
        middleware = RectoMiddleware(tmp_path / "a.db", **NAMES)
        agent = agent_with(Scripted(script), middleware)
        names = ["thread-1", "thread-2"]
        sessions = [AgentSession.from_dict(saved[one]) if saved else AgentSession(session_id=one) for one in names]
        await asyncio.gather(*(talk(agent, session, 4) for session in sessions))
        saved.update((session.session_id, session.to_dict()) for session in sessions)
        for session in sessions:
            kept = middleware.conversations.of(session.session_id).session
            assert kept.key == f"agent:default:{session.session_id}"
            assert told(seen(history_of(session))) == told(spoken(kept))
        middleware.conversations.close()

    asyncio.run(both())
    asyncio.run(both())
    sound(script.prompts)
    assert (
        sum(message["role"] == "user" for message in seen(history_of(AgentSession.from_dict(saved["thread-1"])))) == 8
    )


class Weather(ContextProvider):
    """Tells something else before each run."""

    def __init__(self) -> None:
        super().__init__("weather")
        self.day = 0

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: Any) -> None:
        self.day += 1
        context.extend_messages(self, [Message("user", [f"It is day {self.day}, and it rains."])])


def test_what_a_context_provider_tells_anew_for_each_run_is_sent_and_is_no_history():
    script = Script()
    middleware = RectoMiddleware("memory:", context_sources=["weather"], **NAMES)
    providers = [InMemoryHistoryProvider(), Weather()]
    agent = agent_with(Scripted(script), middleware, context_providers=providers)
    session = agent.create_session(session_id="thread-1")
    asyncio.run(talk(agent, session, 10))
    sound(script.prompts)
    assert all(sum("it rains" in text_of(one) for one in prompt) == 1 for prompt in script.prompts)
    kept = middleware.conversations.of("thread-1").session
    assert kept.key == "agent:default:thread-1"
    assert len(spoken(kept)) == 10 * 7
    place = [text_of(one) for one in script.prompts[-3]].index("It is day 10, and it rains.")
    assert text_of(script.prompts[-3][place + 1]) == "Task 9: check the next shelves."


def test_a_prompt_that_the_service_finds_too_long_is_sent_once_more_and_smaller():
    script = Script()
    client = Scripted(script)
    middleware = RectoMiddleware("memory:", **NAMES)
    agent = agent_with(client, middleware)
    session = agent.create_session()
    asyncio.run(talk(agent, session, 6))
    client.refuses = ["This model's maximum context length is 3000 tokens. However, you sent 5000."]
    asyncio.run(talk(agent, session, 1))
    sound(script.prompts[-3:], window=3_000)
    client.refuses = ["Nobody is here."]
    with pytest.raises(ChatClientException, match="Nobody"):
        asyncio.run(talk(agent, session, 1))


def test_everything_a_message_can_hold_is_told_the_same_way_each_time_and_comes_back():
    picture = Content.from_data(b"\x89PNG\r\n\x1a\n", media_type="image/png")
    message = Message("user", [Content.from_text("Look."), picture, Content.from_error(message="broken")])
    assert list(written(message)) == list(written(Message.from_dict(message.to_dict())))
    calls = Message(
        "assistant",
        [
            Content.from_text_reasoning(text="Hm."),
            Content.from_text("One moment."),
            Content.from_function_call("c1", "look_up", arguments={"shelf": "A"}),
        ],
    )
    results = Message("tool", [Content.from_function_result(f"c{place}", result=f"<{place}>") for place in (1, 2)])
    again = [*read([*written(calls), *written(results)])]
    assert [[one.type for one in message.contents] for message in again] == [
        ["text", "function_call"],
        ["function_result", "function_result"],
    ]
    assert [one.result for one in again[1].contents] == ["<1>", "<2>"]


def test_history_that_the_service_keeps_is_left_to_it_and_an_error_of_the_store_is_told(tmp_path):
    middleware = RectoMiddleware(tmp_path / "a.db", **NAMES)
    agent = agent_with(Scripted(Script()), middleware)
    asyncio.run(agent.run("Are you there?", options={"conversation_id": "theirs"}))
    assert not middleware.conversations.of().session.head.seq
    middleware.conversations.close()
    with pytest.raises(StoreError):
        asyncio.run(agent.run("Are you there?"))
    with recto.open(tmp_path / "a.db") as session:
        assert not len(session)


def test_it_closes_what_it_opened(tmp_path):
    closes_itself(RectoMiddleware, tmp_path / "a.db")


@pytest.mark.parametrize("which", ["before", "after"])
def test_the_example_of_the_page_runs(which, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = Script()
    given = {"client": Scripted(script), "tools": [look_up]}
    given |= {"question": "Task 1: check the next shelves.", "more": question_about("S-0")}
    exec(
        f"async def talk():\n{''.join('    ' + line for line in fence('agent-framework.md', which).splitlines(True))}"
        "    return result\n",
        given,
    )
    assert asyncio.run(given["talk"]()).text.startswith("Asked for")
    assert batch_of("S-0") in json.dumps(script.prompts[-1])
