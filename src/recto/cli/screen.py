"""What the commands share when they draw: consoles, times, progress, and text that cannot act on a terminal.

Transcripts hold whatever a model or a tool produced. Nothing of it reaches the terminal as a control sequence or as
markup: control characters are shown as pictures of themselves, and text goes through `rich.text.Text`, never markup.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

_KEPT = frozenset("\n\t")


def safe(text: str) -> str:
    """The text with nothing left in it that a terminal would obey: controls, escapes, direction overrides."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in _KEPT else _picture(char) for char in text)


def one_line(text: str, width: int) -> str:
    """The beginning of a text, safe and without line breaks."""
    flat = " ".join(safe(text[: width * 4]).split())
    return flat if len(flat) <= width and len(text) <= width * 4 else flat[: max(width - 1, 0)] + "…"


def when(microseconds: int) -> str:
    """A time as people read it, in UTC; an impossible one as the number it is."""
    try:
        return datetime.fromtimestamp(microseconds / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return str(microseconds)


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


def _picture(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if unicodedata.category(char) in {"Zs", "Zl", "Zp"}:
        return " "
    return "\N{REPLACEMENT CHARACTER}"
