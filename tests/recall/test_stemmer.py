"""Terms are the same for every form of a word."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.recall import stemmer
from recto.recall.stemmer import STOP_WORDS, PorterLexicon

LEXICON = PorterLexicon()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("running", "runs"),
        ("connections", "connected"),
        ("Deploying", "deployed"),
        ("parse_header", "PARSE_HEADER"),
        ("naïve", "NAIVE"),
    ],
)
def test_forms_of_one_word_are_one_term(one, other):
    assert LEXICON.terms(one) == LEXICON.terms(other)


def test_terms_are_counted_and_fit_32_bits():
    found = LEXICON.terms("tests test tested something")
    assert sorted(found.values()) == [1, 3]
    assert all(0 <= term < 2**32 for term in found)


def test_stop_words_are_left_out_unless_there_is_nothing_else():
    assert LEXICON.terms("the database is not there") == LEXICON.terms("database")
    assert len(LEXICON.terms("who am I")) == 3


def test_negations_that_tell_texts_apart_stay():
    assert not {"never", "without", "nothing"} & STOP_WORDS
    assert 80 <= len(STOP_WORDS) <= 150


def test_a_name_keeps_its_parts_and_itself():
    assert LEXICON.terms("user").keys() < LEXICON.terms("fetch_user_data").keys()


@given(st.text())
def test_no_text_is_refused_and_a_fresh_lexicon_agrees(text):
    assert LEXICON.terms(text) == PorterLexicon().terms(text)


def test_the_terms_are_those_of_the_lane_they_are_kept_in():
    assert LEXICON.name == "porter/1"
    # CRC-32 of the stem: stored in indexes, so it must not change under this name.
    assert LEXICON.terms("databases") == {crc32(b"databas"): 1}


def test_threads_share_one(monkeypatch):
    monkeypatch.setattr(stemmer, "MAX_CACHED_WORDS", 50)
    shared = PorterLexicon()
    texts = [f"running word{number} tests{number % 7} alpha{'x' * (number % 5)}" for number in range(400)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(shared.terms, texts))
    assert found == [LEXICON.terms(text) for text in texts]
    assert len(shared._known) <= 50
