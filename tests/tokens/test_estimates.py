"""Estimates where no tokenizer can be asked."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from recto.tokens.meter import CLAUDE, CLAUDE_4_7, byte_bound, plain_estimate, replace_surrogates

anything = st.text(st.characters(codec=None))


@given(anything)
def test_any_text_can_be_made_whole_and_then_encoded(text):
    assert replace_surrogates(replace_surrogates(text)) == replace_surrogates(text)
    assert len(replace_surrogates(text).encode()) == byte_bound(text)


def test_lone_surrogates_are_replaced_and_pairs_joined():
    assert replace_surrogates("a\ud800b") == "a\ufffdb"
    assert replace_surrogates("\ud83d\ude00") == "😀"


@given(anything)
def test_the_plain_estimate_is_never_more_than_the_bytes(text):
    assert 0 <= plain_estimate(text) <= byte_bound(text)


@given(anything, st.integers(0, 1000))
def test_the_claude_estimates_are_never_below_the_count_they_start_from(text, cl100k):
    assert CLAUDE.estimate(text, cl100k) >= (cl100k if text else 0)
    assert CLAUDE_4_7.estimate(text, cl100k) >= (CLAUDE.estimate(text, cl100k) if text.islower() else 0)


def test_nothing_costs_nothing():
    assert plain_estimate("") == CLAUDE.estimate("", 0) == CLAUDE_4_7.estimate("", 0) == 0


def test_one_letter_over_and_over_is_charged_by_the_letter():
    assert CLAUDE_4_7.estimate("a" * 4000, 500) >= 4000
    assert CLAUDE_4_7.estimate("\u200b" * 4000, 2000) >= 4000


@given(st.lists(st.tuples(st.sampled_from("ab^é -1"), st.integers(1, 20)), max_size=12))
def test_letters_repeated_eight_times_and_more_are_charged_wherever_they_are(runs):
    text = "".join(letter * times for letter, times in runs)
    lengths = {letter: [len(list(run)) for key, run in groupby(text) if key == letter] for letter in "ab^é"}
    repeated = sum(length for of_letter in lengths.values() for length in of_letter if length > 7)
    signs = text.count("^") + text.count("-")
    formula = replace(CLAUDE, constant=0, per_sign=1, per_gap=0, per_upper=0)
    assert formula.estimate(text, 0) == repeated + signs


def test_known_texts_are_estimated_between_the_truth_and_three_times_it():
    counted = {  # o200k
        "The transcript is history. The prompt is a working set.": 12,
        "def f(x: int) -> int:\n    return x + 1\n": 16,
        '{"id": 1, "ok": true, "name": "x"}': 17,
        "Привет, как дела? Всё хорошо.": 9,
    }
    for text, tokens in counted.items():
        assert tokens <= plain_estimate(text) <= 3 * tokens
