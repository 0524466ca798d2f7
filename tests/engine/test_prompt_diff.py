"""Prompt comparison: past prompts equal those that were sent, and a diff of two shows exactly what changed."""

from __future__ import annotations

import json

import pytest

import recto
from recto.config.factory import SystemClock
from recto.engine.projection import SNAPSHOT
from recto.engine.prompt_diff import MAX_LINES, compare, prompt_after
from recto.engine.timeline import timeline
from recto.recall.types import HEADER
from recto.stores.memory import MemoryStore
from recto.testing import scripted_session
from recto.transcript.entries import event

SMALL = {"gpt-4o": {"window": 16_000, "max_input": 16_000}}


def opened(store="memory:", recall=False, **window):
    rules = {"inject": recall, "background": False, "embedder": {"use": "none"}}
    return recto.open(store, model="gpt-4o", models=SMALL, window=window, recall=rules)


def work(session, exchanges=40, seed=7):
    """Runs a scripted agent; returns every prompt with the number of the entry before it."""
    sent = []
    for message in scripted_session(seed=seed, exchanges=exchanges):
        if message["role"] == "assistant":
            prompt = session.prompt()
            sent.append((session.head.seq, prompt))
        session.append(message)
    return sent


def adds_up(shown):
    assert sum(line.first_tokens or 0 for line in shown.lines) == shown.first_tokens
    assert sum(line.second_tokens or 0 for line in shown.lines) == shown.second_tokens


def sides(shown, what="entry"):
    return {line.seq: line.side for line in shown.lines if line.what == what}


def decision_seqs(session):
    return sorted(decision.seq for decision in session.report().decisions)


@pytest.fixture(scope="module")
def sliding():
    """A session of a scripted agent and its prompts; read only."""
    with opened() as session:
        yield session, work(session)


@pytest.fixture(scope="module")
def pruned():
    """The same session, where whole steps are evicted without shortening outputs first."""
    with opened(shorten_outputs=False) as session:
        yield session, work(session)


@pytest.fixture(scope="module")
def in_zones():
    """The same session in mode "zones"."""
    with opened(mode="zones") as session:
        yield session, work(session)


@pytest.mark.parametrize("worked", ["sliding", "in_zones"])
@pytest.mark.requirement("report.past")
def test_a_past_prompt_equals_the_sent_prompt_byte_for_byte(worked, request):
    session, sent = request.getfixturevalue(worked)
    assert any(entry.kind == SNAPSHOT for entry in session.read())
    for seq, prompt in sent[::5]:
        past = prompt_after(session.window, seq)
        assert (past.messages, past.tokens) == (prompt.raw, prompt.tokens)


def test_viewing_past_prompts_does_not_change_the_live_window():
    with opened() as session:
        work(session, exchanges=12)
        head, before = session.head, session.window.state.snapshot()
        prompt_after(session.window, 3)
        compare(session.window, 3, head.seq)
        assert session.head == head
        assert session.window.state.snapshot() == before


@pytest.mark.requirement("window.marker")
def test_a_prune_shows_evicted_entries_on_the_first_side_and_the_marker_on_the_second(pruned):
    session, _ = pruned
    decision = next(entry for entry in session.read(decision_seqs(session)[0]))
    evicted = {seq for first, last in json.loads(decision.content)["left"] for seq in range(first, last + 1)}
    shown = compare(session.window, decision.seq - 1, decision.seq)
    adds_up(shown)
    assert {seq for seq, side in sides(shown).items() if side == "first"} == evicted
    assert set(sides(shown).values()) == {"first", "both"}
    assert [(line.what, line.side) for line in shown.lines if line.what == "marker"] == [("marker", "second")]
    assert shown.second_tokens < shown.first_tokens
    assert not shown.more


def test_lines_are_in_the_order_of_the_prompt(sliding):
    session, _ = sliding
    decision = decision_seqs(session)[0]
    shown = compare(session.window, decision - 1, decision)
    seqs = [line.seq for line in shown.lines if line.seq is not None]
    assert seqs == sorted(seqs)
    assert shown.lines[0].what == "frame"
    assert shown.lines[1].what == "system"


def test_a_prompt_compared_with_itself_has_no_differences():
    with opened() as session:
        work(session, exchanges=10)
        seq = session.head.seq
        assert {line.side for line in compare(session.window, seq, seq).lines} == {"both"}


def test_comparing_in_reverse_swaps_the_sides(sliding):
    session, _ = sliding
    decision = decision_seqs(session)[0]
    there, back = (compare(session.window, *pair) for pair in ((decision - 1, decision), (decision, decision - 1)))
    turned = {"first": "second", "second": "first", "both": "both", "changed": "changed"}
    assert sides(back) == {seq: turned[side] for seq, side in sides(there).items()}


def test_a_trimmed_result_is_changed_and_not_gone(in_zones):
    session, _ = in_zones
    trimmed = next(entry for entry in session.read() if entry.kind == "tool_results_trimmed")
    shown = compare(session.window, trimmed.seq - 1, trimmed.seq)
    adds_up(shown)
    changed = {line.seq: line for line in shown.lines if line.side == "changed" and line.what == "entry"}
    assert changed.keys() == {int(seq) for seq in json.loads(trimmed.content)["shrunk"]}
    assert all(line.second_tokens < line.first_tokens for line in changed.values())


def test_a_restore_shows_returned_entries_on_the_second_side():
    with opened(shorten_outputs=False) as session:
        work(session)
        decision = decision_seqs(session)[-1]
        before = session.head.seq
        restored = session.restore(decision)
        shown = compare(session.window, before, restored.seq)
        adds_up(shown)
        assert "second" in sides(shown).values()
        assert "first" not in sides(shown).values()


def test_a_compaction_shows_its_summary_as_a_line_of_its_own():
    with opened() as session:
        work(session, exchanges=12)
        before = session.head.seq
        session.compact()
        shown = compare(session.window, before, session.head.seq)
        adds_up(shown)
        summary = next(line for line in shown.lines if line.what == "summary")
        assert (summary.side, summary.first_tokens) == ("second", None)
        assert session.window.state.summary.text.startswith(summary.text)
        assert summary.cut


def test_recalled_messages_are_in_their_prompt_at_the_logged_cost():
    with opened(recall=True) as session:
        session.append({"role": "user", "content": "Let us go through the open things."})
        session.append({"role": "assistant", "content": "Gladly."})
        session.append({"role": "user", "content": "Marlow wants invoices on the 5th, not on the 1st."})
        for number in range(60):
            session.append({"role": "assistant", "content": f"Noted, point {number}. " + "All is as it was. " * 60})
            session.append({"role": "user", "content": f"And how is the roof in week {number}?"})
            session.prompt()
        session.append({"role": "assistant", "content": "Fine."})
        session.append({"role": "user", "content": "On which day does Marlow want its invoices?"})
        prompt = session.prompt()
        seq = session.head.seq
        assert prompt.recalled
        past = prompt_after(session.window, seq)
        assert past.tokens == prompt.tokens == timeline(session.window).points[-1].tokens
        assert any(HEADER in json.loads(raw)["content"] for raw in past.messages)
        shown = compare(session.window, 2, seq)
        adds_up(shown)
        recalled = next(line for line in shown.lines if line.what == "recalled")
        assert recalled.side == "second"
        logged = next(entry for entry in session.tail(10) if entry.kind == "recall_injected")
        assert recalled.second_tokens == json.loads(logged.content)["tokens"]


def test_a_quotation_costs_the_logged_tokens_even_if_it_would_be_cut_differently_now():
    with opened() as session:
        session.append({"role": "user", "content": "hello"})
        payload = {"question": 1, "tokens": 300, "hits": [{"pointer": session.window.pointer(1)}]}
        session.store.append(session.key, [event(SystemClock(), "recall_injected", payload)])
        session.append({"role": "assistant", "content": "hello"})
        before, after = (prompt_after(session.window, seq) for seq in (1, 2))
        assert after.tokens == before.tokens + 300
        assert after.costs[0] == 300
        assert len(after.messages) == 2


def test_a_pointer_into_another_tenant_is_not_followed():
    store = MemoryStore()
    with recto.open(store, model="gpt-4o", session="agent:a:main", tenant="south") as theirs:
        theirs.append({"role": "user", "content": "the canary of the south"})
        pointer = theirs.window.pointer(1)
        with opened(store) as session:
            session.append({"role": "user", "content": "hello"})
            forged = {"question": 1, "tokens": 500, "hits": [{"pointer": pointer}, {"pointer": "recto://recto:keys/1"}]}
            session.store.append(session.key, [event(SystemClock(), "recall_injected", forged)])
            past = prompt_after(session.window, 2)
            assert not any(b"canary" in raw for raw in past.messages)
            assert "canary" not in str(compare(session.window, 1, 2))


@pytest.mark.parametrize(
    "payload", [{}, {"tokens": "x", "hits": []}, {"tokens": 5, "hits": 7}, {"tokens": 5, "hits": [1]}]
)
def test_a_foreign_event_with_a_known_name_is_ignored(payload):
    with opened() as session:
        session.append({"role": "user", "content": "hello"})
        session.store.append(session.key, [event(SystemClock(), "recall_injected", payload)])
        assert len(prompt_after(session.window, 2).messages) == 1


def test_a_past_prompt_of_an_unmeasured_session_is_bounded_by_the_input_budget():
    with opened() as session:
        messages = ({"role": "user", "content": f"message {number} " + "word " * 50} for number in range(3_000))
        session.append_all(messages)
        past = prompt_after(session.window, 2_900)
        assert past.tokens <= session.window.budget.input_budget
        assert json.loads(past.messages[-1])["content"].startswith("message 2899 ")
        assert len(past.messages) > 100
        adds_up(compare(session.window, 1_500, 2_900))


def test_a_comparison_is_bounded_and_omits_equal_lines_first():
    models = {"gpt-4o": {"window": 400_000, "max_input": 400_000}}
    with recto.open("memory:", model="gpt-4o", models=models, recall={"inject": False}) as session:
        session.append_all({"role": "user", "content": f"message {number}"} for number in range(1_020))
        shown = compare(session.window, 1_010, 1_020)
        assert shown.more
        assert sorted(sides(shown)) == list(range(1_011, 1_021))
        assert len(compare(session.window, 1, 1_020).lines) == MAX_LINES


def test_the_prompt_after_the_last_entry_costs_the_reported_tokens():
    with opened() as session:
        work(session)
        session.prompt()
        now = compare(session.window, 1, session.head.seq)
        assert now.second_tokens == session.report().tokens == session.report().reading.tokens
