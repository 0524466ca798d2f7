"""Tokens over time as bars, one for each turn, in front of the bands of the zones, with a mark for each decision.

Every bar is a turn as it was told; nothing is summed up. More turns than fit are scrolled through with the cursor.
"""

from __future__ import annotations

from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from recto.engine.projection import RESTORED
from recto.engine.timeline import Timeline, TurnPoint
from recto.tui.formatting import short

_BLOCKS = " ▁▂▃▄▅▆▇█"
_AXIS = 6
_WORDS = 8
_ZONES = ("red", "orange", "yellow", "green")


class Bars(Widget, can_focus=True):
    """The chart."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"bars--{zone}" for zone in _ZONES), *(f"bars--band-{zone}" for zone in _ZONES), "bars--mark", "bars--axis",
        "bars--peak",
    }  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "move(-1)", show=False),
        Binding("right,l", "move(1)", show=False),
        Binding("pageup", "move(-10)", show=False),
        Binding("pagedown", "move(10)", show=False),
        Binding("home", "move(-100000)", show=False),
        Binding("end", "move(100000)", show=False),
        Binding("comma", "mark(-1)", "Decision before", key_display=","),
        Binding("full_stop", "mark(1)", "after", key_display="."),
    ]
    cursor: reactive[int] = reactive(0)

    class Moved(Message):
        """Another turn is looked at."""

        def __init__(self, point: TurnPoint | None) -> None:
            super().__init__()
            self.point = point

    def __init__(self, **more: Any) -> None:  # noqa: ANN401  # as every widget takes it
        super().__init__(**more)
        self.told: Timeline | None = None
        self._first = 0

    def show(self, told: Timeline | None) -> None:
        """Shows other turns; the cursor stays with its turn, else goes to the end."""
        before = self.point
        self.told = told
        points = told.points if told else ()
        same = [place for place, one in enumerate(points) if before is not None and one.first == before.first]
        self.cursor = same[0] if same else max(len(points) - 1, 0)
        self.refresh()
        self.post_message(self.Moved(self.point))

    @property
    def point(self) -> TurnPoint | None:
        """The turn under the cursor."""
        points = self.told.points if self.told else ()
        return points[self.cursor] if self.cursor < len(points) else None

    def watch_cursor(self) -> None:
        """Another turn is looked at."""
        self.post_message(self.Moved(self.point))

    def action_move(self, by: int) -> None:
        """To the left or right."""
        points = self.told.points if self.told else ()
        self.cursor = min(max(self.cursor + by, 0), max(len(points) - 1, 0))

    def action_mark(self, by: int) -> None:
        """To the next turn with a decision."""
        points = self.told.points if self.told else ()
        at = self.cursor + by
        while 0 <= at < len(points) and not points[at].decisions:
            at += by
        if 0 <= at < len(points):
            self.cursor = at

    def on_click(self, event: events.Click) -> None:
        """The turn that is clicked is looked at."""
        place = self._first + (event.x - _AXIS) // self._step
        if self.told and 0 <= place < len(self.told.points):
            self.cursor = place

    @property
    def _step(self) -> int:
        """How many columns a turn has."""
        many = len(self.told.points) if self.told else 1
        return min(max(self._wide // max(many, 1), 1), 6)

    @property
    def _wide(self) -> int:
        return max(self.size.width - _AXIS - _WORDS, 1)

    def render_line(self, y: int) -> Strip:
        """One line: bars, the marks below them, or the cursor."""
        width, height = self.size.width, self.size.height
        if self.told is None or not self.told.points:
            return Strip.blank(width, self.rich_style)
        fits = self._scrolled(len(self.told.points))
        seen = self.told.points[self._first : self._first + fits]
        rows = max(height - 2, 1)
        if y < rows:
            parts = self._row(self.told, seen, y, rows)
        elif y == rows:
            parts = self._marks(seen)
        else:
            parts = self._pointer(seen)
        return Strip(parts).adjust_cell_length(width, self.rich_style)

    def _scrolled(self, many: int) -> int:
        """How many turns fit; the one under the cursor is among them."""
        fits = max(self._wide // self._step, 1)
        first = min(self._first, self.cursor, max(many - fits, 0))
        self._first = max(first, self.cursor - fits + 1)
        return fits

    def _row(self, told: Timeline, seen: tuple[TurnPoint, ...], y: int, rows: int) -> list[Segment]:
        bottom, top = (rows - 1 - y) / rows, (rows - y) / rows
        zone = _zone_at(told, (bottom + top) / 2)
        axis = self._style("bars--axis")
        label = short(round(told.room * top)) if y % max(rows // 4, 1) == 0 else ""
        parts = [Segment(f"{label:>{_AXIS - 1}} ", axis)]
        band = self._style(f"bars--band-{zone}")
        step = self._step
        parts += [self._cell(told, one, bottom, rows, band, step) for one in seen]
        parts.append(Segment(" " * (self._wide - len(seen) * step), band))
        begins = y == 0 or _zone_at(told, (bottom + top) / 2 + 1 / rows) != zone
        parts.append(Segment(f" {zone if begins else '':<{_WORDS - 1}}", self._style(f"bars--{zone}")))
        return parts

    def _cell(self, told: Timeline, one: TurnPoint, bottom: float, rows: int, band: Style, step: int) -> Segment:
        room = max(told.room, 1)
        filled = (one.tokens / room - bottom) * rows
        style = self._style(f"bars--{one.zone}")
        bar = step if step == 1 else step - 1
        if filled <= 0:
            peak = one.peak / room > bottom and one.peak > one.tokens
            text = ("░" * bar if peak else " " * bar) + " " * (step - bar)
            return Segment(text, band + Style(color=self._style("bars--peak").color))
        block = _BLOCKS[min(max(int(filled * 8), 1), 8)]
        return Segment(block * bar + " " * (step - bar), band + Style(color=style.color))

    def _marks(self, seen: tuple[TurnPoint, ...]) -> list[Segment]:
        signs = (_sign(one) for one in seen)
        text = "".join(sign.ljust(self._step) for sign in signs)
        return [Segment(" " * _AXIS, self.rich_style), Segment(text, self._style("bars--mark"))]

    def _pointer(self, seen: tuple[TurnPoint, ...]) -> list[Segment]:
        at = (self.cursor - self._first) * self._step
        return [Segment(" " * (_AXIS + at), self.rich_style), Segment("▲", self._style("bars--axis"))]

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(name)


def _sign(one: TurnPoint) -> str:
    kinds = {mark.kind for mark in one.decisions}
    if not kinds:
        return " "
    return "↺" if kinds == {RESTORED} else "▼"


def _zone_at(told: Timeline, share: float) -> str:
    bounds = (("red", told.red), ("orange", told.orange), ("yellow", told.yellow))
    return next((name for name, begins in bounds if share >= begins), "green")
