"""`recto doctor`: broken settings, models, file modes, clock and addresses are each reported as a finding."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import time
from pathlib import Path

import pytest
import yaml
from tests.cli.calling import called, own_file

import recto
from recto.stores.sqlite.connection import SideLock
from recto.transcript.entries import Draft

VALID = {"model": "gpt-4o", "limits": {"lock_seconds": 0.1}, "recall": {"embedder": {"use": "none"}}, "store": "a.db"}


@pytest.fixture
def home(tmp_path) -> Path:
    with recto.open(tmp_path / "a.db", session="agent:a:main", recall={"enabled": False}) as session:
        session.append({"role": "user", "content": "Hello."})
    return tmp_path


def doctor(home: Path, settings: str = "", *arguments: str, code: int = 1, **environ: str) -> list[dict]:
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(home)
        patched.setenv("HOME", str(home))
        patched.delenv("RECTO_RECALL__EMBEDDER__USE", raising=False)
        for name, value in environ.items():
            patched.setenv(name, value)
        own_file(home).write_text(yaml.safe_dump({**VALID, **(yaml.safe_load(settings) or {})}))
        own_file(home).chmod(0o600)
        done = called("doctor", "--json", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def problems(found: list[dict]) -> list[dict]:
    assert all(finding["cure"] for finding in found if finding["grade"] == "problem"), "every problem has a cure"
    return [finding for finding in found if finding["grade"] == "problem"]


def test_a_healthy_installation_passes_every_check(home):
    found = doctor(home, code=0)
    assert problems(found) == []
    assert {"settings", "models", "disk", "rights", "clock", "store", "index", "embedder"} <= {
        finding["about"] for finding in found
    }


INVALID = {
    "model: nobody-knows-it": "is not known",
    "window: {reserve: 127900}": "answers with at most",
    "models: {gpt-4o: {window: 2000, max_input: 2000}}": "left",
    "window: {policy: nonsense}": "nonsense",
    "tokenizers: {mine: nowhere.json}\nmodels: {gpt-4o: {tokenizer: mine}}": "nowhere.json",
    "standing: {files: [nowhere.md]}": "nowhere.md",
    "continuity: {folder: a.db/below}": "continuity.folder",
    "gateway: {host: 0.0.0.0}": "0.0.0.0",
    "gateway: {upstreams: {main: {url: 'http://127.0.0.1:9', key_env: NOT_SET_HERE}}}": "NOT_SET_HERE",
    "gateway: {upstreams: {main: {models: ['*']}}}": "has no address",
    "compress: {model: {use: openai, url: 'http://127.0.0.1:9'}}": "compress.model.model",
}


def test_a_remark_on_a_setting_is_a_note(home):
    found = doctor(home, "min_history_turns: 3", "--offline", code=0)
    notes = [finding["says"] for finding in found if finding["grade"] == "note"]
    assert any("min_history_turns: a turn counts as two messages" in note for note in notes)


@pytest.mark.parametrize("settings", INVALID)
def test_settings_that_cannot_work_are_reported(home, settings):
    found = problems(doctor(home, settings, "--offline"))
    assert any(INVALID[settings] in finding["says"] for finding in found), found


def test_unreadable_settings_are_a_finding(home):
    (found,) = doctor(home, "windw: {}\n", code=2)
    assert "Did you mean 'window'?" in found["says"]


def test_a_key_in_a_world_readable_file_is_reported(home):
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    try:
        (folder / "s.yaml").write_text("recall: {embedder: {use: none, key: hunter2}}\nstore: a.db\nmodel: gpt-4o\n")
        (folder / "s.yaml").chmod(0o644)
        found = problems(doctor(home, RECTO_CONFIG=str(folder / "s.yaml")))
        assert ["recall.embedder.key" in finding["says"] for finding in found] == [True]
        assert "chmod 600" in found[0]["cure"]
        assert "RECTO_RECALL__EMBEDDER__KEY" in found[0]["cure"]
        assert "hunter2" not in json.dumps(found)
        (folder / "s.yaml").chmod(0o600)
        assert problems(doctor(home, code=0, RECTO_CONFIG=str(folder / "s.yaml"))) == []
        (folder / "s.yaml").write_text("recall: {embedder: {use: none}}\nstore: a.db\nmodel: gpt-4o\n")
        (folder / "s.yaml").chmod(0o644)
        assert problems(doctor(home, code=0, RECTO_CONFIG=str(folder / "s.yaml"))) == []
    finally:
        shutil.rmtree(folder)


def test_missing_weights_are_reported(home):
    settings = "compress: {model: {use: embedded}}\n"
    found = problems(doctor(home, settings, XDG_CACHE_HOME=str(home / "empty")))
    assert any(finding["cure"].startswith("recto models get ") for finding in found)


def test_a_store_locked_by_another_program_is_reported(home):
    lock = SideLock(home / "a.db-lock")
    with lock.held():
        found = problems(doctor(home))
    lock.close()
    assert any("another program has held" in finding["says"] for finding in found)


def test_an_entry_from_the_future_is_reported(home):
    with recto.open(home / "a.db", session="agent:a:main", recall={"enabled": False}) as session:
        later = time.time_ns() // 1000 + 7 * 86_400 * 10**6
        session.store.append(
            session.key, [Draft(id="x", ts=later, role="user", content=b'{"role":"user","content":""}')]
        )
    assert any("7 days ahead" in finding["says"] for finding in problems(doctor(home)))


def test_unreachable_addresses_are_reported_unless_the_check_is_offline(home):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        settings = (
            f"gateway: {{upstreams: {{main: {{url: '{url}', key: hunter2}}}}}}\n"
            f"health: {{webhook: {{url: '{url}', key: hunter2}}}}\n"
            f"compress: {{model: {{use: openai, model: m, url: '{url}', key: hunter2}}}}\n"
        )
        found = problems(doctor(home, settings))
        assert {finding["says"].partition(":")[0] for finding in found} == {
            "gateway.upstreams.main.url",
            "health.webhook.url",
            "compress.model.url",
        }
        assert "hunter2" not in json.dumps(found)
        assert problems(doctor(home, settings, "--offline", code=0)) == []


def test_without_a_store_the_other_findings_are_reported_first(home):
    found = doctor(home, "standing: {files: [nowhere.md]}\n", code=4, RECTO_STORE="none.db")
    assert any("nowhere.md" in finding["says"] for finding in problems(found))
    assert not (home / "none.db").exists()
