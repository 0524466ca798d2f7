"""The list of sessions: open one, or start one."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from recto.engine.views.models import SessionListItem, SessionPage
from recto.text.unicode import one_line
from recto.tui.dialogs import TextDialog
from recto.tui.display_text import format_time, full_number, right_aligned
from recto.tui.screens.base import BaseView
from recto.tui.state import GoTo, OpenSession
from recto.tui.widgets.table import Rows, TableRow

_PAGE = 100
_TITLE_WIDTH = 36


class SessionsView(BaseView):
    """Every session that the key may see."""

    PLACE = "sessions"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "begin", "New session"),
    ]
    AUTO_FOCUS = "Rows"
    _next: str | None = None

    def compose_body(self) -> ComposeResult:
        """Yields the list."""
        yield Rows(
            "", "title", right_aligned("entries"), "last entry", "session", "agent", "project", "kind", id="sessions"
        )

    def main_selector(self) -> str:
        """The list."""
        return "#sessions"

    async def load_content(self) -> None:
        """Loads the first page."""
        page = await self.state.get(SessionPage, "/sessions", limit=_PAGE)
        self._next = page.next
        self.query_one(Rows).show(self._row(item) for item in page.sessions)

    def on_rows_near_end(self, event: Rows.NearEnd) -> None:
        """Loads more."""
        if self._next is not None:
            self.run_in_background(partial(self._more, self._next), "more")

    async def _more(self, after: str) -> None:
        page = await self.state.get(SessionPage, "/sessions", limit=_PAGE, after=after)
        self._next = page.next
        self.query_one(Rows).append_rows(self._row(item) for item in page.sessions)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Opens a session."""
        self.post_message(OpenSession(str(event.row_key.value)))
        self.post_message(GoTo("window"))

    def action_begin(self) -> None:
        """Asks for the name of a new session."""
        if self.state.caller is not None and not self.refuse_without("ask"):
            prefix = f"agent:{self.state.caller.agent}:"
            self.app.push_screen(TextDialog("The name of the new session", prefix), self._begin)

    def _begin(self, name: str | None) -> None:
        if name:
            self.post_message(OpenSession(name))
            self.post_message(GoTo("chat"))

    def _row(self, item: SessionListItem) -> TableRow:
        mark = "▶" if item.session == self.state.session else ""
        entries, last = right_aligned(full_number(item.entries)), format_time(item.last_ts)[:16]
        title = one_line(item.title or item.session, _TITLE_WIDTH)
        source = (one_line(item.agent, _TITLE_WIDTH), one_line(item.project, _TITLE_WIDTH))
        return TableRow(key=item.session, cells=(mark, title, entries, last, item.session, *source, item.kind))
