"""Estimates learn from reported usage, and stay on the high side."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.tokens.calibration import MARGIN, MAX_RATIOS, MIN_REPORTS_TO_LOWER, Calibration, prompt_tokens

reports = st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), max_size=40)


def seen(*pairs: tuple[int, int], exact: bool = False) -> Calibration:
    calibration = Calibration(exact=exact)
    for counted, reported in pairs:
        calibration = calibration.observe(counted, reported)
    return calibration


def test_without_reports_a_count_stays_as_it_is():
    assert Calibration().apply(1000) == 1000
    assert Calibration().estimate_error is None


def test_an_estimate_that_was_too_low_is_raised_at_once():
    assert seen((1000, 1200)).apply(1000) >= 1200


def test_an_estimate_is_lowered_only_on_enough_evidence():
    assert seen(*[(1300, 1000)] * (MIN_REPORTS_TO_LOWER - 1)).apply(1300) == 1300
    assert 1000 <= seen(*[(1300, 1000)] * MIN_REPORTS_TO_LOWER).apply(1300) <= 1000 * MARGIN + 1


def test_an_exact_counter_never_goes_below_its_own_count():
    assert seen(*[(1000, 900)] * 10, exact=True).apply(1000) == 1000
    assert seen((1000, 1100), exact=True).apply(1000) >= 1100


@pytest.mark.parametrize(("counted", "reported"), [(0, 10), (10, 0), (-1, 5), (100, 401), (100, 24)])
@pytest.mark.requirement("tokens.calibrated")
def test_a_report_that_cannot_be_true_is_ignored(counted, reported):
    assert seen((counted, reported)) == Calibration()


def test_only_the_last_reports_are_remembered():
    calibration = seen((100, 300), *[(100, 100)] * MAX_RATIOS)
    assert len(calibration.ratios) == MAX_RATIOS
    assert calibration.factor == 1.0


def test_the_error_says_how_far_raw_counts_were_off():
    assert seen((130, 100), (130, 100)).estimate_error == pytest.approx(0.3)
    assert seen((80, 100)).estimate_error == pytest.approx(-0.2)


@given(reports)
@pytest.mark.requirement("tokens.calibrated")
def test_a_calibrated_count_is_never_below_what_was_reported_for_it(pairs):
    calibration = seen(*pairs)
    for counted, reported in pairs[-MAX_RATIOS:]:
        if 0.25 <= reported / counted <= 4:
            assert calibration.apply(counted) >= reported


@given(reports, st.integers(0, 10**6))
def test_an_exact_counter_is_never_lowered(pairs, counted):
    assert seen(*pairs, exact=True).apply(counted) >= counted


@pytest.mark.parametrize(
    ("usage", "total"),
    [
        ({"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 10}}, 12),
        ({"input_tokens": 12, "input_tokens_details": {"cached_tokens": 10}, "output_tokens": 1}, 12),
        ({"input_tokens": 2, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 400}, 432),
        ({"input_tokens": 2, "cache_creation_input_tokens": None}, 2),
        ({"prompt_token_count": 7, "cached_content_token_count": 5, "tool_use_prompt_token_count": 2}, 9),
        ({"promptTokenCount": 7}, 7),
        ({}, None),
        ({"prompt_tokens": "12"}, None),
        ({"input_tokens": True}, None),
        ({"input_tokens": -4}, None),
    ],
)
def test_the_whole_prompt_is_read_from_every_kind_of_usage(usage, total):
    assert prompt_tokens(usage) == total
