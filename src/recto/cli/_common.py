"""Shared parts of the commands: package checks, the program's own command line, and stores opened for reading."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from recto.cli.completion import complete_sessions
from recto.cli.console import err
from recto.config import Settings
from recto.config.factory import open_replica, open_store
from recto.errors import SettingsError, StoreMissing
from recto.transcript.protocols import TranscriptStore
from recto.version import install_command

_Command = TypeVar("_Command", bound=Callable[..., Any])

GATEWAY_PACKAGES = ("starlette", "uvicorn", "httpx2", "prometheus_client")
"""Packages of a gateway in this process."""
MCP_PACKAGES = ("mcp", "mcp_types")
"""Packages of the MCP server."""
CLIENT_PACKAGES = ("httpx2",)
"""Packages of a client of a running gateway."""
SCREENS_EXTRA = "screens,gateway"
"""The extras that install everything for `recto chat` and `recto tui`."""


def require_packages(feature: str, packages: Iterable[str], extra: str) -> None:
    """Checks that packages are installed.

    Raises:
        SettingsError: A package is missing; the message says how to install it.
    """
    for package in packages:
        if find_spec(package) is None:
            reason = f"the package {package} is missing; install it with: {install_command(extra)}"
            raise SettingsError(feature, reason)


def session_option(
    help: str = "This session. [default: the one in the settings]", *, multiple: bool = False
) -> Callable[[_Command], _Command]:
    """The option that names a session, everywhere but in `recto session` and `recto lab`."""
    return click.option("--session", metavar="KEY", multiple=multiple, shell_complete=complete_sessions, help=help)


def is_default_store(missing: StoreMissing) -> bool:
    """Whether it is the store that is used where none is named: then nothing is wrong, nothing is stored yet."""
    return Path(missing.path) == Path(Settings().store).expanduser()


def program_command(context: click.Context) -> list[str]:
    """Returns the command line of this program, with its store and settings file."""
    here = Path(sys.executable).with_name("recto")
    words = [str(here) if here.exists() else "recto"]
    options = context.find_root().params
    for name in ("store", "config"):
        if value := options.get(name):
            words += [f"--{name}", _absolute(value)]
    return words


def confirm(question: str) -> None:
    """Asks a question that `--yes` answers beforehand. Any other answer than yes ends the command.

    Raises:
        UsageError: Standard input has no answer.
    """
    with require_answer():
        is_confirmed = click.confirm(question, err=True)
    if not is_confirmed:
        raise click.Abort


@contextmanager
def require_answer() -> Iterator[None]:
    """Refuses a question that standard input does not answer: it is closed or empty, and no terminal.

    Raises:
        UsageError: There is no answer; the message says how to go on without the question.
    """
    refusal = click.UsageError("there is no answer on standard input; pass --yes to go on without the question")
    if sys.stdin is None:
        raise refusal
    try:
        yield
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise refusal from None


def _absolute(name: str) -> str:
    """Makes a path absolute; the URL of a database stays as it is."""
    if "://" not in name:
        return name if name == "memory:" else str(Path(name).expanduser().absolute())
    if urlsplit(name).password:
        raise click.UsageError(
            "this address contains a password; put it into a settings file and pass that with --config"
        )
    return name


@contextmanager
def open_for_reading(settings: Settings) -> Iterator[TranscriptStore]:
    """Opens a store for reading: a replica that is fresh enough, with a note about its age, or the store itself."""
    with closing(open_store(settings, create=False)) as store:
        replica = open_replica(settings, store)
        if replica is None:
            yield store
            return
        with closing(replica):
            replica.look()
            age = replica.age()
            if age is None:
                yield store
            else:
                err.print(f"read from a replica; it may be {age:.1f} s old", markup=False, highlight=False)
                yield replica.store
