"""The tuning objective, and the order in which settings are tried."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recto.lab.backtest import Backtest
from recto.lab.objective import OBJECTIVES, Dimension, Goal, changed_values, cost_rise, single_changes

BASELINE = Backtest(
    turns=100,
    tokens=1_000_000,
    unchanged=700_000,
    picodollars=2_000_000_000_000,
    fetched_again=20,
    fetched_met=5,
    referred=20,
    referred_met=15,
    entities_used=400,
    entities_there=300,
)
POLICY = Dimension(name="policy", current="prune", options=("prune", "lru", "hybrid"))
FLOOR = Dimension(name="floor", current=70.0, low=40, high=90, step=1)
RECENT = Dimension(name="recent", current=24, low=4, high=48, step=1)
SHARED = Dimension(name="shared", current=2, low=1, high=4, step=1, only_with=("policy", "lru"))
FIRST = Dimension(name="first", current=0.4, low=0, high=1, step=0.05, only_with=("policy", "hybrid"))
SECOND = Dimension(name="second", current=0.6, low=0, high=1, step=0.05, only_with=("policy", "hybrid"))
SPACE = (FLOOR, RECENT, POLICY, SHARED, FIRST, SECOND)


def test_each_objective_is_a_rate_that_should_fall():
    rates = {name: Goal(objective=name).rate([BASELINE, BASELINE]) for name in OBJECTIVES}
    assert rates == {"missed": 0.2, "regret": 0.4, "lost": 0.25, "tokens": 10_000, "dollars": 0.02}


def test_an_improvement_within_the_cost_allowance_wins_and_beyond_it_is_rejected():
    goal = Goal(allowance=0.05)
    fewer = replace(BASELINE, referred_met=18)
    assert goal.score([BASELINE], [BASELINE]) == 1
    assert goal.score([BASELINE], [fewer]) == pytest.approx(17 / 20)
    within, beyond = (replace(fewer, picodollars=int(BASELINE.picodollars * rise)) for rise in (1.049, 1.2))
    assert goal.score([BASELINE], [within]) < 1
    assert goal.score([BASELINE], [beyond]) == pytest.approx(1.15)
    assert cost_rise([BASELINE], [beyond]) == pytest.approx(0.2)


def test_without_prices_uncached_tokens_are_limited_too():
    goal = Goal()
    plain = replace(BASELINE, picodollars=None)
    assert goal.excess([plain], [replace(plain, unchanged=600_000)]) == pytest.approx(1 / 3 - 0.05)
    assert goal.excess([plain], [replace(plain, tokens=1_100_000, unchanged=800_000)]) == pytest.approx(0.05)


def test_a_cheaper_candidate_must_not_miss_more():
    goal = Goal(objective="dollars", allowance=0.1)
    half = replace(BASELINE, picodollars=1_000_000_000_000)
    assert goal.score([BASELINE], [half]) == pytest.approx(0.5)
    assert goal.score([BASELINE], [replace(half, referred_met=0)]) > 1


@pytest.mark.parametrize("name", ["over", "refused"])
def test_a_candidate_with_more_overflows_or_refusals_is_rejected(name):
    better = replace(BASELINE, referred_met=20)
    assert Goal().score([BASELINE], [replace(better, **{name: 1})]) > 1


def test_each_setting_is_first_tried_by_itself():
    tried = single_changes(SPACE)
    usual = {"floor": 70.0, "recent": 24, "policy": "prune"}
    assert tried[:3] == [usual | {"floor": 80.0}, usual | {"recent": 36}, usual | {"policy": "lru", "shared": 2}]
    assert tried[3:] == [
        usual | {"floor": 55.0},
        usual | {"recent": 14},
        usual | {"policy": "hybrid", "first": 0.4, "second": 0.6},
    ]


def test_only_changed_settings_are_reported_and_weights_are_reported_together():
    usual = {"floor": 70.0, "recent": 24, "policy": "prune"}
    assert changed_values(SPACE, usual) == {}
    assert changed_values(SPACE, usual | {"floor": 71.0}) == {"floor": 71.0}
    hybrid = usual | {"policy": "hybrid", "first": 0.4, "second": 0.6}
    assert changed_values(SPACE, hybrid) == {"policy": "hybrid", "first": 0.4, "second": 0.6}
    own = (replace(POLICY, current="hybrid"), FIRST, SECOND)
    assert changed_values(own, {"policy": "hybrid", "first": 0.4, "second": 0.1}) == {"first": 0.4, "second": 0.1}


def test_a_value_is_on_a_step_within_its_bounds_unless_it_is_the_current_value():
    odd = replace(FLOOR, current=70.3)
    assert [odd.nearest(value) for value in (70.3, 70.4, 12.0, 99.9)] == [70.3, 70.0, 40.0, 90.0]
    assert isinstance(RECENT.nearest(7.6), int)
