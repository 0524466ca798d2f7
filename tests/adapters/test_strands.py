"""Strands agents with a scripted model: the agent keeps all messages, the model gets a working set."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

import pytest
from bench.adapters.scenario import batch_of
from bench.adapters.scenario import look_up as look_up_shelf
from bench.adapters.scripted_strands import Scripted
from strands import Agent, tool
from strands.middleware import InvokeModelStage
from strands.session.file_session_manager import FileSessionManager
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
from recto.adapters.strands import RectoConversationManager, read, written
from recto.errors import SettingsError, StoreError, WindowOverflow
from recto.formats import problems
from recto.formats.anthropic import ANTHROPIC, ANTHROPIC_MESSAGES

SYSTEM = "You look after a warehouse."


@tool
def look_up(shelf: str) -> str:
    """Looks up everything that is known about a shelf."""
    return look_up_shelf(shelf)


def agent_with(model: Scripted, manager: RectoConversationManager, **more: Any) -> Agent:
    plain: dict[str, Any] = {"system_prompt": SYSTEM, "callback_handler": None, "tools": [look_up]}
    return Agent(model, conversation_manager=manager, **plain, **more)


async def talk(agent: Agent, turns: int, streamed: bool = False) -> None:
    for turn in range(turns):
        task = f"Task {turn}: check the next shelves."
        if streamed:
            async for _ in agent.stream_async(task):
                pass
        else:
            await agent.invoke_async(task)


def roles_alternate(sent: list[list[Any]]) -> bool:
    """Whether user and assistant alternate in every prompt, as Bedrock requires."""
    roles = [[message["role"] for message in messages] for messages in sent]
    return all(sequence == [("user", "assistant")[place % 2] for place in range(len(sequence))] for sequence in roles)


def serialised(messages: list[Any]) -> list[Any]:
    return [converted for message in messages for converted in written(message)]


@pytest.mark.parametrize(("streamed", "mode"), [(False, "sliding_window"), (True, "zones")])
def test_a_long_conversation_fits_and_agent_and_transcript_are_complete(streamed, mode):
    script = Script()
    model = Scripted(script)
    manager = RectoConversationManager("memory:", session_id="thread-1", window={"mode": mode}, **NAMES)
    agent = agent_with(model, manager)
    asyncio.run(talk(agent, 14, streamed))
    assert_prompts_fit(script.prompts)
    assert roles_alternate(model.sent)
    for sent in model.sent:
        assert problems([json.dumps(message).encode() for message in serialised(sent)], ANTHROPIC) == []
    assert all(prompt[0] == {"role": "system", "content": SYSTEM} for prompt in script.prompts)
    session = manager.conversation(agent).session
    assert stored_messages(session) == serialised(agent.messages)
    # One task: a user, two calls, their results, a call, its result, the answer.
    assert len(agent.messages) == 14 * 6
    assert manager.removed_message_count == 0
    assert session.key == "agent:default:thread-1"
    assert session.report().left_messages > 0
    assert session.verify().ok
    assert not has_fact(script.prompts[-1], script.shelves[0])
    agent(question_about(script.shelves[0]))
    assert has_fact(script.prompts[-1], script.shelves[0])
    assert roles_alternate(model.sent)


def test_another_process_resumes_from_its_session_manager_and_two_agents_do_not_mix(tmp_path):
    script = Script()

    async def both() -> list[Agent]:
        manager = RectoConversationManager(tmp_path / "a.db", **NAMES)
        managers = [FileSessionManager(session_id=name, storage_dir=str(tmp_path)) for name in ("one", "two")]
        agents = [
            agent_with(Scripted(script), manager, session_manager=session_manager) for session_manager in managers
        ]
        await asyncio.gather(*(talk(agent, 4) for agent in agents))
        for agent, name in zip(agents, ("one", "two"), strict=True):
            assert manager.conversation(agent).session.key == f"agent:default:{name}"
            assert stored_messages(manager.conversation(agent).session) == serialised(agent.messages)
        manager.conversations.close()
        return agents

    asyncio.run(both())
    agents = asyncio.run(both())
    assert_prompts_fit(script.prompts)
    assert [sum("Task" in json.dumps(message) for message in agent.messages) for agent in agents] == [8, 8]


def test_a_prompt_rejected_as_too_long_is_retried_until_nothing_more_can_be_evicted():
    script = Script()
    model = Scripted(script)
    manager = RectoConversationManager("memory:", **NAMES)
    agent = agent_with(model, manager)
    asyncio.run(talk(agent, 6))
    model.refuses = ["prompt is too long: 5000 tokens > 3000 maximum"]
    asyncio.run(talk(agent, 1))
    assert_prompts_fit(script.prompts[-3:], window=3_000)
    model.refuses = ["too much"]
    asyncio.run(talk(agent, 1))
    assert len(agent.messages) == 8 * 6
    model.refuses = ["too much"] * 1_000
    with pytest.raises(WindowOverflow):
        asyncio.run(talk(agent, 1))
    assert manager.conversation(agent).session.verify().ok


def test_reduce_context_compacts_the_conversation():
    script = Script()
    manager = RectoConversationManager("memory:", **NAMES)
    agent = agent_with(Scripted(script), manager)
    asyncio.run(talk(agent, 6))
    before = copy.deepcopy(agent.messages)
    manager.reduce_context(agent)
    assert manager.conversation(agent).session.report().left_messages > 0
    assert agent.messages == before


def test_blocks_added_for_one_call_are_sent_but_not_stored():
    script = Script()
    manager = RectoConversationManager("memory:", session_id="thread-1", **NAMES)
    agent = agent_with(Scripted(script), manager)
    minute = iter(range(100))

    def inject_minute(context: Any) -> Any:
        last = context.messages[-1]
        message = {**last, "content": [*last["content"], {"text": f"Minute {next(minute)}."}]}
        return context.replace(messages=[*context.messages[:-1], message], dynamic_trailing_blocks=1)

    agent.add_middleware(InvokeModelStage.Input, inject_minute)
    asyncio.run(talk(agent, 8))
    assert all("Minute" in json.dumps(prompt[-1]) for prompt in script.prompts)
    assert "Minute" not in json.dumps([stored_messages(manager.conversation(agent).session), agent.messages])
    assert manager.conversation(agent).session.key == "agent:default:thread-1"


def test_every_content_type_is_read_back():
    assistant = {
        "role": "assistant",
        "content": [
            {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "sealed"}}},
            {"text": "One moment."},
            {"toolUse": {"toolUseId": "c1", "name": "look_up", "input": {"shelf": "A"}}},
        ],
    }
    picture = {"image": {"format": "png", "source": {"bytes": b"\x89PNG\r\n\x1a\n"}}}
    results = [{"text": "ok"}, picture]
    failed = {"toolResult": {"toolUseId": "c1", "status": "error", "content": results}}
    user = {"role": "user", "content": [failed, {"text": "Look."}, picture]}
    assert [*read([*written(assistant), *written(user)])] == [assistant, user]


def test_conversations_in_another_format_are_rejected_and_a_store_error_is_raised(tmp_path):
    with recto.follow("memory:", **NAMES) as chat, pytest.raises(SettingsError, match="anthropic"):
        RectoConversationManager(conversations=chat)
    manager = RectoConversationManager(tmp_path / "a.db", **NAMES)
    agent = agent_with(Scripted(Script()), manager)
    manager.conversations.close()
    with pytest.raises(StoreError):
        agent("Are you there?")


def test_the_adapter_closes_only_what_it_opened(tmp_path):
    assert_closes_what_it_opened(RectoConversationManager, tmp_path / "a.db", ANTHROPIC_MESSAGES.name)


@pytest.mark.parametrize("which", ["before", "after"])
def test_the_documented_example_runs(which, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = Script()
    namespace = {"model": Scripted(script), "tools": [look_up]}
    namespace |= {"question": "Task 1: check the next shelves.", "more": question_about("S-0")}
    exec(page_example("strands.md", which), namespace)
    assert str(namespace["result"]).startswith("Asked for")
    assert batch_of("S-0") in json.dumps(script.prompts[-1])
