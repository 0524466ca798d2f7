"""`recto run` with real agents: each works through its own gateway, exits, and leaves no settings behind."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.agents.agents import _BLOCKED_PROXY, _CLAUDE, _LOOPS
from tests.agents.installing import NODE, packages
from tests.agents.scripts import ANSWER, TASK, Script
from tests.cli.calling import called_at
from tests.gateway.upstream import ScriptedUpstream, running

from recto.adapters.agent_files import find_agent_files
from recto.stores.sqlite import SqliteStore

STEPS = 3
ROOT = Path(__file__).parent.parent.parent
STORES_AS = {
    "claude": "Claude Code",
    "codex": "Codex",
    "gemini": "Gemini CLI",
    "goose": "goose",
    "opencode": "opencode",
    "pi": "pi",
    "qwen": "Qwen Code",
}
"""Agents that store their sessions, as `recto import --discover` names them."""
SETTINGS = ("config.toml", "auth.json", "settings.json", "opencode.json", "models.json", ".claude.json", "config.json")
"""Names of the files in which agents store settings."""


@dataclass(frozen=True)
class Launched:
    """An agent as `recto run` starts it."""

    name: str
    package: str
    arguments: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    base: tuple[str, str] = ("OPENAI_BASE_URL", "/v1")
    """The environment variable of the provider's base URL, and the path after the provider's address."""
    submits: bool = False
    settings: tuple[tuple[str, str], ...] = ()
    """Files of the user below the home folder."""


LAUNCHED = (
    Launched(
        "claude",
        "claude-code",
        ("-p", "--model", _CLAUDE, "--dangerously-skip-permissions", "--tools=Bash", TASK),
        (("ANTHROPIC_API_KEY", "sk-own"), ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"), ("IS_SANDBOX", "1")),
        ("ANTHROPIC_BASE_URL", ""),
    ),
    Launched(
        "codex",
        "codex",
        ("-m", "gpt-4o", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", TASK),
        (("OPENAI_API_KEY", "sk-own"),),
    ),
    Launched(
        "opencode",
        "opencode",
        ("run", "--model", "openai/gpt-4o", TASK),
        (
            ("OPENAI_API_KEY", "sk-own"),
            ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
            ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1"),
        ),
    ),
    Launched(
        "pi",
        "pi",
        ("--print", "--provider", "openai", "--model", "gpt-4o", TASK),
        (("OPENAI_API_KEY", "sk-own"), ("PI_OFFLINE", "1"), ("PI_TELEMETRY", "0")),
    ),
    Launched(
        "qwen",
        "qwen-code",
        ("--auth-type", "openai", "--yolo", "--model", "gpt-4o", "--prompt", TASK),
        (("OPENAI_API_KEY", "sk-own"),),
    ),
    Launched(
        "gemini",
        "gemini-cli",
        ("--yolo", "--model", "gemini-3.8-flash", "--prompt", TASK),
        (("GEMINI_API_KEY", "sk-own"), ("GEMINI_CLI_TRUST_WORKSPACE", "true")),
        ("GOOGLE_GEMINI_BASE_URL", ""),
        settings=((".gemini/settings.json", '{"security": {"auth": {"selectedType": "gemini-api-key"}}}'),),
    ),
    Launched(
        "goose",
        "goose",
        ("run", "--with-builtin", "developer", "-t", TASK),
        (
            ("OPENAI_API_KEY", "sk-own"),
            ("GOOSE_PROVIDER", "openai"),
            ("GOOSE_MODEL", "gpt-4o"),
            ("GOOSE_MODE", "auto"),
            ("GOOSE_DISABLE_KEYRING", "1"),
            ("GOOSE_TELEMETRY_ENABLED", "false"),
        ),
    ),
    Launched(
        "llm",
        "llm",
        ("prompt", "--model", "gpt-4o", "--functions", str(_LOOPS / "bash_for_llm.py"), "--chain-limit", "0", TASK),
        (("OPENAI_API_KEY", "sk-own"),),
    ),
    Launched(
        "mini",
        "mini-swe-agent",
        ("-y", "--exit-immediately", "-m", "openai/gpt-4o", "-t", TASK, "-o", "trajectory.json"),
        (
            ("OPENAI_API_KEY", "sk-own"),
            ("MSWEA_CONFIGURED", "true"),
            ("MSWEA_COST_TRACKING", "ignore_errors"),
            ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
        ),
        submits=True,
    ),
)


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """The home folder of one user of all agents."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    """The store that all gateways share."""
    return tmp_path_factory.mktemp("store") / "transcript.db"


@pytest.mark.parametrize("agent", LAUNCHED, ids=lambda agent: agent.name)
def test_the_agent_works_through_the_gateway_with_its_own_key_and_keeps_its_settings(agent, home, store, tmp_path):
    package = packages()[agent.package]
    if not package.ready:
        pytest.skip(package.reason.read_text() if package.reason.exists() else f"no {package.what}: make test-agents")
    work = tmp_path / "work"
    work.mkdir()
    before = len(_messages(store)) if store.exists() else 0
    for name, text in agent.settings:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    script = Script(steps=STEPS, lines=20, submits=agent.submits)
    with running(ScriptedUpstream(script)) as upstream:
        variable, path = agent.base
        programs = os.pathsep.join([str(NODE), str(package.program.parent), os.environ["PATH"]])
        environment = {
            "HOME": str(home), "PATH": programs, "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT / "src"),
            "HTTP_PROXY": _BLOCKED_PROXY, "HTTPS_PROXY": _BLOCKED_PROXY,
            "http_proxy": _BLOCKED_PROXY, "https_proxy": _BLOCKED_PROXY,
            variable: upstream.url + path, **dict(agent.environment),
        }  # fmt: skip
        completed = subprocess.run(
            [sys.executable, "-m", "recto", "--store", str(store), "run", agent.name, "--", *_arguments(agent)],
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert completed.returncode == 0, completed.stderr[-3_000:]
        assert script.answers == script.turns
    gateway = next(line for line in completed.stderr.splitlines() if line.startswith("Recto: http://"))
    address = gateway.removeprefix("Recto: ").partition("/#")[0]
    assert all("sk-own" in json.dumps(request.headers) for request in upstream.asked), (
        "the agent's own key is forwarded"
    )
    assert len(_messages(store)) > before
    texts = _messages(store, _word(agent.name))
    assert any(TASK in text for text in texts)
    assert any(ANSWER in text for text in texts)
    assert sum("the tide came in" in text for text in texts) >= script.steps
    remaining = [
        file for folder in (home, work) for file in folder.rglob("*") if file.is_file() and file.name in SETTINGS
    ]
    assert [file for file in remaining if address in file.read_text(errors="replace")] == []
    assert [(name, (home / name).read_text()) for name, _ in agent.settings] == list(agent.settings)
    assert not _listens(address)
    found = called_at(home, "--store", str(store), "recall", _word(agent.name), "--project", str(work))
    assert f"{agent.package} in {work}" in found.replace("\n", ""), "the session stores its agent and its folder"


def test_one_command_imports_the_sessions_of_every_agent_and_mcp_and_hooks_recall_them(home, store, tmp_path):
    titles = {title: name for name, title in STORES_AS.items()}
    found = [files for files in find_agent_files(home, {}) if files.agent in titles]
    if not found:
        pytest.skip("no agent has run: make test-agents")
    imported = tmp_path / "imported.db"
    output = called_at(home, "--store", str(imported), "import", "--discover", "--yes")
    assert "; 0 with problems" in output
    for files in found:
        word = _word(titles[files.agent])
        texts = _messages(imported, word)
        assert sum(word in text for text in texts) == len(files.files) == 1, f"{files.agent}: the task, once"
        assert sum(ANSWER in text for text in texts) >= 1
        assert len(_messages(imported, word, "tool")) == STEPS, "the output of every step, once"
        package = next(agent.package for agent in LAUNCHED if agent.name == titles[files.agent])
        assert word in asyncio.run(_recalled(imported, f"Which is the word {word}?", package))
        hooked = _recalled_by_hook(home, imported, f"What was the task with the word {word}?")
        assert f"The word is {word}" in hooked
        assert f"{package} in " in hooked
    assert "0 entries, 0 new" in called_at(home, "--store", str(imported), "import", "--discover", "--yes")
    before = _messages(store)
    output = called_at(home, "--store", str(store), "import", "--discover", "--yes")
    assert _messages(store) == before, f"messages that went through the gateway are stored once: {output}"


async def _recalled(store: Path, question: str, agent: str) -> str:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "recto", "--store", str(store), "mcp"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    async with stdio_client(server) as streams, ClientSession(*streams) as client:
        await client.initialize()
        answer = await client.call_tool("recall", {"query": question, "agent": agent})
    return str(answer.content)


def _recalled_by_hook(home: Path, store: Path, prompt: str) -> str:
    """The context that the hook adds to a prompt of a new Claude Code session above all project folders."""
    submitted = {"session_id": "new", "cwd": str(home.parent), "hook_event_name": "UserPromptSubmit", "prompt": prompt}
    output = called_at(
        home, "--store", str(store), "hook", "claude-code", "UserPromptSubmit", typed=json.dumps(submitted)
    )
    return str(json.loads(output)["hookSpecificOutput"]["additionalContext"])


def _word(agent: str) -> str:
    return f"{agent}mast"


def _arguments(agent: Launched) -> list[str]:
    """The arguments of an agent, with a word in the task that is unique to it."""
    return [f"{TASK} The word is {_word(agent.name)}." if word == TASK else word for word in agent.arguments]


def _messages(store: Path, word: str = "", role: str = "") -> list[str]:
    """Stored messages with this role, from the sessions that contain the word."""
    with closing(SqliteStore(store, create=False)) as opened:
        sessions = [list(opened.read(session.session)) for session in opened.sessions()]
    return [
        entry.content.decode()
        for entries in sessions
        if any(word in entry.content.decode(errors="replace") for entry in entries)
        for entry in entries
        if entry.kind == "message" and role in ("", entry.role)
    ]


def _listens(address: str) -> bool:
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((host, int(port))) == 0
