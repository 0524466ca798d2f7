"""What the commands share when they draw: consoles, times, progress, and text that cannot act on a terminal.

Transcripts hold whatever a model or a tool produced. Nothing of it reaches the terminal as a control sequence or as
markup: control characters are shown as pictures of themselves, and text goes through `rich.text.Text`, never markup.
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

__all__ = ["Advance", "err", "one_line", "out", "print_json", "progress", "safe", "when"]

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def when(microseconds: int) -> str:
    """A time as people read it, in UTC; an impossible one as the number it is."""
    try:
        return datetime.fromtimestamp(microseconds / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return str(microseconds)


def print_json(result: object, **more: object) -> None:
    """Print a result as one line of JSON, in the form that the HTTP API has; `more` adds the command's own members."""
    from recto.engine.views.codec import to_builtins  # noqa: PLC0415  # only --json needs it

    click.echo(json.dumps({**to_builtins(result), **more}))


class Advance(Protocol):
    """Moves a progress bar on."""

    def __call__(self, by: int, /) -> None:
        """By that many entries or bytes."""


@contextmanager
def progress(label: str, total: int, *, of_bytes: bool = False) -> Iterator[Advance]:
    """A progress bar on standard error, seen only by people."""
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
