"""The `recto` command. A person's mistake ends in one line and an exit code, never in a traceback.

Exit codes: 0 done; 1 done, but something was found that should be looked at; 2 the command or a setting is wrong;
3 the input cannot be taken; 4 the store refused or failed.
"""

from __future__ import annotations

import os
import sys

import click

from recto import __version__
from recto.cli.compress import (
    checkpoint_command,
    compact_command,
    facts_command,
    note_command,
    restore_command,
)
from recto.cli.context import context_command
from recto.cli.demo import demo
from recto.cli.doctor import doctor_command
from recto.cli.files import export_command, import_command
from recto.cli.fork import fork_command
from recto.cli.models import models_command
from recto.cli.recall import index_command, read_command, recall_command
from recto.cli.screen import err, safe
from recto.cli.transcripts import sessions_command, show_command, verify_command
from recto.errors import InputError, RectoError, SettingsError, StoreError, UnknownSession
from recto.settings import load

EXIT_FOUND, EXIT_USAGE, EXIT_INPUT, EXIT_STORE = 1, 2, 3, 4


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="recto")
@click.option("--store", metavar="PATH", help="Where transcripts are kept. [default: ~/.recto/transcript.db]")
@click.option("--config", metavar="FILE", help="A YAML file of settings.")
@click.pass_context
def recto(context: click.Context, store: str | None, config: str | None) -> None:
    """Keeps an agent's prompt inside its context window, and forgets nothing.

    \b
    Examples:
      recto demo                                 see it at work
      recto import session.jsonl                 take in a session of Claude Code, Codex or any chat
      recto sessions                             what is stored
      recto show agent:default:main --last 5     read it
      recto context list --model gpt-4o          where the tokens of the prompt go
      recto recall "which port did we choose"    find it, in the prompt or not
      recto verify                               prove that nothing was changed
      recto export agent:default:main -o a.jsonl get it out, losslessly
    """
    context.obj = load(path=config, arguments={"store": store})


recto.add_command(demo)
recto.add_command(context_command)
recto.add_command(recall_command)
recto.add_command(read_command)
recto.add_command(index_command)
recto.add_command(doctor_command)
recto.add_command(import_command)
recto.add_command(export_command)
recto.add_command(sessions_command)
recto.add_command(show_command)
recto.add_command(verify_command)
recto.add_command(models_command)
recto.add_command(compact_command)
recto.add_command(facts_command)
recto.add_command(note_command)
recto.add_command(checkpoint_command)
recto.add_command(restore_command)
recto.add_command(fork_command)


def main() -> None:
    """Runs the command line."""
    try:
        code = recto.main(standalone_mode=False)
    except click.exceptions.Abort:
        err.print("stopped")
        code = 130
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except BrokenPipeError:
        # Whoever was reading has gone; without this Python complains once more while it shuts down.
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
        case _:
            return EXIT_FOUND
