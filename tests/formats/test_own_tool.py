"""Streams of several rounds are joined into one, without any trace of the gateway's own calls."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from recto.formats import FORMATS
from recto.formats.streaming import SseEvent, SseReader, sse
from recto.formats.tools import OwnTool, added_usage, may_choose, tool_names

TOOL = OwnTool(name="recall", description="Looks up.", schema={"type": "object", "properties": {}})
OWN = frozenset({TOOL.name})
BY_NAME = {format.short_name: format for format in FORMATS.values()}


def joined(wire: str, *streams: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the events a client receives when the gateway answers all rounds but the last."""
    rounds = BY_NAME[wire].own_tool().rounds(OWN)
    out = b""
    for number, stream in enumerate(streams):
        if number:
            rounds.next_round()
        is_hidden = False
        for event in events(stream):
            is_hidden = is_hidden or (number + 1 < len(streams) and rounds.ends_round(event))
            if is_hidden:
                rounds.observe(event)
            else:
                out += b"".join(rounds.feed(event))
    return [json.loads(event.data) for event in SseReader().feed(out)]


def events(stream: Iterable[dict[str, Any]]) -> list[SseEvent]:
    return SseReader().feed(b"".join(sse(event.get("type"), json.dumps(event)) for event in stream))


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def call(index: int | None, id: str, name: str, arguments: str = "") -> dict[str, Any]:
    piece: dict[str, Any] = {"id": id, "function": {"name": name, "arguments": arguments}}
    return {"tool_calls": [piece if index is None else {"index": index, **piece}]}


def more(index: int, arguments: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}


def calls_in(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [piece for chunk in chunks for piece in chunk["choices"][0]["delta"].get("tool_calls", [])]


@pytest.mark.parametrize("wire", BY_NAME)
def test_a_stream_without_the_call_passes_byte_for_byte(wire):
    streams: dict[str, list[dict[str, Any]]] = {
        "chat": [
            chunk({"role": "assistant"}),
            chunk(call(0, "a", "read")),
            chunk({}, "tool_calls"),
            {"usage": {"x": 1}},
        ],
        "messages": [
            {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 3}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "name": "read"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}},
            {"type": "message_stop"},
        ],
        "responses": [
            {"type": "response.created", "sequence_number": 0, "response": {"id": "r", "tools": [{"name": "read"}]}},
            {
                "type": "response.output_item.added",
                "sequence_number": 1,
                "output_index": 0,
                "item": {"type": "message"},
            },
            {"type": "response.completed", "sequence_number": 2, "response": {"id": "r", "output": [{"id": 1}]}},
        ],
        "gemini": [
            {"candidates": [{"content": {"parts": [{"text": "Let "}], "role": "model"}}], "responseId": "g"},
            {"candidates": [{"content": {"parts": [{"functionCall": {"name": "read"}}]}, "finishReason": "STOP"}]},
        ],
    }
    rounds = BY_NAME[wire].own_tool().rounds(OWN)
    raw = events(streams[wire])
    assert [out for event in raw for out in rounds.feed(event)] == [event.raw for event in raw]


def test_chat_renumbers_the_clients_calls_for_every_vendors_streaming_style():
    stream = [chunk(call(0, "a", "recall")), chunk(more(0, "{}")), chunk(call(1, "b", "read")), chunk(more(1, "{}"))]
    assert [piece["index"] for piece in calls_in(joined("chat", stream))] == [0, 0]
    # Vendors differ: every call has index 0, the name arrives in pieces, the name is repeated, or there is no index.
    stream = [chunk(call(0, "a", "recall")), chunk(call(0, "b", "read"))]
    assert [piece["id"] for piece in calls_in(joined("chat", stream))] == ["b"]
    stream = [
        chunk(call(0, "a", "rec")),
        chunk(call(0, "a", "all")),
        chunk(call(1, "b", "rec")),
        chunk(call(1, "b", "t")),
    ]
    shown = calls_in(joined("chat", stream))
    assert "".join(piece["function"]["name"] for piece in shown) == "rect"
    assert {piece["index"] for piece in shown} == {0}
    stream = [chunk(call(0, "a", "recall")), chunk(call(0, "a", "recall", "{}")), chunk({}, "tool_calls")]
    (last,) = joined("chat", stream)
    assert last["choices"][0]["finish_reason"] == "stop"
    stream = [chunk({"tool_calls": [*call(None, "a", "recall")["tool_calls"], *call(None, "b", "read")["tool_calls"]]})]
    assert [piece["id"] for piece in calls_in(joined("chat", stream))] == ["b"]


def test_chat_joins_rounds_under_one_id_with_one_role_and_the_sum_of_usage():
    first = [
        chunk({"role": "assistant", "content": "Let me look."}, created=1),
        chunk(call(0, "a", "recall", "{}"), created=1),
        chunk({}, "tool_calls", created=1),
        {"id": "c", "choices": [], "usage": {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 4}}},
    ]
    second = [
        {**chunk({"role": "assistant", "content": ""}), "id": "d", "created": 2},
        {**chunk({"content": "It is."}), "id": "d", "created": 2},
        {**chunk({}, "stop"), "id": "d", "created": 2},
        {"id": "d", "choices": [], "usage": {"prompt_tokens": 20, "prompt_tokens_details": {"cached_tokens": 9}}},
    ]
    got = joined("chat", first, second)
    assert {event["id"] for event in got} == {"c"}
    deltas = [event["choices"][0]["delta"] for event in got if event["choices"]]
    assert sum("role" in delta for delta in deltas) == 1
    assert "".join(delta.get("content") or "" for delta in deltas) == "Let me look.\n\nIt is."
    assert got[-1]["usage"] == {"prompt_tokens": 30, "prompt_tokens_details": {"cached_tokens": 13}}


def test_messages_have_one_start_one_end_and_blocks_without_gaps():
    def message(id: str, *blocks: dict[str, Any], stop: str) -> list[dict[str, Any]]:
        usage = {"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 1}
        stream: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": id, "usage": usage}}]
        for index, block in enumerate(blocks):
            stream += [
                {"type": "content_block_start", "index": index, "content_block": block},
                {"type": "content_block_delta", "index": index, "delta": {}},
                {"type": "content_block_stop", "index": index},
            ]
        delta = {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 7}}
        return [*stream, delta, {"type": "message_stop"}]

    own, other = ({"type": "tool_use", "name": name} for name in ("recall", "read"))
    text = {"type": "text", "text": ""}
    got = joined(
        "messages",
        message("a", {"type": "thinking"}, own, stop="tool_use"),
        message("b", text, own, other, stop="tool_use"),
    )
    assert (
        [event["type"] for event in got].count("message_start")
        == [event["type"] for event in got].count("message_stop")
        == 1
    )
    starts = [event for event in got if event["type"] == "content_block_start"]
    assert [(event["index"], event["content_block"]["type"]) for event in starts] == [
        (0, "thinking"),
        (1, "text"),
        (2, "tool_use"),
    ]
    assert "recall" not in json.dumps(got)
    assert got[-2]["usage"] == {"input_tokens": 10, "cache_read_input_tokens": 4, "output_tokens": 14}
    assert got[-2]["delta"]["stop_reason"] == "tool_use"


def test_responses_continue_the_numbering_and_hide_the_repeated_tool():
    def response(id: str, *items: dict[str, Any]) -> list[dict[str, Any]]:
        head = {"id": id, "created_at": len(id), "tools": [{"name": "read"}, {"name": "recall", "type": "function"}]}
        stream: list[dict[str, Any]] = [{"type": "response.created", "response": {**head, "output": []}}]
        for index, item in enumerate(items):
            stream += [
                {"type": "response.output_item.added", "output_index": index, "item": item},
                {"type": "response.output_item.done", "output_index": index, "item": item},
            ]
        usage = {"input_tokens": 5, "input_tokens_details": {"cached_tokens": 1}}
        stream.append({"type": "response.completed", "response": {**head, "output": [*items], "usage": usage}})
        return [{**event, "sequence_number": number} for number, event in enumerate(stream)]

    own, other = ({"type": "function_call", "name": name} for name in ("recall", "read"))
    got = joined(
        "responses", response("r", {"type": "reasoning"}, own), response("rr", own, {"type": "message"}, other)
    )
    assert [event["sequence_number"] for event in got] == list(range(len(got)))
    assert [event["type"] for event in got].count("response.created") == 1
    added = [
        (event["output_index"], event["item"]["type"]) for event in got if event["type"] == "response.output_item.added"
    ]
    assert added == [(0, "reasoning"), (1, "message"), (2, "function_call")]
    last = got[-1]["response"]
    assert [item["type"] for item in last["output"]] == ["reasoning", "message", "function_call"]
    assert (last["id"], last["created_at"]) == ("r", 1)
    assert last["usage"] == {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 2}}
    assert "recall" not in json.dumps(got)


def test_complete_responses_are_joined_like_streams():
    chat = BY_NAME["chat"].own_tool()
    calls = [{"id": "a", "function": {"name": "recall"}}]
    first = {"id": "c", "choices": [{"message": {"content": "Let me look.", "tool_calls": calls}}], "usage": {"p": 1}}
    choice = {"message": {"content": "It is."}, "finish_reason": "stop"}
    body = chat.join([first, {"id": "d", "choices": [choice], "usage": {"p": 2}}], OWN)
    assert body == {
        "id": "c",
        "choices": [{"message": {"content": "Let me look.\n\nIt is."}, "finish_reason": "stop"}],
        "usage": {"p": 3},
    }
    only = chat.join([{"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}], OWN)
    assert only["choices"] == [{"message": {}, "finish_reason": "stop"}]


def test_usage_is_summed_and_the_callable_tools_are_read_from_requests():
    assert added_usage(
        {"a": 1, "d": {"x": 2}, "tier": "s"}, {"a": 2, "d": {"x": 3, "y": 1}, "b": None, "tier": "t"}
    ) == {
        "a": 3,
        "d": {"x": 5, "y": 1},
        "tier": "t",
    }
    for format in BY_NAME.values():
        assert tool_names({"tools": [format.own_tool().definition(TOOL)]}) == {"recall"}
        assert not may_choose(format.own_tool().no_calls)
    assert all(may_choose({"tool_choice": choice}) for choice in (None, "auto", "required", {"type": "any"}))
    assert not may_choose({"tool_choice": {"type": "function", "name": "read"}})
    assert not may_choose({"tool_choice": {"type": "allowed_tools"}})
    declared = {"functionDeclarations": [{"name": "read"}]}
    assert may_choose({"tools": [declared], "toolConfig": {"functionCallingConfig": {"mode": "ANY"}}})
    only = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["read"]}}
    assert not may_choose({"tools": [declared], "toolConfig": only})
    assert not may_choose({"tools": [declared, {"googleSearch": {}}]})  # Gemini accepts no functions together with it


def test_gemini_joins_rounds_when_a_call_and_the_end_share_a_chunk():
    def answer(id: str, *parts: dict[str, Any], stop: str | None = None, tokens: int = 5) -> dict[str, Any]:
        end = {"finishReason": stop} if stop else {}
        usage = {"promptTokenCount": tokens, "candidatesTokenCount": 1}
        content = {"role": "model", "parts": list(parts)}
        return {"candidates": [{"content": content, "index": 0, **end}], "usageMetadata": usage, "responseId": id}

    own, other = ({"functionCall": {"name": name, "args": {}}} for name in ("recall", "read"))
    first = [answer("a", {"text": "Let me "}), answer("a", {"text": "look."}, own, stop="STOP")]
    second = [answer("b", {"text": "It is."}, tokens=7), answer("b", other, stop="STOP", tokens=7)]
    got = joined("gemini", first, second)
    parts = [part for chunk in got for part in chunk["candidates"][0]["content"]["parts"]]
    assert "".join(part.get("text", "") for part in parts) == "Let me look.It is."
    assert [part["functionCall"]["name"] for part in parts if "functionCall" in part] == ["read"]
    assert [chunk["candidates"][0].get("finishReason") for chunk in got] == [None, None, "STOP"]
    assert {chunk["responseId"] for chunk in got} == {"a"}
    assert got[-1]["usageMetadata"] == {"promptTokenCount": 12, "candidatesTokenCount": 2}
    whole = BY_NAME["gemini"].own_tool().join([answer("a", {"text": "Look."}, own), second[1]], OWN)
    assert whole["candidates"][0]["content"]["parts"] == [{"text": "Look."}, other]
    assert whole["usageMetadata"]["promptTokenCount"] == 12
