"""Numbers, shares, times and texts as people read them. Every text of a transcript goes through `shown` or `line`."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.text import Text
from textual.content import Content

from recto.text.unicode import one_line, safe

PLACES = {"in": "●", "trimmed": "◐", "out": "○", "recalled": "↺", "event": "·"}
"""Where an entry is, as a sign beside the word."""
COMPONENTS = {"system": "S", "tools": "T", "history": "H", "results": "R", "memory": "M", "reserve": "▒"}
"""The components of a prompt, as the signs of the map."""
GRADES = {"critical": "✗", "degradation": "▲", "anomaly": "•"}
DIRECTIONS = {"rising": "↑", "falling": "↓", "steady": "→"}


def shown(text: str) -> Content:
    """A text of a transcript: never markup, and nothing in it that a terminal would obey."""
    return Content(safe(text))


def cell(text: str, style: str = "") -> Text:
    """The same in a cell of a table, on one line."""
    return Text(one_line(text, max(len(text), 1)), style=style, no_wrap=True, end="")


def right(text: str) -> Text:
    """A number in a cell."""
    return Text(text, justify="right", no_wrap=True, end="")


def whole(number: float) -> str:
    """A number without a fraction."""
    return f"{number:,.0f}"


def short(number: int) -> str:
    """A large number in few letters."""
    if number < 10_000:
        return f"{number:,}"
    return f"{number / 1000:.0f}k" if number < 1_000_000 else f"{number / 1_000_000:.1f}M"


def share(part: float, digits: int = 0) -> str:
    """A part of a whole."""
    return f"{part * 100:.{digits}f} %"


def when(microseconds: int) -> str:
    """A time in UTC; an impossible one as the number it is."""
    try:
        return datetime.fromtimestamp(microseconds / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return str(microseconds)


def counted(number: int, thing: str) -> str:
    """A number of things."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def until(turns: int | None) -> str:
    """How long until the prompt is red."""
    if turns is None:
        return "not growing"
    return f"red in {counted(turns, 'turn')}" if turns else "red now"
