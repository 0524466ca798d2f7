"""Real coding agents with Recto's hooks and without its gateway: compacted history is stored and handed back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agents.agents import AGENTS, call
from tests.agents.installing import packages
from tests.cli.calling import called_at
from tests.gateway.upstream import Says, ScriptedUpstream, running

import recto
from recto.transcript.entries import MESSAGE

_SECONDS = 240
_SOURCE = str(Path(recto.__file__).parent.parent)
TURNS: dict[str, list[tuple[str, tuple[str, ...]]]] = {
    # Codex runs an untrusted hook only with this option, and compacts on its own before the request.
    "codex": [
        ("Make the tests of billing pass.", ("--dangerously-bypass-hook-trust",)),
        ("And now?", ("--dangerously-bypass-hook-trust", "-c", "model_auto_compact_token_limit=100")),
    ],
    "claude-code": [("Make the tests of billing pass.", ()), ("And now?", ()), ("/compact", ()), ("Go on.", ())],
}


@pytest.mark.parametrize("name", TURNS)
def test_a_handoff_survives_the_compaction_of_a_real_agent(name, tmp_path):
    package = packages()[name]
    if not package.ready:
        pytest.skip(package.reason.read_text() if package.reason.exists() else "not installed: make test-agents")
    agent = next(agent for agent in AGENTS if agent.package == name)
    store = tmp_path / "agent.db"
    (tmp_path / "work").mkdir()
    with running(ScriptedUpstream(answer=lambda request: Says(text="We decided to use port 5433."))) as upstream:
        for place, (task, options) in enumerate(TURNS[name]):
            made = call(agent, package, tmp_path, upstream.url, "none", task, resume=place > 0)
            if not place:
                _install(name, store, made.environment)
            command = [*made.command[:-1], *options, made.command[-1]]
            completed = subprocess.run(
                command,
                cwd=tmp_path / "work",
                env={**made.environment, "PYTHONPATH": _SOURCE},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
            assert completed.returncode == 0, completed.stderr
    handoffs = [request for request in upstream.asked if "[Handoff:" in json.dumps(request.messages)]
    assert handoffs == upstream.asked[-1:]
    assert "tests of billing" in json.dumps(handoffs[0].messages)
    with recto.open(store) as opened:
        [session] = [row.session for row in opened.store.sessions()]
        entries = list(opened.store.read(session))
    messages = [entry.content for entry in entries if entry.kind == MESSAGE]
    assert len(messages) >= 2 * (len(TURNS[name]) - 1)
    places = [json.loads(entry.meta)["place"] for entry in entries if b'"place"' in entry.meta]
    assert places == sorted(set(places))


@pytest.mark.parametrize("name", TURNS)
def test_a_prompt_of_a_real_agent_quotes_what_another_agent_learned_in_the_project(name, tmp_path):
    package = packages()[name]
    if not package.ready:
        pytest.skip(package.reason.read_text() if package.reason.exists() else "not installed: make test-agents")
    agent = next(agent for agent in AGENTS if agent.package == name)
    store, work = tmp_path / "agent.db", tmp_path / "work"
    work.mkdir()
    _import_session_of_pi(store, work, tmp_path)
    with running(ScriptedUpstream(answer=lambda request: Says(text="It is kestrel."))) as upstream:
        for resume in (False, True):
            task = "Which host does the ledger run on?"
            made = call(agent, package, tmp_path, upstream.url, "none", task, resume=resume)
            if not resume:
                _install(name, store, made.environment)
            subprocess.run(
                [*made.command[:-1], *TURNS[name][0][1], made.command[-1]],
                cwd=work,
                env={**made.environment, "PYTHONPATH": _SOURCE},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
                check=True,
            )
    first, *_, last = [
        json.dumps(request.messages, ensure_ascii=False) for request in upstream.asked if task in str(request.body)
    ]
    assert "> The ledger runs on the host kestrel." in first
    assert f"pi in {work}" in first
    assert last.count("Quoted from earlier sessions of this project") == 1, "no message is quoted twice"


def _import_session_of_pi(store: Path, project: Path, folder: Path) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "The ledger runs on the host kestrel."}]}
    lines = [
        {"type": "session", "version": 3, "id": "pi-1", "timestamp": "2026-11-01T10:00:00Z", "cwd": str(project)},
        {"type": "message", "id": "a1", "parentId": None, "timestamp": "2026-11-01T10:00:01Z", "message": message},
    ]
    (folder / "pi.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    called_at(folder, "--store", str(store), "import", str(folder / "pi.jsonl"))


def _install(name: str, store: Path, environment: dict[str, str]) -> None:
    program = Path(sys.executable).with_name("recto")
    whole = {**os.environ, **environment}
    subprocess.run([program, "--store", store, "hook", "install", name], env=whole, check=True, capture_output=True)
