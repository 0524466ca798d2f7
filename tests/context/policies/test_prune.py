"""The prune policy: the sliding window."""

from __future__ import annotations

from tests.context.policies.policy_views import conversation, view_of

from recto.context.policies.eviction import Prune


def test_the_oldest_are_evicted_first_and_only_as_many_as_needed():
    lines, texts = conversation(*[("user", "a"), ("assistant", "b")] * 5)
    plan = Prune().plan(view_of(lines, texts), 450)
    assert [unit.seqs for unit in plan.evicts] == [(1, 2), (3, 4), (5, 6)]
    assert (plan.frees, plan.policy) == (600, "prune")
    assert plan.reason == "oldest first: 3 units of entries 1 to 6"


def test_a_shortened_unit_frees_its_current_cost():
    lines, texts = conversation(("user", "a"), ("user", "b"))
    plan = Prune().plan(view_of(lines, texts, tokens={1: 10, 2: 90}), 11)
    assert plan.frees == 100


def test_units_without_cost_are_not_evicted():
    lines, texts = conversation(("user", "a"), ("user", "b"), tokens=0)
    assert not Prune().plan(view_of(lines, texts), 100)
