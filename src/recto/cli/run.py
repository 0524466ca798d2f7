"""`recto run`: an agent, or any program, with its model requests going through a gateway for as long as it runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast
from urllib.parse import urlsplit

import click

from recto.cli._agents import AGENTS, SIGNED_IN, Launch, LaunchContext, launch, own_origins
from recto.cli._common import GATEWAY_PACKAGES, require_packages
from recto.cli.console import err, safe
from recto.cli.serve import LISTENS, PAGE
from recto.config import Settings
from recto.config.factory import SystemClock, make_embedded_model, open_store
from recto.engine.fork import BRANCH
from recto.errors import SettingsError, StoreError
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import list_sessions

_STOP_SECONDS = 20.0
"""How long the gateway may take to finish what it has begun."""
_MAX_LISTED = 3
"""Sessions that are named at the end."""
_MAX_FORKS = 100
"""Entries of a session that are read to see whether it was only forked."""
_PROGRAMS = {"claude": "claude-code", "qwen": "qwen-code", "gemini": "gemini-cli", "mini": "mini-swe-agent"}
"""Agents whose commands have other names."""
_NOT_FOUND = 127
"""The exit code of a shell for a program that is not installed."""


@click.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--gateway", metavar="URL", envvar="RECTO_URL", help="Use this gateway (recto serve --local).")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="AGENT|COMMAND [ARGUMENTS]...")
@click.pass_context
def run_command(context: click.Context, gateway: str | None, quiet: bool, command: tuple[str, ...]) -> None:
    """Runs an agent with its prompts inside the window, and its whole history in the store.

    Starts a gateway on this machine, points this one process at it, and stops it afterwards. No file of the agent is
    changed. Its own key or subscription is passed on to its provider; where the settings have upstreams for its format,
    those answer; where there is neither, the model on this machine does. Known agents: aider, claude, codex, gemini,
    goose, llm, mini, opencode, pi, qwen. Any other command gets the usual variables (OPENAI_BASE_URL,
    ANTHROPIC_BASE_URL, …).

    \b
    Examples:
      recto run claude
      recto run codex -- exec "fix the failing test"
      recto run -- python my_agent.py
    """
    if not command:
        raise click.UsageError(f"name an agent ({', '.join(AGENTS)}) or a command: recto run -- python my_agent.py")
    settings: Settings = context.obj
    require_packages("gateway", GATEWAY_PACKAGES, "gateway")
    if shutil.which(command[0]) is None:
        err.print(safe(f"recto: the program '{command[0]}' is not installed, or not in PATH"), markup=False)
        context.exit(_NOT_FOUND)
    began = SystemClock().now()
    with (
        tempfile.TemporaryDirectory(prefix="recto-run-") as folder,
        _gateway(context, gateway, Path(command[0]).name) as place,
    ):
        plan = launch(
            command,
            LaunchContext(
                gateway=place.url,
                environ=os.environ,
                speaks=_formats(settings),
                folder=Path(folder),
                has_login=command[0] in SIGNED_IN,
                codex_login=_codex_login(os.environ),
            ),
        )
        if plan.embedded and not gateway:
            make_embedded_model(settings)  # raises, with the cure, where it is not installed
        for name, text in plan.files.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        if not quiet:
            _print(f"Recto: {place.page}")
            if plan.embedded:
                _print("Recto: no key and no upstream is set, so the model on this machine answers.")
        code = _run(plan, place.url)
    if not quiet:
        _print_sessions(settings, began)
    context.exit(code)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunningGateway:
    """A gateway that runs."""

    url: str
    page: str


@contextmanager
def _gateway(context: click.Context, url: str | None, program: str) -> Iterator[_RunningGateway]:
    """Starts a gateway for as long as the block runs, or uses the one that the caller names."""
    if url:
        url = url.rstrip("/")
        yield _RunningGateway(url=url, page=f"{url}/")
        return
    options = context.find_root().params
    named = [f"--{name}={value}" for name in ("store", "config") if (value := options.get(name))]
    # It ends with its input: if this process is killed, the system closes the pipe.
    words = [sys.executable, "-m", "recto", *named, "serve", "--local", "--key", "--port=0", "--until-input-ends"]
    with subprocess.Popen(  # noqa: S603  # this program
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=_gateway_environment(context.obj, program),
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,  # Ctrl-C is for the agent
    ) as process:
        stdin, stdout = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)
        try:
            yield _ready(stdout)
        finally:
            stdin.close()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _gateway_environment(settings: Settings, program: str) -> dict[str, str]:
    """Returns the environment of the gateway: base URLs that the caller has set become addresses it may pass on to."""
    targets = [*settings.gateway.targets, *own_origins(os.environ)]
    return {
        **os.environ,
        "RECTO_GATEWAY__TARGETS": json.dumps(targets),
        "RECTO_GATEWAY__PROJECT": str(Path.cwd()),
        "RECTO_GATEWAY__PROGRAM": _PROGRAMS.get(program, program),
    }


def _ready(output: IO[str]) -> _RunningGateway:
    """Waits until the gateway listens. Raises `StoreError` with what it printed if it does not."""
    url, lines = "", deque[str](maxlen=20)
    for line in output:
        lines.append(line.rstrip())
        if line.startswith(LISTENS):
            url = line.removeprefix(LISTENS).strip()
        elif line.startswith(PAGE):
            threading.Thread(target=_drain, args=(output,), daemon=True).start()
            return _RunningGateway(url=url, page=line.removeprefix(PAGE).strip())
    raise StoreError("the gateway did not start: " + "\n".join(lines).removeprefix("recto: "))


def _drain(output: IO[str]) -> None:
    """Reads what the gateway prints, so that it never waits for a reader."""
    with suppress(ValueError):  # it was closed
        for _ in output:
            pass


def _run(plan: Launch, url: str) -> int:
    """Runs the agent in the foreground and returns its exit code, like a shell."""
    local = urlsplit(url).hostname or "127.0.0.1"
    excepted = ",".join(dict.fromkeys([*os.environ.get("NO_PROXY", os.environ.get("no_proxy", "")).split(","), local]))
    proxies = {"NO_PROXY": excepted.strip(","), "no_proxy": excepted.strip(",")}
    environment = {**os.environ, **proxies, **plan.environment, "RECTO_URL": url}
    process = subprocess.Popen(plan.command, env=environment)  # noqa: S603  # what the user asked for
    # Ctrl-C reaches the agent by itself; it decides whether that ends it.
    with _handled(signal.SIGINT, lambda *_: None), _handled(signal.SIGTERM, lambda *_: process.terminate()):
        code = process.wait()
    return 128 - code if code < 0 else code


@contextmanager
def _handled(number: signal.Signals, handler: signal._HANDLER) -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def _formats(settings: Settings) -> frozenset[str]:
    """Returns the formats that the upstreams of the settings speak."""
    upstreams = settings.gateway.upstreams.values()
    return frozenset(name for options in upstreams for name in options.get("speaks", ("chat", "responses")))


def _codex_login(environ: Mapping[str, str]) -> str:
    """Returns which credential Codex is signed in with; only whether it is there is read."""
    home = Path(environ.get("CODEX_HOME") or Path.home() / ".codex")
    try:
        login = json.loads((home / "auth.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    if not isinstance(login, dict):
        return ""
    return "key" if login.get("OPENAI_API_KEY") else "subscription" if login.get("tokens") else ""


def _print_sessions(settings: Settings, began: int) -> None:
    with suppress(StoreError, SettingsError), closing(open_store(settings, create=False)) as store:
        recent = [summary for summary in list_sessions(store, "", 1_000) if summary.last_ts >= began]
        changed = [summary for summary in recent if not _was_only_forked(store, summary.session, began)]
        for summary in changed[:_MAX_LISTED]:
            _print(f"Recto: {summary.session}, {summary.entries} entries; recto session show {summary.session}")
        if len(changed) > _MAX_LISTED:
            _print(f"Recto: {len(changed) - _MAX_LISTED} more sessions; recto session ls")


def _was_only_forked(store: TranscriptStore, session: str, began: int) -> bool:
    """Whether all that a session got since then are notes that others were forked from it."""
    recent = [entry for entry in store.tail(session, _MAX_FORKS) if entry.ts >= began]
    return bool(recent) and all(entry.kind == BRANCH and b'"to"' in entry.content for entry in recent)


def _print(text: str) -> None:
    err.print(safe(text), markup=False, highlight=False, soft_wrap=True)
