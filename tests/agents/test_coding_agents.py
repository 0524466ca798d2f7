"""Real coding agents work through the gateway: their history outgrows the window several times, and nothing is lost."""

from __future__ import annotations

import json

import pytest
from tests.agents.agents import PATHS
from tests.agents.conftest import Run
from tests.agents.scripts import ANSWER, FACT, QUESTION, Script, output_of

from recto.core.entries import Entry
from recto.core.messages import Message
from recto.gateway.asking import open_request
from recto.models.registry import Registry
from recto.models.tokenizers import Tokenizers
from recto.wire import read
from recto.wire.names import CHAT

MARKER = b"earlier messages"


def message_of(entry: Entry) -> Message:
    return read(entry.content, entry.wire)


def said_by(run: Run, role: str) -> str:
    """Everything that one side said in the transcript, in order."""
    found = [message_of(entry) for entry in run.messages]
    return "\n".join(part.text for message in found if message.role == role for part in message.parts)


def test_the_agent_ends_with_its_answer(run):
    assert run.ended.returncode == 0, run.ended.stderr[-2_000:]
    assert run.script.said == run.script.steps + 1, "a step was asked for twice, or not at all"
    if run.agent.package == "mini-swe-agent":
        told = json.loads((run.folder / "trajectory.json").read_text())["info"]
        assert (told["exit_status"], told["submission"]) == ("Submitted", ANSWER)
    else:
        assert run.ended.stdout.strip().endswith(ANSWER)


def test_every_request_was_answered(run):
    assert [told.status for told in run.listening.told if told.status != 200] == []
    assert [other for other in run.listening.others if other[1] >= 500] == []
    assert len(run.upstream.asked) == len(run.listening.told)


def test_every_request_that_was_sent_on_is_valid(run):
    assert [asked.problems for asked in run.upstream.asked if asked.problems] == []


def test_every_prompt_that_was_sent_on_fits_by_the_models_own_count(run):
    card = Registry({run.agent.model: {"window": run.agent.window}}).card(run.agent.model)
    meter = Tokenizers().meter_for(card)
    room = min(told.room for told in run.listening.told)
    assert room < run.agent.window
    for told in run.listening.told:
        assert told.tokens <= told.room
    for asked in run.upstream.asked:
        opened = open_request(asked.raw, asked.wire)
        spoken = [read(raw, asked.wire) for raw in opened.body.messages]
        beside = (opened.body.system or b"").decode()
        counted = meter.prompt(spoken, opened.tools.decode()) + (meter.text(beside) if beside else 0)
        assert counted <= room


def test_the_history_outgrew_the_window_and_no_prompt_did(run):
    stored = sum(entry.tokens or 0 for entry in run.messages)
    assert stored > 3 * run.agent.window
    last = run.steps[-1]
    assert len(last.raw) // 4 > 2 * run.agent.window, "the agent itself let go of its history"
    assert sum(told.decisions for told in run.steps) >= 3


def test_every_request_belongs_to_one_conversation_and_side_calls_to_branches_of_it(run):
    assert {told.session for told in run.steps} == {run.session}
    assert [name for name in run.sessions if name != run.session and not name.startswith(f"{run.session}~")] == []
    assert len(run.listening.told) == len(run.steps) + run.script.beside


def test_what_the_agent_sent_stands_in_the_transcript_once_in_order_and_to_the_byte(run):
    stored = run.messages
    history: list[bytes] = []
    for told in run.steps:
        sent = open_request(told.raw, PATHS[told.path]).messages
        assert len(sent) >= len(history)
        history += sent[len(history) :]  # as it was sent first: agents move their cache marks later
    assert len(stored) == len(history) + len(stored[len(history) :])
    assert {entry.role for entry in stored[len(history) :]} == {"assistant"}
    for entry, sent in zip(stored, history, strict=False):
        if entry.role != "assistant":
            assert entry.content == sent
    assert len({entry.id for entry in stored}) == len(stored)


def test_every_tool_result_stands_in_the_transcript_exactly_once_in_order_and_to_the_byte(run):
    results = [part.text for entry in run.messages for part in message_of(entry).parts if part.kind == "result"]
    assert len(results) == run.script.steps
    for number, found in enumerate(results, 1):
        printed = output_of(number, run.script.lines)
        shown = json.dumps(printed)[1:-1] if run.agent.wire == CHAT else printed  # mini-swe-agent shows it as JSON
        assert found.count(shown) == 1, f"step {number}"


def test_every_answer_of_the_model_stands_in_the_transcript_exactly_once_in_order(run):
    spoken = [message_of(entry) for entry in run.messages if entry.role == "assistant"]
    texts = [part.text for message in spoken for part in message.parts if part.kind == "text"]
    calls = [part.text for message in spoken for part in message.calls]
    assert texts[:-1] == [Script.words(number) for number in range(1, run.script.steps + 1)]
    assert len(texts) == run.script.steps + 1
    assert len(calls) == run.script.steps + run.script.submits
    assert len(set(calls)) == len(calls)


def test_the_model_is_told_what_left(run):
    told = [asked for asked in run.upstream.asked if MARKER in asked.raw]
    assert len(told) >= run.script.steps // 2
    left = [entry for entry in run.entries if entry.kind == "context_window_pruned"]
    assert left
    assert all(json.loads(entry.content) for entry in left)


def test_the_transcript_can_be_verified(run):
    found = run.gateway.store
    assert [entry.seq for entry in run.entries] == list(range(1, found.head(run.session).seq + 1))


def test_a_resumed_agent_goes_on_in_its_session_and_is_given_what_it_asks_about(run):
    """The last test of a run: it adds to it."""
    if not run.agent.can_resume:
        pytest.skip(f"{run.agent.id} begins anew each time")
    before, stored = len(run.steps), len(run.messages)
    run.start(QUESTION, resume=True)
    assert run.ended.returncode == 0, run.ended.stderr[-2_000:]
    assert len(run.steps) == before + 1
    assert run.steps[-1].session == run.session
    assert QUESTION in said_by(run, "user")
    assert len(run.messages) <= stored + 4
    prompt = run.upstream.asked[-1]
    assert prompt.problems == []
    assert run.steps[-1].tokens <= run.steps[-1].room
    assert FACT.encode() in prompt.raw
    assert run.steps[-1].recalled
