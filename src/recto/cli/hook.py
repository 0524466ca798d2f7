"""`recto hook`: hooks that coding agents call, and their entry in the agents' settings.

A hook must never block its host: every error is one line on standard error with exit code 0, and slow work is
abandoned. Exit code 2 would tell the host to stop.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from pathlib import Path

import click

from recto.adapters.coding_agents import (
    CLAUDE_CODE,
    CODEX,
    PROMPT,
    PROMPT_SECONDS,
    CodingAgent,
    HookInput,
    answered,
    file_of,
    hooks_for,
    install,
    remove,
)
from recto.cli._lazy_group import SpellingGroup
from recto.config import Settings
from recto.errors import RectoError
from recto.text.unicode import safe

AGENTS = {agent.name: agent for agent in (CLAUDE_CODE, CODEX)}
_MAX_INPUT = 1 << 20
_agent = click.argument("agent", type=click.Choice(list(AGENTS)))
_project = click.option("--project", is_flag=True, help="The settings of the project in this folder.")
RECALL = click.option(
    "--recall/--no-recall", default=True, show_default=True, help="Whether prompts are given what was said before."
)
_user = click.option("--user", is_flag=True, help="The settings of its user. [default]")


@click.group("hook", cls=SpellingGroup)
def hook_command() -> None:
    """Lets Claude Code and Codex keep what they would lose when they compact their history.

    Before they compact, all of the session is taken in, and a checkpoint and a handoff are written; when they begin
    again, they are given the handoff, once. What is said is taken in turn by turn, and found again with 'recto recall'.
    With each prompt they are given a short quotation of what earlier sessions of the project, of any agent, hold about
    it, if anything does.

    \b
    Examples:
      recto hook install claude-code
      recto hook install codex --project --print
      recto hook remove claude-code
    """


def _event_command(agent: CodingAgent) -> click.Command:
    @click.command(agent.name, help=_HELP.format(agent=agent))
    @click.argument("event")
    @click.option("--seconds", type=float, default=50.0, show_default=True, help="Time limit in seconds.")
    @click.pass_obj
    def called(settings: Settings | RectoError, event: str, seconds: float) -> None:
        _run_with_timeout(agent, event, settings, min(seconds, PROMPT_SECONDS) if event == PROMPT else seconds)

    return called


_HELP = """What {agent.title} calls at an event; it gets the rest on standard input.

Always ends with exit code 0: a hook that fails must not hold up its host. What went wrong is said on standard error.

\b
Examples:
  recto hook {agent.name} PreCompact < event.json
"""


def _run_with_timeout(agent: CodingAgent, event: str, settings: Settings | RectoError, seconds: float) -> None:
    """Prints the hook's output, unless it fails or times out."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a search of words needs no threads of numpy, which cost CPU
    result: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()

    def work() -> None:
        try:
            if isinstance(settings, RectoError):
                raise settings
            hook_input = HookInput.read(sys.stdin.read(_MAX_INPUT), event)
            result.put((answered(agent, hook_input, settings), ""))
        except Exception as error:  # noqa: BLE001  # a hook must not fail its host
            result.put(("", str(error) or type(error).__name__))

    threading.Thread(target=work, daemon=True, name="hook").start()
    try:
        output, problem = result.get(timeout=seconds)
    except queue.Empty:
        _print_error(f"not ready after {seconds:g} seconds; what was taken in so far is stored")
        os._exit(0)  # do not wait for hanging threads
    if problem:
        _print_error(problem)
    elif output:
        click.echo(output)


def _print_error(what: str) -> None:
    click.echo(f"recto hook: {safe(what)}", err=True)
    sys.stderr.flush()


for _known_agent in AGENTS.values():
    hook_command.add_command(_event_command(_known_agent))


@hook_command.command("install")
@_agent
@_project
@_user
@RECALL
@click.option("--print", "only_print", is_flag=True, help="Write nothing; show what would be written.")
@click.pass_context
def install_command(
    context: click.Context, agent: str, project: bool, user: bool, recall: bool, only_print: bool
) -> None:
    """Puts the hooks into the settings of claude-code or codex.

    Whatever else is in the file stays, and the file as it was is kept beside it. A file that is not plain JSON is left
    alone. `--store` and `--config` go along.

    \b
    Examples:
      recto hook install claude-code
      recto --store ~/work.db hook install codex --project
      recto hook install claude-code --print
    """
    from recto.cli._common import program_command  # noqa: PLC0415  # start-up: what agents call needs no console

    if isinstance(context.obj, RectoError):
        raise context.obj
    host, path = AGENTS[agent].with_recall(recall), _path(agent, project, user)
    program = program_command(context)
    if only_print:
        click.echo(json.dumps({"hooks": hooks_for(host, program)}, indent=2, ensure_ascii=False))
        return
    backup = install(host, program, path)
    if backup is None:
        _print_line(f"{host.title} has Recto's hooks already: {path}")
        return
    _print_line(f"{host.title} has Recto's hooks now: {path}")
    _print_backup(backup, path)
    _print_line(host.then or f"Sessions that {host.title} begins from now on use them.")


@hook_command.command("remove")
@_agent
@_project
@_user
def remove_command(agent: str, project: bool, user: bool) -> None:
    """Takes the hooks out of the settings of claude-code or codex; everything else in them stays.

    \b
    Examples:
      recto hook remove claude-code
    """
    host, path = AGENTS[agent], _path(agent, project, user)
    backup = remove(host, path)
    if backup is None:
        _print_line(f"{host.title} has no hooks of Recto: {path}")
        return
    _print_line(f"Recto's hooks are out of {path}")
    _print_backup(backup, path)


def _path(agent: str, project: bool, user: bool) -> Path:
    if project and user:
        raise click.UsageError("--project or --user, not both")
    return file_of(AGENTS[agent], project=Path.cwd() if project else None)


def _print_backup(backup: Path, path: Path) -> None:
    if backup != path.resolve():
        _print_line(f"As it was: {backup}")


def _print_line(line: str) -> None:
    click.echo(safe(line))
