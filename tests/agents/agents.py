"""The agents, and how each is pointed at the gateway: what docs/agents.md tells people to set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from recto.formats.anthropic import ANTHROPIC
from recto.formats.openai_chat import CHAT
from recto.formats.openai_responses import RESPONSES

PATHS: Mapping[str, str] = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSES,
    "/v1/messages": ANTHROPIC,
}
_NOWHERE = "http://127.0.0.1:9"
"""Whoever wants to leave the machine is sent here, where nobody listens."""


@dataclass(frozen=True)
class Agent:
    """One agent as it is run here."""

    id: str
    package: str
    wire: str
    model: str
    window: int
    steps: int
    lines: int
    """Lines that each step prints."""
    options: tuple[str, ...] = ()
    can_resume: bool = True
    delegates: bool = False
    """Whether it has sub-agents that it can send out."""


AGENTS = (
    Agent("mini-swe-agent", "mini-swe-agent", CHAT, "gpt-4o", 16_000, 22, 140, can_resume=False),
    # As it comes, instructions and tools take 8,500 tokens of the 12,000 that a window of 16,000 has room for.
    Agent("codex", "codex", RESPONSES, "gpt-4o", 16_000, 46, 60),
    Agent("codex, one agent", "codex", RESPONSES, "gpt-4o", 16_000, 20, 140, ("--disable", "multi_agent")),
    # As it comes, system text and tools take 27,700 tokens: more than 16,000 before anything is said.
    Agent("claude-code", "claude-code", ANTHROPIC, "claude-sonnet-4-5", 48_000, 44, 140, delegates=True),
    Agent(
        "claude-code, Bash only",
        "claude-code",
        ANTHROPIC,
        "claude-sonnet-4-5",
        16_000,
        22,
        100,
        ("--tools=Bash", "--system-prompt=You are a coding agent. You work with the shell."),
    ),
)


@dataclass(frozen=True)
class Call:
    """A command line, and the environment it runs in."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


def call(agent: Agent, program: Path, folder: Path, url: str, key: str, task: str, *, resume: bool = False) -> Call:
    """How an agent is given a task through a gateway; nothing of the caller's own settings gets in."""
    made = {"mini-swe-agent": _mini, "codex": _codex, "claude-code": _claude}[agent.package]
    home = folder / "home"
    command, environment = made(agent, folder, url, key, task, resume)
    apart = {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "HTTP_PROXY": _NOWHERE,
        "HTTPS_PROXY": _NOWHERE,
        "ALL_PROXY": _NOWHERE,
        "NO_PROXY": "127.0.0.1",
    }
    apart |= {name.lower(): value for name, value in apart.items() if name.endswith("PROXY")}
    return Call((str(program), *command), {**apart, **environment})


_Made = tuple[tuple[str, ...], dict[str, str]]


def _mini(agent: Agent, folder: Path, url: str, key: str, task: str, resume: bool) -> _Made:
    output = str(folder / "trajectory.json")
    command = ("-y", "--exit-immediately", "-m", f"openai/{agent.model}", "-t", task, "-o", output, *agent.options)
    return command, {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": key,
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


def _codex(agent: Agent, folder: Path, url: str, key: str, task: str, resume: bool) -> _Made:
    home = folder / "home" / ".codex"
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(
        f'model = "{agent.model}"\n'
        'model_provider = "recto"\n\n'
        "[model_providers.recto]\n"
        'name = "Recto"\n'
        f'base_url = "{url}/v1"\n'
        'wire_api = "responses"\n'
        'env_key = "RECTO_KEY"\n'
    )
    again = ("resume", "--last") if resume else ()
    command = ("exec", *again, "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", *agent.options)
    return (*command, task), {"CODEX_HOME": str(home), "RECTO_KEY": key}


def _claude(agent: Agent, folder: Path, url: str, key: str, task: str, resume: bool) -> _Made:
    again = ("--continue",) if resume else ()
    command = ("-p", *again, "--model", agent.model, "--dangerously-skip-permissions", *agent.options, task)
    return command, {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": key,
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "4000",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "IS_SANDBOX": "1",  # permissions may be skipped by root then
    }
