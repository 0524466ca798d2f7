"""A loop that keeps its own list: its calls of the model are bounded, by one line above the function."""

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


def looks_up_once(asked: Asked) -> Says:
    """A call for every question, and words once the result is there."""
    last = asked.messages[-1]
    answered = last.get("role") == "tool" or last.get("type") == "function_call_output"
    answered = answered or (isinstance(last.get("content"), list) and last["content"][0]["type"] == "tool_result")
    return Says(text="Done.") if answered else Says(calls=(("look_up", {}),))


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    with running(ScriptedUpstream(answer=looks_up_once)) as found:
        yield found


def spoken(following: recto.Following) -> list[dict[str, Any]]:
    return [json.loads(entry.content) for entry in following.session.read() if entry.kind == MESSAGE]


@cache
def _meter(model: str) -> Any:
    return make_meter(recto.Settings(model=model))


def wires(following: recto.Following) -> set[str]:
    return {entry.wire for entry in following.session.read() if entry.kind == MESSAGE}


def counted(asked: Asked, model: str = "gpt-4o") -> int:
    """The tokens of a prompt as the model counts them, whatever the scripted provider says of it."""
    messages = [read(json.dumps(one).encode(), asked.wire) for one in asked.messages]
    return _meter(model).prompt(messages, json.dumps(asked.body.get("tools", "")))


def chat_loop(ask: Any, messages: list[Any], *, first: int = 0, rounds: int = ROUNDS, **more: Any) -> None:
    """What people write: objects of the client among dicts in one list that only grows."""
    for number in range(first, first + rounds):
        messages.append({"role": "user", "content": f"Check shelf {number}."})
        while True:
            said = ask(messages, **more).choices[0].message
            messages.append(said)
            if not said.tool_calls:
                break
            result = {"role": "tool", "content": long_text(number)}
            messages += [{**result, "tool_call_id": call.id} for call in said.tool_calls]


@pytest.mark.requirement("fit.loop")
def test_a_loop_over_the_real_client_is_bounded_and_stored_whole_and_once(upstream):
    client = openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="none", max_retries=0)

    @recto.bounded("memory:", **NAMES)
    def ask(messages: list[Any], tools: Any = (TOOL,)) -> Any:
        return client.chat.completions.create(model="gpt-4o", messages=messages, tools=list(tools))

    with client, ask.conversations as conversations:
        messages: list[Any] = [{"role": "system", "content": "You look after a warehouse."}]
        chat_loop(ask, messages)
        following = conversations.of()
        assert len(upstream.asked) == 2 * ROUNDS
        for asked in upstream.asked:
            assert asked.problems == []
            assert counted(asked) <= WINDOW
            assert asked.messages[0] == messages[0]
        kept = [json.loads(json.dumps(one, default=lambda it: it.model_dump(exclude_none=True))) for one in messages]
        assert spoken(following) == kept[1:]
        assert following.session.report().decisions
        assert following.session.verify().ok
        usage = [entry for entry in following.session.read() if entry.kind == "usage_reported"]
        assert len(usage) == 2 * ROUNDS


def test_what_left_comes_back_when_it_is_asked_for(upstream):
    client = openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="none", max_retries=0)
    bare = {"shorten_outputs": False, "record_percent": 0}
    create = recto.bounded("memory:", window=bare, **NAMES)(client.chat.completions.create)
    with client, create.conversations:
        messages: list[Any] = []
        chat_loop(lambda given: create(model="gpt-4o", messages=given, tools=[TOOL]), messages, rounds=ROUNDS + 4)
        assert "BX00001" not in json.dumps(upstream.asked[-1].messages)
        create(model="gpt-4o", messages=[*messages, {"role": "user", "content": "Which batch does shelf 1 hold?"}])
        assert "BX00001" in json.dumps(upstream.asked[-1].messages)


def test_a_loop_goes_on_in_the_same_session_after_a_restart_and_two_conversations_do_not_mix(upstream, tmp_path):
    client = openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="none", max_retries=0)

    def create(messages: list[Any]) -> Any:
        return client.chat.completions.create(model="gpt-4o", messages=messages)

    lists: dict[str, list[Any]] = {"one": [], "two": []}
    for start in (0, 4):  # the second time as a new process would
        ask = recto.bounded(tmp_path / "agent.db", **NAMES)(create)
        with ask.conversations as conversations:
            for place, (name, messages) in enumerate(lists.items()):
                chat_loop(ask, messages, first=start + 100 * place, rounds=4, session_id=name)
            for place, name in enumerate(lists):
                session = conversations.of(name).session
                said = json.dumps(spoken(conversations.of(name)))
                assert session.key == f"agent:default:{name}"
                assert (f"shelf {start}." in said) == (place == 0)
                assert (f"shelf {start + 100}." in said) == (place == 1)
    with client, recto.open(tmp_path / "agent.db", session="agent:default:one") as session:
        assert len([entry for entry in session.read() if entry.kind == MESSAGE]) == len(lists["one"])


def test_who_speaks_may_follow_from_the_arguments_of_the_call():
    @recto.bounded("memory:", session_id=lambda call: call["user"], **NAMES)
    def ask(prompt: list[Any], user: str) -> dict[str, Any]:
        return {"role": "assistant", "content": f"Hello, {user}."}

    with ask.conversations as conversations:
        ask([{"role": "user", "content": "Hello."}], "ada")
        ask([{"role": "user", "content": "Hello."}], user="grace")
        for name in ("ada", "grace"):
            assert [one["content"] for one in spoken(conversations.of(name))] == ["Hello.", f"Hello, {name}."]


def test_a_prompt_that_the_provider_finds_too_long_is_tried_once_more_and_fits_from_then_on(upstream):
    upstream.window = 3_000  # it counts otherwise, and has less room than it was said to have
    client = openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="none", max_retries=0)
    ask = recto.bounded("memory:", **(NAMES | {"max_tokens": 60_000}))(client.chat.completions.create)
    with client, ask.conversations:
        chat_loop(lambda messages: ask(model="gpt-4o", messages=messages), [], rounds=10)
        refused = [place for place, asked in enumerate(upstream.asked) if asked.tokens > 3_000]
        assert refused
        assert all(place + 1 not in refused for place in refused)
        assert len(upstream.asked) == 20 + len(refused)


def test_another_error_is_the_callers_and_is_not_tried_again():
    calls = []

    @recto.bounded("memory:", **NAMES)
    def ask(messages: list[Any]) -> Any:
        calls.append(messages)
        raise ConnectionError("nobody there")

    with ask.conversations as conversations:
        with pytest.raises(ConnectionError, match="nobody there"):
            ask([{"role": "user", "content": "Hello."}])
        assert len(calls) == 1
        assert [one["content"] for one in spoken(conversations.of())] == ["Hello."]


def test_the_awaiting_client_is_bounded_the_same_way(upstream):
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
            assert all(counted(asked) <= WINDOW for asked in upstream.asked)
            assert all(asked.problems == [] for asked in upstream.asked)
            assert len(spoken(following)) == 3 * ROUNDS - 1  # the last result was not told yet
            create.conversations.close()

    asyncio.run(run())


def test_a_stream_is_passed_through_and_stored_when_the_list_tells_it(upstream):
    client = openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="none", max_retries=0)
    upstream.answer = lambda asked: Says(text="One, two, three.")
    create = recto.bounded("memory:", **NAMES)(client.chat.completions.create)
    with client, create.conversations as conversations:
        messages: list[Any] = [{"role": "user", "content": "Count."}]
        pieces = [one.choices[0].delta.content or "" for one in create(model="gpt-4o", messages=messages, stream=True)]
        assert "".join(pieces) == "One, two, three."
        assert len(spoken(conversations.of())) == 1
        messages += [{"role": "assistant", "content": "".join(pieces)}, {"role": "user", "content": "Again."}]
        list(create(model="gpt-4o", messages=messages, stream=True))
        assert spoken(conversations.of()) == messages


def test_functions_that_yield_are_still_functions_that_yield():
    @recto.bounded("memory:", **NAMES)
    def pieces(messages: list[Any]) -> Iterator[str]:
        yield from ("a", "b", str(len(messages)))

    @recto.bounded("memory:", **NAMES)
    async def slowly(messages: list[Any]) -> Any:
        yield "a"
        yield str(len(messages))

    async def taken() -> list[str]:
        return [piece async for piece in slowly([{"role": "user", "content": "Hello."}])]

    with pieces.conversations, slowly.conversations as conversations:
        assert list(pieces([{"role": "user", "content": "Hello."}])) == ["a", "b", "1"]
        assert asyncio.run(taken()) == ["a", "1"]
        assert len(spoken(conversations.of())) == 1


def test_messages_of_anthropic_are_kept_and_sent_in_their_own_format(upstream):
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
            said = create(messages=messages, **more)
            messages.append(
                {"role": "assistant", "content": [one.model_dump(exclude_none=True) for one in said.content]}
            )
            result = {"type": "tool_result", "tool_use_id": said.content[0].id, "content": long_text(number)}
            messages.append({"role": "user", "content": [result]})
            messages.append({"role": "assistant", "content": create(messages=messages, **more).content[0].text})
        following = conversations.of()
        assert all(asked.wire == ANTHROPIC and asked.problems == [] for asked in upstream.asked)
        assert all(asked.body["system"] == system for asked in upstream.asked)
        assert all(counted(asked, "claude-sonnet-4-6") <= WINDOW for asked in upstream.asked)
        assert following.session.report().decisions
        assert len(spoken(following)) == len(messages)
        assert wires(following) == {ANTHROPIC}


def test_items_of_responses_are_kept_and_sent_in_their_own_format(upstream):
    client = openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="none", max_retries=0)
    create = recto.bounded("memory:", wire=RESPONSES, **NAMES)(client.responses.create)
    with client, create.conversations as conversations:
        items: list[Any] = []
        for number in range(ROUNDS):
            items.append({"role": "user", "content": f"Check shelf {number}."})
            said = create(model="gpt-4o", input=items, instructions="You look after a warehouse.")
            items += said.output
            items.append(
                {"type": "function_call_output", "call_id": said.output[0].call_id, "output": long_text(number)}
            )
            items += create(model="gpt-4o", input=items, instructions="You look after a warehouse.").output
        following = conversations.of()
        assert all(asked.wire == RESPONSES and asked.problems == [] for asked in upstream.asked)
        assert all(counted(asked) <= WINDOW for asked in upstream.asked)
        assert following.session.report().decisions
        assert len(spoken(following)) == len(items)
        assert wires(following) == {RESPONSES}


def test_compacting_by_hand_makes_the_next_prompt_smaller():
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


@pytest.mark.parametrize("given", [(), ("text",), (None,)])
def test_a_call_without_a_list_says_what_is_missing(given):
    @recto.bounded("memory:", **NAMES)
    def ask(messages: Any = None) -> None: ...

    with ask.conversations, pytest.raises(InputError, match="without a list of messages in 'messages'"):
        ask(*given)


def test_an_error_of_the_store_is_told_by_its_own_type_and_nothing_is_sent(tmp_path):
    @recto.bounded(tmp_path / "agent.db", **NAMES)
    def ask(messages: list[Any]) -> None:
        pytest.fail("a message that is not stored must not be sent")

    ask.conversations.of()
    ask.conversations._store.close()
    with pytest.raises(StoreUnavailable):
        ask([{"role": "user", "content": "Hello."}])


def test_one_set_of_conversations_can_be_shared(upstream):
    with recto.follow("memory:", **NAMES) as conversations:

        @recto.bounded(conversations=conversations)
        def ask(messages: list[Any]) -> dict[str, Any]:
            return {"role": "assistant", "content": "Hello."}

        ask([{"role": "user", "content": "Hello."}], session_id="shared")
        assert ask.conversations is conversations
        assert conversations.wire == CHAT
        assert len(spoken(conversations.of("shared"))) == 2
