"""Strands' own agents, with a scripted model: the agent's messages stay whole, the model gets a working set."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

import pytest
from bench.adapters.scenario import batch_of
from bench.adapters.scenario import look_up as looked_up
from bench.adapters.scripted_strands import Scripted
from strands import Agent, tool
from strands.middleware import InvokeModelStage
from strands.session.file_session_manager import FileSessionManager
from tests.adapters.judging import NAMES, Script, closes_itself, fence, knows, question_about, sound, spoken

import recto
from recto.adapters.strands import RectoConversationManager, read, written
from recto.errors import SettingsError, StoreError, WindowOverflow
from recto.formats import problems
from recto.formats.anthropic import ANTHROPIC, ANTHROPIC_MESSAGES

SYSTEM = "You look after a warehouse."


@tool
def look_up(shelf: str) -> str:
    """Looks up everything that is known about a shelf."""
    return looked_up(shelf)


def agent_with(model: Scripted, manager: RectoConversationManager, **more: Any) -> Agent:
    plain: dict[str, Any] = {"system_prompt": SYSTEM, "callback_handler": None, "tools": [look_up]}
    return Agent(model, conversation_manager=manager, **plain, **more)


async def talk(agent: Agent, turns: int, streamed: bool = False) -> None:
    for turn in range(turns):
        said = f"Task {turn}: check the next shelves."
        if streamed:
            async for _ in agent.stream_async(said):
                pass
        else:
            await agent.invoke_async(said)


def alternate(sent: list[list[Any]]) -> bool:
    """Whether the speakers take turns, as Bedrock wants it."""
    roles = [[message["role"] for message in messages] for messages in sent]
    return all(one == [("user", "assistant")[place % 2] for place in range(len(one))] for one in roles)


def told(messages: list[Any]) -> list[Any]:
    return [one for message in messages for one in written(message)]


@pytest.mark.parametrize(("streamed", "mode"), [(False, "sliding_window"), (True, "zones")])
def test_a_long_conversation_fits_and_both_the_agent_and_the_transcript_hold_all_of_it(streamed, mode):
    script = Script()
    model = Scripted(script)
    manager = RectoConversationManager("memory:", session_id="thread-1", window={"mode": mode}, **NAMES)
    agent = agent_with(model, manager)
    asyncio.run(talk(agent, 14, streamed))
    sound(script.prompts)
    assert alternate(model.sent)
    for sent in model.sent:
        assert problems([json.dumps(one).encode() for one in told(sent)], ANTHROPIC) == []
    assert all(prompt[0] == {"role": "system", "content": SYSTEM} for prompt in script.prompts)
    session = manager.conversation(agent).session
    assert spoken(session) == told(agent.messages)
    # One task: a user, two calls, their results, a call, its result, the answer.
    assert len(agent.messages) == 14 * 6
    assert manager.removed_message_count == 0
    assert session.key == "agent:default:thread-1"
    assert session.report().left_messages > 0
    assert session.verify().ok
    assert not knows(script.prompts[-1], script.shelves[0])
    agent(question_about(script.shelves[0]))
    assert knows(script.prompts[-1], script.shelves[0])
    assert alternate(model.sent)


def test_another_process_goes_on_with_what_its_session_manager_kept_and_two_agents_do_not_mix(tmp_path):
    script = Script()

    async def both() -> list[Agent]:
        manager = RectoConversationManager(tmp_path / "a.db", **NAMES)
        kept = [FileSessionManager(session_id=name, storage_dir=str(tmp_path)) for name in ("one", "two")]
        agents = [agent_with(Scripted(script), manager, session_manager=one) for one in kept]
        await asyncio.gather(*(talk(agent, 4) for agent in agents))
        for agent, name in zip(agents, ("one", "two"), strict=True):
            assert manager.conversation(agent).session.key == f"agent:default:{name}"
            assert spoken(manager.conversation(agent).session) == told(agent.messages)
        manager.conversations.close()
        return agents

    asyncio.run(both())
    agents = asyncio.run(both())
    sound(script.prompts)
    assert [sum("Task" in json.dumps(message) for message in agent.messages) for agent in agents] == [8, 8]


def test_a_model_that_finds_a_prompt_too_long_is_believed_until_nothing_more_can_leave():
    script = Script()
    model = Scripted(script)
    manager = RectoConversationManager("memory:", **NAMES)
    agent = agent_with(model, manager)
    asyncio.run(talk(agent, 6))
    model.refuses = ["prompt is too long: 5000 tokens > 3000 maximum"]
    asyncio.run(talk(agent, 1))
    sound(script.prompts[-3:], window=3_000)
    model.refuses = ["too much"]
    asyncio.run(talk(agent, 1))
    assert len(agent.messages) == 8 * 6
    model.refuses = ["too much"] * 1_000
    with pytest.raises(WindowOverflow):
        asyncio.run(talk(agent, 1))
    assert manager.conversation(agent).session.verify().ok


def test_it_compacts_when_it_is_asked_to():
    script = Script()
    manager = RectoConversationManager("memory:", **NAMES)
    agent = agent_with(Scripted(script), manager)
    asyncio.run(talk(agent, 6))
    before = copy.deepcopy(agent.messages)
    manager.reduce_context(agent)
    assert manager.conversation(agent).session.report().left_messages > 0
    assert agent.messages == before


def test_blocks_that_are_put_in_for_one_call_are_sent_and_are_no_history():
    script = Script()
    manager = RectoConversationManager("memory:", session_id="thread-1", **NAMES)
    agent = agent_with(Scripted(script), manager)
    minute = iter(range(100))

    def tell(context: Any) -> Any:
        last = context.messages[-1]
        told = {**last, "content": [*last["content"], {"text": f"Minute {next(minute)}."}]}
        return context.replace(messages=[*context.messages[:-1], told], dynamic_trailing_blocks=1)

    agent.add_middleware(InvokeModelStage.Input, tell)
    asyncio.run(talk(agent, 8))
    assert all("Minute" in json.dumps(prompt[-1]) for prompt in script.prompts)
    assert "Minute" not in json.dumps([spoken(manager.conversation(agent).session), agent.messages])
    assert manager.conversation(agent).session.key == "agent:default:thread-1"


def test_everything_a_message_can_hold_comes_back():
    said = {
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
    heard = {"role": "user", "content": [failed, {"text": "Look."}, picture]}
    assert [*read([*written(said), *written(heard)])] == [said, heard]


def test_conversations_in_another_format_are_refused_and_an_error_of_the_store_is_told(tmp_path):
    with recto.follow("memory:", **NAMES) as chat, pytest.raises(SettingsError, match="anthropic"):
        RectoConversationManager(conversations=chat)
    manager = RectoConversationManager(tmp_path / "a.db", **NAMES)
    agent = agent_with(Scripted(Script()), manager)
    manager.conversations.close()
    with pytest.raises(StoreError):
        agent("Are you there?")


def test_it_closes_what_it_opened(tmp_path):
    closes_itself(RectoConversationManager, tmp_path / "a.db", ANTHROPIC_MESSAGES.name)


@pytest.mark.parametrize("which", ["before", "after"])
def test_the_example_of_the_page_runs(which, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = Script()
    given = {"model": Scripted(script), "tools": [look_up]}
    given |= {"question": "Task 1: check the next shelves.", "more": question_about("S-0")}
    exec(fence("strands.md", which), given)
    assert str(given["result"]).startswith("Asked for")
    assert batch_of("S-0") in json.dumps(script.prompts[-1])
