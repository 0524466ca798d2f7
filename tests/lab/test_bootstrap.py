"""What some sessions tell about others: who is held out, and how sure a gain is."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.lab.bootstrap import MIN_SESSIONS, _student, held_out, ratio_interval, shuffled

KEYS = st.lists(st.text(max_size=8), max_size=60)


@given(keys=KEYS, share=st.floats(0.1, 0.9), seed=st.integers())
def test_who_is_held_out_depends_on_the_sessions_and_the_seed_alone(keys, share, seed):
    aside = held_out(keys, share, seed)
    assert aside <= set(keys)
    assert held_out([*reversed(keys), *keys], share, seed) == aside
    others = set(keys) - aside
    if len(set(keys)) >= 2 * MIN_SESSIONS:
        assert len(aside) >= MIN_SESSIONS <= len(others)
        assert abs(len(aside) - share * len(set(keys))) <= max(0.5, MIN_SESSIONS)
    assert sorted(shuffled(keys, seed)) == sorted(set(keys))


def test_another_seed_holds_out_others():
    keys = [str(number) for number in range(40)]
    assert len({held_out(keys, 0.3, seed) for seed in range(20)}) == 20
    assert {len(held_out(keys, 0.3, seed)) for seed in range(20)} == {12}


def noise(seed: int, sessions: int, effect: float = 0.0) -> tuple[list[float], list[float]]:
    """Differences of missed needs and turns, as sessions have them: uneven in length, many without any difference."""
    rng = random.Random(f"{seed} {sessions}")
    turns = [float(round(rng.lognormvariate(4, 1))) + 1 for _ in range(sessions)]
    return [round((effect + rng.gauss(0, 0.05)) * one) * (rng.random() < 0.8) for one in turns], turns


@pytest.mark.parametrize("sessions", [MIN_SESSIONS, 13, 40])
def test_no_effect_is_taken_for_a_gain_in_less_than_five_of_a_hundred(sessions):
    found = [ratio_interval(*noise(seed, sessions), seed=seed, resamples=2_000) for seed in range(200)]
    assert sum(one.above_zero for one in found) <= 10
    assert sum(one.below_zero for one in found) <= 10


@pytest.mark.parametrize("sessions", [13, 40])
def test_a_planted_effect_is_seen(sessions):
    found = [ratio_interval(*noise(seed, sessions, 0.1), seed=seed, resamples=2_000) for seed in range(100)]
    assert sum(one.above_zero for one in found) >= 90
    assert not any(one.below_zero for one in found)


@pytest.mark.parametrize("sessions", [MIN_SESSIONS, 15])
def test_the_interval_holds_the_truth_about_as_often_as_it_says(sessions):
    rng = random.Random(f"truth {sessions}")
    held = 0
    for seed in range(600):
        values = [rng.gauss(3, 1) for _ in range(sessions)]
        one = ratio_interval(values, [1.0] * sessions, seed=seed, resamples=1_000)
        held += one.low <= 3 <= one.high
    assert 0.918 <= held / 600 <= 0.978  # three standard deviations of the count on either side


def test_what_is_the_same_everywhere_is_certain():
    one = ratio_interval([2.0, 4.0, 6.0], [10.0, 20.0, 30.0], seed=0)
    assert (one.value, one.low, one.high) == pytest.approx((0.2, 0.2, 0.2))
    none = ratio_interval([0.0] * 8, [5.0] * 8, seed=0)
    assert (none.value, none.low, none.high, none.above_zero, none.below_zero) == (0, 0, 0, False, False)


def test_one_session_and_none_tell_nothing():
    assert not ratio_interval([3.0], [1.0], seed=0).above_zero
    assert not ratio_interval([], [], seed=0).above_zero
    assert ratio_interval([1.0, 1.0], [0.0, 0.0], seed=0).value == 0


def test_the_same_seed_draws_the_same_on_every_machine():
    one = ratio_interval([1.0, 5.0, 2.0, 8.0, -3.0, 0.5], [9.0, 8.0, 7.0, 6.0, 5.0, 4.0], seed=7)
    assert (one.low, one.high) == pytest.approx((-0.2906765075651443, 0.9857142857142858), abs=1e-9)
    parts = [float(number % 7 - 3) for number in range(3_000)]
    assert ratio_interval(parts, [1.0] * 3_000, seed=1, resamples=700).value == pytest.approx(sum(parts) / 3_000)


def test_students_quantiles_are_those_of_the_tables():
    known = {7: 2.365, 11: 2.201, 30: 2.042}
    assert {freedom: _student(0.975, freedom) for freedom in known} == pytest.approx(known, abs=0.005)
