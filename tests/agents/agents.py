"""The coding agents, and how each is configured for the gateway, as docs/agents.md describes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.agents.installing import HERE, NODE, Package, packages

from recto.formats.anthropic import ANTHROPIC
from recto.formats.gemini import GEMINI
from recto.formats.openai_chat import CHAT
from recto.formats.openai_responses import RESPONSES

PATHS: Mapping[str, str] = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSES,
    "/v1/messages": ANTHROPIC,
}


def wire_of(path: str) -> str:
    """The wire format of requests to a path; empty for a path that takes no conversation."""
    method = path.partition(":")[2] if path.startswith("/v1beta/models/") else ""
    return GEMINI.name if method in ("generateContent", "streamGenerateContent") else PATHS.get(path, "")


_LOOPS = HERE / "loops"
"""Our own tool loops, for libraries that have no command line program."""
_CLAUDE = "claude-sonnet-5-5"
_BLOCKED_PROXY = "http://127.0.0.1:9"
"""A proxy address where no process listens: it blocks every request to another machine."""


@dataclass(frozen=True)
class Agent:
    """One agent, and the options of its test run."""

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
    """Whether it can delegate to sub-agents."""
    submits: bool = False
    """Whether it ends with a command instead of an answer."""
    shows_json: bool = False
    """Whether it passes command output to the model as a JSON string."""


# Each window is the smallest that fits the agent's own prompt and one whole step: see windows.py.
AGENTS = (
    Agent("mini-swe-agent", "mini-swe-agent", CHAT, "gpt-4o", 3_500, 22, 60, (), False, False, True, True),
    Agent("codex", "codex", RESPONSES, "gpt-4o", 14_500, 46, 60),
    Agent("codex, one agent", "codex", RESPONSES, "gpt-4o", 11_500, 36, 60, ("--disable", "multi_agent")),
    Agent("claude-code", "claude-code", ANTHROPIC, _CLAUDE, 32_000, 40, 100, delegates=True),
    Agent(
        "claude-code, Bash only",
        "claude-code",
        ANTHROPIC,
        _CLAUDE,
        10_500,
        22,
        60,
        ("--tools=Bash", "--system-prompt=You are a coding agent. You work with the shell."),
    ),
    Agent("opencode", "opencode", RESPONSES, "gpt-4o", 14_000, 46, 60),
    Agent("pi", "pi", CHAT, "gpt-4o", 7_500, 28, 60),
    Agent("qwen-code", "qwen-code", CHAT, "gpt-4o", 23_500, 46, 90),
    Agent("llm", "llm", CHAT, "gpt-4o", 3_000, 22, 60),
    Agent("Vercel AI SDK, chat", "ai-sdk", CHAT, "gpt-4o", 5_000, 22, 60),
    Agent("Vercel AI SDK, responses", "ai-sdk", RESPONSES, "gpt-4o", 5_000, 22, 60),
    Agent("Vercel AI SDK, anthropic", "ai-sdk", ANTHROPIC, _CLAUDE, 8_000, 26, 60),
    # When resumed, it sends each result twice, even without the gateway, and Gemini rejects that.
    Agent("gemini-cli", "gemini-cli", GEMINI.name, "gemini-3.8-flash", 19_000, 52, 60, can_resume=False),
    Agent("LangGraph", "langgraph", CHAT, "gpt-4o", 3_000, 22, 60),
)


@dataclass(frozen=True)
class Call:
    """A command line and its environment."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


def call(agent: Agent, package: Package, folder: Path, url: str, key: str, task: str, *, resume: bool = False) -> Call:
    """The command that gives an agent a task through a gateway, isolated from the settings of the caller."""
    home = folder / "home"
    command, environment = _COMMAND_BUILDERS[agent.package](agent, folder, url, key, task, resume)
    isolated = {
        "HOME": str(home),
        "PATH": f"{NODE}{os.pathsep}{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        "HTTP_PROXY": _BLOCKED_PROXY,
        "HTTPS_PROXY": _BLOCKED_PROXY,
        "ALL_PROXY": _BLOCKED_PROXY,
        "NO_PROXY": "127.0.0.1",
    }
    isolated |= {name.lower(): value for name, value in isolated.items() if name.endswith("PROXY")}
    return Call((str(package.program), *command), {**isolated, **environment})


_CommandLine = tuple[tuple[str, ...], dict[str, str]]


def _mini(agent: Agent, folder: Path, url: str, key: str, task: str, resume: bool) -> _CommandLine:
    output = str(folder / "trajectory.json")
    command = ("-y", "--exit-immediately", "-m", f"openai/{agent.model}", "-t", task, "-o", output, *agent.options)
    return command, {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": key,
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


def _codex(agent: Agent, folder: Path, url: str, key: str, task: str, resume: bool) -> _CommandLine:
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
    resume_options = ("resume", "--last") if resume else ()
    command = (
        "exec",
        *resume_options,
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        *agent.options,
    )
    return (*command, task), {"CODEX_HOME": str(home), "RECTO_KEY": key}


def _claude(agent: Agent, folder: Path, url: str, key: str, task: str, resume: bool) -> _CommandLine:
    resume_options = ("--continue",) if resume else ()
    command = ("-p", *resume_options, "--model", agent.model, "--dangerously-skip-permissions", *agent.options, task)
    return command, {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": key,
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "4000",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "IS_SANDBOX": "1",  # allows root to skip permissions
    }


def _opencode(agent: Agent, folder: Path, url: str, key: str, task: str, resume: bool) -> _CommandLine:
    settings = {
        "model": f"openai/{agent.model}",
        "small_model": f"openai/{agent.model}",
        "provider": {
            "openai": {
                "options": {"baseURL": f"{url}/v1", "apiKey": "{env:RECTO_KEY}"},
                "models": {agent.model: {"limit": {"context": 128_000, "output": 4_000}}},
            }
        },
        "autoupdate": False,
        "share": "disabled",
    }
    (folder / "work" / "opencode.json").write_text(json.dumps(settings), encoding="utf-8")
    resume_options = ("--continue",) if resume else ()
    return ("run", *resume_options, *agent.options, task), {
        "RECTO_KEY": key,
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    }


def _pi(agent: Agent, folder: Path, url: str, key: str, task: str, resume: bool) -> _CommandLine:
    home = folder / "home" / ".pi" / "agent"
    home.mkdir(parents=True, exist_ok=True)
    provider = {
        "baseUrl": f"{url}/v1",
        "api": "openai-completions",
        "apiKey": "RECTO_KEY",
        "models": [{"id": agent.model, "contextWindow": 128_000, "maxTokens": 4_000}],
    }
    (home / "models.json").write_text(json.dumps({"providers": {"recto": provider}}), encoding="utf-8")
    resume_options = ("--continue",) if resume else ()
    command = ("--print", *resume_options, "--provider", "recto", "--model", agent.model, *agent.options, task)
    return command, {"RECTO_KEY": key, "PI_OFFLINE": "1", "PI_TELEMETRY": "0"}


def _qwen(agent: Agent, folder: Path, url: str, key: str, task: str, resume: bool) -> _CommandLine:
    home = folder / "home" / ".qwen"
    home.mkdir(parents=True, exist_ok=True)
    settings = {
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "memory": {"enableManagedAutoMemory": False},
        "tools": {"shell": {"enableInteractiveShell": True}},
        "security": {"auth": {"selectedType": "openai"}},
    }
    (home / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    resume_options = ("--continue",) if resume else ()
    return (*resume_options, "--yolo", "--model", agent.model, *agent.options, "--prompt", task), {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": key,
        "QWEN_CODE_MAX_OUTPUT_TOKENS": "4000",
    }


def _gemini(agent: Agent, folder: Path, url: str, key: str, task: str, resume: bool) -> _CommandLine:
    home = folder / "home" / ".gemini"
    home.mkdir(parents=True, exist_ok=True)
    settings = {
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        # Loop detection sends a history that starts with a model message, which Gemini and the gateway reject.
        "model": {"disableLoopDetection": True},
    }
    (home / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    resume_options = ("--resume", "latest") if resume else ()
    return (*resume_options, "--yolo", "--model", agent.model, *agent.options, "--prompt", task), {
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_API_KEY": key,
    }


def _llm(agent: Agent, folder: Path, url: str, key: str, task: str, resume: bool) -> _CommandLine:
    home = folder / "home" / "llm"
    home.mkdir(parents=True, exist_ok=True)
    (home / "extra-openai-models.yaml").write_text(
        f"- model_id: recto\n  model_name: {agent.model}\n  api_base: {url}/v1\n  api_key_name: recto\n"
        "  supports_tools: true\n",
        encoding="utf-8",
    )
    (home / "keys.json").write_text(json.dumps({"recto": key}), encoding="utf-8")
    resume_options = ("--continue",) if resume else ()
    tools = ("--functions", str(_LOOPS / "bash_for_llm.py"), "--chain-limit", "0")
    return ("prompt", *resume_options, "--model", "recto", *tools, *agent.options, task), {"LLM_USER_PATH": str(home)}


def _ai_sdk(agent: Agent, folder: Path, url: str, key: str, task: str, resume: bool) -> _CommandLine:
    script = folder / "work" / "ai-sdk-agent.mjs"
    script.write_bytes((_LOOPS / "ai-sdk-agent.mjs").read_bytes())
    modules = folder / "work" / "node_modules"
    if not modules.exists():
        modules.symlink_to(packages()["ai-sdk"].folder / "node_modules")
    name = {CHAT: "chat", RESPONSES: "responses", ANTHROPIC: "anthropic"}[agent.wire]
    history = str(folder / "history.json")
    return (str(script), name, agent.model, f"{url}/v1", history, task), {"RECTO_KEY": key}


def _langgraph(agent: Agent, folder: Path, url: str, key: str, task: str, resume: bool) -> _CommandLine:
    history = str(folder / "history.json")
    return (str(_LOOPS / "langgraph_agent.py"), agent.model, f"{url}/v1", history, task), {
        "OPENAI_API_KEY": key,
        "LANGSMITH_TRACING": "false",
    }


_COMMAND_BUILDERS = {
    "mini-swe-agent": _mini,
    "codex": _codex,
    "claude-code": _claude,
    "opencode": _opencode,
    "pi": _pi,
    "qwen-code": _qwen,
    "gemini-cli": _gemini,
    "llm": _llm,
    "ai-sdk": _ai_sdk,
    "langgraph": _langgraph,
}
