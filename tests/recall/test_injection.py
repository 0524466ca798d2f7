"""What is quoted for a question: the query, the space per hit, when nothing is quoted, and when a hit is repeated."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from tests.recall.test_recall import chatter, events, opened, quotation, say

import recto
from recto.config import load
from recto.config.factory import make_recall
from recto.context.facts.types import Mark
from recto.engine.recall_injection import is_bare, turn_text
from recto.errors import EmbedderFailed
from recto.formats import entry_text
from recto.recall.documents import recall_text
from recto.recall.term_rows import message_row
from recto.recall.types import FOOTER, HEADER, Query
from recto.stores.memory import MemoryStore
from recto.transcript.entries import MESSAGE, Draft, to_json
from recto.transcript.session_keys import pointer_to

CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "read_file", "arguments": '{"path": "src/billing/tax.py"}'},
}


def turn(session):
    state = session.window.state
    return turn_text(state, session.window.messages)


def excerpts(text: str) -> list[str]:
    """Returns the excerpts of a quotation, each with its heading."""
    blocks: list[str] = []
    for line in text.removeprefix(HEADER).removesuffix(FOOTER).strip().splitlines():
        if line.startswith(">"):
            blocks[-1] += f"\n{line}"
        else:
            blocks.append(line)
    return blocks


@pytest.mark.parametrize("reply", ["1+2", "yes", "Yes please!", "2", "ok, both", "👍", "ja, bitte", "好的"])
def test_a_bare_reply_is_searched_with_the_question_it_answers(reply):
    assert is_bare(reply)
    with opened() as session:
        session.append({"role": "user", "content": "Look at the billing service."})
        question = "Shall I (1) migrate the Zephyrine schema and (2) rebuild the ledger index?"
        session.append({"role": "assistant", "content": f"I have looked. {question}"})
        session.append({"role": "user", "content": reply})
        searched = turn(session)
        assert question in searched.text
        assert searched.text.endswith(reply)


@pytest.mark.parametrize("request_", ["Kilimanjaro?", "When does the rotation happen?", "fix tax.py", "删除旧的数据库"])
def test_a_request_with_a_subject_is_its_own_query(request_):
    with opened() as session:
        session.append({"role": "user", "content": "Look at the billing service."})
        session.append({"role": "assistant", "content": "Done. Anything else? It has four modules."})
        session.append({"role": "user", "content": request_})
        searched = turn(session)
        assert searched.text == request_
        assert searched.context == "Anything else?\nLook at the billing service."


def test_steps_inside_a_turn_do_not_search_and_the_quotation_stays():
    recall = {"embedder": {"use": "none"}}
    small = {"gpt-4o": {"window": 8_000, "max_input": 8_000}}

    def steps(session, first: int) -> list[bool]:
        quoted = []
        for number in range(first, first + 60):
            prompt = session.prompt()
            quoted.append("Piraeus" in "\n".join(str(message) for message in prompt.messages))
            call = CALL | {"id": f"c{number}"}
            session.append({"role": "assistant", "content": None, "tool_calls": [call]})
            output = f"The ferry Arkadia, line {number}.\n" + "a line of the file\n" * 50
            session.append({"role": "tool", "tool_call_id": f"c{number}", "content": output})
        return quoted

    with recto.open("memory:", model="gpt-4o", models=small, recall=recall) as session:
        session.append({"role": "user", "content": "Good day."})
        session.append({"role": "assistant", "content": "The ferry Arkadia sails from Piraeus at noon."})
        session.append({"role": "user", "content": "Thank you."})
        session.append({"role": "assistant", "content": "You are welcome."})
        session.append({"role": "user", "content": "Read the timetable of the ferry Arkadia."})
        steps(session, 0)
        assert 2 not in session.window.state.messages
        assert not session.prompt().recalled
        session.append({"role": "assistant", "content": "Done."})
        session.append({"role": "user", "content": "Which harbour does the ferry Arkadia sail from? Read it again."})
        edit = session.window.state.last_edit
        assert all(steps(session, 60))
        assert session.window.state.last_edit > edit


def test_text_next_to_tool_results_is_the_request_without_the_results():
    with recto.open("memory:", model="claude-sonnet-4-5", recall={"embedder": {"use": "none"}}) as session:
        session.append({"role": "user", "content": [{"type": "text", "text": "Look at the ledger."}]})
        use = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "ledger.py"}}
        session.append({"role": "assistant", "content": [use]})
        result = {"type": "tool_result", "tool_use_id": "t1", "content": "class Ledger:\n    pass"}
        typed = {"type": "text", "text": "Stop, use the archive of postings instead."}
        session.append({"role": "user", "content": [result, typed]})
        assert turn(session).text == "Stop, use the archive of postings instead."


def test_reminders_of_a_coding_agent_are_not_part_of_the_request():
    reminder = "<system-reminder>\nThe current date is Tuesday.\n</system-reminder>"
    with opened() as session:
        session.append({"role": "user", "content": "Which port does the database of billing have?"})
        session.append({"role": "assistant", "content": "It listens on 5433."})
        texts = [reminder, "And which port does the cache have, in all of our environments?"]
        session.append({"role": "user", "content": [{"type": "text", "text": text} for text in texts]})
        assert turn(session).text == texts[1]


SKILL = (
    "Base directory for this skill: /skills/deploy\n\n# Deploy\n\nAlways rotate the Kilimanjaro key of staging first."
)
NOTIFICATION = (
    "<task-notification>\n<status>completed</status>\n"
    "<result>The Kilimanjaro key of staging is rotated at 17.</result>\n</task-notification>"
)


def test_a_quotation_holds_the_words_of_the_user_and_not_what_a_client_added():
    typed = "The Kilimanjaro key of staging belongs to Ines."
    with opened() as session:
        say(session, "Hello.")
        skill = session.append({"role": "user", "content": SKILL})
        session.append({"role": "assistant", "content": "I read the skill."})
        texts = ["<system-reminder>\nKilimanjaro is a key of staging.\n</system-reminder>", typed]
        told = session.append({"role": "user", "content": [{"type": "text", "text": text} for text in texts]})
        session.append({"role": "assistant", "content": "Noted."})
        chatter(session, 40)
        recalled = quotation(say(session, "Whose is the Kilimanjaro key of staging?"))
        found = {hit.seq: hit.text for hit in session.recall("Kilimanjaro key of staging").hits}
    [own] = [each for each in excerpts(recalled) if pointer_to(session.key, told.seq) in each]
    assert own.endswith(f"> {typed}")
    assert "reminder" not in recalled
    assert "rotate" not in recalled
    assert found[told.seq] == typed
    assert skill.seq not in found


def test_the_report_of_another_agent_is_quoted_as_the_output_of_a_tool():
    with opened() as session:
        say(session, "Hello.")
        report = session.append({"role": "user", "content": NOTIFICATION})
        session.append({"role": "assistant", "content": "Noted."})
        chatter(session, 40)
        recalled = quotation(say(session, "When is the Kilimanjaro key of staging rotated?"))
    assert f"{pointer_to(session.key, report.seq)} · tool " in recalled
    assert "rotated at 17" in recalled


@pytest.mark.parametrize("said", ["always", "never"])
def test_only_words_of_the_user_are_marked_as_a_rule(said):
    rule = f"From now on you must {said} rotate keys at night."
    with opened() as session:
        for text in (rule, f"<task-notification>\n{rule}\n</task-notification>"):
            session.append({"role": "user", "content": text})
        hits = session.recall("rotate keys at night").hits
    assert {hit.seq: Mark.CONSTRAINT in hit.marks for hit in hits} == {1: True, 2: False}


def test_an_index_of_an_earlier_version_is_read_without_what_a_client_added():
    with opened() as session:
        old, new = (
            session.append({"role": "user", "content": text}) for text in (SKILL, "The Kilimanjaro key is lost.")
        )
        indexer = session.window._recall.recall.indexer
        row = message_row(SKILL, "user", old.ts, old.meta, indexer.lexicon)
        session.store.add_terms(session.key, [replace(old, terms=row)])
        assert [hit.seq for hit in session.recall("Kilimanjaro key").hits] == [new.seq]
        assert indexer.matches(old)


def test_of_messages_of_real_sessions_nothing_that_a_client_injected_is_indexed(data):
    injected = re.compile(
        r"^\s*(?:<(?:system-reminder|command-|local-command-)|\[Request interrupted)|\ABase directory for this skill",
        re.MULTILINE,
    )
    found = left = 0
    for path in sorted((data / "agent_sessions").rglob("*.jsonl")):
        for line in path.read_text().splitlines():
            fields = json.loads(line)
            if fields["type"] == "message" and fields["role"] == "user" and '"tool_result"' not in line:
                content = json.dumps({"role": "user", "content": fields["content"]}).encode()
                entry = Draft(id="a", ts=0, kind=MESSAGE, role="user", content=content, wire="anthropic.messages")
                found += injected.search(entry_text(entry)) is not None
                left += injected.search(recall_text(entry)) is not None
    assert found > 50
    assert left == 0


def test_a_repeated_question_is_not_quoted_but_its_answer_is():
    question = "Which harbour does the Arkadia sail from?"
    store = MemoryStore()
    settings = load(environ={}, arguments={"recall": {"embedder": {"use": "none"}}})
    with recto.open(store, session="agent:a:b", model="gpt-4o") as session:
        earlier = session.append({"role": "user", "content": question})
        answer = session.append({"role": "assistant", "content": "Piraeus, at noon."})
        for number in range(4):
            session.append({"role": "user", "content": f"Something else, number {number}."})
            session.append({"role": "assistant", "content": "Noted."})
        service = make_recall(settings, store, session.key)
        query = Query(text=question, now=1)
        hits = {hit.seq: hit for hit in service.search(query, limit=8, repeats=False).hits}
        assert earlier.seq not in hits
        assert hits[answer.seq].chance > 0.4
        injection, _ = service.build_injection(query, budget=400, count=session.meter.count, hidden=())
        assert "Piraeus" in injection.text

        # An explicit search also finds the repeated question.
        assert earlier.seq in {hit.seq for hit in service.search(query, limit=8).hits}


def injected(texts, question, budget, *, roles=(), threshold=0.4):
    """Returns the injection that a session with these messages builds for the question within the budget."""
    store = MemoryStore()
    settings = load(environ={}, arguments={"recall": {"embedder": {"use": "none"}, "threshold": threshold}})
    with recto.open(store, session="agent:a:b", model="gpt-4o") as session:
        for text, role in zip(texts, [*roles, *["user"] * len(texts)], strict=False):
            session.append({"role": role, "content": text})
        count = session.meter.count
        service = make_recall(settings, store, session.key)
        found, _ = service.build_injection(Query(text=question, now=1), budget=budget, count=count, hidden=())
        return found, count


@pytest.mark.parametrize("budget", [150, 300, 517, 2_000])
@pytest.mark.parametrize(
    "line", ["row {0}: 0x{0:08x} ferry=Arkadia;", "The ferry Arkadia left the harbour {0} times. "]
)
def test_no_hit_takes_more_than_a_third_of_the_budget(budget, line):
    texts = [" ".join(line.format(number * 7 + start) for number in range(300)) for start in range(3)]
    found, count = injected(texts, "How often did the ferry Arkadia leave the harbour?", budget, threshold=0.0)
    assert found.tokens <= budget
    assert len(found.hits) > 1 or budget < 200
    for block in excerpts(found.text):
        assert count(block.partition("\n")[2]) <= budget / 3
        assert "Arkadia" in block


def test_an_excerpt_is_cut_around_the_match():
    filler = "Nothing of note happened on that day. " * 200
    found, _ = injected(
        [f"{filler}The ferry Arkadia sails from Piraeus. {filler}"], "Where does the ferry Arkadia sail from?", 300
    )
    assert "sails from Piraeus" in found.text
    assert found.tokens < 150


@pytest.mark.parametrize("budget", [200, 300, 517])
def test_a_correction_is_not_crowded_out_by_what_it_corrects(budget):
    stale = "def send_day():\n    # invoices go out on this day of the month\n    return 1\n" * 40
    texts = [
        "Before you begin: invoices go out on the 1st of each month, and refunds need an approval.",
        *(f"{stale}\n# copy {number} of the day on which invoices go out" for number in range(6)),
        "I have to take something back: invoices do not go out on the 1st. They go out on the 5th, not on the 1st.",
    ]
    found, _ = injected(texts, "On which day do invoices go out?", budget, roles=["user", *["tool"] * 6])
    assert "They go out on the 5th" in found.text
    first = next((hit for hit in found.hits if hit.seq == 1), None)
    assert first is None or first.superseded_by == len(texts)


def test_the_best_hit_just_below_the_threshold_is_quoted_if_tokens_are_free():
    texts = [
        "The lighthouse keeper orders oil from the chandler in Volos.",
        *(f"Day {number}: rain, wind, some bread, and a walk to the village." for number in range(30)),
    ]
    question = "Whom does the keeper ask for oil, candles and matches?"
    found, _ = injected(texts, question, 1_000)
    best = found.hits[0].chance
    assert 0.3 <= best < 0.4
    assert [hit.seq for hit in found.hits] == [1]
    assert injected(texts, question, 250)[0] is None, "the budget has no tokens to spare"
    assert injected(texts, question, 1_000, threshold=0.5)[0] is None, "the chance is far below the threshold"


class Slow:
    """An embedder that fails until `arrived` is set. It ranks the printer's paper above its name."""

    name, dims, weight = "slow", 2, 0.9

    def __init__(self):
        self.arrived = False

    def documents(self, texts):
        return np.stack([self.query(text) for text in texts])

    def query(self, text):
        if not self.arrived:
            raise EmbedderFailed("slow", "not yet")
        return np.array([1.0, 0.0] if "paper" in text or "?" in text else [0.0, 1.0], np.float32)


def test_recalled_messages_are_quoted_again_after_a_restart_despite_newer_index_entries(tmp_path, monkeypatch):
    """The first prompt is built before the vectors arrive, the second after."""
    slow = Slow()
    monkeypatch.setattr("recto.models.embedders.embedder_for", lambda choice: slow)
    recall = {"embedder": {}, "most": 1, "index_seconds": 1.0}
    question = {"role": "user", "content": "What is the printer on floor three called?"}
    with opened(tmp_path / "a.db", recall=recall) as session:
        say(session, "Hello.")
        say(session, "The printer on floor three is called Gutenberg.")
        say(
            session,
            "The printer on floor three, as it is called, wants paper of 80 grams and of no other weight at all.",
        )
        chatter(session, 40)
        session.append(question)
        before = session.prompt()
        assert "Gutenberg" in quotation(before)
        recorded = events(session, "recall_injected")[-1]
        assert recorded["without_vectors"] > 0
        assert len(recorded["excerpts"]) == len(recorded["hits"]) == 1
    slow.arrived = True
    with opened(tmp_path / "a.db", recall=recall) as session:
        session.window.recall_engine.indexer.catch_up(session.key)
        count = len(session)
        again = session.prompt()
        assert again.raw == before.raw
        assert len(session) == count
        assert [hit.pointer for hit in again.recalled] == [hit["pointer"] for hit in recorded["hits"]]
        session.append({"role": "assistant", "content": "Gutenberg."})
        session.append(question)
        assert "80 grams" in quotation(session.prompt()), "a new question is answered with vectors"


def test_a_question_without_a_quotation_has_none_after_a_restart(tmp_path):
    with opened(tmp_path / "a.db") as session:
        say(session, "Hello.")
        chatter(session, 40)
        session.append({"role": "user", "content": "Who repairs the Arkadia?"})
        before = session.prompt()
        assert events(session, "recall_miss")
    with recto.open(tmp_path / "a.db", session="agent:default:other", model="gpt-4o") as other:
        other.append({"role": "user", "content": "Stavros repairs the Arkadia."})
    with opened(tmp_path / "a.db", recall={"scope": "agent"}) as session:
        assert session.prompt().raw == before.raw


def test_an_imported_event_cannot_quote_messages_out_of_scope(tmp_path):
    with recto.open(tmp_path / "a.db", session="agent:default:other", model="gpt-4o") as other:
        secret = other.append({"role": "user", "content": "The vault is called Obsidian."})
    with opened(tmp_path / "a.db") as session:
        say(session, "Hello.")
        chatter(session, 40)
        question = session.append({"role": "user", "content": "Which vault is meant?"})
        anchor = max(question.seq, session.window.state.last_edit)
        hit = {"pointer": pointer_to("agent:default:other", secret.seq), "score": 1.0, "chance": 1.0, "parts": {}}
        excerpt = {"characters": 400, "context": [], "supersedes": []}
        payload = {
            "question": question.seq,
            "tokens": 50,
            "hits": [hit | {"superseded_by": None}],
            "excerpts": [excerpt],
        }
        session.window.events.append("recall_injected", payload, f"recall/{anchor}")
        assert "Obsidian" not in json.dumps(session.prompt().messages)
        assert to_json(payload)


def test_the_first_prompt_of_an_imported_session_omits_what_it_evicts():
    """The session is in the state after an import: all messages stored, no decision made yet."""
    with opened() as session:
        early = session.append({"role": "user", "content": "The staging rotation happens at Kilimanjaro hour 17."})
        session.append_all(
            {"role": role, "content": f"Number {number}: " + "leaves drift, rivers pass, bread rises. " * 12}
            for number in range(60)
            for role in ("user", "assistant")
        )
        late = session.append({"role": "user", "content": "The other rotation happens at Kilimanjaro hour 18."})
        marked = {hit.seq: hit.in_prompt for hit in session.recall("When is the Kilimanjaro hour?", most=5).hits}
        expected = session.window.shown_entries()
        assert len(expected) < 60
        assert marked[early.seq] is (early.seq in expected)
        assert marked[late.seq]
        count = len(session)
        assert not any(entry.kind != "message" for entry in session.read()), "a decision was stored"
        session.prompt()
        assert len(session) > count
        assert session.window.shown_entries() == expected
