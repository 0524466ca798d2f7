"""Pydantic AI agents with a scripted model: the run keeps its history, the model sees a working set."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from bench.adapters.scenario import look_up as look_up_shelf
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage
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
from recto.adapters.pydantic_ai import RectoHistory
from recto.errors import StoreError

SYSTEM = "You look after a warehouse."


def look_up(shelf: str) -> str:
    """Looks up everything that is known about a shelf."""
    return look_up_shelf(shelf)


def seen(messages: list[ModelMessage]) -> list[dict[str, Any]]:
    """The prompt of a framework model as Chat messages, converted without the adapter."""
    found: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            calls = [
                {
                    "id": part.tool_call_id,
                    "type": "function",
                    "function": {"name": part.tool_name, "arguments": part.args_as_json_str()},
                }
                for part in message.parts
                if isinstance(part, ToolCallPart)
            ]
            text = "".join(part.content for part in message.parts if isinstance(part, TextPart))
            found.append({"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})})
            continue
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                found.append({"role": "tool", "tool_call_id": part.tool_call_id, "content": part.model_response_str()})
            else:
                role = "user" if isinstance(part, UserPromptPart) else "system"
                found.append({"role": role, "content": str(part.content)})
    return found


class Scripted:
    """The framework's model interface over a script."""

    def __init__(self, script: Script, refuses: list[str] | None = None) -> None:
        self.script = script
        self.refuses = refuses or []
        self.instructions: list[str | None] = []

    def answer(self, messages: list[ModelMessage], info: Any) -> ModelResponse:
        if self.refuses:
            raise ModelHTTPError(400, "scripted", {"message": self.refuses.pop()})
        self.instructions.append(info.instructions)
        reply = self.script.reply(seen(messages))
        calls = [
            ToolCallPart(call["function"]["name"], call["function"]["arguments"], call["id"])
            for call in reply.get("tool_calls", ())
        ]
        text = [TextPart(reply["content"])] if reply["content"] else []
        return ModelResponse(parts=[*text, *calls], usage=RequestUsage(input_tokens=1_000, output_tokens=10))

    async def stream(self, messages: list[ModelMessage], info: Any):
        for place, part in enumerate(self.answer(messages, info).parts):
            if isinstance(part, TextPart):
                yield part.content
            else:
                yield {place: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}

    @property
    def model(self) -> FunctionModel:
        return FunctionModel(self.answer, stream_function=self.stream)


def agent_with(scripted: Scripted, capability: Any, **more: Any) -> Agent:
    return Agent(scripted.model, tools=[look_up], capabilities=[capability], **more)


def comparable(messages: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """The parts of messages that both formats share."""
    return [(message["role"], text_of(message), json.dumps(message.get("tool_calls"))) for message in messages]


@pytest.mark.parametrize("prompted", [{"system_prompt": SYSTEM}, {"instructions": SYSTEM}])
def test_a_long_conversation_fits_and_history_and_transcript_are_complete(prompted):
    script = Script()
    scripted = Scripted(script)
    history = RectoHistory("memory:", **NAMES)
    agent = agent_with(scripted, history, **prompted)
    result = agent.run_sync("Task 0: check the next shelves.")
    for turn in range(1, 14):
        result = agent.run_sync(f"Task {turn}: check the next shelves.", conversation=result.conversation)
    assert_prompts_fit(script.prompts)
    if "system_prompt" in prompted:
        assert all(prompt[0] == {"role": "system", "content": SYSTEM} for prompt in script.prompts)
    else:
        assert set(scripted.instructions) == {SYSTEM}
    session = history.conversations.of(result.conversation.conversation_id).session
    own = [message for message in seen(result.all_messages()) if message["role"] != "system"]
    assert comparable(own) == comparable(stored_messages(session))
    assert len(own) == 14 * 7
    assert session.report().left_messages > 0
    assert not has_fact(script.prompts[-1], script.shelves[0])
    agent.run_sync(question_about(script.shelves[0]), conversation=result.conversation)
    assert has_fact(script.prompts[-1], script.shelves[0])
    assert session.verify().ok


def test_concurrent_conversations_do_not_mix_and_streamed_answers_are_stored():
    script = Script()
    history = RectoHistory("memory:", **NAMES)
    agent = agent_with(Scripted(script), history)

    async def talk(name: str) -> Any:
        messages: list[ModelMessage] = []
        for turn in range(5):
            text = f"Task {turn} of {name}: check the next shelves."
            async with agent.run_stream(text, message_history=messages, conversation_id=name) as result:
                await result.get_output()
            messages = result.all_messages()
        return messages

    async def both() -> list[Any]:
        return await asyncio.gather(talk("a"), talk("b"))

    for name, messages in zip("ab", asyncio.run(both()), strict=True):
        session = history.conversations.of(name).session
        assert session.key == f"agent:default:{name}"
        assert comparable(seen(messages)) == comparable(stored_messages(session))
    assert_prompts_fit(script.prompts)


def test_another_process_resumes_the_session_from_a_serialised_history(tmp_path):
    script, serialised, name = Script(), b"[]", "a"
    for turn in range(4):
        history = RectoHistory(tmp_path / "agent.db", **NAMES)
        before = ModelMessagesTypeAdapter.validate_json(serialised)
        text = f"Task {turn}: check the next shelves."
        result = agent_with(Scripted(script), history).run_sync(text, message_history=before, conversation_id=name)
        serialised = result.all_messages_json()
        session = history.conversations.of(name).session
        assert session.key == "agent:default:a"
        assert comparable(seen(result.all_messages())) == comparable(stored_messages(session))
        history.conversations.close()


def test_a_prompt_rejected_as_too_long_is_retried_smaller():
    script = Script()
    scripted = Scripted(script)
    agent = agent_with(scripted, RectoHistory("memory:", **NAMES))
    result = agent.run_sync("Task 0: check the next shelves.")
    for turn in range(1, 6):
        result = agent.run_sync(f"Task {turn}: check the next shelves.", conversation=result.conversation)
    error = "This model's maximum context length is 3000 tokens. However, your messages resulted in 4000 tokens."
    scripted.refuses.append(error)
    agent.run_sync("Why?", conversation=result.conversation)
    assert_prompts_fit(script.prompts[-1:], window=3_000)
    scripted.refuses += ["out of paper"]
    with pytest.raises(ModelHTTPError, match="out of paper"):
        agent.run_sync("Why?", conversation=result.conversation)


def test_a_closed_store_raises_its_own_error():
    history = RectoHistory("memory:", **NAMES)
    history.conversations.close()
    with pytest.raises(StoreError):
        agent_with(Scripted(Script()), history).run_sync("Anybody there?")


def test_a_history_processor_limits_the_run_to_the_working_set_and_the_transcript_is_complete():
    script = Script()
    history = RectoHistory("memory:", **NAMES)
    agent = agent_with(Scripted(script), ProcessHistory(history.process), system_prompt=SYSTEM)
    result = agent.run_sync("Task 0: check the next shelves.")
    for turn in range(1, 10):
        result = agent.run_sync(f"Task {turn}: check the next shelves.", message_history=result.all_messages())
    assert_prompts_fit(script.prompts)
    session = history.conversations.of(result.conversation.conversation_id).session
    assert "~" not in session.key
    assert len(result.all_messages()) < len(stored_messages(session))
    tasks = [text_of(message) for message in stored_messages(session) if message["role"] == "user"]
    assert tasks == [f"Task {turn}: check the next shelves." for turn in range(10)]


def test_images_and_thinking_of_the_provider_are_stored_and_sent_unchanged():
    sent: list[list[ModelMessage]] = []

    def answer(messages: list[ModelMessage], info: Any) -> ModelResponse:
        sent.append(messages)
        return ModelResponse(parts=[ThinkingPart("Hm.", signature="c2ln"), TextPart("A dog.")])

    history = RectoHistory("memory:", **NAMES)
    agent = Agent(FunctionModel(answer), capabilities=[history])
    picture = BinaryContent(b"\x89PNG" + bytes(100), media_type="image/png")
    result = agent.run_sync(["What is this?", picture])
    result = agent.run_sync("And now?", conversation=result.conversation)
    assert sent[-1][:2] == result.all_messages()[:2]
    assert isinstance(sent[-1][0], ModelRequest)
    first, second, *_ = stored_messages(history.conversations.of(result.conversation.conversation_id).session)
    assert first["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert second["reasoning_content"] == "Hm."


def test_conversations_can_be_shared_and_named_by_a_function_of_the_run():
    with recto.follow("memory:", **NAMES) as conversations:
        history = RectoHistory(conversations=conversations, session_id=lambda ctx: f"of-{ctx.deps}")
        agent_with(Scripted(Script()), history, deps_type=str).run_sync("Why?", deps="me")
        assert [message["role"] for message in stored_messages(conversations.of("of-me").session)] == [
            "user",
            "assistant",
        ]


def test_the_adapter_closes_only_what_it_opened(tmp_path):
    assert_closes_what_it_opened(RectoHistory, tmp_path / "a.db")


@pytest.mark.parametrize("which", ["before", "after"])
def test_the_documented_examples_run(which, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = Script()
    names = {"model": Scripted(script).model, "tools": [look_up], "question": "Why?", "more": "And then?"}
    exec(compile(page_example("pydantic-ai.md", which), "pydantic-ai.md", "exec"), names)
    assert len(script.prompts) == 2
