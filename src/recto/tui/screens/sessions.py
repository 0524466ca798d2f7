"""The sessions there are: open one, or begin one."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from recto.engine.views.models import SessionListItem, SessionPage
from recto.tui.dialogs import TextDialog
from recto.tui.formatting import right, when, whole
from recto.tui.screens.base import BaseView
from recto.tui.state import GoTo, OpenSession
from recto.tui.widgets.table import Rows, TableRow

_PAGE = 100


class SessionsView(BaseView):
    """Every session that the key may see."""

    PLACE = "sessions"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "begin", "New session"),
    ]
    AUTO_FOCUS = "Rows"
    _next: str | None = None

    def body(self) -> ComposeResult:
        """A list."""
        yield Rows("", "session", right("entries"), "last entry", "first entry", "kind", id="sessions")

    def main(self) -> str:
        """The list."""
        return "#sessions"

    async def look(self) -> None:
        """The first of them."""
        page = await self.here.get(SessionPage, "/sessions", limit=_PAGE)
        self._next = page.next
        self.query_one(Rows).show(self._row(one) for one in page.sessions)

    def on_rows_near_end(self, event: Rows.NearEnd) -> None:
        """The end of what is loaded is in sight."""
        if self._next is not None:
            self.work(partial(self._more, self._next), "more")

    async def _more(self, after: str) -> None:
        page = await self.here.get(SessionPage, "/sessions", limit=_PAGE, after=after)
        self._next = page.next
        self.query_one(Rows).more(self._row(one) for one in page.sessions)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """One is opened."""
        self.post_message(OpenSession(str(event.row_key.value)))
        self.post_message(GoTo("window"))

    def action_begin(self) -> None:
        """Asks for the name of a new one."""
        if self.here.asker is not None and not self.refuse_without("ask"):
            prefix = f"agent:{self.here.asker.agent}:"
            self.app.push_screen(TextDialog("The name of the new session", prefix), self._begin)

    def _begin(self, name: str | None) -> None:
        if name:
            self.post_message(OpenSession(name))
            self.post_message(GoTo("chat"))

    def _row(self, one: SessionListItem) -> TableRow:
        mark = "▶" if one.session == self.here.session else ""
        times = (when(one.last_ts)[:16], when(one.first_ts)[:16])
        return TableRow(key=one.session, cells=(mark, one.session, right(whole(one.entries)), *times, one.kind))
