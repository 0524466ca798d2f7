"""Recall: evicted messages are quoted when relevant, within a budget, for one turn; nothing is evicted unindexed."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs
from tests.context.facts.test_classifier import TAKES_BACK

import recto
from recto.errors import EmbedderFailed, InputError, StoreUnavailable, WindowOverflow
from recto.formats import problems
from recto.recall.index.message_rows import MessageRows
from recto.recall.index.rows import SealedRange
from recto.recall.stemmer import PorterLexicon
from recto.recall.term_rows import signature_of
from recto.recall.types import FOOTER, HEADER, Query
from recto.stores.sqlite import SqliteStore
from recto.testing import scripted_session
from recto.transcript.entries import Draft, to_json
from recto.transcript.session_keys import pointer_to

SMALL = {"gpt-4o": {"window": 5_000, "max_input": 5_000}}
WORDS = {"embedder": {"use": "none"}, "background": False}


def opened(store="memory:", *, recall=None, **more):
    return recto.open(store, model="gpt-4o", models=SMALL, recall=WORDS | (recall or {}), **more)


def say(session, text, answer="Noted."):
    """Runs a turn: appends the user message, builds the prompt, appends the answer."""
    session.append({"role": "user", "content": text})
    prompt = session.prompt()
    session.append({"role": "assistant", "content": answer})
    return prompt


def chatter(session, turns, start=0):
    for turn in range(start, start + turns):
        topic = ("gardening", "the weather", "a film", "cooking rice", "train journeys")[turn % 5]
        say(
            session,
            f"Tell me something pleasant about {topic}, number {turn}.",
            f"{topic.title()} {turn}: " + "leaves drift, rivers pass, bread rises. " * 22,
        )


def events(session, kind):
    return [json.loads(entry.content) for entry in session.read() if entry.kind == kind]


def quotation(prompt):
    """Returns the quotation in the prompt, or an empty text."""
    texts = [str(message["content"]) for message in prompt.messages if message["role"] == "user"]
    return next((text for text in texts if text.startswith(HEADER)), "")


@pytest.mark.requirement("recall.before-inference")
def test_an_evicted_message_is_quoted_above_the_question_with_its_pointer():
    with opened() as session:
        say(session, "Hello.")
        fact = session.append({"role": "user", "content": "The staging rotation happens at Kilimanjaro hour 17."})
        session.append({"role": "assistant", "content": "Noted."})
        chatter(session, 40)
        prompt = say(session, "When does the staging rotation happen?")
        recalled = quotation(prompt)
        assert "Kilimanjaro hour 17" in recalled
        assert recalled.endswith(FOOTER)
        where = [message["content"] for message in prompt.messages]
        question = where.index("When does the staging rotation happen?")
        assert where.index(recalled) == question - 3, "before the exchange that the question follows"
        assert prompt.messages[question - 2]["role"] == "user"
        assert prompt.messages[question - 1]["role"] == "assistant"
        assert pointer_to(session.key, fact.seq) in recalled
        assert problems(prompt.raw, prompt.built.wire) == []


def work_on(session, steps, *, thinking=False):
    """Steps of an agent, each a call with its result, in Anthropic's format. A fact is said in the first one."""
    session.append({"role": "user", "content": "Set up the cluster."})
    for step in range(steps):
        call = {"type": "tool_use", "id": f"call_{len(session)}", "name": "run", "input": {"step": step}}
        thought = [{"type": "thinking", "thinking": "Next.", "signature": "sig"}] if thinking else []
        text = "Leaves drift, rivers pass, bread rises. " * 12 if step else "The staging rotation: Kilimanjaro hour 17."
        session.append({"role": "assistant", "content": [*thought, {"type": "text", "text": text}, call]})
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": f"step {step} is done. " * 40}
        session.append({"role": "user", "content": [result]})
        session.prompt()
    session.append({"role": "assistant", "content": [{"type": "text", "text": "All steps are done."}]})


def quoted_place(session):
    """Where the quotation and the question are in a prompt that asks for an evicted message."""
    session.append({"role": "user", "content": "When does the staging rotation happen?"})
    prompt = session.prompt()
    assert problems(prompt.raw, "anthropic.messages") == []
    texts = [json.dumps(message["content"]) for message in prompt.messages]
    [place] = [at for at, text in enumerate(texts) if HEADER in text]
    assert "Kilimanjaro hour 17" in texts[place]
    return place, prompt.messages


def of_claude(model):
    models = {model: {"window": 5_000, "max_input": 5_000}}
    return recto.open("memory:", model=model, models=models, recall=WORDS)


def test_a_quotation_is_three_steps_above_the_question_and_never_between_a_call_and_its_result():
    with of_claude("claude-sonnet-4-5") as session:
        work_on(session, 40)
        place, messages = quoted_place(session)
        above = messages[place + 1 :]
        assert [message["role"] for message in above] == ["assistant", "user", "assistant", "user", "assistant", "user"]
        assert above[-1]["content"] == "When does the staging rotation happen?"


def test_a_quotation_is_above_what_the_user_said_right_before_the_question():
    with of_claude("claude-sonnet-4-5") as session:
        work_on(session, 40)
        session.append({"role": "user", "content": "[Request interrupted by user]"})
        place, messages = quoted_place(session)
        roles = [message["role"] for message in messages[place + 1 :]]
        assert roles == ["assistant", "user", "assistant", "user", "assistant", "user", "user"]


def test_a_quotation_stays_where_it_is_while_the_turn_lasts():
    with of_claude("claude-sonnet-4-5") as session:
        work_on(session, 40)
        _, before = quoted_place(session)
        call = {"type": "tool_use", "id": "last", "name": "run", "input": {}}
        session.append({"role": "assistant", "content": [call]})
        result = {"type": "tool_result", "tool_use_id": "last", "content": "done"}
        session.append({"role": "user", "content": [result]})
        assert session.prompt().messages[: len(before)] == before


def test_a_quotation_is_before_the_question_where_it_would_invalidate_thinking():
    with of_claude("claude-opus-5-1") as session:
        work_on(session, 40, thinking=True)
        place, messages = quoted_place(session)
        assert messages[place + 1]["content"] == "When does the staging rotation happen?"


@pytest.mark.requirement("recall.bounded")
def test_recall_stays_within_the_memory_budget_and_the_prompt_within_the_input_budget():
    with opened() as session:
        say(session, "Hello.")
        for number in range(12):
            say(
                session,
                f"Visit {number} to the lighthouse of Arkadia: it has {number} steps. " + "We came by sea. " * 12,
            )
        chatter(session, 40)
        prompt = say(session, "How many steps does the lighthouse of Arkadia have?")
        assert prompt.recalled
        usage = {usage.component: usage for usage in session.report().components}
        spent = session.count({"role": "user", "content": quotation(prompt)})
        assert 0 < spent <= usage["memory"].hard
        assert prompt.tokens == session.count(list(prompt.raw)) <= session.window.budget.input_budget


@pytest.mark.requirement("recall.before-inference")
def test_recall_is_transient_and_never_stored_as_a_message():
    with opened() as session:
        say(session, "First of all, hello.")
        say(session, "The backup key lives in the vault named Obsidian.")
        chatter(session, 40)
        prompt = say(session, "In which vault does the backup key live?")
        assert "Obsidian" in quotation(prompt)
        assert not any(HEADER.encode() in entry.content for entry in session.read())
        payload = events(session, "recall_injected")[-1]
        assert payload["tokens"] > 0
        assert payload["hits"][0]["pointer"].startswith("recto://")
        assert {"words", "meaning"} <= payload["hits"][0]["parts"].keys()
        assert HEADER not in json.dumps(say(session, "Thank you, and good bye.").messages) or prompt.recalled != ()


@pytest.mark.requirement("recall.diagnostics")
def test_nothing_is_recalled_below_the_relevance_threshold():
    with opened(recall={"threshold": 0.5}) as session:
        say(session, "Hello.")
        chatter(session, 40)
        prompt = say(session, "Zweisprachige Quantenflöten?")
        assert quotation(prompt) == ""
        assert prompt.recalled == ()
        missed = events(session, "recall_miss")[-1]
        assert missed["best"] < missed["threshold"] == 0.5


def test_messages_in_the_prompt_are_not_recalled():
    with opened() as session:
        say(session, "Hello.")
        chatter(session, 40)
        say(session, "The secret ingredient is cardamom from Alleppey.")
        prompt = say(session, "What is the secret ingredient from Alleppey?")
        assert "cardamom" not in quotation(prompt)


@pytest.mark.promise
@pytest.mark.requirement("recall.corrections")
def test_an_early_correction_is_recalled_and_the_wrong_statement_never_alone(scale):
    with opened() as session:
        say(session, "Hello, we will work on the shop.")
        wrong = session.append({"role": "user", "content": "The production database is orders_old on port 5432."})
        session.append({"role": "assistant", "content": "Noted: orders_old, port 5432."})
        chatter(session, 10)
        right = session.append(
            {
                "role": "user",
                "content": "No, that was wrong: the production database is orders_main on port 6543, not orders_old.",
            }
        )
        session.append({"role": "assistant", "content": "Corrected: orders_main, port 6543."})
        chatter(session, scale(100, ci=300, release=300), start=10)
        assert right.seq not in session.window.state.messages
        prompt = say(session, "Which production database do we connect to, and on which port?")
        back = quotation(prompt)
        assert "orders_main on port 6543" in back
        assert pointer_to(session.key, right.seq) in back
        if pointer_to(session.key, wrong.seq) + " ·" in back:
            assert f"superseded by {pointer_to(session.key, right.seq)}" in back
        found = session.recall("Which production database, on which port?")
        by_seq = {hit.seq: hit for hit in found.hits}
        assert by_seq[wrong.seq].superseded_by == right.seq
        assert found.hits[0].seq == right.seq or by_seq[right.seq].score >= by_seq[wrong.seq].score


def test_a_long_answer_is_not_superseded_by_a_correction_of_something_else():
    advice = "Medical bills of 350 a month need a budget of their own. Keep an emergency fund; compare insurers. " * 3
    with opened() as session:
        session.append({"role": "user", "content": "How do I pay for medical bills?"})
        session.append({"role": "assistant", "content": advice})
        session.append({"role": "user", "content": "I've increased my emergency fund to 4000, which covers expenses."})
        hits = session.recall("medical bills and emergency fund").hits
        assert {hit.role for hit in hits} == {"user", "assistant"}
        assert all(hit.superseded_by is None for hit in hits)


@pytest.mark.parametrize(("later", "earlier"), TAKES_BACK)
def test_a_correction_is_found_in_a_short_and_in_a_long_session(later, earlier):
    for length in (0, 40):
        with opened() as session:
            chatter(session, length)
            wrong = session.append({"role": "user", "content": earlier})
            session.append({"role": "assistant", "content": "Noted."})
            right = session.append({"role": "user", "content": later})
            hits = {hit.seq: hit for hit in session.recall(earlier).hits}
            assert hits[wrong.seq].superseded_by == right.seq


LESSONS = (
    "I'm trying to understand an isosceles triangle with sides 5 and 8, can you help me with the angles?",
    "I'm trying to find the area of a triangle with sides 7, 24 and 25, can you help me with the formula?",
    "I'm trying to prove that two triangles with sides 6 and 9 are similar, can you help me with the proof?",
    "I'm trying to draw a triangle with sides 4 and 4 and an angle of 40, can you help me with the compass?",
)


def test_questions_about_one_subject_are_not_superseded_by_a_correction_of_another():
    with opened() as session:
        for number in range(24):
            session.append({"role": "user", "content": f"{LESSONS[number % 4]} It is on page {number + 100}."})
        wrong = session.append({"role": "user", "content": "The semi-perimeter of exercise 31 is 12."})
        session.append({"role": "assistant", "content": "Then the area follows from it."})
        text = "I made a mistake with the triangle: the semi-perimeter of exercise 31 is 18, not 12. Can you help me?"
        right = session.append({"role": "user", "content": text})
        hits = session.recall("semi-perimeter of exercise 31, triangle with sides 7, 24 and 25", most=20).hits
        assert len(hits) > 5
        assert {hit.seq: hit.superseded_by for hit in hits if hit.superseded_by} == {wrong.seq: right.seq}


def test_a_long_statement_is_not_shown_without_its_short_correction():
    """Duplicates of a long message are detected by a sample of its terms, corrections by all of them."""
    with opened() as session:
        words = " ".join(f"{chr(97 + n % 26)}{n}word" for n in range(900))
        wrong = session.append({"role": "user", "content": f"The turbine Zephyrine runs at 4711 turns. {words}"})
        right = session.append({"role": "user", "content": "No, that was wrong: Zephyrine runs at 5822, not 4711."})
        hits = {hit.seq: hit for hit in session.recall("How fast does the turbine Zephyrine run?").hits}
        assert hits[wrong.seq].superseded_by == right.seq
        assert hits[right.seq].supersedes == (wrong.seq,)


def test_stored_and_recomputed_message_rows_are_equal():
    with opened() as session:
        message = session.append({"role": "user", "content": "The lighthouse of Arkadia has 99 steps."})
        session.recall("lighthouse")
        rows = session.window._recall.recall.searcher.rows
        key = session.key, message.seq
        (stored,) = rows.of([key]).values()
        store = session.store
        unsigned = stored.replace(signature_of(stored), bytes(3))
        for other in (b"of another version", unsigned):
            store.add_terms(session.key, [replace(message, terms=other)])
            assert store.pick_terms(session.key, [message.seq]) == {message.seq: other}
            assert MessageRows(store, PorterLexicon()).of([key]) == {key: stored}
        assert rows.of([(session.key, 999)]) == {}


def test_rows_of_sealed_messages_are_cached_per_transcript():
    with opened() as session:
        message, other = (
            session.append({"role": "user", "content": text}) for text in ("The mast is 17 m.", "A film.")
        )
        key, store = (session.key, message.seq), session.store
        rows = MessageRows(store, PorterLexicon())
        first, second = rows.of([key, (session.key, other.seq)]).values()
        here = {session.key: SealedRange(block=7, last=message.seq)}
        assert rows.of([key], here) == {key: first}
        store.add_terms(session.key, [replace(message, terms=second)])
        assert rows.of([key], here) == {key: first}
        for elsewhere in (
            None,
            {session.key: SealedRange(block=8, last=message.seq)},
            {session.key: SealedRange(7, 0)},
        ):
            assert rows.of([key], elsewhere) == {key: second}


def test_the_same_transcript_gives_the_same_prompt_after_a_restart(tmp_path):
    with opened(tmp_path / "a.db") as session:
        say(session, "Hello.")
        say(session, "The printer on floor three is called Gutenberg.")
        chatter(session, 40)
        session.append({"role": "user", "content": "What is the printer on floor three called?"})
        before = session.prompt()
    assert "Gutenberg" in quotation(before)
    with opened(tmp_path / "a.db") as session:
        count = len(session)
        assert session.prompt().raw == before.raw
        assert len(session) == count  # logged once
    (tmp_path / "a.db-recall").unlink()
    with opened(tmp_path / "a.db") as session:
        session.window.recall("anything")  # a missing index is rebuilt
        assert session.prompt().raw == before.raw


def test_the_quotation_stays_in_place_during_a_turn_until_a_decision():
    with opened() as session:
        say(session, "Hello.")
        say(session, "The deploy script is tools/ship_it.sh and wants the flag --really.")
        chatter(session, 40)
        session.append({"role": "user", "content": "Which flag does the deploy script want?"})
        before = session.prompt()
        assert "--really" in quotation(before)
        for step in range(6):
            call = {"id": f"c{step}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            session.append({"role": "assistant", "content": None, "tool_calls": [call]})
            session.append({"role": "tool", "tool_call_id": f"c{step}", "content": "nothing here"})
            after = session.prompt()
            if not after.decisions:
                assert after.raw[: len(before.raw)] == before.raw
            before = after


def test_every_prompt_with_recall_fits_and_is_valid():
    with opened() as session:
        for message in scripted_session(seed=3, exchanges=60):
            if message["role"] == "assistant":
                prompt = session.prompt()
                assert prompt.tokens == session.count(list(prompt.raw)) <= session.window.budget.input_budget
                assert problems(prompt.raw, prompt.built.wire) == []
            session.append(message)
        assert events(session, "recall_injected")


class Failing:
    """An embedder that fails on demand."""

    name, dims, weight = "failing/1", 8, 0.7

    def __init__(self):
        self.works = threading.Event()

    def documents(self, texts):
        if not self.works.is_set():
            raise EmbedderFailed(self.name, "the plug is out")
        return np.ones((len(texts), 8), np.float32) / np.sqrt(8)

    def query(self, text):
        return self.documents([text])


def with_embedder(session, embedder):
    """Returns the session with its embedder replaced."""
    from recto.recall.indexer import Indexer
    from recto.recall.recall import RecallRules, RecallService
    from recto.recall.search import Searcher
    from recto.recall.stemmer import PorterLexicon
    from recto.stores.memory import MemoryIndex

    indexer = Indexer(session.store, MemoryIndex(), lexicon=PorterLexicon(), embedder=embedder, in_background=False)
    recall = RecallService(Searcher(indexer), session.key, rules=RecallRules(index_seconds=5.0))
    session.window._recall.recall = recall
    return session


def test_with_a_failing_embedder_units_are_evicted_with_words_only_and_the_decision_says_so():
    embedder = Failing()
    with with_embedder(opened(), embedder) as session:
        say(session, "Hello.")
        chatter(session, 80)
        failed = events(session, "index_failed")
        assert failed
        assert failed[0]["words"] is True
        assert "the plug is out" in failed[0]["reason"]
        decisions = events(session, "context_window_pruned")
        assert decisions
        for decision in decisions:
            assert decision["indexed"].startswith("words alone")
        embedder.works.set()
        chatter(session, 80)
        assert events(session, "context_window_pruned")[-1]["indexed"] == "words and vectors"


def test_the_alert_is_raised_once_and_not_at_every_turn():
    with with_embedder(opened(), Failing()) as session:
        say(session, "Hello.")
        chatter(session, 80)
        assert len(events(session, "index_failed")) == 1


@pytest.mark.requirement("recall.off")
def test_disabled_recall_searches_nothing_and_decisions_say_so():
    with opened(recall={"enabled": False}) as session:
        say(session, "Hello.")
        chatter(session, 40)
        assert events(session, "context_window_pruned")[0]["indexed"] == "off"
        assert not events(session, "recall_miss")
        with pytest.raises(InputError, match=r"recall\.enabled"):
            session.recall("anything")


@pytest.mark.requirement("recall.bounded")
def test_a_pointer_reads_its_message_and_a_foreign_pointer_looks_unknown():
    store = recto.open("memory:").store
    with opened(store, session="agent:a:one") as own_session, opened(store, session="agent:b:two") as foreign_session:
        entry = own_session.append({"role": "user", "content": "mine"})
        pointer = own_session.window.pointer(entry.seq)
        assert [entry.content for entry in own_session.window.read(pointer)] == [entry.content]
        with pytest.raises(InputError) as foreign:
            foreign_session.window.read(pointer)
        with pytest.raises(InputError) as unknown:
            foreign_session.window.read("recto://agent:b:two/99")
        assert str(foreign.value).replace(pointer, "") == str(unknown.value).replace("recto://agent:b:two/99", "")


def test_the_scope_limits_the_search():
    store = recto.open("memory:").store
    with (
        opened(store, session="agent:a:one") as first,
        opened(store, session="agent:a:two") as second,
        opened(store, session="agent:ab:three") as third,
    ):
        for session in (first, second, third):
            session.append({"role": "user", "content": f"The telescope of {session.key} looks at Vega."})
            session.recall("telescope")
        # Here each session has its own in-memory index; only a file store shares one.
        assert {hit.session for hit in first.recall("telescope Vega").hits} == {first.key}


def test_agent_scope_searches_all_sessions_of_the_agent(tmp_path):
    keys = ("agent:a:one", "agent:a:two", "agent:ab:three", "chat")
    for key in keys:
        with opened(tmp_path / "a.db", session=key) as session:
            session.append({"role": "user", "content": f"The telescope of {key} looks at Vega."})
            session.recall("telescope")
    with opened(tmp_path / "a.db", session="agent:a:one") as session:
        assert {hit.session for hit in session.recall("telescope Vega").hits} == {"agent:a:one"}
        found = session.recall("telescope Vega", scope="agent")
        assert {hit.session for hit in found.hits} == {"agent:a:one", "agent:a:two"}
        assert {hit.session for hit in session.recall("telescope Vega", scope="tenant").hits} == set(keys)


def test_dates_in_a_question_find_messages_of_those_days(tmp_path):
    day = 86_400_000_000
    noon = 1_700_000_000_000_000 // day * day + day // 2
    with opened(tmp_path / "a.db") as session:
        texts = [f"Day note {number}: we met to talk about the roof." for number in range(30)]
        drafts = [
            Draft(
                id=f"d{number}",
                ts=noon + number * day,
                role="user",
                content=to_json({"role": "user", "content": text}),
                wire="openai.chat",
            )
            for number, text in enumerate(texts)
        ]
        session.store.append(session.key, drafts)
        found = session.recall("What did we talk about on 2023-11-20?")
        assert found.hits[0].text.startswith("Day note 6")
        assert "date" in found.hits[0].parts
        assert any("2023-11-20" in note for note in found.notes)


def test_identifiers_paths_and_other_scripts_are_found():
    with opened(recall={"embedder": {"use": "none"}}) as session:
        texts = [
            "The function fetchUserProfile lives in src/accounts/profile_loader.py.",
            "数据库的退款流程需要重新启动。",
            "اجتماع الفريق يوم الأحد في المكتب",
            "会议改到下午三点。",
            "Totally different: bananas and ships.",
        ]
        for text in texts:
            session.append({"role": "user", "content": text})
        for query, place in (
            ("fetch_user_profile", 0),
            ("profile_loader", 0),
            ("profile loader.py", 0),
            ("退款", 1),
            ("اجتماع", 2),
            ("下午三点", 3),
        ):
            assert session.recall(query).hits[0].text == texts[place], query


def test_tool_calls_and_results_are_searchable_and_quoted_with_their_question():
    with opened(recall={"embedder": {"use": "none"}}) as session:
        session.append({"role": "user", "content": "Why does the nightly import break?"})
        call = {
            "id": "c1",
            "type": "function",
            "function": {"name": "run", "arguments": '{"command": "tail import.log"}'},
        }
        session.append({"role": "assistant", "content": None, "tool_calls": [call]})
        result = session.append(
            {"role": "tool", "tool_call_id": "c1", "content": "ERR_4711 checksum mismatch in batch 93"}
        )
        hit = session.recall("ERR_4711").hits[0]
        assert hit.seq == result.seq
        assert hit.context == (1,)


def worked(session, question, path, output):
    """Appends a request, its tool call, the output, and an answer that mentions none of it; returns the output."""
    session.append({"role": "user", "content": question})
    call = {"id": f"c{session.head.seq}", "type": "function"}
    call["function"] = {"name": "read_file", "arguments": json.dumps({"path": path})}
    session.append({"role": "assistant", "content": None, "tool_calls": [call]})
    output_entry = session.append({"role": "tool", "tool_call_id": call["id"], "content": output})
    session.append({"role": "assistant", "content": "I have seen it."})
    return output_entry


def test_a_call_brings_its_output():
    """The call contains the words of the question; the wanted output contains none of them."""
    with opened(recall=WORDS) as session:
        read_output = worked(session, "Have a look.", "mill/quay/buffer.py", "HALF = 5210796\n" + "pad = 0\n" * 60)
        worked(session, "Have a look.", "other/place.py", "HALF = 1")
        found = session.recall("What stands in mill/quay/buffer.py?", most=4)
        by_seq = {hit.seq: hit for hit in found.hits}
        call, output = by_seq[read_output.seq - 1], by_seq[read_output.seq]
        assert output.parts["comes along"] > 0
        assert output.score == pytest.approx(sum(output.parts.values())) == pytest.approx(call.score)
        assert (output.chance, output.context) == (call.chance, (read_output.seq - 2,))
        chatter(session, 40)
        back = quotation(say(session, "What stands in mill/quay/buffer.py?"))
        assert "HALF = 5210796" in back
        assert pointer_to(session.key, read_output.seq) in back


@pytest.mark.parametrize("output", ["", " \n"])
def test_an_output_without_text_is_not_recalled_with_its_call(output):
    with opened(recall=WORDS) as session:
        silent = worked(session, "Have a look.", "mill/quay/buffer.py", output)
        found = {hit.seq for hit in session.recall("What stands in mill/quay/buffer.py?", most=4).hits}
        assert silent.seq - 1 in found
        assert silent.seq not in found


def test_only_the_matching_output_of_a_request_is_recalled():
    with opened(recall=WORDS) as session:
        session.append({"role": "user", "content": "ALARM: the quarry pump is slow."})
        outputs = []
        for number, output in enumerate(
            ("all quiet", "INFO ok\n" * 300 + "first fault 77123: a disk went away", "load 3")
        ):
            call = {"id": f"c{number}", "type": "function", "function": {"name": "check", "arguments": "{}"}}
            session.append({"role": "assistant", "content": None, "tool_calls": [call]})
            outputs.append(session.append({"role": "tool", "tool_call_id": f"c{number}", "content": output}))
        idle = worked(session, "ALARM: the quarry pump is slow once more.", "today.log", "all quiet again")
        found = session.recall("Which first fault made the quarry pump slow?")
        assert {1, outputs[1].seq} <= {hit.seq for hit in found.hits}
        assert not {outputs[0].seq, outputs[2].seq, idle.seq} & {hit.seq for hit in found.hits}


def test_an_output_without_a_hit_ranks_no_higher_than_its_call():
    """This also holds where the call ranks low: its score is below zero, as half of all scores are."""
    with opened(recall=WORDS) as session:
        outputs = [worked(session, "Have a look.", f"mill/{chr(97 + n) * 5}.py", f"{n} = {n}").seq for n in range(9)]
        session.append({"role": "user", "content": "The mill of the mill has a mill wheel, a mill pond, a mill race."})
        found = session.recall("Where is the mill wheel, the mill pond, the mill race?", most=30)
        hits = {hit.seq: hit for hit in found.hits}
        low = [seq for seq in outputs if seq in hits and hits[seq - 1].score < 0]
        assert low
        assert all(hits[seq].score == hits[seq - 1].score for seq in low)


def test_an_output_in_the_prompt_is_not_recalled_with_its_call():
    with opened(recall=WORDS) as session:
        output = worked(session, "Have a look.", "mill/quay/buffer.py", "HALF = 5210796")
        recall = session.window._recall.recall
        recall.catch_up()
        query = Query(text="What stands in mill/quay/buffer.py?", now=0)
        assert output.seq in {hit.seq for hit in recall.search(query, limit=9).hits}
        assert output.seq not in {hit.seq for hit in recall.search(query, limit=9, hidden={output.seq}).hits}
        before = structs.replace(query, before=output.seq - 1)  # the state before the output was stored
        assert {output.seq - 1} <= {hit.seq for hit in recall.search(before, limit=9).hits} <= {1, output.seq - 1}


def test_a_question_is_quoted_with_the_answer_that_ends_its_exchange():
    with opened(recall=WORDS) as session:
        worked(session, "What does the harbour master say?", "harbour.txt", "He says nothing.")
        assert next(hit for hit in session.recall("harbour master").hits if hit.seq == 1).context == (4,)
        session.append({"role": "user", "content": "And the lighthouse keeper?"})
        for number in range(40):
            call = {"id": f"l{number}", "type": "function", "function": {"name": "ask", "arguments": "{}"}}
            session.append({"role": "assistant", "content": None, "tool_calls": [call]})
            session.append({"role": "tool", "tool_call_id": f"l{number}", "content": "Wait."})
        assert next(hit for hit in session.recall("lighthouse keeper").hits if hit.seq == 5).context == ()


def test_repeated_questions_do_not_crowd_out_a_single_answer():
    """Thirty earlier questions contain the words of the question; the message with the answer contains two."""
    with opened(recall=WORDS) as session:
        session.append({"role": "user", "content": "On 3 May the grey dynamo had its first fault, number 77123."})
        for part in range(30):
            name = f"{chr(97 + part % 26) * 5}{part}"
            session.append({"role": "user", "content": f"For the report on {name}: which fault set off the alarms?"})
        found = session.recall("For the report on the grey dynamo: which fault set off the alarms?", most=24)
        order = [hit.seq for hit in found.hits]
        assert 1 in order[:3]
        assert len(order) == 24
        assert len({hit.text for hit in found.hits}) == 24
        assert sum("much alike" in hit.parts for hit in found.hits) == 21
        assert all(hit.score == pytest.approx(sum(hit.parts.values())) for hit in found.hits)


def test_duplicates_are_shown_once_and_not_read(monkeypatch):
    with opened(recall=WORDS) as session:
        for number in range(40):
            session.append({"role": "user", "content": f"The ferry Aurelia leaves from quay {number % 4}."})
        texts_read = reads_of(session, monkeypatch)
        found = session.recall("From which quay does the ferry Aurelia leave?", most=12)
        assert sorted(hit.seq for hit in found.hits) == [37, 38, 39, 40]
        assert set(texts_read) == {37, 38, 39, 40}


def test_messages_with_the_same_terms_but_other_words_are_all_shown():
    with opened(recall=WORDS) as session:
        session.append({"role": "user", "content": "Deploy the harbour crane on Fridays."})
        session.append({"role": "user", "content": "Do not deploy the harbour crane on Fridays."})
        assert {1, 2} == {hit.seq for hit in session.recall("harbour crane").hits}


def test_near_duplicates_of_a_long_text_are_shown_once():
    with opened(recall=WORDS) as session:
        words = " ".join(f"{chr(97 + n % 26) * 3}{n}" for n in range(60))
        for number in range(3):
            session.append({"role": "user", "content": f"Reading {number} of the barometer: {words}"})
        assert [hit.seq for hit in session.recall("barometer reading").hits] == [3]


def test_the_same_excerpt_of_two_versions_of_a_file_is_quoted_once():
    with opened() as session:
        for version in range(2):
            rest = "".join(f"step_{version}_{line} = {line + 100 * version}\n" for line in range(40))
            worked(
                session,
                "Have a look.",
                "mill.py",
                f"# The mill\n{rest}\nThe staging rotation happens at Kilimanjaro hour 17.\n",
            )
        chatter(session, 40)
        prompt = say(session, "When does the staging rotation happen at Kilimanjaro?")
        assert quotation(prompt).count("Kilimanjaro hour 17") == 1
        assert [hit.role for hit in prompt.recalled].count("tool") == 1


def test_without_a_relevant_hit_no_message_is_read(monkeypatch):
    with opened(recall=WORDS) as session:
        say(session, "The ferry Aurelia leaves from quay 9.")
        chatter(session, 40)
        session.append({"role": "user", "content": "Explain photosynthesis in plants to a colleague."})
        texts_read = reads_of(session, monkeypatch)
        prompt = session.prompt()
        assert not prompt.recalled
        assert texts_read == []
        (miss,) = [json.loads(e.content) for e in session.read() if e.kind == "recall_miss"][-1:]
        assert 0 <= miss["best"] < miss["threshold"]


def reads_of(session, monkeypatch):
    """Returns a list that records the entries whose texts recall reads from now on."""
    store, read = session.window._recall.recall.searcher.store, []
    pick = store.pick
    monkeypatch.setattr(store, "pick", lambda key, seqs: read.extend(seqs) or pick(key, seqs))
    return read


def test_the_index_is_not_queried_for_each_hit(monkeypatch):
    with opened(recall={"embedder": {"use": "none"}}) as session:
        for number in range(12):
            session.append({"role": "user", "content": f"The harbour has {number} boats named {chr(97 + number) * 9}."})
        assert len(session.recall("harbour").hits) > 5
        words, lookups = session.window._recall.recall.indexer.words, []
        attributes = words.attributes
        monkeypatch.setattr(words, "attributes", lambda key: lookups.append(key) or attributes(key))
        assert len(session.recall("harbour").hits) > 5
        assert len(lookups) < 5


def test_recaps_written_by_a_client_are_not_found_as_history():
    with opened() as session:
        session.append(
            {"role": "user", "content": "This session is being continued: zanzibar summary."},
            meta={"isCompactSummary": True},
        )
        session.append({"role": "user", "content": "I went to zanzibar."})
        assert [hit.seq for hit in session.recall("zanzibar").hits] == [2]


def test_both_embedders_are_usable_until_the_new_vectors_are_complete(tmp_path):
    from tests.spelling import SpellingEmbedder

    from recto.recall.indexer import Indexer
    from recto.recall.stemmer import PorterLexicon
    from recto.stores.sqlite.index import SqliteIndex

    other = Failing()
    other.works.set()
    with opened(tmp_path / "a.db") as session:
        chatter(session, 30)
        old = Indexer(session.store, SqliteIndex(tmp_path / "i"), lexicon=PorterLexicon(), embedder=other)
        old.catch_up(session.key)
        old.close()
        new = Indexer(
            session.store,
            SqliteIndex(tmp_path / "i"),
            lexicon=PorterLexicon(),
            embedder=SpellingEmbedder(),
            previous=[other],
        )
        assert new.backlog(session.key)[1] > 0
        assert new.has_vectors(session.key, other)
        new.catch_up(session.key)
        assert new.backlog(session.key) == (0, 0)
        assert not new.has_vectors(session.key, other)
        new.close()


def test_answers_that_repeat_recalled_text_are_recorded():
    with opened() as session:
        say(session, "Hello.")
        say(session, "The maintenance window is Sunday 03:40, ticket OPS-5521.")
        chatter(session, 40)
        say(session, "When is the maintenance window?", answer="It is Sunday 03:40, see OPS-5521.")
        say(session, "Good.")
        used = events(session, "recall_used")
        assert used
        assert used[-1]["used"]
        assert set(used[-1]["used"]) <= set(used[-1]["shown"])


def test_without_stored_words_nothing_is_evicted_and_the_overflow_is_typed(tmp_path, monkeypatch):
    def add_terms(self, session, entries):
        raise StoreUnavailable("here", "no room is left on the disk")

    with opened(tmp_path / "a.db", recall={"embedder": {"use": "none"}}) as session:
        session._make_row = None  # as in a version that stored no words with a message
        monkeypatch.setattr(SqliteStore, "add_terms", add_terms)
        session.append({"role": "user", "content": "Hello."})
        with pytest.raises(WindowOverflow):
            chatter(session, 200)
        assert not events(session, "context_window_pruned")
        assert events(session, "index_failed")[0]["words"] is False


@pytest.mark.requirement("recall.indexed-first")
def test_without_a_words_index_nothing_is_evicted_and_the_overflow_is_typed(tmp_path):
    with opened(tmp_path / "a.db", recall={"embedder": {"use": "none"}}) as session:
        session.append({"role": "user", "content": "Hello."})
        index = session.window._recall.recall.indexer.index
        index.close()  # every call fails from here on
        with pytest.raises(WindowOverflow):
            chatter(session, 200)
        assert not events(session, "context_window_pruned")
        assert events(session, "index_failed")[0]["words"] is False


def test_a_prompt_does_not_index_the_words_of_earlier_messages(tmp_path):
    with opened(tmp_path / "a.db", recall={"enabled": False}) as session:
        say(session, "Hello.")
        say(session, "The maintenance window is Sunday 03:40, ticket OPS-5521.")
        chatter(session, 40)
    with opened(tmp_path / "a.db", recall={"background": False, "embedder": {"use": "none"}}) as session:
        behind = len(session.store.lacking_terms(session.key, b""))
        assert behind > 80
        session.append({"role": "user", "content": "When is the maintenance window?"})
        session.prompt()
        assert events(session, "recall_miss")
        engine = session.window.recall_engine
        missing = engine.indexer.backlog(session.key)[0]
        assert missing >= behind - 40, "a turn indexes at most the messages it evicts"
        result = engine.search(Query(text="maintenance window OPS-5521", now=1), limit=3)
        assert result.behind == missing
        assert "OPS-5521" in session.recall("maintenance window OPS-5521").hits[0].text, (
            "an explicit search works off the backlog"
        )
        assert engine.indexer.backlog(session.key) == (0, 0)
