"""Plots as HTML with inline SVG that scales to any width: bars in rows, and small curves beside each other.

Nothing here has a style of its own or runs: classes say what something is, a style sheet says how that looks. Every
text is escaped here, so that a name can only ever be text. What is drawn is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from recto.cli.replay_figures import compact
from recto.core.shown_text import one_line
from recto.engine.ways import Curve

_LONGEST_NAME = 80
_ROW = 46
_BAR = 15
_WIDE, _HIGH = 1000.0, 100.0
"""The units of a curve's drawing; it is stretched to whatever room there is."""
_ABOVE = 1.12
"""How far above the ceiling a curve's drawing goes, and below how far where prompts go over it."""
_FAR_ABOVE = 1.6


def text(given: str, longest: int = _LONGEST_NAME) -> str:
    """A text as it may stand on a page, in an element or an attribute: one line, nothing hidden, nothing obeyed."""
    return escape(one_line(given, longest), quote=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of a bar."""

    value: float
    kind: str
    """The class it is drawn in."""
    says: str
    """What it is, for who points at it or cannot see it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One row: a name, what it comes to, and its parts."""

    name: str
    says: str
    segments: Sequence[Segment]


def bars(title: str, rows: Sequence[Bar], *, full: float | None = None) -> str:
    """Bars below each other, as wide as there is room; `full` is what the whole width stands for."""
    whole = full or max((sum(part.value for part in row.segments) for row in rows), default=0) or 1
    drawn = "".join(_bar(row, place * _ROW, whole) for place, row in enumerate(rows))
    told = "; ".join(f"{row.name}: {row.says}" for row in rows)
    return (
        f'<svg class="bars" role="img" width="100%" height="{_ROW * len(rows)}" aria-label="{text(title)}">'
        f"<title>{text(title)}</title><desc>{text(told, 2_000)}</desc>{drawn}</svg>"
    )


def _bar(row: Bar, top: int, whole: float) -> str:
    parts = [f'<rect class="track" x="0" y="{top + 21}" width="100%" height="{_BAR}" rx="3"/>']
    at = 0.0
    for part in (part for part in row.segments if part.value > 0):
        width = 100 * part.value / whole
        parts.append(
            f'<rect class="{part.kind}" x="{at:.3f}%" y="{top + 21}" width="{width:.3f}%" height="{_BAR}" rx="2">'
            f"<title>{text(f'{row.name}: {part.says}')}</title></rect>"
        )
        at += width
    name = f'<text class="name" x="0" y="{top + 14}">{text(row.name, 34)}</text>'
    says = f'<text class="says" x="100%" y="{top + 14}" text-anchor="end">{text(row.says)}</text>'
    return name + says + "".join(parts)


def legend(kinds: Sequence[tuple[str, str]]) -> str:
    """What each class stands for."""
    items = "".join(f'<li><span class="swatch {kind}"></span>{text(name)}</li>' for kind, name in kinds)
    return f'<ul class="legend">{items}</ul>'


def curve(name: str, one: Curve, top: float) -> str:
    """The sizes of a session's prompts, with the ceiling; what goes over it in a colour of its own."""
    points = [(at, size) for at, size in enumerate(one.tokens) if size is not None]
    steps = max(len(one.tokens) - 1, 1)

    def placed(size: float) -> float:
        return _HIGH * (1 - min(size, top) / top)

    line = [(_WIDE * at / steps, placed(min(size, one.room))) for at, size in points]
    over = [(_WIDE * at / steps, placed(max(size, one.room))) for at, size in points]
    ceiling = placed(one.room)
    drawn = _area("within", line, _HIGH) + _line("within", line)
    if any(size > one.room for _, size in points):
        drawn += _area("beyond", over, ceiling)
    drawn += f'<line class="ceiling" x1="0" x2="{_WIDE:.0f}" y1="{ceiling:.2f}" y2="{ceiling:.2f}"/>'
    says = f"largest {compact(one.largest)} of {compact(one.room)}"
    title = f"{name}: prompt size over {one.turns:,} turns, {says}"
    return (
        f'<figure class="curve"><figcaption><span class="name">{text(name, 34)}</span>'
        f'<span class="says">{text(says)}</span></figcaption>'
        f'<svg role="img" viewBox="0 0 {_WIDE:.0f} {_HIGH:.0f}" preserveAspectRatio="none"'
        f' aria-label="{text(title, 200)}">'
        f"<title>{text(title, 200)}</title>{drawn}</svg></figure>"
    )


def height_of(curves: Sequence[Curve]) -> float:
    """How many tokens the height of curves beside each other stands for; what goes far beyond is cut off."""
    room = max(one.room for one in curves)
    largest = max(one.largest for one in curves)
    return float(min(max(largest * 1.05, room * _ABOVE), room * _FAR_ABOVE))


def _area(kind: str, points: Sequence[tuple[float, float]], floor: float) -> str:
    """What is between a floor and a line."""
    if not points:
        return ""
    first, last = _spread(points)[0][0], _spread(points)[-1][0]
    return f'<polygon class="{kind}" points="{first:.1f},{floor:.2f} {_listed(points)} {last:.1f},{floor:.2f}"/>'


def _line(kind: str, points: Sequence[tuple[float, float]]) -> str:
    return f'<polyline class="{kind}" points="{_listed(points)}"/>' if points else ""


def _listed(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.2f}" for x, y in _spread(points))


def _spread(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """A single turn is as wide as the drawing."""
    return points if len(points) > 1 else [(0.0, points[0][1]), (_WIDE, points[0][1])]
