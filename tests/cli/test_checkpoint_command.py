"""The checkpoint and resume commands: in pipes, from a file, and with usage errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.calling import called, own_file

import recto
from recto.engine.checkpoints import session_folder

KEY = "agent:me:main"


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A home with one short session."""
    messages = [
        {"role": "user", "content": "Never touch migrations/. Mend tax.py."},
        {"role": "assistant", "content": "We compare integers because floats drift."},
    ]
    (tmp_path / "tax.py").write_text("rate = 7\n")
    own_file(tmp_path).write_text(f"model: gpt-4o\nsession: {KEY}\ncontinuity: {{folder: kept}}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with recto.open(tmp_path / ".recto" / "transcript.db", session=KEY) as session:
        session.append_all(messages)
    return tmp_path


@pytest.fixture
def run(home) -> Callable[..., str]:
    """Runs a command as the shell would, in this process."""

    def running(*arguments: str, code: int = 0) -> str:
        done = called(*arguments)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return running


def test_a_checkpoint_is_updated_and_a_stale_update_is_rejected(run):
    output = run("checkpoint", "--plan", "mend tax.py", "--plan", "run the tests", "--doing", "mend")
    assert "begun: mend tax.py" in output
    assert "version 1" in output
    checkpoint = json.loads(
        run(
            "checkpoint",
            "--done",
            "mend",
            "--set",
            "goal=Tax is right",
            "--issue",
            "x",
            "--expect",
            "1",
            "--json",
        )
    )
    assert (checkpoint["version"], checkpoint["goal"], checkpoint["current"]) == (2, "Tax is right", "run the tests")
    assert [task["status"] for task in checkpoint["subtasks"]] == ["planned", "done"]
    assert "the newest is version 2" in run("checkpoint", "--done", "run", "--expect", "1", code=3)
    assert "--set takes goal=TEXT" in run("checkpoint", "--set", "mood=good", code=3)
    assert "is not a service" in run("checkpoint", "--service", "nowhere", code=3)
    assert json.loads(run("checkpoint", "--json"))["version"] == 3


def test_work_is_resumed_from_the_transcript_and_drift_exits_with_1(home, run):
    assert "'recto checkpoint' writes one" in run("resume", code=3)
    run("checkpoint", "--doing", "mend tax.py")
    output = run("resume", "--session", KEY)
    assert "Never touch migrations/." in output
    assert "begun: mend tax.py" in output
    (home / "tax.py").write_text("rate = 19\n")
    resumed = json.loads(run("resume", "--json", code=1))
    assert [finding["kind"] for finding in resumed["drift"]] == ["changed"]
    assert "tax.py has other content" in resumed["text"]


def test_work_is_resumed_from_a_file_alone_unless_the_file_is_stale_foreign_or_broken(home, run):
    run("checkpoint", "--doing", "mend tax.py")
    file = session_folder(home / "kept", KEY) / "checkpoint.json"
    stored = file.read_bytes()
    (home / "old.json").write_bytes(stored)
    run("checkpoint", "--done", "mend")
    assert "it is stale: version 1" in run("resume", "--from", "old.json", code=3)
    elsewhere = ("--store", str(home / "none.db"))
    assert "begun: mend tax.py" in run(*elsewhere, "resume", "--from", "old.json")
    assert not (home / "none.db").exists()
    assert "it is of session" in run("resume", "--session", "agent:other:main", "--from", "old.json", code=3)
    (home / "old.json").write_bytes(stored[: len(stored) // 2])
    assert "was not taken" in run(*elsewhere, "resume", "--from", "old.json", code=3)
    assert "cannot be read" in run("resume", "--from", "nothing.json", code=3)
    assert "mend tax.py" in (file.parent / "handoff.md").read_text()
