"""The `recto` command. A user error ends in one line and an exit code, never in a traceback.

Exit codes: 0 done; 1 done, but something was found that needs attention; 2 the command or a setting is wrong; 3 the
input was refused; 4 the store or the gateway refused or failed; 130 stopped by the user.
"""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import TextIO

import click

from recto.cli._lazy_group import LazyGroup, ReaderGone
from recto.errors import InputError, RectoError, RequestRefused, SettingsError, StoreError, StoreMissing, UnknownSession
from recto.version import __version__

EXIT_FOUND, EXIT_USAGE, EXIT_INPUT, EXIT_STORE = 1, 2, 3, 4
COMMANDS: dict[str, tuple[str, str]] = {
    "acp": ("recto.cli.acp", "Store every turn of an editor's agent (ACP)."),
    "audit": ("recto.cli.audit", "Show what was done to sessions: when, why, at what cost."),
    "chat": ("recto.cli.chat", "Talk to a model, with a window that stays in bounds."),
    "checkpoint": ("recto.cli.checkpoint", "Save and show the state of a session's work."),
    "compact": ("recto.cli.compact", "Make the prompt of a session smaller now."),
    "completion": ("recto.cli.completion", "Print the completion script of a shell."),
    "config": ("recto.cli.config", "Show the settings and where each value comes from."),
    "consolidate": ("recto.cli.memory", "Review finished history and propose memories."),
    "context": ("recto.cli.context", "Show what the model sees of a session, and what not."),
    "demo": ("recto.cli.demo", "See Recto at work on a generated session."),
    "doctor": ("recto.cli.doctor", "Check the installation, store and index; suggest fixes."),
    "facts": ("recto.cli.compact", "List constraints, decisions, approvals and open errors."),
    "grep": ("recto.cli.grep", "Search the lines of all messages of a session."),
    "health": ("recto.cli.health", "Show how the last turns went, their trends and alerts."),
    "hook": ("recto.cli.hook", "Save what Claude Code and Codex lose when they compact."),
    "import": ("recto.cli.import_export", "Import session files of Claude Code, Codex or any chat."),
    "index": ("recto.cli.recall", "Build or complete the recall index."),
    "judge": ("recto.cli.pin", "Say whether a recalled message was helpful."),
    "keys": ("recto.cli.keys", "Add, list and revoke keys of the gateway."),
    "lab": ("recto.lab.commands.group", "Experiment with recorded sessions."),
    "mcp": ("recto.cli.mcp", "Serve recall, notes and reports to an MCP client."),
    "memory": ("recto.cli.memory", "Show durable memory, and approve or reject proposals."),
    "models": ("recto.cli.models", "Show what is known of models, and fetch weights."),
    "note": ("recto.cli.compact", "Add and list notes of an agent."),
    "pin": ("recto.cli.pin", "Keep messages in the prompt until they are unpinned."),
    "plugin": ("recto.cli.plugin", "Install Recto in Claude Code, Codex and other agents."),
    "read": ("recto.cli.recall", "Read the messages that a pointer names."),
    "recall": ("recto.cli.recall", "Search everything that was said, in the prompt or not."),
    "restore": ("recto.cli.compact", "Undo a decision: evicted messages return to the prompt."),
    "resume": ("recto.cli.checkpoint", "Show the first page of a new window for a session."),
    "run": ("recto.cli.run", "Run an agent with its prompts inside the window."),
    "serve": ("recto.cli.serve", "Start the gateway; point a client's base_url at it."),
    "session": ("recto.cli.session_group", "List, show, export, fork, rename or erase sessions."),
    "store": ("recto.cli.store", "Copy, upgrade, grant access to a store; erase a tenant."),
    "trust": ("recto.cli.trust", "Trust the settings file of a working folder."),
    "tui": ("recto.cli.tui", "Open the full-screen interface."),
    "unpin": ("recto.cli.pin", "Let pinned messages be evicted again."),
    "watch": ("recto.cli.watch", "Import sessions of agents on this machine as they grow."),
    "verify": ("recto.cli.sessions", "Recompute every hash chain; name the first change."),
}
"""The module of each command and its line of help; only the module of the called command is loaded."""
_WITHOUT_SETTINGS = ("doctor", "completion", "hook", "trust")
"""Commands that work with broken settings."""


SECTIONS: dict[str, tuple[str, ...]] = {
    "Start": ("demo", "run", "chat", "tui", "import", "watch", "doctor"),
    "Inspect": ("session", "context", "recall", "grep", "read", "facts", "health", "audit"),
    "Change": (
        "pin",
        "unpin",
        "note",
        "judge",
        "compact",
        "restore",
        "checkpoint",
        "resume",
        "memory",
        "consolidate",
    ),
    "Serve": ("serve", "keys", "mcp", "hook", "plugin", "acp"),
    "Operate": ("config", "models", "store", "index", "verify", "trust", "completion"),
    "Lab": ("lab",),
}
"""The commands as `recto --help` lists them."""
_ELSEWHERE = {
    **{name: f"lab {name}" for name in ("bench", "compare", "fidelity", "mine", "replay", "simulate", "trial", "tune")},
    **{name: f"session {name}" for name in ("export", "fork", "rename", "show")},
    "erase": "session rm",
    "find": "recall",
    "list": "session ls",
    "sessions": "session ls",
    "prune": "compact",
    "retrieve": "recall",
    "search": "recall",
    "settings": "config",
    "start": "serve",
    "status": "doctor",
    "summarize": "compact",
    "undo": "restore",
}
"""Words that callers may use, and what they are called here."""


@click.group(
    cls=LazyGroup,
    modules=COMMANDS,
    sections=SECTIONS,
    elsewhere=_ELSEWHERE,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="recto")
@click.option("--store", metavar="PATH", help="Where transcripts are kept. [default: ~/.recto/transcript.db]")
@click.option("--config", metavar="FILE", help="A YAML file of settings.")
@click.pass_context
def recto(context: click.Context, store: str | None, config: str | None) -> None:
    """Keeps an agent's prompt inside its context window, and forgets nothing.

    Without a command, shows what is set up and what to do next.

    \b
    Examples:
      recto demo                                 see it at work
      recto run claude                           run an agent with its prompts inside the window
      recto import session.jsonl                 take in a session of Claude Code, Codex or any chat
      recto session ls                           what is stored
      recto session show --last 5                read it
      recto context list --model gpt-4o          where the tokens of the prompt go
      recto recall "which port did we choose"    find it, in the prompt or not
      recto verify                               prove that nothing was changed
      recto session export -o a.jsonl            get it out, losslessly
    """
    from recto.config import load  # noqa: PLC0415  # start-up: --help and --version read no settings

    try:
        context.obj = load(path=config, arguments={"store": store})
    except SettingsError as error:
        if context.invoked_subcommand not in _WITHOUT_SETTINGS:
            raise
        context.obj = error  # `doctor` reports it, the others do not need settings
    if context.invoked_subcommand is None:
        from recto.cli.status import print_status  # noqa: PLC0415  # start-up

        print_status(context.obj)


def main() -> None:
    """Runs the command line."""
    with warnings.catch_warnings():
        warnings.showwarning = partial(_show_warning, warnings.showwarning)
        sys.exit(_run())


def _run() -> int:
    """Runs a command and returns the exit code of the program."""
    try:
        ended = recto.main(standalone_mode=False)
        if sys.stdout is not None:  # a program may be started with its output closed
            sys.stdout.flush()
        code = ended if isinstance(ended, int) else 0
    except click.exceptions.Abort:
        click.echo("stopped", err=True)
        code = 130
    except click.ClickException as error:
        from recto.text.unicode import safe  # noqa: PLC0415  # start-up

        error.message = safe(error.message)  # type: ignore[misc]  # it may quote user input
        error.show()
        code = error.exit_code
    except (BrokenPipeError, ReaderGone):
        _drop_output()  # the reader of the pipe is gone
        code = 0
    except OSError as error:
        if error.filename is not None:  # a file that an option or a setting names
            from recto.text.unicode import safe  # noqa: PLC0415  # start-up

            click.echo(safe(f"recto: cannot use '{error.filename}': {error.strerror}"), err=True)
        elif error.errno == errno.ENOSPC:
            _drop_output()
            click.echo(f"recto: the output is not complete: {error.strerror}", err=True)
        else:
            raise
        code = EXIT_STORE
    except RectoError as error:
        code = _report(error)
    return code


def _drop_output() -> None:
    """Drops what is still to be printed; otherwise Python reports it again at shutdown."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_warning(
    otherwise: Callable[..., None],
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Prints a warning of this package as one line, without the place in the code that raised it."""
    if category.__module__.partition(".")[0] != __package__.partition(".")[0]:
        otherwise(message, category, filename, lineno, file, line)
        return
    from recto.cli.console import err, safe  # noqa: PLC0415  # start-up

    err.print(safe(f"recto: {message}"), markup=False, soft_wrap=True)


def _report(error: RectoError) -> int:
    """Prints an error and returns the exit code. An empty default store is no error: everyone begins with one."""
    from recto.cli._common import is_default_store  # noqa: PLC0415  # start-up
    from recto.cli.console import err, out, safe  # noqa: PLC0415

    if isinstance(error, StoreMissing) and is_default_store(error):
        out.print(safe(f"Nothing is stored yet in '{error.path}'."), markup=False, soft_wrap=True)
        out.print("Start with 'recto demo', 'recto run claude' or 'recto import FILE'.", markup=False, soft_wrap=True)
        return 0
    err.print("recto: ", style="red", end="", markup=False)
    err.print(safe(str(error)), markup=False, soft_wrap=True)
    return _exit_code(error)


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
