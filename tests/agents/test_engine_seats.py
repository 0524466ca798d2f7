"""Recto as the context engine of real agents: installed, used with a history larger than the window, uninstalled."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.agents.agents import _BLOCKED_PROXY
from tests.agents.installing import NODE, Package, packages
from tests.gateway.upstream import Asked, Says, ScriptedUpstream, running

import recto

_SECONDS = 240
_SOURCE = str(Path(recto.__file__).parent.parent)
_PROGRAM = Path(sys.executable).with_name("recto")
_WINDOW = 64_000  # the smallest that Hermes accepts
_SMALL = 32_000
_STEPS = 12
_FOUND = 3
_DECIDED = "We decided to move the ledger to the host kestrel."


def ready(name: str) -> Package:
    package = packages()[name]
    if not package.ready:
        pytest.skip(package.reason.read_text() if package.reason.exists() else "not installed: make test-agents")
    return package


def shelf(number: int) -> str:
    """A command whose long output has the fact about a shelf in its middle."""
    fact = f"Shelf {number} holds the {'ledger of the Kestrel Society' if number == _FOUND else 'usual boxes'}."
    lines = 'f"{line}: nothing on this line but dust and older dust"'
    return f'python3 -c \'for line in range(600): print({lines}, "{fact}" if line == 300 else "")\''


class Hermes:
    """Hermes in its own home, with settings in a user's handwriting."""

    def __init__(self, folder: Path, url: str) -> None:
        self.package, self.folder, self.store = ready("hermes"), folder, folder / "seat.db"
        self.home = folder / "home" / ".hermes"
        self.config = self.home / "config.yaml"
        self.work = folder / "work"
        self.work.mkdir()
        self.home.mkdir(parents=True)
        self.config.write_text(
            "# mine\n"
            "model:\n"
            "  default: gpt-4o   # the one that works\n"
            "  provider: custom\n"
            f"  base_url: {url}/v1\n"
            "  api_key: none\n"
            f"  context_length: {_WINDOW}\n"
            "context:\n"
            "  engine: compressor\n"
            "memory: {memory_enabled: false, user_profile_enabled: false}\n"
            "plugins:\n"
            "  enabled:\n"
            "  - disk-cleanup\n"
        )
        self.environment = {
            "HOME": str(folder / "home"),
            "HERMES_HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "PYTHONPATH": _SOURCE,
            "RECTO_RECALL__EMBEDDER__USE": "none",
            "HTTP_PROXY": _BLOCKED_PROXY,
            "HTTPS_PROXY": _BLOCKED_PROXY,
            "NO_PROXY": "127.0.0.1",
        }

    def ask(self, task: str, *options: str) -> str:
        command = [self.package.program, "chat", "--quiet", "--yolo", "-t", "terminal", *options, "-q", task]
        completed = subprocess.run(
            command, cwd=self.work, env=self.environment, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        assert completed.returncode == 0, completed.stdout + completed.stderr
        return completed.stdout + completed.stderr

    def plugin(self, verb: str) -> None:
        command = [_PROGRAM, "--store", self.store, "plugin", verb, "hermes"]
        subprocess.run(command, env={**os.environ, **self.environment}, check=True, capture_output=True)

    def files(self) -> dict[Path, bytes]:
        """The settings of Hermes, all its plugins, and the files of Recto in the home."""
        found = [self.config, *(self.home / "plugins").rglob("*"), *(self.folder / "home" / ".recto").rglob("*")]
        return {path: path.read_bytes() for path in found if path.is_file()}

    def own_messages(self, session: str) -> list[tuple[str, str]]:
        """The messages in Hermes' own database."""
        with closing(sqlite3.connect(self.home / "state.db")) as store:
            rows = store.execute("select role, content from messages where session_id = ? order by id", [session])
            return [(role, content or "") for role, content in rows]


def test_hermes_with_recto_as_its_context_engine(tmp_path):
    def answer(request: Asked) -> Says:
        step = len(upstream.asked) - 1
        return Says(calls=(("terminal", {"command": shelf(step)}),)) if step < _STEPS else Says(_DECIDED)

    with running(ScriptedUpstream(answer=answer)) as upstream:
        hermes = Hermes(tmp_path, upstream.url)
        before = hermes.files()
        hermes.plugin("install")
        output = hermes.ask("Look at every shelf.")
        session = re.search(r"session_id: (\S+)", output)[1]
        hermes.ask("Which shelf holds the ledger of the Kestrel Society?", "--resume", session)
        hermes.plugin("uninstall")
        assert hermes.files() == before
    assert len(upstream.asked) == _STEPS + 2
    assert [request.problems for request in upstream.asked] == [[]] * len(upstream.asked)
    with recto.open(hermes.store, session=f"agent:default:{session}", model="gpt-4o") as stored:
        sizes = [stored.count(request.messages, tools=request.body["tools"]) for request in upstream.asked]
        messages = [json.loads(entry.content) for entry in stored.read() if entry.kind == "message"]
        whole = stored.count(messages)
    assert max(sizes) < _WINDOW < whole
    assert [(message["role"], message["content"] or "") for message in messages] == hermes.own_messages(session)
    assert f"Shelf {_FOUND} holds the ledger of the Kestrel Society." in json.dumps(upstream.asked[-1].messages)


def test_hermes_works_without_recto_if_recto_does_not_start(tmp_path):
    with running(ScriptedUpstream(answer=lambda request: Says(_DECIDED))) as upstream:
        hermes = Hermes(tmp_path, upstream.url)
        hermes.plugin("install")
        plugin = hermes.home / "plugins" / "recto" / "__init__.py"
        plugin.write_text(re.sub(r"PROGRAM = .*", f'PROGRAM = ["{tmp_path}/gone"]', plugin.read_text(), count=1))
        assert _DECIDED in hermes.ask("Look at every shelf.")
    assert [request.problems for request in upstream.asked] == [[]]
    assert "Recto does not answer" in (hermes.home / "logs" / "agent.log").read_text()


class OpenClaw:
    """OpenClaw in its own home: each turn is a process, over one session."""

    def __init__(self, folder: Path, url: str) -> None:
        self.package, self.store, self.work = ready("openclaw"), folder / "seat.db", folder / "work"
        self.home = folder / "home" / ".openclaw"
        self.config = self.home / "openclaw.json"
        self.work.mkdir()
        self.home.mkdir(parents=True)
        model = {"id": "gpt-4o", "name": "gpt-4o", "input": ["text"], "contextWindow": _SMALL, "maxTokens": 2_000}
        provider = {"baseUrl": f"{url}/v1", "apiKey": "none", "api": "openai-completions", "models": [model]}
        defaults = {"workspace": str(self.work), "skipBootstrap": True, "model": {"primary": "scripted/gpt-4o"}}
        settings = {
            "models": {"mode": "replace", "providers": {"scripted": provider}},
            "agents": {"defaults": defaults},
            "plugins": {"entries": {}},
        }
        self.config.write_text(json.dumps(settings, indent=5))  # an indentation that no program writes
        self.environment = {
            "HOME": str(folder / "home"),
            "PATH": f"{NODE}{os.pathsep}{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "PYTHONPATH": _SOURCE,
            "RECTO_RECALL__EMBEDDER__USE": "none",
            "HTTP_PROXY": _BLOCKED_PROXY,
            "HTTPS_PROXY": _BLOCKED_PROXY,
            "NO_PROXY": "127.0.0.1",
        }

    def ask(self, task: str) -> None:
        command = [self.package.program, "agent", "--local", "--agent", "main", "--message", task]
        completed = subprocess.run(
            command, cwd=self.work, env=self.environment, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        assert completed.returncode == 0, completed.stderr

    def plugin(self, verb: str) -> None:
        command = [_PROGRAM, "--store", self.store, "plugin", verb, "openclaw"]
        subprocess.run(command, env={**os.environ, **self.environment}, check=True, capture_output=True)


def test_openclaw_with_recto_as_its_context_engine(tmp_path):
    long_answer = _DECIDED + " dust" * 15_000

    def answer(request: Asked) -> Says:
        return Says(long_answer) if len(upstream.asked) > 1 else Says(calls=(("exec", {"command": "seq 1 20"}),))

    with running(ScriptedUpstream(answer=answer)) as upstream:
        openclaw = OpenClaw(tmp_path, upstream.url)
        before = openclaw.config.read_bytes()
        openclaw.plugin("install")
        for turn in range(3):
            openclaw.ask(f"Turn {turn}: what now?")
        assert openclaw.config.read_bytes() != before
        openclaw.plugin("uninstall")
    assert openclaw.config.read_bytes() == before
    assert not (openclaw.home / "extensions").exists()
    assert [request.problems for request in upstream.asked] == [[]] * 4
    with closing(sqlite3.connect(openclaw.store)) as store:
        [session] = {key for (key,) in store.execute("select session from transcript")}
    with recto.open(openclaw.store, session=session, model="gpt-4o") as stored:
        sizes = [stored.count(request.messages, tools=request.body["tools"]) for request in upstream.asked]
        messages = [json.loads(entry.content) for entry in stored.read() if entry.kind == "message"]
        whole = stored.count(messages[:6])
    assert [message["role"] for message in messages[:4]] == ["user", "assistant", "tool", "assistant"]
    assert [message["content"] for message in (messages[0], *messages[3:])] == [
        text for turn in range(3) for text in (f"Turn {turn}: what now?", long_answer)
    ]
    assert max(sizes) < _SMALL < sizes[0] + whole
