"""The timeline: how full the prompt was, turn by turn, with the decisions that reduced it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from recto.engine.projection import RESTORED
from recto.engine.timeline import MAX_ENTRIES, DecisionMark, Timeline, TurnPoint
from recto.tui.actions import Undoing
from recto.tui.display_text import format_time, full_number, percent, plural
from recto.tui.screens.base import BaseView
from recto.tui.state import ShowEntry
from recto.tui.widgets.bar_chart import Bars


class TimelineView(Undoing, BaseView):
    """Tokens over time."""

    PLACE = "timeline"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("u", "undo", "Undo decision"),
        Binding("left_square_bracket", "older", "Older", key_display="["),
        Binding("right_square_bracket", "newer", "Newer", key_display="]"),
        Binding("enter", "open", "Entry", show=False),
    ]
    AUTO_FOCUS = "Bars"
    _from: int | None = None
    _session = ""

    def compose_body(self) -> ComposeResult:
        """Yields the chart, and the turn under the cursor."""
        yield Bars(id="bars")
        with VerticalScroll(classes="detail", can_focus=False):
            yield Static(id="turn", markup=False)

    def main_selector(self) -> str:
        """The chart."""
        return "#bars"

    async def load_content(self) -> None:
        """Loads the last turns, or those scrolled back to."""
        if self._session != self.state.session:
            self._session, self._from = self.state.session, None
        timeline = await self.state.get_for_session(Timeline, "timeline", from_=self._from, limit=MAX_ENTRIES)
        self.query_one(Bars).show(timeline)

    def show_empty(self) -> None:
        """Shows an empty chart."""
        self.query_one(Bars).show(None)

    def on_bars_moved(self, event: Bars.Moved) -> None:
        """Shows another turn."""
        point = event.point
        self.query_one("#turn", Static).update(_describe(point) if point else "")

    def action_older(self) -> None:
        """Loads older entries."""
        timeline = self.query_one(Bars).timeline
        if timeline is None or not timeline.points or timeline.points[0].first <= 1:
            self.show_message("This is the beginning of the session.", bad=False)
            return
        self._from = max(timeline.points[0].first - MAX_ENTRIES, 1)
        self.action_look()

    def action_newer(self) -> None:
        """Loads newer entries."""
        timeline = self.query_one(Bars).timeline
        self._from = timeline.next if timeline else None
        self.action_look()

    def action_open(self) -> None:
        """Shows the first entry of the turn."""
        if (point := self.query_one(Bars).point) is not None:
            self.app.post_message(ShowEntry(point.first))

    def action_undo(self) -> None:
        """Undoes the last decision of the turn."""
        point = self.query_one(Bars).point
        decisions = [mark for mark in point.decisions if mark.kind != RESTORED] if point else []
        if decisions:
            self.undo(decisions[-1].seq)
        else:
            self.show_message("No decision was made in this turn; , and . go to turns with one.", bad=False)


def _describe(point: TurnPoint) -> Content:
    recalled = f", {full_number(point.recalled)} of them recalled" if point.recalled else ""
    lines = [
        Content.assemble(
            (f"turn {point.turn:,}", "bold"),
            f"  entries {point.first:,}–{point.last:,}  {format_time(point.ts)} UTC  ",
            (f"{percent(point.utilization)} {point.zone}", f"bold $zone-{point.zone}"),
        ),
        Content(
            f"{full_number(point.tokens)} tokens at its end{recalled}; {full_number(point.peak)} at most; "
            f"{plural(point.messages, 'message')} in the prompt, {full_number(point.left)} evicted"
        ),
        *(_mark(mark) for mark in point.decisions),
    ]
    return Content("\n").join(lines)


def _mark(mark: DecisionMark) -> Content:
    if mark.kind == RESTORED:
        return Content(f"↺ entry {mark.seq:,}: a decision was undone")
    kind = mark.kind.replace("_", " ")
    by = f" by {mark.policy}" if mark.policy else ""
    return Content(f"▼ entry {mark.seq:,}: {kind}{by}, {full_number(mark.frees)} tokens freed; u undoes it")
