"""`recto keys`: keys are created, listed and revoked; a secret is shown once."""

from __future__ import annotations

import json

import pytest
from tests.cli.calling import called

from recto.cli.console import out
from recto.config.factory import SystemClock
from recto.gateway.api_keys import Keys
from recto.stores.sqlite import SqliteStore
from recto.testing import FakeClock


@pytest.fixture
def store(tmp_path):
    return str(tmp_path / "a.db")


def run(store, *arguments):
    return called("--store", store, *arguments)


def found(store, secret, clock=None):
    with SqliteStore(store) as opened:
        return Keys(opened, clock or SystemClock()).find(secret)


def test_add_prints_only_the_secret_and_the_secret_authenticates(store):
    done = run(store, "keys", "add", "laptop")
    assert done.returncode == 0
    secret = done.stdout.strip()
    assert done.stdout == secret + "\n"
    assert "not shown again" in done.stderr
    assert secret not in done.stderr
    key = found(store, secret)
    assert (key.name, key.rights, key.canonical, key.expires) == ("laptop", {"ask"}, False, 0)
    assert secret not in run(store, "keys", "list").stdout + run(store, "keys", "list", "--json").stdout


def test_every_option_is_stored(store):
    options = ["--tenant", "acme", "--agent", "bot", "--right", "ask", "--right", "change", "--upstream", "main"]
    options += ["--profile", "coding", "--rpm", "60", "--concurrency", "4", "--body-bytes", "1000"]
    secret = run(store, "keys", "add", "ci", *options, "--expires-days", "1", "--canonical").stdout.strip()
    key = found(store, secret)
    assert (key.tenant, key.agent, key.rights, key.upstream) == ("acme", "bot", {"ask", "change"}, "main")
    assert (key.profile, key.requests_per_minute, key.concurrency, key.body_bytes) == ("coding", 60, 4, 1000)
    assert key.canonical
    assert found(store, secret, FakeClock(key.expires)) is None
    row = json.loads(run(store, "keys", "list", "--json").stdout)
    assert (row["rights"], row["expires"], row["id"]) == (["ask", "change"], key.expires, key.id)


def test_a_revoked_key_is_rejected_and_stays_in_the_list(store):
    secret = run(store, "keys", "add", "laptop").stdout.strip()
    id = found(store, secret).id
    done = run(store, "keys", "revoke", id)
    assert (done.returncode, done.stdout) == (0, f"{id}, 'laptop': revoked\n")
    assert found(store, secret) is None
    assert "revoked" in run(store, "keys", "list").stdout
    assert run(store, "keys", "revoke", id).returncode == 0


def test_usage_errors_are_one_line_and_an_exit_code(store):
    assert run(store, "keys", "list").returncode == 4  # no store exists yet
    run(store, "keys", "add", "laptop")
    unknown = run(store, "keys", "revoke", "nobody")
    assert (unknown.returncode, len(unknown.stderr.splitlines())) == (3, 1)
    for wrong in (["--tenant", "a/b"], ["--agent", ""]):
        assert run(store, "keys", "add", "x", *wrong).returncode == 3
    for wrong in (["--right", "root"], ["--rpm", "-1"], ["--expires-days", "0"]):
        assert run(store, "keys", "add", "x", *wrong).returncode == 2
    assert len(run(store, "keys", "list", "--json").stdout.splitlines()) == 1


def test_no_other_command_shows_the_keys(store, tmp_path):
    run(store, "keys", "add", "laptop")
    assert "recto:keys" not in run(store, "session", "ls").stdout + run(store, "session", "ls", "--json").stdout
    assert run(store, "session", "show", "recto:keys").returncode == 2
    assert run(store, "read", "recto://recto:keys/1").returncode == 3
    assert run(store, "session", "export", "recto:keys").returncode == 2
    run(store, "session", "export", "--all", "-o", str(tmp_path / "all.jsonl"))
    assert b"key_added" not in (tmp_path / "all.jsonl").read_bytes()
    assert run(store, "index").stdout.startswith("0 entries")
    verified = json.loads(run(store, "verify", "--json").stdout)
    assert (verified["ok"], verified["entries"]) == (True, 1)  # its hash chain is verified like every other


def test_a_key_can_override_the_new_windows_setting(store):
    for option, expected in (("--new-windows", True), ("--no-new-windows", False), ("--canonical", None)):
        key = found(store, run(store, "keys", "add", "laptop", option).stdout.strip())
        assert key.new_windows is expected


def test_the_new_windows_option_of_a_key_can_be_changed_and_is_listed(store):
    secret = run(store, "keys", "add", "laptop", "--rpm", "5").stdout.strip()
    id = found(store, secret).id
    for option, expected, words in (
        ("--new-windows", True, "new windows"),
        ("--no-new-windows", False, "no new windows"),
    ):
        assert f"5 a minute, {words}" in run(store, "keys", "limit", id, option).stdout
        assert (found(store, secret).new_windows, found(store, secret).requests_per_minute) == (expected, 5)
        (listed,) = run(store, "keys", "list", "--json").stdout.splitlines()
        assert json.loads(listed)["new_windows"] is expected


def test_ids_are_not_truncated_in_a_narrow_terminal(store, monkeypatch):
    monkeypatch.setattr(out, "width", 80)
    for name in ("a laptop with a long name", "another one"):
        run(store, "keys", "add", name, "--agent", "research", "--right", "ask", "--right", "read")
    ids = [json.loads(line)["id"] for line in run(store, "keys", "list", "--json").stdout.splitlines()]
    listed = run(store, "keys", "list").stdout
    assert len(ids) == 2
    assert all(id in listed for id in ids)
