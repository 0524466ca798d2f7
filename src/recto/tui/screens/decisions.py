"""The decision log: what was evicted or trimmed, by which policy and why; undo and redo."""

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
from recto.tui.display_text import format_time, full_number, plural, right_aligned, safe_content
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

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._decisions: dict[str, DecisionSummary] = {}

    def compose_body(self) -> ComposeResult:
        """Yields a list, and the decision under the cursor."""
        with Container(classes="split"):
            yield Rows(
                "entry",
                "when",
                "decision",
                "policy",
                right_aligned("messages"),
                right_aligned("freed"),
                "",
                id="decisions",
            )
            with VerticalScroll(classes="detail", can_focus=False):
                yield Static(id="decision", markup=False)

    def main_selector(self) -> str:
        """The list."""
        return "#decisions"

    async def load_content(self) -> None:
        """Loads the newest decisions."""
        page = await self._page(None)
        self._decisions = {str(decision.seq): decision for decision in page.decisions}
        self.query_one(Rows).show(map(_row, page.decisions))
        self._detail(self.query_one(Rows).chosen)

    def show_empty(self) -> None:
        """Shows that there are none."""
        self.query_one(Rows).show(())
        self._detail("")

    async def _page(self, start: int | None) -> DecisionPage:
        """Loads a page; an empty page is not the end, because each searches only a part of the transcript."""
        while True:
            page = await self.state.get_for_session(DecisionPage, "decisions", limit=_PAGE, scores=True, from_=start)
            self._next = start = page.next
            if page.decisions or start is None:
                return page

    def on_rows_near_end(self, event: Rows.NearEnd) -> None:
        """Loads more."""
        if self._next is not None:
            self.run_in_background(partial(self._more, self._next), "more")

    async def _more(self, start: int) -> None:
        page = await self._page(start)
        self._decisions |= {str(decision.seq): decision for decision in page.decisions}
        self.query_one(Rows).append_rows(map(_row, page.decisions))

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Shows another decision."""
        self._detail(str(event.row_key.value))

    def _detail(self, seq: str) -> None:
        decision = self._decisions.get(seq)
        content = (
            _describe(decision)
            if decision
            else Content("No decision was made in this session: everything is in the prompt.")
        )
        self.query_one("#decision", Static).update(content)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Shows the event itself."""
        self.app.post_message(ShowEntry(int(str(event.row_key.value))))

    def action_undo(self) -> None:
        """Undoes the decision."""
        if (decision := self._decisions.get(self.query_one(Rows).chosen)) is not None:
            if decision.undone:
                self.show_message(f"Decision {decision.seq} is undone already; y makes it again.", bad=False)
            else:
                self.undo(decision.seq)

    def action_redo(self) -> None:
        """Makes the decision again."""
        if (decision := self._decisions.get(self.query_one(Rows).chosen)) is not None:
            self.redo(decision.seq)


def _row(decision: DecisionSummary) -> TableRow:
    numbers = right_aligned(full_number(decision.messages)), right_aligned(full_number(decision.frees))
    undone = "↺ undone" if decision.undone else ""
    kind = decision.kind.replace("_", " ")
    return TableRow(
        key=str(decision.seq),
        cells=(str(decision.seq), format_time(decision.ts)[5:16], kind, decision.policy, *numbers, undone),
    )


def _describe(decision: DecisionSummary) -> Content:
    state = "  ↺ undone: y makes it again" if decision.undone else "  u undoes it"
    freed = f"{plural(decision.messages, 'message')} evicted or trimmed, {full_number(decision.frees)} tokens freed"
    lines = [
        Content.assemble((f"decision {decision.seq}", "bold"), f"  {format_time(decision.ts)} UTC  {freed}{state}"),
        safe_content(decision.reason),
    ]
    for unit, parts in list(decision.scores.items())[:_SCORES]:
        scores = "  ".join(f"{safe(name)} {value:.3f}" for name, value in parts.items())
        lines.append(Content(f"unit at entry {safe(unit)}: {scores}"))
    if len(decision.scores) > _SCORES:
        lines.append(Content(f"and {len(decision.scores) - _SCORES:,} more units were weighed"))
    return Content("\n").join(lines)
