"""Default session of a command: reads use the newest session, changes require a named session."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.calling import called_at

from recto.config import load
from recto.config.factory import open_session, open_store

OLD, NEW = "first-chat", "second-chat"
READING = (
    ("session", "show"),
    ("session", "export", "--as", "messages"),
    ("context", "list"),
    ("context", "detail"),
    ("facts",),
    ("note", "list"),
    ("health",),
    ("audit",),
    ("grep", "harbour"),
    ("recall", "--file", "a.py"),
)
CHANGING = (("compact",), ("pin", "1"), ("unpin", "1"), ("restore", "1"), ("note", "add", "misc", "x"), ("checkpoint",))


def import_session(home: Path, name: str, text: str) -> None:
    file = home / f"{name}.json"
    file.write_text(json.dumps([{"role": "user", "content": text}, {"role": "assistant", "content": "Noted."}]))
    called_at(home, "import", file.name)


@pytest.fixture
def home(tmp_path):
    import_session(tmp_path, OLD, "The ferry to Heligoland leaves the harbour at nine.")
    import_session(tmp_path, NEW, "The crane in the harbour is painted green.")
    return tmp_path


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_a_read_uses_the_newest_session_and_names_it(home, command):
    shown = called_at(home, *command)
    assert f"the newest session, '{NEW}'" in shown
    assert OLD not in shown


@pytest.mark.parametrize("command", CHANGING, ids=" ".join)
def test_a_change_without_a_session_is_rejected_and_names_the_newest_session(home, command):
    refused = called_at(home, *command, code=2)
    assert "Name one with --session" in refused
    assert f"the newest is '{NEW}'" in refused


def test_a_search_without_a_session_covers_all_sessions(home):
    assert "Heligoland" in called_at(home, "recall", "when does the ferry leave")


def test_a_search_of_the_default_session_mentions_the_other_sessions(home):
    import_session(home, "third", "Nothing of note.")
    called_at(home, "import", "third.json", "--session", "agent:default:main")
    shown = called_at(home, "recall", "when does the ferry leave")
    assert "Heligoland" not in shown
    assert "--scope tenant searches all of them" in shown
    assert "--scope" not in called_at(home, "recall", "ferry", "--session", OLD)


def test_default_and_named_sessions_are_never_replaced(home, monkeypatch):
    assert f"no session '{OLD}x'" in called_at(home, "session", "show", f"{OLD}x", code=2)
    monkeypatch.setenv("RECTO_SESSION", "elsewhere")
    assert "no session 'elsewhere'" in called_at(home, "session", "show", code=2)
    monkeypatch.delenv("RECTO_SESSION")
    called_at(home, "import", f"{OLD}.json", "--session", "agent:default:main")
    assert "newest" not in called_at(home, "session", "show")


def test_a_session_of_another_tenant_is_never_the_newest(home):
    settings = load(environ={}, arguments={"store": str(home / ".recto" / "transcript.db")})
    store = open_store(settings)
    with open_session(load(environ={}, arguments={"store": settings.store, "tenant": "acme"}), store) as session:
        session.append({"role": "user", "content": "A secret of acme."})
    store.close()
    shown = called_at(home, "session", "show")
    assert f"'{NEW}'" in shown
    assert "acme" not in shown


def test_an_imported_session_is_shown_for_its_model(tmp_path):
    file = tmp_path / "chat.json"
    file.write_text(json.dumps([{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}]))
    called_at(tmp_path, "import", file.name, "--model", "gpt-4o")
    shown = called_at(tmp_path, "context", "list")
    assert "121,600 tokens" in shown
    assert "gpt-4o" in shown
    assert "no model is named" not in shown
    assert "200000" in called_at(tmp_path, "context", "list", "--model", "claude-sonnet-4-5", "--json")


def test_a_renamed_file_is_not_imported_again(tmp_path):
    file = tmp_path / "chat.json"
    file.write_text(json.dumps([{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}]))
    called_at(tmp_path, "import", "chat.json", "--session", "agent:default:main")
    file.rename(tmp_path / "copy.json")
    assert "(0 new)" in called_at(tmp_path, "import", "copy.json", "--session", "agent:default:main")
    listed = json.loads(called_at(tmp_path, "session", "ls", "--json"))
    assert listed["entries"] == 3  # two messages, and the event of the first import
    original = called_at(tmp_path, "session", "export", "agent:default:main", "--as", "original")
    assert json.loads(original)[0]["content"] == "Hello."
