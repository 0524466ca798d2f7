"""Runs each agent once, through a gateway of its own, in an empty folder; the tests look at what came of it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.agents.agents import AGENTS, PATHS, Agent, call
from tests.agents.installing import Package, packages
from tests.agents.listening_in import Listening, Told
from tests.agents.scripts import TASK, Script, shell_in
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import ScriptedUpstream, running

from recto.core.entries import MESSAGE, Entry

_SECONDS = 240
_TABLE = pytest.StashKey[list[tuple[str, ...]]]()
_HEAD = ("agent", "version", "window", "steps", "requests", "tokens stored", "largest prompt", "room", "decisions")
_HEAD += ("recalled", "branches", "seconds")


@dataclass
class Run:
    """An agent that has done its work, and everything that was heard of it."""

    agent: Agent
    package: Package
    folder: Path
    gateway: Running
    upstream: ScriptedUpstream
    listening: Listening
    script: Script
    seconds: float = 0.0
    ended: subprocess.CompletedProcess[str] = field(default_factory=lambda: subprocess.CompletedProcess([], -1))

    @property
    def steps(self) -> list[Told]:
        """The requests of the conversation itself: those that offer a shell."""
        return [told for told in self.listening.told if shell_in(told.body)]

    @property
    def session(self) -> str:
        return self.steps[0].session

    @property
    def entries(self) -> list[Entry]:
        return list(self.gateway.store.read(self.session))

    @property
    def messages(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind == MESSAGE]

    @property
    def sessions(self) -> set[str]:
        """All that the gateway keeps of conversations."""
        return {one.session for one in self.gateway.store.sessions() if one.session.startswith("agent:")}

    def start(self, task: str, *, resume: bool = False) -> None:
        """Lets the agent work until it ends."""
        url, key = self.gateway.url, self.gateway.secret
        made = call(self.agent, self.package.program, self.folder, url, key, task, resume=resume)
        begun = time.monotonic()
        self.ended = subprocess.run(
            made.command,
            cwd=self.folder / "work",
            env=made.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        self.seconds += time.monotonic() - begun

    def row(self) -> tuple[str, ...]:
        told = self.listening.told
        figures = (
            self.agent.window,
            self.script.steps,
            len(told),
            sum(entry.tokens or 0 for entry in self.messages),
            max(one.tokens for one in told),
            min(one.room for one in told),
            sum(one.decisions for one in told),
            max(one.recalled for one in told),
            len(self.sessions) - 1,
        )
        return self.agent.id, self.package.version, *(f"{figure:,}" for figure in figures), f"{self.seconds:.0f}"


@pytest.fixture(scope="session", params=AGENTS, ids=lambda agent: agent.id)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    agent: Agent = request.param
    package = packages()[agent.package]
    if not package.ready:
        pytest.skip(package.reason.read_text() if package.reason.exists() else f"no {package.what}: make test-agents")
    folder = tmp_path_factory.mktemp("agent")
    for name in ("home", "work", "store"):
        (folder / name).mkdir()
    script = Script(agent.steps, agent.lines, submits=agent.package == "mini-swe-agent")
    listening = Listening(tuple(PATHS))
    with ExitStack() as stack:
        upstream = stack.enter_context(running(ScriptedUpstream(script)))
        models = {agent.model: {"window": agent.window}}
        made = stack.enter_context(gateway(folder / "store", upstream.url, models=models, around=listening.around))
        done = Run(agent, package, folder, made, upstream, listening, script)
        done.start(TASK)
        if listening.told and all(told.status == 200 for told in listening.told):
            request.config.stash.setdefault(_TABLE, []).append(done.row())
        yield done


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = [_HEAD, *config.stash.get(_TABLE, [])]
    if len(rows) == 1:
        return
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEAD))]
    for row in rows:
        terminalreporter.write_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
