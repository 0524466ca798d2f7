"""The verdict on paired differences follows from their interval and the stated margin."""

from __future__ import annotations

import pytest

from recto.lab.bootstrap import PairedDifference, judge_equivalence


def runs(*means, spread=0.01, moments=4):
    """Returns runs whose moments are spread around the given mean losses."""
    return {
        f"run {number}": [PairedDifference(mean + spread * (place - (moments - 1) / 2), 20) for place in range(moments)]
        for number, mean in enumerate(means)
    }


@pytest.mark.parametrize(
    ("means", "verdict"),
    [
        ([0.0, 0.01, -0.01, 0.005, -0.005, 0.0, 0.01, -0.01], "equivalent"),
        ([0.3, 0.25, 0.35, 0.28, 0.31, 0.3, 0.27, 0.33], "worse"),
        ([-0.3, -0.25, -0.35, -0.28, -0.31, -0.3, -0.27, -0.33], "better"),
        ([0.4, -0.3, 0.2, -0.2, 0.3, -0.1, 0.1, 0.0], "undecided"),
        ([-0.3, 0.0, -0.2, 0.0, -0.1, 0.0, -0.15, 0.01], "no worse"),
    ],
)
def test_constructed_differences_get_their_expected_verdict(means, verdict):
    judged = judge_equivalence(runs(*means))
    assert judged.verdict == verdict
    assert judged.interval.low <= judged.interval.value <= judged.interval.high
    assert (judged.runs, judged.moments) == (len(means), 4 * len(means))


def test_a_wider_margin_makes_the_same_differences_equivalent():
    different = runs(0.06, 0.08, 0.07, 0.09, 0.07, 0.08)
    assert judge_equivalence(different, margin=0.05).verdict == "worse"
    assert judge_equivalence(different, margin=0.2).verdict == "equivalent"


def test_few_runs_with_many_moments_are_less_certain_than_many_runs():
    few = judge_equivalence({"a": runs(0.1, moments=40)["run 0"], "b": runs(-0.1, moments=40)["run 0"]})
    many = judge_equivalence(runs(*[0.1, -0.1] * 20, moments=2))
    assert (few.moments, many.moments) == (80, 80)
    assert few.interval.high - few.interval.low > many.interval.high - many.interval.low
    assert few.verdict == "undecided"


def test_a_single_run_has_no_verdict_and_equal_differences_have_equal_verdicts():
    assert judge_equivalence({"only": runs(0.0)["run 0"], "empty": []}) is None
    assert judge_equivalence(runs(0.1, 0.2, 0.0)) == judge_equivalence(runs(0.1, 0.2, 0.0))


def test_the_pooled_mean_weighs_long_responses():
    judged = judge_equivalence({"a": [PairedDifference(1.0, 90)], "b": [PairedDifference(0.0, 10)]})
    assert (judged.interval.value, judged.pooled) == (0.5, 0.9)
    assert judged.within == 0.5
