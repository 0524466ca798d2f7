"""Properties that hold for every policy and every view."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite

import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from tests.context.policies.policy_views import LEAVING, POLICIES, SHRINKING, freed_by, real_views, view_of, views

from recto.context.policies.eviction import Evict
from recto.context.policies.features import TOTAL
from recto.context.window.units import Plan, Policy, PolicyView, WindowMessage

NEEDS = st.integers(-5, 6_000)
each_policy = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
"""Generated views are shared by all policies instead: generating a view costs more than planning on it."""


def each(policies: Iterable[Policy]) -> Iterator[Policy]:
    """Yields the policies one after the other and notes each name for the report of a failing test."""
    for policy in policies:
        note(policy.name)
        yield policy


def check(plan: Plan, view: PolicyView, need: int) -> None:
    eligible = {seq for unit in view.eligible for seq in unit.seqs}
    touched = [seq for unit in plan.evicts for seq in unit.seqs] + [shrink.seq for shrink in plan.shortens]
    assert eligible.issuperset(touched)
    assert len(touched) == len(set(touched))
    assert all(unit in view.eligible for unit in plan.evicts)
    assert plan.frees == freed_by(plan, view)
    assert all(shrink.tokens < view.tokens[shrink.seq] for shrink in plan.shortens)
    assert bool(plan) == (plan.frees > 0) == bool(plan.reason)
    if need <= 0:
        assert not plan


@given(view=views(), need=NEEDS)
def test_a_plan_touches_only_eligible_units_and_frees_what_it_states(view, need):
    for policy in each(POLICIES):
        check(policy.plan(view, need), view, need)


@given(view=views(), need=NEEDS)
def test_a_plan_evicts_enough_or_everything_eligible_and_no_unit_too_many(view, need):
    for policy in each(LEAVING):
        plan = policy.plan(view, need)
        assert plan.frees >= min(need, sum(view.cost(unit) for unit in view.eligible))
        if plan.evicts:
            assert plan.frees - view.cost(plan.evicts[-1]) < need


@given(view=views(), need=NEEDS, more=st.integers(0, 3_000))
def test_a_larger_need_extends_the_plan_of_a_smaller_one(view, need, more):
    for policy in each(POLICIES):
        some, rest = policy.plan(view, need), policy.plan(view, need + more)
        assert rest.frees >= some.frees
        assert rest.evicts[: len(some.evicts)] == some.evicts
        assert rest.shortens[: len(some.shortens)] == some.shortens


@given(view=views(), need=NEEDS)
@pytest.mark.requirement("evict.deterministic")
def test_the_same_view_gives_the_same_plan(view, need):
    for policy in each(POLICIES):
        assert policy.plan(view, need) == policy.plan(view, need)


@given(view=views(), need=NEEDS)
def test_the_opening_of_a_long_exchange_is_evicted_after_its_answers(view, need):
    for policy in each(LEAVING):
        leaves = policy.plan(view, need).evicts
        for place, unit in enumerate(leaves):
            if unit.opens:
                others = [other for other in view.eligible if other.exchange == unit.exchange and other is not unit]
                assert all(other in leaves[:place] for other in others)


@given(view=views())
def test_every_scored_unit_has_a_finite_score(view):
    for policy in each(policy for policy in LEAVING if isinstance(policy, Evict)):
        plan = policy.plan(view, 1)
        assert plan.scores.keys() == {unit.first for unit in view.eligible}
        assert all(TOTAL in parts and all(map(isfinite, parts.values())) for parts in plan.scores.values())


@each_policy
@pytest.mark.parametrize("need", [-1, 0, 1, 10**12])
def test_unusual_views_do_not_fail(policy, need):
    nothing = PolicyView(eligible=(), protected=(), tokens={})
    free = [WindowMessage(seq=1, id="a", role="user", tokens=0)]
    late = [WindowMessage(seq=7, id="b", role="tool", tokens=900, answers=("gone",), tools=("",))]
    assert not policy.plan(nothing, need)
    assert not policy.plan(view_of(free, {1: ""}), need)
    check(policy.plan(view_of(late, {7: "\ud800\x00 " * 400}), need), view_of(late, {7: ""}), need)
    assert not policy.plan(view_of(late, {7: "x"}, stays=lambda unit: True), need)


@each_policy
def test_real_sessions_are_relieved_at_every_need(policy, data):
    for view in real_views(data, every=9):
        has = sum(view.cost(unit) for unit in view.eligible)
        for need in (1, has // 3, 2 * has):
            plan = policy.plan(view, need)
            check(plan, view, need)
            if policy not in SHRINKING:
                assert plan.frees >= min(need, has)
