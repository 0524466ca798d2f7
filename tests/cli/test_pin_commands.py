"""Pins by hand on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.calling import called_at

KEY = ("--session", "agent:me:main")


@pytest.fixture
def home(tmp_path) -> Path:
    messages = [{"role": "user", "content": "Never touch migrations."}, {"role": "assistant", "content": "I will not."}]
    (tmp_path / "chat.json").write_text(json.dumps(messages))
    called_at(tmp_path, "import", "chat.json", *KEY, "--model", "gpt-4o")
    return tmp_path


def pins(home: Path) -> list[int]:
    report = json.loads(called_at(home, "context", "detail", "--session", "agent:me:main", "--json"))
    return sorted(one["seq"] for one in report["largest"] if one["condition"] == "pinned")


def test_messages_are_pinned_and_unpinned(home):
    assert "pinned: entry 1, entry 2" in called_at(home, "pin", "2", "1", *KEY)
    assert pins(home) == [1, 2]
    made = json.loads(called_at(home, "unpin", "2", *KEY, "--json"))
    assert (made["kind"], made["entries"]) == ("unpinned", [2])
    assert pins(home) == [1]


def test_what_cannot_be_pinned_is_refused_and_nothing_is_changed(home):
    assert "no entry 99" in called_at(home, "pin", "1", "99", *KEY, code=3)
    assert "is an event" in called_at(home, "pin", "3", *KEY, code=3)
    assert "pinned are: none" in called_at(home, "unpin", "1", *KEY, code=3)
    assert pins(home) == []
    assert "Did you mean 'agent:me:main'" in called_at(home, "pin", "1", "--session", "agent:me:mian", code=2)


def test_a_decision_about_a_session_is_told_to_programs_too(home):
    noted = json.loads(called_at(home, "note", "add", "constraints", "Never.", *KEY, "--json"))
    copied = json.loads(called_at(home, "session", "fork", "agent:me:main", "agent:me:copy", "--json"))
    assert noted["seq"] > 3
    assert copied["entries"] == noted["seq"]


def test_a_recalled_message_is_judged_by_number_and_by_pointer(home):
    made = json.loads(called_at(home, "judge", "2", "not_helpful", *KEY, "--json"))
    assert made["seq"]
    pointer = json.loads(called_at(home, "recall", "migrations", *KEY, "--json"))["hits"][0]["pointer"]
    assert "judged helpful" in called_at(home, "judge", pointer, "helpful", *KEY)
    assert "there is no message" in called_at(home, "judge", "99999", "helpful", *KEY, code=3)
