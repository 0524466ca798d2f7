"""Recto's seats in real agents: installed, used, and uninstalled without a trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agents.agents import AGENTS, Call, call
from tests.agents.installing import Package, packages
from tests.gateway.upstream import Asked, Says, ScriptedUpstream, running

import recto

_SECONDS = 240
_SOURCE = str(Path(recto.__file__).parent.parent)
_PROGRAM = Path(sys.executable).with_name("recto")
_DECIDED = "We decided to move the ledger to the host kestrel."
_TASK = "Make the tests of billing pass."


def ready(name: str) -> Package:
    package = packages()[name]
    if not package.ready:
        pytest.skip(package.reason.read_text() if package.reason.exists() else "not installed: make test-agents")
    return package


class Host:
    """An agent in its own home, with hand-written settings."""

    def __init__(self, name: str, folder: Path, url: str) -> None:
        self.agent = next(agent for agent in AGENTS if agent.package == name)
        self.package, self.folder, self.url = ready(name), folder, url
        self.store = folder / "seat.db"
        (folder / "work").mkdir()

    def call(self, task: str, *options: str, resume: bool = False) -> Call:
        made = call(self.agent, self.package, self.folder, self.url, "none", task, resume=resume)
        command = (*made.command[:-1], *options, made.command[-1])
        own = {"PYTHONPATH": _SOURCE, "RECTO_RECALL__EMBEDDER__USE": "none"}
        own["npm_config_offline"] = "true"  # without a network, opencode searches for plugin packages for minutes
        return Call(command, {**made.environment, **own})

    def work(self, task: str, *options: str, resume: bool = False) -> None:
        run(self.call(task, *options, resume=resume), self.folder / "work")

    def plugin(self, verb: str, keep: str = "") -> None:
        """Installs or uninstalls; `keep` restores Codex's settings file, which building a call overwrites."""
        environment = {**os.environ, **self.call("-").environment}
        if keep:
            (self.folder / "home" / ".codex" / "config.toml").write_text(keep)
        command = [_PROGRAM, "--store", self.store, "plugin", verb, self.package.name]
        subprocess.run(command, env=environment, check=True, capture_output=True)

    def settings(self) -> dict[Path, bytes]:
        """Every file of the agent's settings and plugins, and Recto's own record of them."""
        home = self.folder / "home"
        places = ("settings.json", "config.toml", "hooks.json", "opencode.json", "models.json")
        own = ("skills/recto", "plugins/recto.js", "extensions/recto.ts", ".recto")
        return {
            path: path.read_bytes()
            for path in sorted(home.rglob("*"))
            if path.is_file() and (path.name in places or any(part in str(path) for part in own))
        }


def run(made: Call, folder: Path) -> None:
    completed = subprocess.run(
        made.command,
        cwd=folder,
        env=made.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr


def bodies_of(requests: list[Asked]) -> str:
    return json.dumps([request.body for request in requests])


def test_the_seat_in_claude_code_brings_hooks_tools_skill_and_commands_and_leaves_no_trace(tmp_path):
    with running(ScriptedUpstream(answer=lambda request: Says(_DECIDED))) as upstream:
        host = Host("claude-code", tmp_path, upstream.url)
        settings = tmp_path / "home" / ".claude" / "settings.json"
        settings.parent.mkdir(parents=True)
        settings.write_text('{"theme":   "dark",\n\t"env": {}}')  # whitespace that no program writes
        before = host.settings()
        host.plugin("install")
        assert "statusline" in settings.read_text()
        host.work(_TASK)
        first = bodies_of(upstream.asked)
        assert "plugin:recto:recto" in first or "mcp__plugin_recto_recto__recall" in first  # connecting, or connected
        assert "recto:search-history" in first
        host.work("/compact", resume=True)
        host.work("/recto:recall the host of the ledger", resume=True)
        last = bodies_of(upstream.asked[-1:])
        assert "[Handoff:" in last
        assert "kestrel" in last
        assert "this query: the host of the ledger" in last
        host.plugin("uninstall")
        assert host.settings() == before
        assert not (settings.parent / "skills").exists()


def test_the_seat_in_codex_brings_hooks_and_servers_and_leaves_no_trace(tmp_path):
    with running(ScriptedUpstream(answer=lambda request: Says(_DECIDED))) as upstream:
        host = Host("codex", tmp_path, upstream.url)
        host.call("-")  # writes its settings
        config = tmp_path / "home" / ".codex" / "config.toml"
        as_written = config.read_text() + "\n# mine\n[tui]\nnotifications = true"
        config.write_text(as_written)
        before = host.settings()
        host.plugin("install", keep=as_written)
        assert {"[mcp_servers.recto]", "[mcp_servers.notes]", "[mcp_servers.history]"} <= {
            *config.read_text().split("\n")
        }
        installed = config.read_text()
        for place, (task, options) in enumerate(
            ((_TASK, ()), ("And now?", ("-c", "model_auto_compact_token_limit=100")))
        ):
            made = host.call(task, "--dangerously-bypass-hook-trust", *options, resume=place > 0)
            config.write_text(installed)
            run(made, tmp_path / "work")
        assert "[Handoff:" in bodies_of(upstream.asked[-1:])
        config.write_text(installed)
        host.plugin("uninstall", keep=installed)
        assert host.settings() == before


def test_the_seat_in_pi_compacts_without_a_model_request(tmp_path):
    with running(ScriptedUpstream(answer=lambda request_count: Says(_DECIDED + " It took a while." * 400))) as upstream:
        host = Host("pi", tmp_path, upstream.url)
        host.call("-")
        agent = tmp_path / "home" / ".pi" / "agent"
        (agent / "settings.json").write_text('{"compaction": {"keepRecentTokens":  1000}}')
        before = host.settings()
        host.plugin("install")
        for place in range(3):
            host.work(f"{_TASK} Step {place}. " + "Mind the ledger. " * 200, resume=place > 0)
        request_count = len(upstream.asked)
        made = host.call("-", resume=True)
        command = [word for word in made.command[:-1] if word not in ("--print",)] + ["--mode", "rpc"]
        sent = '{"type": "compact"}\n'
        with subprocess.Popen(
            command,
            cwd=tmp_path / "work",
            env=made.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(sent)
            process.stdin.flush()
            answer = next(line for line in process.stdout if '"command":"compact"' in line)
            process.stdin.close()
            process.terminate()
        assert json.loads(answer)["data"]["summary"].startswith("[Handoff:")
        assert len(upstream.asked) == request_count
        host.work("Go on.", resume=True)
        assert "kestrel" in bodies_of(upstream.asked[-1:])
        assert "[Handoff:" in bodies_of(upstream.asked[-1:])
        host.plugin("uninstall")
        assert host.settings() == before


def test_the_seat_in_opencode_keeps_the_record_whatever_the_summary_says(tmp_path):
    def answer(request: Asked) -> Says:
        return Says("Nothing much happened." if "record of the work" in bodies_of([request]) else _DECIDED)

    def count(raw: bytes, wire: str) -> int:
        """Tokens that the upstream reports: the window is full once, for the request with that question."""
        return 127_000 if b"fills the window" in raw and b"[Handoff:" not in raw else 1_000

    with running(ScriptedUpstream(answer=answer, count=count)) as upstream:
        host = Host("opencode", tmp_path, upstream.url)
        before = host.settings()
        host.plugin("install")
        host.work(_TASK)
        host.work("This fills the window.", resume=True)
        host.work("Go on.", resume=True)
        [summarised] = [request for request in upstream.asked if "record of the work" in bodies_of([request])]
        assert "kestrel" in bodies_of([summarised])
        last = bodies_of(upstream.asked[-1:])
        assert "Nothing much happened." in last
        assert "[Handoff:" in last
        assert "kestrel" in last
        host.plugin("uninstall")
        assert host.settings() == before


def test_the_turns_of_an_editors_agent_are_stored(tmp_path):
    with running(ScriptedUpstream(answer=lambda request: Says(_DECIDED))) as upstream:
        host = Host("opencode", tmp_path, upstream.url)
        made = host.call("-")
        command = [str(_PROGRAM), "--store", str(host.store), "acp", "--", made.command[0], "acp"]
        folder = tmp_path / "work"
        with subprocess.Popen(
            command, cwd=folder, env=made.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None

            def call_rpc(id: int, method: str, **params: object) -> dict[str, object]:
                message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
                process.stdin.write(json.dumps(message) + "\n")
                process.stdin.flush()
                return next(answer for answer in map(json.loads, process.stdout) if answer.get("id") == id)["result"]

            call_rpc(1, "initialize", protocolVersion=1, clientCapabilities={})
            session = str(call_rpc(2, "session/new", cwd=str(folder), mcpServers=[])["sessionId"])
            call_rpc(3, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": _TASK}])
            process.stdin.close()
            process.wait(_SECONDS)
    with recto.open(host.store, session=session) as opened:
        turns = [(entry.role, json.loads(entry.content)["content"]) for entry in opened.read() if entry.role != "event"]
    assert turns == [("user", _TASK), ("assistant", _DECIDED)]


def test_claude_code_installs_the_plugin_from_the_marketplace(tmp_path):
    host = Host("claude-code", tmp_path, "http://127.0.0.1:9")
    made = host.call("-")
    market = tmp_path / "market"
    subprocess.run(
        [_PROGRAM, "plugin", "marketplace", market],
        env={**os.environ, **made.environment},
        check=True,
        capture_output=True,
    )
    claude = made.command[0]
    for words in (("marketplace", "add", str(market)), ("install", "recto@recto")):
        run(Call((claude, "plugin", *words), made.environment), tmp_path / "work")
    listed = subprocess.run(
        [claude, "plugin", "details", "recto@recto"], env=made.environment, capture_output=True, text=True, check=True
    )
    for part in ("search-history", "recall", "PreCompact", "recto"):
        assert part in listed.stdout
