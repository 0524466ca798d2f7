"""Statistics over sessions: the held-out split and the confidence interval of a gain."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.lab.bootstrap import MIN_SESSIONS, _student, held_out, ratio_interval, shuffled

KEYS = st.lists(st.text(max_size=8), max_size=60)


@given(keys=KEYS, share=st.floats(0.1, 0.9), seed=st.integers())
def test_the_held_out_sessions_depend_only_on_the_sessions_and_the_seed(keys, share, seed):
    aside = held_out(keys, share, seed)
    assert aside <= set(keys)
    assert held_out([*reversed(keys), *keys], share, seed) == aside
    others = set(keys) - aside
    if len(set(keys)) >= 2 * MIN_SESSIONS:
        assert len(aside) >= MIN_SESSIONS <= len(others)
        assert abs(len(aside) - share * len(set(keys))) <= max(0.5, MIN_SESSIONS)
    assert sorted(shuffled(keys, seed)) == sorted(set(keys))


def test_another_seed_holds_out_other_sessions():
    keys = [str(number) for number in range(40)]
    assert len({held_out(keys, 0.3, seed) for seed in range(20)}) == 20
    assert {len(held_out(keys, 0.3, seed)) for seed in range(20)} == {12}


def noise(seed: int, sessions: int, effect: float = 0.0) -> tuple[list[float], list[float]]:
    """Returns realistic differences of missed needs, and turns: uneven in length, many with no difference."""
    rng = random.Random(f"{seed} {sessions}")
    turns = [float(round(rng.lognormvariate(4, 1))) + 1 for _ in range(sessions)]
    return [round((effect + rng.gauss(0, 0.05)) * count) * (rng.random() < 0.8) for count in turns], turns


@pytest.mark.parametrize("sessions", [MIN_SESSIONS, 13, 40])
def test_fewer_than_five_percent_of_null_effects_count_as_a_gain(sessions):
    found = [ratio_interval(*noise(seed, sessions), seed=seed, resamples=2_000) for seed in range(200)]
    assert sum(interval.above_zero for interval in found) <= 10
    assert sum(interval.below_zero for interval in found) <= 10


@pytest.mark.parametrize("sessions", [13, 40])
def test_a_planted_effect_is_detected(sessions):
    found = [ratio_interval(*noise(seed, sessions, 0.1), seed=seed, resamples=2_000) for seed in range(100)]
    assert sum(interval.above_zero for interval in found) >= 90
    assert not any(interval.below_zero for interval in found)


@pytest.mark.parametrize("sessions", [MIN_SESSIONS, 15])
def test_the_interval_has_about_its_nominal_coverage(sessions):
    rng = random.Random(f"truth {sessions}")
    covered = 0
    for seed in range(600):
        values = [rng.gauss(3, 1) for _ in range(sessions)]
        interval = ratio_interval(values, [1.0] * sessions, seed=seed, resamples=1_000)
        covered += interval.low <= 3 <= interval.high
    assert 0.918 <= covered / 600 <= 0.978  # three standard deviations of the count on either side


def test_a_constant_ratio_has_an_interval_of_zero_width():
    interval = ratio_interval([2.0, 4.0, 6.0], [10.0, 20.0, 30.0], seed=0)
    assert (interval.value, interval.low, interval.high) == pytest.approx((0.2, 0.2, 0.2))
    none = ratio_interval([0.0] * 8, [5.0] * 8, seed=0)
    assert (none.value, none.low, none.high, none.above_zero, none.below_zero) == (0, 0, 0, False, False)


def test_fewer_than_two_sessions_give_no_interval():
    assert not ratio_interval([3.0], [1.0], seed=0).above_zero
    assert not ratio_interval([], [], seed=0).above_zero
    assert ratio_interval([1.0, 1.0], [0.0, 0.0], seed=0).value == 0


def test_the_same_seed_draws_the_same_on_every_machine():
    interval = ratio_interval([1.0, 5.0, 2.0, 8.0, -3.0, 0.5], [9.0, 8.0, 7.0, 6.0, 5.0, 4.0], seed=7)
    assert (interval.low, interval.high) == pytest.approx((-0.2906765075651443, 0.9857142857142858), abs=1e-9)
    parts = [float(number % 7 - 3) for number in range(3_000)]
    assert ratio_interval(parts, [1.0] * 3_000, seed=1, resamples=700).value == pytest.approx(sum(parts) / 3_000)


def test_students_quantiles_match_the_tables():
    known = {7: 2.365, 11: 2.201, 30: 2.042}
    assert {freedom: _student(0.975, freedom) for freedom in known} == pytest.approx(known, abs=0.005)
