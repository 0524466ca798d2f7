"""The OpenAI Agents SDK's own runner, with a scripted model: a session that forgets nothing, a filter that fits."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, Session, SQLiteSession, set_tracing_disabled
from agents.memory import SessionSettings
from agents.tool import function_tool
from bench.adapters.scenario import batch_of
from bench.adapters.scenario import look_up as looked_up
from bench.adapters.scripted_openai_agents import Scripted
from tests.adapters.judging import NAMES, Script, closes_itself, fence, knows, question_about, sound, spoken

import recto
from recto.adapters.openai_agents import RectoInputFilter, RectoSession
from recto.errors import SettingsError, StoreError
from recto.formats import problems
from recto.formats.openai_responses import OPENAI_RESPONSES, RESPONSES

SYSTEM = "You look after a warehouse."
set_tracing_disabled(True)


@function_tool
def look_up(shelf: str) -> str:
    """Looks up everything that is known about a shelf."""
    return looked_up(shelf)


def agent_with(script: Script, **more: Any) -> Agent:
    return Agent(name="keeper", instructions=SYSTEM, model=Scripted(script), tools=[look_up], **more)


async def talk(agent: Agent, session: RectoSession, turns: int, streamed: bool = False, name: str = "Task") -> None:
    config = RunConfig(call_model_input_filter=session.fitted)
    for turn in range(turns):
        said = f"{name} {turn}: check the next shelves."
        if streamed:
            async for _ in Runner.run_streamed(agent, said, session=session, run_config=config).stream_events():
                pass
        else:
            await Runner.run(agent, said, session=session, run_config=config)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_long_conversation_fits_and_the_session_holds_every_item_once(streamed):
    script = Script()
    agent = agent_with(script)
    session = RectoSession("thread-1", "memory:", **NAMES)
    assert isinstance(session, Session)
    asyncio.run(talk(agent, session, 14, streamed))
    sound(script.prompts)
    for items in agent.model.items:
        assert problems([json.dumps(item).encode() for item in items], RESPONSES) == []
    assert all(prompt[0] == {"role": "system", "content": SYSTEM} for prompt in script.prompts)
    kept = asyncio.run(session.get_items())
    tasks = [item["content"] for item in kept if item.get("role") == "user"]
    assert tasks == [f"Task {turn}: check the next shelves." for turn in range(14)]
    # One task: a user, reasoning, two calls and two results, reasoning, a call and a result, the answer.
    assert len(kept) == 14 * 10
    called = [item["call_id"] for item in kept if item.get("type") == "function_call"]
    answered = [item["call_id"] for item in kept if item.get("type") == "function_call_output"]
    assert called == answered == [f"call_{shelf}" for shelf in script.shelves]
    assert session.conversation.session.report().left_messages > 0
    assert session.conversation.session.verify().ok
    assert not knows(script.prompts[-1], script.shelves[0])
    config = RunConfig(call_model_input_filter=session.fitted)
    asyncio.run(Runner.run(agent, question_about(script.shelves[0]), session=session, run_config=config))
    assert knows(script.prompts[-1], script.shelves[0])


def test_items_come_back_as_they_were_given():
    given = [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look_up", "arguments": '{"shelf": "A"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "nothing"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
    ]

    async def check() -> None:
        session = RectoSession("thread-1", "memory:", **NAMES)
        await session.add_items(given)
        assert await session.get_items() == given
        assert await session.get_items(limit=2) == given[-2:]
        limited = RectoSession(
            "thread-1", conversations=session.conversations, session_settings=SessionSettings(limit=1)
        )
        assert await limited.get_items() == given[-1:]

    asyncio.run(check())


def test_what_is_taken_back_or_cleared_is_gone_for_the_sdk_and_kept_in_the_store(tmp_path):
    items = [{"role": "user", "content": "same"} for _ in range(3)] + [{"role": "user", "content": "last"}]

    async def check() -> None:
        session = RectoSession("thread-1", tmp_path / "a.db", **NAMES)
        assert await session.pop_item() is None
        await session.add_items(items)
        first = session.conversation.session.key
        assert await session.pop_item() == items[-1]
        assert await session.pop_item() == items[-2]
        await session.add_items([{"role": "user", "content": "instead"}])
        expected = [*items[:2], {"role": "user", "content": "instead"}]
        assert await session.get_items() == expected
        session.conversations.close()
        session = RectoSession("thread-1", tmp_path / "a.db", **NAMES)
        assert await session.get_items() == expected
        await session.clear_session()
        assert await session.get_items() == []
        await session.add_items(items[-1:])
        await session.clear_session()
        await session.add_items(items[:1])
        assert await session.get_items() == items[:1]
        session.conversations.close()
        with recto.open(tmp_path / "a.db", session=first) as before:
            assert spoken(before) == items

    asyncio.run(check())


def test_another_process_goes_on_and_two_conversations_at_once_do_not_mix(tmp_path):
    scripts = [Script(), Script()]

    async def both(streamed: bool) -> None:
        sessions = [RectoSession(f"thread-{place}", tmp_path / "a.db", **NAMES) for place in range(2)]
        pairs = zip(scripts, sessions, strict=True)
        talks = [talk(agent_with(script), one, 5, streamed, one.session_id) for script, one in pairs]
        await asyncio.gather(*talks)
        for one in sessions:
            one.conversations.close()

    asyncio.run(both(False))
    asyncio.run(both(True))
    for place, script in enumerate(scripts):
        sound(script.prompts)
        with recto.open(tmp_path / "a.db", session=f"agent:default:thread-{place}") as session:
            said = [one["content"] for one in spoken(session) if one.get("role") == "user"]
            assert said == [f"thread-{place} {turn}: check the next shelves." for turn in range(5)] * 2
            assert len(spoken(session)) == 2 * 5 * 10


def test_a_handoff_that_rewrites_its_input_leaves_the_session_as_it_was():
    script = Script()
    other = agent_with(script)
    session = RectoSession("thread-1", "memory:", **NAMES)

    async def check() -> None:
        await talk(other, session, 2)
        before = await session.get_items()
        rewritten = [{"role": "user", "content": "A summary of it all."}]
        data = await session.fitted(_call(other, rewritten))
        assert data.input == rewritten
        assert await session.get_items() == before
        await talk(other, session, 1)

    asyncio.run(check())
    assert session.conversation.session.key == "agent:default:thread-1"


def _call(agent: Agent, items: list[Any]) -> Any:
    from agents.run import CallModelData, ModelInputData

    return CallModelData(model_data=ModelInputData(input=items, instructions=SYSTEM), agent=agent, context=None)


@pytest.mark.parametrize("streamed", [False, True])
def test_the_filter_alone_goes_with_any_session_and_hears_answers_before_their_tools_run(tmp_path, streamed):
    script = Script()
    fitting = RectoInputFilter("memory:", session_id=lambda context: context["thread"], **NAMES)
    heard: list[int] = []

    @function_tool(name_override="look_up")
    def listening(shelf: str) -> str:
        session = fitting.conversations.of("t").session
        heard.append(sum(shelf in json.dumps(one) for one in spoken(session) if one.get("type") == "function_call"))
        return looked_up(shelf)

    agent = Agent(name="keeper", instructions=SYSTEM, model=Scripted(script), tools=[listening])
    own = SQLiteSession("t", tmp_path / "own.db")
    plugged = {"session": own, "run_config": RunConfig(call_model_input_filter=fitting), "hooks": fitting}

    async def check() -> None:
        for turn in range(14):
            said = f"Task {turn}: check the next shelves."
            if streamed:
                async for _ in Runner.run_streamed(agent, said, context={"thread": "t"}, **plugged).stream_events():
                    pass
            else:
                await Runner.run(agent, said, context={"thread": "t"}, **plugged)
        session = fitting.conversations.of("t").session
        assert spoken(session) == [_without_none(one) for one in await own.get_items()]
        assert session.key == "agent:default:t"
        assert len(spoken(session)) == 14 * 10

    asyncio.run(check())
    sound(script.prompts)
    assert heard == [1] * len(script.shelves)
    own.close()


def _without_none(item: Any) -> dict[str, Any]:
    return {name: value for name, value in item.items() if value is not None}


def test_conversations_in_another_format_are_refused_and_an_error_of_the_store_is_told(tmp_path):
    with recto.follow("memory:", **NAMES) as chat, pytest.raises(SettingsError, match=r"openai\.responses"):
        RectoSession("thread-1", conversations=chat)
    session = RectoSession("thread-1", tmp_path / "a.db", **NAMES)
    session.conversations.close()
    with pytest.raises(StoreError):
        asyncio.run(talk(agent_with(Script()), session, 1))


def test_it_closes_what_it_opened(tmp_path):
    closes_itself(partial(RectoSession, "1"), tmp_path / "a.db", OPENAI_RESPONSES.name)


@pytest.mark.parametrize("which", ["before", "after"])
def test_the_example_of_the_page_runs(which, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = Script()
    given = {"agent": agent_with(script), "question": "Task 1: check the next shelves.", "more": question_about("S-0")}
    exec(fence("openai-agents.md", which), given)
    assert given["result"].final_output.startswith("Asked for")
    assert batch_of("S-0") in json.dumps(script.prompts[-1])
