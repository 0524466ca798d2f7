"""The judge refuses what providers refuse, and nothing else."""

from __future__ import annotations

import json

import pytest
from tests.formats.arrangements import ANTHROPIC, CHAT, RESPONSES, WIRES, written

from recto.errors import MalformedMessage
from recto.formats import format_named, problems
from recto.formats.message import fields_of

USER = ("user",)
CALLS = ("assistant", ["c1", "c2"], "speaks")
ONE, TWO = ("results", ["c1"], ""), ("results", ["c2"], "")
SAYS = ("assistant", [], "speaks")


def judged(events, wire):
    return problems(written(events, wire), wire)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "events",
    [
        [USER],
        [USER, USER, SAYS, SAYS, USER],
        [USER, CALLS, ONE, TWO, SAYS],
        [USER, CALLS, TWO, ONE, USER],
        [USER, CALLS, ONE, TWO, CALLS, ONE, TWO],
    ],
)
def test_an_ordinary_conversation_is_taken(wire, events):
    assert judged(events, wire) == []


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([USER, CALLS, ONE], "call 'c2' has no result"),
        ([USER, ONE], "the result for 'c1' does not follow its call"),
        ([USER, CALLS, ONE, TWO, TWO], "call 'c2' has a result already"),
        ([], "there is no message"),
    ],
)
def test_a_broken_pair_is_named(wire, events, said):
    assert said in "\n".join(judged(events, wire))


def test_a_result_after_the_user_has_spoken_is_refused_by_each_in_its_way():
    events = [USER, CALLS, ONE, USER, TWO]
    for wire in (CHAT, RESPONSES):
        open_call, late = judged(events, wire)
        assert "call 'c2' has no result" in open_call
        assert "the result for 'c2' does not follow its call" in late
    # neighbours are one turn there, so the pair is whole, but a word stands before a result
    assert judged(events, ANTHROPIC) == ["message 2: results have to come before everything else the user says"]


def test_chat_wants_results_behind_their_own_message_and_the_others_do_not():
    events = [USER, ("assistant", ["c1"], "speaks"), ("assistant", ["c2"], "speaks"), ONE, TWO]
    assert judged(events, CHAT)
    assert judged(events, ANTHROPIC) == judged(events, RESPONSES) == []


def test_a_system_message_between_call_and_result_is_refused_but_by_responses():
    events = [USER, CALLS, ("system",), ONE, TWO]
    assert judged(events, CHAT)
    assert judged(events, ANTHROPIC)
    assert judged(events, RESPONSES) == []


def test_claude_is_spoken_to_first():
    assert judged([SAYS, USER], ANTHROPIC) == ["message 0: the first message must be from the user"]
    assert judged([SAYS, USER], CHAT) == judged([SAYS, USER], RESPONSES) == []


def test_claude_wants_results_before_words_also_across_neighbouring_messages():
    assert judged([USER, CALLS, ("results", ["c1"], "after"), TWO], ANTHROPIC)
    assert judged([USER, CALLS, ("results", ["c1", "c2"], "before")], ANTHROPIC)
    assert judged([USER, CALLS, ONE, ("results", ["c2"], "after"), USER], ANTHROPIC) == []


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
def test_claude_refuses_odd_content(message):
    messages = [*written([USER], ANTHROPIC), json.dumps(message).encode(), *written([USER], ANTHROPIC)]
    assert len(problems(messages, ANTHROPIC)) == 1


def test_only_the_user_can_bring_claude_a_result():
    result = written([ONE], ANTHROPIC)[0].replace(b'"user"', b'"system"')
    assert problems([*written([USER, ("assistant", ["c1"], "")], ANTHROPIC), result], ANTHROPIC) == [
        "message 1: call 'c1' has no result where it has to be"
    ]


def test_one_id_for_two_calls_of_a_turn_is_refused():
    twice = [USER, ("assistant", ["c1"], ""), ("assistant", ["c1"], ""), ONE]
    assert judged(twice, ANTHROPIC) == ["message 1: the id 'c1' names two calls"]
    assert judged(twice, RESPONSES) == ["message 2: the id 'c1' names two open calls"]
    assert judged(twice, CHAT) == ["message 1: call 'c1' has no result where it has to be"]


def test_openai_refuses_an_assistant_message_that_holds_nothing():
    assert judged([USER, ("assistant", [], "thinks"), USER], CHAT)
    refusal = json.dumps({"role": "assistant", "content": None, "refusal": "No."}).encode()
    assert problems([refusal], CHAT) == []


def test_reasoning_stands_before_what_it_led_to():
    assert judged([USER, ("assistant", ["c1"], "thinks"), ONE], RESPONSES) == []
    for events in ([USER, ("assistant", [], "thinks")], [USER, ("assistant", [], "thinks"), USER]):
        assert judged(events, RESPONSES) == ["message 1: the reasoning has no message or call after it"]


def test_what_nobody_knows_passes():
    news = [b'{"type": "acme:news", "role": "user", "x": 1}', b'{"type": "program_output", "id": "p1"}']
    assert problems(news, RESPONSES) == []
    odd = b'{"role": "user", "content": [{"type": "acme", "tool_use_id": "x"}]}'
    assert problems([odd], ANTHROPIC) == []


def test_what_the_provider_runs_itself_ties_nothing():
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    raw = json.dumps({"role": "assistant", "content": [search, found, {"type": "text", "text": "x"}]}).encode()
    assert problems([*written([USER], ANTHROPIC), raw], ANTHROPIC) == []
    assert format_named(ANTHROPIC).validation.tool_call_ids(fields_of(raw)) == ((), ())
    assert format_named(RESPONSES).validation.tool_call_ids({"type": "web_search_call", "id": "ws_1"}) == ((), ())
    assert format_named(RESPONSES).validation.tool_call_ids({"type": "tool_search_output", "call_id": None}) == ((), ())


def test_bytes_that_are_no_message_are_a_problem_and_an_unknown_format_is_an_error():
    assert problems([b"[]"], CHAT) == ["message 0: not a message: it is a list, not an object"]
    assert problems([b"{"], CHAT)[0].startswith("message 0: not usable as JSON")
    with pytest.raises(MalformedMessage, match=r"known are openai\.chat"):
        problems([], "gemini")
