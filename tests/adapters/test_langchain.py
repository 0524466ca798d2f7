"""LangChain agents with a scripted model: the graph keeps its state, the model sees a working set."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bench.adapters.scenario import look_up as look_up_shelf
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, convert_to_messages
from langchain_core.messages.utils import convert_to_openai_messages, count_tokens_approximately
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import Field
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
from recto.adapters.langchain import RectoMiddleware, trim_messages
from recto.errors import SettingsError, StoreError, WindowOverflow
from recto.testing import scripted_session

SYSTEM = "You look after a warehouse."


@tool
def look_up(shelf: str) -> str:
    """Looks up everything that is known about a shelf."""
    return look_up_shelf(shelf)


class ScriptedModel(BaseChatModel):
    """LangChain's model interface over a script."""

    script: Any
    refuses: list[str] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools, **more):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **more):
        if self.refuses:
            raise RuntimeError(self.refuses.pop())
        (made,) = convert_to_messages([self.script.reply(convert_to_openai_messages(messages))])
        usage = {"input_tokens": 1_000, "output_tokens": 10, "total_tokens": 1_010}
        made = made.model_copy(update={"usage_metadata": usage, "id": f"run-{len(self.script.prompts)}"})
        return ChatResult(generations=[ChatGeneration(message=made)])

    def _stream(self, messages, stop=None, run_manager=None, **more):
        made = self._generate(messages).generations[0].message
        calls = [
            {"name": call["name"], "args": f'{{"shelf": "{call["args"]["shelf"]}"}}', "id": call["id"], "index": place}
            for place, call in enumerate(made.tool_calls)
        ]
        yield ChatGenerationChunk(message=AIMessageChunk(content=made.content, tool_call_chunks=calls, id=made.id))


def agent_with(script: Script, middleware: RectoMiddleware, saver: Any = None, **more: Any) -> Any:
    model = ScriptedModel(script=script, **more)
    return create_agent(model, [look_up], system_prompt=SYSTEM, middleware=[middleware], checkpointer=saver)


def thread(name: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": name}}


def user_input(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def chats(messages: list[Any]) -> list[dict[str, Any]]:
    return convert_to_openai_messages(messages)


def thread_messages(agent: Any, name: str) -> list[dict[str, Any]]:
    """The messages of a thread in the state of the graph."""
    return chats(agent.get_state(thread(name)).values["messages"])


def test_a_long_conversation_fits_and_state_and_transcript_are_complete():
    script = Script()
    middleware = RectoMiddleware("memory:", **NAMES)
    agent = agent_with(script, middleware, InMemorySaver())
    for turn in range(14):
        agent.invoke(user_input(f"Task {turn}: check the next shelves."), thread("a"))
    assert_prompts_fit(script.prompts)
    assert all(prompt[0] == {"role": "system", "content": SYSTEM} for prompt in script.prompts)
    session = middleware.conversations.of("a").session
    assert session.key == "agent:default:a"
    assert thread_messages(agent, "a") == stored_messages(session)
    assert len(stored_messages(session)) == 14 * 7
    assert session.report().left_messages > 0
    assert not has_fact(script.prompts[-1], script.shelves[0])
    agent.invoke(user_input(question_about(script.shelves[0])), thread("a"))
    assert has_fact(script.prompts[-1], script.shelves[0])
    assert session.verify().ok
    middleware.conversations.close()


def test_unchanged_messages_are_sent_as_the_messages_of_the_graph():
    sent: list[Any] = []

    class Watching(ScriptedModel):
        def _generate(self, messages, **more):
            sent.append(messages)
            return super()._generate(messages, **more)

    middleware = RectoMiddleware("memory:", **NAMES)
    agent = create_agent(Watching(script=Script()), [look_up], middleware=[middleware], checkpointer=InMemorySaver())
    for turn in range(12):
        agent.invoke(user_input(f"Task {turn}: check the next shelves."), thread("a"))
    own = {message.id for message in agent.get_state(thread("a")).values["messages"]}
    made = [message for message in sent[-1] if message.id not in own]
    assert 0 < len(made) < len(sent[-1])


async def run_turns(agent: Any, name: str, turns: int) -> None:
    for turn in range(turns):
        await agent.ainvoke(user_input(f"Task {turn} of {name}: check the next shelves."), thread(name))


def test_concurrent_threads_do_not_mix_and_streamed_answers_are_stored():
    script = Script()
    middleware = RectoMiddleware("memory:", **NAMES)
    agent = agent_with(script, middleware, InMemorySaver())

    async def both() -> None:
        await asyncio.gather(run_turns(agent, "a", 6), run_turns(agent, "b", 6))
        async for _ in agent.astream(user_input("One more: check."), thread("a"), stream_mode="messages"):
            pass

    asyncio.run(both())
    assert_prompts_fit(script.prompts)
    for name in ("a", "b"):
        session = middleware.conversations.of(name).session
        assert session.key == f"agent:default:{name}"
        assert thread_messages(agent, name) == stored_messages(session)
    middleware.conversations.close()


def test_concurrent_calls_in_one_session_store_each_answer_after_its_question():
    middleware = RectoMiddleware("memory:", session_id="shared", **NAMES)
    agent = agent_with(Script(), middleware)

    async def all_at_once() -> None:
        await asyncio.gather(*(agent.ainvoke(user_input(f"What is {number}?")) for number in range(5)))

    asyncio.run(all_at_once())
    store = middleware.conversations.of("shared").session.store
    transcripts = []
    for found in store.sessions():
        with recto.open(store, session=found.session) as session:
            transcripts.append([message["content"] for message in stored_messages(session)])
    answered = [messages for messages in transcripts if len(messages) > 1]  # the first question may precede its branch
    assert sorted(answered) == [[f"What is {number}?", f"Asked for: What is {number}?"] for number in range(5)]


def test_another_process_resumes_the_same_session(tmp_path):
    script, saver = Script(), InMemorySaver()
    for turn in range(4):
        middleware = RectoMiddleware(tmp_path / "agent.db", **NAMES)
        agent = agent_with(script, middleware, saver)
        agent.invoke(user_input(f"Task {turn}: check the next shelves."), thread("a"))
        session = middleware.conversations.of("a").session
        assert session.key == "agent:default:a"
        assert thread_messages(agent, "a") == stored_messages(session)
        middleware.conversations.close()


def test_a_subagent_called_by_a_tool_has_its_own_conversation():
    middleware = RectoMiddleware("memory:", **NAMES)
    inner = agent_with(Script(), middleware)

    @tool("look_up")
    def ask_subagent(shelf: str) -> str:
        """Asks another agent."""
        return str(inner.invoke(user_input(f"Find {shelf}."))["messages"][-1].text)

    script = Script()
    agent = create_agent(
        ScriptedModel(script=script), [ask_subagent], middleware=[middleware], checkpointer=InMemorySaver()
    )
    agent.invoke(user_input("Task 1: check the next shelves."), thread("a"))
    session = middleware.conversations.of("a").session
    assert session.key == "agent:default:a"
    assert thread_messages(agent, "a") == stored_messages(session)


def test_a_closed_store_raises_its_own_error():
    middleware = RectoMiddleware("memory:", **NAMES)
    agent = agent_with(Script(), middleware)
    middleware.conversations.close()
    with pytest.raises(StoreError):
        agent.invoke(user_input("Anybody there?"))


def test_a_prompt_rejected_as_too_long_is_retried_smaller():
    script, saver = Script(), InMemorySaver()
    middleware = RectoMiddleware("memory:", **NAMES)
    agent = agent_with(script, middleware, saver)
    for turn in range(6):
        agent.invoke(user_input(f"Task {turn}: check the next shelves."), thread("a"))
    error = "This model's maximum context length is 3000 tokens. However, your messages resulted in 4000 tokens."
    agent_with(script, middleware, saver, refuses=[error]).invoke(user_input("Why?"), thread("a"))
    assert_prompts_fit(script.prompts[-1:], window=3_000)


def test_langchain_thresholds_and_middleware_parameters_are_accepted():
    written = {"trigger": [("fraction", 0.5)], "keep": ("messages", 6), "token_counter": count_tokens_approximately}
    middleware = RectoMiddleware("memory:", **{**NAMES, **written})
    window = middleware.conversations.settings.window
    assert (window.ceiling_percent, window.min_recent_messages) == (50.0, 6)
    assert middleware.conversations.of().session.meter.name == "own/count_tokens_approximately"
    with pytest.raises(SettingsError, match="one threshold"):
        RectoMiddleware("memory:", trigger={"tokens": 10, "messages": 3}, **NAMES)


def test_a_langchain_chat_model_can_write_the_summary():
    class Writer(ScriptedModel):
        def _generate(self, messages, **more):
            requests.append(messages)
            return ChatResult(generations=[ChatGeneration(message=AIMessage("Shelves were checked."))])

    requests: list[Any] = []
    middleware = RectoMiddleware("memory:", summarizer=Writer(script=None), **NAMES)
    agent = agent_with(Script(), middleware, InMemorySaver())
    for turn in range(12):
        agent.invoke(user_input(f"Task {turn}: check the next shelves."), thread("a"))
    assert requests


HISTORY = convert_to_messages(list(scripted_session(seed=3, exchanges=25)))


@pytest.mark.parametrize("counter", [None, "approximate", count_tokens_approximately])
def test_trimmed_messages_fit_keep_system_and_newest_and_mark_the_omission(counter):
    left = trim_messages(HISTORY, max_tokens=4_000, token_counter=counter, model="gpt-4o", start_on="human")
    assert_prompts_fit([chats(left)], tools=())
    assert count_tokens_approximately(left) <= 4_000 or counter is None
    assert left[0] is HISTORY[0]
    assert left[-1] is HISTORY[-1]
    assert any("earlier messages are not shown" in str(message.content) for message in left)
    assert len(left) < len(HISTORY)


def test_trim_messages_supports_the_other_parameters_of_langchain():
    assert len(trim_messages(HISTORY, max_tokens=20, token_counter=len)) <= 20
    assert trim_messages(HISTORY, max_tokens=900_000, model="gpt-4o") == HISTORY
    bare = trim_messages(HISTORY, max_tokens=4_000, token_counter="approximate", include_system=False)
    assert not any(isinstance(message, SystemMessage) for message in bare)
    ended = trim_messages(HISTORY, max_tokens=4_000, token_counter="approximate", end_on="human")
    assert isinstance(ended[-1], HumanMessage)
    first = trim_messages(HISTORY, max_tokens=500, token_counter="approximate", strategy="first")
    assert first[:2] == HISTORY[:2]
    with pytest.raises(WindowOverflow):
        trim_messages(HISTORY, max_tokens=10, model="gpt-4o")


def test_trimming_is_a_chain_step_and_stores_messages_with_conversations():
    model = ScriptedModel(script=Script())
    chain = trim_messages(max_tokens=4_000, token_counter="approximate") | model
    assert chain.invoke(HISTORY).tool_calls
    assert_prompts_fit(model.script.prompts, tools=())
    with recto.follow("memory:", **NAMES) as conversations:
        chain = trim_messages(conversations=conversations) | model
        chain.invoke(HISTORY, thread("a"))
        assert_prompts_fit(model.script.prompts, tools=())
        assert stored_messages(conversations.of("a").session) == chats(HISTORY[1:])
    with pytest.raises(SettingsError, match="max_tokens, or conversations"):
        trim_messages(HISTORY)


def test_a_block_without_a_chat_equivalent_is_stored_and_sent_unchanged():
    sent: list[Any] = []
    block = {"type": "media", "mime_type": "audio/wav", "data": "UklGRg=="}

    class Watching(ScriptedModel):
        def _generate(self, messages, **more):
            sent.append(messages)
            return ChatResult(generations=[ChatGeneration(message=AIMessage("A song."))])

    middleware = RectoMiddleware("memory:", session_id="a", **NAMES)
    agent = create_agent(Watching(script=None), [], middleware=[middleware])
    agent.invoke({"messages": [HumanMessage([block])]})
    assert sent[0][0].content == [block]
    assert "UklGRg==" in stored_messages(middleware.conversations.of("a").session)[0]["content"]


def test_the_adapter_closes_only_what_it_opened(tmp_path):
    assert_closes_what_it_opened(RectoMiddleware, tmp_path / "a.db")


@pytest.mark.parametrize("which", ["before", "after"])
def test_the_documented_examples_run(which, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = Script()
    names = {"model": ScriptedModel(script=script), "tools": [look_up], "saver": InMemorySaver(), "question": "Why?"}
    exec(compile(page_example("langchain.md", which), "langchain.md", "exec"), names)
    assert script.prompts
    assert text_of(script.prompts[-1][-1])
