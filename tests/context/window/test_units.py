"""Units are evicted whole and keep the prompt valid; a rebuilt window state is identical."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.context.window.state import Protection, WindowState, in_flight, ranges_of, seqs_in, split_units
from recto.context.window.units import LONG_EXCHANGE, ShortenedResult, WindowMessage, eviction_order, steps_of, units_of


def lines_from(script: str) -> list[WindowMessage]:
    """`s` system, `u` user, `a` assistant, `c`/`d` assistant with one or two calls, `r` the oldest open result."""
    lines: list[WindowMessage] = []
    waiting: list[str] = []
    for seq, sign in enumerate(script, 1):
        role = {"s": "system", "u": "user", "r": "tool"}.get(sign, "assistant")
        calls = tuple(f"{seq}-{n}" for n in range({"c": 1, "d": 2}.get(sign, 0)))
        answers = (waiting.pop(0),) if sign == "r" and waiting else ("nothing",) if sign == "r" else ()
        waiting += calls
        lines.append(WindowMessage(seq=seq, id=f"i{seq}", role=role, tokens=seq, calls=calls, answers=answers))
    return lines


scripts = st.text(alphabet="suacdr", max_size=60)


def state_from(script: str) -> WindowState:
    state = WindowState()
    for line in lines_from(script):
        state.add(line)
    return state


def answered_in(state: WindowState) -> int:
    lines = state.messages.values()
    return max([line.seq for line in lines if line.role == "assistant" and line.seq < state.question], default=0)


@given(scripts, st.sets(st.integers(1, 60)), scripts)
def test_the_answered_message_is_tracked_across_appends_and_evictions(script, gone, more):
    lines = lines_from(script + more)
    state = WindowState()
    for line in lines[: len(script)]:
        state.add(line)
        assert state.answered == answered_in(state)
    edit = state.edit
    state.evict(gone)
    assert state.edit is not edit
    assert state.answered == answered_in(state)
    for line in lines[len(script) :]:
        state.add(line)
        assert state.answered == answered_in(state)


@given(scripts)
def test_a_state_built_at_once_equals_one_built_message_by_message(script):
    added = state_from(script)
    added.growth, added.burn = WindowState().growth, WindowState().burn  # not known to `of`
    assert WindowState.of(lines_from(script)) == added


@pytest.mark.requirement("window.units")
def test_a_short_exchange_is_one_unit():
    assert [unit.seqs for unit in units_of(lines_from("ucra" + "ua"))] == [(1, 2, 3, 4), (5, 6)]


@pytest.mark.requirement("window.units")
def test_a_long_tool_loop_is_split_into_steps_and_its_question_is_evicted_last():
    units = units_of(lines_from("u" + "cr" * 10 + "a" + "ua"))
    assert [unit.seqs for unit in units[:3]] == [(1,), (2, 3), (4, 5)]
    order = eviction_order(units)
    assert [unit.first for unit in order[-2:]] == [1, 23]


def test_parallel_calls_stay_with_all_their_results():
    [unit] = units_of(lines_from("udrr"))
    assert unit.is_complete
    assert steps_of(unit)[1].seqs == (2, 3, 4)


def test_a_late_result_belongs_to_its_call():
    units = units_of(lines_from("ucuar"))
    assert units[0].seqs == (1, 2, 5)


@given(scripts)
@pytest.mark.requirement("window.valid")
def test_every_line_is_in_exactly_one_unit_and_pairs_are_never_split(script):
    lines = lines_from(script)
    units = units_of(lines)
    assert sorted(seq for unit in units for seq in unit.seqs) == [line.seq for line in lines]
    home = {call: unit for unit in units for line in unit.messages for call in line.calls}
    for unit in units:
        assert list(unit.seqs) == sorted(unit.seqs)
        for line in unit.messages:
            assert all(home.get(answer, unit) is unit for answer in line.answers)


@given(scripts, st.integers(0, 30))
@pytest.mark.requirement("protect.recent")
def test_protected_and_eligible_units_partition_the_state(script, recent):
    state = state_from(script)
    found = split_units(state, Protection(min_recent_messages=recent))
    eligible = {seq for unit in found.eligible for seq in unit.seqs}
    protected = {seq for unit in found.protected for seq in unit.seqs}
    assert not eligible & protected
    assert eligible | protected == set(state.messages)
    assert in_flight(state) <= protected
    assert set(list(state.messages)[len(state.messages) - min(recent, len(state.messages)) :]) <= protected
    assert all(state.messages[seq].role != "system" for seq in eligible)
    assert state.task_seq not in eligible


@pytest.mark.requirement("protect.system-task")
def test_the_open_step_and_the_current_question_are_in_flight():
    assert in_flight(state_from("ua" + "ucrdrr")) == {3, 6, 7, 8}
    assert in_flight(state_from("uau")) == {3}
    assert in_flight(WindowState()) == frozenset()


def test_pins_marks_and_tool_rules_protect():
    state = state_from("u" + "ua" * 20)
    state.pins.add(4)
    state.add(WindowMessage(seq=42, id="m", role="assistant", tokens=1, marked=True))
    state.add(WindowMessage(seq=43, id="t", role="assistant", tokens=1, calls=("x",), tools=("keep_me",)))
    for seq in range(44, 60):
        state.add(WindowMessage(seq=seq, id=str(seq), role="user", tokens=1))
    found = split_units(state, Protection(min_recent_messages=0, tools=frozenset({"keep_me"})))
    protected = {seq for unit in found.protected for seq in unit.seqs}
    assert protected == {1, 4, 42, 43, 59}


@given(scripts, st.data())
def test_a_window_rebuilt_from_its_snapshot_is_the_same(script, data):
    state = state_from(script)
    numbers = st.lists(st.sampled_from(sorted(state.messages) or [0]), max_size=5)
    state.evict(data.draw(numbers))
    state.shorten(ShortenedResult(seq=seq, text="short", tokens=1) for seq in data.draw(numbers))
    state.pins |= set(data.draw(numbers))
    rebuilt = WindowState.from_snapshot(state.snapshot(), state.messages.values())
    rebuilt.component_tokens = {name: used for name, used in rebuilt.component_tokens.items() if used}
    state.component_tokens = {name: used for name, used in state.component_tokens.items() if used}
    assert rebuilt == state
    assert sum(state.component_tokens.values()) == state.tokens == sum(state.cost(seq) for seq in state.messages)


@given(scripts, st.data())
def test_restored_messages_leave_no_trace_of_their_eviction(script, data):
    state, untouched = state_from(script), state_from(script)
    gone = data.draw(st.sets(st.sampled_from(sorted(state.messages) or [0])))
    lines = [untouched.messages[seq] for seq in gone if seq in untouched.messages]
    state.evict(gone)
    assert state.tokens == untouched.tokens - sum(line.tokens for line in lines)
    state.restore(lines)
    assert list(state.messages.items()) == list(untouched.messages.items())
    assert (state.evicted_messages, state.evicted_tokens) == (0, 0)


@given(st.sets(st.integers(1, 200)))
def test_ranges_round_trip(seqs):
    assert seqs_in(ranges_of(sorted(seqs))) == sorted(seqs)


def test_a_floor_below_zero_is_refused():
    with pytest.raises(ValueError, match="below zero"):
        Protection(min_recent_messages=-1)
    assert LONG_EXCHANGE > 1
