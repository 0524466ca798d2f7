"""smolagents agents with a scripted model: the memory keeps every step, the model sees a working set."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import pytest
from bench.adapters.scenario import look_up as look_up_shelf
from PIL import Image
from smolagents import CodeAgent, LogLevel, Model, PlanningStep, ToolCallingAgent, tool
from smolagents.models import (
    ChatMessage,
    ChatMessageStreamDelta,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
    get_clean_message_list,
    get_tool_json_schema,
    tool_role_conversions,
)
from smolagents.monitoring import TokenUsage
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
from recto.adapters.smolagents import QuotedStep, RectoMemory
from recto.engine.prompt_builder import RECORD_HEADING
from recto.errors import StoreError

TURNS = 12


@tool
def look_up(shelf: str) -> str:
    """Looks up everything that is known about a shelf.

    Args:
        shelf: The shelf.
    """
    return look_up_shelf(shelf)


class Scripted(Model):
    """The framework's model interface over a script: tool calls for tool-calling agents, code for code agents."""

    def __init__(self, script: Script, *, code: bool = False) -> None:
        super().__init__(model_id="scripted")
        self.script = script
        self.code = code
        self.tools: list[Any] = []

    def generate(self, messages, stop_sequences=None, response_format=None, tools_to_call_from=None, **more):
        self.tools = [get_tool_json_schema(tool) for tool in tools_to_call_from or ()]
        reply = self.script.reply(get_clean_message_list(messages, tool_role_conversions))
        wanted = [json.loads(call["function"]["arguments"])["shelf"] for call in reply.get("tool_calls", ())]
        usage = TokenUsage(input_tokens=1_000, output_tokens=10)
        if self.code:
            lines = [f"print(look_up({shelf!r}))" for shelf in wanted] or [f"final_answer({reply['content']!r})"]
            code = "\n".join(["Thought: I look.", "<code>", *lines, "</code>"])
            return ChatMessage(role=MessageRole.ASSISTANT, content=code, token_usage=usage)
        calls = [self._call("look_up", {"shelf": shelf}) for shelf in wanted]
        calls = calls or [self._call("final_answer", {"answer": reply["content"]})]
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=calls, token_usage=usage)

    def _call(self, name: str, arguments: dict[str, Any]) -> ChatMessageToolCall:
        function = ChatMessageToolCallFunction(name=name, arguments=arguments)
        call_id = f"call_{len(self.script.prompts)}_{'_'.join(map(str, arguments.values()))}"
        return ChatMessageToolCall(function=function, id=call_id, type="function")


class Streaming(Scripted):
    def generate_stream(self, messages, **more):
        reply = self.generate(messages, **more)
        yield ChatMessageStreamDelta(content=reply.content, token_usage=reply.token_usage)


def agent_of(model: Scripted, **more: Any) -> Any:
    kind = CodeAgent if model.code else ToolCallingAgent
    return kind(tools=[look_up], model=model, verbosity_level=LogLevel.OFF, **more)


def names(window: int) -> dict[str, Any]:
    return {**NAMES, "max_tokens": window}


def expected_messages(agent: Any) -> int:
    """The number of transcript messages for the steps of an agent."""
    return sum(
        1 + (0 if not hasattr(step, "tool_calls") else len(step.tool_calls or ())) for step in agent.memory.steps
    )


@pytest.mark.parametrize(
    ("kind", "code", "window"), [(Scripted, False, 8_000), (Scripted, True, 10_000), (Streaming, True, 10_000)]
)
def test_a_long_conversation_fits_and_memory_and_transcript_are_complete(kind, code, window):
    script = Script()
    model = kind(script, code=code)
    agent = agent_of(model, **({"stream_outputs": True} if kind is Streaming else {}))
    memory = RectoMemory(agent, "memory:", session_id="a", **names(window))
    for turn in range(TURNS):
        agent.run(f"Task {turn}: check the next shelves.", reset=False)
    assert_prompts_fit(script.prompts, tools=model.tools, window=window)
    assert all(text_of(prompt[0]) == agent.system_prompt for prompt in script.prompts)
    session = memory.conversation.session
    assert session.key == "agent:default:a"
    assert len(agent.memory.steps) == TURNS * 4
    assert len(stored_messages(session)) == expected_messages(agent)
    assert session.report().left_messages > 0
    assert not has_fact(script.prompts[-1], script.shelves[0])
    agent.run(question_about(script.shelves[0]), reset=False)
    assert has_fact(script.prompts[-1], script.shelves[0])
    assert session.verify().ok


def test_a_call_and_its_result_stay_or_are_evicted_together():
    script = Script()
    agent = agent_of(Scripted(script))
    RectoMemory(agent, "memory:", window={"shorten_outputs": False}, **NAMES)
    for turn in range(TURNS):
        agent.run(f"Task {turn}: check the next shelves.", reset=False)
    records = 0
    for prompt in script.prompts:
        texts = [text_of(message) for message in prompt[1:]]
        records += any(RECORD_HEADING in text for text in texts)
        # the working record and quotations mention evicted steps; those are neither calls nor results
        prompt_text = "\n".join(text.partition(RECORD_HEADING)[0] for text in texts)
        prompt_text = re.sub(r"\[Quoted.*?\[End of quotation\]", "", prompt_text, flags=re.DOTALL)
        for shelf in script.shelves:
            assert (f"'arguments': {{'shelf': '{shelf}'}}" in prompt_text) == (f"Shelf {shelf}:" in prompt_text)
    assert records


def test_plans_and_failures_are_ordinary_steps_and_plans_fit():
    script = Script()
    model = Scripted(script)
    agent = agent_of(model, planning_interval=2)
    memory = RectoMemory(agent, "memory:", session_id="a", **NAMES)
    for turn in range(6):
        agent.run(f"Task {turn}: check the next shelves.", reset=False, max_steps=3)
    assert_prompts_fit(script.prompts, tools=model.tools)
    assert any(isinstance(step, PlanningStep) for step in agent.memory.steps)
    assert memory.conversation.session.key == "agent:default:a"


def test_another_process_resumes_the_steps(tmp_path):
    script = Script()
    for turn in range(3):
        agent = agent_of(Scripted(script, code=True))
        memory = RectoMemory(agent, tmp_path / "agent.db", session_id="a", **names(10_000))
        memory.resume()
        agent.run(f"Task {turn}: check the next shelves.", reset=False)
        assert memory.conversation.session.key == "agent:default:a"
        assert [
            text_of(message) for message in stored_messages(memory.conversation.session) if message["role"] == "user"
        ] == [f"New task:\nTask {number}: check the next shelves." for number in range(turn + 1)]
        assert [isinstance(step, QuotedStep) for step in agent.memory.steps] == [True] * 4 * turn + [False] * 4
        memory.conversations.close()
    assert_prompts_fit(script.prompts, tools=(), window=10_000)
    assert has_fact(script.prompts[-1], script.shelves[0])


def test_a_restarted_run_makes_a_branch_and_two_agents_do_not_mix():
    with recto.follow("memory:", **NAMES) as conversations:
        agents = {name: agent_of(Scripted(Script()), name=name) for name in ("first", "second")}
        memories = {name: RectoMemory(agent, conversations=conversations) for name, agent in agents.items()}
        for _ in range(3):
            for name, agent in agents.items():
                agent.run(f"Is this {name}?")
                messages = stored_messages(memories[name].conversation.session)
                assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
                assert name in text_of(messages[0])


def test_an_image_that_a_callback_removes_from_an_old_step_makes_no_branch():
    def forget_pictures(step: Any, agent: Any) -> None:
        for known in agent.memory.steps:
            known.observations_images = None
        step.observations_images = [Image.new("RGB", (8, 8))]

    agent = agent_of(Scripted(Script()), step_callbacks=[forget_pictures])
    memory = RectoMemory(agent, "memory:", session_id="a", **NAMES)
    agent.run("Task 0: check the next shelves.")
    session = memory.conversation.session
    assert session.key == "agent:default:a"
    pictures = [message for message in stored_messages(session) if isinstance(message["content"], list)]
    assert len(pictures) == 3


def test_a_closed_store_raises_its_own_error():
    agent = agent_of(Scripted(Script()))
    memory = RectoMemory(agent, "memory:", **NAMES)
    memory.conversations.close()
    with pytest.raises(StoreError):
        agent.run("Anybody there?")


def test_the_adapter_closes_only_what_it_opened(tmp_path):
    assert_closes_what_it_opened(partial(RectoMemory, agent_of(Scripted(Script()))), tmp_path / "a.db")


@pytest.mark.parametrize("which", ["before", "after"])
def test_the_documented_examples_run(which, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = Script()
    namespace = {"model": Scripted(script, code=True), "tools": [look_up], "question": "Why?", "more": "And then?"}
    exec(compile(page_example("smolagents.md", which), "smolagents.md", "exec"), namespace)
    assert len(script.prompts) == 2
