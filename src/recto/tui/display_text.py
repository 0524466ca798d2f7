"""Formats numbers, shares, times and texts. Every text of a transcript passes through `safe_content` or `cell`."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.text import Text
from textual.content import Content

from recto.context.window.budget import PressureReading
from recto.text.unicode import one_line, safe

PLACES = {"in": "● in", "trimmed": "◐ trimmed", "out": "○ evicted", "recalled": "↺ recalled", "event": "· event"}
"""Where an entry is: a sign and the word."""
COMPONENTS = {
    "system": "System", "tools": "Tools", "history": "History", "results": "Tool results", "memory": "Memory",
    "reserve": "Output reserve", "free": "Free",
}  # fmt: skip
"""Names of the parts of the context window."""
GRADES = {"critical": "✗", "degradation": "▲", "anomaly": "•"}
DIRECTIONS = {"rising": "↑", "falling": "↓", "steady": "→"}


def safe_content(text: str) -> Content:
    """Creates content from untrusted text: no markup and no control characters."""
    return Content(safe(text))


def cell(text: str, style: str = "") -> Text:
    """Creates a table cell from untrusted text, on one line."""
    return Text(one_line(text, max(len(text), 1)), style=style, no_wrap=True, end="")


def right_aligned(text: str) -> Text:
    """Creates a right-aligned table cell."""
    return Text(text, justify="right", no_wrap=True, end="")


def full_number(number: float) -> str:
    """Formats a number without a fraction."""
    return f"{number:,.0f}"


def short_number(number: int) -> str:
    """Formats a large number with few characters."""
    if number < 10_000:
        return f"{number:,}"
    return f"{number / 1000:.0f}k" if number < 1_000_000 else f"{number / 1_000_000:.1f}M"


def percent(part: float, digits: int = 0) -> str:
    """Formats a share as a percentage."""
    return f"{part * 100:.{digits}f} %"


def format_time(microseconds: int) -> str:
    """Formats a time in UTC; returns the number itself if it is out of range."""
    try:
        return datetime.fromtimestamp(microseconds / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return str(microseconds)


def plural(number: int, noun: str) -> str:
    """Formats a number with its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def reading_line(reading: PressureReading) -> str:
    """Formats how full the prompt is now."""
    full = f"{full_number(reading.tokens)} of {full_number(reading.room)} tokens ({percent(reading.utilization)})"
    return f"turn {reading.turn:,}: {full}, {reading.zone}"


def red_forecast(turns: int | None) -> str:
    """Formats how long it takes until the prompt is red."""
    if turns is None:
        return "not growing"
    return f"red in {plural(turns, 'turn')}" if turns else "red now"
