"""`recto plugin`: puts Recto into coding agents with one command, and takes it out again."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from recto.cli._common import program_command
from recto.cli._lazy_group import SpellingGroup
from recto.cli.console import out, safe
from recto.cli.hook import RECALL
from recto.config import Settings

_RECORDS = "~/.recto/plugins"
_SEATS = ("claude-code", "codex", "hermes", "openclaw", "opencode", "pi")
_seat = click.argument("agent", type=click.Choice(_SEATS))
_MAX_INPUT = 256 << 20


@click.group("plugin", cls=SpellingGroup)
def plugin_command() -> None:
    """Puts Recto into claude-code, codex, hermes, openclaw, opencode or pi, and takes it out again.

    Claude Code gets hooks, the MCP server, a skill, /recto commands and a status line; Codex hooks and MCP servers;
    Hermes and OpenClaw a context engine, which fits every prompt; opencode and pi a plugin that keeps the state of the
    work at a compaction. `--store` and `--config` go along.

    \b
    Examples:
      recto plugin install claude-code
      recto plugin uninstall claude-code
    """


@plugin_command.command("install")
@_seat
@RECALL
@click.pass_context
def install_command(context: click.Context, agent: str, recall: bool) -> None:
    """Installs Recto in an agent of this user. A second call updates it.

    With --no-recall, the hooks of claude-code and codex store history, and prompts are given nothing of it.

    \b
    Examples:
      recto plugin install claude-code
      recto plugin install codex --no-recall
      recto --store ~/work.db plugin install pi
    """
    from recto.adapters.plugins import install, seat_in  # noqa: PLC0415  # start-up

    seat = seat_in(agent, program_command(context), Path.home(), os.environ, recalls=recall)
    written = install(seat, Path(_RECORDS).expanduser())
    for path in written:
        _print_line(f"written: {path}")
    _print_line(seat.then if written else f"{seat.title} has Recto already.")


@plugin_command.command("uninstall")
@_seat
@click.pass_context
def uninstall_command(context: click.Context, agent: str) -> None:
    """Takes Recto out of an agent; its settings are as they were before, to the byte.

    Where a settings file was changed since, only Recto's part is removed from it. What Recto has stored stays.

    \b
    Examples:
      recto plugin uninstall claude-code
    """
    from recto.adapters.plugins import seat_in, uninstall  # noqa: PLC0415  # start-up

    seat = seat_in(agent, program_command(context), Path.home(), os.environ)
    done = uninstall(seat, Path(_RECORDS).expanduser())
    for path in done:
        _print_line(f"{'restored' if path.exists() else 'removed'}: {path}")
    if not done:
        _print_line(f"{seat.title} has nothing of Recto that 'recto plugin install' wrote.")


@plugin_command.command("marketplace")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--program", default="recto", show_default=True, metavar="COMMAND", help="How Recto is started.")
def marketplace_command(folder: Path, program: str) -> None:
    """Writes a marketplace with the plugin for Claude Code, for 'claude plugin marketplace add FOLDER'.

    \b
    Examples:
      recto plugin marketplace ./recto-marketplace
    """
    from recto.adapters.plugins import marketplace, write_folder  # noqa: PLC0415  # start-up

    write_folder(folder, marketplace(program.split()))
    _print_line(f"Written to {folder}. 'claude plugin marketplace add {folder}' adds it.")


@plugin_command.command("record")
@click.argument("agent", type=click.Choice(["opencode", "pi"]))
@click.option("--session", metavar="KEY", required=True, help="The agent's own id of the session.")
@click.option("--file", type=click.Path(dir_okay=False, path_type=Path), help="The session file of the agent.")
@click.pass_obj
def record_command(settings: Settings, agent: str, session: str, file: Path | None) -> None:
    """Prints the state of a session's work, for a plugin that compacts; new messages are imported first.

    opencode sends its messages on standard input, one JSON object a line.

    \b
    Examples:
      recto plugin record pi --session 8a1c… --file session.jsonl
    """
    from recto.adapters.coding_agents import compaction_record  # noqa: PLC0415  # start-up

    if file is not None or agent == "pi":
        text = compaction_record(session, file, settings)
    else:
        with tempfile.TemporaryDirectory() as folder:
            sent = Path(folder) / "opencode.jsonl"
            sent.write_bytes(sys.stdin.buffer.read(_MAX_INPUT))
            text = compaction_record(session, sent if sent.stat().st_size else None, settings)
    click.echo(safe(text), nl=False)


@plugin_command.command("engine")
@click.argument("agent", type=click.Choice(["hermes", "openclaw"]))
@click.pass_obj
def engine_command(settings: Settings, agent: str) -> None:
    """Fits prompts for a plugin that is a context engine: one JSON object a line, on standard input and output.

    It ends when its input does. What fails is answered as an error.

    \b
    Examples:
      recto plugin engine hermes
    """
    from recto.adapters.context_engines import ContextEngineServer  # noqa: PLC0415  # start-up

    with ContextEngineServer(settings, surface=agent) as server:
        for line in sys.stdin.buffer:
            click.echo(json.dumps(server.answer(line)))  # JSON escapes what a terminal would act on


@plugin_command.command("statusline")
@click.pass_obj
def statusline_command(settings: Settings) -> None:
    """Prints a status line for Claude Code: fill of the window, cache left, cost to continue.

    Claude Code calls it with the state of the session on standard input.

    \b
    Examples:
      recto plugin statusline < status.json
    """
    from recto.adapters.status_line import status_line  # noqa: PLC0415  # start-up

    try:
        status: Any = json.loads(sys.stdin.read(1 << 20))
    except ValueError:
        status = {}
    click.echo(status_line(status if isinstance(status, dict) else {}, now=time.time(), models=settings.models))


def _print_line(line: str) -> None:
    out.print(safe(line), markup=False, soft_wrap=True)
