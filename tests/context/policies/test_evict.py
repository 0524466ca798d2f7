"""Eviction policies: each scorer evicts what its description states."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace
from tests.context.policies.policy_views import conversation, view_of

from recto.context.policies.eviction import Evict
from recto.context.policies.scorers import SCORERS, Fifo, Hybrid, Lru, Priority, SemanticMerge, TypeTtl, scorer_named
from recto.context.window.units import EntryVectors
from recto.errors import SettingsError

PAGES = [
    "harbour boats unload pier morning",
    "invoice ledger customer refund payment",
    "glacier moraine valley ice core",
]


def first_to_leave(scorer, *steps, need: int = 1, goal: str = "", stays=lambda unit: False) -> list[int]:
    lines, texts = conversation(*steps)
    plan = Evict(scorer=scorer).plan(view_of(lines, texts, goal=goal, stays=stays, long_exchange=2), need)
    return [unit.first for unit in plan.evicts]


@pytest.mark.requirement("evict.fifo")
def test_fifo_evicts_the_oldest():
    assert first_to_leave(Fifo(), *[("user", page) for page in PAGES], need=150) == [1, 2]


@pytest.mark.requirement("evict.lru")
def test_lru_evicts_idle_units_and_keeps_those_mentioned_again():
    question = ("user", "what about the harbour and its boats?")
    steps = [*[("user", page) for page in PAGES], question]
    assert first_to_leave(Lru(), *steps) == [2]
    lines, texts = conversation(*steps)
    scores = Evict(scorer=Lru()).plan(view_of(lines, texts), 1).scores
    assert scores[1] == {"total": 1.0, "last_used": 4.0, "idle": 0.0}
    assert scores[2] == {"total": pytest.approx(1 / 3), "last_used": 2.0, "idle": 2.0}


def test_lru_requires_more_than_one_shared_term_for_a_use():
    steps = [*[("user", page) for page in PAGES], ("user", "the harbour?")]
    assert first_to_leave(Lru(), *steps) == [1]
    assert first_to_leave(Lru(shared=1), *steps) == [2]


def test_lru_does_not_count_common_terms():
    common = "settings.yaml config_loader"
    steps = [("user", f"{page} {common}") for page in PAGES]
    steps += [("user", f"topic{number} {common}") for number in range(8)]
    steps += [("user", f"harbour and boats {common}")]
    assert first_to_leave(Lru(), *steps) == [2]


def steps_about(block: str, every: int, turns: int = 40) -> list[tuple[str, str]]:
    """Returns a block between two others, followed by turns of which every n-th refers to it."""
    steps = [("user", PAGES[1]), ("user", block), ("user", PAGES[2])]
    for number in range(turns):
        referring = " and the retry_limit of billing_client.py" if number % every == 0 else ""
        steps.append(("user", f"step{number} looks at module{number}{referring}"))
    return steps


@pytest.mark.parametrize("scorer", [Lru(), Priority(recency=0, relevance=0, source=0, reuse=1, mark=0)])
@pytest.mark.parametrize("every", [1, 2, 3, 5, 8])
@pytest.mark.requirement("evict.lru")
def test_the_most_referenced_unit_stays_longest(scorer, every):
    steps = steps_about("billing_client.py has a retry_limit of 5", every)
    lines, texts = conversation(*steps)
    scores = Evict(scorer=scorer).plan(view_of(lines, texts), 1).scores
    assert scores[2]["total"] > max(scores[1]["total"], scores[3]["total"])
    evicted = first_to_leave(scorer, *steps, need=20 * 100)
    assert {1, 3} < set(evicted)
    assert 2 not in evicted


@pytest.mark.requirement("evict.priority")
def test_reuse_grows_with_the_number_of_referring_turns():
    def reuse(every: int) -> float:
        lines, texts = conversation(*steps_about("billing_client.py has a retry_limit of 5", every))
        return Evict(scorer=Priority()).plan(view_of(lines, texts), 1).scores[2]["reuse"]

    assert [reuse(1), reuse(2), reuse(4)] == pytest.approx([40 / 41, 20 / 41, 10 / 41])


@pytest.mark.requirement("evict.priority")
def test_priority_keeps_what_the_user_marks_as_important_but_not_a_tool():
    steps = [
        ("user", "harbour boats"),
        ("user", "IMPORTANT: glacier ice"),
        ("assistant", "look"),
        ("tool", "IMPORTANT"),
    ]
    lines, texts = conversation(*steps)
    scores = Evict(scorer=Priority()).plan(view_of(lines, texts, long_exchange=2), 1).scores
    assert [scores[first]["mark"] for first in (1, 2, 3)] == [0.0, 1.0, 0.0]
    only_mark = Priority(recency=0, relevance=0, source=0, reuse=0, mark=1)
    assert first_to_leave(only_mark, *steps[:2], ("user", "copper")) == [1]
    assert first_to_leave(only_mark, *steps[1:2], *steps[:1], ("user", "copper")) == [2]


def test_priority_keeps_units_related_to_the_goal():
    steps = [("user", page) for page in PAGES]
    assert first_to_leave(Priority(), *steps, goal="unload the boats in the harbour") == [2]


@pytest.mark.requirement("evict.priority")
def test_priority_applies_its_weights():
    lines, texts = conversation(("assistant", "one"), ("tool", "two"), ("assistant", "three"), ("user", "four"))
    view = view_of(lines, texts, long_exchange=2)
    only_source = Priority(recency=0, relevance=0, reuse=0, mark=0)
    assert [unit.first for unit in Evict(scorer=only_source).plan(view, 500).evicts] == [3, 1, 4]
    parts = Evict(scorer=Priority()).plan(view, 1).scores[4]
    assert parts.keys() == {"total", "recency", "relevance", "source", "reuse", "mark"}
    assert parts["source"] == 1.0


@pytest.mark.requirement("evict.type")
def test_expired_units_are_evicted_tool_results_first_and_user_messages_last():
    steps = [("user", "a question"), ("assistant", "prose"), ("assistant", "calls"), ("tool", "result")]
    steps += [("assistant", "calls"), ("tool", "ValueError: no such file"), ("assistant", "we decided to use tar")]
    steps += [("user", "and now?")] * 30
    order = first_to_leave(TypeTtl(), *steps, need=700)
    assert order[:5] == [3, 2, 5, 7, 1]


def test_the_older_of_two_duplicates_is_evicted_and_the_reason_names_the_newer():
    page = " ".join(PAGES)
    steps = [("user", "glass marble stone copper silver golden bronze"), ("user", page), ("user", page + " again")]
    lines, texts = conversation(*steps)
    plan = Evict(scorer=SemanticMerge()).plan(view_of(lines, texts), 1)
    assert [unit.first for unit in plan.evicts] == [2]
    assert plan.reason.endswith("; 2 repeats 3")
    assert plan.scores[2]["repeats"] == 3
    assert plan.scores[2]["alike"] > 0.85
    assert plan.scores[1] == {"total": 0.0}


def test_a_protected_duplicate_may_remain_but_is_never_evicted():
    page = " ".join(PAGES)
    steps = [("user", "glass marble stone"), ("user", page), ("user", page)]
    assert first_to_leave(SemanticMerge(), *steps, stays=lambda unit: unit.first == 3) == [2]
    assert first_to_leave(SemanticMerge(), *steps, stays=lambda unit: unit.first == 2) == [1]


def test_merging_continues_with_the_oldest_if_duplicates_are_not_enough():
    page = " ".join(PAGES)
    steps = [("user", "glass marble stone copper"), ("user", page), ("user", page)]
    assert first_to_leave(SemanticMerge(), *steps, need=150) == [2, 1]


def test_the_reason_names_no_duplicate_that_is_evicted_as_well():
    page = " ".join(PAGES)
    lines, texts = conversation(("user", page), ("user", page))
    plan = Evict(scorer=SemanticMerge()).plan(view_of(lines, texts), 200)
    assert len(plan.evicts) == 2
    assert "repeats" not in plan.reason


def test_short_answers_are_not_merged():
    assert first_to_leave(SemanticMerge(), ("user", "one two"), ("user", "yes"), ("user", "yes")) == [1]


def with_vectors(vectors: dict[int, list[float]], *steps, characters: int = 200):
    lines, texts = conversation(*steps)
    rows = {seq: np.array([vector], np.float32) for seq, vector in vectors.items()}
    view = view_of(lines, texts, long_exchange=2)
    return replace(view, vectors=lambda: EntryVectors(entries=rows, characters=characters))


ORIGINAL, PARAPHRASE = (
    "the export breaks at night since the disk is full",
    "no space is left so nightly exports fail every time",
)
NEAR, FAR = [1.0, 0.0], [0.0, 1.0]


@pytest.mark.requirement("evict.merge")
@pytest.mark.parametrize(
    ("steps", "vectors", "characters", "merged"),
    [
        ([("user", ORIGINAL), ("user", PARAPHRASE)], {1: NEAR, 2: NEAR}, 200, [1]),
        ([("user", ORIGINAL), ("user", PARAPHRASE)], {1: NEAR, 2: FAR}, 200, []),
        ([("user", ORIGINAL), ("user", PARAPHRASE)], {2: NEAR}, 200, []),
        ([("user", ORIGINAL), ("user", PARAPHRASE)], {1: NEAR, 2: NEAR}, 20, []),
        ([("user", f"{ORIGINAL} on port 80"), ("user", PARAPHRASE)], {1: NEAR, 2: NEAR}, 200, []),
        ([("user", f"{ORIGINAL} on port 80"), ("user", f"port 80: {PARAPHRASE}")], {1: NEAR, 2: NEAR}, 200, [1]),
        ([("user", f"{ORIGINAL} in tax.py"), ("user", f"{PARAPHRASE} in vat.py")], {1: NEAR, 2: NEAR}, 200, []),
        (
            [("assistant", ORIGINAL), ("tool", "a"), ("assistant", PARAPHRASE), ("tool", "b")],
            {1: NEAR, 3: NEAR},
            200,
            [],
        ),
        ([("user", ORIGINAL), ("user", PARAPHRASE), ("user", PARAPHRASE)], {1: NEAR, 2: NEAR, 3: NEAR}, 200, [1, 2]),
    ],
    ids=["near", "far", "no vector", "only in part", "number", "same number", "name", "results", "chain"],
)
def test_units_are_merged_by_vectors_only_if_these_represent_all_of_their_text(steps, vectors, characters, merged):
    view = with_vectors(vectors, *steps, characters=characters)
    plan = Evict(scorer=SemanticMerge()).plan(view, 100 * max(len(merged), 1))
    assert [unit.first for unit in plan.merges] == merged
    assert all(unit.kept == len(steps) for unit in plan.merges)


@pytest.mark.requirement("evict.hybrid")
def test_a_hybrid_follows_its_weights_and_records_every_part():
    steps = [*[("user", page) for page in PAGES], ("user", "what about the harbour and its boats?")]
    assert first_to_leave(Hybrid(weights={"fifo": 1}), *steps) == [1]
    assert first_to_leave(Hybrid(weights={"lru": 1}), *steps) == [2]
    assert first_to_leave(Hybrid(weights={"lru": 9, "fifo": 1}), *steps) == [2]
    lines, texts = conversation(*steps)
    plan = Evict(scorer=Hybrid(weights={"lru": 3, "fifo": 1})).plan(view_of(lines, texts), 1)
    parts = plan.scores[1]
    assert parts.keys() == {"total", "lru.total", "lru.last_used", "lru.idle", "fifo.total"}
    assert parts["total"] == pytest.approx(0.75)


@pytest.mark.requirement("evict.hybrid")
def test_the_default_weights_of_a_hybrid():
    assert Hybrid().weights == {"fifo": 0.3, "priority": 0.25, "type_ttl": 0.2, "lru": 0.15, "semantic_merge": 0.1}


def test_a_hybrid_reads_no_text_for_scorers_without_weight():
    lines, _ = conversation(*[("user", page) for page in PAGES])
    view = view_of(lines, {})
    assert Evict(scorer=Hybrid(weights={"fifo": 1, "semantic_merge": 0})).plan(view, 1)
    with pytest.raises(KeyError):
        Evict(scorer=Hybrid(weights={"semantic_merge": 1})).plan(view, 1)


def test_each_plan_requests_each_text_once():
    lines, texts = conversation(*[("user", page) for page in PAGES * 3])
    requested: list[int] = []
    view = view_of(lines, texts)
    counted = type(view)(
        eligible=view.eligible,
        protected=(),
        tokens=view.tokens,
        text_of=lambda seq: requested.append(seq) or texts[seq],
    )
    for scorer in (Lru(), Priority(), Hybrid()):
        requested.clear()
        Evict(scorer=scorer).plan(counted, 1)
        assert sorted(requested) == [line.seq for line in lines]


@pytest.mark.requirement("evict.policies")
def test_scorers_are_selected_by_name():
    for name, make in SCORERS.items():
        assert make().name == name
        assert Evict(scorer=scorer_named(name)).name == f"evict.{name}"
    assert scorer_named("lru", shared=3) == Lru(shared=3)
    with pytest.raises(SettingsError, match="Did you mean 'hybrid'"):
        scorer_named("hibrid")
    with pytest.raises(SettingsError, match="shared"):
        scorer_named("lru", shared=0)
    with pytest.raises(SettingsError, match="depth"):
        scorer_named("lru", depth=3)


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (Lru, {"shared": 0}),
        (Priority, {"recency": -1.0}),
        (Priority, {"recency": float("nan")}),
        (Priority, {"recency": 0, "relevance": 0, "source": 0, "reuse": 0, "mark": 0}),
        (Priority, {"worth": {"tool": 1}}),
        (TypeTtl, {"tool": 0}),
        (SemanticMerge, {"threshold": 0}),
        (SemanticMerge, {"least_words": 0}),
        (Hybrid, {"weights": {}}),
        (Hybrid, {"weights": {"lru": -1}}),
        (Hybrid, {"weights": {"hybrid": 1}}),
    ],
)
def test_settings_out_of_range_are_refused(make, settings):
    with pytest.raises(ValueError, match=r"lru|priority|type_ttl|semantic_merge|hybrid"):
        make(**settings)
