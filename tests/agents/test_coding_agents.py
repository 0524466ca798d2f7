"""Real coding agents through the gateway: their history outgrows the window several times, and no entry is lost."""

from __future__ import annotations

import json
import re

import pytest
from tests.agents.agents import wire_of
from tests.agents.scripts import ANSWER, FACT, QUESTION, REPORT, Script, is_side_call
from tests.agents.windows import ROUNDING

from recto.engine.projection import DECISIONS
from recto.engine.verification import verify
from recto.formats import read
from recto.formats.message import Message
from recto.gateway.request import open_request
from recto.transcript.entries import Entry

MARKER = b"earlier messages"
MOST_REFUSED = 6
"""Requests that an agent may send before it gives up; none of them reaches the model. opencode retries five times if
the error text contains digits like 500."""


def message_of(entry: Entry) -> Message:
    return read(entry.content, entry.wire)


def test_the_agent_ends_with_its_answer(run):
    assert run.first.completed.returncode == 0, run.first.completed.stderr[-2_000:]
    assert run.first.answers == run.script.turns, "a step was requested twice, or not at all"
    if run.agent.submits:
        trajectory = json.loads((run.folder / "trajectory.json").read_text())["info"]
        assert (trajectory["exit_status"], trajectory["submission"]) == ("Submitted", ANSWER)
    else:
        assert run.first.completed.stdout.strip().endswith(ANSWER)


def test_every_request_was_answered(run):
    assert [exchange.status for exchange in run.first.exchanges if exchange.status != 200] == []
    assert [other for other in run.first.others if other[1] >= 500] == []
    assert len(run.first.requests) == len(run.first.exchanges)


def test_every_forwarded_request_is_valid(run):
    assert [request.problems for request in run.first.requests if request.problems] == []


def test_every_forwarded_prompt_fits_by_the_models_own_count(run):
    room = min(exchange.room for exchange in run.first.exchanges)
    assert room < run.agent.window
    for exchange in run.first.exchanges:
        assert exchange.tokens <= exchange.room
    for request in run.first.requests:
        assert request.tokens <= room


def test_the_window_is_the_smallest_that_the_agents_own_prompt_allows(run):
    assert run.agent.window - ROUNDING <= run.smallest <= run.agent.window


def test_the_newest_result_is_whole_in_every_prompt(run):
    forwarded = [request for request in run.first.requests if not is_side_call(request.body)]
    for number, request in enumerate(forwarded[1 : run.script.steps + 1], 1):
        spoken = [read(raw, request.wire) for raw in open_request(request.raw, request.wire).messages]
        newest = [part.text for message in spoken for part in message.parts if part.kind == "result"][-1]
        assert newest.count(run.shown(number)) == 1, f"step {number}"


def test_a_window_too_small_for_tools_and_system_text_is_rejected_with_the_sizes(run, refused):
    assert refused.answers == 0
    assert [request for request in refused.requests if not is_side_call(request.body)] == []
    assert 1 <= len(refused.steps) <= MOST_REFUSED
    for exchange in refused.steps:
        assert exchange.status == 400
        assert re.search(rb"the prompt needs [\d,]+ tokens and may have [\d,]+", exchange.error)
        assert b"a shorter conversation does not help" in exchange.error


def test_the_history_outgrows_the_window_and_no_prompt_does(run):
    stored = sum(entry.tokens or 0 for entry in run.first.messages)
    assert stored > 3 * run.agent.window
    last = run.first.steps[-1]
    assert len(last.raw) // 4 > 2 * run.agent.window, "the agent itself dropped its history"
    assert sum(exchange.decisions for exchange in run.first.steps) >= 3


def test_every_request_belongs_to_one_conversation_and_side_calls_to_branches_of_it(run):
    assert {exchange.session for exchange in run.first.steps} == {run.session}
    assert [name for name in run.first.sessions if name != run.session and not name.startswith(f"{run.session}~")] == []
    assert len(run.first.exchanges) == len(run.first.steps) + run.first.side_answers
    assert len(run.first.sessions) == 1 + run.first.side_answers
    assert not run.script.delegates or run.first.side_answers == 1


def test_every_message_of_the_agent_is_stored_once_in_order_and_byte_for_byte(run):
    stored = [entry for entry in run.first.messages if entry.role != "system"]
    history: list[bytes] = []
    middle: list[bytes] = []
    for exchange in run.first.steps:
        request = open_request(exchange.raw, wire_of(exchange.path))
        assert len(request.messages) >= len(history)
        history += request.messages[len(history) :]  # as first sent: agents move their cache marks later
        middle += [raw for raw in request.middle if raw not in middle]
    assert stored[-1].role == "assistant"  # the final answer, which the agent never sends back
    for entry, sent in zip(stored[:-1], history, strict=True):
        if entry.role != "assistant":
            assert entry.content == sent
    assert [entry.content for entry in run.first.messages if entry.role == "system"] == middle
    assert len({entry.id for entry in stored}) == len(stored)


def test_every_tool_result_is_stored_exactly_once_in_order_and_byte_for_byte(run):
    results = [part.text for entry in run.first.messages for part in message_of(entry).parts if part.kind == "result"]
    assert len(results) == run.script.steps + run.script.delegates
    assert not run.script.delegates or REPORT in results[-1]
    for number, found in enumerate(results[: run.script.steps], 1):
        assert found.count(run.shown(number)) == 1, f"step {number}"


def test_every_answer_of_the_model_is_stored_exactly_once_in_order(run):
    spoken = [message_of(entry) for entry in run.first.messages if entry.role == "assistant"]
    texts = [part.text for message in spoken for part in message.parts if part.kind == "text"]
    calls = [part.text for message in spoken for part in message.calls]
    assert texts[: run.script.steps] == [Script.words(number) for number in range(1, run.script.steps + 1)]
    assert len(texts) == run.script.turns
    assert len(calls) == run.script.steps + run.script.submits + run.script.delegates
    assert len(set(calls)) == len(calls)


def test_the_prompt_marks_evicted_messages(run):
    marked = [request for request in run.first.requests if MARKER in request.raw]
    assert len(marked) >= run.script.steps // 2
    left = [entry for entry in run.first.entries if entry.kind in DECISIONS]
    assert len(left) >= 3


def test_the_transcript_verifies_and_has_no_gaps(run):
    assert verify(run.gateway.store, run.session).ok
    assert [entry.seq for entry in run.first.entries] == list(range(1, len(run.first.entries) + 1))


def test_a_resumed_agent_continues_its_session_and_recalls_the_fact_it_asks_for(run):
    if not run.agent.can_resume:
        pytest.skip(f"{run.agent.id} cannot resume a session")
    again = run.work(QUESTION, resume=True)
    assert again.completed.returncode == 0, again.completed.stderr[-2_000:]
    assert [exchange.session for exchange in again.steps] == [run.session]
    stored = run.first.entries
    assert again.entries[: len(stored)] == stored
    question, *_, answer = again.messages[len(run.first.messages) :]
    assert (question.role, answer.role) == ("user", "assistant")
    assert QUESTION in question.content.decode()
    assert ANSWER in answer.content.decode()
    prompt = again.requests[-1]
    assert prompt.problems == []
    assert again.steps[-1].tokens <= again.steps[-1].room
    assert FACT.encode() in prompt.raw
    assert again.steps[-1].recalled
