"""An arrangement keeps valid order, moves late results, adds missing ones, and reports what it leaves out."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.context.window.units import WindowMessage
from recto.formats.arrangement import Adjacency, Keep, KeepSome, Omitted, SyntheticResult, arrange, missing_results

STYLES = get_args(Adjacency)
IDS = st.sampled_from("abcdef")
SPOKEN = st.lists(
    st.one_of(
        st.sampled_from(["user", "system"]).map(lambda role: (role, (), ())),
        st.lists(IDS, max_size=4, unique=True).map(lambda calls: ("assistant", tuple(calls), ())),
        st.lists(IDS, min_size=1, max_size=3).map(lambda answers: ("tool", (), tuple(answers))),
    ),
    max_size=30,
)


def lines(*spoken, tools=("look",)):
    """Returns lines from a shorthand: `u`, `s`, `A` or `Aab` for calls, `ab` for results of calls."""
    found = []
    for seq, word in enumerate(spoken, 1):
        role, calls, answers = _expand(word) if isinstance(word, str) else word
        found.append(
            WindowMessage(seq=seq, id=str(seq), role=role, tokens=1, calls=calls, answers=answers, tools=tools)
        )
    return found


def _expand(word):
    role = {"u": "user", "s": "system", "A": "assistant"}.get(word[0], "tool")
    return role, tuple(word[1:]) if role == "assistant" else (), tuple(word) if role == "tool" else ()


def is_made(piece):
    return isinstance(piece, SyntheticResult)


def order(arrangement):
    return [piece.seq if isinstance(piece, Keep) else piece for piece in arrangement.pieces]


@pytest.mark.parametrize("style", STYLES)
def test_what_is_in_order_stays_in_order(style):
    arrangement = arrange(lines("u", "Aab", "b", "a", "A", "u", "u", "Ac", "c"), style)
    assert order(arrangement) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert arrangement.omitted == ()
    assert not arrangement.needs_opening


@given(spoken=SPOKEN, style=st.sampled_from(STYLES))
def test_missing_results_are_synthesised_for_unanswered_calls(spoken, style):
    messages = lines(*spoken)
    latest, unanswered = {}, set()
    for message in messages:
        for call in message.calls:
            latest[call] = message.seq
            unanswered.add((call, message.seq))
        for call in message.answers:
            unanswered.discard((call, latest.get(call)))
    made = [(piece.call_id, piece.seq) for piece in arrange(messages, style).pieces if is_made(piece)]
    assert sorted(made) == sorted(unanswered)
    assert sorted(call for call, _ in missing_results(messages)) == sorted(call for call, _ in unanswered)


@pytest.mark.parametrize("style", STYLES)
def test_a_late_result_moves_behind_the_other_results_of_its_call(style):
    assert order(arrange(lines("u", "Aab", "a", "u", "A", "b", "u"), style)) == [1, 2, 3, 6, 4, 5, 7]


def test_adjacent_assistant_messages_are_one_turn_only_where_the_provider_merges_them():
    spoken = lines("u", "Aa", "Ab", "A", "a", "b")
    assert order(arrange(spoken, "merging")) == order(arrange(spoken, "anywhere")) == [1, 2, 3, 4, 5, 6]
    assert order(arrange(spoken, "strict")) == [1, 2, 5, 3, 6, 4]


def test_results_allowed_anywhere_stay_until_the_next_user_message():
    assert order(arrange(lines("u", "Aab", "b", "A", "s", "a", "u"), "anywhere")) == [1, 2, 3, 4, 5, 6, 7]
    assert order(arrange(lines("u", "Aab", "b", "A", "s", "u", "a"), "anywhere")) == [1, 2, 3, 7, 4, 5, 6]


def test_a_repeated_id_in_adjacent_messages_splits_the_turn():
    pieces = order(arrange(lines("u", "Aa", "Aa", "a"), "merging"))
    assert pieces == [1, 2, SyntheticResult("a", "look", "interrupted", 2), 3, 4]


@pytest.mark.parametrize("style", STYLES)
def test_a_synthetic_result_states_why_the_result_is_missing(style):
    pieces = order(arrange(lines("u", "Aab", "a", "u", "Acd", "d"), style))
    assert pieces == [
        1,
        2,
        3,
        SyntheticResult("b", "look", "interrupted", 2),
        4,
        5,
        6,
        SyntheticResult("c", "look", "not arrived yet", 5),
    ]


def test_a_synthetic_result_names_its_tool_if_known():
    def made(*tools):
        return [piece.tool for piece in arrange(lines("Aab", tools=tools), "strict").pieces[1:]]

    assert made("read", "write") == ["read", "write"]
    assert made("read") == ["read", "read"]
    assert made("read", "write", "look") == ["", ""]


@pytest.mark.parametrize("style", STYLES)
def test_the_first_of_two_results_stays(style):
    arrangement = arrange(lines("u", "Aa", "a", "u", "a"), style)
    assert order(arrangement) == [1, 2, 3, 4, KeepSome(5, ())]
    assert arrangement.omitted == (Omitted(5, "a", "the call has a result already"),)


@pytest.mark.parametrize("style", STYLES)
def test_a_result_without_its_call_is_left_out(style):
    arrangement = arrange(lines("u", "ax", "Aa", "ax"), style)
    assert order(arrangement) == [1, KeepSome(2, ()), 3, KeepSome(4, ("a",))]
    assert [omitted.seq for omitted in arrangement.omitted] == [2, 2, 4]
    assert {omitted.reason for omitted in arrangement.omitted} == {"no such call before it"}


def test_a_message_with_results_for_two_turns_is_split_and_its_text_goes_to_the_later():
    pieces = order(arrange(lines("u", "Aa", "u", "Ab", "ab"), "merging"))
    assert pieces == [1, 2, KeepSome(5, ("a",), rest=False), 3, 4, KeepSome(5, ("b",), rest=True)]
    pieces = order(arrange(lines("u", "Aa", "s", "Ab", "s", "ab"), "anywhere"))
    assert pieces == [1, 2, KeepSome(6, ("a",), rest=False), 3, 4, KeepSome(6, ("b",), rest=True), 5]


@pytest.mark.parametrize("style", STYLES)
def test_calls_answered_by_the_provider_need_no_result(style):
    inside = ("assistant", ("s",), ("s",))
    resumed = ("assistant", (), ("t",))
    assert order(arrange(lines("u", inside, ("assistant", ("t",), ()), resumed, "u"), style)) == [1, 2, 3, 4, 5]


def test_a_call_without_an_id_needs_no_result():
    assert order(arrange(lines("u", ("assistant", ("",), ())), "strict")) == [1, 2]


def test_a_user_message_must_open_only_where_turns_are_merged():
    for spoken in (lines("A", "u"), lines("s", "u"), lines("x"), []):
        assert arrange(spoken, "merging").needs_opening
        assert not arrange(spoken, "strict").needs_opening
        assert not arrange(spoken, "anywhere").needs_opening


@pytest.mark.parametrize("style", STYLES)
@given(SPOKEN)
def test_every_message_stays_in_order_and_every_call_has_one_result(style, spoken):
    messages = lines(*spoken)
    arrangement = arrange(messages, style)
    pieces = arrangement.pieces
    speakers = [line.seq for line in messages if not line.answers]
    assert [piece.seq for piece in pieces if isinstance(piece, Keep) and piece.seq in speakers] == speakers
    whole = [piece.seq for piece in pieces if isinstance(piece, Keep) or (isinstance(piece, KeepSome) and piece.rest)]
    assert sorted(whole) == [line.seq for line in messages]
    calls = sum(len(line.calls) for line in messages)
    made = sum(map(is_made, pieces))
    kept_answers = sum(len(line.answers) for line in messages) - len(arrangement.omitted)
    assert calls == made + kept_answers
    answers = {line.seq: line.answers for line in messages}
    arranged_answers = [
        answers[piece.seq] if isinstance(piece, Keep) else piece.answers for piece in pieces if not is_made(piece)
    ]
    assert sum(map(len, arranged_answers)) == kept_answers
    assert arrange(messages, style) == arrangement
