"""Horizontal bar charts as SVG, readable on light and dark pages, with a title for screen readers.

The module knows nothing of the data. Texts are escaped, so that no name can become markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

Mark = Literal["ours", "sound", "flawed"]
LABELS, PANEL, GAP, ROW, TOP, BAR = 236, 300, 28, 19, 62, 12
"""Pixels: the column of names, a panel, what is between two, a row, what is above the rows, a bar."""
ROOM = 86
"""Pixels of a panel that the figures beside the bars may have."""
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600; font-size: 14px }
.quiet { fill: #59636e }
.ours { fill: #0b6bcb } .sound { fill: #6e7781 } .flawed { fill: #d1b38a }
text.ours { font-weight: 600 }
line { stroke: #d1d9e0 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .quiet { fill: #9198a1 } line { stroke: #3d444d }
  .ours { fill: #58a6ff } .sound { fill: #8b949e } .flawed { fill: #8a6d3b }
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One value, how it is written, and how it is coloured. Without a value there is only the writing."""

    value: float | None
    text: str
    mark: Mark = "sound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A name, and its bar in every panel."""

    label: str
    bars: Sequence[Bar]
    ours: bool = False


def bars(title: str, note: str, panels: Sequence[str], rows: Sequence[Row], *, logarithmic: bool = False) -> str:
    """A picture: one row for each name, one panel beside the other, each with a scale of its own."""
    width, height = LABELS + len(panels) * (PANEL + GAP), TOP + ROW * len(rows) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label={quoteattr(title)}>',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(note)}</desc>",
        f"<style>{STYLE}</style>",
        f'<text class="title" x="0" y="16">{escape(title)}</text>',
        f'<text class="quiet" x="0" y="34">{escape(note)}</text>',
    ]
    for place, row in enumerate(rows):
        middle = TOP + place * ROW + ROW // 2
        kind = ' class="ours"' if row.ours else ""
        lines.append(f'<text{kind} x="{LABELS - 10}" y="{middle + 4}" text-anchor="end">{escape(row.label)}</text>')
    for place, name in enumerate(panels):
        left = LABELS + place * (PANEL + GAP)
        lines += [f'<text class="quiet" x="{left}" y="{TOP - 8}">{escape(name)}</text>']
        lines += [f'<line x1="{left}" y1="{TOP}" x2="{left}" y2="{height - 8}"/>']
        lines += panel(left, [row.bars[place] for row in rows], logarithmic)
    return "\n".join([*lines, "</svg>"]) + "\n"


def panel(left: int, column: Sequence[Bar], logarithmic: bool) -> list[str]:
    scaled = lengths([bar.value for bar in column], logarithmic)
    lines = []
    for place, (bar, length) in enumerate(zip(column, scaled, strict=True)):
        top = TOP + place * ROW + (ROW - BAR) // 2
        long = round(length * (PANEL - ROOM), 1)
        if bar.value is not None:
            lines.append(f'<rect class="{bar.mark}" x="{left}" y="{top}" width="{max(long, 1)}" height="{BAR}"/>')
        lines.append(f'<text x="{left + long + 6:g}" y="{top + BAR - 2}">{escape(bar.text)}</text>')
    return lines


def lengths(values: Sequence[float | None], logarithmic: bool) -> list[float]:
    """From 0 to 1. On a logarithmic scale the smallest value still has a bar: it begins a decade below."""
    known = [value for value in values if value is not None and (value > 0 or not logarithmic)]
    most = max(known, default=0)
    if most <= 0:
        return [0.0] * len(values)
    if not logarithmic:
        return [(value or 0) / most for value in values]
    least = log10(min(known)) - 1
    return [(log10(value) - least) / (log10(most) - least) if value else 0.0 for value in values]
