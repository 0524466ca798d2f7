"""LlamaIndex agents with a scripted model: the memory is Recto's transcript, the model sees a working set."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from bench.adapters.scenario import look_up as look_up_shelf
from llama_index.core.agent.workflow import FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock, ThinkingBlock, ToolCallBlock
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.tools import FunctionTool
from tests.adapters.judging import (
    NAMES,
    WINDOW,
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
from recto.adapters.llama_index import RectoMemory
from recto.errors import StoreError

SYSTEM = "You look after a warehouse."
TURNS = 16


def look_up(shelf: str) -> str:
    """Looks up everything that is known about a shelf."""
    return look_up_shelf(shelf)


TOOLS = [FunctionTool.from_defaults(look_up)]


def seen(messages: list[ChatMessage]) -> list[dict[str, Any]]:
    """The prompt of a framework model as Chat messages, converted without the adapter."""
    found: list[dict[str, Any]] = []
    for message in messages:
        calls = [
            {
                "id": block.tool_call_id,
                "type": "function",
                "function": {"name": block.tool_name, "arguments": json.dumps(block.tool_kwargs)},
            }
            for block in message.blocks
            if isinstance(block, ToolCallBlock)
        ]
        converted: dict[str, Any] = {"role": message.role.value, "content": message.content or ""}
        converted |= {"tool_calls": calls} if calls else {}
        converted |= {"tool_call_id": message.additional_kwargs["tool_call_id"]} if converted["role"] == "tool" else {}
        found.append(converted)
    return found


def model_of(script: Script) -> MockFunctionCallingLLM:
    """The framework's model interface over a script."""

    def respond(messages: list[ChatMessage], **more: Any) -> ChatMessage:
        reply = script.reply(seen(messages))
        calls = [
            ToolCallBlock(
                tool_call_id=call["id"], tool_name="look_up", tool_kwargs=json.loads(call["function"]["arguments"])
            )
            for call in reply.get("tool_calls", ())
        ]
        text = [TextBlock(text=reply["content"])] if reply["content"] else []
        return ChatMessage(role="assistant", blocks=[*text, *calls])

    return MockFunctionCallingLLM(response_generator=respond, is_chat_model=True)


def memory_of(name: str = "a", store: Any = "memory:", **more: Any) -> RectoMemory:
    names = {key: value for key, value in NAMES.items() if key != "max_tokens"}
    return RectoMemory.from_defaults(name, token_limit=WINDOW, store=store, **{**names, **more})


def comparable(messages: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(message["role"], text_of(message), json.dumps(message.get("tool_calls"))) for message in messages]


async def talk(agent: Any, memory: RectoMemory, turns: range) -> None:
    for turn in turns:
        await agent.run(f"Task {turn}: check the next shelves.", memory=memory)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_long_conversation_fits_and_the_transcript_is_complete(streaming):
    script, memory = Script(), memory_of()
    agent = FunctionAgent(tools=TOOLS, llm=model_of(script), system_prompt=SYSTEM, streaming=streaming)
    asyncio.run(talk(agent, memory, range(TURNS)))
    assert_prompts_fit(script.prompts)
    assert all(prompt[0] == {"role": "system", "content": SYSTEM} for prompt in script.prompts)
    session = memory.conversation.session
    assert comparable(seen(memory.get_all())) == comparable(stored_messages(session))
    assert len(memory.get_all()) == TURNS * 7
    assert session.report().left_messages > 0
    assert not has_fact(script.prompts[-1], script.shelves[0])
    asyncio.run(_ask(agent, memory, question_about(script.shelves[0])))
    assert has_fact(script.prompts[-1], script.shelves[0])
    assert session.verify().ok


async def _ask(agent: Any, memory: RectoMemory, text: str) -> None:
    await agent.run(text, memory=memory)


def test_concurrent_conversations_do_not_mix():
    scripts = {name: Script() for name in "ab"}
    agents = {name: FunctionAgent(tools=TOOLS, llm=model_of(scripts[name]), streaming=False) for name in "ab"}
    with recto.follow("memory:", **NAMES) as conversations:
        memories = {name: RectoMemory.from_defaults(name, conversations=conversations) for name in "ab"}

        async def both() -> None:
            first = (talk(agents["a"], memories["a"], range(4)), talk(agents["b"], memories["b"], range(10, 14)))
            await asyncio.gather(*first)

        asyncio.run(both())
        for name, turns in (("a", range(4)), ("b", range(10, 14))):
            messages = stored_messages(memories[name].conversation.session)
            tasks = [text_of(message) for message in messages if message["role"] == "user"]
            assert tasks == [f"Task {turn}: check the next shelves." for turn in turns]
            assert len(messages) == 4 * 7


def test_another_process_resumes_the_same_session(tmp_path):
    script = Script()
    for turn in range(3):
        memory = memory_of(store=tmp_path / "agent.db")
        agent = FunctionAgent(tools=TOOLS, llm=model_of(script), streaming=False)
        asyncio.run(talk(agent, memory, range(turn, turn + 1)))
        assert memory.conversation.session.key == "agent:default:a"
        assert len(memory.get_all()) == 7 * (turn + 1)
        memory.conversations.close()
    assert_prompts_fit(script.prompts)


def test_resetting_or_setting_a_memory_starts_over_and_deletes_nothing(tmp_path):
    memory = memory_of(store=tmp_path / "agent.db")
    memory.put_messages([ChatMessage(role="user", content="One"), ChatMessage(role="assistant", content="1")])
    first = memory.conversation.session.key
    assert [message.content for message in memory.get()] == ["One", "1"]
    for text in ("Two", "Three"):
        memory.reset()
        assert memory.get_all() == memory.get() == []
        memory.put(ChatMessage(role="user", content=text))
    memory.set([ChatMessage(role="system", content="Be kind."), ChatMessage(role="user", content="Four")])
    memory.set([*memory.get_all(), ChatMessage(role="assistant", content="4")])
    memory.conversations.close()
    memory = memory_of(store=tmp_path / "agent.db")
    assert [message.content for message in memory.get()] == ["Be kind.", "Four", "4"]
    with recto.open(memory.conversation.session.store, session=first) as before:
        assert [text_of(message) for message in stored_messages(before)] == ["One", "1"]


def test_images_calls_and_thinking_are_returned_as_they_were_put():
    memory = memory_of()
    picture = ImageBlock(image=b"\x89PNG" + bytes(60), image_mimetype="image/png")
    question = ChatMessage(role="user", blocks=[TextBlock(text="What is this?"), picture])
    call = ToolCallBlock(tool_call_id="c1", tool_name="look_up", tool_kwargs={"shelf": "A"})
    answer = ChatMessage(role="assistant", blocks=[ThinkingBlock(content="Hm."), call])
    result = ChatMessage(role="tool", content="A dog.", additional_kwargs={"tool_call_id": "c1", "name": "look_up"})
    memory.put_messages([question, answer, result])
    assert memory.get() == [question, answer, result]
    stored = memory.get_all()
    assert stored[0].blocks[1].resolve_image().read() == picture.resolve_image().read()
    assert (stored[1].blocks, stored[2]) == ([call], result)


def test_the_memory_works_with_chat_engines_and_react_agents_and_is_serialisable():
    memory = memory_of()
    engine = SimpleChatEngine.from_defaults(llm=model_of(Script()), memory=memory)
    engine.chat("Why?")
    assert [message.role.value for message in memory.get_all()] == ["user", "assistant"]

    def respond(messages: list[ChatMessage], **more: Any) -> ChatMessage:
        return ChatMessage(role="assistant", content="Thought: I know it.\nAnswer: Because.")

    llm = MockFunctionCallingLLM(response_generator=respond, is_chat_model=True)
    asyncio.run(_ask(ReActAgent(tools=TOOLS, llm=llm, streaming=False), memory, "And then?"))
    assert memory.get_all()[2].content == "And then?"
    again = RectoMemory.from_dict(memory.to_dict())
    assert (again.session_id, again.token_limit, again.store) == ("a", WINDOW, "memory:")


def test_llama_index_parameter_names_are_accepted():
    memory = memory_of(tokenizer_fn=lambda text: text.split(), preserve_recent=4, chat_history_token_ratio=0.5)
    memory.put(ChatMessage(role="user", content="one two three"))
    session = memory.conversation.session
    assert session.count("one two three") == 3
    assert session.window.budget.window == WINDOW // 2
    assert memory.conversations.settings.window.min_recent_messages == 4


def test_a_closed_store_raises_its_own_error():
    memory = memory_of()
    memory.conversations.close()
    with pytest.raises(StoreError):
        memory.put(ChatMessage(role="user", content="Anybody there?"))


def test_the_adapter_closes_only_what_it_opened(tmp_path):
    def make(*, max_tokens: int = WINDOW, **names: Any) -> RectoMemory:
        return RectoMemory.from_defaults("1", token_limit=max_tokens, **names)

    assert_closes_what_it_opened(make, tmp_path / "a.db")


@pytest.mark.parametrize("which", ["before", "after"])
def test_the_documented_examples_run(which, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = Script()
    names: dict[str, Any] = {"llm": model_of(script), "tools": TOOLS, "question": "Why?"}
    text = "\n".join(f"    {line}" for line in page_example("llama-index.md", which).splitlines())
    exec(compile(f"async def example():\n{text}\n", "llama-index.md", "exec"), names)
    asyncio.run(names["example"]())
    assert script.prompts
