"""Shared output of the commands: consoles, times, progress bars and text that cannot act on the terminal.

Transcripts contain whatever a model or a tool produced. None of it reaches the terminal as a control sequence or as
markup: control characters are replaced by visible symbols, and text is printed as `rich.text.Text`, never as markup.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Protocol

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from recto.text.unicode import one_line, safe

__all__ = ["Advance", "err", "format_time", "one_line", "out", "print_json", "progress", "safe"]


class _Console(Console):
    """A console that leaves a closed pipe to `main`; the original ends the program with the code of a finding."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


out = _Console(highlight=False)
err = _Console(stderr=True, highlight=False)


def format_time(microseconds: int) -> str:
    """Formats a time in UTC; returns the number itself if it is out of range."""
    try:
        return datetime.fromtimestamp(microseconds / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return str(microseconds)


def print_json(result: object, **more: object) -> None:
    """Prints a result as one line of JSON, as the HTTP API renders it; `more` adds the command's own members."""
    from recto.engine.views.codec import to_builtins  # noqa: PLC0415  # only --json needs it

    click.echo(json.dumps({**to_builtins(result), **more}))


class Advance(Protocol):
    """Advances a progress bar."""

    def __call__(self, by: int, /) -> None:
        """Advances by a number of entries or bytes."""


@contextmanager
def progress(label: str, total: int, *, of_bytes: bool = False) -> Iterator[Advance]:
    """Shows a progress bar on standard error if that is a terminal."""
    column = DownloadColumn() if of_bytes else MofNCompleteColumn()
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        column,
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )
    with bar:
        task = bar.add_task(safe(label), total=total)
        yield lambda by: bar.advance(task, by)
