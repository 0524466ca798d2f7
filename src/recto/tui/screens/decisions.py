"""The decision log: what left the prompt or became shorter, by which policy, why; undo it, and do it again."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.widgets import DataTable, Static

from recto.context.window.report import DecisionSummary
from recto.engine.views.models import DecisionPage
from recto.text.unicode import safe
from recto.tui.actions import Undoing
from recto.tui.formatting import counted, right, shown, when, whole
from recto.tui.screens.base import BaseView
from recto.tui.state import ShowEntry
from recto.tui.widgets.table import Rows, TableRow

_PAGE = 100
_SCORES = 30


class DecisionsView(Undoing, BaseView):
    """Every decision, newest first."""

    PLACE = "decisions"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("u", "undo", "Undo"),
        Binding("y", "redo", "Redo"),
        Binding("c", "app.compact", "Compact"),
    ]
    AUTO_FOCUS = "Rows"
    _next: int | None = None

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self._decisions: dict[str, DecisionSummary] = {}

    def body(self) -> ComposeResult:
        """A list, and what the one under the cursor did."""
        with Container(classes="split"):
            yield Rows("entry", "when", "decision", "policy", right("messages"), right("freed"), "", id="decisions")
            with VerticalScroll(classes="detail", can_focus=False):
                yield Static(id="decision", markup=False)

    def main(self) -> str:
        """The list."""
        return "#decisions"

    async def look(self) -> None:
        """The newest."""
        page = await self._page(None)
        self._decisions = {str(one.seq): one for one in page.decisions}
        self.query_one(Rows).show(map(_row, page.decisions))
        self._detail(self.query_one(Rows).chosen)

    def blank(self) -> None:
        """There are none."""
        self.query_one(Rows).show(())
        self._detail("")

    async def _page(self, start: int | None) -> DecisionPage:
        """A page; one that found none in its part of the transcript is not the end."""
        while True:
            page = await self.here.of_session(DecisionPage, "decisions", limit=_PAGE, scores=True, from_=start)
            self._next = start = page.next
            if page.decisions or start is None:
                return page

    def on_rows_near_end(self, event: Rows.NearEnd) -> None:
        """The end of what is loaded is in sight."""
        if self._next is not None:
            self.work(partial(self._more, self._next), "more")

    async def _more(self, start: int) -> None:
        page = await self._page(start)
        self._decisions |= {str(one.seq): one for one in page.decisions}
        self.query_one(Rows).more(map(_row, page.decisions))

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Another one is looked at."""
        self._detail(str(event.row_key.value))

    def _detail(self, seq: str) -> None:
        one = self._decisions.get(seq)
        says = _told(one) if one else Content("No decision was made in this session: everything is in the prompt.")
        self.query_one("#decision", Static).update(says)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """The event itself."""
        self.app.post_message(ShowEntry(int(str(event.row_key.value))))

    def action_undo(self) -> None:
        """What left is in again."""
        if (one := self._decisions.get(self.query_one(Rows).chosen)) is not None:
            if one.undone:
                self.trouble(f"Decision {one.seq} is undone already; y makes it again.", bad=False)
            else:
                self.undo(one.seq)

    def action_redo(self) -> None:
        """Makes it again."""
        if (one := self._decisions.get(self.query_one(Rows).chosen)) is not None:
            self.redo(one.seq)


def _row(one: DecisionSummary) -> TableRow:
    numbers = right(whole(one.messages)), right(whole(one.frees))
    undone = "↺ undone" if one.undone else ""
    kind = one.kind.replace("_", " ")
    return TableRow(key=str(one.seq), cells=(str(one.seq), when(one.ts)[5:16], kind, one.policy, *numbers, undone))


def _told(one: DecisionSummary) -> Content:
    state = "  ↺ undone: y makes it again" if one.undone else "  u undoes it"
    freed = f"{counted(one.messages, 'message')} left or shrank, {whole(one.frees)} tokens freed"
    lines = [
        Content.assemble((f"decision {one.seq}", "bold"), f"  {when(one.ts)} UTC  {freed}{state}"),
        shown(one.reason),
    ]
    for unit, parts in list(one.scores.items())[:_SCORES]:
        told = "  ".join(f"{safe(name)} {value:.3f}" for name, value in parts.items())
        lines.append(Content(f"unit at entry {safe(unit)}: {told}"))
    if len(one.scores) > _SCORES:
        lines.append(Content(f"and {len(one.scores) - _SCORES:,} more units were weighed"))
    return Content("\n").join(lines)
