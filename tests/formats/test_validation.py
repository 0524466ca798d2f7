"""The validator refuses what providers refuse, and nothing else."""

from __future__ import annotations

import json

import pytest
from tests.formats.arrangements import ANTHROPIC, CHAT, RESPONSES, WIRES, written

from recto.errors import MalformedMessage
from recto.formats import format_named, problems
from recto.formats.message import fields_of

USER = ("user",)
CALLS = ("assistant", ["c1", "c2"], "speaks")
FIRST, SECOND = ("results", ["c1"], ""), ("results", ["c2"], "")
SAYS = ("assistant", [], "speaks")


def judged(events, wire):
    return problems(written(events, wire), wire)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "events",
    [
        [USER],
        [USER, USER, SAYS, SAYS, USER],
        [USER, CALLS, FIRST, SECOND, SAYS],
        [USER, CALLS, SECOND, FIRST, USER],
        [USER, CALLS, FIRST, SECOND, CALLS, FIRST, SECOND],
    ],
)
def test_a_valid_conversation_has_no_problems(wire, events):
    assert judged(events, wire) == []


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ([USER, CALLS, FIRST], "call 'c2' has no result"),
        ([USER, FIRST], "the result for 'c1' does not follow its call"),
        ([USER, CALLS, FIRST, SECOND, SECOND], "call 'c2' has a result already"),
        ([], "there is no message"),
    ],
)
def test_a_broken_pair_is_reported(wire, events, problem):
    assert problem in "\n".join(judged(events, wire))


def test_each_format_refuses_a_result_after_a_user_message():
    events = [USER, CALLS, FIRST, USER, SECOND]
    for wire in (CHAT, RESPONSES):
        open_call, late = judged(events, wire)
        assert "call 'c2' has no result" in open_call
        assert "the result for 'c2' does not follow its call" in late
    # Anthropic merges neighbouring messages into one turn, so the pair is complete, but text precedes a result.
    assert judged(events, ANTHROPIC) == ["message 2: results have to come before everything else the user says"]


def test_only_chat_requires_results_directly_after_their_message():
    events = [USER, ("assistant", ["c1"], "speaks"), ("assistant", ["c2"], "speaks"), FIRST, SECOND]
    assert judged(events, CHAT)
    assert judged(events, ANTHROPIC) == judged(events, RESPONSES) == []


def test_only_responses_accepts_a_system_message_between_call_and_result():
    events = [USER, CALLS, ("system",), FIRST, SECOND]
    assert judged(events, CHAT)
    assert judged(events, ANTHROPIC)
    assert judged(events, RESPONSES) == []


def test_claude_requires_a_user_message_first():
    assert judged([SAYS, USER], ANTHROPIC) == ["message 0: the first message must be from the user"]
    assert judged([SAYS, USER], CHAT) == judged([SAYS, USER], RESPONSES) == []


def test_claude_requires_results_before_text_across_adjacent_messages():
    assert judged([USER, CALLS, ("results", ["c1"], "after"), SECOND], ANTHROPIC)
    assert judged([USER, CALLS, ("results", ["c1", "c2"], "before")], ANTHROPIC)
    assert judged([USER, CALLS, FIRST, ("results", ["c2"], "after"), USER], ANTHROPIC) == []


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": []},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": " \n"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "x"}, {"type": "thinking", "thinking": "hm"}]},
        {"role": "user", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]},
        {"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "x"}]},
        {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}] * 5},
    ],
    ids=["nothing", "no words", "blank", "ends thinking", "user calls", "assistant answers", "five marks"],
)
def test_claude_refuses_invalid_content(message):
    messages = [*written([USER], ANTHROPIC), json.dumps(message).encode(), *written([USER], ANTHROPIC)]
    assert len(problems(messages, ANTHROPIC)) == 1


def test_claude_accepts_results_only_in_user_messages():
    result = written([FIRST], ANTHROPIC)[0].replace(b'"user"', b'"system"')
    assert problems([*written([USER, ("assistant", ["c1"], "")], ANTHROPIC), result], ANTHROPIC) == [
        "message 1: call 'c1' has no result where it has to be"
    ]


def test_one_id_for_two_calls_of_a_turn_is_refused():
    twice = [USER, ("assistant", ["c1"], ""), ("assistant", ["c1"], ""), FIRST]
    assert judged(twice, ANTHROPIC) == ["message 1: the id 'c1' names two calls"]
    assert judged(twice, RESPONSES) == ["message 2: the id 'c1' names two open calls"]
    assert judged(twice, CHAT) == ["message 1: call 'c1' has no result where it has to be"]


def test_openai_refuses_an_empty_assistant_message():
    assert judged([USER, ("assistant", [], "thinks"), USER], CHAT)
    refusal = json.dumps({"role": "assistant", "content": None, "refusal": "No."}).encode()
    assert problems([refusal], CHAT) == []


def test_reasoning_must_precede_a_message_or_call():
    assert judged([USER, ("assistant", ["c1"], "thinks"), FIRST], RESPONSES) == []
    for events in ([USER, ("assistant", [], "thinks")], [USER, ("assistant", [], "thinks"), USER]):
        assert judged(events, RESPONSES) == ["message 1: the reasoning has no message or call after it"]


def test_unknown_items_and_blocks_are_accepted():
    news = [b'{"type": "acme:news", "role": "user", "x": 1}', b'{"type": "program_output", "id": "p1"}']
    assert problems(news, RESPONSES) == []
    odd = b'{"role": "user", "content": [{"type": "acme", "tool_use_id": "x"}]}'
    assert problems([odd], ANTHROPIC) == []


def test_calls_that_the_provider_runs_need_no_result():
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    raw = json.dumps({"role": "assistant", "content": [search, found, {"type": "text", "text": "x"}]}).encode()
    assert problems([*written([USER], ANTHROPIC), raw], ANTHROPIC) == []
    assert format_named(ANTHROPIC).validation.tool_call_ids(fields_of(raw)) == ((), ())
    assert format_named(RESPONSES).validation.tool_call_ids({"type": "web_search_call", "id": "ws_1"}) == ((), ())
    assert format_named(RESPONSES).validation.tool_call_ids({"type": "tool_search_output", "call_id": None}) == ((), ())


def test_invalid_bytes_are_a_problem_and_an_unknown_format_is_an_error():
    assert problems([b"[]"], CHAT) == ["message 0: not a message: it is a list, not an object"]
    assert problems([b"{"], CHAT)[0].startswith("message 0: not usable as JSON")
    with pytest.raises(MalformedMessage, match=r"known are openai\.chat"):
        problems([], "gemini")
