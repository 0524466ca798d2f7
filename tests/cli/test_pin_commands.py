"""The pin, unpin and judge commands."""

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
    return sorted(row["seq"] for row in report["largest"] if row["condition"] == "pinned")


def test_messages_are_pinned_and_unpinned(home):
    assert "pinned: entry 1, entry 2" in called_at(home, "pin", "2", "1", *KEY)
    assert pins(home) == [1, 2]
    made = json.loads(called_at(home, "unpin", "2", *KEY, "--json"))
    assert (made["kind"], made["entries"]) == ("unpinned", [2])
    assert pins(home) == [1]


def test_a_second_pin_prints_the_same_event(home):
    first = called_at(home, "pin", "1", *KEY, "--json")
    assert called_at(home, "pin", "1", *KEY, "--json") == first


def test_an_invalid_pin_is_rejected_and_changes_nothing(home):
    assert "no entry 99" in called_at(home, "pin", "1", "99", *KEY, code=3)
    assert "is an event" in called_at(home, "pin", "3", *KEY, code=3)
    assert "pinned are: none" in called_at(home, "unpin", "1", *KEY, code=3)
    assert pins(home) == []
    assert "Did you mean 'agent:me:main'" in called_at(home, "pin", "1", "--session", "agent:me:mian", code=2)


def test_note_and_fork_have_json_output(home):
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
