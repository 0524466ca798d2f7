"""Ranking: similarity first, then the dates in the question and user rules; every part is reported."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from recto.context.facts.types import Mark
from recto.models.embedders import ARCTIC_WEIGHT
from recto.recall.index.message_rows import similarities
from recto.recall.search import (
    ASSISTANT_WEIGHT,
    CALIBRATIONS,
    PASSAGE_PENALTY,
    WORDS_ONLY,
    Candidates,
    RankingWeights,
    RelevanceCalibration,
    best_first,
    calibration_for,
    highest,
    score_candidates,
    standardized,
)
from recto.recall.term_rows import ROLES

NOW = 1_750_000_000_000_000
DAY = 86_400_000_000
ARCTIC = calibration_for("arctic-embed-s-int8/1")
COLUMNS = {
    "sessions": np.intp,
    "seqs": np.int64,
    "ts": np.int64,
    "roles": np.uint8,
    "marks": np.uint32,
    "exchanges": np.int64,
    "bm25": np.float64,
    "strength": np.float64,
    "matched": np.float64,
    "cosines": np.float64,
    "passages": np.float64,
    "in_span": np.bool,
}


def candidate(seq: int, **more) -> dict:
    """Returns a candidate of average similarity and a fixed time, so that only the given fields decide."""
    usual = {"sessions": 0, "ts": NOW - DAY, "roles": "user", "marks": 0, "exchanges": 0, "bm25": 5.0, "strength": 0.5}
    return {**usual, "seqs": seq, "matched": 3, "cosines": 0.7, "passages": 1, "in_span": False} | more


def columns(*messages: dict) -> Candidates:
    rows = [message | {"roles": ROLES.index(message["roles"])} for message in messages]
    return Candidates(**{name: np.array([row[name] for row in rows], kind) for name, kind in COLUMNS.items()})


def order(*messages: dict, weights: RankingWeights | None = None) -> list[int]:
    found = columns(*messages)
    scores = score_candidates(found, weights or RankingWeights(), ARCTIC)
    return found.seqs[best_first(found, scores.total)].tolist()


finite = st.floats(0, 1000, allow_nan=False)
messages = st.lists(
    st.fixed_dictionaries(
        {
            "sessions": st.integers(0, 1),
            "seqs": st.integers(1, 2**32 - 1),
            "ts": st.integers(-(2**62), 2**62),
            "roles": st.sampled_from(["system", "user", "assistant", "tool"]),
            "marks": st.integers(0, 511),
            "exchanges": st.integers(0, 5),
            "bm25": finite,
            "strength": st.floats(0, 1),
            "matched": st.integers(0, 10_000),
            "cosines": st.just(np.nan) | st.floats(-1, 1),
            "passages": st.integers(0, 6),
            "in_span": st.booleans(),
        }
    ),
    max_size=30,
    unique_by=lambda message: (message["sessions"], message["seqs"]),
)


@given(messages, st.randoms(use_true_random=False))
def test_the_order_of_candidates_does_not_change_their_scores(found, rng: random.Random):
    places = rng.sample(range(len(found)), len(found))
    first = score_candidates(columns(*found), RankingWeights(), ARCTIC)
    second = score_candidates(columns(*(found[place] for place in places)), RankingWeights(), ARCTIC)
    assert second.total == pytest.approx(first.total[places], abs=1e-6)
    assert np.array_equal(second.chances, first.chances[places])


@given(messages)
@pytest.mark.requirement("recall.resonance")
def test_every_score_is_the_sum_of_its_parts_and_the_best_comes_first(found):
    candidates = columns(*found)
    scores = score_candidates(candidates, RankingWeights(), ARCTIC)
    ranked = scores.total[best_first(candidates, scores.total)]
    assert ranked.tolist() == sorted(scores.total.tolist(), reverse=True)
    assert np.isfinite(scores.total).all()
    assert ((scores.chances >= 0) & (scores.chances <= 1)).all()
    for total, parts in zip(scores.total, scores.parts_of(np.arange(len(found))), strict=True):
        assert total == pytest.approx(sum(parts.values()))
        assert {"words", "meaning"} <= parts.keys()


def test_the_more_similar_in_words_or_in_meaning_comes_first():
    assert order(candidate(1), candidate(2, bm25=6.0, strength=0.6)) == [2, 1]
    assert order(candidate(1), candidate(2, cosines=0.8)) == [2, 1]


def test_the_newer_of_two_equal_candidates_comes_first():
    assert order(candidate(1), candidate(2)) == [2, 1]
    assert order(candidate(2, ts=NOW - 400 * DAY), candidate(1, ts=NOW)) == [1, 2]


def test_messages_of_the_dates_in_question_come_first():
    assert order(candidate(2), candidate(1, in_span=True), candidate(3)) == [1, 3, 2]


@pytest.mark.parametrize("mark", [Mark.CONSTRAINT, Mark.PREFERENCE])
def test_a_user_rule_or_preference_ranks_higher_without_a_higher_chance(mark: Mark):
    assert order(candidate(2), candidate(1, marks=mark), candidate(3)) == [1, 3, 2]
    found = columns(candidate(1, marks=mark), candidate(1, marks=mark, roles="tool"), candidate(1, marks=Mark.DECISION))
    scores = score_candidates(found, RankingWeights(), ARCTIC)
    assert scores.parts["standing"].tolist() == [RankingWeights().standing, 0.0, 0.0]
    assert len(set(scores.chances.tolist())) == 1


def test_a_part_of_some_candidates_is_added_to_their_scores():
    scores = score_candidates(columns(candidate(1), candidate(2), candidate(3)), RankingWeights(), ARCTIC)
    more = scores.with_part("judged", np.array([1]), np.array([0.2]))
    assert (more.total - scores.total).tolist() == pytest.approx([0.0, 0.2, 0.0])
    without, with_part = more.parts_of(np.array([0, 1]))
    assert with_part["judged"] == 0.2
    assert "judged" not in without


def test_words_of_an_assistant_count_less():
    user, assistant = columns(candidate(1), candidate(1, roles="assistant")).words.tolist()
    assert assistant == ASSISTANT_WEIGHT * user
    assert order(candidate(2, roles="assistant"), candidate(1, roles="system")) == [1, 2]


def test_the_best_of_many_passages_scores_below_an_only_passage():
    assert order(candidate(2, passages=6), candidate(1, passages=1)) == [1, 2]
    many, single = columns(candidate(1, passages=6), candidate(1)).likeness.tolist()
    assert many > single - 6 * PASSAGE_PENALTY


def test_without_any_vectors_words_have_full_weight():
    bare = columns(candidate(1, cosines=np.nan), candidate(2, cosines=np.nan, bm25=9.0, strength=0.9))
    scores = score_candidates(bare, RankingWeights(), ARCTIC)
    assert scores.parts["meaning"].tolist() == [0.0, 0.0]
    assert scores.parts["words"].tolist() == pytest.approx([-1.0, 1.0])
    assert scores.chances.tolist() == WORDS_ONLY.chances(bare).tolist()


def test_a_message_without_a_vector_is_neither_near_nor_far():
    found = columns(candidate(1, cosines=np.nan), candidate(2, cosines=0.9), candidate(3, cosines=0.1))
    unknown, near, far = score_candidates(found, RankingWeights(), ARCTIC).parts["meaning"].tolist()
    assert far < unknown == 0.0 < near


def test_a_message_without_a_vector_is_compared_by_words_alone():
    found = columns(
        candidate(1, cosines=np.nan, bm25=9.0), candidate(2, bm25=9.0), candidate(3, bm25=1.0), candidate(4, bm25=1.0)
    )
    parts = score_candidates(found, RankingWeights().with_meaning(0.7), ARCTIC).parts["words"].tolist()
    assert parts == pytest.approx([1.0, 0.3, -0.3, -0.3])


def test_the_embedder_sets_the_weight_of_meaning():
    words, meaning = candidate(1, bm25=9.0, cosines=0.1), candidate(2, bm25=1.0, cosines=0.9)
    assert order(words, meaning, weights=RankingWeights().with_meaning(0.1))[0] == 1
    assert order(words, meaning, weights=RankingWeights().with_meaning(0.9))[0] == 2


@pytest.mark.parametrize("curve", [WORDS_ONLY, *CALIBRATIONS.values()])
def test_the_chance_grows_with_likeness_and_spans_the_gate(curve: RelevanceCalibration):
    steps = [candidate(1, strength=step / 10, cosines=step / 10) for step in range(11)]
    chances = curve.chances(columns(*steps)).tolist()
    assert chances == sorted(chances)
    assert chances[0] < 0.1
    assert chances[-1] > 0.9
    assistant, user = curve.chances(columns(candidate(1, roles="assistant"), candidate(1))).tolist()
    assert assistant < user


def test_an_embedder_without_a_calibration_is_judged_by_words():
    assert calibration_for("arctic-embed-s-int8/1") is CALIBRATIONS["arctic-embed-s"]
    assert calibration_for("another/1") is WORDS_ONLY
    assert calibration_for("") is WORDS_ONLY
    near, far = WORDS_ONLY.chances(columns(candidate(1, cosines=0.9), candidate(1, cosines=0.1))).tolist()
    assert near == far


def test_ranking_no_candidates_returns_nothing():
    assert order() == []
    assert len(standardized(np.empty(0))) == 0


def test_the_documented_weights_are_those_in_use():
    page = (Path(__file__).parents[2] / "docs" / "recall.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page, re.MULTILINE))
    weights = RankingWeights()
    assert {name: float(documented[name]) for name in ("date", "standing")} == {
        "date": weights.date,
        "standing": weights.standing,
    }
    assert f"counts {ASSISTANT_WEIGHT}" in page
    assert replace(weights, meaning=0.5) == weights
    assert f"the share is {ARCTIC_WEIGHT} with the embedded model and 0.5 with others" in page


def test_messages_are_compared_by_the_share_of_their_terms():
    sets = [np.array(terms, np.uint32) for terms in ([1, 2, 3, 4], [1, 2, 3, 9], [7], [])]
    assert similarities(sets).tolist() == [[1, 0.75, 0, 0], [0.75, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    long = np.arange(5_000, dtype=np.uint32)
    assert similarities([long, long[2_500:]]).tolist() == [[1, 0], [0, 1]]


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0])), st.integers(1, 6))
def test_the_first_of_equal_messages_of_a_day_are_proposed(scores, limit):
    values = np.array(scores, np.float32)
    assert set(highest(values, limit).tolist()) == set(np.argsort(-values, kind="stable")[:limit].tolist())
