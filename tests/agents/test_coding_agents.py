"""Real coding agents work through the gateway: their history outgrows the window several times, and nothing is lost."""

from __future__ import annotations

import json
import re

import pytest
from tests.agents.agents import wire_of
from tests.agents.scripts import ANSWER, FACT, QUESTION, REPORT, Script, is_beside
from tests.agents.windows import ROUNDING

from recto.engine.projection import DECISIONS
from recto.engine.verification import verify
from recto.formats import read
from recto.formats.message import Message
from recto.gateway.request import open_request
from recto.transcript.entries import Entry

MARKER = b"earlier messages"
MOST_REFUSED = 6
"""Requests that an agent may send before it gives up; none of them reaches the model. opencode retries five times where
the text of an error holds digits like 500."""


def message_of(entry: Entry) -> Message:
    return read(entry.content, entry.wire)


def test_the_agent_ends_with_its_answer(run):
    assert run.first.ended.returncode == 0, run.first.ended.stderr[-2_000:]
    assert run.first.answers == run.script.turns, "a step was asked for twice, or not at all"
    if run.agent.submits:
        told = json.loads((run.folder / "trajectory.json").read_text())["info"]
        assert (told["exit_status"], told["submission"]) == ("Submitted", ANSWER)
    else:
        assert run.first.ended.stdout.strip().endswith(ANSWER)


def test_every_request_was_answered(run):
    assert [told.status for told in run.first.told if told.status != 200] == []
    assert [other for other in run.first.others if other[1] >= 500] == []
    assert len(run.first.asked) == len(run.first.told)


def test_every_request_that_was_sent_on_is_valid(run):
    assert [asked.problems for asked in run.first.asked if asked.problems] == []


def test_every_prompt_that_was_sent_on_fits_by_the_models_own_count(run):
    room = min(told.room for told in run.first.told)
    assert room < run.agent.window
    for told in run.first.told:
        assert told.tokens <= told.room
    for asked in run.first.asked:
        assert asked.tokens <= room


def test_the_window_is_the_smallest_that_its_own_prompt_allows(run):
    assert run.agent.window - ROUNDING <= run.smallest <= run.agent.window


def test_the_newest_result_is_whole_in_every_prompt(run):
    sent_on = [asked for asked in run.first.asked if not is_beside(asked.body)]
    for number, asked in enumerate(sent_on[1 : run.script.steps + 1], 1):
        spoken = [read(raw, asked.wire) for raw in open_request(asked.raw, asked.wire).messages]
        newest = [part.text for message in spoken for part in message.parts if part.kind == "result"][-1]
        assert newest.count(run.shown(number)) == 1, f"step {number}"


def test_a_window_that_its_tools_and_system_text_do_not_fit_is_refused_with_the_sizes_and_the_agent_ends(run, refused):
    assert refused.answers == 0
    assert [asked for asked in refused.asked if not is_beside(asked.body)] == []
    assert 1 <= len(refused.steps) <= MOST_REFUSED
    for told in refused.steps:
        assert told.status == 400
        assert re.search(rb"the prompt needs [\d,]+ tokens and may have [\d,]+", told.error)
        assert b"a shorter conversation does not help" in told.error


def test_the_history_outgrew_the_window_and_no_prompt_did(run):
    stored = sum(entry.tokens or 0 for entry in run.first.messages)
    assert stored > 3 * run.agent.window
    last = run.first.steps[-1]
    assert len(last.raw) // 4 > 2 * run.agent.window, "the agent itself let go of its history"
    assert sum(told.decisions for told in run.first.steps) >= 3


def test_every_request_belongs_to_one_conversation_and_side_calls_to_branches_of_it(run):
    assert {told.session for told in run.first.steps} == {run.session}
    assert [name for name in run.first.sessions if name != run.session and not name.startswith(f"{run.session}~")] == []
    assert len(run.first.told) == len(run.first.steps) + run.first.beside
    assert len(run.first.sessions) == 1 + run.first.beside
    assert not run.script.delegates or run.first.beside == 1


def test_what_the_agent_sent_stands_in_the_transcript_once_in_order_and_to_the_byte(run):
    stored = [entry for entry in run.first.messages if entry.role != "system"]
    history: list[bytes] = []
    middle: list[bytes] = []
    for told in run.first.steps:
        request = open_request(told.raw, wire_of(told.path))
        assert len(request.messages) >= len(history)
        history += request.messages[len(history) :]  # as it was sent first: agents move their cache marks later
        middle += [raw for raw in request.middle if raw not in middle]
    assert stored[-1].role == "assistant"  # the last answer, which is not sent again
    for entry, sent in zip(stored[:-1], history, strict=True):
        if entry.role != "assistant":
            assert entry.content == sent
    assert [entry.content for entry in run.first.messages if entry.role == "system"] == middle
    assert len({entry.id for entry in stored}) == len(stored)


def test_every_tool_result_stands_in_the_transcript_exactly_once_in_order_and_to_the_byte(run):
    results = [part.text for entry in run.first.messages for part in message_of(entry).parts if part.kind == "result"]
    assert len(results) == run.script.steps + run.script.delegates
    assert not run.script.delegates or REPORT in results[-1]
    for number, found in enumerate(results[: run.script.steps], 1):
        assert found.count(run.shown(number)) == 1, f"step {number}"


def test_every_answer_of_the_model_stands_in_the_transcript_exactly_once_in_order(run):
    spoken = [message_of(entry) for entry in run.first.messages if entry.role == "assistant"]
    texts = [part.text for message in spoken for part in message.parts if part.kind == "text"]
    calls = [part.text for message in spoken for part in message.calls]
    assert texts[: run.script.steps] == [Script.words(number) for number in range(1, run.script.steps + 1)]
    assert len(texts) == run.script.turns
    assert len(calls) == run.script.steps + run.script.submits + run.script.delegates
    assert len(set(calls)) == len(calls)


def test_the_model_is_told_what_left(run):
    told = [asked for asked in run.first.asked if MARKER in asked.raw]
    assert len(told) >= run.script.steps // 2
    left = [entry for entry in run.first.entries if entry.kind in DECISIONS]
    assert len(left) >= 3


def test_the_transcript_is_what_was_stored(run):
    assert verify(run.gateway.store, run.session).ok
    assert [entry.seq for entry in run.first.entries] == list(range(1, len(run.first.entries) + 1))


def test_a_resumed_agent_goes_on_in_its_session_and_is_given_what_it_asks_about(run):
    if not run.agent.can_resume:
        pytest.skip(f"{run.agent.id} cannot go on where it ended")
    again = run.work(QUESTION, resume=True)
    assert again.ended.returncode == 0, again.ended.stderr[-2_000:]
    assert [told.session for told in again.steps] == [run.session]
    stored = run.first.entries
    assert again.entries[: len(stored)] == stored
    asked, *_, answered = again.messages[len(run.first.messages) :]
    assert (asked.role, answered.role) == ("user", "assistant")
    assert QUESTION in asked.content.decode()
    assert ANSWER in answered.content.decode()
    prompt = again.asked[-1]
    assert prompt.problems == []
    assert again.steps[-1].tokens <= again.steps[-1].room
    assert FACT.encode() in prompt.raw
    assert again.steps[-1].recalled
