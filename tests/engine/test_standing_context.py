"""Standing context: placed first in every format, read again when a file changes, bounded in size."""

from __future__ import annotations

import json

import pytest

import recto
from recto.errors import SettingsError
from recto.formats import problems
from recto.testing import scripted_session

SMALL = {"gpt-4o": {"window": 16_000, "max_input": 16_000}}


@pytest.fixture
def files(tmp_path):
    (tmp_path / "IDENTITY.md").write_text("You are Ada, a careful engineer.")
    (tmp_path / "USER.md").write_text("The user is called Grace and reads German.")
    return [str(tmp_path / "IDENTITY.md"), str(tmp_path / "USER.md")]


def opened(files, store="memory:", **more):
    return recto.open(store, model="gpt-4o", models=SMALL, recall={"inject": False}, standing={"files": files, **more})


def changes(session):
    return [json.loads(entry.content) for entry in session.read() if entry.kind == "standing_changed"]


@pytest.mark.requirement("protect.standing")
def test_standing_context_comes_first_and_is_counted_in_every_prompt(files):
    with opened(files) as session:
        for message in scripted_session(exchanges=30):
            if message["role"] == "assistant":
                prompt = session.prompt()
                first = prompt.messages[0]
                assert first["role"] == "system"
                assert "You are Ada" in first["content"]
                assert "Grace" in first["content"]
                assert prompt.tokens == session.count(list(prompt.raw))
                assert prompt.tokens <= session.window.budget.input_budget
                assert problems(prompt.raw, prompt.built.wire) == []
            session.append(message)
        assert len(changes(session)) == 1


def test_in_the_anthropic_format_it_goes_into_the_system_field(files):
    with recto.open(
        "memory:", model="claude-sonnet-4-5", standing={"files": files}, recall={"inject": False}
    ) as session:
        session.append({"role": "user", "content": [{"type": "text", "text": "Hello there"}]})
        session.append({"role": "assistant", "content": [{"type": "text", "text": "Hello"}]})
        session.append({"role": "user", "content": [{"type": "text", "text": "And now?"}]})
        prompt = session.prompt()
        assert prompt.system.startswith("# IDENTITY.md\n\nYou are Ada")
        assert all(message["role"] != "system" for message in prompt.messages)


def test_a_changed_file_is_read_and_logged_once(files, tmp_path):
    with opened(files) as session:
        session.append({"role": "user", "content": "Hello"})
        before = session.prompt()
        assert session.prompt().raw == before.raw
        (tmp_path / "USER.md").write_text("The user is called Barbara.")
        after = session.prompt()
        assert "Barbara" in after.messages[0]["content"]
        assert [change["tokens"] > 0 for change in changes(session)] == [True, True]


def test_a_reopened_session_does_not_log_unchanged_files_again(files, tmp_path):
    with opened(files, tmp_path / "a.db") as session:
        session.append({"role": "user", "content": "Hello"})
        expected = session.prompt().raw
    with opened(files, tmp_path / "a.db") as session:
        assert session.prompt().raw == expected
        assert len(changes(session)) == 1


def test_a_missing_file_is_reported_and_the_others_are_used(files, tmp_path):
    with opened([*files, str(tmp_path / "AGENTS.md")]) as session:
        session.append({"role": "user", "content": "Hello"})
        assert "Ada" in session.prompt().messages[0]["content"]
        assert changes(session)[0]["files"][2]["problem"] == "there is no such file"


@pytest.mark.requirement("protect.standing")
def test_large_standing_context_warns_and_oversized_context_is_cut(files, tmp_path):
    (tmp_path / "USER.md").write_text("The user likes long texts. " * 300)
    with opened(files) as session:
        session.append({"role": "user", "content": "Hello"})
        session.prompt()
        assert changes(session)[0]["large"]
        assert not changes(session)[0]["cut"]
        (tmp_path / "USER.md").write_text("The user likes long texts. " * 3_000)
        assert session.prompt().tokens <= session.window.budget.input_budget
        assert changes(session)[1]["cut"]
        system = next(usage for usage in session.report().components if usage.component == "system")
        assert system.used >= changes(session)[1]["tokens"]


def test_secrets_are_not_stored(files, tmp_path):
    (tmp_path / "USER.md").write_text("The key is AKIAIOSFODNN7EXAMPLE.")
    with opened(files) as session:
        session.append({"role": "user", "content": "Hello"})
        session.prompt()
        assert not any(b"AKIAIOSFODNN7EXAMPLE" in entry.content for entry in session.read())


def test_inconsistent_shares_are_refused(files):
    with pytest.raises(SettingsError):
        opened(files, warning_percent=30.0, most_percent=20.0)
