"""A bar chart of tokens per turn over the zones, with a mark for each decision.

Every bar is one turn; nothing is aggregated. With more turns than fit, the cursor scrolls.
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
from recto.tui.display_text import short_number

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
        """The cursor moved to another turn."""

        def __init__(self, point: TurnPoint | None) -> None:
            super().__init__()
            self.point = point

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401  # as every widget takes it
        super().__init__(**kwargs)
        self.timeline: Timeline | None = None
        self._first = 0

    def show(self, timeline: Timeline | None) -> None:
        """Shows other turns; the cursor stays on its turn, else moves to the end."""
        before = self.point
        self.timeline = timeline
        points = timeline.points if timeline else ()
        same = [place for place, point in enumerate(points) if before is not None and point.first == before.first]
        self.cursor = same[0] if same else max(len(points) - 1, 0)
        self.refresh()
        self.post_message(self.Moved(self.point))

    @property
    def point(self) -> TurnPoint | None:
        """The turn under the cursor."""
        points = self.timeline.points if self.timeline else ()
        return points[self.cursor] if self.cursor < len(points) else None

    def watch_cursor(self) -> None:
        """Posts `Moved`."""
        self.post_message(self.Moved(self.point))

    def action_move(self, by: int) -> None:
        """Moves the cursor."""
        points = self.timeline.points if self.timeline else ()
        self.cursor = min(max(self.cursor + by, 0), max(len(points) - 1, 0))

    def action_mark(self, by: int) -> None:
        """Moves to the next turn with a decision."""
        points = self.timeline.points if self.timeline else ()
        place = self.cursor + by
        while 0 <= place < len(points) and not points[place].decisions:
            place += by
        if 0 <= place < len(points):
            self.cursor = place

    def on_click(self, event: events.Click) -> None:
        """Moves the cursor to the clicked turn."""
        place = self._first + (event.x - _AXIS) // self._step
        if self.timeline and 0 <= place < len(self.timeline.points):
            self.cursor = place

    @property
    def _step(self) -> int:
        """Columns per turn."""
        count = len(self.timeline.points) if self.timeline else 1
        return min(max(self._plot_width // max(count, 1), 1), 6)

    @property
    def _plot_width(self) -> int:
        return max(self.size.width - _AXIS - _WORDS, 1)

    def render_line(self, y: int) -> Strip:
        """Renders a line: bars, the marks below them, or the cursor."""
        width, height = self.size.width, self.size.height
        if self.timeline is None or not self.timeline.points:
            return Strip.blank(width, self.rich_style)
        capacity = self._scrolled(len(self.timeline.points))
        visible = self.timeline.points[self._first : self._first + capacity]
        rows = max(height - 2, 1)
        if y < rows:
            parts = self._row(self.timeline, visible, y, rows)
        elif y == rows:
            parts = self._marks(visible)
        else:
            parts = self._pointer(visible)
        return Strip(parts).adjust_cell_length(width, self.rich_style)

    def _scrolled(self, count: int) -> int:
        """Scrolls to the cursor and returns how many turns fit."""
        capacity = max(self._plot_width // self._step, 1)
        first = min(self._first, self.cursor, max(count - capacity, 0))
        self._first = max(first, self.cursor - capacity + 1)
        return capacity

    def _row(self, timeline: Timeline, visible: tuple[TurnPoint, ...], y: int, rows: int) -> list[Segment]:
        bottom, top = (rows - 1 - y) / rows, (rows - y) / rows
        zone = _zone_at(timeline, (bottom + top) / 2)
        axis = self._style("bars--axis")
        label = short_number(round(timeline.room * top)) if y % max(rows // 4, 1) == 0 else ""
        parts = [Segment(f"{label:>{_AXIS - 1}} ", axis)]
        band = self._style(f"bars--band-{zone}")
        step = self._step
        parts += [self._cell(timeline, point, bottom, rows, band, step) for point in visible]
        parts.append(Segment(" " * (self._plot_width - len(visible) * step), band))
        is_boundary = y == 0 or _zone_at(timeline, (bottom + top) / 2 + 1 / rows) != zone
        parts.append(Segment(f" {zone if is_boundary else '':<{_WORDS - 1}}", self._style(f"bars--{zone}")))
        return parts

    def _cell(self, timeline: Timeline, point: TurnPoint, bottom: float, rows: int, band: Style, step: int) -> Segment:
        input_budget = max(timeline.room, 1)
        filled = (point.tokens / input_budget - bottom) * rows
        style = self._style(f"bars--{point.zone}")
        bar = step if step == 1 else step - 1
        if filled <= 0:
            peak = point.peak / input_budget > bottom and point.peak > point.tokens
            text = ("░" * bar if peak else " " * bar) + " " * (step - bar)
            return Segment(text, band + Style(color=self._style("bars--peak").color))
        block = _BLOCKS[min(max(int(filled * 8), 1), 8)]
        return Segment(block * bar + " " * (step - bar), band + Style(color=style.color))

    def _marks(self, visible: tuple[TurnPoint, ...]) -> list[Segment]:
        signs = (_sign(point) for point in visible)
        text = "".join(sign.ljust(self._step) for sign in signs)
        return [Segment(" " * _AXIS, self.rich_style), Segment(text, self._style("bars--mark"))]

    def _pointer(self, visible: tuple[TurnPoint, ...]) -> list[Segment]:
        place = (self.cursor - self._first) * self._step
        return [Segment(" " * (_AXIS + place), self.rich_style), Segment("▲", self._style("bars--axis"))]

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(name)


def _sign(point: TurnPoint) -> str:
    kinds = {mark.kind for mark in point.decisions}
    if not kinds:
        return " "
    return "↺" if kinds == {RESTORED} else "▼"


def _zone_at(timeline: Timeline, share: float) -> str:
    bounds = (("red", timeline.red), ("orange", timeline.orange), ("yellow", timeline.yellow))
    return next((name for name, threshold in bounds if share >= threshold), "green")
