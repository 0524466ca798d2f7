"""Runs each agent through a gateway of its own, in an empty folder: in the smallest window that its prompt allows, and
in one that is too small. The tests look at what came of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.agents.agents import AGENTS, Agent, call, wire_of
from tests.agents.installing import Package, packages
from tests.agents.listening_in import Listening, Told
from tests.agents.scripts import TASK, Script, is_beside, output_of
from tests.agents.windows import counter, meter_for, needed, smallest_window, too_small_window
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Asked, ScriptedUpstream, running

from recto.gateway.request import open_request
from recto.transcript.entries import MESSAGE, Entry

_SECONDS = 600
_SPEAKS = ("chat", "responses", "messages", "gemini")
_PAGE = Path(__file__).parent.parent.parent / "docs" / "agents.md"
_TABLE = pytest.StashKey[list[tuple[str, ...]]]()
_HEAD = (
    "agent",
    "version",
    "own prompt",
    "window",
    "steps",
    "requests",
    "tokens stored",
    "largest prompt",
    "room",
    "decisions",
)
_HEAD += ("recalled", "branches", "seconds")


@dataclass(frozen=True)
class Heard:
    """What came of letting an agent work once: the agent's side, the model's side, and what was stored by then."""

    ended: subprocess.CompletedProcess[str]
    told: list[Told]
    others: list[tuple[str, int]]
    asked: list[Asked]
    answers: int
    """Answers in the conversation itself."""
    beside: int
    """Answers to side calls."""
    entries: list[Entry]
    sessions: set[str]
    seconds: float

    @property
    def steps(self) -> list[Told]:
        """The requests of the conversation itself."""
        return [told for told in self.told if not is_beside(told.body)]

    @property
    def messages(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind == MESSAGE]


@dataclass
class Run:
    """An agent that has done its task, and can be given another."""

    agent: Agent
    package: Package
    folder: Path
    gateway: Running
    upstream: ScriptedUpstream
    listening: Listening
    script: Script
    first: Heard = field(init=False)

    @property
    def session(self) -> str:
        return self.first.steps[0].session

    def shown(self, number: int) -> str:
        """What the command of a step printed, as the model is shown it."""
        printed = output_of(number, self.script.lines)
        return json.dumps(printed)[1:-1] if self.agent.shows_json else printed

    @property
    def smallest(self) -> int:
        """The smallest window that its own prompt and its largest step allow."""
        meter, last = meter_for(self.agent.model), self.first.steps[-1]
        sent_on = next(asked for asked in reversed(self.first.asked) if not is_beside(asked.body))
        tools = [open_request(raw, self.agent.wire).tools.decode() for raw in (sent_on.raw, last.raw)]
        recall_tool = meter.prompt([], tools[0]) - meter.prompt([], tools[1])
        return smallest_window(needed(self.first.steps, recall_tool, meter), self.agent.model, last.answer)

    def work(self, task: str, *, resume: bool = False) -> Heard:
        """Lets the agent work until it ends."""
        told, asked = len(self.listening.told), len(self.upstream.asked)
        answers, beside = self.script.said, self.script.beside
        url, key = self.gateway.url, self.gateway.secret
        made = call(self.agent, self.package, self.folder, url, key, task, resume=resume)
        begun = time.monotonic()
        ended = subprocess.run(
            made.command,
            cwd=self.folder / "work",
            env=made.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        seconds = time.monotonic() - begun
        heard = self.listening.told[told:]
        sessions = {one.session for one in self.gateway.store.sessions() if one.session.startswith("agent:")}
        main = next((one.headers.get("x-recto-session-id", "") for one in heard if not is_beside(one.body)), "")
        return Heard(
            ended=ended,
            told=heard,
            others=list(self.listening.others),
            asked=self.upstream.asked[asked:],
            answers=self.script.said - answers,
            beside=self.script.beside - beside,
            entries=list(self.gateway.store.read(main)) if main else [],
            sessions=sessions,
            seconds=seconds,
        )

    def row(self) -> tuple[str, ...]:
        first = self.first
        figures = (
            first.steps[0].tokens,
            self.agent.window,
            self.script.steps,
            len(first.told),
            sum(entry.tokens or 0 for entry in first.messages),
            max(one.tokens for one in first.told),
            min(one.room for one in first.told),
            sum(one.decisions for one in first.told),
            max(one.recalled for one in first.told),
            len(first.sessions) - 1,
        )
        return self.agent.id, self.package.version, *(f"{figure:,}" for figure in figures), f"{first.seconds:.0f}"


@pytest.fixture(scope="session", params=AGENTS, ids=lambda agent: agent.id)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """An agent that has done its task in the smallest window."""
    with _opened(request.param, tmp_path_factory.mktemp("agent")) as done:
        done.first = done.work(TASK)
        if done.first.told and all(told.status == 200 for told in done.first.told):
            request.config.stash.setdefault(_TABLE, []).append(done.row())
        yield done


@pytest.fixture(scope="session")
def refused(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Heard:
    """What comes of the same task in a window in which the agent's tools and system text do not fit."""
    window = too_small_window(run.first.steps[0], run.agent.model)
    with _opened(replace(run.agent, window=window), tmp_path_factory.mktemp("refused")) as other:
        return other.work(TASK)


@contextmanager
def _opened(agent: Agent, folder: Path) -> Iterator[Run]:
    package = packages()[agent.package]
    if not package.ready:
        pytest.skip(package.reason.read_text() if package.reason.exists() else f"no {package.what}: make test-agents")
    for name in ("home", "work", "store"):
        (folder / name).mkdir()
    script = Script(agent.steps, agent.lines, submits=agent.submits, delegates=agent.delegates)
    listening = Listening(wire_of)
    # Where a provider reports more than was counted, Recto makes smaller prompts: it reports the model's own count.
    scripted = ScriptedUpstream(script, count=counter(meter_for(agent.model)))
    models = {agent.model: {"window": agent.window}}
    with (
        running(scripted) as upstream,
        gateway(folder / "store", upstream.url, speaks=_SPEAKS, models=models, around=listening.around) as made,
    ):
        yield Run(agent, package, folder, made, upstream, listening, script)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = [_HEAD, *config.stash.get(_TABLE, [])]
    if len(rows) == 1:
        return
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEAD))]
    for row in rows:
        terminalreporter.write_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    failed = terminalreporter.stats.get("failed", []) + terminalreporter.stats.get("error", [])
    if os.environ.get("RECTO_AGENTS_DOCS") and len(rows) == 1 + len(AGENTS) and not failed:
        _write(rows)


def _write(rows: list[tuple[str, ...]]) -> None:
    """Renews the table in the documentation, so that no figure is ever typed."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|---|" + "--:|" * (len(_HEAD) - 1))
    table = "\n".join(lines) + "\n"
    between = re.compile(r"(<!-- runs: begin -->\n).*?(<!-- runs: end -->)", re.DOTALL)
    text = between.sub(lambda found: found[1] + table + found[2], _PAGE.read_text(encoding="utf-8"))
    _PAGE.write_text(text, encoding="utf-8")
