"""A new session of an agent with approved memory: what is remembered is in the prompt when it is asked for."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from tests.continuity.memory.memory_questions import MEMORIES

import recto
from recto.config import load
from recto.config.factory import open_memory, open_session
from recto.recall.types import HEADER
from recto.stores.sqlite import SqliteStore
from recto.transcript.session_keys import pointer_to

HOME = "agent:books:memory"
READS = ("head", "read", "pick", "tail", "terms", "pick_terms", "lacking_terms", "get", "find", "sessions")


def settings_of(folder, **more):
    arguments = {"session": "agent:books:main", "model": "gpt-4o", "memory": {"folder": str(folder / "mem")}}
    return load(environ={}, arguments=arguments | {"recall": {"embedder": {"use": "none"}, "background": False}} | more)


@pytest.fixture(scope="module")
def remembering(tmp_path_factory):
    """A store of an agent with forty-four memories. Tests that share it only open sessions of their own."""
    folder = tmp_path_factory.mktemp("remembering")
    settings = settings_of(folder)
    with SqliteStore(folder / "a.db") as store:
        memories = open_memory(settings, store)
        for asked in MEMORIES:
            approve(memories, asked.text, asked.kind, critical=asked.critical)
        yield settings, store


def approve(memories, text, kind="fact", **more):
    proposed = memories.propose(kind, text, **more)
    return memories.approve(proposed.id, proposed.digest, "ada").memory


def first_prompt(settings, store, session, question):
    with open_session(replace(settings, session=session), store) as opened:
        opened.append({"role": "user", "content": question})
        return opened.prompt()


def texts(prompt) -> str:
    return "\n".join(str(message["content"]) for message in prompt.messages)


@pytest.mark.requirement("recall.new-session")
def test_asked_directly_what_is_remembered_is_in_the_prompt_and_critical_memory_always(remembering):
    settings, store = remembering
    prompts = [
        first_prompt(settings, store, f"agent:books:new{number}", asked.question)
        for number, asked in enumerate(MEMORIES)
    ]
    found = [asked.text in texts(prompt) for asked, prompt in zip(MEMORIES, prompts, strict=True)]
    assert sum(found) >= 0.95 * len(MEMORIES), [
        one.question for one, is_in in zip(MEMORIES, found, strict=True) if not is_in
    ]
    critical = [asked.text for asked in MEMORIES if asked.critical]
    assert critical
    assert all(text in texts(prompt) for text in critical for prompt in prompts)


def test_a_question_about_something_else_brings_no_memory(remembering):
    settings, store = remembering
    for question in ("Hello!", "Write a poem about snow.", "What is 17 times 23?", "Explain how photosynthesis works."):
        prompt = first_prompt(settings, store, f"agent:books:{question}", question)
        assert not prompt.recalled, question


def test_the_digest_opens_the_prompt_and_its_bytes_do_not_change(remembering):
    settings, store = remembering
    first = first_prompt(settings, store, "agent:books:digest", "Hello there.").messages[0]
    assert first["role"] == "system"
    with open_session(replace(settings, session="agent:books:digest"), store) as session:
        session.append({"role": "assistant", "content": "Hello."})
        for question in (MEMORIES[0].question, "What else is there to do?"):
            session.append({"role": "user", "content": question})
            assert session.prompt().messages[0] == first
            session.append({"role": "assistant", "content": "I see."})
        changed = [json.loads(entry.content) for entry in session.read() if entry.kind == "standing_changed"]
        assert [[file["name"] for file in one["files"]] for one in changed] == [["critical memory"]]
        assert session.prompt().tokens == session.count(list(session.prompt().raw))


def test_what_the_digest_says_is_not_quoted_again(remembering):
    settings, store = remembering
    asked = next(asked for asked in MEMORIES if asked.critical)
    assert texts(first_prompt(settings, store, "agent:books:once", asked.question)).count(asked.text) == 1


@pytest.mark.requirement("memory.scoped")
def test_critical_memory_is_in_the_prompt_from_its_approval_until_it_is_retired(tmp_path):
    settings = settings_of(tmp_path)
    with SqliteStore(tmp_path / "a.db") as store, open_session(settings, store) as session:
        session.append({"role": "user", "content": "Hello."})
        assert session.prompt().messages == [{"role": "user", "content": "Hello."}]
        memories = open_memory(settings, store)
        kept = approve(memories, "Never deploy on a Friday.", critical=True)
        assert "Never deploy on a Friday." in texts(session.prompt())
        plain = approve(memories, "The cat is called Ada.")
        assert "cat" not in texts(session.prompt())
        memories.retire(kept.id, "ada", "we do now")
        assert "Friday" not in texts(session.prompt())
        (page,) = (tmp_path / "mem").rglob(f"*{plain.id}.md")
        page.write_text(page.read_text().replace("critical: false", "critical: true"))
        assert "cat" not in texts(session.prompt()), "an edit counts once it is approved"


def test_critical_memory_whose_page_was_deleted_is_not_in_the_prompt(tmp_path):
    settings = settings_of(tmp_path)
    with SqliteStore(tmp_path / "a.db") as store, open_session(settings, store) as session:
        kept = approve(open_memory(settings, store), "Never deploy on a Friday.", critical=True)
        session.append({"role": "user", "content": "Hello."})
        assert "Friday" in texts(session.prompt())
        (page,) = (tmp_path / "mem").rglob(f"*{kept.id}.md")
        page.unlink()
        assert "Friday" not in texts(session.prompt())


def test_too_much_critical_memory_is_shortened_and_then_the_newest_are_kept(tmp_path):
    small = {"gpt-4o": {"window": 8_000, "max_input": 8_000}}
    settings = settings_of(tmp_path, models=small)
    with SqliteStore(tmp_path / "a.db") as store, open_session(settings, store) as session:
        memories = open_memory(settings, store)
        limit = session.window.budget.input_budget * 5 // 100
        session.append({"role": "user", "content": "Hello."})
        for number in range(5):
            approve(memories, f"Rule {number} of the house: " + f"say {number} " * 40, critical=True)
        shown = session.prompt().messages[0]["content"]
        assert all(f"Rule {number} of" in shown for number in range(5))
        assert "…" in shown
        for number in range(5, 40):
            approve(memories, f"Rule {number} of the house: " + f"say {number} " * 40, critical=True)
        prompt = session.prompt()
        shown = prompt.messages[0]["content"]
        assert "Rule 39 of" in shown
        assert "Rule 0 of" not in shown
        assert "older ones are left out" in shown
        assert session.meter.count(shown) <= limit


def test_a_share_of_zero_switches_the_digest_off(tmp_path):
    settings = settings_of(tmp_path, memory={"folder": str(tmp_path / "mem"), "critical_percent": 0})
    with SqliteStore(tmp_path / "a.db") as store:
        approve(open_memory(settings, store), "Never deploy on a Friday.", critical=True)
        prompt = first_prompt(settings, store, "agent:books:other", "Hello.")
        assert prompt.messages == [{"role": "user", "content": "Hello."}]


def test_memory_of_another_agent_or_tenant_is_not_in_the_prompt(tmp_path):
    settings = settings_of(tmp_path)
    with SqliteStore(tmp_path / "a.db") as store:
        approve(open_memory(settings, store), "Never deploy on a Friday.", critical=True)
        approve(open_memory(settings, store), "The cat is called Ada.")
        for other in (replace(settings, session="agent:cooks:main"), replace(settings, tenant="acme")):
            with open_session(other, store) as session:
                session.append({"role": "user", "content": "What is the cat called?"})
                prompt = session.prompt()
                assert "Friday" not in texts(prompt)
                assert not prompt.recalled


def test_recall_quotes_memory_with_its_pointer_although_nothing_was_evicted(remembering):
    settings, store = remembering
    prompt = first_prompt(settings, store, "agent:books:pointer", MEMORIES[0].question)
    *_, quotation, question = [message["content"] for message in prompt.messages]
    assert question == MEMORIES[0].question
    assert quotation.startswith(HEADER)
    assert f"recto://{HOME}/" in quotation
    assert "approved memory (preference)" in quotation
    assert MEMORIES[0].text in [hit.text for hit in prompt.recalled]


def test_other_sessions_are_searched_from_the_first_question_on_where_the_scope_says_so(tmp_path):
    recall = {"embedder": {"use": "none"}, "background": False}
    for scope in ("session", "agent"):
        with recto.open(tmp_path / "a.db", session="agent:books:main", model="gpt-4o", recall=recall) as session:
            said = session.append({"role": "user", "content": f"The {scope} rotation happens at Kilimanjaro hour 17."})
        more = {"recall": recall | {"scope": scope}}
        with recto.open(tmp_path / "a.db", session=f"agent:books:{scope}", model="gpt-4o", **more) as session:
            session.append({"role": "user", "content": f"When does the {scope} rotation happen?"})
            pointers = [hit.pointer for hit in session.prompt().recalled]
        assert (pointer_to("agent:books:main", said.seq) in pointers) is (scope == "agent")


@pytest.mark.parametrize("turns", [1, 4])
def test_without_memory_or_other_sessions_a_prompt_reads_nothing_for_recall(tmp_path, monkeypatch, turns):
    """What a prompt reads is what it reads with recall switched off."""
    counts: Counter[str] = Counter()
    for name in READS:
        monkeypatch.setattr(SqliteStore, name, _counted(getattr(SqliteStore, name), counts, name))
    totals = []
    for inject in (True, False):
        with recto.open(tmp_path / f"{inject}.db", model="gpt-4o", recall={"inject": inject}) as session:
            before = counts.copy()
            for turn in range(turns):
                session.append({"role": "user", "content": f"Question {turn} about the build"})
                session.prompt()
                session.append({"role": "assistant", "content": "An answer."})
                session.prompt()
            totals.append(counts - before)
    assert totals[0] == totals[1]
    assert not (tmp_path / "True.db-recall").exists()


def _counted(method, counts, name):
    def call(*args, **kwargs):
        counts[name] += 1
        return method(*args, **kwargs)

    return call
