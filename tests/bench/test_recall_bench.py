"""What recall is measured by is what it says: checked by hand on small rankings, and on the sets where they are."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from math import isclose, log, log2

import numpy as np
import pytest
from bench.evidence import WAYS, WINDOWS, Outcome, Question, Said, as_draft, counted, evidence, shown, trimmed
from bench.kept_vectors import KeptVectors, opened
from bench.lexical import BASELINES, Corpus, by_stems
from bench.measure import figures, row, tables
from bench.pages import README_FIGURES
from bench.recall import Difference, compared, ranked_exchanges, ranked_sessions, searching
from bench.recall_data import (
    DATA,
    Turn,
    chat_questions,
    chats,
    conversations,
    interval,
    moment,
    ndcg,
    recall_all,
    recall_any,
    share,
)
from tests.spelling import SpellingEmbedder

from bench import recall_scale
from recto.config import load
from recto.config.factory import open_session
from recto.recall.index.message_rows import terms_of
from recto.recall.search import Searcher
from recto.recall.term_rows import is_document, row_version
from recto.recall.types import Query
from recto.stores.memory import MemoryStore

needs_the_sets = pytest.mark.skipif(not (DATA / "beam_100K").is_dir(), reason="the sets are not here")
SAID = [
    Said(turn=Turn(role="user", text=f"the colour of door {number} is number {number}"), ts=0) for number in range(20)
]


def test_all_of_the_evidence_must_be_among_the_first():
    assert recall_all("abcde", {"a", "c"}, 3) == 1
    assert recall_all("abcde", {"a", "d"}, 3) == 0
    assert recall_all("abcde", set(), 3) == 0


def test_any_of_the_evidence_is_enough_for_any():
    assert recall_any("abcde", {"c", "z"}, 3) == 1
    assert recall_any("abcde", {"d", "z"}, 3) == 0


def test_the_share_is_of_the_evidence_and_not_of_what_was_returned():
    assert share("abcde", {"a", "b", "y", "z"}, 5) == 0.5


def test_the_first_two_places_count_alike_and_later_ones_less():
    assert ndcg("ab", {"b"}, 5) == 1
    assert isclose(ndcg("abc", {"c"}, 5), 1 / log2(3))
    assert isclose(ndcg("axbycz", {"a", "b", "c"}, 5), (1 + 1 / log2(3) + 1 / log2(5)) / (2 + 1 / log2(3)))
    assert ndcg("abc", set(), 5) == 0


def test_the_interval_holds_the_mean_and_is_the_same_every_time():
    differences = [0.0, 0.0, 1.0, -1.0, 1.0] * 40
    low, high = interval(differences)
    assert low < 0.2 < high
    assert high - low < 0.3
    assert interval(differences) == (low, high)


def test_a_difference_is_taken_question_by_question():
    assert str(Difference.of([1.0, 1.0], [0.0, 0.0])) == "+1.000 [+1.000, +1.000]"


def test_the_better_baseline_is_the_one_to_beat():
    scores = {"okapi-ws": [(0.0,), (1.0,)], "porter": [(1.0,), (1.0,)], "Recto": [(1.0,), (0.0,)]}
    rows = compared("a set", scores, ["all@5"], "all@5")
    assert [one["figures"]["all@5"] for one in rows] == [0.5, 1.0, 0.5]
    assert rows[-1]["note"].startswith("all@5 -0.500")


def test_a_date_of_the_set_is_read_as_utc():
    assert moment("2023/04/10 (Mon) 17:50") == 1_681_149_000 * 1_000_000


def test_the_stemming_baseline_folds_cases_and_forms_and_drops_stop_words():
    assert by_stems("The Ponies are RUNNING") == ["poni", "run"]


def test_a_baseline_scores_as_its_formula_says():
    corpus = Corpus([Counter("abb"), Counter("ac"), Counter("a")], BASELINES["porter"])
    assert corpus.ranked(["b"], 3)[0] == 0
    pair = Corpus([Counter("ab"), Counter("cd")], BASELINES["porter"])
    assert pair.ranked(["a", "c", "c"], 2) == [1, 0], "what is asked for twice counts twice"
    assert BASELINES["porter"].worth(3, {"a": 3})["a"] == log(1 + 0.5 / 3.5)
    assert BASELINES["okapi-ws"].worth(3, {"a": 3, "b": 1})["a"] == pytest.approx(
        0.25 * (log(0.5 / 3.5) + log(2.5 / 1.5)) / 2
    )


def test_of_two_equal_documents_each_baseline_keeps_its_own_order():
    same = [Counter("a"), Counter("a")]
    assert Corpus(same, BASELINES["okapi-ws"]).ranked(["a"], 2) == [1, 0]
    assert Corpus(same, BASELINES["porter"]).ranked(["a"], 2) == [0, 1]


def test_kept_vectors_are_those_of_the_embedder_and_are_made_once(tmp_path):
    inner = SpellingEmbedder()
    first = KeptVectors(inner, opened(tmp_path / "kept.db"))
    assert np.array_equal(first.documents(["a door", "a key"]), inner.documents(["a door", "a key"]))
    assert np.array_equal(first.query("a door"), inner.query("a door"))
    again = KeptVectors(inner, opened(tmp_path / "kept.db"))
    assert np.array_equal(again.documents(["a key"]), inner.documents(["a key"]))
    assert (first.made, again.made) == (3, 0)
    for one in (first, again):
        one.kept.close()


def test_the_product_searches_only_the_sessions_it_is_given():
    turn = Turn(role="user", text="the colour of the door is green")
    searcher = searching({"agent:bench:a": [(turn, 1)], "agent:bench:b": [(turn, 1)]}, None)
    found = searcher.find(Query(text="which colour has the door?", now=1), ["agent:bench:b"])
    assert [one.session for one in found.best()] == ["agent:bench:b"]


def test_evidence_stands_whole_or_in_part_and_a_longer_number_is_another_entry():
    quoted = "recto://a/12 · user\n> The door\n> is green."
    gold = {"recto://a/1": "It is\nred.", "recto://a/12": "The door is green.", "recto://a/3": "so it  was said"}
    assert evidence([quoted, "so it was said"], gold) == (2 / 3, 2 / 3)
    assert evidence(["recto://a/3 · user\n> … it was"], {"recto://a/3": "so it was said"}) == (0, 1)


def test_plain_trimming_keeps_the_newest_that_fit_and_the_whole_history_all():
    settings = load(environ={}, arguments={"store": "memory:", "model": "gpt-4o"})
    with open_session(settings) as session:
        asked = Question(text="which?", ts=0, gold=frozenset({0, 19}))
        cost = counted(session, "", SAID[0]).tokens
        some = trimmed(session, SAID, asked, most=cost * 8)
        assert some.whole == 0.5
        assert cost * 6 < some.tokens <= cost * 8
        assert trimmed(session, SAID, asked, most=None).whole == 1


def test_a_copied_session_is_the_same_to_the_last_hash():
    settings = load(environ={}, arguments={"store": "memory:", "model": "gpt-4o"})
    store, copy = MemoryStore(), MemoryStore()
    with open_session(settings, store) as session:
        session.append({"role": "user", "content": "hello"})
        session.record("made_up", {"a": 1})
    copy.append(settings.session, [as_draft(entry) for entry in store.read(settings.session)])
    assert copy.head(settings.session) == store.head(settings.session)


def test_made_up_messages_have_the_terms_that_a_lexicon_finds_in_them():
    made = recall_scale.Made(3)
    lexicon = recall_scale.PorterLexicon()
    for draft in made.page(1, 3):
        text = draft.content.decode().split('"content":"')[1].rstrip('"}')
        assert is_document(draft.terms, row_version(lexicon))
        assert sorted(terms_of(draft.terms).tolist()) == sorted(lexicon.terms(text))


def test_a_session_with_others_beside_it_finds_what_it_found_alone(tmp_path):
    made = recall_scale.Made(3)
    question = Query(text=made.question(300, 3_000), now=1)

    def found(session: str) -> list[tuple[int, float]]:
        with closing(recall_scale.Place(tmp_path)) as place:
            ranked = Searcher(place.indexer()).find(question, [session]).best()
        return [(one.seq, one.score) for one in ranked]

    with closing(recall_scale.Place(tmp_path)) as place:
        recall_scale.fill(place, made, "agent:bench:a", 1_500, "")
    alone, size = found("agent:bench:a"), recall_scale.index_bytes(tmp_path)
    with closing(recall_scale.Place(tmp_path)) as place:
        recall_scale.copy_sessions(place, "agent:bench:a", 3)
    assert recall_scale.index_bytes(tmp_path) > 3 * size
    assert len(alone) > 100
    assert found("agent:bench:a") == alone
    assert found("agent:other:2") == alone


def test_rows_of_several_figures_get_a_table_of_their_own():
    rows = [row("a", 1.5, "s", digits=1), figures("b", {"x": 0.25, "n": 3}), figures("c", {"x": 0.5, "n": 4})]
    assert tables(rows) == [
        (["what", "value", "unit", "note"], [["a", "1.5", "s", ""]]),
        (["what", "x", "n", "note"], [["b", "0.250", "3", ""], ["c", "0.500", "4", ""]]),
    ]


def test_the_rows_of_evidence_that_the_readme_wants_are_called_as_they_are_measured():
    outcome = Outcome(in_part=1, whole=1, tokens=1, recalled=0)
    rows = shown("BEAM", {(window, way): [outcome] for window in WINDOWS for way in WAYS})
    wanted = {what for one in README_FIGURES for what in (one.ours, one.other) if what.startswith("BEAM, ")}
    assert wanted
    assert wanted <= {one["what"] for one in rows}


@needs_the_sets
def test_the_questions_about_chats_are_read_whole():
    known, asked = chats(), chat_questions()
    assert (len(known), len(asked), sum(one.strict for one in asked)) == (940, 470, 419)
    assert all(len(one.haystack) == 48 and one.sessions <= set(one.haystack) for one in asked)
    assert all(known[name].turns[place].role == "user" for one in asked for name, place in one.said_by_user)


@needs_the_sets
def test_the_long_conversations_are_read_whole():
    talks = conversations()
    assert (len(talks), sum(len(talk.questions) for talk in talks)) == (20, 355)
    for talk in talks:
        assert talk.turns[0].role == "user"
        assert all(talk.turns[place].role == "user" for place in set(talk.exchanges))
        assert all(0 <= place < len(talk.turns) for one in talk.questions for place in one.gold)


def test_sessions_are_ranked_by_their_best_turns_and_as_a_whole():
    said = {
        "agent:bench:a": ["the green door", "a door", "the weather"],
        "agent:bench:b": ["the green door and the green gate", "green doors", "green"],
        "agent:bench:c": ["nothing of it"],
    }
    turns = {key: [(Turn(role="user", text=text), 1) for text in texts] for key, texts in said.items()}
    found = searching(turns, None).find(Query(text="green door", now=1), list(turns))
    assert ranked_sessions(found) == [("agent:bench:b", 0), ("agent:bench:a", 0)]


def test_exchanges_are_ranked_by_their_best_messages_and_known_by_their_first_entry():
    spoken = [
        ("user", "the door?"),
        ("assistant", "It is a door."),
        ("user", "which door is green?"),
        ("assistant", "one"),
    ]
    turns = {"agent:bench:a": [(Turn(role=role, text=text), 1) for role, text in spoken]}
    found = searching(turns, None).find(Query(text="green door", now=1), list(turns))
    assert ranked_exchanges(found) == [("agent:bench:a", 3), ("agent:bench:a", 1)]
