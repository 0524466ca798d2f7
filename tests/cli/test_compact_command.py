"""The compact, facts, note and checkpoint commands: in pipes, and with usage errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.calling import called, own_file

from recto.testing import scripted_session


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A home with one longer session, created once; the tests do not depend on each other's events."""
    home = tmp_path_factory.mktemp("home")
    messages = list(scripted_session(exchanges=6))
    messages.insert(3, {"role": "user", "content": "Never change the public names in billing/invoice.py."})
    (home / "chat.json").write_text(json.dumps(messages))
    own_file(home).write_text(
        "model: gpt-4o\nsession: agent:me:main\nmodels: {gpt-4o: {window: 16000, max_input: 16000}}\n"
        "window: {keep_recent_tokens: 500}\nrecall: {embedder: {use: none}}\n"
    )
    run(home, "import", "chat.json", "--session", "agent:me:main")
    return home


def run(home: Path, *arguments: str, code: int = 0) -> str:
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(home)
        patched.setenv("HOME", str(home))
        done = called(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def test_a_compaction_reports_its_decision_and_can_be_undone(home):
    (made,) = run(home, "compact", "--json").splitlines()
    run(home, "restore", str(json.loads(made)["seq"]))
    refused = run(home, "compact")
    assert "Nothing to compact" in refused
    assert "restored messages stay" in refused
    assert "times shorter" in run(home, "context", "detail")


def test_a_compaction_quotes_the_constraints_of_the_user_verbatim(home):
    run(home, "import", "chat.json", "--session", "agent:me:other")
    output = run(home, "compact", "the tests", "--session", "agent:me:other")
    assert "compaction by extractive" in output
    assert "Never change the public names in billing/invoice.py." in " ".join(output.split())
    assert "A summary of" in run(home, "context", "list", "--session", "agent:me:other")


def test_facts_are_listed_with_their_entries(home):
    rows = [json.loads(line) for line in run(home, "facts", "--json").splitlines()]
    assert any(row["kind"] == "constraint" and "public names" in row["text"] and row["seq"] for row in rows)
    assert "constraint" in run(home, "facts", "--all")


def test_notes_are_stored_and_shown(home):
    assert "kept as entry" in run(home, "note", "add", "bugs", "The queue may be empty.", "--critical")
    assert "critical: The queue may be empty." in run(home, "note", "list")
    assert json.loads(run(home, "note", "list", "--json").splitlines()[-1])["kind"] == "bugs"
    run(home, "note", "add", "gossip", "x", code=2)
    run(home, "note", "add", "misc", " ", code=3)


def test_a_checkpoint_is_shown_as_text_and_as_json(home):
    assert "Never change the public names" in " ".join(run(home, "checkpoint").split())
    assert json.loads(run(home, "checkpoint", "--json"))["version"] > 1


def test_only_a_decision_can_be_restored(home):
    assert "is not a decision" in run(home, "restore", "1", code=3)
    run(home, "compact", "--session", "agent:me:mian", code=2)
