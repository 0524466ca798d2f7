"""Pydantic AI's own agents, with a scripted model: the history stays the run's, the model sees a working set."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from bench.adapters.scenario import look_up as looked_up
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
from tests.adapters.judging import NAMES, Script, closes_itself, fence, knows, question_about, sound, spoken, text_of

import recto
from recto.adapters.pydantic_ai import RectoHistory
from recto.errors import StoreError

SYSTEM = "You look after a warehouse."


def look_up(shelf: str) -> str:
    """Looks up everything that is known about a shelf."""
    return looked_up(shelf)


def seen(messages: list[ModelMessage]) -> list[dict[str, Any]]:
    """What a model of theirs is sent, in Chat messages; written without the adapter."""
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
    """Their model interface over a script."""

    def __init__(self, script: Script, refuses: list[str] | None = None) -> None:
        self.script = script
        self.refuses = refuses or []
        self.instructions: list[str | None] = []

    def answer(self, messages: list[ModelMessage], info: Any) -> ModelResponse:
        if self.refuses:
            raise ModelHTTPError(400, "scripted", {"message": self.refuses.pop()})
        self.instructions.append(info.instructions)
        said = self.script.reply(seen(messages))
        calls = [
            ToolCallPart(call["function"]["name"], call["function"]["arguments"], call["id"])
            for call in said.get("tool_calls", ())
        ]
        text = [TextPart(said["content"])] if said["content"] else []
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


def told(messages: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Messages as far as the two ways of writing them agree."""
    return [(one["role"], text_of(one), json.dumps(one.get("tool_calls"))) for one in messages]


@pytest.mark.parametrize("prompted", [{"system_prompt": SYSTEM}, {"instructions": SYSTEM}])
def test_a_long_conversation_fits_and_both_the_history_and_the_transcript_hold_all_of_it(prompted):
    script = Script()
    scripted = Scripted(script)
    history = RectoHistory("memory:", **NAMES)
    agent = agent_with(scripted, history, **prompted)
    result = agent.run_sync("Task 0: check the next shelves.")
    for turn in range(1, 14):
        result = agent.run_sync(f"Task {turn}: check the next shelves.", conversation=result.conversation)
    sound(script.prompts)
    if "system_prompt" in prompted:
        assert all(prompt[0] == {"role": "system", "content": SYSTEM} for prompt in script.prompts)
    else:
        assert set(scripted.instructions) == {SYSTEM}
    session = history.conversations.of(result.conversation.conversation_id).session
    own = [message for message in seen(result.all_messages()) if message["role"] != "system"]
    assert told(own) == told(spoken(session))
    assert len(own) == 14 * 7
    assert session.report().left_messages > 0
    assert not knows(script.prompts[-1], script.shelves[0])
    agent.run_sync(question_about(script.shelves[0]), conversation=result.conversation)
    assert knows(script.prompts[-1], script.shelves[0])
    assert session.verify().ok


def test_two_conversations_at_once_do_not_mix_and_streams_are_stored_like_answers():
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
        assert told(seen(messages)) == told(spoken(session))
    sound(script.prompts)


def test_another_process_goes_on_in_the_same_session_from_a_history_that_was_written_down(tmp_path):
    script, kept, name = Script(), b"[]", "a"
    for turn in range(4):
        history = RectoHistory(tmp_path / "agent.db", **NAMES)
        before = ModelMessagesTypeAdapter.validate_json(kept)
        text = f"Task {turn}: check the next shelves."
        result = agent_with(Scripted(script), history).run_sync(text, message_history=before, conversation_id=name)
        kept = result.all_messages_json()
        session = history.conversations.of(name).session
        assert session.key == "agent:default:a"
        assert told(seen(result.all_messages())) == told(spoken(session))
        history.conversations.close()


def test_a_provider_that_finds_the_prompt_too_long_is_believed_and_asked_again():
    script = Script()
    scripted = Scripted(script)
    agent = agent_with(scripted, RectoHistory("memory:", **NAMES))
    result = agent.run_sync("Task 0: check the next shelves.")
    for turn in range(1, 6):
        result = agent.run_sync(f"Task {turn}: check the next shelves.", conversation=result.conversation)
    said = "This model's maximum context length is 3000 tokens. However, your messages resulted in 4000 tokens."
    scripted.refuses.append(said)
    agent.run_sync("Why?", conversation=result.conversation)
    sound(script.prompts[-1:], window=3_000)
    scripted.refuses += ["out of paper"]
    with pytest.raises(ModelHTTPError, match="out of paper"):
        agent.run_sync("Why?", conversation=result.conversation)


def test_a_store_that_is_gone_is_told_by_its_own_error():
    history = RectoHistory("memory:", **NAMES)
    history.conversations.close()
    with pytest.raises(StoreError):
        agent_with(Scripted(Script()), history).run_sync("Anybody there?")


def test_as_a_history_processor_the_run_keeps_the_working_set_and_the_transcript_keeps_everything():
    script = Script()
    history = RectoHistory("memory:", **NAMES)
    agent = agent_with(Scripted(script), ProcessHistory(history.process), system_prompt=SYSTEM)
    result = agent.run_sync("Task 0: check the next shelves.")
    for turn in range(1, 10):
        result = agent.run_sync(f"Task {turn}: check the next shelves.", message_history=result.all_messages())
    sound(script.prompts)
    session = history.conversations.of(result.conversation.conversation_id).session
    assert "~" not in session.key
    assert len(result.all_messages()) < len(spoken(session))
    said = [text_of(message) for message in spoken(session) if message["role"] == "user"]
    assert said == [f"Task {turn}: check the next shelves." for turn in range(10)]


def test_pictures_thinking_and_calls_of_the_provider_are_stored_and_come_back_as_they_were():
    given: list[list[ModelMessage]] = []

    def answer(messages: list[ModelMessage], info: Any) -> ModelResponse:
        given.append(messages)
        return ModelResponse(parts=[ThinkingPart("Hm.", signature="c2ln"), TextPart("A dog.")])

    history = RectoHistory("memory:", **NAMES)
    agent = Agent(FunctionModel(answer), capabilities=[history])
    picture = BinaryContent(b"\x89PNG" + bytes(100), media_type="image/png")
    result = agent.run_sync(["What is this?", picture])
    result = agent.run_sync("And now?", conversation=result.conversation)
    assert given[-1][:2] == result.all_messages()[:2]
    assert isinstance(given[-1][0], ModelRequest)
    first, answered, *_ = spoken(history.conversations.of(result.conversation.conversation_id).session)
    assert first["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert answered["reasoning_content"] == "Hm."


def test_conversations_can_be_shared_and_named_by_a_function_of_the_run():
    with recto.follow("memory:", **NAMES) as conversations:
        history = RectoHistory(conversations=conversations, session_id=lambda ctx: f"of-{ctx.deps}")
        agent_with(Scripted(Script()), history, deps_type=str).run_sync("Why?", deps="me")
        assert [one["role"] for one in spoken(conversations.of("of-me").session)] == ["user", "assistant"]


def test_it_closes_what_it_opened(tmp_path):
    closes_itself(RectoHistory, tmp_path / "a.db")


@pytest.mark.parametrize("which", ["before", "after"])
def test_the_examples_of_the_page_run(which, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = Script()
    names = {"model": Scripted(script).model, "tools": [look_up], "question": "Why?", "more": "And then?"}
    exec(compile(fence("pydantic-ai.md", which), "pydantic-ai.md", "exec"), names)
    assert len(script.prompts) == 2
