"""Extractive summaries: a conversation is summarised by its own sentences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.context.real_messages import count, sessions, views_of

from recto.context.compaction.extractive import extract_sentences
from recto.context.facts.types import MessageView
from recto.text.secrets import mask_secrets
from recto.text.sentences import join_sentences, shorten, split_sentences

WORDS = st.sampled_from(
    ["we", "found", "the", "index", "broken", "because", "twice", "42", "src/mill.py", "fixed", "`ok`"]
)
SENTENCES = st.lists(WORDS, min_size=1, max_size=12).map(lambda words: " ".join(words) + ".")
TEXTS = st.lists(SENTENCES, max_size=5).map(" ".join) | st.text(max_size=120)
DIALOGUES = st.lists(
    st.tuples(st.sampled_from(["user", "assistant", "tool", "system", "event"]), TEXTS), max_size=8
).map(lambda drawn: [MessageView(seq=seq, role=role, text=text) for seq, (role, text) in enumerate(drawn, 1)])


def flat(text):
    return " ".join(text.split())


@given(DIALOGUES, st.integers(0, 80), TEXTS, st.sampled_from([count, len]))
@settings(max_examples=80)
def test_extracted_sentences_are_verbatim_in_order_and_within_their_tokens(views, tokens, goal, count):
    picked = extract_sentences(views, goal=goal, tokens=tokens, count=count)
    sources = {sentence.seq: flat(mask_secrets(sentence.text)) for sentence in views}
    assert all(sentence.text in sources[sentence.seq] for sentence in picked)
    assert [sentence.seq for sentence in picked] == sorted(sentence.seq for sentence in picked)
    assert count("\n".join(sentence.text for sentence in picked)) <= tokens
    assert len({sentence.text.lower() for sentence in picked}) == len(picked)
    assert picked == extract_sentences(views, goal=goal, tokens=tokens, count=count)


def views_from(*lines):
    return [MessageView(seq=seq, role=role, text=text) for seq, (role, text) in enumerate(lines, 1)]


CONVERSATION = views_from(
    ("user", "The nightly export is empty since Tuesday. Find out why."),
    ("assistant", "Let me look at the export job."),
    ("tool", "drwxr-xr-x 2 ada ada 4096 export\n" * 50),
    ("assistant", "I'll now check the log."),
    ("tool", "INFO start\nPermissionError: [Errno 13] Permission denied: '/var/export/day.csv'\nINFO end"),
    ("assistant", "Great! The cause is that the export runs as `ada`, who may not write to /var/export since Tuesday."),
    ("user", "Use the group `export` instead, never chmod 777."),
    ("assistant", "Done: /var/export belongs to the group `export` and the job wrote 1,204 rows."),
)


def test_requests_causes_and_outcomes_come_before_idle_talk():
    texts = [sentence.text for sentence in extract_sentences(CONVERSATION, tokens=90, count=count)]
    assert "The nightly export is empty since Tuesday." in texts
    assert "Use the group `export` instead, never chmod 777." in texts
    assert any("1,204 rows" in text for text in texts)
    assert not any("Let me" in text or "I'll now" in text or "drwx" in text for text in texts)


def test_only_errors_of_a_long_output_are_extracted():
    views = views_from(("tool", "ordinary line of output here\n" * 200 + "fatal: bad object 082c2c44 in the index\n"))
    assert [sentence.text for sentence in extract_sentences(views, tokens=100, count=count)] == [
        "fatal: bad object 082c2c44 in the index"
    ]


def test_sentences_about_the_focus_are_extracted_first():
    views = views_from(
        ("assistant", "The parser reads every token twice and fails on comments."),
        ("assistant", "The printer drops the last page of each document."),
        ("assistant", "The scanner confuses tabs with spaces in tables."),
    )
    for focus, expected in (("printer pages", 2), ("scanner tabs", 3), ("parser comments", 1)):
        assert extract_sentences(views, focus=focus, tokens=18, count=count)[0].seq == expected


def test_near_duplicates_are_extracted_once():
    views = views_from(
        ("assistant", "The post-commit hook rewrites the index of the worktree."),
        ("assistant", "The post-commit hook rewrites the index of that worktree."),
        ("assistant", "the post-commit hook rewrites the index of the worktree."),
        ("assistant", "Mind the gap between the platforms at dawn."),
    )
    texts = [sentence.text for sentence in extract_sentences(views, tokens=200, count=count)]
    assert len(texts) == 2
    assert "Mind the gap between the platforms at dawn." in texts


def test_code_tables_and_tagged_blocks_are_not_sentences():
    text = "It works like this now.\n```\nx = compute(1)\n```\n| a | b |\n<note>\ninner words\n</note>\nIt is done."
    assert split_sentences(text) == ["It works like this now.", "It is done."]


def test_a_wrapped_sentence_is_joined_and_list_items_are_split():
    text = "The first sentence is long enough to be broken by its writer\nsomewhere in it. Second.\n- one item\n- two"
    assert split_sentences(text) == [
        "The first sentence is long enough to be broken by its writer somewhere in it.",
        "Second.",
        "one item",
        "two",
    ]
    assert split_sentences("**2. Resume** works, e.g. Monday. 很好。再见") == [
        "**2. Resume** works, e.g. Monday.",
        "很好。",
        "再见",
    ]


def test_no_word_is_cut_in_two():
    assert shorten("cut at 123456 here", 10) == "cut at"
    assert shorten("/a/long/path/of/a/file.py", 10) == ""
    assert shorten("first part, second part", 14) == "first part"
    assert shorten("这是一个句子", 3) == "这是一"


def test_joined_sentences_are_separated_by_punctuation():
    assert join_sentences(["One.", "two", "three"]) == "One. two; three"


def test_vectors_are_used_if_available():
    views = views_from(
        ("assistant", "The cat sat on the mat."),
        ("assistant", "A feline rested upon a rug."),
        ("assistant", "Taxes rise again in spring."),
    )
    embedded = []

    def vectors(texts):
        embedded.extend(texts)
        return np.array(
            [[1.0, 0.0] if "cat" in text or "feline" in text else [0.0, 1.0] for text in texts], dtype=np.float32
        )

    picked = extract_sentences(views, tokens=200, count=count, vectors=vectors)
    assert len(embedded) == 3
    assert len([sentence for sentence in picked if sentence.seq in (1, 2)]) == 1


def test_secrets_stay_out():
    key = "ghp_" + "a1B2c3D4e5" * 3 + "F6g7H8"
    picked = extract_sentences(
        views_from(("user", f"Please use the token {key} for the deploy.")), tokens=100, count=count
    )
    assert picked
    assert all(key not in sentence.text for sentence in picked)


@pytest.mark.parametrize(
    "text", ["a" * 10_000_000, "A b c. " * 400_000, "\ud800 x y z.\n" * 300_000, "```\n" * 500_000]
)
def test_hostile_texts_are_processed_quickly(text):
    views = views_from(("user", text), ("assistant", text), ("tool", text))
    assert count("\n".join(sentence.text for sentence in extract_sentences(views, tokens=50, count=count))) <= 50


def test_summaries_of_real_sessions_use_mostly_words_of_user_and_assistant(data):
    for path in sessions(data, 3):
        views = views_of(path)
        picked = extract_sentences(views, goal=views[0].text, tokens=1_000, count=count)
        roles = {sentence.seq: sentence.role for sentence in views}
        sources = {sentence.seq: flat(mask_secrets(sentence.text)) for sentence in views}
        assert all(sentence.text in sources[sentence.seq] for sentence in picked)
        assert sum(count(sentence.text) for sentence in picked) > 800
        speakers = [roles[sentence.seq] for sentence in picked]
        assert speakers.count("user") + speakers.count("assistant") > 0.7 * len(picked)
