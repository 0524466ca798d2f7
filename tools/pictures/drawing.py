"""A picture as SVG: boxes, words and lines in the colours of the page, for light and for dark screens.

Knows nothing of what is drawn. Words stay words, so that they can be read aloud, searched and copied; whatever text
comes in is escaped here and nowhere else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

BY_RULE: Final = {"embedder": {"use": "none"}, "background": False}
"""Recall for runs that are drawn: the same on every machine, whichever weights are there."""
COLOURS = Path(__file__).parent.parent.parent / "web" / "src" / "colours.css"
_PAIR = re.compile(r"--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)")
_SANS = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif"
_MONO = "ui-monospace, 'SFMono-Regular', 'Cascadia Mono', 'Liberation Mono', 'DejaVu Sans Mono', Menlo, monospace"
_WIDE = {True: 0.61, False: 0.53}
"""How wide a character is, in sizes of the font, in a typeface that is wider than most: fixed width, and not."""


def shortened(text: str, room: float, size: float, *, mono: bool = False) -> str:
    """As much of a text as fits into so many pixels, on one line."""
    line = " ".join(text.split())
    most = int(room / (size * _WIDE[mono]))
    return line if len(line) <= most else line[: most - 1].rstrip(" .,:;(") + "…"


@dataclass(slots=True, kw_only=True)
class Picture:
    """What is drawn so far. Later things lie above earlier ones."""

    name: str
    title: str
    description: str
    """What somebody who cannot see it should know."""
    width: int
    height: int
    _parts: list[str] = field(default_factory=list)
    _used: set[tuple[str, str]] = field(default_factory=set)
    """Which colour is used for what: `fill` or `stroke`, and its name."""

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str = "none",
        *,
        edge: str = "",
        dashed: bool = False,
    ) -> None:
        """A rectangle with round corners."""
        corner = min(6, height / 2, width / 2)
        self._parts.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(max(width, 0))}" height="{_n(height)}" rx="{_n(corner)}"'
            f"{self._look(fill, edge, dashed)}/>"
        )

    def bar(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        """A rectangle with sharp corners, for bars that stand on each other."""
        size = f'width="{_n(width)}" height="{_n(max(height, 0))}"'
        self._parts.append(f'<rect x="{_n(x)}" y="{_n(y)}" {size}{self._look(fill, "", False)}/>')

    def dot(self, x: float, y: float, radius: float, fill: str, *, edge: str = "") -> None:
        """A circle."""
        self._parts.append(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}"{self._look(fill, edge, False)}/>')

    def line(self, *points: tuple[float, float], edge: str = "edge", dashed: bool = False, arrow: bool = False) -> None:
        """A line from point to point; with an arrow, its head is drawn at the end."""
        course = " ".join(f"{'M' if not place else 'L'}{_n(x)} {_n(y)}" for place, (x, y) in enumerate(points))
        self._parts.append(f'<path d="{course}"{self._look("none", edge, dashed)}/>')
        if arrow:
            self._head(points[-2], points[-1], edge)

    def curve(self, start: tuple[float, float], end: tuple[float, float], *, edge: str, arrow: bool = True) -> None:
        """A line that leaves and arrives level."""
        middle = (start[0] + end[0]) / 2
        self._parts.append(
            f'<path d="M{_n(start[0])} {_n(start[1])} C{_n(middle)} {_n(start[1])} {_n(middle)} {_n(end[1])} '
            f'{_n(end[0])} {_n(end[1])}"{self._look("none", edge, False)}/>'
        )
        if arrow:
            self._head((middle, end[1]), end, edge)

    def words(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 13,
        fill: str = "ink",
        at: str = "start",
        bold: bool = False,
        mono: bool = False,
    ) -> None:
        """One line of text; `y` is its baseline, `at` says whether `x` is its start, middle or end."""
        self._used.add(("fill", fill))
        names = " ".join(["fill-" + fill, *(["bold"] if bold else []), *(["mono"] if mono else [])])
        anchor = "" if at == "start" else f' text-anchor="{at}"'
        self._parts.append(
            f'<text x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}" class="{names}"{anchor}>{escape(text)}</text>'
        )

    def svg(self) -> str:
        """The whole file."""
        light, dark = self._rules(0), self._rules(1)
        parts = "\n".join(self._parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" aria-labelledby="title desc">\n'
            f'<title id="title">{escape(self.title)}</title>\n<desc id="desc">{escape(self.description)}</desc>\n'
            f"<style>\ntext{{font-family:{_SANS}}}\n.mono{{font-family:{_MONO}}}\n.bold{{font-weight:600}}\n"
            f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n</style>\n"
            f'<rect class="fill-sheet" width="{self.width}" height="{self.height}" rx="12"/>\n{parts}\n</svg>\n'
        )

    def _rules(self, theme: int) -> str:
        pairs = {name: (light, dark) for name, light, dark in _PAIR.findall(COLOURS.read_text(encoding="utf-8"))}
        used = sorted(self._used | {("fill", "sheet")})
        return "\n".join(f".{what}-{name}{{{what}:{pairs[name][theme]}}}" for what, name in used)

    def _head(self, before: tuple[float, float], tip: tuple[float, float], edge: str) -> None:
        (x0, y0), (x, y) = before, tip
        along = max(((x - x0) ** 2 + (y - y0) ** 2) ** 0.5, 1e-6)
        dx, dy = (x - x0) / along * 7, (y - y0) / along * 7
        corners = ((x, y), (x - dx - dy * 0.55, y - dy + dx * 0.55), (x - dx + dy * 0.55, y - dy - dx * 0.55))
        self._parts.append(
            f'<polygon points="{" ".join(f"{_n(px)},{_n(py)}" for px, py in corners)}"{self._look(edge, "", False)}/>'
        )

    def _look(self, fill: str, edge: str, dashed: bool) -> str:
        names = []
        for what, name in (("fill", fill), ("stroke", edge)):
            if name not in ("", "none"):
                self._used.add((what, name))
                names.append(f"{what}-{name}")
        said = f' class="{" ".join(names)}"' if names else ""
        said += ' fill="none"' if fill == "none" else ""
        said += ' stroke-width="1.5"' if edge else ""
        return said + (' stroke-dasharray="5 4"' if dashed else "")


def _n(value: float) -> str:
    """A number as short as it can be."""
    return f"{value:.1f}".rstrip("0").rstrip(".")
