"""Questions in other languages find their messages by other forms of their words; English stems alone find fewer."""

from __future__ import annotations

import pytest
from bench.languages import EnglishStems, questions, recalled

from recto.recall.stemmer import PorterLexicon

KNOWN = questions()


@pytest.fixture(scope="module")
def now():
    return recalled(KNOWN, PorterLexicon())


@pytest.fixture(scope="module")
def before():
    return recalled(KNOWN, EnglishStems())


@pytest.mark.parametrize("language", KNOWN)
def test_a_question_finds_the_message_that_answers_it(language, now, before):
    first, of_five = now[language]
    assert of_five == 1
    assert first >= 0.6
    assert first > before[language][0]


def test_the_set_is_large_enough_to_tell_ways_apart():
    assert sum(len(asked) >= 20 for asked in KNOWN.values()) >= 4
    messages = [message for asked in KNOWN.values() for _, *both in asked for message in both]
    assert len(set(messages)) == len(messages)
