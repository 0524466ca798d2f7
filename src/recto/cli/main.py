"""The `recto` command. A user error ends in one line and an exit code, never in a traceback.

Exit codes: 0 done; 1 done, but something was found that needs attention; 2 the command or a setting is wrong; 3 the
input was refused; 4 the store or the gateway refused or failed.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from recto.cli.console import err, safe
from recto.config import load
from recto.errors import InputError, RectoError, RequestRefused, SettingsError, StoreError, UnknownSession
from recto.version import __version__

EXIT_FOUND, EXIT_USAGE, EXIT_INPUT, EXIT_STORE = 1, 2, 3, 4
COMMANDS = {
    "audit": "recto.cli.audit",
    "bench": "recto.lab.commands.bench",
    "chat": "recto.cli.chat",
    "checkpoint": "recto.cli.checkpoint",
    "compact": "recto.cli.compact",
    "completion": "recto.cli.completion",
    "config": "recto.cli.config",
    "consolidate": "recto.cli.memory",
    "context": "recto.cli.context",
    "demo": "recto.cli.demo",
    "doctor": "recto.cli.doctor",
    "export": "recto.cli.import_export",
    "facts": "recto.cli.compact",
    "fidelity": "recto.lab.commands.fidelity",
    "fork": "recto.cli.sessions",
    "health": "recto.cli.health",
    "hook": "recto.cli.hook",
    "import": "recto.cli.import_export",
    "index": "recto.cli.recall",
    "keys": "recto.cli.keys",
    "mcp": "recto.cli.mcp",
    "memory": "recto.cli.memory",
    "models": "recto.cli.models",
    "note": "recto.cli.compact",
    "pin": "recto.cli.pin",
    "read": "recto.cli.recall",
    "recall": "recto.cli.recall",
    "replay": "recto.lab.commands.replay",
    "restore": "recto.cli.compact",
    "resume": "recto.cli.checkpoint",
    "serve": "recto.cli.serve",
    "sessions": "recto.cli.sessions",
    "show": "recto.cli.sessions",
    "simulate": "recto.lab.commands.simulate",
    "store": "recto.cli.store",
    "tui": "recto.cli.tui",
    "tune": "recto.lab.commands.tune",
    "unpin": "recto.cli.pin",
    "verify": "recto.cli.sessions",
}
"""The module of each command; only the module of the called command is loaded."""
_WITHOUT_SETTINGS = ("doctor", "completion", "hook")
"""Commands that work with broken settings."""


class LazyGroup(click.Group):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports and returns a command."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(COMMANDS[cmd_name])
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="recto")
@click.option("--store", metavar="PATH", help="Where transcripts are kept. [default: ~/.recto/transcript.db]")
@click.option("--config", metavar="FILE", help="A YAML file of settings.")
@click.pass_context
def recto(context: click.Context, store: str | None, config: str | None) -> None:
    """Keeps an agent's prompt inside its context window, and forgets nothing.

    \b
    Examples:
      recto demo                                 see it at work
      recto chat                                 talk to a model, with a window that stays in bounds
      recto import session.jsonl                 take in a session of Claude Code, Codex or any chat
      recto sessions                             what is stored
      recto show agent:default:main --last 5     read it
      recto context list --model gpt-4o          where the tokens of the prompt go
      recto recall "which port did we choose"    find it, in the prompt or not
      recto verify                               prove that nothing was changed
      recto export agent:default:main -o a.jsonl get it out, losslessly
    """
    try:
        context.obj = load(path=config, arguments={"store": store})
    except SettingsError as error:
        if context.invoked_subcommand not in _WITHOUT_SETTINGS:
            raise
        context.obj = error  # `doctor` reports it, the other two do not need settings


def main() -> None:
    """Runs the command line."""
    try:
        code = recto.main(standalone_mode=False)
    except click.exceptions.Abort:
        err.print("stopped")
        code = 130
    except click.ClickException as error:
        error.message = safe(error.message)  # type: ignore[misc]  # it may quote user input
        error.show()
        code = error.exit_code
    except BrokenPipeError:
        # The reader of the pipe is gone; without this Python reports it again at shutdown.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except RectoError as error:
        err.print("recto: ", style="red", end="", markup=False)
        err.print(safe(str(error)), markup=False, soft_wrap=True)
        code = _exit_code(error)
    sys.exit(code)


def _exit_code(error: RectoError) -> int:
    match error:
        case SettingsError() | UnknownSession():
            return EXIT_USAGE
        case InputError():
            return EXIT_INPUT
        case StoreError():
            return EXIT_STORE
        case RequestRefused():
            return _refused_exit_code(error.status)
        case _:
            return EXIT_FOUND


def _refused_exit_code(status: int) -> int:
    """Maps the status of a gateway's refusal: a wrong key or name, wrong input, or a failure of the gateway."""
    if status in (401, 403, 404):
        return EXIT_USAGE
    return EXIT_INPUT if 400 <= status < 500 and status != 429 else EXIT_STORE
