"""The compliance cases of Open Responses, rewritten from its specification, with a strict check of every response.

They run against an upstream that speaks Responses itself, whose events pass through, and against one that speaks only
Chat or only Messages, where the gateway writes every event.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running

SPOKEN = ("responses", "chat", "messages")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
}

Kinds = tuple[type, ...]
NUMBER: Kinds = (int, float)
NULL = type(None)
RESPONSE: Mapping[str, Kinds] = {
    "id": (str,),
    "object": (str,),
    "created_at": (int,),
    "completed_at": (int, NULL),
    "status": (str,),
    "incomplete_details": (dict, NULL),
    "model": (str,),
    "previous_response_id": (str, NULL),
    "instructions": (str, NULL),
    "output": (list,),
    "error": (dict, NULL),
    "tools": (list,),
    "tool_choice": (str, dict),
    "truncation": (str,),
    "parallel_tool_calls": (bool,),
    "text": (dict,),
    "top_p": NUMBER,
    "presence_penalty": NUMBER,
    "frequency_penalty": NUMBER,
    "top_logprobs": (int,),
    "temperature": NUMBER,
    "reasoning": (dict, NULL),
    "usage": (dict, NULL),
    "max_output_tokens": (int, NULL),
    "max_tool_calls": (int, NULL),
    "store": (bool,),
    "background": (bool,),
    "service_tier": (str,),
    "metadata": (dict,),
    "safety_identifier": (str, NULL),
    "prompt_cache_key": (str, NULL),
}
"""Every member that a response must have, and its types."""
USAGE: Mapping[str, Kinds] = {
    "input_tokens": (int,),
    "output_tokens": (int,),
    "total_tokens": (int,),
    "input_tokens_details": (dict,),
    "output_tokens_details": (dict,),
}
ITEMS: Mapping[str, Mapping[str, Kinds]] = {
    "message": {"id": (str,), "status": (str,), "role": (str,), "content": (list,)},
    "function_call": {"id": (str,), "status": (str,), "call_id": (str,), "name": (str,), "arguments": (str,)},
    "reasoning": {"id": (str,), "summary": (list,)},
}
PARTS: Mapping[str, Mapping[str, Kinds]] = {
    "output_text": {"text": (str,), "annotations": (list,)},
    "refusal": {"refusal": (str,)},
    "summary_text": {"text": (str,)},
}
TOOL: Mapping[str, Kinds] = {
    "name": (str,),
    "description": (str, NULL),
    "parameters": (dict, NULL),
    "strict": (bool, NULL),
}
PLACE: Mapping[str, Kinds] = {"item_id": (str,), "output_index": (int,)}
IN_PART: Mapping[str, Kinds] = {**PLACE, "content_index": (int,)}
EVENTS: Mapping[str, Mapping[str, Kinds]] = {
    "response.created": {"response": (dict,)},
    "response.in_progress": {"response": (dict,)},
    "response.completed": {"response": (dict,)},
    "response.incomplete": {"response": (dict,)},
    "response.output_item.added": {"output_index": (int,), "item": (dict,)},
    "response.output_item.done": {"output_index": (int,), "item": (dict,)},
    "response.content_part.added": {**IN_PART, "part": (dict,)},
    "response.content_part.done": {**IN_PART, "part": (dict,)},
    "response.output_text.delta": {**IN_PART, "delta": (str,)},
    "response.output_text.done": {**IN_PART, "text": (str,)},
    "response.function_call_arguments.delta": {**PLACE, "delta": (str,)},
    "response.function_call_arguments.done": {**PLACE, "arguments": (str,)},
}
"""Every event that may occur in these cases, and its members."""
STATUSES = ("completed", "incomplete", "in_progress", "failed", "queued", "cancelled")


def shaped(value: Any, members: Mapping[str, Kinds], what: str) -> None:
    """Checks that a value has the required members with the required types."""
    assert isinstance(value, dict), f"{what} is an object"
    for name, kinds in members.items():
        assert name in value, f"{what} has '{name}'"
        kind = type(value[name])
        assert kind in kinds, f"{what}.{name} is {kind.__name__}"


def check_response(response: Any) -> None:
    """Checks a response against the specification's schema."""
    shaped(response, RESPONSE, "response")
    assert response["object"] == "response"
    assert response["status"] in STATUSES
    assert response["truncation"] in ("auto", "disabled")
    assert response["text"]["format"]["type"] in ("text", "json_object", "json_schema")
    assert (response["completed_at"] is not None) == (response["status"] == "completed")
    if response["usage"] is not None:
        shaped(response["usage"], USAGE, "usage")
        assert type(response["usage"]["input_tokens_details"]["cached_tokens"]) is int
        assert type(response["usage"]["output_tokens_details"]["reasoning_tokens"]) is int
    for tool in response["tools"]:
        assert tool["type"] == "function"
        shaped(tool, TOOL, "tool")
    for item in response["output"]:
        check_item(item)


def check_item(item: Any) -> None:
    """Checks an item against the schema."""
    assert item["type"] in ITEMS
    shaped(item, ITEMS[item["type"]], item["type"])
    assert item["id"]
    assert item.get("status", "completed") in ("in_progress", "completed", "incomplete")
    for part in item.get("content", []):
        check_part(part)
    if item["type"] == "message":
        assert item["role"] == "assistant"


def check_part(part: Any) -> None:
    """Checks a part against the schema."""
    assert part["type"] in PARTS
    shaped(part, PARTS[part["type"]], part["type"])


@dataclass
class StreamChecker:
    """A state machine that follows a stream and refuses events out of order."""

    events: list[dict[str, Any]] = field(default_factory=list)
    open: dict[str, Any] | None = None
    text: str | None = None
    """The text of the open part; None if no part is open."""
    arguments: str = ""
    parts: list[dict[str, Any]] = field(default_factory=list)
    done: list[dict[str, Any]] = field(default_factory=list)
    ended: bool = False

    def take(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        assert kind in EVENTS, f"{kind} is no event of the specification"
        assert not self.ended, "nothing comes after the end"
        assert event["sequence_number"] == len(self.events), "events are numbered one by one from 0"
        shaped(event, EVENTS[kind], kind)
        begun = ("response.created", "response.in_progress")
        if len(self.events) < 2:
            assert kind == begun[len(self.events)]
        else:
            assert kind not in begun
        self.events.append(event)
        if "response" in event:
            check_response(event["response"])
        if kind in ("response.completed", "response.incomplete"):
            assert self.open is None
            self.ended = True
            assert event["response"]["output"] == self.done
        elif kind == "response.output_item.added":
            self._added(event)
        elif kind not in begun:
            assert self.open is not None, f"{kind} is inside an item"
            assert event["output_index"] == len(self.done)
            assert event.get("item_id", self.open["id"]) == self.open["id"]
            getattr(self, "_" + kind.removeprefix("response.").replace(".", "_"))(event)

    def _added(self, event: dict[str, Any]) -> None:
        assert self.open is None, "one item after the other"
        assert event["output_index"] == len(self.done)
        check_item(event["item"])
        assert event["item"]["status"] == "in_progress"
        self.open, self.arguments, self.parts = event["item"], "", []

    def _content_part_added(self, event: dict[str, Any]) -> None:
        assert self.text is None
        assert event["content_index"] == len(self.parts)
        check_part(event["part"])
        assert event["part"]["text"] == ""
        self.text = ""

    def _output_text_delta(self, event: dict[str, Any]) -> None:
        assert self.text is not None
        assert event["delta"]
        self.text += event["delta"]

    def _output_text_done(self, event: dict[str, Any]) -> None:
        assert event["text"] == self.text

    def _content_part_done(self, event: dict[str, Any]) -> None:
        check_part(event["part"])
        assert event["part"]["text"] == self.text
        before = self.events[-2]
        assert before["type"] == "response.output_text.done", "the text is done before its part"
        self.parts.append(event["part"])
        self.text = None

    def _function_call_arguments_delta(self, event: dict[str, Any]) -> None:
        assert self.open is not None
        assert self.open["type"] == "function_call"
        self.arguments += event["delta"]

    def _function_call_arguments_done(self, event: dict[str, Any]) -> None:
        assert event["arguments"] == self.arguments

    def _output_item_done(self, event: dict[str, Any]) -> None:
        item = event["item"]
        check_item(item)
        assert self.open is not None
        assert self.text is None
        assert item["id"] == self.open["id"]
        assert item["status"] == "completed"
        if item["type"] == "message":
            assert item["content"] == self.parts
        else:
            assert item["arguments"] == self.arguments
        self.done.append(item)
        self.open = None


def watch(raw: bytes) -> StreamChecker:
    """Checks a stream's framing and events: no ids, event names equal to types, and `[DONE]` at the end."""
    blocks = raw.decode().split("\n\n")
    assert blocks.pop() == "", "the last event ends as every other"
    assert blocks.pop() == "data: [DONE]"
    checker = StreamChecker()
    for block in blocks:
        lines = block.split("\n")
        assert [line.split(":")[0] for line in lines] == ["event", "data"]
        event = json.loads(lines[1].removeprefix("data: "))
        assert lines[0] == f"event: {event['type']}"
        checker.take(event)
    assert checker.ended
    return checker


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Iterator[tuple[ScriptedUpstream, dict[str, Running]]]:
    with ExitStack() as stack:
        upstream = stack.enter_context(running(ScriptedUpstream(lambda request: Says(text="Hello."))))
        gateways = {
            speaks: stack.enter_context(gateway(tmp_path_factory.mktemp("open"), upstream.url, speaks=(speaks,)))
            for speaks in SPOKEN
        }
        yield upstream, gateways


@dataclass
class Place:
    """A gateway in front of an upstream that speaks one format."""

    upstream: ScriptedUpstream
    gateway: Running
    secret: str
    """A key of its own, with sessions of its own."""

    def post(self, body: dict[str, Any]) -> httpx2.Response:
        headers = {"authorization": f"Bearer {self.secret}"}
        answer = httpx2.post(f"{self.gateway.url}/v1/responses", json=body, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        assert self.upstream.asked[-1].problems == []
        return answer

    def whole(self, items: Any, **more: Any) -> Any:
        answer = self.post({"model": "gpt-4o", "input": items, **more})
        assert answer.headers["content-type"].startswith("application/json")
        check_response(answer.json())
        return answer.json()

    def streamed(self, items: Any, **more: Any) -> StreamChecker:
        answer = self.post({"model": "gpt-4o", "input": items, "stream": True, **more})
        assert answer.headers["content-type"].startswith("text/event-stream")
        return watch(answer.content)


@pytest.fixture(params=SPOKEN)
def place(built, request) -> Place:
    upstream, gateways = built
    upstream.asked.clear()
    upstream.answer = lambda request: Says(text="Hello there, it is good to see you.")
    gw = gateways[request.param]
    return Place(upstream, gw, gw.key(agent=request.node.originalname[:60], canonical=False))


def message(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


def text_of(response: Any) -> str:
    texts = [part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]]
    return "".join(texts)


def test_basic_response(place):
    response = place.whole([message("user", "Say hello in exactly 3 words.")])
    assert response["status"] == "completed"
    assert text_of(response) == "Hello there, it is good to see you."
    assert response["usage"]["total_tokens"] == response["usage"]["input_tokens"] + response["usage"]["output_tokens"]


def test_basic_response_to_a_text_instead_of_items(place):
    assert text_of(place.whole("Say hello.")) == "Hello there, it is good to see you."


def test_streaming_response(place):
    checker = place.streamed([message("user", "Count from 1 to 5.")])
    kinds = [event["type"] for event in checker.events]
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.output_text.delta") > 1
    assert text_of({"output": checker.done}) == "Hello there, it is good to see you."
    begun, ended = checker.events[0]["response"], checker.events[-1]["response"]
    assert (begun["status"], begun["output"], begun["usage"]) == ("in_progress", [], None)
    assert begun["id"] == ended["id"]
    assert ended["usage"]["output_tokens"] == 7


def test_system_prompt(place):
    items = [message("system", "You are a pirate. Always answer as one."), message("user", "Say hello.")]
    assert text_of(place.whole(items))
    sent = place.upstream.asked[-1].body
    assert "You are a pirate." in json.dumps(sent)
    assert text_of(place.whole("Say hello.", instructions="You are a sailor.")) != ""
    assert "You are a sailor." in json.dumps(place.upstream.asked[-1].body)


def test_tool_calling(place):
    place.upstream.answer = lambda request: Says(calls=(("get_weather", {"location": "San Francisco"}),))
    response = place.whole([message("user", "What is the weather like in San Francisco?")], tools=[WEATHER])
    call = response["output"][0]
    assert (call["type"], call["name"]) == ("function_call", "get_weather")
    assert json.loads(call["arguments"]) == {"location": "San Francisco"}
    assert [tool["name"] for tool in response["tools"]] == ["get_weather"]


def test_tool_calling_streaming(place):
    place.upstream.answer = lambda request: Says(
        text="I look it up.", calls=tuple(("get_weather", {"location": name}) for name in ("Oslo", "Rome"))
    )
    checker = place.streamed([message("user", "What is the weather like in Oslo and Rome?")], tools=[WEATHER])
    assert [item["type"] for item in checker.done] == ["message", "function_call", "function_call"]
    assert [json.loads(item["arguments"])["location"] for item in checker.done[1:]] == ["Oslo", "Rome"]
    assert len({item["call_id"] for item in checker.done[1:]}) == 2
    assert len({item["id"] for item in checker.done}) == 3


def test_a_tool_result_is_matched_to_its_call_by_id(place):
    steps = [Says(calls=(("get_weather", {"location": "Oslo"}),)), Says(text="It rains.")]
    place.upstream.answer = lambda question: steps.pop(0)
    question = message("user", "The weather in Oslo?")
    call = place.whole([question], tools=[WEATHER])["output"][0]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
    assert text_of(place.whole([question, call, result], tools=[WEATHER])) == "It rains."
    assert len(place.upstream.asked[-1].messages) == 3


def test_image_input(place):
    url = f"data:image/png;base64,{PIXEL}"
    parts = [{"type": "input_text", "text": "What is in this picture?"}, {"type": "input_image", "image_url": url}]
    response = place.whole([{"type": "message", "role": "user", "content": parts}])
    assert response["status"] == "completed"
    assert PIXEL in json.dumps(place.upstream.asked[-1].messages)


def test_multi_turn(place):
    response = place.whole(
        [
            message("user", "My name is Alice."),
            message("assistant", "Hello Alice! Nice to meet you."),
            message("user", "What is my name?"),
        ]
    )
    assert text_of(response)
    assert len(place.upstream.asked[-1].messages) == 3


def test_a_response_names_its_predecessor_and_can_be_continued(place):
    first = place.whole("My name is Alice.")
    second = place.whole("What is my name?", previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    assert "My name is Alice." in json.dumps(place.upstream.asked[-1].messages)
    checker = place.streamed("And again?", previous_response_id=second["id"])
    for event in checker.events:
        if "response" in event:
            assert event["response"]["previous_response_id"] == second["id"]


def test_a_response_names_the_conversation_that_it_belongs_to(place):
    headers = {"authorization": f"Bearer {place.secret}"}
    opened = httpx2.post(f"{place.gateway.url}/v1/conversations", json={}, headers=headers).json()["id"]
    assert place.whole("My name is Alice.", conversation=opened)["conversation"] == {"id": opened}
    checker = place.streamed("What is my name?", conversation={"id": opened})
    for event in checker.events:
        if "response" in event:
            assert event["response"]["conversation"] == {"id": opened}
    assert len(place.upstream.asked[-1].messages) == 3


def test_request_options_are_repeated_in_the_response(place):
    response = place.whole(
        "Repeat.", temperature=0.5, top_p=0.9, max_output_tokens=64, metadata={"a": "b"}, instructions="Be brief."
    )
    options = {"temperature": 0.5, "top_p": 0.9, "max_output_tokens": 64, "metadata": {"a": "b"}}
    assert {name: response[name] for name in options} == options
    assert response["instructions"] == "Be brief."


def test_the_strict_check_refuses_invalid_streams(place):
    answer = place.post({"model": "gpt-4o", "input": "Say hello.", "stream": True})
    good = answer.content
    watch(good)
    first, second, *rest = good.split(b"\n\n")
    for bad in (
        good.replace(b"data: [DONE]\n\n", b""),
        good.replace(b"event: response.created", b"event: response.began"),
        good.replace(b"event: response.created\n", b"id: 1\nevent: response.created\n"),
        b"\n\n".join([second, first, *rest]),
        good.replace(b'"sequence_number": 1,', b'"sequence_number": 2,').replace(
            b'"sequence_number":1,', b'"sequence_number":2,'
        ),
        good.replace(b'"top_p"', b'"top_q"'),
    ):
        with pytest.raises(AssertionError):
            watch(bad)
