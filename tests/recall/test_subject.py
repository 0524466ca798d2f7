"""The subject of a question is its topic, without the requested form of the answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recto
from recto.recall.search import asks_for_fact, subject_of

ORDER = (
    "Can you list the order in which I brought up different aspects of my herb garden throughout our conversations, "
    "in order? Mention ONLY and ONLY three items."
)


@pytest.mark.parametrize(
    ("question", "subject"),
    [
        (ORDER, "herb garden"),
        ("Could you give me a clear summary of how we fixed the tax module?", "fixed the tax module?"),
        ("Please walk me through the various stages of the patent process.", "patent process."),
        (
            "In our previous chat about powwows, which game did the dancers play?",
            "powwows, which game did the dancers play?",
        ),
        ("Summarize what we've discussed about invoices", "invoices"),
    ],
)
def test_phrases_on_the_answer_and_the_conversation_are_not_part_of_the_subject(question, subject):
    assert subject_of(question) == subject


@pytest.mark.parametrize(
    "question",
    [
        "Where is my order from the book shop?",
        "Can you provide the failing tests?",
        "How does the chat session store its list of items?",
        "Sort the rows in order to find the newest session.",
        "What is the summary line of commit 1f3a?",
        "当時の注文は？",
        "",
    ],
)
def test_a_question_without_such_a_phrase_is_its_own_subject(question):
    assert subject_of(question) == question


def test_a_question_of_only_such_phrases_stays_whole():
    assert subject_of("Can you walk me through it, in order?") == "Can you walk me through it, in order?"


def test_a_long_text_stays_whole():
    text = "Summarize this: " + "a line of a log file. " * 60
    assert subject_of(text) == text


@given(st.text())
def test_a_subject_is_never_empty_or_longer_than_its_question(question):
    assert len(subject_of(question)) <= len(question)
    assert bool(subject_of(question)) == bool(question)


def test_a_question_on_the_order_of_events_is_searched_by_the_topic_of_the_events():
    with recto.open("memory:", model="gpt-4o", recall={"embedder": {"use": "none"}}) as session:
        for text in (
            "The herb patch needs basil first.",
            "Which aspects of our conversations do you list in order? Mention only the items brought up throughout.",
            "Mention the different aspects of the order list, item by item, throughout.",
            "Now the garden gets a fence.",
        ):
            session.append({"role": "user", "content": text})
            session.append({"role": "assistant", "content": "Noted."})
        found = [hit.text for hit in session.recall(ORDER, most=2).hits]
        assert sorted(found) == ["Now the garden gets a fence.", "The herb patch needs basil first."]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How many times did I reset the router?", True),
        ("When is the review?", True),
        ("Have I used Flask before?", True),
        (ORDER, True),
        ("Could you show me how to implement a login?", False),
        ("What libraries would you suggest?", False),
        ("The tests were red when I left. Fix them.", False),
        ("Here is the log. " * 100 + "When was that?", False),
        ("", False),
    ],
)
def test_a_factual_question_is_not_a_request(question, expected):
    assert asks_for_fact(question) is expected


def test_a_user_rule_ranks_higher_for_a_request_but_not_for_a_factual_question():
    with recto.open("memory:", model="gpt-4o", recall={"embedder": {"use": "none"}}) as session:
        session.append({"role": "user", "content": "Always add type hints to Python functions."})
        session.append({"role": "user", "content": "I wrote four Python functions for the parser."})
        rule, _ = sorted(session.recall("Can you write two Python functions?").hits, key=lambda hit: hit.seq)
        assert rule.parts["standing"] > 0
        hits = session.recall("How many Python functions did I write?").hits
        assert all("standing" not in hit.parts for hit in hits)
        assert [hit.seq for hit in hits] == [2, 1]
