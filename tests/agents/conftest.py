"""Runs each agent through its own gateway, in an empty folder: once in the smallest window that its prompt allows, and
once in a window that is too small. The tests check the recorded outcome."""

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
from tests.agents.listening_in import Exchange, ExchangeRecorder
from tests.agents.scripts import TASK, Script, is_side_call, output_of
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
class Outcome:
    """The outcome of one agent run: the requests of the agent, those that reached the model, and the stored entries."""

    completed: subprocess.CompletedProcess[str]
    exchanges: list[Exchange]
    others: list[tuple[str, int]]
    requests: list[Asked]
    """Requests that reached the upstream."""
    answers: int
    """Model answers in the main conversation."""
    side_answers: int
    """Model answers to side calls."""
    entries: list[Entry]
    sessions: set[str]
    seconds: float

    @property
    def steps(self) -> list[Exchange]:
        """The exchanges of the main conversation."""
        return [exchange for exchange in self.exchanges if not is_side_call(exchange.body)]

    @property
    def messages(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind == MESSAGE]


@dataclass
class Run:
    """An agent that has finished its task and can be resumed with another."""

    agent: Agent
    package: Package
    folder: Path
    gateway: Running
    upstream: ScriptedUpstream
    recorder: ExchangeRecorder
    script: Script
    first: Outcome = field(init=False)

    @property
    def session(self) -> str:
        return self.first.steps[0].session

    def shown(self, number: int) -> str:
        """The command output of a step, as the agent passes it to the model."""
        printed = output_of(number, self.script.lines)
        return json.dumps(printed)[1:-1] if self.agent.shows_json else printed

    @property
    def smallest(self) -> int:
        """The smallest window that its own prompt and its largest step allow."""
        meter, last = meter_for(self.agent.model), self.first.steps[-1]
        forwarded = next(request for request in reversed(self.first.requests) if not is_side_call(request.body))
        tools = [open_request(raw, self.agent.wire).tools.decode() for raw in (forwarded.raw, last.raw)]
        recall_tool = meter.prompt([], tools[0]) - meter.prompt([], tools[1])
        return smallest_window(needed(self.first.steps, recall_tool, meter), self.agent.model, last.answer)

    def work(self, task: str, *, resume: bool = False) -> Outcome:
        """Runs the agent on a task until it exits."""
        exchange_count, request_count = len(self.recorder.exchanges), len(self.upstream.asked)
        answers, side_answers = self.script.answers, self.script.side_answers
        url, key = self.gateway.url, self.gateway.secret
        made = call(self.agent, self.package, self.folder, url, key, task, resume=resume)
        begun = time.monotonic()
        completed = subprocess.run(
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
        exchanges = self.recorder.exchanges[exchange_count:]
        sessions = {row.session for row in self.gateway.store.sessions() if row.session.startswith("agent:")}
        main = next(
            (
                exchange.headers.get("x-recto-session-id", "")
                for exchange in exchanges
                if not is_side_call(exchange.body)
            ),
            "",
        )
        return Outcome(
            completed=completed,
            exchanges=exchanges,
            others=list(self.recorder.others),
            requests=self.upstream.asked[request_count:],
            answers=self.script.answers - answers,
            side_answers=self.script.side_answers - side_answers,
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
            len(first.exchanges),
            sum(entry.tokens or 0 for entry in first.messages),
            max(exchange.tokens for exchange in first.exchanges),
            min(exchange.room for exchange in first.exchanges),
            sum(exchange.decisions for exchange in first.exchanges),
            max(exchange.recalled for exchange in first.exchanges),
            len(first.sessions) - 1,
        )
        return self.agent.id, self.package.version, *(f"{figure:,}" for figure in figures), f"{first.seconds:.0f}"


@pytest.fixture(scope="session", params=AGENTS, ids=lambda agent: agent.id)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """An agent that has finished its task in the smallest window."""
    with _opened(request.param, tmp_path_factory.mktemp("agent")) as done:
        done.first = done.work(TASK)
        if done.first.exchanges and all(exchange.status == 200 for exchange in done.first.exchanges):
            request.config.stash.setdefault(_TABLE, []).append(done.row())
        yield done


@pytest.fixture(scope="session")
def refused(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The outcome of the same task in a window too small for the agent's tools and system text."""
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
    recorder = ExchangeRecorder(wire_of)
    # Recto builds smaller prompts if the provider reports more tokens than it counted, so report the model's own count.
    scripted = ScriptedUpstream(script, count=counter(meter_for(agent.model)))
    models = {agent.model: {"window": agent.window}}
    with (
        running(scripted) as upstream,
        gateway(folder / "store", upstream.url, speaks=_SPEAKS, models=models, around=recorder.around) as made,
    ):
        yield Run(agent, package, folder, made, upstream, recorder, script)


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
    """Rewrites the table in the documentation, so that no figure is typed by hand."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|---|" + "--:|" * (len(_HEAD) - 1))
    table = "\n".join(lines) + "\n"
    between = re.compile(r"(<!-- runs: begin -->\n).*?(<!-- runs: end -->)", re.DOTALL)
    text = between.sub(lambda found: found[1] + table + found[2], _PAGE.read_text(encoding="utf-8"))
    _PAGE.write_text(text, encoding="utf-8")
