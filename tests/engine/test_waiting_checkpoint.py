"""Waiting checkpoints: they are announced when a session is opened, and missing tools are named on resume."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from tests.cli.calling import called

import recto
from recto.continuity.checkpoints.handoff import FOOTER, MISSING_TOOLS, with_missing_tools

READ, WRITE = (
    {"type": "function", "function": {"name": name, "parameters": {}}} for name in ("read_file", "write_file")
)


def opened(store="memory:", **more):
    return recto.open(store, model="gpt-4o", recall={"enabled": False}, continuity={"environment": False}, **more)


def call(name, number):
    function = {"name": name, "arguments": "{}"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
    }


def work(session, *tools):
    session.append({"role": "user", "content": "Rename the helper in app.py."})
    for number, name in enumerate(tools):
        session.append(call(name, number))
        session.append({"role": "tool", "tool_call_id": f"c{number}", "content": "ok"})
    session.append({"role": "assistant", "content": "Half of it is renamed."})


def events(session, kind):
    return [json.loads(entry.content) for entry in session.read() if entry.kind == kind]


def prompt_text(prompt):
    return json.dumps([json.loads(raw) for raw in prompt.built.messages])


@pytest.mark.requirement("checkpoint.announced")
def test_a_waiting_checkpoint_is_logged_once_in_a_session_without_a_manager(tmp_path, caplog):
    with opened(tmp_path / "a.db") as session:
        work(session)
        session.checkpoint(doing="rename the helper")
    caplog.set_level(logging.INFO, "recto.session")
    with opened(tmp_path / "a.db") as session:
        assert caplog.messages == []
        session.append({"role": "user", "content": "Where were we?"})
        session.prompt()
        session.prompt()
        (line,) = caplog.messages
        assert "checkpoint 1 waits" in line
        assert session.checkpoints.waiting().current.text == "rename the helper"


@pytest.mark.requirement("checkpoint.announced")
def test_no_checkpoint_waits_if_none_exists_or_the_task_is_complete_or_work_continued(tmp_path):
    with opened(tmp_path / "a.db") as session:
        work(session)
        assert session.checkpoints.waiting() is None
        session.checkpoint()
        assert session.checkpoints.waiting().version == 1
        session.append({"role": "user", "content": "Thanks. What is the weather?"})
        session.append({"role": "assistant", "content": "Fine."})
        assert session.checkpoints.waiting() is None
    with recto.manager(tmp_path / "b.db", model="gpt-4o", goal="Rename the helper") as manager:
        manager.on_turn_start("Go")
        manager.on_turn_end("Done.")
        assert manager.session.checkpoints.waiting().goal == "Rename the helper"
        manager.on_task_complete()
        assert manager.session.checkpoints.waiting() is None


@pytest.mark.requirement("checkpoint.announced")
def test_a_manager_resumes_a_checkpoint_and_logs_nothing(tmp_path, caplog):
    caplog.set_level(logging.INFO, "recto.session")
    for _ in range(2):
        with recto.manager(tmp_path / "b.db", model="gpt-4o", goal="Rename the helper") as manager:
            manager.on_turn_start("Go")
            manager.on_turn_end("Not yet.")
            assert caplog.messages == []


@pytest.mark.requirement("checkpoint.announced")
def test_the_command_line_and_async_sessions_show_a_waiting_checkpoint(tmp_path):
    store = tmp_path / "a.db"
    with opened(store) as session:
        work(session)
    assert "waits" not in called("--store", str(store), "context", "list").stdout
    with opened(store) as session:
        session.checkpoint()
    assert "Checkpoint 1 waits" in called("--store", str(store), "context", "list").stdout

    async def waiting():
        async with await recto.open_async(store, model="gpt-4o") as session:
            return await session.checkpoints.waiting()

    assert asyncio.run(waiting()).version == 1


@pytest.mark.requirement("checkpoint.tools")
def test_missing_tools_are_named_in_the_handoff_page_and_in_an_event():
    with opened() as session:
        work(session, "read_file", "write_file", "read_file")
        session.checkpoint(doing="rename the helper")
        assert session.checkpoints.newest().tools == ("read_file", "write_file")
        session.resume()
        session.append({"role": "user", "content": "Go on."})
        text = prompt_text(session.prompt([READ]))
        assert f"{MISSING_TOOLS}\\n- write_file" in text
        assert events(session, "tools_missing") == [{"tools": ["write_file"], "checkpoint": 2}]
        assert prompt_text(session.prompt([READ])) == text
        assert len(events(session, "tools_missing")) == 1


@pytest.mark.requirement("checkpoint.tools")
@pytest.mark.parametrize("tools", [(), (READ, WRITE)], ids=["unknown tools", "the same tools"])
def test_no_tools_are_named_if_all_are_present_or_none_were_passed(tools):
    with opened() as session:
        work(session, "read_file", "write_file")
        session.resume()
        session.append({"role": "user", "content": "Go on."})
        assert MISSING_TOOLS not in prompt_text(session.prompt(list(tools)))
        assert events(session, "tools_missing") == []


@pytest.mark.requirement("checkpoint.tools")
def test_a_manager_that_resumes_work_names_missing_tools_too(tmp_path):
    with recto.manager(tmp_path / "b.db", model="gpt-4o", goal="Rename", tools=[READ, WRITE]) as manager:
        manager.on_turn_start("Go")
        manager.on_turn_end(call("write_file", 1))
        manager.on_tool_result("write_file", "ok", id="c1")
    with recto.manager(tmp_path / "b.db", model="gpt-4o", goal="Rename", tools=[READ]) as manager:
        assert "write_file" in prompt_text(manager.on_turn_start()).partition(MISSING_TOOLS)[2]
        assert events(manager.session, "tools_missing")[0]["tools"] == ["write_file"]


@pytest.mark.requirement("checkpoint.tools")
def test_tools_are_known_after_their_calls_were_evicted():
    small = {"gpt-4o": {"window": 8_000, "max_input": 8_000}}
    with opened(models=small, window={"mode": "auto_compact", "keep_recent_tokens": 1_000}) as session:
        work(session, "read_file")
        for number in range(12):
            session.append({"role": "user", "content": f"{number} " + "word " * 900})
            session.prompt()
            session.append({"role": "assistant", "content": "Noted."})
        session.checkpoint()
        assert session.window.state.summary is not None
        assert session.checkpoints.newest().tools == ("read_file",)


def test_a_page_names_missing_tools_once_and_only_some_of_many():
    page = with_missing_tools(f"[Handoff]\n{FOOTER}", [f"t{number}" for number in range(20)])
    assert "t11 and 8 more" in page
    assert page.endswith(f"\n{FOOTER}")
    assert with_missing_tools(page, ["other"]) == page
