"""Captured streams equal the complete reply, wherever the stream is cut or broken off."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.formats.answer_strategies import ANTHROPIC, CHAT, GEMINI, REPLIES, RESPONSES
from tests.formats.replies_as_streams import as_stream

from recto.formats import FORMATS, canonical, format_named, problems, read_reply
from recto.formats.json_spans import text_of
from recto.formats.response import Usage
from recto.formats.streaming import SseEvent, SseReader, sse

QUESTION = {"role": "user", "content": "go"}


def captured(raw, wire, cuts=()):
    reader, capture = SseReader(), format_named(wire).capture()
    places = sorted({min(cut, len(raw)) for cut in cuts} | {0, len(raw)})
    for start, end in pairwise(places):
        for event in reader.feed(raw[start:end]):
            capture.take(event)
    return capture


def summary(reply, wire):
    return [canonical(message, wire) for message in reply.messages], reply.stop_reason, reply.usage


def events(*objects, named=False):
    return b"".join(sse(event["type"] if named else None, json.dumps(event)) for event in objects)


@given(data=st.data(), wire=st.sampled_from(sorted(FORMATS)), cuts=st.lists(st.integers(0, 4_000), max_size=6))
def test_a_streamed_reply_is_captured_as_the_complete_reply(data, wire, cuts):
    reply = json.dumps(data.draw(REPLIES[wire]), ensure_ascii=False).encode()
    stream = b"".join(as_stream(reply, wire, include_usage=True))
    capture = captured(stream, wire, cuts)
    assert capture.ended
    assert capture.failed == ""
    assert capture.id
    assert summary(capture.reply(), wire) == summary(read_reply(reply, wire), wire)


@given(data=st.data(), wire=st.sampled_from(sorted(FORMATS)), end=st.integers(0, 6_000))
def test_messages_of_a_cut_stream_can_be_resent_once_their_calls_are_answered(data, wire, end):
    reply = json.dumps(data.draw(REPLIES[wire])).encode()
    stream = b"".join(as_stream(reply, wire))[:end]
    messages = list(captured(stream, wire).partial().messages)
    whole = [canonical(message, wire) for message in read_reply(reply, wire).messages]
    calls = {
        call for message in messages for call in format_named(wire).validation.tool_call_ids(json.loads(message)).calls
    }
    for message in messages:
        fields = json.loads(message)
        for call in fields.get("tool_calls", []):
            json.loads(call["function"]["arguments"])
        if fields.get("type") == "function_call":
            assert canonical(message, wire) in whole
    if len(calls) == sum(
        len(format_named(wire).validation.tool_call_ids(json.loads(message)).calls) for message in messages
    ):
        answers = [_answer(call, wire) for call in calls]
        if wire == GEMINI and answers:
            answers = [{"role": "user", "parts": [part for answer in answers for part in answer["parts"]]}]
        if wire == ANTHROPIC and answers:
            answers = [{"role": "user", "content": [block for answer in answers for block in answer["content"]]}]
        question = {"parts": [{"text": "?"}]} if wire == GEMINI else QUESTION
        sent = [json.dumps(question).encode()] + messages + [json.dumps(answer).encode() for answer in answers]
        assert problems(sent, wire) == []


def _answer(call, wire):
    if wire == CHAT:
        return {"role": "tool", "tool_call_id": call, "content": "x"}
    if wire == RESPONSES:
        return {"type": "function_call_output", "call_id": call, "output": "x"}
    if wire == GEMINI:
        return json.loads(format_named(wire).edits.result_message(call, "", "x"))
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": "x"}]}


KEYS = """
    candidates parts functionCall finishReason promptFeedback usageMetadata
    type index delta choices message content_block content tool_calls function arguments name id item output_index text
    content_index part response output usage error reasoning_details input
"""
KINDS = """
    message_start content_block_start content_block_delta content_block_stop message_delta tool_use text error message
    response.output_item.added response.output_item.done response.output_text.delta response.completed function_call
    text_delta input_json_delta citations_delta reasoning
"""
GARBAGE = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS.split()), inner | st.sampled_from(KINDS.split()) | st.just(0), max_size=6
        )
    ),
    max_leaves=16,
)


@given(
    wire=st.sampled_from(sorted(FORMATS)),
    found=st.lists(GARBAGE, max_size=6),
    noise=st.binary(max_size=20),
)
def test_no_garbage_makes_a_capture_raise(wire, found, noise):
    capture = captured(noise + b"\n\n" + b"".join(sse(None, json.dumps(event)) for event in found), wire)
    for reply in (capture.reply(), capture.partial()):
        for message in reply.messages:
            text_of(message)
            json.loads(message)


def test_chat_streams_of_several_vendors_keep_what_must_be_sent_back():
    def chunk(delta, finish=None, index=0):
        return {"id": "c", "choices": [{"index": index, "delta": delta, "finish_reason": finish}], "usage": None}

    stream = events(
        chunk({"role": "assistant", "content": "", "refusal": None}),
        chunk({"content": "other"}, index=1),
        chunk({"reasoning_content": "let "}),
        chunk(
            {"reasoning_content": "me", "reasoning_details": [{"type": "reasoning.text", "text": "let", "index": 0}]}
        ),
        chunk({"reasoning_details": [{"type": "reasoning.text", "text": " me", "signature": "sig", "index": 0}]}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk(
            {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]}
        ),
        chunk(
            {"tool_calls": [{"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": "{"}}]}
        ),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"x"'}}]}),
        chunk(
            {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}, "extra_content": {"google": {"s": "t"}}}]}
        ),
        chunk({"tool_calls": [{"index": 1, "function": {"arguments": "}"}}]}),
        chunk(
            {"tool_calls": [{"index": 1, "id": "c", "type": "function", "function": {"name": "h", "arguments": "{}"}}]}
        ),
        chunk({}, "tool_calls"),
        {"id": "c", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}},
    )
    capture = captured(stream + sse(None, "[DONE]"), CHAT)
    reply = capture.reply()
    assert json.loads(reply.messages[0]) == {
        "role": "assistant",
        "content": "Hello",
        "reasoning_content": "let me",
        "reasoning_details": [{"type": "reasoning.text", "text": "let me", "signature": "sig", "index": 0}],
        "tool_calls": [
            {
                "id": "a",
                "type": "function",
                "function": {"name": "f", "arguments": '{"x": 1}'},
                "extra_content": {"google": {"s": "t"}},
            },
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            {"id": "c", "type": "function", "function": {"name": "h", "arguments": "{}"}},
        ],
    }
    assert (reply.stop_reason, reply.usage) == ("tool_calls", Usage(prompt=9, output=4))
    cut = captured(stream[: stream.index(b'": 1}"')], CHAT).partial()
    assert "tool_calls" not in json.loads(cut.messages[0])
    assert json.loads(cut.messages[0])["content"] == "Hello"


def test_an_anthropic_stream_keeps_signatures_citations_input_and_the_last_count():
    def block(index, kind, *deltas):
        start = {"type": "content_block_start", "index": index, "content_block": kind}
        inner = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        return [start, *inner, {"type": "content_block_stop", "index": index}]

    head = {"id": "msg", "role": "assistant", "content": [], "usage": {"input_tokens": 5, "output_tokens": 1}}
    found = [
        {"type": "message_start", "message": {**head, "type": "message", "stop_reason": None}},
        {"type": "ping"},
        *block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "hm"},
            {"type": "signature_delta", "signature": "sig"},
        ),
        *block(
            1,
            {"type": "text", "text": "", "citations": []},
            {"type": "text_delta", "text": "as "},
            {"type": "citations_delta", "citation": {"cited_text": "q"}},
            {"type": "text_delta", "text": "said"},
        ),
        *block(
            2,
            {"type": "tool_use", "id": "t", "name": "f", "input": {}},
            {"type": "input_json_delta", "partial_json": ""},
            {"type": "input_json_delta", "partial_json": '{"n": 1.50'},
            {"type": "input_json_delta", "partial_json": "}"},
        ),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 30}},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 31, "cache_read_input_tokens": 7}},
        {"type": "message_stop"},
    ]
    capture = captured(events(*found, named=True), ANTHROPIC)
    [message] = capture.reply().messages
    assert json.loads(message)["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "as said", "citations": [{"cited_text": "q"}]},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"n": 1.5}},
    ]
    assert b'{"n": 1.50}' in message  # as the model wrote it
    assert capture.reply().usage == Usage(prompt=12, output=31, cache_read=7)
    assert (capture.ended, capture.reply().stop_reason) == (True, "tool_use")
    cut = captured(events(*found[:5], named=True), ANTHROPIC)
    assert (cut.ended, cut.partial().messages) == (False, ())
    cut = captured(events(*found[:13], named=True), ANTHROPIC)
    assert [part["type"] for part in json.loads(cut.partial().messages[0])["content"]] == ["thinking", "text"]


def test_a_call_with_invalid_json_and_a_search_without_its_result_are_left_out():
    def block(index, kind, written):
        delta = {"type": "input_json_delta", "partial_json": written}
        return [
            {"type": "content_block_start", "index": index, "content_block": {**kind, "id": f"t{index}", "input": {}}},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]

    call, search = {"type": "tool_use", "name": "f"}, {"type": "server_tool_use", "name": "web_search"}
    capture = captured(events(*block(0, call, '{"a": '), *block(1, search, "{}"), *block(2, call, "{}")), ANTHROPIC)
    assert [entry["id"] for entry in json.loads(capture.reply().messages[0])["content"]] == ["t1", "t2"]
    assert [entry["id"] for entry in json.loads(capture.partial().messages[0])["content"]] == ["t2"]


def test_a_responses_stream_takes_finished_items_and_the_complete_response():
    reasoning = {"type": "reasoning", "id": "rs", "summary": []}
    call = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": ""}
    message = {"type": "message", "id": "m", "role": "assistant", "content": [], "status": "in_progress"}
    found = [
        {"type": "response.created", "response": {"id": "resp", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": reasoning},
        {"type": "response.output_item.done", "output_index": 0, "item": {**reasoning, "encrypted_content": "e"}},
        {"type": "response.output_item.added", "output_index": 1, "item": call},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"a":'},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "1}"},
        {"type": "response.output_item.done", "output_index": 1, "item": {**call, "arguments": '{"a":1}'}},
        {"type": "response.output_item.added", "output_index": 2, "item": message},
        {"type": "response.content_part.added", "output_index": 2, "content_index": 0, "part": {"type": "output_text"}},
        {"type": "response.output_text.delta", "output_index": 2, "content_index": 0, "delta": "wor"},
        {"type": "response.output_text.delta", "output_index": 2, "content_index": 0, "delta": "ds"},
    ]
    cut = captured(events(*found), RESPONSES).partial()
    assert [json.loads(item).get("type") for item in cut.messages] == ["reasoning", "function_call", "message"]
    assert json.loads(cut.messages[0])["encrypted_content"] == "e"
    assert json.loads(cut.messages[2])["content"] == [{"type": "output_text", "text": "words"}]
    assert json.loads(cut.messages[2])["status"] == "incomplete"
    assert captured(events(*found[:5]), RESPONSES).partial().messages == ()
    last = {"id": "resp", "status": "completed", "output": [], "usage": {"input_tokens": 3, "output_tokens": 1}}
    bare = captured(events(*found, {"type": "response.completed", "response": last}), RESPONSES)
    assert (len(bare.reply().messages), bare.reply().stop_reason, bare.ended) == (3, "completed", True)
    full = {**last, "output": [{"type": "message", "role": "assistant", "content": "a"}] * 3}
    whole = captured(events(*found, {"type": "response.completed", "response": full}), RESPONSES)
    assert {json.loads(item)["content"] for item in whole.reply().messages} == {"a"}


@pytest.mark.parametrize(
    ("wire", "event"),
    [
        (CHAT, {"error": {"message": "too busy", "code": "x"}}),
        (RESPONSES, {"type": "error", "message": "too busy", "code": "x"}),
        (RESPONSES, {"type": "response.failed", "response": {"status": "failed", "error": {"message": "too busy"}}}),
        (ANTHROPIC, {"type": "error", "error": {"type": "overloaded_error", "message": "too busy"}}),
        (GEMINI, {"error": {"code": 503, "message": "too busy", "status": "UNAVAILABLE"}}),
    ],
)
def test_an_error_in_the_stream_is_reported(wire, event):
    capture = captured(events(event), wire)
    assert capture.failed == "too busy"
    assert capture.partial().messages == ()


@pytest.mark.parametrize("wire", FORMATS)
def test_the_capture_of_an_endless_stream_stops_growing_and_reports_overflow(wire):
    capture = format_named(wire).capture(max_bytes=10_000)
    replies = {CHAT: _long_chat, RESPONSES: _long_responses, ANTHROPIC: _long_anthropic, GEMINI: _long_gemini}
    reply = replies[wire]()
    for _ in range(100):
        for event in SseReader().feed(events(*reply)):
            capture.take(event)
    assert capture.overflowed
    assert sum(map(len, capture.partial().messages)) <= 10_100


def _long_gemini():
    return [{"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": "x" * 1_000}]}}]}]


def _long_chat():
    return [{"choices": [{"index": 0, "delta": {"content": "x" * 1_000}}]}]


def _long_responses():
    item = {"type": "message", "role": "assistant", "content": []}
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "x" * 1_000},
    ]


def _long_anthropic():
    return [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x" * 1_000}},
    ]


def test_an_event_that_is_not_json_is_skipped():
    capture = format_named(CHAT).capture()
    capture.take(SseEvent(name="", data="{not json", raw=b""))
    assert capture.reply().messages == ()


def chat_event(delta: object, **more: object) -> dict[str, object]:
    choice = {"index": more.pop("index", 0), "delta": delta, "finish_reason": more.pop("finish", None)}
    return {"id": "r", "choices": [choice], **more}


def block_event(index: int, delta: dict[str, object]) -> dict[str, object]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


PIECE = st.text(st.sampled_from('ab "\\\n\t{}\u00e9\u2028\ud83d\U0001f600'), max_size=4)
CHAT_EVENTS = (
    lambda text: chat_event({"content": text}),
    lambda text: chat_event({"content": None, "reasoning_content": text, "role": "assistant"}),
    lambda text: chat_event({"role": "assistant", "content": text}),
    lambda text: chat_event({"content": text}, index=1),
    lambda text: chat_event({"content": text}, content="beside it"),
    lambda text: chat_event({"content": text, "reasoning_content": "so"}),
    lambda text: chat_event({"content": text}, usage={"prompt_tokens": 5, "completion_tokens": 1}),
    lambda text: chat_event({"content": [{"type": "text", "text": text}]}),
    lambda text: chat_event({"tool_calls": [{"index": 0, "id": "c", "function": {"arguments": text}}]}),
    lambda text: {"id": "r", "choices": [], "content": text},
    lambda text: chat_event({}, finish="stop"),
)
ANTHROPIC_EVENTS = (
    lambda text: block_event(0, {"type": "text_delta", "text": text}),
    lambda text: block_event(1, {"type": "text_delta", "text": text}),
    lambda text: block_event(0, {"type": "thinking_delta", "thinking": text}),
    lambda text: block_event(0, {"type": "signature_delta", "signature": text}),
    lambda text: block_event(1, {"type": "input_json_delta", "partial_json": text}),
    lambda text: block_event(0, {"type": "text_delta", "text": text, "more": "so"}),
    lambda text: {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": text}},
    lambda text: {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": text}},
)


@pytest.mark.parametrize(("wire", "events"), [("openai.chat", CHAT_EVENTS), ("anthropic.messages", ANTHROPIC_EVENTS)])
@given(data=st.data(), ascii=st.booleans())
def test_a_repeated_event_form_is_read_like_its_first_occurrence(wire, events, data, ascii):
    runs = st.tuples(st.sampled_from(events), st.lists(PIECE, min_size=2, max_size=3))
    found = [event(text) for event, texts in data.draw(st.lists(runs, min_size=1, max_size=6)) for text in texts]
    captures = [format_named(wire).capture() for _ in range(2)]
    for number, event in enumerate(found):
        alike, different = event, {"number": number, **event}  # nothing reads the number
        for capture, variant in zip(captures, (alike, different), strict=True):
            capture.take(SseEvent("", json.dumps(variant, ensure_ascii=ascii), b""))
    alike, different = captures
    assert alike.partial() == different.partial()
    assert alike.reply() == different.reply()
    assert alike.ended == different.ended


def test_an_event_that_only_resembles_the_previous_event_is_parsed():
    capture = format_named("openai.chat").capture()
    start, end = '{"choices": [{"delta": {"content": "', '"}}]}'
    pieces = ["one ", 'two", "refusal": "no', "\x01", "three"]
    for piece in pieces:
        capture.take(SseEvent("", f"{start}{piece}{end}", b""))
    message = json.loads(capture.reply().messages[0])
    assert message["content"] == "one twothree"
    assert message["refusal"] == "no"
