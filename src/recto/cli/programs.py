"""How other programs start this very Recto: they have other paths than the shell it was typed in."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import urlsplit

import click


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
