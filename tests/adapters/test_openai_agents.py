"""The OpenAI Agents SDK runner with a scripted model: a session that stores every item, and a filter that fits."""

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
from bench.adapters.scenario import look_up as look_up_shelf
from bench.adapters.scripted_openai_agents import Scripted
from tests.adapters.judging import (
    NAMES,
    Script,
    assert_closes_what_it_opened,
    assert_prompts_fit,
    has_fact,
    page_example,
    question_about,
    stored_messages,
)

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
    return look_up_shelf(shelf)


def agent_with(script: Script, **more: Any) -> Agent:
    return Agent(name="keeper", instructions=SYSTEM, model=Scripted(script), tools=[look_up], **more)


async def talk(agent: Agent, session: RectoSession, turns: int, streamed: bool = False, name: str = "Task") -> None:
    config = RunConfig(call_model_input_filter=session.fitted)
    for turn in range(turns):
        task = f"{name} {turn}: check the next shelves."
        if streamed:
            async for _ in Runner.run_streamed(agent, task, session=session, run_config=config).stream_events():
                pass
        else:
            await Runner.run(agent, task, session=session, run_config=config)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_long_conversation_fits_and_the_session_holds_every_item_once(streamed):
    script = Script()
    agent = agent_with(script)
    session = RectoSession("thread-1", "memory:", **NAMES)
    assert isinstance(session, Session)
    asyncio.run(talk(agent, session, 14, streamed))
    assert_prompts_fit(script.prompts)
    for items in agent.model.items:
        assert problems([json.dumps(item).encode() for item in items], RESPONSES) == []
    assert all(prompt[0] == {"role": "system", "content": SYSTEM} for prompt in script.prompts)
    history = asyncio.run(session.get_items())
    tasks = [item["content"] for item in history if item.get("role") == "user"]
    assert tasks == [f"Task {turn}: check the next shelves." for turn in range(14)]
    # One task: a user, reasoning, two calls and two results, reasoning, a call and a result, the answer.
    assert len(history) == 14 * 10
    call_ids = [item["call_id"] for item in history if item.get("type") == "function_call"]
    output_ids = [item["call_id"] for item in history if item.get("type") == "function_call_output"]
    assert call_ids == output_ids == [f"call_{shelf}" for shelf in script.shelves]
    assert session.conversation.session.report().left_messages > 0
    assert session.conversation.session.verify().ok
    assert not has_fact(script.prompts[-1], script.shelves[0])
    config = RunConfig(call_model_input_filter=session.fitted)
    asyncio.run(Runner.run(agent, question_about(script.shelves[0]), session=session, run_config=config))
    assert has_fact(script.prompts[-1], script.shelves[0])


def test_items_are_returned_unchanged():
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look_up", "arguments": '{"shelf": "A"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "nothing"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
    ]

    async def check() -> None:
        session = RectoSession("thread-1", "memory:", **NAMES)
        await session.add_items(items)
        assert await session.get_items() == items
        assert await session.get_items(limit=2) == items[-2:]
        limited = RectoSession(
            "thread-1", conversations=session.conversations, session_settings=SessionSettings(limit=1)
        )
        assert await limited.get_items() == items[-1:]

    asyncio.run(check())


def test_popped_and_cleared_items_are_hidden_from_the_sdk_and_stay_in_the_store(tmp_path):
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
            assert stored_messages(before) == items

    asyncio.run(check())


def test_another_process_resumes_and_concurrent_conversations_do_not_mix(tmp_path):
    scripts = [Script(), Script()]

    async def both(streamed: bool) -> None:
        sessions = [RectoSession(f"thread-{place}", tmp_path / "a.db", **NAMES) for place in range(2)]
        pairs = zip(scripts, sessions, strict=True)
        talks = [talk(agent_with(script), session, 5, streamed, session.session_id) for script, session in pairs]
        await asyncio.gather(*talks)
        for session in sessions:
            session.conversations.close()

    asyncio.run(both(False))
    asyncio.run(both(True))
    for place, script in enumerate(scripts):
        assert_prompts_fit(script.prompts)
        with recto.open(tmp_path / "a.db", session=f"agent:default:thread-{place}") as session:
            tasks = [message["content"] for message in stored_messages(session) if message.get("role") == "user"]
            assert tasks == [f"thread-{place} {turn}: check the next shelves." for turn in range(5)] * 2
            assert len(stored_messages(session)) == 2 * 5 * 10


def test_a_handoff_that_rewrites_its_input_leaves_the_session_unchanged():
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
def test_the_filter_works_with_any_session_and_stores_answers_before_their_tools_run(tmp_path, streamed):
    script = Script()
    input_filter = RectoInputFilter("memory:", session_id=lambda context: context["thread"], **NAMES)
    seen_counts: list[int] = []

    @function_tool(name_override="look_up")
    def listening(shelf: str) -> str:
        session = input_filter.conversations.of("t").session
        seen_counts.append(
            sum(shelf in json.dumps(item) for item in stored_messages(session) if item.get("type") == "function_call")
        )
        return look_up_shelf(shelf)

    agent = Agent(name="keeper", instructions=SYSTEM, model=Scripted(script), tools=[listening])
    own = SQLiteSession("t", tmp_path / "own.db")
    plugged = {"session": own, "run_config": RunConfig(call_model_input_filter=input_filter), "hooks": input_filter}

    async def check() -> None:
        for turn in range(14):
            task = f"Task {turn}: check the next shelves."
            if streamed:
                async for _ in Runner.run_streamed(agent, task, context={"thread": "t"}, **plugged).stream_events():
                    pass
            else:
                await Runner.run(agent, task, context={"thread": "t"}, **plugged)
        session = input_filter.conversations.of("t").session
        assert stored_messages(session) == [_without_none(item) for item in await own.get_items()]
        assert session.key == "agent:default:t"
        assert len(stored_messages(session)) == 14 * 10

    asyncio.run(check())
    assert_prompts_fit(script.prompts)
    assert seen_counts == [1] * len(script.shelves)
    own.close()


def _without_none(item: Any) -> dict[str, Any]:
    return {name: value for name, value in item.items() if value is not None}


def test_conversations_in_another_format_are_rejected_and_a_store_error_is_raised(tmp_path):
    with recto.follow("memory:", **NAMES) as chat, pytest.raises(SettingsError, match=r"openai\.responses"):
        RectoSession("thread-1", conversations=chat)
    session = RectoSession("thread-1", tmp_path / "a.db", **NAMES)
    session.conversations.close()
    with pytest.raises(StoreError):
        asyncio.run(talk(agent_with(Script()), session, 1))


def test_the_adapter_closes_only_what_it_opened(tmp_path):
    assert_closes_what_it_opened(partial(RectoSession, "1"), tmp_path / "a.db", OPENAI_RESPONSES.name)


@pytest.mark.parametrize("which", ["before", "after"])
def test_the_documented_example_runs(which, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = Script()
    namespace = {
        "agent": agent_with(script),
        "question": "Task 1: check the next shelves.",
        "more": question_about("S-0"),
    }
    exec(page_example("openai-agents.md", which), namespace)
    assert namespace["result"].final_output.startswith("Asked for")
    assert batch_of("S-0") in json.dumps(script.prompts[-1])
