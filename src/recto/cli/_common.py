"""The store for a command that only looks: the replica that the settings name, while it is not too far behind."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import click

from recto.cli.console import err
from recto.config import Settings
from recto.config.factory import open_replica, open_store
from recto.errors import SettingsError
from recto.transcript.protocols import TranscriptStore

GATEWAY = ("starlette", "uvicorn", "httpx2", "prometheus_client")
"""What a gateway in this process is made of."""
MCP = ("mcp", "mcp_types")
"""What an MCP server is made of."""
CLIENT = ("httpx2",)
"""What asks one that runs elsewhere."""


def need(what: str, packages: Iterable[str], extra: str) -> None:
    """Raises `SettingsError` with the cure for the first package that is not installed."""
    for package in packages:
        if find_spec(package) is None:
            reason = f"the package {package} is missing; install it with: pip install 'recto[{extra}]'"
            raise SettingsError(what, reason)


def started_as(context: click.Context) -> list[str]:
    """The program, with the store and the settings that it was given here."""
    here = Path(sys.executable).with_name("recto")
    words = [str(here) if here.exists() else "recto"]
    asked = context.find_root().params
    for name in ("store", "config"):
        if value := asked.get(name):
            words += [f"--{name}", _lasting(value)]
    return words


def _lasting(name: str) -> str:
    """A path that leads to the same file wherever the program starts; an address of a database as it is."""
    if "://" not in name:
        return name if name == "memory:" else str(Path(name).expanduser().absolute())
    if urlsplit(name).password:
        raise click.UsageError("this address holds a password; put it into a file of settings, and name that: --config")
    return name


@contextmanager
def open_to_look(settings: Settings) -> Iterator[TranscriptStore]:
    """A store that is there, to be read. How old it may be is told beside what the command says."""
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
