"""Budgets: every component has limits, all of them fit the window, and the output has its reserve."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.context.window.budget import COMPONENTS, MIN_RESERVE, PROFILES, Budget, BudgetShares, Burn
from recto.tokens.model_card import ModelCard

windows = st.integers(1, 10_000_000)
profiles = st.sampled_from(sorted(PROFILES))
components = st.sampled_from(COMPONENTS)
tokens = st.integers(0, 2_000_000)


@st.composite
def cards(draw):
    window = draw(windows)
    most_in = draw(st.integers(1, window))
    return ModelCard(name="m", window=window, max_input=most_in, max_output=draw(st.integers(1, 200_000)))


overrides = st.dictionaries(components, st.integers(0, 20).map(lambda percent: percent / 100), max_size=4)


@given(cards(), profiles, st.none() | tokens)
@pytest.mark.requirement("budget.components")
def test_limits_never_sum_over_the_window(card, profile, reserve):
    budget = Budget.for_model(card, profile, reserve=reserve)
    hard = {name: limit.hard for name, limit in budget.limits.items()}
    assert sum(hard.values()) <= card.window
    assert sum(hard.values()) - hard["reserve"] <= budget.input_budget <= card.max_input
    assert budget.input_budget + budget.reserve <= card.window
    assert all(0 <= limit.soft <= limit.hard for limit in budget.limits.values())


@given(windows, profiles, overrides)
def test_limits_with_other_shares_never_sum_over_the_window_either(window, profile, shares):
    budget = Budget.of(window, profile=profile, shares=shares)
    assert sum(limit.hard for limit in budget.limits.values()) <= window
    assert all(PROFILES[profile].with_shares(shares)[name] == share for name, share in shares.items())


@pytest.mark.requirement("budget.components")
def test_the_default_limits_are_the_shares_of_the_window():
    budget = Budget.of(200_000)
    assert {name: limit.hard for name, limit in budget.limits.items()} == {
        "system": 12_000,
        "tools": 8_000,
        "history": 130_000,
        "results": 24_000,
        "memory": 16_000,
        "reserve": 10_000,
    }
    assert budget.limits["history"].soft == 104_000
    assert (budget.input_budget, budget.reserve) == (190_000, 10_000)


@given(cards(), profiles, st.none() | tokens)
@pytest.mark.requirement("window.reserve")
def test_the_reserve_is_between_the_minimum_and_the_output_limit_of_the_model(card, profile, reserve):
    reserved = Budget.for_model(card, profile, reserve=reserve).reserve
    assert reserved <= card.max_output
    assert reserved >= min(MIN_RESERVE, card.window // 4, card.max_output)
    if reserve is None:
        assert reserved <= max(1, card.window // 4)


def test_a_tiny_window_keeps_a_quarter_for_the_answer():
    assert Budget.of(8192).reserve == 2048
    assert Budget.of(8192, 500).reserve == 500
    assert Budget.of(32_768).reserve == MIN_RESERVE


def test_a_larger_reserve_is_taken_from_the_other_components_in_proportion():
    budget = Budget.of(100_000, reserve=52_500)
    assert budget.reserve == 52_500
    assert budget.limits["history"].hard == 32_500
    assert budget.limits["system"].hard == 3_000


def test_an_unused_part_of_the_reserve_goes_to_the_other_components():
    assert Budget.of(1_000_000, 12_000).limits["history"].hard == int(988_000 * 65 / 95)


def test_a_reserve_of_the_whole_window_leaves_no_input_budget():
    budget = Budget.of(10_000, reserve=20_000)
    assert (budget.input_budget, budget.limits["history"].hard, budget.check("history", 1).level) == (0, 0, "violation")


def test_the_input_budget_never_exceeds_the_input_limit_of_the_model():
    card = ModelCard(name="m", window=400_000, max_input=272_000, max_output=128_000)
    budget = Budget.for_model(card)
    assert budget.input_budget == card.input_budget(budget.reserve) == 272_000
    assert sum(budget.limits[name].hard for name in COMPONENTS if name != "reserve") <= 272_000


def test_every_profile_leaves_something_for_every_component():
    assert list(PROFILES) == ["default", "code_review", "research", "customer_support"]
    assert all(shares[name] > 0 for shares in PROFILES.values() for name in COMPONENTS)


@pytest.mark.requirement("budget.shares")
def test_each_profile_favours_what_its_work_needs():
    default = PROFILES["default"]
    assert PROFILES["code_review"].results > default.results
    assert PROFILES["research"].results > default.results
    assert PROFILES["research"].memory > default.memory
    assert PROFILES["customer_support"].system > default.system
    assert PROFILES["customer_support"].history > default.history
    assert Budget.of(100_000, profile="research").limits["memory"].hard == 15_000


def test_an_unknown_profile_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="customer_support"):
        Budget.of(100_000, profile="reserch")


def test_shares_that_do_not_add_up_are_refused():
    with pytest.raises(ValueError, match="add up to 1"):
        BudgetShares(history=0.66)
    with pytest.raises(ValueError, match="at least 0"):
        BudgetShares(history=0.75, memory=-0.02)
    with pytest.raises(ValueError, match="reserve"):
        BudgetShares(system=0, tools=0, history=0, results=0, memory=0, reserve=1)


def test_configured_shares_are_used_and_the_others_keep_their_proportions():
    shares = BudgetShares().with_shares({"history": 0.30})
    assert shares.history == 0.30
    assert shares.results / shares.tools == pytest.approx(3)
    assert BudgetShares().with_shares({}) == BudgetShares()
    research = PROFILES["research"]
    assert BudgetShares().with_shares({name: research[name] for name in COMPONENTS}) == research


def test_invalid_shares_are_refused():
    with pytest.raises(ValueError, match=r"more than 1, and these are 1\.1000"):
        Budget.of(100_000, shares={"history": 0.8, "results": 0.3})
    with pytest.raises(ValueError, match="no component"):
        Budget.of(100_000, shares={"histroy": 0.8})
    with pytest.raises(ValueError, match="add up to 1"):
        Budget.of(100_000, shares=dict.fromkeys(COMPONENTS, 0.1))


@given(windows, profiles, components, tokens, tokens)
def test_a_check_never_says_ok_over_the_hard_limit(window, profile, component, used, adding):
    verdict = Budget.of(window, profile=profile).check(component, used, adding)
    total = used + adding
    assert (verdict.level == "violation") == (total > verdict.hard)
    assert (verdict.level == "ok") == (total <= verdict.soft)
    assert verdict.over == max(0, total - verdict.hard)


@pytest.mark.requirement("budget.check")
def test_a_check_looks_ahead():
    budget = Budget.of(200_000)
    assert budget.check("results", 19_000).level == "ok"
    assert budget.check("results", 19_000, 201).level == "warning"
    assert budget.check("results", 19_000, 5_001).level == "violation"


def test_a_component_over_its_limit_is_refused_only_if_enforced_per_component():
    for enforced, refused in (("globally", False), ("per_component", True)):
        budget = Budget.of(200_000, enforced=enforced)
        assert budget.refuses(budget.check("results", 24_000, 1)) is refused
        assert not budget.refuses(budget.check("results", 24_000))


@pytest.mark.requirement("budget.burn")
def test_burn_is_the_mean_growth_of_each_component():
    burn = reduce(Burn.turn, [{"history": 1000, "tools": 500}, {"history": 3000, "tools": 500}], Burn())
    rows = {row.component: row for row in Budget.of(200_000).usage({"history": 4000, "tools": 500}, burn)}
    assert list(rows) == list(COMPONENTS)
    assert (rows["history"].burn, rows["history"].turns_left) == (2000, 63)
    assert (rows["tools"].burn, rows["tools"].turns_left) == (0, None)
    assert (rows["memory"].used, rows["memory"].level) == (0, "ok")


def test_only_the_last_turns_count_as_burn():
    sizes = [0, 90_000, *range(90_100, 90_600, 100)]
    burn = reduce(Burn.turn, [{"history": size} for size in sizes], Burn())
    assert burn["history"].pace == 100


def test_a_component_at_its_limit_has_no_turns_left():
    rows = {row.component: row for row in Budget.of(200_000).usage({"results": 24_000, "memory": 16_001})}
    assert (rows["results"].turns_left, rows["results"].level) == (0, "warning")
    assert (rows["memory"].turns_left, rows["memory"].level) == (0, "violation")


def test_a_decision_that_reduces_a_component_does_not_lower_its_burn():
    burn = reduce(Burn.turn, [{"results": 1000}, {"results": 3000}], Burn())
    after = burn.relieved("results", 500, before=5000)
    assert Budget.of(200_000).usage({"results": 500}, after)[3].burn == 2000
    assert after.turn({"results": 500})["results"].gains == (2000, 2000)
    assert after["history"] == burn["history"]


@given(st.lists(st.dictionaries(components, tokens), max_size=10), st.dictionaries(components, tokens), windows)
def test_burn_is_never_negative_and_the_limit_is_reached_after_the_turns_left(turns, used, window):
    burn = reduce(Burn.turn, turns, Burn())
    for row in Budget.of(window).usage(used, burn):
        assert row.burn >= 0
        if row.turns_left is None:
            assert row.burn == 0
        else:
            assert row.used + row.turns_left * row.burn >= row.hard - 1e-3
            assert row.turns_left > 0 or row.used >= row.hard


@pytest.mark.requirement("budget.burn")
def test_only_growing_components_burn_and_the_reserve_never_warns():
    budget, burn = Budget.of(100_000), Burn()
    used = {"system": 1_000, "tools": 3_000, "history": 10_000, "results": 4_000, "reserve": 5_000}
    for turn in range(1, 4):
        burn = burn.turn({name: tokens * turn for name, tokens in used.items()})
    now = {name: tokens * 3 for name, tokens in used.items()} | {"reserve": budget.reserve}
    usage = {row.component: row for row in budget.usage(now, burn)}
    assert usage["history"].burn == 10_000
    assert usage["history"].turns_left is not None
    for name in ("system", "tools", "reserve"):
        assert usage[name].burn == 0.0
        assert usage[name].turns_left == (0 if usage[name].used >= usage[name].hard else None)
    assert usage["reserve"].level == "ok"


def test_the_soft_limit_can_be_set():
    assert Budget.of(100_000, soft=0.5).limits["history"].soft == Budget.of(100_000).limits["history"].hard // 2
