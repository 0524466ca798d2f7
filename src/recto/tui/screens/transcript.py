"""The transcript: every entry with where it is now; search it, jump in it, pin what must stay."""

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

    def body(self) -> ComposeResult:
        """A field to search with, when it is wanted, and the list."""
        yield Input(placeholder="Search the transcript: Enter searches, Esc shows all entries again", id="words")
        yield EntryList(id="entries")

    def on_mount(self) -> None:
        """The field waits."""
        self.query_one(Input).display = False

    def main(self) -> str:
        """The list."""
        return "#entries"

    async def look(self) -> None:
        """How long it is; the entries themselves are asked for when they come in sight."""
        now = await self.here.look()
        entries = self.query_one(EntryList)
        other = self._session != self.here.session
        self._session = self.here.session
        entries.open(now.entries if now else 0, anew=other)
        if other:
            self.query_one(Input).display = False
            self._words = ""

    def blank(self) -> None:
        """There is none."""
        self.query_one(EntryList).open(0, anew=True)

    def on_entry_list_missing(self, event: EntryList.Missing) -> None:
        """A page is asked for."""
        self.work(partial(self._load, event.first), f"page {event.first}")

    async def _load(self, first: int) -> None:
        asked, entries = self.here.session, self.query_one(EntryList)
        try:
            page = await self.here.of_session(EntryPage, "transcript", limit=PAGE, from_=first)
        except RectoError:
            entries.forget(first)
            raise
        if asked == self.here.session:
            entries.give(first, page.entries)

    def on_entry_list_opened(self, event: EntryList.Opened) -> None:
        """All of one."""
        self.app.post_message(ShowEntry(event.seq))

    def action_search(self) -> None:
        """Asks for words."""
        field = self.query_one(Input)
        field.display = True
        field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Looks for them."""
        self._words = event.value.strip()
        self.query_one(EntryList).focus()
        if self._words:
            self.query_one(EntryList).find(())
            self.work(partial(self._search, None), "search")
        else:
            self.action_leave()

    def on_entry_list_near_end(self, event: EntryList.NearEnd) -> None:
        """More of what is looked for."""
        if self._words and self._next is not None:
            self.work(partial(self._search, self._next), "search")

    async def _search(self, start: int | None) -> None:
        """The newest that say the words; a page may hold none and still have a next one."""
        entries, self._next = self.query_one(EntryList), None
        found = 0
        while True:
            self.trouble(f"Searching before entry {start} …" if start else "Searching …", bad=False)
            page = await self.here.of_session(
                EntryPage, "transcript", order="desc", limit=PAGE, q=self._words, from_=start
            )
            entries.more(page.entries)
            found += len(page.entries)
            start = page.next
            if start is None or found:
                break
        self._next = start
        more = "; further down there may be more" if start else ""
        self.trouble(f"{entries.count} entries say “{self._words}”, newest first{more}. Esc: all entries", bad=False)

    def action_leave(self) -> None:
        """All entries again."""
        entries = self.query_one(EntryList)
        if self._words or self.query_one(Input).display:
            self.workers.cancel_group(self, "search")
            self._words, self._next = "", None
            self.query_one(Input).display = False
            entries.find(None)
            self.trouble("")
        entries.focus()

    def action_jump(self) -> None:
        """Asks for a number."""
        self.app.push_screen(TextDialog("Jump to which entry?", number=True), self._jump)

    def _jump(self, number: str | None) -> None:
        if number:
            self._words = ""
            self.query_one(EntryList).jump(int(number))

    def action_pin(self) -> None:
        """Keeps an entry in the prompt, or lets it leave again."""
        chosen = self.query_one(EntryList).chosen
        if chosen is not None and not self.refuse_without("change"):
            self.change(partial(self._pin, chosen.seq, pinned=chosen.pinned), "pin")

    async def _pin(self, seq: int, *, pinned: bool) -> None:
        self.notify(await pin_or_unpin(self.here, seq, pinned=pinned), markup=False)
        self.app.post_message(Changed())
