"""A user judges a recalled message: the verdict is an event, and later searches rank the message by it."""

from __future__ import annotations

import json

import pytest
from tests.engine.test_window_view import SMALL, TOOLS, opened, work

import recto
from recto.engine.prompt_diff import prompt_after
from recto.engine.window_view import window_view
from recto.errors import InputError
from recto.recall.types import Excerpt, reasons_in_words, render_quotation, split_quotation

QUESTION = "Which port does the staging server listen on?"
SETTINGS = {"model": "gpt-4o", "models": SMALL, "recall": {"embedder": {"use": "none"}, "background": False}}


def append_ports(session):
    for text in ("The staging server listens on port 8471.", "The production server listens on port 9000."):
        session.append({"role": "user", "content": text})
        session.append({"role": "assistant", "content": "Noted."})


def ranked(session, **more):
    return [(hit.seq, hit.score, hit.chance) for hit in session.recall(QUESTION, **more).hits]


def recalled_block(session, at=None):
    return next(block for block in window_view(session.window, at).blocks if block.what == "recalled")


def test_a_message_judged_not_helpful_ranks_lower_and_a_helpful_one_higher():
    with opened() as session:
        append_ports(session)
        work(session, 6)
        (first, best, chance), (second, other, _) = ranked(session)[:2]
        assert (first, second) == (1, 3)
        session.window.judge_recall(1, "not_helpful")
        session.window.judge_recall(3, "helpful")
        after = {seq: (score, relevance) for seq, score, relevance in ranked(session)}
        assert after[1] == (pytest.approx(best - 1), pytest.approx(0.5 * chance))
        assert after[3][0] == pytest.approx(other + 1)
        assert list(after)[:2] == [3, 1]
        assert session.recall(QUESTION).hits[0].helpful is True


def test_a_verdict_does_not_open_the_gate_and_repeated_verdicts_count_once():
    with opened() as session:
        append_ports(session)
        work(session, 6)
        before = {seq: (score, chance) for seq, score, chance in ranked(session)}
        for _ in range(5):
            session.window.judge_recall(3, "helpful")
        after = {seq: (score, chance) for seq, score, chance in ranked(session)}
        assert after[3] == (pytest.approx(before[3][0] + 1), before[3][1])
        session.window.judge_recall(3, "withdrawn")
        assert {seq: (score, chance) for seq, score, chance in ranked(session)} == before


def test_without_verdicts_the_ranking_is_bit_for_bit_the_same():
    with opened() as session, opened() as judged:
        for each in (session, judged):
            append_ports(each)
            work(each, 6)
        judged.window.judge_recall(5, "not_helpful")  # shares no word with the question
        assert ranked(session) == ranked(judged)


def test_verdicts_survive_a_restart_and_a_snapshot(tmp_path):
    store = str(tmp_path / "t.db")
    with recto.open(store, **SETTINGS) as session:
        append_ports(session)
        session.window.judge_recall(1, "not_helpful", question=3)
        expected = ranked(session)
        event = next(entry for entry in session.read() if entry.kind == "recall_judged")
        assert json.loads(event.content) == {"entry": 1, "verdict": "not_helpful", "question": 3}
    with recto.open(store, **SETTINGS) as session:
        assert ranked(session) == expected
        work(session)
        assert session.window._projection.snapshots > 1
    with recto.open(store, **SETTINGS) as session:
        assert session.window.state.judged == {"1": False}


def test_a_message_judged_not_helpful_is_recalled_again_only_on_a_strong_match():
    question = {"role": "user", "content": "Is there anything else to know about the production machines and the port?"}
    with opened() as session:
        append_ports(session)
        work(session)
        session.append(question)
        quoted = {hit.seq: hit.chance for hit in session.prompt(tools=TOOLS).recalled}
        assert 0.4 <= quoted[3] < 0.4 / 0.5
        session.window.judge_recall(3, "not_helpful", question=session.window.state.question)
        assert 3 in {hit.seq for hit in session.prompt(tools=TOOLS).recalled}, "the prompt of a turn stays as it is"
        session.append({"role": "assistant", "content": "No."})
        work(session, 2)
        session.append(question)
        assert 3 not in {hit.seq for hit in session.prompt(tools=TOOLS).recalled}
        session.append({"role": "assistant", "content": "No."})
        session.append({"role": "user", "content": "Which port does the production server listen on?"})
        assert 3 in {hit.seq for hit in session.prompt(tools=TOOLS).recalled}


def test_a_state_keeps_only_the_newest_verdicts():
    with opened() as session:
        for number in range(300):
            session.window.state.judge(str(number), helpful=True)
        assert list(session.window.state.judged) == [str(number) for number in range(44, 300)]


@pytest.mark.parametrize(
    ("entry", "verdict", "question"),
    [
        (99, "helpful", None),
        (1, "perhaps", None),
        (1, "helpful", 99),
        ("recto://other::agent:a:main/1", "helpful", None),
    ],
)
def test_an_invalid_verdict_is_refused_and_not_stored(entry, verdict, question):
    with opened() as session:
        append_ports(session)
        before = len(session)
        with pytest.raises(InputError):
            session.window.judge_recall(entry, verdict, question=question)
        assert len(session) == before


def test_the_window_shows_quotations_as_sent_with_reasons_and_verdict():
    with opened() as session:
        append_ports(session)
        work(session)
        question = session.append({"role": "user", "content": QUESTION})
        prompt = session.prompt(tools=TOOLS)
        sent = next(text for raw in prompt.messages if "[Quoted from" in (text := str(raw["content"])))
        session.window.judge_recall(3, "helpful", question=question.seq)
        session.append({"role": "assistant", "content": "On 8471."})
        at = len(session) - 1
        work(session, 3)
        block = recalled_block(session, at)
        assert block.text == sent
        quote = next(quote for quote in block.quotes if quote.seq == 3)
        assert quote.text == "The production server listens on port 9000."
        assert quote.question == question.seq
        assert quote.reasons == ("shares the words “port”, “server” with the question",)
        assert quote.verdict == "helpful"
        assert sent in b"\n".join(prompt_after(session.window, at).messages).decode().replace("\\n", "\n")


def test_a_long_message_of_a_past_window_is_cut_as_sent():
    filler = " ".join(f"Shelf {number} holds the folders of that year." for number in range(60))
    with opened() as session:
        append_ports(session)
        session.append({"role": "user", "content": f"{filler} The kestrel relay listens on port 7007. {filler}"})
        session.append({"role": "assistant", "content": "Noted."})
        work(session)
        session.append({"role": "user", "content": "Which port does the kestrel relay listen on?"})
        prompt = session.prompt(tools=TOOLS)
        sent = next(text for raw in prompt.messages if "[Quoted from" in (text := str(raw["content"])))
        assert "7007" in sent
        assert len(sent) < len(filler)
        session.append({"role": "assistant", "content": "On 7007."})
        at = len(session) - 1
        work(session, 3)
        assert recalled_block(session, at).text == sent


def test_reasons_name_the_two_strongest_parts_and_only_words_of_the_message():
    parts = {"words": 1.2, "meaning": 0.4, "date": 1.0, "judged": -1.0}
    reasons = reasons_in_words(parts, "What did the ORA-600 error mean on Monday?", "We saw ora-600 again.")
    assert reasons == ("shares the word “ora-600” with the question", "from the days that the question names")
    assert reasons_in_words({"words": -0.2, "meaning": 0.0}, "ports", "port") == ("shares words with the question",)
    assert "corrects an earlier statement that matched" in reasons_in_words({"words": 0.5, "takes back": 0.0}, "a", "b")


def test_a_rendered_quotation_splits_into_its_excerpts():
    text = "Port 8471.\n> a quoted line\n[End of quotation]"
    excerpts = [
        Excerpt("recto://agent:a:main/7", "user", 1_700_000_000_000_000, text),
        Excerpt("recto://b/8", "tool", 0, "x"),
    ]
    assert list(split_quotation(render_quotation(excerpts, more="2 more"))) == [
        ("recto://agent:a:main/7", "user 2023-11-14 22:13 UTC", text),
        ("recto://b/8", "tool", "x"),
    ]
