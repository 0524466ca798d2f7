"""Real coding agents with Recto's hooks and without its gateway: what they compact is kept, and told to them again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agents.agents import AGENTS, call
from tests.agents.installing import packages
from tests.gateway.upstream import Says, ScriptedUpstream, running

import recto
from recto.transcript.entries import MESSAGE

_SECONDS = 240
TURNS: dict[str, list[tuple[str, tuple[str, ...]]]] = {
    # A hook that nobody has looked at runs only where that is said; and Codex compacts by itself, before it is asked.
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
    agent = next(one for one in AGENTS if one.package == name)
    store = tmp_path / "agent.db"
    (tmp_path / "work").mkdir()
    with running(ScriptedUpstream(answer=lambda asked: Says(text="We decided to use port 5433."))) as upstream:
        for place, (task, options) in enumerate(TURNS[name]):
            made = call(agent, package, tmp_path, upstream.url, "none", task, resume=place > 0)
            if not place:
                _install(name, store, made.environment)
            command = [*made.command[:-1], *options, made.command[-1]]
            ended = subprocess.run(
                command,
                cwd=tmp_path / "work",
                env=made.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
            assert ended.returncode == 0, ended.stderr
    handed = [asked for asked in upstream.asked if "[Handoff:" in json.dumps(asked.messages)]
    assert handed == upstream.asked[-1:]
    assert "tests of billing" in json.dumps(handed[0].messages)
    with recto.open(store) as opened:
        [session] = [one.session for one in opened.store.sessions()]
        entries = list(opened.store.read(session))
    said = [entry.content for entry in entries if entry.kind == MESSAGE]
    assert len(said) >= 2 * (len(TURNS[name]) - 1)
    places = [json.loads(entry.meta)["place"] for entry in entries if b'"place"' in entry.meta]
    assert places == sorted(set(places))


def _install(name: str, store: Path, environment: dict[str, str]) -> None:
    program = Path(sys.executable).with_name("recto")
    whole = {**os.environ, **environment}
    subprocess.run([program, "--store", store, "hook", "install", name], env=whole, check=True, capture_output=True)
