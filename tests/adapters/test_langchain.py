"""LangChain's own agents, with a scripted model: the state stays the graph's, the model sees a working set."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from bench.adapters.scenario import look_up as looked_up
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, convert_to_messages
from langchain_core.messages.utils import convert_to_openai_messages, count_tokens_approximately
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import Field
from tests.adapters.judging import NAMES, Script, closes_itself, fence, knows, question_about, sound, spoken, text_of

import recto
from recto.adapters.langchain import RectoMiddleware, trim_messages
from recto.errors import SettingsError, StoreError, WindowOverflow
from recto.testing import scripted_session

SYSTEM = "You look after a warehouse."


@tool
def look_up(shelf: str) -> str:
    """Looks up everything that is known about a shelf."""
    return looked_up(shelf)


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


def say(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def chats(messages: list[Any]) -> list[dict[str, Any]]:
    return convert_to_openai_messages(messages)


def held(agent: Any, name: str) -> list[dict[str, Any]]:
    """What the graph itself keeps of a thread."""
    return chats(agent.get_state(thread(name)).values["messages"])


def test_a_long_conversation_fits_and_both_the_state_and_the_transcript_hold_all_of_it():
    script = Script()
    middleware = RectoMiddleware("memory:", **NAMES)
    agent = agent_with(script, middleware, InMemorySaver())
    for turn in range(14):
        agent.invoke(say(f"Task {turn}: check the next shelves."), thread("a"))
    sound(script.prompts)
    assert all(prompt[0] == {"role": "system", "content": SYSTEM} for prompt in script.prompts)
    session = middleware.conversations.of("a").session
    assert session.key == "agent:default:a"
    assert held(agent, "a") == spoken(session)
    assert len(spoken(session)) == 14 * 7
    assert session.report().left_messages > 0
    assert not knows(script.prompts[-1], script.shelves[0])
    agent.invoke(say(question_about(script.shelves[0])), thread("a"))
    assert knows(script.prompts[-1], script.shelves[0])
    assert session.verify().ok
    middleware.conversations.close()


def test_what_did_not_change_is_sent_as_the_messages_that_the_graph_holds():
    given: list[Any] = []

    class Watching(ScriptedModel):
        def _generate(self, messages, **more):
            given.append(messages)
            return super()._generate(messages, **more)

    middleware = RectoMiddleware("memory:", **NAMES)
    agent = create_agent(Watching(script=Script()), [look_up], middleware=[middleware], checkpointer=InMemorySaver())
    for turn in range(12):
        agent.invoke(say(f"Task {turn}: check the next shelves."), thread("a"))
    own = {message.id for message in agent.get_state(thread("a")).values["messages"]}
    made = [message for message in given[-1] if message.id not in own]
    assert 0 < len(made) < len(given[-1])


async def asked(agent: Any, name: str, turns: int) -> None:
    for turn in range(turns):
        await agent.ainvoke(say(f"Task {turn} of {name}: check the next shelves."), thread(name))


def test_two_threads_at_once_do_not_mix_and_streams_are_stored_like_answers():
    script = Script()
    middleware = RectoMiddleware("memory:", **NAMES)
    agent = agent_with(script, middleware, InMemorySaver())

    async def both() -> None:
        await asyncio.gather(asked(agent, "a", 6), asked(agent, "b", 6))
        async for _ in agent.astream(say("One more: check."), thread("a"), stream_mode="messages"):
            pass

    asyncio.run(both())
    sound(script.prompts)
    for name in ("a", "b"):
        session = middleware.conversations.of(name).session
        assert session.key == f"agent:default:{name}"
        assert held(agent, name) == spoken(session)
    middleware.conversations.close()


def test_many_calls_at_once_in_one_session_store_each_answer_behind_its_question():
    middleware = RectoMiddleware("memory:", session_id="shared", **NAMES)
    agent = agent_with(Script(), middleware)

    async def all_at_once() -> None:
        await asyncio.gather(*(agent.ainvoke(say(f"What is {number}?")) for number in range(5)))

    asyncio.run(all_at_once())
    store = middleware.conversations.of("shared").session.store
    told = []
    for found in store.sessions():
        with recto.open(store, session=found.session) as session:
            told.append([message["content"] for message in spoken(session)])
    answered = [one for one in told if len(one) > 1]  # the first one may have been asked before it had its branch
    assert sorted(answered) == [[f"What is {number}?", f"Asked for: What is {number}?"] for number in range(5)]


def test_another_process_goes_on_in_the_same_session(tmp_path):
    script, saver = Script(), InMemorySaver()
    for turn in range(4):
        middleware = RectoMiddleware(tmp_path / "agent.db", **NAMES)
        agent = agent_with(script, middleware, saver)
        agent.invoke(say(f"Task {turn}: check the next shelves."), thread("a"))
        session = middleware.conversations.of("a").session
        assert session.key == "agent:default:a"
        assert held(agent, "a") == spoken(session)
        middleware.conversations.close()


def test_a_subagent_that_a_tool_calls_has_a_conversation_of_its_own():
    middleware = RectoMiddleware("memory:", **NAMES)
    inner = agent_with(Script(), middleware)

    @tool("look_up")
    def ask_somebody(shelf: str) -> str:
        """Asks another agent."""
        return str(inner.invoke(say(f"Find {shelf}."))["messages"][-1].text)

    script = Script()
    agent = create_agent(
        ScriptedModel(script=script), [ask_somebody], middleware=[middleware], checkpointer=InMemorySaver()
    )
    agent.invoke(say("Task 1: check the next shelves."), thread("a"))
    session = middleware.conversations.of("a").session
    assert session.key == "agent:default:a"
    assert held(agent, "a") == spoken(session)


def test_a_store_that_is_gone_is_told_by_its_own_error():
    middleware = RectoMiddleware("memory:", **NAMES)
    agent = agent_with(Script(), middleware)
    middleware.conversations.close()
    with pytest.raises(StoreError):
        agent.invoke(say("Anybody there?"))


def test_a_provider_that_finds_the_prompt_too_long_is_believed_and_asked_again():
    script, saver = Script(), InMemorySaver()
    middleware = RectoMiddleware("memory:", **NAMES)
    agent = agent_with(script, middleware, saver)
    for turn in range(6):
        agent.invoke(say(f"Task {turn}: check the next shelves."), thread("a"))
    said = "This model's maximum context length is 3000 tokens. However, your messages resulted in 4000 tokens."
    agent_with(script, middleware, saver, refuses=[said]).invoke(say("Why?"), thread("a"))
    sound(script.prompts[-1:], window=3_000)


def test_thresholds_are_taken_as_langchain_writes_them_and_other_middleware_names_too():
    written = {"trigger": [("fraction", 0.5)], "keep": ("messages", 6), "token_counter": count_tokens_approximately}
    middleware = RectoMiddleware("memory:", **{**NAMES, **written})
    window = middleware.conversations.settings.window
    assert (window.ceiling_percent, window.min_recent_messages) == (50.0, 6)
    assert middleware.conversations.of().session.meter.name == "own/count_tokens_approximately"
    with pytest.raises(SettingsError, match="one threshold"):
        RectoMiddleware("memory:", trigger={"tokens": 10, "messages": 3}, **NAMES)


def test_a_chat_model_of_langchains_can_write_the_summary():
    class Writer(ScriptedModel):
        def _generate(self, messages, **more):
            asked.append(messages)
            return ChatResult(generations=[ChatGeneration(message=AIMessage("Shelves were checked."))])

    asked: list[Any] = []
    middleware = RectoMiddleware("memory:", summarizer=Writer(script=None), **NAMES)
    agent = agent_with(Script(), middleware, InMemorySaver())
    for turn in range(12):
        agent.invoke(say(f"Task {turn}: check the next shelves."), thread("a"))
    assert asked


HISTORY = convert_to_messages(list(scripted_session(seed=3, exchanges=25)))


@pytest.mark.parametrize("counter", [None, "approximate", count_tokens_approximately])
def test_trimmed_messages_fit_are_valid_keep_system_and_newest_and_say_what_is_missing(counter):
    left = trim_messages(HISTORY, max_tokens=4_000, token_counter=counter, model="gpt-4o", start_on="human")
    sound([chats(left)], tools=())
    assert count_tokens_approximately(left) <= 4_000 or counter is None
    assert left[0] is HISTORY[0]
    assert left[-1] is HISTORY[-1]
    assert any("earlier messages are not shown" in str(message.content) for message in left)
    assert len(left) < len(HISTORY)


def test_trimming_by_messages_and_the_rest_of_langchains_signature():
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


def test_trimming_is_a_step_of_a_chain_and_remembers_where_it_is_given_conversations():
    model = ScriptedModel(script=Script())
    chain = trim_messages(max_tokens=4_000, token_counter="approximate") | model
    assert chain.invoke(HISTORY).tool_calls
    sound(model.script.prompts, tools=())
    with recto.follow("memory:", **NAMES) as conversations:
        chain = trim_messages(conversations=conversations) | model
        chain.invoke(HISTORY, thread("a"))
        sound(model.script.prompts, tools=())
        assert spoken(conversations.of("a").session) == chats(HISTORY[1:])
    with pytest.raises(SettingsError, match="max_tokens, or conversations"):
        trim_messages(HISTORY)


def test_a_block_that_chat_has_no_place_for_is_stored_and_sent_as_it_was():
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
    assert "UklGRg==" in spoken(middleware.conversations.of("a").session)[0]["content"]


def test_it_closes_what_it_opened(tmp_path):
    closes_itself(RectoMiddleware, tmp_path / "a.db")


@pytest.mark.parametrize("which", ["before", "after"])
def test_the_examples_of_the_page_run(which, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = Script()
    names = {"model": ScriptedModel(script=script), "tools": [look_up], "saver": InMemorySaver(), "question": "Why?"}
    exec(compile(fence("langchain.md", which), "langchain.md", "exec"), names)
    assert script.prompts
    assert text_of(script.prompts[-1][-1])
