"""Conversion between the client's format and the model's: everything arrives, or the loss is named."""

from __future__ import annotations

import json

import anthropic
import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.formats.answer_strategies import (
    ANTHROPIC,
    ARGUMENTS,
    CHAT,
    GEMINI,
    NAMES,
    PLAIN_REPLIES,
    REPLIES,
    RESPONSES,
    WORDS,
)
from tests.formats.replies_as_streams import as_stream

from recto.errors import CannotCross, InputError
from recto.formats import canonical, format_named, open_body, problems, read, read_reply
from recto.formats.arrangement import OPENING
from recto.formats.convert.converter import ConvertedStream, convert_request, convert_response
from recto.formats.convert.types import ResponseIds
from recto.formats.streaming import SseReader, sse

WIRES = [CHAT, RESPONSES, ANTHROPIC]
ROADS = [(source, target) for source in WIRES for target in WIRES if source != target]
IDS = ResponseIds(reply="r_7", created=5)
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
PIXEL = "iVBORw0KGgo="


def crossed(body, source, target, **more):
    return json.loads(convert_request(json.dumps(body).encode(), source, target, **more))


def replied(body, source, target):
    return json.loads(convert_response(json.dumps(body).encode(), source, target, ids=IDS))


def streamed(reply, source, target, *, include_usage=True, left_out=None):
    """Converts a reply to a stream and converts the stream event by event."""
    crossing = ConvertedStream(source, target, ids=IDS, include_usage=include_usage, left_out=left_out)
    reader = SseReader()
    converted = []
    for chunk in as_stream(json.dumps(reply).encode(), source, include_usage=True):
        for event in reader.feed(chunk):
            converted += crossing.feed(event)
    return b"".join(converted + crossing.finish())


def captured(stream, wire):
    capture = format_named(wire).capture()
    for event in SseReader().feed(stream):
        capture.take(event)
    return capture


AGENT = {
    CHAT: {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be brief"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
                    {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
                ],
            },
            {
                "role": "assistant",
                "content": "two calls",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"path":"p"}'}},
                    {"id": "b", "type": "function", "function": {"name": "read", "arguments": '{"path":"q"}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "one"},
            {"role": "tool", "tool_call_id": "b", "content": "two"},
            {"role": "user", "content": "go on"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "read", "description": "reads", "parameters": SCHEMA, "strict": True},
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "read"}},
        "parallel_tool_calls": False,
        "max_completion_tokens": 99,
        "temperature": 0.5,
        "top_p": 0.9,
        "reasoning_effort": "high",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
        },
    },
    RESPONSES: {
        "model": "m",
        "instructions": "be brief",
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "look"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"},
                    {"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"},
                ],
            },
            {"type": "message", "role": "assistant", "content": "two calls"},
            {"type": "function_call", "call_id": "a", "name": "read", "arguments": '{"path":"p"}'},
            {"type": "function_call", "call_id": "b", "name": "read", "arguments": '{"path":"q"}'},
            {"type": "function_call_output", "call_id": "a", "output": "one"},
            {"type": "function_call_output", "call_id": "b", "output": "two"},
            {"type": "message", "role": "user", "content": "go on"},
        ],
        "tools": [{"type": "function", "name": "read", "description": "reads", "parameters": SCHEMA, "strict": True}],
        "tool_choice": {"type": "function", "name": "read"},
        "parallel_tool_calls": False,
        "max_output_tokens": 99,
        "temperature": 0.5,
        "top_p": 0.9,
        "reasoning": {"effort": "high"},
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}},
        "store": False,
    },
    ANTHROPIC: {
        "model": "m",
        "max_tokens": 99,
        "system": [{"type": "text", "text": "be brief"}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
                    {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "two calls"},
                    {"type": "tool_use", "id": "a", "name": "read", "input": {"path": "p"}},
                    {"type": "tool_use", "id": "b", "name": "read", "input": {"path": "q"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "one"}]},
                    {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "two"}]},
                    {"type": "text", "text": "go on"},
                ],
            },
        ],
        "tools": [{"name": "read", "description": "reads", "input_schema": SCHEMA, "strict": True}],
        "tool_choice": {"type": "tool", "name": "read", "disable_parallel_tool_use": True},
        "temperature": 0.5,
        "top_p": 0.9,
        "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": SCHEMA}},
    },
}


def without_detail(value):
    if isinstance(value, dict):
        return {key: without_detail(inner) for key, inner in value.items() if (key, inner) != ("detail", "auto")}
    return [without_detail(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("source", "target"), ROADS)
def test_a_complete_agent_request_arrives(source, target):
    found = crossed(AGENT[source], source, target)
    assert without_detail(found) == without_detail(AGENT[target])
    assert problems(open_body(json.dumps(found).encode(), target).messages, target) == []


def test_a_request_in_the_same_format_is_unchanged():
    raw = b'{"messages" : [ ], "anything": 1e2}'
    assert convert_request(raw, CHAT, CHAT) == raw
    assert convert_response(raw, CHAT, CHAT, ids=IDS) == raw


TEXTS = WORDS.filter(str.strip)
CALLS = st.lists(st.tuples(NAMES, ARGUMENTS, TEXTS), min_size=1, max_size=3)


def _exchange(question, calls, last, number):
    made = [
        {"id": f"c{number}_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for n, (name, arguments, _) in enumerate(calls)
    ]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": text}
        for call, (_, _, text) in zip(made, calls, strict=True)
    ]
    first = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": None, "tool_calls": made},
        *results,
    ]
    return [*first, {"role": "assistant", "content": last}]


CONVERSATIONS = st.builds(
    lambda system, turns, end: [
        *([{"role": "system", "content": system}] if system else []),
        *[message for n, turn in enumerate(turns) for message in _exchange(*turn, n)],
        {"role": "user", "content": end},
    ],
    st.none() | TEXTS,
    st.lists(st.tuples(TEXTS, CALLS, TEXTS), max_size=2),
    TEXTS,
)


def plain(messages):
    """Messages of Chat with arguments read: they may be spelt another way on the way back."""
    return read_arguments([json.dumps(message).encode() for message in messages], CHAT)


def read_arguments(messages, wire):
    found = [json.loads(canonical(message, wire)) for message in messages]
    called = [call["function"] for message in found for call in message.get("tool_calls", [])]
    for call in [*called, *(item for item in found if "arguments" in item)]:
        call["arguments"] = json.loads(call["arguments"])
    return found


@given(messages=CONVERSATIONS, middle=st.sampled_from([RESPONSES, ANTHROPIC]), limit=st.integers(1, 99))
def test_a_conversation_round_trips_unchanged(messages, middle, limit):
    body = {"model": "m", "messages": messages, "max_completion_tokens": limit}
    there = crossed(body, CHAT, middle)
    back = crossed(there, middle, CHAT)
    assert plain(back["messages"]) == plain(messages)
    assert (back["model"], back["max_completion_tokens"]) == ("m", limit)
    assert problems(open_body(json.dumps(there).encode(), middle).messages, middle) == []
    other = ANTHROPIC if middle == RESPONSES else RESPONSES
    assert plain(crossed(crossed(there, middle, other), other, CHAT)["messages"]) == plain(messages)


USER = [{"role": "user", "content": "x"}]
CHAT_BODY = {"model": "m", "messages": USER}
RESPONSES_BODY = {"model": "m", "input": "x"}
ANTHROPIC_BODY = {"model": "m", "max_tokens": 5, "messages": USER}


@pytest.mark.parametrize(
    ("source", "target", "more", "named"),
    [
        (CHAT, ANTHROPIC, {"seed": 1}, "'seed'"),
        (CHAT, ANTHROPIC, {"n": 2}, "'n'"),
        (CHAT, ANTHROPIC, {"logit_bias": {"5": 1}}, "'logit_bias'"),
        (CHAT, ANTHROPIC, {"frequency_penalty": 0.1}, "'frequency_penalty'"),
        (CHAT, ANTHROPIC, {"temperature": 1.5}, "a 'temperature' above 1"),
        (CHAT, ANTHROPIC, {"reasoning_effort": "minimal"}, "reasoning effort 'minimal'"),
        (CHAT, ANTHROPIC, {"response_format": {"type": "json_object"}}, "JSON of no given schema"),
        (CHAT, ANTHROPIC, {"web_search_options": {"x": 1}}, "'web_search_options'"),
        (CHAT, RESPONSES, {"stop": ["END"]}, "stop sequences"),
        (CHAT, RESPONSES, {"tools": [{"type": "custom", "custom": {"name": "p"}}]}, "tools[0] (custom)"),
        (CHAT, RESPONSES, {"tool_choice": {"type": "allowed_tools", "allowed_tools": {}}}, "'tool_choice'"),
        (CHAT, ANTHROPIC, {"messages": [{"role": "user", "content": "x", "name": "ann"}]}, "messages[0].name"),
        (CHAT, ANTHROPIC, {"messages": [{"role": "function", "content": "x"}]}, "messages[0].role"),
        (
            CHAT,
            ANTHROPIC,
            {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
            "messages[0].content[0] (input_audio)",
        ),
        (
            CHAT,
            ANTHROPIC,
            {"messages": [*USER, {"role": "assistant", "content": "a", "reasoning_content": "hm"}]},
            "reasoning that Anthropic did not sign",
        ),
        (
            CHAT,
            RESPONSES,
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [{"id": "a", "function": {}, "extra_content": {"google": {"s": 1}}}],
                    }
                ]
            },
            "messages[0].tool_calls[0].extra_content",
        ),
        (RESPONSES, CHAT, {"previous_response_id": "r"}, "'previous_response_id'"),
        (RESPONSES, CHAT, {"background": True}, "'background'"),
        (RESPONSES, CHAT, {"include": ["file_search_call.results"]}, "'include'"),
        (RESPONSES, CHAT, {"tools": [{"type": "web_search"}]}, "tools[0] (web_search)"),
        (RESPONSES, CHAT, {"input": [{"type": "item_reference", "id": "x"}]}, "input[0] (item_reference)"),
        (
            RESPONSES,
            CHAT,
            {"input": [{"type": "reasoning", "summary": [], "encrypted_content": "e"}]},
            "reasoning that its model signed or sealed",
        ),
        (
            RESPONSES,
            CHAT,
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
            "input[0].content[0] (input_image)",
        ),
        (ANTHROPIC, CHAT, {"top_k": 5}, "'top_k'"),
        (ANTHROPIC, CHAT, {"context_management": {"edits": [1]}}, "'context_management'"),
        (ANTHROPIC, CHAT, {"thinking": {"type": "enabled", "budget_tokens": 1024}}, "'thinking'"),
        (ANTHROPIC, CHAT, {"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0] (bash_20250124)"),
        (ANTHROPIC, RESPONSES, {"stop_sequences": ["END"]}, "stop sequences"),
        (
            ANTHROPIC,
            CHAT,
            {"messages": [*USER, {"role": "assistant", "content": "The answer is"}]},
            "which the model would go on with",
        ),
        (
            ANTHROPIC,
            CHAT,
            {
                "messages": [
                    *USER,
                    {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}]},
                    *USER,
                ]
            },
            "reasoning that its model signed or sealed",
        ),
        (
            ANTHROPIC,
            CHAT,
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "tool_result",
                                "tool_use_id": "a",
                                "content": [{"type": "image", "source": {"type": "url", "url": "u"}}],
                            }
                        ],
                    }
                ]
            },
            "what is not text in a tool's result",
        ),
    ],
)
def test_members_that_would_be_lost_are_named(source, target, more, named):
    body = {CHAT: CHAT_BODY, RESPONSES: RESPONSES_BODY, ANTHROPIC: ANTHROPIC_BODY}[source]
    assert crossed(body, source, target)["model"] == "m"
    with pytest.raises(CannotCross) as error:
        crossed({**body, **more}, source, target)
    assert named in error.value.what
    assert named in str(error.value)


def test_hints_and_empty_members_do_not_stop_a_request():
    chat = {
        "metadata": {"a": "b"},
        "user": "u",
        "store": True,
        "service_tier": "auto",
        "prompt_cache_key": "k",
        "stream_options": {"include_usage": True},
        "n": 1,
        "logprobs": False,
        "seed": None,
        "logit_bias": {},
        "presence_penalty": 0,
    }
    assert crossed({**CHAT_BODY, **chat}, CHAT, ANTHROPIC, max_tokens=77) == {
        "model": "m",
        "max_tokens": 77,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
    }
    to_responses = crossed({**CHAT_BODY, **chat}, CHAT, RESPONSES)
    assert (to_responses["metadata"], to_responses["prompt_cache_key"]) == ({"a": "b"}, "k")
    assert to_responses["store"] is False
    claude = {"metadata": {"user_id": "u"}, "thinking": {"type": "adaptive"}, "cache_control": {"type": "ephemeral"}}
    assert crossed({**ANTHROPIC_BODY, **claude, "stream": True}, ANTHROPIC, CHAT) == {
        "model": "m",
        "messages": USER,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 5,
    }
    codex = {
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"summary": "auto"},
        "client_metadata": {"a": "b"},
    }
    assert crossed({**RESPONSES_BODY, **codex, "truncation": "disabled"}, RESPONSES, CHAT)["messages"] == USER


SPOKEN = {
    "system": {"role": "system", "content": "be kind"},
    "developer": {"role": "developer", "content": "be kind"},
    "user": {"role": "user", "content": "late"},
    "assistant": {"role": "assistant", "content": "Hello"},
}


@pytest.mark.parametrize("source", [CHAT, RESPONSES])
@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        (["assistant", "user"], [("user", [OPENING]), ("assistant", ["Hello"]), ("user", ["late"])]),
        (["system", "assistant", "user"], [("user", [OPENING]), ("assistant", ["Hello"]), ("user", ["late"])]),
        (["system"], [("user", [OPENING])]),
        (["user", "system"], [("user", ["late", "be kind"])]),
        (
            ["user", "assistant", "developer", "user"],
            [("user", ["late"]), ("assistant", ["Hello"]), ("user", ["be kind", "late"])],
        ),
    ],
)
def test_a_prompt_for_anthropic_or_gemini_begins_with_the_user_and_has_no_system_text_inside(source, roles, expected):
    messages = [SPOKEN[role] for role in roles]
    body = {"model": "m", "messages" if source == CHAT else "input": messages}
    found = crossed(body, source, ANTHROPIC)["messages"]
    assert [(entry["role"], [block["text"] for block in entry["content"]]) for entry in found] == expected
    found = crossed(body, source, GEMINI)["contents"]
    sides = [("assistant" if entry["role"] == "model" else entry["role"], entry["parts"]) for entry in found]
    assert [(side, [part["text"] for part in parts]) for side, parts in sides] == expected


def test_results_precede_system_text_between_them():
    calls = [{"type": "function_call", "call_id": id, "name": "read", "arguments": "{}"} for id in ("a", "b")]
    outputs = [{"type": "function_call_output", "call_id": id, "output": "x"} for id in ("a", "b")]
    items = [{"role": "user", "content": "go"}, *calls, outputs[0], SPOKEN["system"], outputs[1]]
    sent = crossed({"model": "m", "input": items}, RESPONSES, ANTHROPIC)["messages"]
    assert [block["type"] for block in sent[-1]["content"]] == ["tool_result", "tool_result", "text"]


def test_a_failed_result_says_so_and_an_image_in_a_result_is_kept_where_possible():
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    failed = {"type": "tool_result", "tool_use_id": "a", "content": "no such file", "is_error": True}
    seen = {"type": "tool_result", "tool_use_id": "b", "content": [picture]}
    body = {**ANTHROPIC_BODY, "messages": [{"role": "user", "content": [failed]}]}
    [message] = crossed(body, ANTHROPIC, CHAT)["messages"]
    assert [part["text"] for part in message["content"]] == ["[The call failed.]", "no such file"]
    body = {**ANTHROPIC_BODY, "messages": [{"role": "user", "content": [seen]}]}
    [item] = crossed(body, ANTHROPIC, RESPONSES)["input"]
    assert item["output"] == [{"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "auto"}]
    assert crossed(crossed(body, ANTHROPIC, RESPONSES), RESPONSES, ANTHROPIC)["messages"] == body["messages"]


def test_ids_invalid_for_anthropic_are_replaced_equally_in_call_and_result():
    call = {"id": "functions.bash:0", "type": "function", "function": {"name": "bash", "arguments": ""}}
    messages = [
        *USER,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "functions.bash:0", "content": "y"},
    ]
    found = crossed({**CHAT_BODY, "messages": messages}, CHAT, ANTHROPIC)["messages"]
    [used], [result] = found[1]["content"], found[2]["content"]
    assert used["id"] == result["tool_use_id"]
    assert used["id"].replace("_", "").isalnum()
    assert used["input"] == {}


CITED = {
    CHAT: {
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "It is 42.", "annotations": [{"type": "url_citation"}]},
                "finish_reason": "stop",
            }
        ],
    },
    ANTHROPIC: {
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "text", "text": "It is 42.", "citations": [{"type": "char_location", "cited_text": "42"}]}
        ],
        "stop_reason": "end_turn",
    },
    RESPONSES: {
        "object": "response",
        "status": "completed",
        "model": "m",
        "output": [
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "It is 42.", "annotations": [{"type": "url_citation"}]}],
            }
        ],
    },
}


@pytest.mark.parametrize("source", CITED)
@pytest.mark.parametrize("target", [CHAT, ANTHROPIC, RESPONSES, GEMINI])
def test_a_response_is_passed_on_without_its_sources_which_are_named(source, target):
    if source == target:
        return
    left_out: list[str] = []
    raw = convert_response(json.dumps(CITED[source]).encode(), source, target, ids=IDS, left_out=left_out)
    assert [read(each, target).text for each in read_reply(raw, target).messages] == ["It is 42."]
    assert left_out in (["citations"], ["annotations"])
    streamed_without: list[str] = []
    capture = captured(streamed(CITED[source], source, target, left_out=streamed_without), target)
    assert (capture.failed, capture.ended) == ("", True)
    assert [read(each, target).text for each in capture.reply().messages] == ["It is 42."]
    assert streamed_without == left_out


@given(data=st.data(), road=st.sampled_from(ROADS))
def test_a_stream_crosses_as_the_whole_reply_does(data, road):
    source, target = road
    reply = data.draw(PLAIN_REPLIES[source] | REPLIES[source])
    try:
        whole = json.dumps(replied(reply, source, target)).encode()
    except CannotCross:
        capture = captured(streamed(reply, source, target), target)
        assert capture.failed
        return
    capture = captured(streamed(reply, source, target), target)
    assert (capture.failed, capture.ended) == ("", True)
    expected, found = read_reply(whole, target), capture.reply()
    assert (found.stop_reason, found.usage) == (expected.stop_reason, expected.usage)
    assert read_arguments(found.messages, target) == read_arguments(expected.messages, target)


@given(data=st.data(), road=st.sampled_from(ROADS))
def test_every_word_call_and_count_of_a_reply_arrives(data, road):
    source, target = road
    reply = data.draw(PLAIN_REPLIES[source])
    found = replied(replied(reply, source, target), target, source)
    before, after = (read_reply(json.dumps(body).encode(), source) for body in (reply, found))
    assert after.usage == before.usage
    assert sorted(_words(after, source)) == sorted(_words(before, source))  # Chat keeps refusals apart from text
    assert _called(after, source) == _called(before, source)


def _parts(reply, wire):
    for raw in reply.messages:
        message = json.loads(raw)
        content = message.get("content")
        yield from content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        yield {"type": "refusal", "refusal": message.get("refusal") or ""}


def _words(reply, wire):
    return "".join(part.get("text") or part.get("refusal") or "" for part in _parts(reply, wire))


def _called(reply, wire):
    if wire == ANTHROPIC:
        return [(part["id"], part["name"], part["input"]) for part in _parts(reply, wire) if part["type"] == "tool_use"]
    found = [json.loads(raw) for raw in reply.messages]
    if wire == RESPONSES:
        calls = [(item["call_id"], item) for item in found if item["type"] == "function_call"]
    else:
        calls = [(call["id"], call["function"]) for call in found[0].get("tool_calls", [])]
    return [(call_id, call["name"], json.loads(call["arguments"])) for call_id, call in calls]


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "sig=="}
HIDDEN = {"type": "redacted_thinking", "data": "opaque"}
CLAUDE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [HIDDEN, THOUGHT, {"type": "text", "text": "done"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 5, "cache_read_input_tokens": 3, "output_tokens": 2},
}


@pytest.mark.parametrize("client", [CHAT, RESPONSES])
@pytest.mark.parametrize("streaming", [False, True])
def test_signed_thinking_survives_a_round_trip_through_an_openai_client(client, streaming):
    reply = replied(CLAUDE, ANTHROPIC, client)
    if streaming:
        messages = captured(streamed(CLAUDE, ANTHROPIC, client), client).reply().messages
    else:
        messages = read_reply(json.dumps(reply).encode(), client).messages
    replies = [json.loads(message) for message in messages]
    key = "messages" if client == CHAT else "input"
    body = {"model": "m", key: [*USER, *replies, *USER]}
    assert crossed(body, client, ANTHROPIC)["messages"][1]["content"] == CLAUDE["content"]
    with pytest.raises(CannotCross, match="signed or sealed"):
        crossed(body, client, RESPONSES if client == CHAT else CHAT)


@pytest.mark.parametrize("client", [CHAT, ANTHROPIC])
@pytest.mark.parametrize("streaming", [False, True])
def test_sealed_responses_reasoning_survives_a_round_trip_through_another_client(client, streaming):
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
    answer = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}
    reply = {"id": "resp", "model": "m", "status": "completed", "output": [reasoning, answer]}
    if streaming:
        messages = captured(streamed(reply, RESPONSES, client), client).reply().messages
    else:
        messages = read_reply(json.dumps(replied(reply, RESPONSES, client)).encode(), client).messages
    body = {"model": "m", "messages": [*USER, *map(json.loads, messages), *USER]}
    assert crossed(body, client, RESPONSES)["input"][1] == reasoning


def test_interleaved_arguments_arrive_call_by_call():
    def chunk(delta, finish=None):
        return sse(None, json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))

    def call(index, arguments, **more):
        named = {"name": more.pop("name")} if "name" in more else {}
        return {"index": index, **more, "function": {**named, "arguments": arguments}}

    stream = (
        chunk({"tool_calls": [call(0, "", id="a", name="f"), call(1, '{"y"', id="b", name="g")]})
        + chunk({"tool_calls": [call(0, '{"x":')]})
        + chunk({"tool_calls": [call(1, ":2}")]})
        + chunk({"tool_calls": [call(0, "1}")]})
        + chunk({"content": "and so"}, "tool_calls")
        + sse(None, "[DONE]")
    )
    for target, kinds in ((ANTHROPIC, ["tool_use", "tool_use", "text"]), (RESPONSES, None)):
        crossing = ConvertedStream(CHAT, target, ids=IDS)
        converted = b"".join(chunk for event in SseReader().feed(stream) for chunk in crossing.feed(event))
        reply = captured(converted, target).reply()
        assert sorted(_called(reply, target)) == [("a", "f", {"x": 1}), ("b", "g", {"y": 2})]
        if kinds:
            assert sorted(part["type"] for part in json.loads(reply.messages[0])["content"]) == sorted(kinds)


ANSWERS = {
    "text": {"content": "Hello there"},
    "calls": {
        "content": "So:",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    },
    "thought": {"content": "Yes", "reasoning_content": "let me see"},
}


def chat_reply(message):
    return {
        "id": "c",
        "model": "m",
        "choices": [{"message": {"role": "assistant", **message}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}},
    }


def serving(body):
    headers = {"content-type": "text/event-stream"}
    return httpx2.Client(transport=httpx2.MockTransport(lambda _: httpx2.Response(200, content=body, headers=headers)))


@pytest.mark.parametrize("kind", ANSWERS)
def test_anthropics_client_reads_a_crossed_stream(kind):
    http = serving(streamed(chat_reply(ANSWERS[kind]), CHAT, ANTHROPIC))
    client = anthropic.Anthropic(api_key="k", base_url="http://t", http_client=http, max_retries=0)
    with client.messages.stream(model="m", max_tokens=5, messages=USER) as stream:
        message = stream.get_final_message()
    found = {block.type: block for block in message.content}
    assert found["text"].text == ANSWERS[kind]["content"]
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens, message.usage.output_tokens) == (4, 5, 4)
    assert message.stop_reason == ("tool_use" if kind == "calls" else "end_turn")
    if kind == "calls":
        assert [(block.id, block.input) for block in message.content[1:]] == [("a", {"x": 1}), ("b", {})]
    if kind == "thought":
        assert found["thinking"].thinking == "let me see"


@pytest.mark.parametrize("kind", ANSWERS)
def test_the_responses_client_reads_a_crossed_stream(kind):
    raw = streamed(chat_reply(ANSWERS[kind]), CHAT, RESPONSES)
    client = openai.OpenAI(api_key="k", base_url="http://t", http_client=serving(raw), max_retries=0)
    with client.responses.stream(model="m", input="x") as stream:
        events = list(stream)
        response = stream.get_final_response()
    assert response.output_text == ANSWERS[kind]["content"]
    assert (response.status, response.usage.input_tokens_details.cached_tokens) == ("completed", 5)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    sent = SseReader().feed(raw)
    assert all(json.loads(event.data)["type"] == event.name for event in sent[:-1])
    assert sent[-1].data == "[DONE]"
    kinds = [event.type.removeprefix("response.") for event in events]
    if kind == "text":
        assert kinds == [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "completed",
        ]
    if kind == "calls":
        calls = [item for item in response.output if item.type == "function_call"]
        assert [(call.call_id, call.arguments) for call in calls] == [("a", '{"x": 1}'), ("b", "{}")]
        assert kinds.count("function_call_arguments.done") == 2
    if kind == "thought":
        assert response.output[0].summary[0].text == "let me see"


@pytest.mark.parametrize("include_usage", [True, False])
def test_the_chat_client_reads_a_crossed_stream(include_usage):
    content = [{"type": "text", "text": "So:"}, {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}]
    raw = streamed(
        {**CLAUDE, "content": content, "stop_reason": "tool_use"}, ANTHROPIC, CHAT, include_usage=include_usage
    )
    client = openai.OpenAI(api_key="k", base_url="http://t", http_client=serving(raw), max_retries=0)
    with client.chat.completions.stream(model="m", messages=USER) as stream:
        found = stream.get_final_completion()
    [choice] = found.choices
    assert (choice.message.content, choice.finish_reason, found.id) == ("So:", "tool_calls", "r_7")
    assert json.loads(choice.message.tool_calls[0].function.arguments) == {"x": 1}
    assert (found.usage is not None) is include_usage
    if include_usage:
        assert (found.usage.prompt_tokens, found.usage.prompt_tokens_details.cached_tokens) == (8, 3)
    else:
        assert b'"choices":[]' not in raw


@pytest.mark.parametrize("wire", WIRES)
def test_the_clients_read_a_replayed_reply(wire):
    reply = chat_reply(ANSWERS["calls"])
    whole = reply if wire == CHAT else replied(reply, CHAT, wire)
    http = serving(b"".join(as_stream(json.dumps(whole).encode(), wire)))
    if wire == ANTHROPIC:
        client = anthropic.Anthropic(api_key="k", base_url="http://t", http_client=http, max_retries=0)
        with client.messages.stream(model="m", max_tokens=5, messages=USER) as stream:
            assert [block.type for block in stream.get_final_message().content] == ["text", "tool_use", "tool_use"]
        return
    client = openai.OpenAI(api_key="k", base_url="http://t", http_client=http, max_retries=0)
    if wire == CHAT:
        with client.chat.completions.stream(model="m", messages=USER) as stream:
            assert len(stream.get_final_completion().choices[0].message.tool_calls) == 2
    else:
        with client.responses.stream(model="m", input="x") as stream:
            assert [item.type for item in stream.get_final_response().output][1:] == ["function_call"] * 2


def test_a_response_repeats_the_request_parameters():
    tools = [{"type": "function", "name": "f", "parameters": SCHEMA}]
    request = json.dumps({"input": "x", "tools": tools, "temperature": 0.5, "metadata": {"a": "b"}}).encode()
    raw = json.dumps(chat_reply(ANSWERS["text"])).encode()
    found = json.loads(
        convert_response(raw, CHAT, RESPONSES, ids=ResponseIds(reply="resp_1", created=7, request=request))
    )
    assert (found["temperature"], found["metadata"], found["top_p"], found["created_at"]) == (0.5, {"a": "b"}, 1.0, 7)
    assert found["tools"] == [{**tools[0], "description": None, "strict": None}]
    assert found["output"][0]["id"] == "msg_1_0"


def gemini_reply(reason):
    candidate = {"content": {"role": "model", "parts": [{"text": "I would"}]}, "finishReason": reason}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 4}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"}


STOPPED = {
    "gemini": (GEMINI, gemini_reply("MALFORMED_FUNCTION_CALL")),
    "anthropic": (ANTHROPIC, {**CLAUDE, "content": [{"type": "text", "text": "I would"}], "stop_reason": "pause_turn"}),
    "responses": (
        RESPONSES,
        {
            "model": "m",
            "status": "incomplete",
            "incomplete_details": {"reason": "max_tool_calls"},
            "output": [
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I would"}]}
            ],
        },
    ),
}


@pytest.mark.parametrize("kind", STOPPED)
def test_a_response_with_a_stop_reason_that_only_its_format_has_ends_as_usual(kind):
    source, reply = STOPPED[kind]
    found = replied(reply, source, CHAT)["choices"][0]
    assert (found["message"]["content"], found["finish_reason"]) == ("I would", "stop")
    capture = captured(streamed(reply, source, CHAT), CHAT)
    assert not capture.failed
    assert (capture.reply().stop_reason, b"I would" in capture.reply().messages[0]) == ("stop", True)


@pytest.mark.parametrize(("source", "target"), ROADS)
def test_a_stream_that_breaks_off_ends_with_an_error(source, target):
    reply = {CHAT: chat_reply(ANSWERS["text"])}
    reply = reply.get(source) or replied(reply[CHAT], CHAT, source)
    events = SseReader().feed(b"".join(as_stream(json.dumps(reply).encode(), source)))
    crossing = ConvertedStream(source, target, ids=IDS)
    converted = [chunk for event in events[:2] for chunk in crossing.feed(event)] + crossing.finish()
    assert captured(b"".join(converted), target).failed == "The model's answer broke off."
    assert crossing.ended
    assert crossing.feed(events[-1]) == crossing.finish() == []


PIECES = st.recursive(
    st.none() | st.integers(0, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(data=st.data(), road=st.sampled_from(ROADS))
def test_no_garbage_makes_a_stream_raise(data, road):
    source, target = road
    events = SseReader().feed(b"".join(as_stream(json.dumps(data.draw(REPLIES[source])).encode(), source)))
    crossing = ConvertedStream(source, target, ids=IDS)
    converted = []
    for event in events:
        found = event.data
        if found.startswith("{") and data.draw(st.booleans()):
            found = json.dumps(_damaged(json.loads(found), data.draw))
        for damaged in SseReader().feed(sse(event.name, found)):
            converted += crossing.feed(damaged)
    converted += crossing.finish()
    assert crossing.ended
    assert captured(b"".join(converted), target).ended or captured(b"".join(converted), target).failed


def _damaged(value, draw):
    if isinstance(value, dict) and value:
        key = draw(st.sampled_from(sorted(value)))
        if draw(st.booleans()):
            return {**value, key: _damaged(value[key], draw)}
        return {**value, key: draw(PIECES)}
    if isinstance(value, list) and value:
        return [_damaged(value[0], draw), *value[1:]]
    return draw(PIECES)


@given(data=st.data(), road=st.sampled_from(ROADS))
def test_a_damaged_request_crosses_or_is_refused_by_type(data, road):
    source, target = road
    body = AGENT[source]
    for _ in range(2):
        body = _damaged(body, data.draw)
    raw = json.dumps(body).encode()
    try:
        found = json.loads(convert_request(raw, source, target))
    except InputError:
        return
    assert isinstance(found, dict)
