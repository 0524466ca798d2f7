"""Microsoft Agent Framework agents with a scripted client: providers keep the full history, the model gets a subset."""

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
from bench.adapters.scenario import look_up as look_up_shelf
from bench.adapters.scripted_agent_framework import Scripted, seen
from tests.adapters.judging import (
    NAMES,
    Script,
    assert_closes_what_it_opened,
    assert_prompts_fit,
    has_fact,
    page_example,
    question_about,
    stored_messages,
    text_of,
)

import recto
from recto.adapters.agent_framework import RectoMiddleware, read, written
from recto.errors import StoreError

SYSTEM = "You look after a warehouse."


def look_up(shelf: str) -> str:
    """Looks up everything that is known about a shelf."""
    return look_up_shelf(shelf)


def agent_with(client: Scripted, middleware: RectoMiddleware, **more: Any) -> Agent:
    return Agent(client, instructions=SYSTEM, tools=[look_up], middleware=[middleware], **more)


async def talk(agent: Agent, session: AgentSession, turns: int, streamed: bool = False) -> None:
    for turn in range(turns):
        task = f"Task {turn}: check the next shelves."
        if streamed:
            stream = agent.run(task, session=session, stream=True)
            async for _ in stream:
                pass
            await stream.get_final_response()
        else:
            await agent.run(task, session=session)


def history_of(session: AgentSession) -> list[Message]:
    """The messages that the framework's own history provider stores."""
    return next(list(state["messages"]) for state in session.state.values() if "messages" in state)


def comparable(messages: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """The parts of messages that both formats share."""
    return [(message["role"], text_of(message), json.dumps(message.get("tool_calls"))) for message in messages]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_long_conversation_fits_and_history_and_transcript_are_complete(streamed):
    script = Script()
    middleware = RectoMiddleware("memory:", **NAMES)
    agent = agent_with(Scripted(script), middleware)
    session = agent.create_session(session_id="thread-1")
    asyncio.run(talk(agent, session, 14, streamed))
    assert_prompts_fit(script.prompts)
    assert all(prompt[0] == {"role": "system", "content": SYSTEM} for prompt in script.prompts)
    stored = middleware.conversations.of("thread-1").session
    assert comparable(seen(history_of(session))) == comparable(stored_messages(stored))
    assert len(stored_messages(stored)) == 14 * 7
    assert stored.key == "agent:default:thread-1"
    assert stored.report().left_messages > 0
    assert stored.verify().ok
    assert not has_fact(script.prompts[-1], script.shelves[0])
    asyncio.run(agent.run(question_about(script.shelves[0]), session=session))
    assert has_fact(script.prompts[-1], script.shelves[0])


def test_another_process_resumes_and_concurrent_conversations_do_not_mix(tmp_path):
    script = Script()
    saved: dict[str, Any] = {}

    async def both() -> None:
        middleware = RectoMiddleware(tmp_path / "a.db", **NAMES)
        agent = agent_with(Scripted(script), middleware)
        names = ["thread-1", "thread-2"]
        sessions = [AgentSession.from_dict(saved[name]) if saved else AgentSession(session_id=name) for name in names]
        await asyncio.gather(*(talk(agent, session, 4) for session in sessions))
        saved.update((session.session_id, session.to_dict()) for session in sessions)
        for session in sessions:
            stored = middleware.conversations.of(session.session_id).session
            assert stored.key == f"agent:default:{session.session_id}"
            assert comparable(seen(history_of(session))) == comparable(stored_messages(stored))
        middleware.conversations.close()

    asyncio.run(both())
    asyncio.run(both())
    assert_prompts_fit(script.prompts)
    assert (
        sum(message["role"] == "user" for message in seen(history_of(AgentSession.from_dict(saved["thread-1"])))) == 8
    )


class Weather(ContextProvider):
    """Adds a different message before each run."""

    def __init__(self) -> None:
        super().__init__("weather")
        self.day = 0

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: Any) -> None:
        self.day += 1
        context.extend_messages(self, [Message("user", [f"It is day {self.day}, and it rains."])])


def test_context_provider_messages_are_sent_but_not_stored():
    script = Script()
    middleware = RectoMiddleware("memory:", context_sources=["weather"], **NAMES)
    providers = [InMemoryHistoryProvider(), Weather()]
    agent = agent_with(Scripted(script), middleware, context_providers=providers)
    session = agent.create_session(session_id="thread-1")
    asyncio.run(talk(agent, session, 10))
    assert_prompts_fit(script.prompts)
    assert all(sum("it rains" in text_of(message) for message in prompt) == 1 for prompt in script.prompts)
    stored = middleware.conversations.of("thread-1").session
    assert stored.key == "agent:default:thread-1"
    assert len(stored_messages(stored)) == 10 * 7
    place = [text_of(message) for message in script.prompts[-3]].index("It is day 10, and it rains.")
    assert text_of(script.prompts[-3][place + 1]) == "Task 9: check the next shelves."


def test_a_prompt_rejected_as_too_long_is_retried_smaller():
    script = Script()
    client = Scripted(script)
    middleware = RectoMiddleware("memory:", **NAMES)
    agent = agent_with(client, middleware)
    session = agent.create_session()
    asyncio.run(talk(agent, session, 6))
    client.refuses = ["This model's maximum context length is 3000 tokens. However, you sent 5000."]
    asyncio.run(talk(agent, session, 1))
    assert_prompts_fit(script.prompts[-3:], window=3_000)
    client.refuses = ["Nobody is here."]
    with pytest.raises(ChatClientException, match="Nobody"):
        asyncio.run(talk(agent, session, 1))


def test_every_content_type_is_serialised_deterministically_and_read_back():
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
    assert [[content.type for content in message.contents] for message in again] == [
        ["text", "function_call"],
        ["function_result", "function_result"],
    ]
    assert [content.result for content in again[1].contents] == ["<1>", "<2>"]


def test_service_managed_history_is_not_stored_and_a_store_error_is_raised(tmp_path):
    middleware = RectoMiddleware(tmp_path / "a.db", **NAMES)
    agent = agent_with(Scripted(Script()), middleware)
    asyncio.run(agent.run("Are you there?", options={"conversation_id": "theirs"}))
    assert not middleware.conversations.of().session.head.seq
    middleware.conversations.close()
    with pytest.raises(StoreError):
        asyncio.run(agent.run("Are you there?"))
    with recto.open(tmp_path / "a.db") as session:
        assert not len(session)


def test_the_adapter_closes_only_what_it_opened(tmp_path):
    assert_closes_what_it_opened(RectoMiddleware, tmp_path / "a.db")


@pytest.mark.parametrize("which", ["before", "after"])
def test_the_documented_example_runs(which, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = Script()
    namespace = {"client": Scripted(script), "tools": [look_up]}
    namespace |= {"question": "Task 1: check the next shelves.", "more": question_about("S-0")}
    exec(
        "async def talk():\n"
        f"{''.join('    ' + line for line in page_example('agent-framework.md', which).splitlines(True))}"
        "    return result\n",
        namespace,
    )
    assert asyncio.run(namespace["talk"]()).text.startswith("Asked for")
    assert batch_of("S-0") in json.dumps(script.prompts[-1])
