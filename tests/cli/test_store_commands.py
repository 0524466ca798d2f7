"""Copying a store, and erasing and renaming sessions, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.calling import called

from recto.stores.sqlite import SqliteStore
from recto.transcript.entries import Draft
from recto.transcript.session_keys import stored_key

ACME = stored_key("agent:a:main", "acme")
REASON = ("--reason", "asked for by the user")


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("USER", "ada")
    monkeypatch.setenv("LOGNAME", "ada")
    path = tmp_path / "a.db"
    with SqliteStore(path) as opened:
        for session in ("one", "two", ACME):
            opened.append(session, [Draft(id=session, ts=1, role="user", content=b'{"role":"user","content":"hi"}')])
    return str(path)


def run(store, *arguments, typed=""):
    return called("--store", store, *arguments, typed=typed)


def names(store):
    with SqliteStore(store) as opened:
        return [line.session for line in opened.sessions() if not line.session.startswith("recto:")]


def test_a_session_is_erased_after_its_name_is_typed(store):
    done = run(store, "session", "rm", "one", *REASON, typed="one\n")
    assert done.returncode == 0, done.stderr
    assert "one: 1 entries erased" in done.stdout
    assert names(store) == [ACME, "two"]


@pytest.mark.parametrize("typed", ["\n", "two\n", "yes\n"])
def test_any_other_confirmation_erases_nothing(store, typed):
    done = run(store, "session", "rm", "one", *REASON, typed=typed)
    assert done.returncode == 2
    assert "the typed name does not match" in done.stderr
    assert len(names(store)) == 3


@pytest.mark.parametrize("typed", ["", None])
@pytest.mark.parametrize("command", [("session", "rm", "one"), ("store", "erase", "--tenant", "acme")])
def test_an_erasure_that_cannot_be_confirmed_is_refused_and_names_the_flag(store, command, typed):
    done = run(store, *command, *REASON, typed=typed)
    assert done.returncode == 2
    assert "pass --yes" in done.stderr
    assert len(names(store)) == 3


def test_several_sessions_and_a_whole_tenant_are_erased_with_json_output(store):
    done = run(store, "session", "rm", "one", "two", *REASON, "--yes", "--json", "--by", "Grace")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["session"], row["entries"], row["by"], row["is_finished"]) for row in rows] == [
        ("one", 1, "Grace", True),
        ("two", 1, "Grace", True),
    ]
    assert run(store, "store", "erase", "--tenant", "acme", *REASON, typed="acme\n").returncode == 0
    assert names(store) == []


def test_an_erasure_is_audited_and_verify_raises_no_false_alarm(store, tmp_path):
    heads = str(tmp_path / "heads.json")
    assert run(store, "verify", "--write-heads", heads).returncode == 0
    export = str(tmp_path / "audit.jsonl")
    run(store, "session", "rm", "one", *REASON, "--yes")
    done = run(store, "verify", "--heads", heads)
    assert done.returncode == 0
    assert "erased on purpose" in done.stdout
    rows = [json.loads(line) for line in run(store, "audit", "--erased", "--json").stdout.splitlines()]
    [line] = [row for row in rows if row.get("kind") == "session_erased"]
    assert (line["reason"], line["by"], line["topic"]) == ("asked for by the user", "ada", "session")
    assert (line["details"]["session"], line["details"]["entries"]) == ("one", 1)
    assert "one, 1 entries" in " ".join(run(store, "audit", "--erased").stdout.replace("│", " ").split())
    assert run(store, "audit", "--erased", "--json", "-o", export).returncode == 0
    assert run(store, "audit", "--check", export).returncode == 0


def test_verify_does_not_count_the_record_of_erasures_as_a_session(store):
    assert run(store, "verify").stdout == "3 entries in 3 sessions: all as stored\n"
    run(store, "session", "rm", "one", *REASON, "--yes")
    assert run(store, "verify").stdout == "4 entries in 2 sessions and Recto's own records: all as stored\n"
    file = Path(store)
    file.write_bytes(file.read_bytes().replace(b"asked for by the user", b"asked for by no user!"))
    assert "BROKEN recto:erasures, entry 1" in run(store, "verify").stdout


def test_the_record_of_erasures_has_its_own_words_for_none_and_for_the_next_page(store):
    assert run(store, "audit", "--erased").stdout == "No erasure found.\n"
    run(store, "session", "rm", "one", *REASON, "--yes")
    first = run(store, "audit", "--erased", "--limit", "1").stdout
    assert "recto audit --erased --past 2" in first
    assert "session_erased" in run(store, "audit", "--erased", "--limit", "1", "--past", "2").stdout


def test_an_audit_export_of_an_erased_session_is_reported_as_erased(store, tmp_path):
    export = str(tmp_path / "audit.jsonl")
    run(store, "audit", "--session", "one", "--json", "-o", export)
    run(store, "session", "rm", "one", *REASON, "--yes")
    done = run(store, "audit", "--check", export)
    assert done.returncode == 1
    assert "erased on purpose" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("session", "rm"), "Missing argument"),
        (("store", "erase"), "Missing option"),
        (("session", "rm", "nowhere"), "no session 'nowhere'"),
        (("session", "rm", "recto:keys"), "no session 'recto:keys'"),
        (("store", "erase", "--tenant", "nobody"), "nothing is stored of tenant 'nobody'"),
        (("store", "erase", "--tenant", "../x"), "a name is"),
    ],
)
def test_a_missing_or_ambiguous_target_erases_nothing(store, arguments, says):
    done = run(store, *arguments, *REASON, "--yes")
    assert done.returncode != 0
    assert says in done.stderr
    assert len(names(store)) == 3


def test_a_session_is_renamed_and_listed_by_its_title(store):
    done = run(store, "session", "rename", "one", "Login bug", "--json")
    assert json.loads(done.stdout) == {"session": "one", "title": "Login bug", "seq": 2}
    rows = [json.loads(line) for line in run(store, "session", "ls", "--json").stdout.splitlines()]
    assert {row["session"]: row["title"] for row in rows}["one"] == "Login bug"
    assert "Login bug" in run(store, "session", "ls").stdout
    assert run(store, "session", "rename", "nowhere", "x").returncode == 2
    assert run(store, "session", "rename", "one", "two\nlines").returncode == 3
    assert run(store, "verify").returncode == 0


def test_erasure_requires_a_reason(store):
    assert run(store, "session", "rm", "one", "--yes").returncode == 2
    assert run(store, "session", "rm", "one", "--yes", "--reason", " ").returncode == 3
    assert len(names(store)) == 3


def test_a_store_is_copied_and_the_copied_sessions_are_reported(store, tmp_path):
    done = run(store, "store", "copy", str(tmp_path / "b.db"), "--json")
    assert {json.loads(line)["session"] for line in done.stdout.splitlines()} == {"one", "two", ACME}
    assert names(str(tmp_path / "b.db")) == names(store)
