"""Compacting policies: what they plan, and when they plan nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests.context.policies.policy_views import conversation, view_of, views

from recto.context.policies.edits import SummarizeResults, TrimResults
from recto.context.policies.eviction import Compact, Progressive, Prune, ToolUnitsOnly
from recto.tokens.meter import plain_estimate


def talk(exchanges, tokens=400):
    steps = [("user", "please look at src/app.py"), ("assistant", "done")] * exchanges
    return view_of(*conversation(*steps, tokens=tokens))


@given(view=views())
def test_a_compaction_evicts_only_eligible_units_and_frees_more_than_it_writes(view):
    plan = Compact(keep_recent_tokens=300, summary_tokens=200, handoff_tokens=0).plan(view, 1)
    if plan:
        assert {unit.first for unit in plan.evicts} <= {unit.first for unit in view.eligible}
        freed = sum(view.cost(unit) for unit in plan.evicts)
        assert plan.writes.max_tokens <= freed / 2
        assert plan.frees == freed - plan.writes.max_tokens


def test_a_compaction_keeps_the_newest_units_whole():
    view = talk(20)
    plan = Compact(keep_recent_tokens=2_000, summary_tokens=500).plan(view, 1)
    remaining = [unit for unit in view.eligible if unit not in plan.evicts]
    assert remaining == view.eligible[-2:]


def test_a_compaction_that_would_not_pay_is_not_planned():
    view = talk(3, tokens=60)
    assert not Compact(keep_recent_tokens=100, summary_tokens=3_000, least_ratio=6).plan(view, 1)
    assert not Compact(keep_recent_tokens=10**6).plan(talk(20), 1)


def test_an_earlier_summary_is_rewritten_and_counts_as_freed():
    from msgspec.structs import replace

    view = talk(20)
    first = Compact(keep_recent_tokens=2_000, summary_tokens=500).plan(view, 1)
    second = Compact(keep_recent_tokens=2_000, summary_tokens=500).plan(replace(view, written=300), 1)
    assert second.frees == first.frees + 300


@given(view=views())
def test_progressive_compaction_frees_more_than_it_writes(view):
    plan = Progressive().plan(view, 10**9)
    if plan:
        assert plan.frees > 0
        assert {unit.first for unit in plan.evicts} <= {unit.first for unit in view.eligible}


def test_progressive_compaction_stops_when_enough_is_free():
    view = talk(30)
    few, everything = Progressive().plan(view, 500), Progressive().plan(view, 10**9)
    assert 0 < len(few.evicts) < len(everything.evicts)
    assert few.evicts == everything.evicts[: len(few.evicts)]


def test_progressive_compaction_is_bounded_by_its_token_limit():
    view = talk(200)
    assert Progressive(most_tokens=300).plan(view, 10**9).writes.max_tokens <= 300


@pytest.mark.requirement("compress.results")
def test_long_results_are_summarised_to_less_than_a_fifth_oldest_first():
    output = "\n".join(f"src/module_{number}.py:{number}: warning: unused import" for number in range(300))
    steps = [("user", "lint"), *[("assistant", "next"), ("tool", output)] * 6]
    lines, texts = conversation(*steps, tokens=plain_estimate(output))
    plan = SummarizeResults().plan(view_of(lines, texts), 10**9)
    assert [shrink.seq for shrink in plan.shortens] == [3, 5, 7]
    for shrink in plan.shortens:
        assert shrink.tokens < 0.22 * plain_estimate(output)
        assert shrink.text.endswith(f"the whole is recto://agent:default:main/{shrink.seq}]")
        first = shrink.text.splitlines()[0]
        assert first in output or "module_" in first


def test_results_of_less_than_500_tokens_are_left_to_others():
    output = "src/a.py:1: warning: unused import\n" * 30
    steps = [("user", "lint"), *[("assistant", "next"), ("tool", output)] * 6]
    assert not SummarizeResults().plan(view_of(*conversation(*steps, tokens=499)), 10**9)


def test_tool_work_is_evicted_before_messages_of_people():
    steps = [("user", "please look at src/app.py")]
    steps += [("assistant", "reading"), ("tool", "text")] * 8 + [("assistant", "we decided to use sqlite")]
    lines, texts = conversation(*steps)
    view = view_of(lines, texts, long_exchange=2)
    plan = ToolUnitsOnly(Prune()).plan(view, 10**9)
    assert {line.role for unit in plan.evicts for line in unit.messages} == {"assistant", "tool"}
    assert all(line.seq not in (1, 18) for unit in plan.evicts for line in unit.messages)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Compact(least_ratio=0.5),
        lambda: Compact(keep_recent_tokens=-1),
        lambda: Progressive(key_points_turns=9, line_turns=3),
        lambda: SummarizeResults(share=1.0),
        lambda: TrimResults(keep_newest=-1),
    ],
)
def test_invalid_settings_are_refused(make):
    with pytest.raises(ValueError, match="must"):
        make()
