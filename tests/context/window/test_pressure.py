"""Pressure: how full the prompt is, how fast it grows and when it is full; relief is never counted as growth."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from recto.context.window.budget import (
    MAX_DISCREPANCY,
    MIN_SPIKE_TOKENS,
    SPIKE_FACTOR,
    VELOCITY_TURNS,
    Pressure,
    PromptSize,
    Thresholds,
    VelocitySpike,
    ZoneChanged,
    compare_readings,
    corrected_budget,
    measure_prompt,
    turns_until,
)

ZONES = ["green", "yellow", "orange", "red"]

rooms = st.integers(0, 2_000_000)
sizes = st.integers(0, 2_000_000)
histories = st.lists(sizes, max_size=12)


def after(*ends: int, room: int = 100_000) -> Pressure:
    return reduce(Pressure.turn, ends, Pressure(input_budget=room))


@pytest.mark.parametrize(
    ("tokens", "zone"),
    [(0, "green"), (499, "green"), (500, "yellow"), (749, "yellow"), (750, "orange"), (899, "orange"), (900, "red")],
)
@pytest.mark.requirement("pressure.zones")
def test_a_zone_begins_at_its_threshold(tokens, zone):
    assert Pressure(input_budget=1000).read(tokens).zone == zone


def test_a_prompt_over_its_input_budget_is_red():
    reading = Pressure(input_budget=1000).read(5000)
    assert (reading.zone, reading.utilization, reading.turns_until_red) == ("red", 5.0, 0)


def test_without_an_input_budget_everything_is_red():
    assert [Pressure(input_budget=0).read(tokens).zone for tokens in (0, 1, 1000)] == ["red"] * 3
    with pytest.raises(ValueError, match="room"):
        Pressure(input_budget=-1)


@pytest.mark.parametrize(
    ("yellow", "orange", "red"),
    [
        (0.8, 0.75, 0.9),
        (0.5, 0.95, 0.9),
        (0.5, 0.75, 1.1),
        (0.0, 0.5, 0.9),
        (0.5, 0.5, 0.9),
        (0.5, 0.9, 0.9),
        (float("nan"), 0.5, 0.9),
    ],
)
def test_thresholds_that_do_not_ascend_are_refused(yellow, orange, red):
    with pytest.raises(ValueError, match="ascend"):
        Thresholds(yellow=yellow, orange=orange, red=red)


@pytest.mark.requirement("pressure.zones")
def test_small_windows_warn_earlier_and_large_ones_later_but_red_stays_tight():
    small, tight, middle, large = (Thresholds.for_window(window) for window in (16_384, 32_768, 128_000, 200_000))
    assert middle == Thresholds() == Thresholds(yellow=0.50, orange=0.75, red=0.90)
    assert small.yellow < tight.yellow < middle.yellow < large.yellow
    assert small.orange < tight.orange < middle.orange < large.orange
    assert small.red < tight.red < middle.red == large.red
    assert Thresholds.for_window(16_385) == Thresholds.for_window(32_000) == tight
    assert Thresholds.for_window(32_769) == Thresholds.for_window(199_999) == middle


@given(st.integers(1, 10_000_000))
def test_red_is_never_looser_than_the_default(window):
    assert Thresholds.for_window(window).red <= Thresholds().red


@given(rooms, sizes, sizes, histories)
def test_more_tokens_never_give_a_milder_zone(room, first, second, ends):
    low, high = sorted((first, second))
    pressure = after(*ends, room=room)
    assert ZONES.index(pressure.read(low).zone) <= ZONES.index(pressure.read(high).zone)


@given(rooms, histories, sizes)
def test_velocity_is_never_negative(room, ends, now):
    reading = after(*ends, room=room).read(now)
    assert reading.velocity >= 0
    assert reading.turn == len(ends)


@pytest.mark.requirement("pressure.velocity")
def test_velocity_is_the_mean_gain_of_the_last_turns():
    assert after(10_000, 11_000, 13_000).read(13_000).velocity == 1500
    assert VELOCITY_TURNS == 5
    long_ago = after(0, 50_000, *range(50_100, 50_100 + 100 * VELOCITY_TURNS, 100))
    assert long_ago.read(50_000 + 100 * VELOCITY_TURNS).velocity == 100


def test_the_first_prompt_is_not_growth():
    reading = after(30_000).read(30_000)
    assert (reading.velocity, reading.turns_until_red, reading.gain) == (0, None, 0)


def test_nothing_is_growth_before_the_first_turn_ends():
    assert Pressure(input_budget=100_000).read(30_000).velocity == 0


def test_a_large_gain_raises_velocity_at_once_and_a_small_one_does_not_lower_it():
    pressure = after(10_000, 11_000, 12_000)
    assert pressure.read(12_100).velocity == 1000
    assert pressure.read(16_000).velocity == 2000


def test_turns_until_red_use_the_current_velocity():
    pressure = after(10_000, 20_000, 30_000)
    assert pressure.read(30_000).turns_until_red == 6
    assert pressure.read(80_000).turns_until_red == 1
    assert pressure.read(90_000).turns_until_red == 0


def test_a_prompt_that_does_not_grow_has_no_turns_until_red():
    assert after(10_000, 10_000, 10_000).read(10_000).turns_until_red is None


@given(rooms, histories, sizes)
def test_red_begins_after_the_forecast_turns(room, ends, now):
    reading = after(*ends, room=room).read(now)
    red = Thresholds().red * room
    if reading.turns_until_red is None:
        assert reading.velocity == 0
    elif reading.turns_until_red == 0:
        assert reading.zone == "red"
    else:
        assert reading.zone != "red"
        assert now + reading.turns_until_red * reading.velocity >= red - 1e-3
        assert now + (reading.turns_until_red - 1) * reading.velocity < red


@given(rooms, st.lists(sizes, min_size=1, max_size=12), sizes, sizes)
def test_relief_changes_neither_gain_nor_velocity_nor_spike(room, ends, now, lower):
    assume(lower <= now)
    pressure = after(*ends, room=room)
    relieved = pressure.relieved(lower, before=now).read(lower)
    untouched = pressure.read(now)
    assert (relieved.gain, relieved.velocity, relieved.spike) == (untouched.gain, untouched.velocity, untouched.spike)


@given(histories, sizes, sizes)
def test_relief_from_an_unknown_size_never_invents_growth(ends, now, lower):
    assume(lower <= now)
    pressure = after(*ends)
    assert pressure.relieved(lower).read(lower).gain <= pressure.read(now).gain


def test_growth_after_a_prune_is_counted_from_the_pruned_size():
    pressure = after(86_000, 88_000, 90_000, 92_000)
    for relieved in (pressure.relieved(70_000), pressure.relieved(70_000, before=92_000)):
        reading = relieved.read(72_000)
        assert (reading.gain, reading.velocity, reading.spike) == (2000, 2000, False)
        assert relieved.turn(72_000).read(74_000).velocity == 2000


def test_an_unreported_drop_is_not_negative_growth_and_causes_no_later_spike():
    pressure = after(86_000, 88_000, 90_000, 92_000).turn(70_000)
    assert pressure.read(70_000).velocity == (2000 * 3 + 0) / 4
    assert pressure.read(72_000).velocity == (2000 * 3 + 0 + 2000) / 5
    assert not pressure.read(72_000).spike


def test_a_restored_decision_is_not_growth():
    assert after(50_000, 51_000).relieved(80_000, before=51_000).read(80_000).gain == 0


@pytest.mark.requirement("pressure.spike")
def test_a_spike_is_a_turn_that_gains_more_than_three_times_the_baseline():
    pressure = after(10_000, 12_000, 14_000, 16_000)
    assert not pressure.read(16_000 + 6000).spike
    reading = pressure.read(16_000 + 6001)
    assert (reading.spike, reading.baseline, reading.gain) == (True, 2000, 6001)


def test_without_three_known_turns_there_is_no_spike():
    reading = after(10_000, 10_100, 10_200).read(80_000)
    assert (reading.spike, reading.baseline) == (False, None)


def test_tiny_prompts_do_not_report_spikes():
    pressure = after(100, 150, 200, 250)
    assert not pressure.read(250 + 1024).spike
    assert pressure.read(250 + 1025).spike


@given(rooms, histories, sizes)
def test_a_spike_is_always_far_above_its_baseline(room, ends, now):
    reading = after(*ends, room=room).read(now)
    if reading.spike:
        assert reading.gain > max(MIN_SPIKE_TOKENS, SPIKE_FACTOR * reading.baseline)


def test_a_zone_change_is_reported_in_both_directions():
    pressure = Pressure(input_budget=1000)
    green, orange = pressure.read(100), pressure.read(800)
    assert compare_readings(green, orange) == (ZoneChanged(before="green", after="orange"),)
    assert compare_readings(orange, green) == (ZoneChanged(before="orange", after="green"),)
    assert compare_readings(orange, orange) == ()


def test_the_first_reading_is_a_change_only_if_it_is_not_green():
    pressure = Pressure(input_budget=1000)
    assert compare_readings(None, pressure.read(100)) == ()
    assert compare_readings(None, pressure.read(950)) == (ZoneChanged(before="green", after="red"),)


@pytest.mark.requirement("pressure.spike")
def test_a_spike_is_reported_once_per_turn():
    pressure = after(1000, 2000, 3000, 4000, room=1_000_000)
    calm, first, later = pressure.read(4000), pressure.read(9000), pressure.read(12_000)
    assert compare_readings(calm, first) == (VelocitySpike(gain=5000, baseline=1000.0),)
    assert compare_readings(first, later) == ()
    next_turn = pressure.turn(12_000).read(100_000)
    assert compare_readings(later, next_turn) == (VelocitySpike(gain=88_000, baseline=next_turn.baseline),)


@given(rooms, st.lists(sizes, min_size=2, max_size=12))
def test_following_the_changes_gives_the_zone_of_every_reading(room, sizes_seen):
    readings = [Pressure(input_budget=room).read(tokens) for tokens in sizes_seen]
    zone = "green"
    for was, now in pairwise((None, *readings)):
        for change in compare_readings(was, now):
            assert change.before == zone
            zone = change.after
        assert zone == now.zone


def test_without_a_provider_report_our_count_is_used():
    assert measure_prompt(1000, None) == PromptSize(1000, None)
    assert measure_prompt(1000, 0) == PromptSize(1000, None)
    assert measure_prompt(1000, 400, added=1000) == PromptSize(1000, None)


@pytest.mark.requirement("pressure.reported")
def test_a_provider_report_is_preferred_and_newer_tokens_are_added():
    assert measure_prompt(1200, 1050, added=200) == PromptSize(1250, None)
    assert measure_prompt(1200, 950, added=200, exact=False) == PromptSize(1150, None)


def test_the_size_is_never_below_an_exact_count():
    assert measure_prompt(1200, 950, added=200) == PromptSize(1200, None)


def test_a_discrepancy_over_a_tenth_is_reported():
    assert measure_prompt(1000, 1100).discrepancy is None
    assert measure_prompt(1000, 1101).discrepancy == pytest.approx(0.101)
    assert measure_prompt(1000, 899, exact=False) == PromptSize(899, pytest.approx(-0.101))


@pytest.mark.requirement("pressure.reported")
def test_an_implausible_provider_report_is_reported_and_not_used():
    assert measure_prompt(1000, 12, exact=False) == PromptSize(1000, pytest.approx(-0.988))
    assert measure_prompt(1000, 9000) == PromptSize(1000, pytest.approx(8.0))
    assert [measure_prompt(1000, reported, exact=False).tokens for reported in (249, 250, 4000, 4001)] == [
        1000,
        250,
        4000,
        1000,
    ]


@given(st.integers(0, 10**6), st.none() | st.integers(-5, 10**7), st.integers(0, 10**6))
def test_the_size_is_between_the_exact_count_and_the_larger_of_both(counted, reported, added):
    assume(added <= counted)
    tokens, off = measure_prompt(counted, reported, added=added)
    assert counted <= tokens <= max(counted, (reported or 0) + added)
    assert off is None or abs(off) > MAX_DISCREPANCY


def test_turns_are_rounded_up():
    assert [turns_until(10, 3), turns_until(9, 3), turns_until(0, 3), turns_until(5, 0), turns_until(0, 0)] == [
        4,
        3,
        0,
        None,
        0,
    ]


@pytest.mark.parametrize(
    ("counted", "reported", "budget"),
    [
        (0, 0, 10_000),
        (8_000, 8_000, 10_000),
        (8_000, 7_000, 10_000),
        (8_000, 10_000, 8_000),
        (100, 400, 9_700),
        (100, 500, 10_000),
        (10_000, 12_500, 8_000),
    ],
)
def test_the_input_budget_shrinks_if_the_provider_counts_more_than_we_do(counted, reported, budget):
    assert corrected_budget(10_000, counted, reported) == budget
