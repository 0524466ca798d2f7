"""The transcript: every entry and where it is now; search, jump and pin."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from recto.engine.views.models import EntryPage
from recto.errors import RectoError
from recto.tui.actions import pin_or_unpin
from recto.tui.dialogs import TextDialog
from recto.tui.screens.base import BaseView
from recto.tui.state import Changed, ShowEntry
from recto.tui.widgets.entry_list import PAGE, EntryList


class TranscriptView(BaseView):
    """Every entry."""

    PLACE = "transcript"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "Search", key_display="/"),
        Binding("g", "jump", "Jump"),
        Binding("p", "pin", "Pin or unpin"),
        Binding("escape", "leave", "All entries", show=False),
    ]
    AUTO_FOCUS = "EntryList"
    _session = ""
    _words = ""
    _next: int | None = None

    def compose_body(self) -> ComposeResult:
        """Yields a search field, hidden at first, and the list."""
        yield Input(placeholder="Search the transcript: Enter searches, Esc shows all entries again", id="words")
        yield EntryList(id="entries")

    def on_mount(self) -> None:
        """Hides the search field."""
        self.query_one(Input).display = False

    def main_selector(self) -> str:
        """The list."""
        return "#entries"

    async def load_content(self) -> None:
        """Loads the length; entries are loaded when they become visible."""
        now = await self.state.load_session()
        entries = self.query_one(EntryList)
        is_other_session = self._session != self.state.session
        self._session = self.state.session
        entries.open(now.entries if now else 0, reset=is_other_session)
        if is_other_session:
            self.query_one(Input).display = False
            self._words = ""

    def show_empty(self) -> None:
        """Shows an empty list."""
        self.query_one(EntryList).open(0, reset=True)

    def on_entry_list_missing(self, event: EntryList.Missing) -> None:
        """Loads a page."""
        self.run_in_background(partial(self._load, event.first), f"page {event.first}")

    async def _load(self, first: int) -> None:
        session, entries = self.state.session, self.query_one(EntryList)
        try:
            page = await self.state.get_for_session(EntryPage, "transcript", limit=PAGE, from_=first)
        except RectoError:
            entries.forget(first)
            raise
        if session == self.state.session:
            entries.add_page(first, page.entries)

    def on_entry_list_opened(self, event: EntryList.Opened) -> None:
        """Shows the full entry."""
        self.app.post_message(ShowEntry(event.seq))

    def action_search(self) -> None:
        """Shows the search field."""
        field = self.query_one(Input)
        field.display = True
        field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Searches."""
        self._words = event.value.strip()
        self.query_one(EntryList).focus()
        if self._words:
            self.query_one(EntryList).show_results(())
            self.run_in_background(partial(self._search, None), "search")
        else:
            self.action_leave()

    def on_entry_list_near_end(self, event: EntryList.NearEnd) -> None:
        """Loads more results."""
        if self._words and self._next is not None:
            self.run_in_background(partial(self._search, self._next), "search")

    async def _search(self, start: int | None) -> None:
        """Loads the newest matches; a page may be empty and still have a next one."""
        entries, self._next = self.query_one(EntryList), None
        count = 0
        while True:
            self.show_message(f"Searching before entry {start} …" if start else "Searching …", bad=False)
            page = await self.state.get_for_session(
                EntryPage, "transcript", order="desc", limit=PAGE, q=self._words, from_=start
            )
            entries.add_results(page.entries)
            count += len(page.entries)
            start = page.next
            if start is None or count:
                break
        self._next = start
        more = "; further down there may be more" if start else ""
        self.show_message(
            f"{entries.count} entries say “{self._words}”, newest first{more}. Esc: all entries", bad=False
        )

    def action_leave(self) -> None:
        """Shows all entries again."""
        entries = self.query_one(EntryList)
        if self._words or self.query_one(Input).display:
            self.workers.cancel_group(self, "search")
            self._words, self._next = "", None
            self.query_one(Input).display = False
            entries.show_results(None)
            self.show_message("")
        entries.focus()

    def action_jump(self) -> None:
        """Asks for a number."""
        self.app.push_screen(TextDialog("Jump to which entry?", number=True), self._jump)

    def _jump(self, number: str | None) -> None:
        if number:
            self._words = ""
            self.query_one(EntryList).jump(int(number))

    def action_pin(self) -> None:
        """Pins or unpins the entry."""
        chosen = self.query_one(EntryList).chosen
        if chosen is not None and not self.refuse_without("change"):
            self.change(partial(self._pin, chosen.seq, pinned=chosen.pinned), "pin")

    async def _pin(self, seq: int, *, pinned: bool) -> None:
        self.notify(await pin_or_unpin(self.state, seq, pinned=pinned), markup=False)
        self.app.post_message(Changed())
