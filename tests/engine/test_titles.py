"""Titles: the display name of a session, found without replaying it."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

import recto
from recto.engine.titles import MAX_TITLE_CHARS, titles_of
from recto.errors import InputError
from recto.stores.memory import MemoryStore
from recto.transcript.entries import OPENING_ENTRIES, RENAMED


def opened(store, session="agent:default:main"):
    return recto.open(store, session=session, model="gpt-4o", recall={"inject": False})


@pytest.fixture
def session():
    with closing(MemoryStore()) as store, opened(store) as session:
        yield session


def test_a_session_is_titled_by_the_first_words_of_its_first_user_message(session):
    assert session.title == ""
    session.append({"role": "system", "content": "You are a careful engineer."})
    session.append({"role": "user", "content": "Fix the flaky login test.\nIt fails on Mondays."})
    session.append({"role": "user", "content": "And the other one."})
    assert session.title == "Fix the flaky login test. It fails on Mondays."


def test_a_long_first_message_is_cut_between_words(session):
    session.append({"role": "user", "content": "Please " + "reconsider " * 30})
    assert session.title.endswith("reconsider …")
    assert len(session.title) <= 62


@pytest.mark.parametrize(
    "injected",
    [
        "# AGENTS.md instructions for /repo\n\nUse tabs.",
        "<environment_context>\n  <cwd>/repo</cwd>\n</environment_context>",
        "<system-reminder>\nRemember the rules.\n</system-reminder>",
        "This session is being continued from a previous conversation that ran out of context.",
    ],
)
def test_injected_text_is_not_used_as_a_title(session, injected):
    session.append({"role": "user", "content": injected})
    session.append({"role": "user", "content": f"{injected if injected.startswith('<') else ''}\nRename the module."})
    assert session.title == "Rename the module."


def test_a_tool_result_with_the_user_role_is_not_used_as_a_title(session):
    call = {"type": "tool_use", "id": "t1", "name": "ls", "input": {}}
    session.append({"role": "assistant", "content": [call]})
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "a.py b.py"}
    session.append({"role": "user", "content": [result]})
    session.append({"role": "user", "content": [{"type": "text", "text": "Now delete b."}]})
    assert session.title == "Now delete b."


def test_a_rename_is_an_event_and_the_last_one_counts(session):
    session.append({"role": "user", "content": "Hello there."})
    first = session.rename("Login bug")
    second = session.rename("  Login bug, again ")
    assert session.title == "Login bug, again"
    assert [entry.kind for entry in session.tail(2)] == [RENAMED, RENAMED]
    assert [json.loads(entry.content)["title"] for entry in (first, second)] == ["Login bug", "Login bug, again"]
    assert session.verify().ok


def test_a_rename_changes_nothing_in_the_prompt(session):
    session.append({"role": "user", "content": "Hello there."})
    before = session.prompt().raw
    session.rename("Greeting")
    assert session.prompt().raw == before


@pytest.mark.parametrize("title", ["", "  ", "two\nlines", "a\x1b[31mred", "x" * (MAX_TITLE_CHARS + 1)])
def test_a_title_that_cannot_be_shown_in_one_line_is_refused(session, title):
    with pytest.raises(InputError, match="Nothing was stored"):
        session.rename(title)
    assert len(session) == 0


def test_a_fork_keeps_the_title_of_its_source_until_it_is_renamed(session):
    session.append({"role": "user", "content": "Hello there."})
    session.rename("Greeting")
    session.fork("agent:default:copy")
    with opened(session.store, "agent:default:copy") as copy:
        assert copy.title == "Greeting"
        copy.rename("Another way")
        assert copy.title == "Another way"
    assert session.title == "Greeting"


def test_a_long_session_is_titled_without_reading_it(session, monkeypatch):
    session.append({"role": "user", "content": "Begin."})
    session.append_all([{"role": "assistant", "content": "."} for _ in range(2 * OPENING_ENTRIES)])
    for name in ("read", "tail", "pick"):
        monkeypatch.setattr(session.store, name, lambda *_: pytest.fail("the session was read"))
    assert titles_of(session.store, [session.key]) == {session.key: "Begin."}


def test_a_malformed_rename_of_another_program_does_no_harm(session):
    session.append({"role": "user", "content": "Hello there."})
    session.record(RENAMED, {"title": ["not", "text"]}, key="title/strange")
    assert session.title == ""
