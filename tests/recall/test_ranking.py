"""Ranking: likeness first, then who said it, what it says, when, and whether it helped; every part can be told."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from math import isfinite
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.context.facts.types import Mark
from recto.recall.ranking import (
    ASSISTANT_WEIGHT,
    CALIBRATIONS,
    DAY,
    PASSAGE_PENALTY,
    WORDS_ONLY,
    Candidate,
    Ranker,
    RankingWeights,
    RelevanceCalibration,
    calibration_for,
    group_candidates,
)

NOW = 1_750_000_000_000_000
ARCTIC = calibration_for("arctic-embed-s-int8/1")
MARKS = (Mark.CORRECTION, Mark.CONSTRAINT, Mark.DECISION, Mark.PREFERENCE, Mark.CRITICAL)


def said(seq: int, **more) -> Candidate:
    """A message of middling likeness, said at one moment, so that only what differs decides."""
    usual = {"session": "s", "ts": NOW - DAY, "role": "user", "marks": Mark.NONE, "bm25": 5.0, "strength": 0.5}
    return Candidate(**{**usual, "seq": seq, "matched": 3, "cosine": 0.7} | more)


def order(*candidates: Candidate, weights: RankingWeights | None = None) -> list[int]:
    ranked = Ranker(candidates, weights=weights or RankingWeights(), curve=ARCTIC, now=NOW).ranked()
    return [one.candidate.seq for one in ranked]


def part(candidate: Candidate, name: str, *beside: Candidate) -> float:
    ranked = Ranker([candidate, *beside], weights=RankingWeights(), curve=ARCTIC, now=NOW).ranked()
    return next(one for one in ranked if one.candidate == candidate).parts.get(name, 0.0)


finite = st.floats(0, 1000, allow_nan=False)
candidates = st.lists(
    st.builds(
        Candidate,
        session=st.sampled_from(["a", "b"]),
        seq=st.integers(1, 2**32 - 1),
        ts=st.integers(-(2**62), 2**62),
        role=st.sampled_from(["system", "user", "assistant", "tool"]),
        marks=st.integers(0, 511).map(Mark),
        exchange=st.integers(0, 5),
        bm25=finite,
        strength=st.floats(0, 1),
        matched=st.integers(0, 10_000),
        cosine=st.none() | st.floats(-1, 1),
        passages=st.integers(0, 6),
        phrases=st.floats(0, 2),
        in_span=st.booleans(),
    ),
    max_size=30,
    unique_by=lambda one: (one.session, one.seq),
)


@given(candidates, st.randoms(use_true_random=False))
def test_the_order_in_which_candidates_come_changes_nothing(found, rng: random.Random):
    shuffled = rng.sample(found, len(found))
    one, other = (
        {
            (each.candidate.session, each.candidate.seq): each
            for each in Ranker(given, weights=RankingWeights(), curve=ARCTIC, now=NOW).ranked()
        }
        for given in (found, shuffled)
    )
    assert one.keys() == other.keys()
    for place, each in one.items():
        assert each.score == pytest.approx(other[place].score, abs=1e-6)
        assert each.chance == other[place].chance


@given(candidates, st.integers(-(2**62), 2**62))
def test_every_score_is_a_number_and_the_sum_of_its_parts_and_the_best_comes_first(found, now):
    ranked = Ranker(found, weights=RankingWeights(), curve=ARCTIC, now=now).ranked()
    assert sorted(ranked, key=lambda one: -one.score) == ranked
    for one in ranked:
        assert isfinite(one.score)
        assert 0 <= one.chance <= 1
        assert one.score == pytest.approx(sum(one.parts.values()))


@given(candidates)
def test_every_candidate_is_in_one_group_and_groups_are_finite_and_ordered(found):
    ranked = Ranker(found, weights=RankingWeights(), curve=ARCTIC, now=NOW).ranked()
    groups = group_candidates(ranked, lambda one: (one.session, one.exchange), share=0.6)
    members = [one.candidate for group in groups for one in group.members]
    assert sorted(members, key=id) == sorted((one.candidate for one in ranked), key=id)
    assert all(isfinite(group.score) for group in groups)
    assert [group.score for group in groups] == sorted((group.score for group in groups), reverse=True)
    for group in groups:
        assert {(one.candidate.session, one.candidate.exchange) for one in group.members} == {group.key}


def test_the_nearer_in_words_or_in_meaning_comes_first():
    assert order(said(1), said(2, bm25=6.0, strength=0.6)) == [2, 1]
    assert order(said(1), said(2, cosine=0.8)) == [2, 1]


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: mark.name)
def test_what_binds_outranks_chatter_of_equal_likeness(mark):
    assert order(said(9), said(1, marks=mark), said(8)) == [1, 9, 8]
    assert part(said(1, marks=mark), str(mark.name).lower()) > 0


def test_a_correction_outranks_every_other_mark():
    others = [said(10 + place, marks=mark) for place, mark in enumerate(MARKS[1:])]
    assert order(*others, said(1, marks=Mark.CORRECTION))[0] == 1


def test_a_question_or_an_error_is_no_reason_to_come_first():
    assert order(said(2), said(1, marks=Mark.QUESTION | Mark.ERROR)) == [2, 1]


def test_a_loud_message_about_something_else_stays_where_it_is():
    loud = said(1, marks=Mark.CORRECTION | Mark.CRITICAL | Mark.CONSTRAINT, bm25=0.5, strength=0.02, cosine=0.35)
    chatter = [said(seq) for seq in range(2, 8)]
    assert order(loud, *chatter)[-1] == 1
    quiet = part(loud, "correction", *chatter)
    assert 0 < quiet < 0.05 < part(replace(loud, strength=0.5, cosine=0.7), "correction", *chatter)


def test_the_newer_of_two_that_are_alike_comes_first_and_half_the_advantage_is_gone_after_a_half_life():
    old, new = said(1, ts=NOW - 400 * DAY), said(2, ts=NOW)
    assert order(old, new) == [2, 1]
    aged = said(3, ts=NOW - 30 * DAY)
    assert part(aged, "recency") == pytest.approx(part(said(4, ts=NOW), "recency") / 2)


@pytest.mark.parametrize("mark", [Mark.EVERGREEN, Mark.CRITICAL], ids=lambda mark: mark.name)
def test_what_does_not_age_is_as_good_as_new(mark):
    old = said(1, ts=NOW - 4000 * DAY, marks=mark)
    assert part(old, "recency") == pytest.approx(part(replace(old, ts=NOW), "recency"))
    assert part(replace(old, marks=Mark.NONE), "recency") < part(old, "recency") / 1000


def test_what_was_said_in_the_future_is_not_better_than_new():
    assert part(said(1, ts=NOW + 4000 * DAY), "recency") == part(said(1, ts=NOW), "recency")


def test_what_was_said_on_the_days_that_are_meant_comes_first():
    assert order(said(2, marks=Mark.CORRECTION), said(1, in_span=True), said(3)) == [1, 2, 3]


def test_what_stands_side_by_side_in_the_question_counts():
    assert order(said(2), said(1, phrases=1.0)) == [1, 2]


def test_a_user_comes_before_a_tool_and_a_secret_last():
    assert order(said(1, role="tool"), said(2), said(3, marks=Mark.SECRET)) == [2, 1, 3]


def test_words_of_an_assistant_count_less():
    assert said(1, role="assistant").words == ASSISTANT_WEIGHT * said(1).words
    assert order(said(2, role="assistant"), said(1, role="system")) == [1, 2]


def test_the_best_of_many_passages_is_less_near_than_the_only_one():
    assert order(said(2, passages=6), said(1, passages=1)) == [1, 2]
    assert said(1, passages=6).likeness > said(1).likeness - 6 * PASSAGE_PENALTY


def test_without_any_vectors_words_count_whole():
    bare = [said(1, cosine=None), said(2, cosine=None, bm25=9.0, strength=0.9)]
    first, last = Ranker(bare, weights=RankingWeights(), curve=ARCTIC, now=NOW).ranked()
    assert (first.candidate.seq, first.parts["meaning"], last.parts["meaning"]) == (2, 0.0, 0.0)
    assert first.parts["words"] == pytest.approx(1.0)
    assert first.chance == WORDS_ONLY.chance(first.candidate)


def test_a_message_without_a_vector_is_neither_near_nor_far():
    found = [said(1, cosine=None), said(2, cosine=0.9), said(3, cosine=0.1)]
    ranked = Ranker(found, weights=RankingWeights(), curve=ARCTIC, now=NOW).ranked()
    by_seq = {one.candidate.seq: one.parts["meaning"] for one in ranked}
    assert by_seq[3] < by_seq[1] == 0.0 < by_seq[2]


def test_the_share_of_meaning_is_the_embedders():
    words, meaning = said(1, bm25=9.0, cosine=0.1), said(2, bm25=1.0, cosine=0.9)
    assert order(words, meaning, weights=RankingWeights().with_meaning(0.1))[0] == 1
    assert order(words, meaning, weights=RankingWeights().with_meaning(0.9))[0] == 2


@pytest.mark.parametrize("curve", [WORDS_ONLY, *CALIBRATIONS.values()])
def test_the_chance_grows_with_likeness_and_spans_the_gate(curve: RelevanceCalibration):
    chances = [curve.chance(said(1, strength=step / 10, cosine=step / 10)) for step in range(11)]
    assert chances == sorted(chances)
    assert chances[0] < 0.1
    assert chances[-1] > 0.9
    assert curve.chance(said(1, role="assistant")) < curve.chance(said(1))


def test_an_embedder_whose_scale_is_not_known_is_judged_by_words():
    assert calibration_for("arctic-embed-s-int8/1") is CALIBRATIONS["arctic-embed-s"]
    assert calibration_for("hashing/1/384") is WORDS_ONLY
    assert calibration_for("") is WORDS_ONLY
    assert WORDS_ONLY.chance(said(1, cosine=0.9)) == WORDS_ONLY.chance(said(1, cosine=0.1))


def test_a_group_of_several_that_are_near_comes_before_one_that_is_near_by_chance():
    lone = said(1, exchange=1, cosine=0.75)
    pair = [said(2, exchange=2, cosine=0.74), said(3, exchange=2, cosine=0.74)]
    far = [said(seq, exchange=seq, cosine=0.3, bm25=1.0, strength=0.1) for seq in range(4, 9)]
    ranked = Ranker([lone, *pair, *far], weights=RankingWeights(), curve=ARCTIC, now=NOW).ranked()
    assert ranked[0].candidate.seq == 1
    assert group_candidates(ranked, lambda one: one.exchange, share=0.6)[0].key == 2


def test_the_best_words_of_a_group_count_most():
    best = [said(1, exchange=1, bm25=9.0), said(2, exchange=1, bm25=1.0)]
    even = [said(3, exchange=2, bm25=5.0), said(4, exchange=2, bm25=5.0)]
    ranked = Ranker([*best, *even], weights=RankingWeights(), curve=ARCTIC, now=NOW).ranked()
    assert group_candidates(ranked, lambda one: one.exchange, share=0.6)[0].key == 1


def test_the_words_of_a_whole_group_count_where_they_are_known():
    ranked = Ranker(
        [said(1, session="a"), said(2, session="b")], weights=RankingWeights(), curve=ARCTIC, now=NOW
    ).ranked()
    for winner in "ab":
        assert (
            group_candidates(ranked, lambda one: one.session, share=0.6, session_scores={winner: 3.0})[0].key == winner
        )


def test_nothing_is_ranked_where_nothing_was_found():
    assert Ranker([], weights=RankingWeights(), curve=ARCTIC, now=NOW).ranked() == []
    assert group_candidates([], lambda one: one.session, share=0.6) == []


def test_the_weights_in_the_documentation_are_those_that_count():
    page = (Path(__file__).parents[2] / "docs" / "recall.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([^|]+) \|", page, re.MULTILINE)
    told = {name: numbers for names, numbers in rows for name in re.findall(r"\w+", names)}
    weights = RankingWeights()
    expected = {str(mark.name).lower(): value for mark, value in weights.marks.items()}
    expected |= {name: getattr(weights, name) for name in ("phrases", "date", "recency", "secret")}
    for name, value in expected.items():
        assert float(told[name].replace("−", "-")) == value, name
    assert [float(number.replace("−", "-")) for number in told["authority"].split(",")] == list(weights.roles.values())
