"""The timeline: how full the prompt was, turn by turn, with the decisions that made it smaller."""

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
from recto.tui.formatting import counted, share, when, whole
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

    def body(self) -> ComposeResult:
        """The bars, and what the turn under the cursor was."""
        yield Bars(id="bars")
        with VerticalScroll(classes="detail", can_focus=False):
            yield Static(id="turn", markup=False)

    def main(self) -> str:
        """The bars."""
        return "#bars"

    async def look(self) -> None:
        """The last turns, or those that were gone back to."""
        if self._session != self.here.session:
            self._session, self._from = self.here.session, None
        told = await self.here.of_session(Timeline, "timeline", from_=self._from, limit=MAX_ENTRIES)
        self.query_one(Bars).show(told)

    def blank(self) -> None:
        """Nothing was said."""
        self.query_one(Bars).show(None)

    def on_bars_moved(self, event: Bars.Moved) -> None:
        """Another turn is looked at."""
        point = event.point
        self.query_one("#turn", Static).update(_told(point) if point else "")

    def action_older(self) -> None:
        """The entries before those that are shown."""
        told = self.query_one(Bars).told
        if told is None or not told.points or told.points[0].first <= 1:
            self.trouble("This is the beginning of the session.", bad=False)
            return
        self._from = max(told.points[0].first - MAX_ENTRIES, 1)
        self.action_look()

    def action_newer(self) -> None:
        """The entries after those that are shown."""
        told = self.query_one(Bars).told
        self._from = told.next if told else None
        self.action_look()

    def action_open(self) -> None:
        """The question of the turn."""
        if (point := self.query_one(Bars).point) is not None:
            self.app.post_message(ShowEntry(point.first))

    def action_undo(self) -> None:
        """Undoes the last decision of the turn."""
        point = self.query_one(Bars).point
        made = [mark for mark in point.decisions if mark.kind != RESTORED] if point else []
        if made:
            self.undo(made[-1].seq)
        else:
            self.trouble("No decision was made in this turn; , and . go to turns with one.", bad=False)


def _told(point: TurnPoint) -> Content:
    recalled = f", {whole(point.recalled)} of them recalled" if point.recalled else ""
    lines = [
        Content.assemble(
            (f"turn {point.turn:,}", "bold"),
            f"  entries {point.first:,}–{point.last:,}  {when(point.ts)} UTC  ",
            (f"{share(point.utilization)} {point.zone}", f"bold $zone-{point.zone}"),
        ),
        Content(
            f"{whole(point.tokens)} tokens at its end{recalled}; {whole(point.peak)} at most; "
            f"{counted(point.messages, 'message')} in, {whole(point.left)} left"
        ),
        *(_mark(mark) for mark in point.decisions),
    ]
    return Content("\n").join(lines)


def _mark(mark: DecisionMark) -> Content:
    if mark.kind == RESTORED:
        return Content(f"↺ entry {mark.seq:,}: a decision was undone")
    kind = mark.kind.replace("_", " ")
    by = f" by {mark.policy}" if mark.policy else ""
    return Content(f"▼ entry {mark.seq:,}: {kind}{by}, {whole(mark.frees)} tokens freed; u undoes it")
