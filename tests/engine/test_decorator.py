"""The `bounded` decorator: bounds the model calls of a loop that keeps its own message list."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import anthropic
import openai
import pytest
from tests.gateway.upstream import Asked, Says, ScriptedUpstream, running

import recto
from recto.config.factory import make_meter
from recto.errors import InputError, StoreUnavailable
from recto.formats import read
from recto.formats.anthropic import ANTHROPIC
from recto.formats.openai_chat import CHAT
from recto.formats.openai_responses import RESPONSES
from recto.transcript.entries import MESSAGE

WINDOW = 6_000
ROUNDS = 10
NAMES: dict[str, Any] = {"model": "gpt-4o", "max_tokens": WINDOW, "recall": {"embedder": {"use": "none"}}}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}


def long_text(number: int) -> str:
    rows = " ".join(f"{row}: {(number + 7) * row % 997};" for row in range(1, 120))
    return f"Shelf {number} holds batch BX{number:05d}. {rows}"


def look_up_once(request: Asked) -> Says:
    """Answers every question with a tool call, and every tool result with text."""
    last = request.messages[-1]
    answered = last.get("role") == "tool" or last.get("type") == "function_call_output"
    answered = answered or (isinstance(last.get("content"), list) and last["content"][0]["type"] == "tool_result")
    return Says(text="Done.") if answered else Says(calls=(("look_up", {}),))


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    with running(ScriptedUpstream(answer=look_up_once)) as found:
        yield found


def stored_messages(following: recto.Following) -> list[dict[str, Any]]:
    return [json.loads(entry.content) for entry in following.session.read() if entry.kind == MESSAGE]


@cache
def _meter(model: str) -> Any:
    return make_meter(recto.Settings(model=model))


def wires(following: recto.Following) -> set[str]:
    return {entry.wire for entry in following.session.read() if entry.kind == MESSAGE}


def tokens_of(request: Asked, model: str = "gpt-4o") -> int:
    """Counts the tokens of a prompt as the model does, independently of the scripted provider."""
    messages = [read(json.dumps(message).encode(), request.wire) for message in request.messages]
    return _meter(model).prompt(messages, json.dumps(request.body.get("tools", "")))


def chat_loop(ask: Any, messages: list[Any], *, first: int = 0, rounds: int = ROUNDS, **more: Any) -> None:
    """Runs a typical loop: one growing list that mixes dicts and objects of the client."""
    for number in range(first, first + rounds):
        messages.append({"role": "user", "content": f"Check shelf {number}."})
        while True:
            message = ask(messages, **more).choices[0].message
            messages.append(message)
            if not message.tool_calls:
                break
            result = {"role": "tool", "content": long_text(number)}
            messages += [{**result, "tool_call_id": call.id} for call in message.tool_calls]


@pytest.mark.requirement("fit.loop")
def test_a_loop_with_a_real_client_is_bounded_and_stored_once_in_full(upstream):
    client = openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="none", max_retries=0)

    @recto.bounded("memory:", **NAMES)
    def ask(messages: list[Any], tools: Any = (TOOL,)) -> Any:
        return client.chat.completions.create(model="gpt-4o", messages=messages, tools=list(tools))

    with client, ask.conversations as conversations:
        messages: list[Any] = [{"role": "system", "content": "You look after a warehouse."}]
        chat_loop(ask, messages)
        following = conversations.of()
        assert len(upstream.asked) == 2 * ROUNDS
        for request in upstream.asked:
            assert request.problems == []
            assert tokens_of(request) <= WINDOW
            assert request.messages[0] == messages[0]
        stored = [
            json.loads(json.dumps(message, default=lambda model: model.model_dump(exclude_none=True)))
            for message in messages
        ]
        assert stored_messages(following) == stored[1:]
        assert following.session.report().decisions
        assert following.session.verify().ok
        usage = [entry for entry in following.session.read() if entry.kind == "usage_reported"]
        assert len(usage) == 2 * ROUNDS


def test_evicted_text_is_recalled_for_a_question_about_it(upstream):
    client = openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="none", max_retries=0)
    bare = {"shorten_outputs": False, "record_percent": 0}
    create = recto.bounded("memory:", window=bare, **NAMES)(client.chat.completions.create)
    with client, create.conversations:
        messages: list[Any] = []
        chat_loop(lambda history: create(model="gpt-4o", messages=history, tools=[TOOL]), messages, rounds=ROUNDS + 4)
        assert "BX00001" not in json.dumps(upstream.asked[-1].messages)
        create(model="gpt-4o", messages=[*messages, {"role": "user", "content": "Which batch does shelf 1 hold?"}])
        assert "BX00001" in json.dumps(upstream.asked[-1].messages)


def test_conversations_continue_after_a_restart_and_do_not_mix(upstream, tmp_path):
    client = openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="none", max_retries=0)

    def create(messages: list[Any]) -> Any:
        return client.chat.completions.create(model="gpt-4o", messages=messages)

    lists: dict[str, list[Any]] = {"one": [], "two": []}
    for start in (0, 4):  # the second time like a new process
        ask = recto.bounded(tmp_path / "agent.db", **NAMES)(create)
        with ask.conversations as conversations:
            for index, (name, messages) in enumerate(lists.items()):
                chat_loop(ask, messages, first=start + 100 * index, rounds=4, session_id=name)
            for index, name in enumerate(lists):
                session = conversations.of(name).session
                text = json.dumps(stored_messages(conversations.of(name)))
                assert session.key == f"agent:default:{name}"
                assert (f"shelf {start}." in text) == (index == 0)
                assert (f"shelf {start + 100}." in text) == (index == 1)
    with client, recto.open(tmp_path / "agent.db", session="agent:default:one") as session:
        assert len([entry for entry in session.read() if entry.kind == MESSAGE]) == len(lists["one"])


def test_the_session_id_can_be_derived_from_the_arguments_of_the_call():
    @recto.bounded("memory:", session_id=lambda call: call["user"], **NAMES)
    def ask(prompt: list[Any], user: str) -> dict[str, Any]:
        return {"role": "assistant", "content": f"Hello, {user}."}

    with ask.conversations as conversations:
        ask([{"role": "user", "content": "Hello."}], "ada")
        ask([{"role": "user", "content": "Hello."}], user="grace")
        for name in ("ada", "grace"):
            assert [message["content"] for message in stored_messages(conversations.of(name))] == [
                "Hello.",
                f"Hello, {name}.",
            ]


def test_a_prompt_refused_as_too_long_is_retried_once_and_later_prompts_fit(upstream):
    upstream.window = 3_000  # it counts differently, and its window is smaller than configured
    client = openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="none", max_retries=0)
    ask = recto.bounded("memory:", **(NAMES | {"max_tokens": 60_000}))(client.chat.completions.create)
    with client, ask.conversations:
        chat_loop(lambda messages: ask(model="gpt-4o", messages=messages), [], rounds=10)
        refused = [index for index, request in enumerate(upstream.asked) if request.tokens > 3_000]
        assert refused
        assert all(index + 1 not in refused for index in refused)
        assert len(upstream.asked) == 20 + len(refused)


def test_any_other_error_is_raised_to_the_caller_and_not_retried():
    calls = []

    @recto.bounded("memory:", **NAMES)
    def ask(messages: list[Any]) -> Any:
        calls.append(messages)
        raise ConnectionError("nobody there")

    with ask.conversations as conversations:
        with pytest.raises(ConnectionError, match="nobody there"):
            ask([{"role": "user", "content": "Hello."}])
        assert len(calls) == 1
        assert [message["content"] for message in stored_messages(conversations.of())] == ["Hello."]


def test_an_async_client_is_bounded_in_the_same_way(upstream):
    async def run() -> None:
        async with openai.AsyncOpenAI(base_url=f"{upstream.url}/v1", api_key="none", max_retries=0) as client:
            create = recto.bounded("memory:", **NAMES)(client.chat.completions.create)
            messages: list[Any] = []
            for number in range(ROUNDS):
                messages += [{"role": "user", "content": f"{long_text(number)} Check it."}]
                answer = await create(model="gpt-4o", messages=messages)
                messages += [answer.choices[0].message, {"role": "tool", "content": "Seen."}]
                messages[-1]["tool_call_id"] = messages[-2].tool_calls[0].id
            following = create.conversations.of()
            assert all(tokens_of(request) <= WINDOW for request in upstream.asked)
            assert all(request.problems == [] for request in upstream.asked)
            assert len(stored_messages(following)) == 3 * ROUNDS - 1  # the last result was not passed in yet
            create.conversations.close()

    asyncio.run(run())


def test_a_stream_is_passed_through_and_stored_with_the_next_call(upstream):
    client = openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="none", max_retries=0)
    upstream.answer = lambda request: Says(text="One, two, three.")
    create = recto.bounded("memory:", **NAMES)(client.chat.completions.create)
    with client, create.conversations as conversations:
        messages: list[Any] = [{"role": "user", "content": "Count."}]
        pieces = [
            chunk.choices[0].delta.content or "" for chunk in create(model="gpt-4o", messages=messages, stream=True)
        ]
        assert "".join(pieces) == "One, two, three."
        assert len(stored_messages(conversations.of())) == 1
        messages += [{"role": "assistant", "content": "".join(pieces)}, {"role": "user", "content": "Again."}]
        list(create(model="gpt-4o", messages=messages, stream=True))
        assert stored_messages(conversations.of()) == messages


def test_generator_functions_remain_generator_functions():
    @recto.bounded("memory:", **NAMES)
    def pieces(messages: list[Any]) -> Iterator[str]:
        yield from ("a", "b", str(len(messages)))

    @recto.bounded("memory:", **NAMES)
    async def slowly(messages: list[Any]) -> Any:
        yield "a"
        yield str(len(messages))

    async def collect() -> list[str]:
        return [piece async for piece in slowly([{"role": "user", "content": "Hello."}])]

    with pieces.conversations, slowly.conversations as conversations:
        assert list(pieces([{"role": "user", "content": "Hello."}])) == ["a", "b", "1"]
        assert asyncio.run(collect()) == ["a", "1"]
        assert len(stored_messages(conversations.of())) == 1


def test_anthropic_messages_are_stored_and_sent_in_their_own_format(upstream):
    client = anthropic.Anthropic(base_url=upstream.url, api_key="none", max_retries=0)
    names = NAMES | {"model": "claude-sonnet-4-6"}
    create = recto.bounded("memory:", wire=ANTHROPIC, **names)(client.messages.create)
    system = [{"type": "text", "text": "You look after a warehouse.", "cache_control": {"type": "ephemeral"}}]
    tools = [{"name": "look_up", "input_schema": {"type": "object", "properties": {}}}]
    with client, create.conversations as conversations:
        messages: list[Any] = []
        for number in range(ROUNDS):
            messages.append({"role": "user", "content": f"Check shelf {number}."})
            more: dict[str, Any] = {"model": "claude-sonnet-4-6", "system": system, "tools": tools, "max_tokens": 500}
            response = create(messages=messages, **more)
            messages.append(
                {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in response.content]}
            )
            result = {"type": "tool_result", "tool_use_id": response.content[0].id, "content": long_text(number)}
            messages.append({"role": "user", "content": [result]})
            messages.append({"role": "assistant", "content": create(messages=messages, **more).content[0].text})
        following = conversations.of()
        assert all(request.wire == ANTHROPIC and request.problems == [] for request in upstream.asked)
        assert all(request.body["system"] == system for request in upstream.asked)
        assert all(tokens_of(request, "claude-sonnet-4-6") <= WINDOW for request in upstream.asked)
        assert following.session.report().decisions
        assert len(stored_messages(following)) == len(messages)
        assert wires(following) == {ANTHROPIC}


def test_responses_items_are_stored_and_sent_in_their_own_format(upstream):
    client = openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="none", max_retries=0)
    create = recto.bounded("memory:", wire=RESPONSES, **NAMES)(client.responses.create)
    with client, create.conversations as conversations:
        items: list[Any] = []
        for number in range(ROUNDS):
            items.append({"role": "user", "content": f"Check shelf {number}."})
            response = create(model="gpt-4o", input=items, instructions="You look after a warehouse.")
            items += response.output
            items.append(
                {"type": "function_call_output", "call_id": response.output[0].call_id, "output": long_text(number)}
            )
            items += create(model="gpt-4o", input=items, instructions="You look after a warehouse.").output
        following = conversations.of()
        assert all(request.wire == RESPONSES and request.problems == [] for request in upstream.asked)
        assert all(tokens_of(request) <= WINDOW for request in upstream.asked)
        assert following.session.report().decisions
        assert len(stored_messages(following)) == len(items)
        assert wires(following) == {RESPONSES}


def test_a_manual_compaction_makes_the_next_prompt_smaller():
    sent: list[int] = []

    @recto.bounded("memory:", **(NAMES | {"max_tokens": 60_000}))
    def ask(messages: list[Any]) -> dict[str, Any]:
        sent.append(len(messages))
        return {"role": "assistant", "content": "Seen."}

    with ask.conversations:
        messages: list[Any] = []
        for number in range(45):
            messages.append({"role": "user", "content": f"{number} {long_text(number)}"})
            messages.append(ask(messages))
        assert ask.compact(focus="the batch of shelf 3")
        ask([*messages, {"role": "user", "content": "And now?"}])
    assert sent[-1] < sent[-2]


@pytest.mark.parametrize("arguments", [(), ("text",), (None,)])
def test_a_call_without_a_message_list_names_the_missing_argument(arguments):
    @recto.bounded("memory:", **NAMES)
    def ask(messages: Any = None) -> None: ...

    with ask.conversations, pytest.raises(InputError, match="without a list of messages in 'messages'"):
        ask(*arguments)


def test_a_store_error_is_raised_with_its_own_type_and_nothing_is_sent(tmp_path):
    @recto.bounded(tmp_path / "agent.db", **NAMES)
    def ask(messages: list[Any]) -> None:
        pytest.fail("a message that is not stored must not be sent")

    ask.conversations.of()
    ask.conversations._store.close()
    with pytest.raises(StoreUnavailable):
        ask([{"role": "user", "content": "Hello."}])


def test_conversations_can_be_shared_by_functions(upstream):
    with recto.follow("memory:", **NAMES) as conversations:

        @recto.bounded(conversations=conversations)
        def ask(messages: list[Any]) -> dict[str, Any]:
            return {"role": "assistant", "content": "Hello."}

        ask([{"role": "user", "content": "Hello."}], session_id="shared")
        assert ask.conversations is conversations
        assert conversations.wire == CHAT
        assert len(stored_messages(conversations.of("shared"))) == 2


def test_a_wrapped_function_may_take_functions_as_its_tools():
    @recto.bounded("memory:", model="gpt-4o")
    def ask(messages, tools=()):
        return {"role": "assistant", "content": tools[0].__name__}

    with ask.conversations:
        assert ask([{"role": "user", "content": "Hello."}], tools=[print])["content"] == "print"
