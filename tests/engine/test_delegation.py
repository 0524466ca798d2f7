"""Sub-agents: called through the caller's own dispatcher, with bounded answers and linked transcripts."""

from __future__ import annotations

import json
import threading

import pytest

import recto
from recto.errors import DelegationFailed, InputError
from recto.testing import scripted_session

SMALL = {"gpt-4o": {"window": 16_000, "max_input": 16_000}}


def opened(dispatcher=None, **more):
    return recto.open("memory:", model="gpt-4o", models=SMALL, recall={"inject": False}, dispatcher=dispatcher, **more)


@pytest.mark.requirement("compress.delegation")
def test_the_transcript_of_a_sub_agent_is_stored_and_linked_in_both_directions():
    seen = []

    def dispatch(task):
        seen.append(task)
        return "The timeout is read in api/routes.py."

    with opened(dispatch) as session:
        session.append_all(list(scripted_session(exchanges=1)))
        found = session.delegate("Where is the timeout read?", entries=[2, 3], most=50)
        assert found.answer == "The timeout is read in api/routes.py."
        assert seen[0].task == "Where is the timeout read?"
        assert [message.seq for message in seen[0].messages] == [2, 3]
        event = json.loads(next(session.read(found.seq, found.seq)).content)
        assert event["session"] == found.session == seen[0].session
        child = list(session.store.read(found.session))
        assert child[0].kind == "delegated_from"
        assert json.loads(child[0].content)["session"] == session.key
        assert [json.loads(entry.content)["content"] for entry in child[1:]] == [
            "Where is the timeout read?",
            "The timeout is read in api/routes.py.",
        ]


@pytest.mark.requirement("compress.delegation")
def test_an_answer_is_bounded_and_stored_in_full_in_its_own_transcript():
    with opened(lambda task: "finding after finding " * 5_000) as session:
        session.append({"role": "user", "content": "Look into it."})
        found = session.delegate("Look.", most=100)
        assert found.cut
        assert session.count(found.answer) <= 100
        stored = json.loads(session.store.tail(found.session, 1)[0].content)["content"]
        assert stored == "finding after finding " * 5_000


@pytest.mark.parametrize("answer", ["", None, 7])
def test_an_empty_answer_is_reported_as_a_failure(answer):
    with opened(lambda task: answer) as session:
        session.append({"role": "user", "content": "Look into it."})
        with pytest.raises(DelegationFailed):
            session.delegate("Look.")
        assert "failed" in json.loads(session.tail(1)[0].content)


def test_a_failing_dispatcher_fails_only_its_task():
    def breaks(task):
        raise RuntimeError("no sub-agents today")

    with opened(breaks) as session:
        session.append({"role": "user", "content": "Look into it."})
        with pytest.raises(DelegationFailed, match="RuntimeError"):
            session.delegate("Look.")
        assert session.prompt().messages


def test_a_hanging_dispatcher_times_out():
    release = threading.Event()
    with opened(lambda task: str(release.wait(60)), compress={"delegate_seconds": 0.05}) as session:
        session.append({"role": "user", "content": "Look into it."})
        with pytest.raises(DelegationFailed, match="within"):
            session.delegate("Look.")
        release.set()


def test_delegation_without_a_dispatcher_is_refused():
    with opened() as session, pytest.raises(InputError):
        session.delegate("Look.")


@pytest.mark.requirement("compress.cascade")
def test_the_cascade_delegates_last_and_checks_the_answer():
    def dispatch(task):
        return "- The timeout helper in api/routes.py is renamed.\n- It costs 31,337 dollars."

    with opened(dispatch, window={"mode": "zones", "min_recent_messages": 2}) as session:
        session.append({"role": "user", "content": "Rename the timeout helper in api/routes.py."})
        for number in range(12):
            session.append({"role": "assistant", "content": f"Step {number}: " + "I read on and on. " * 120})
            session.append({"role": "user", "content": f"Go on with {number}, please. " + "Look at it again. " * 120})
        prompt = session.prompt()
        payloads = [json.loads(entry.content) for entry in prompt.decisions]
        prompt_text = "\n".join(raw.decode() for raw in prompt.raw)
        assert "31,337" not in prompt_text
        if any(payload["policy"] == "delegate" for payload in payloads):
            assert "is renamed" in prompt_text


def full_session(session):
    """Appends long messages, of which the newest alone exceed the window."""
    session.append({"role": "user", "content": "Rename the timeout helper in api/routes.py."})
    for number in range(24):
        session.append({"role": "assistant", "content": f"Step {number}: " + "I read api/routes.py on and on. " * 60})
        session.append({"role": "user", "content": f"Go on with {number}, please. " + "Look at it again. " * 60})
        session.prompt()


@pytest.mark.requirement("compress.last-rung")
def test_the_last_rung_asks_the_sub_agent_and_its_digest_can_be_undone():
    tasks = []

    def dispatch(task):
        tasks.append(task)
        return "- The timeout helper in api/routes.py is to be renamed."

    with opened(dispatch, window={"mode": "zones"}) as session:
        full_session(session)
        assert tasks
        found = [entry for entry in session.read() if entry.kind == "compaction"]
        last = next(entry for entry in reversed(found) if json.loads(entry.content)["policy"] == "delegate")
        assert json.loads(last.content)["compression"]["engine"] == "sub-agent"
        reports = [json.loads(entry.content) for entry in session.read() if entry.kind == "delegated"]
        assert len(reports) == len(tasks)
        assert {report["session"] for report in reports} == {task.session for task in tasks}
        assert session.window.state.summary is not None
        session.restore(last.seq)
        state = session.window.state
        assert state.summary is None or state.summary.decision_seq != last.seq


@pytest.mark.requirement("compress.last-rung")
def test_without_a_dispatcher_a_new_window_is_the_last_rung():
    with opened(None, window={"mode": "zones"}) as session:
        full_session(session)
        kinds = {entry.kind for entry in session.read()}
        assert "window_opened" in kinds
        assert "delegated" not in kinds


def test_a_failing_sub_agent_in_the_last_rung_does_not_fail_the_turn():
    def dispatch(task):
        raise RuntimeError("no sub-agent today")

    with opened(dispatch, window={"mode": "zones"}) as session:
        full_session(session)
        assert any("failed" in json.loads(entry.content) for entry in session.read() if entry.kind == "delegated")
