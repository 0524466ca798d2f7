"""`recto` without a command: what is set up, and what to do next."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from pathlib import Path

from rich.text import Text

from recto.adapters.agent_files import find_agent_files
from recto.cli._agents import AGENTS
from recto.cli.console import format_time, out, safe
from recto.config import Settings, settings_files
from recto.config.factory import open_store
from recto.errors import StoreError, StoreMissing
from recto.models import weights
from recto.models.chat import SMALL
from recto.models.embedders import ARCTIC
from recto.transcript.entries import SessionSummary
from recto.transcript.session_keys import list_sessions
from recto.version import __version__

_MAX_SESSIONS = 1_000


def print_status(settings: Settings) -> None:
    """Prints the store, the models, recall and the settings in a line each, and the next step."""
    stored, sessions = _stored(settings)
    files = ", ".join(map(str, settings_files())) or "defaults; no file"
    lines = [
        ("Store", stored),
        ("Models", _models(settings)),
        ("Recall", _recall(settings)),
        ("Settings", files),
    ]
    out.print(f"Recto {__version__}", style="bold", highlight=False)
    for name, text in lines:
        out.print(Text.assemble((f"  {name:<10}", "dim"), safe(text)), soft_wrap=True)
    out.print("\nNext", style="bold")
    for command, purpose in _next_steps(sessions):
        out.print(Text.assemble(f"  {command:<34}", (purpose, "dim")), soft_wrap=True)


def _stored(settings: Settings) -> tuple[str, list[SessionSummary]]:
    try:
        with closing(open_store(settings, create=False)) as store:
            sessions = list_sessions(store, "", _MAX_SESSIONS)
            location = store.location
    except StoreMissing as missing:
        return f"{missing.path}: nothing is stored yet", []
    except StoreError as error:
        return str(error), []
    if not sessions:
        return f"{location}: nothing is stored yet", []
    newest = max(sessions, key=lambda summary: summary.last_ts)
    number = f"{len(sessions):,}" if len(sessions) < _MAX_SESSIONS else f"{_MAX_SESSIONS:,} and more"
    unit = "session" if len(sessions) == 1 else "sessions"
    return f"{location}: {number} {unit}, the newest {newest.session}, {format_time(newest.last_ts)} UTC", sessions


def _models(settings: Settings) -> str:
    if settings.gateway.upstreams:
        return f"upstreams of the gateway: {', '.join(settings.gateway.upstreams)}"
    if weights.find(SMALL):
        return f"{SMALL} on this machine, for requests that bring no key of their own"
    return f"none on this machine; fetch one with: recto models get {SMALL}"


def _recall(settings: Settings) -> str:
    use = settings.recall.embedder.use
    if use not in ("auto", "none"):
        return f"by words and meaning ({use})"
    if use == "auto" and weights.find(ARCTIC):
        return f"by words and meaning ({ARCTIC})"
    return f"by words alone; recto models get {ARCTIC} adds meaning"


def _next_steps(sessions: list[SessionSummary]) -> list[tuple[str, str]]:
    """Returns commands that make sense now."""
    agent = next((name for name in ("claude", "codex", "opencode", *AGENTS) if shutil.which(name)), "claude")
    run = (f"recto run {agent}", "run an agent with its prompts inside the window")
    if not sessions:
        found = find_agent_files(Path.home(), os.environ)
        number = sum(len(files.files) for files in found)
        agents = " and ".join(files.agent for files in found)
        return [
            ("recto demo", "see it at work, in a minute"),
            run,
            ("recto import --discover", f"import {number:,} sessions of {agents} on this machine")
            if found
            else ("recto import FILE", "import a session of Claude Code, Codex or any chat"),
        ]
    return [
        ("recto tui", "see what the model saw, and what not"),
        ('recto recall "which port"', "search everything that was said"),
        run,
        ("recto serve --key --open", "start the gateway and its page"),
    ]
