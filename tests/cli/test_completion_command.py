"""Shell completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from tests.cli.calling import called_at, own_file

from recto.cli.main import recto


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "chat.json").write_text(json.dumps([{"role": "user", "content": "Hi."}]))
    called_at(tmp_path, "import", "chat.json", "--session", "agent:me:main")
    return tmp_path


def offered(*words: str) -> list[str]:
    *before, begun = words
    found = BashComplete(recto, {}, "recto", "_RECTO_COMPLETE").get_completions(before, begun)
    return [completion.value for completion in found]


def test_commands_sessions_models_and_settings_are_offered(home):
    assert offered("ch") == ["chat", "checkpoint"]
    assert offered("session", "show", "agent:") == ["agent:me:main"]
    assert offered("recall", "x", "--session", "ag") == ["agent:me:main"]
    assert "gpt-4o" in offered("chat", "--model", "gpt-4")
    assert offered("config", "window.mo") == ["window.mode"]
    assert offered("completion", "") == ["bash", "zsh", "fish"]


def test_an_error_during_completion_offers_and_prints_nothing(home):
    assert offered("--store", "nowhere.db", "session", "show", "a") == []
    own_file(home).write_text("nonsense: 1\n")
    assert offered("session", "show", "agent:") == []
    assert "_recto_completion" in called_at(home, "completion", "zsh")


def test_bash_completes_a_session_name_with_colons(home):
    words = "COMP_WORDS=(recto session show agent:m); COMP_CWORD=3"
    bash = f'eval "$(recto completion bash)"; {words}; _recto_completion recto'
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    completed = subprocess.run(
        ["bash", "-c", f'{bash}; echo "${{COMPREPLY[*]}}"; [[ $COMP_WORDBREAKS != *:* ]]'],
        env={**os.environ, "PATH": path, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    assert completed.stdout == "agent:me:main\n"
    assert completed.stderr == ""
