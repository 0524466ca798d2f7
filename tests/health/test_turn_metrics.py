"""Measures, alerts and trends: pure, bounded, and never a storm."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from recto.cli.main import COMMANDS
from recto.config import Settings
from recto.config.settings import AlertSettings
from recto.health.alerts import ALERT_KINDS, AlertRules, AlertTracker
from recto.health.metrics import (
    MAX_EVICTIONS,
    EvictionRecord,
    PromptComposition,
    TurnAccumulator,
    TurnHealth,
    call_fingerprint,
)
from recto.health.trends import MEASURES, compute_forecast, compute_trends, make_report

MADE = PromptComposition(
    tokens=500, room=1000, prefix=400, results=100, protected=250, recalled=0, tools=50, lag=3, model="gpt-4o"
)
MINUTE = 60_000_000


def gone(seq=10, turn=0, left=((3, 5),), calls=("aa",)):
    return EvictionRecord(seq=seq, turn=turn, ranges=tuple(left), calls=frozenset(calls))


def turn_of(number, **changes):
    usual = TurnAccumulator().end_turn(number * 10, number * 1_000_000, 20, MADE)
    return replace(usual, turn=number, bloat=0.1, **changes)


@pytest.mark.requirement("protect.pressure", "health.turn")
def test_a_turn_says_what_its_prompt_was_made_of():
    measures = TurnAccumulator()
    measures.add_message(120)
    turn = measures.end_turn(7, 99, 30, MADE)
    assert (turn.turn, turn.seq, turn.ts, turn.model) == (1, 7, 99, "gpt-4o")
    assert (turn.utilization, turn.bloat, turn.prefix, turn.protected) == (0.5, 0.1, 0.8, 0.25)
    assert (turn.burn, turn.burn_usual, turn.index_lag) == (120, None, 3)
    assert (turn.ratio, turn.fidelity, turn.estimate_error) == (None, None, None)


def test_what_happened_counts_for_the_next_answer_and_for_no_other():
    measures = TurnAccumulator()
    measures.add_decision(gone(left=((3, 5), (8, 8))), freed=900)
    measures.add_compression(800, 200)
    measures.add_compression(200, 50)
    measures.add_score(0.9)
    measures.add_score(0.7)
    measures.add_recall_miss()
    measures.add_usage(1000, 1100, 600, 40)
    first, second = (measures.end_turn(seq, seq, 10, MADE) for seq in (20, 30))
    assert (first.evicted, first.freed, first.ratio, first.fidelity) == (4, 900, 4.0, 0.7)
    assert (first.recall_misses, first.estimate_error, first.cache_read, first.cache_write) == (1, 0.1, 600, 40)
    assert (second.evicted, second.freed, second.ratio, second.fidelity) == (0, 0, None, None)
    assert (second.recall_misses, second.estimate_error, second.cache_read) == (0, None, 0)


def test_the_answer_of_a_turn_is_burnt_in_the_next_and_the_first_is_no_habit():
    measures = TurnAccumulator()
    measures.add_message(5000)
    measures.end_turn(1, 1, 70, MADE)
    burns, usual = [], []
    for seq in range(2, 8):
        measures.add_message(30)
        turn = measures.end_turn(seq, seq, 70, MADE)
        burns.append(turn.burn)
        usual.append(turn.burn_usual)
    assert burns == [100] * 6
    assert usual == [None, None, None, 100, 100, 100]


def regret_after(turns, act, regret_turns=10):
    measures = TurnAccumulator(regret_turns=regret_turns)
    measures.end_turn(9, 9, 1, MADE)
    measures.add_decision(gone(turn=measures.turn), freed=1)
    for seq in range(11, 11 + turns):
        measures.end_turn(seq, seq, 1, MADE)
    act(measures)
    return measures.end_turn(99, 99, 1, MADE).regret


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda measures: measures.add_recall([4, 5]), 2),
        (lambda measures: measures.add_recall([4, 4]), 1),
        (lambda measures: measures.add_recall([6]), 0),
        (lambda measures: measures.add_fetch([3]), 1),
        (lambda measures: measures.add_restore(10), 1),
        (lambda measures: measures.add_restore(11), 0),
        (lambda measures: measures.add_calls(["aa"]), 1),
        (lambda measures: measures.add_calls(["aa", "aa", "bb"]), 1),
    ],
)
def test_what_left_and_is_asked_for_again_is_regret(act, expected):
    assert regret_after(1, act) == expected


@pytest.mark.parametrize(("turns", "expected"), [(2, 1), (3, 0)])
def test_after_so_many_turns_nothing_is_regretted(turns, expected):
    assert regret_after(turns, lambda measures: measures.add_calls(["aa"]), regret_turns=2) == expected


def test_a_call_is_recognised_however_its_arguments_are_written():
    assert call_fingerprint("read", '{"a": 1, "b": 2}') == call_fingerprint("read", '{"b":2,"a":1}')
    assert call_fingerprint("read", '{"a": 1}') != call_fingerprint("write", '{"a": 1}')
    assert call_fingerprint("read", "not json") != call_fingerprint("read", "nor this")


actions = st.one_of(
    st.tuples(st.just("add_message"), st.integers(0, 9000)),
    st.tuples(st.just("add_calls"), st.lists(st.sampled_from(["aa", "bb", "cc"]), max_size=3)),
    st.tuples(st.just("add_recall"), st.lists(st.integers(1, 60), max_size=3)),
    st.tuples(st.just("add_restore"), st.integers(1, 60)),
    st.tuples(st.just("add_decision"), st.lists(st.sampled_from(["aa", "bb", "cc"]), max_size=2)),
    st.tuples(st.just("end_turn"), st.integers(0, 500)),
)


def act_out(measures, seq, action):
    name, about = action
    if name == "end_turn":
        return measures.end_turn(seq, seq, about, MADE)
    if name == "add_decision":
        measures.add_decision(gone(seq, measures.turn, ((max(seq - 9, 1), max(seq - 5, 1)),), about), 10)
    else:
        getattr(measures, name)(about)
    return None


@given(st.lists(actions, min_size=5, max_size=60), st.integers(0, 60))
def test_whoever_goes_on_from_a_carried_state_measures_the_same(happened, at):
    whole, decisions = TurnAccumulator(regret_turns=3), {}
    carried, start, expected, found = None, 0, [], []
    for seq, action in enumerate(happened, 1):
        if action[0] == "add_decision":
            decisions[seq] = gone(seq, whole.turn, ((max(seq - 9, 1), max(seq - 5, 1)),), action[1])
        if seq > at and carried is None and whole.last:
            carried, start = json.loads(json.dumps(whole.to_state())), whole.last
        expected.append(act_out(whole, seq, action))
    if carried is not None:
        other = TurnAccumulator(regret_turns=3)
        other.load_state(carried, [replace(decisions[seq], turn=turn) for seq, turn in carried["gone"]])
        found = [act_out(other, seq, action) for seq, action in enumerate(happened, 1) if seq > start]
        assert found == expected[start:]


def test_what_was_asked_for_again_before_a_state_was_carried_counts_no_second_time():
    first, second = TurnAccumulator(), TurnAccumulator()
    first.add_decision(gone(), freed=1)
    first.add_calls(["aa"])
    assert first.end_turn(11, 11, 1, MADE).regret == 1
    second.load_state(first.to_state(), [gone()])
    for measures in (first, second):
        measures.add_calls(["aa"])
        assert measures.end_turn(12, 12, 1, MADE).regret == 0


@settings(max_examples=10)
@given(st.lists(actions, max_size=200))
def test_memory_is_bounded_whatever_happens(happened):
    measures = TurnAccumulator()
    for seq in range(150):
        measures.add_decision(gone(seq), 1)
        measures.add_fetch([seq])
    for seq, action in enumerate(happened, 150):
        act_out(measures, seq, action)
    assert len(measures.evictions) <= MAX_EVICTIONS
    assert len(measures.requested_again) <= MAX_EVICTIONS


@given(st.dictionaries(st.text(max_size=9), st.none() | st.integers() | st.text(max_size=3)) | st.none() | st.text())
def test_numbers_of_others_under_the_same_name_are_no_turn(about):
    assert PromptComposition.from_json(about) is None
    assert PromptComposition.from_json({**MADE.to_json(), "tokens": -1}) is None
    assert PromptComposition.from_json({**MADE.to_json(), "lag": True}) is None
    assert PromptComposition.from_json({**MADE.to_json(), "more": 1}) == MADE


RAISES = {
    "utilization": [{"utilization": 0.95}] * 3,
    "evictions": [{"evicted": 6}] * 5,
    "fidelity": [{"fidelity": 0.7}],
    "ratio": [{"ratio": 1.5}],
    "bloat": [{"bloat": 0.31}],
    "loop": [{"loop": 4}],
    "burn": [{"burn": 3100, "burn_usual": 1000.0}],
}
ENDS = {
    "utilization": {"utilization": 0.8},
    "evictions": {"evicted": 0},
    "fidelity": {"fidelity": 0.9},
    "ratio": {"ratio": 3.0},
    "bloat": {"bloat": 0.2},
    "loop": {"loop": 1},
    "burn": {"burn": 900, "burn_usual": 1400.0},
}
KEEPS = {
    "utilization": {"utilization": 0.85},
    "evictions": {"evicted": 5},
    "fidelity": {"fidelity": 0.78},
    "ratio": {"ratio": 2.1},
    "bloat": {"bloat": 0.28},
    "loop": {"loop": 3},
    "burn": {"burn": 2900, "burn_usual": 1000.0},
}


def plain(number, **changes):
    return replace(turn_of(number), **changes)


@pytest.mark.parametrize("name", sorted(ALERT_KINDS))
@pytest.mark.requirement("health.alerts")
def test_each_alert_is_raised_once_kept_between_and_ended_once(name):
    alerting, told = AlertTracker("s"), []
    series = [*RAISES[name], RAISES[name][-1], KEEPS[name], {}, *[ENDS[name]] * 5]
    for number, changes in enumerate(series, 1):
        told += [(alert.name, alert.ended, number) for alert in alerting.update(plain(number, **changes))]
        if told and not told[-1][1]:
            assert [alert.name for alert in alerting.active] == [name]
    raised, ended = told
    assert raised == (name, False, len(RAISES[name]))
    assert ended[:2] == (name, True)
    assert ended[2] > len(RAISES[name]) + 2  # not while it was only just back
    assert alerting.active == ()


@pytest.mark.parametrize("name", sorted(ALERT_KINDS))
def test_each_alert_says_what_is_the_matter_and_names_what_exists_to_do_about_it(name):
    alerting = AlertTracker("s")
    found = [alert for number, one in enumerate(RAISES[name]) for alert in alerting.update(plain(number, **one))]
    (alert,) = found
    assert any(char.isdigit() for char in alert.says)
    assert alert.threshold == getattr(AlertRules(), name)
    named = [word.strip("(),.:;") for word in alert.action.split() if "." in word.strip("(),.:;")]
    commands = [
        word.strip("(),.:;")
        for before, word in zip(alert.action.split(), alert.action.split()[1:], strict=False)
        if before.endswith("recto")
    ]
    assert named or commands
    assert all(command in COMMANDS for command in commands)
    for dotted in named:
        where = Settings() if not dotted.startswith("session.") else None
        for part in dotted.split(".") if where is not None else ():
            where = getattr(where, part)


def test_two_full_prompts_and_one_large_relief_alarm_nobody():
    alerting = AlertTracker("s")
    series = [{"utilization": 0.99}, {"utilization": 0.99}, {"utilization": 0.6, "evicted": 80}, {}, {}, {}, {}]
    assert [alerting.update(plain(number, **one)) for number, one in enumerate(series)] == [[]] * 7


def test_little_that_comes_in_is_never_a_burn_however_many_times_more_it_is():
    assert AlertTracker("s").update(plain(1, burn=1000, burn_usual=10.0)) == []


@pytest.mark.requirement("health.alerts")
def test_the_rules_are_those_of_the_settings():
    assert {one.name: one.default for one in msgspec.structs.fields(AlertRules)} == {
        one.name: one.default for one in dataclasses.fields(AlertSettings)
    }


values = st.builds(
    plain,
    st.integers(1, 9),
    utilization=st.floats(0, 1.1),
    evicted=st.integers(0, 20),
    bloat=st.floats(0, 1),
    loop=st.integers(0, 9),
    ratio=st.none() | st.floats(0.5, 5),
    fidelity=st.none() | st.floats(0, 1),
    burn=st.integers(0, 9000),
    burn_usual=st.none() | st.floats(1, 3000),
)


@given(st.lists(st.tuples(values, st.integers(0, 10 * MINUTE)), max_size=80))
def test_a_series_that_goes_to_and_fro_never_storms(series):
    alerting, told, now = AlertTracker("s"), [], 0
    for turn, later in series:
        now += later
        told += alerting.update(replace(turn, ts=now))
    for name in ALERT_KINDS:
        mine = [alert for alert in told if alert.name == name]
        assert [alert.ended for alert in mine] == [bool(place % 2) for place in range(len(mine))]
        raised = [alert.ts for alert in mine if not alert.ended]
        assert all(after - before >= 300 * 1_000_000 for before, after in pairwise(raised))


@given(st.lists(values, max_size=40), st.integers(0, 40))
def test_alerts_go_on_from_a_carried_state(series, at):
    whole, told = AlertTracker("s"), []
    other = None
    for place, turn in enumerate(series):
        if place == at:
            other = AlertTracker("s")
            other.load_state(json.loads(json.dumps(whole.to_state())))
        told = whole.update(replace(turn, ts=place * MINUTE))
        if other is not None:
            assert other.update(replace(turn, ts=place * MINUTE)) == told
            assert other.active == whole.active


def test_a_clock_that_is_set_back_does_not_silence_alerts_for_ever():
    alerting = AlertTracker("s")
    assert alerting.update(plain(1, bloat=0.9, ts=10**15))
    assert alerting.update(plain(2, bloat=0.1, ts=10**15))
    assert alerting.update(plain(3, bloat=0.9, ts=0))


@pytest.mark.requirement("health.trends")
def test_trends_tell_the_direction_and_whether_it_is_the_wrong_one():
    turns = [plain(number, utilization=0.1 * number, fidelity=1 - 0.1 * number) for number in range(1, 7)]
    found = {trend.name: trend for trend in compute_trends(turns)}
    assert set(found) == set(MEASURES) <= set(TurnHealth.__struct_fields__)
    assert (found["utilization"].direction, found["utilization"].worse) == ("rising", True)
    assert found["utilization"].delta == pytest.approx(0.3)
    assert (found["fidelity"].direction, found["fidelity"].worse) == ("falling", True)
    assert (found["bloat"].direction, found["bloat"].worse, found["bloat"].now) == ("steady", False, 0.1)
    assert (found["ratio"].now, found["ratio"].delta) == (None, None)


@pytest.mark.requirement("health.trends")
def test_the_forecast_counts_turns_until_red_and_until_full():
    turns = [plain(number, tokens=5000 + 100 * number, room=10_000, burn=100) for number in range(1, 6)]
    forecast = compute_forecast(turns, red=0.9)
    assert (forecast.pace, forecast.until_red, forecast.until_full) == (100, 35, 45)
    assert compute_forecast([], red=0.9) is None
    assert compute_forecast([plain(2, burn=0)], red=0.9).until_red is None
    assert compute_forecast([plain(2, tokens=990, burn=5)], red=0.9).until_red == 0


def test_a_report_knows_whether_something_critical_is_the_matter():
    alerting = AlertTracker("s")
    (alert,) = alerting.update(plain(1, bloat=0.9))
    assert not make_report("s", [plain(1)], [alert], red=None).critical
    assert make_report("s", [plain(1)], [replace(alert, grade="critical")], red=None).critical
    assert make_report("s", [], [], red=None).last is None
