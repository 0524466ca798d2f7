"""A full entry, over a screen."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from recto.engine.views.models import EntryPage, EntryView, FullEntry
from recto.errors import RectoError
from recto.tui.actions import pin_or_unpin
from recto.tui.formatting import PLACES, format_time, plural, safe_content
from recto.tui.state import Changed, TuiState
from recto.tui.workers import run_exclusive

_STEP = 20_000
"""Characters drawn at once: an entry may be of any length."""


class EntryScreen(ModalScreen[None]):
    """An entry: its text, its exact content, and where it is."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss(None)", "Close"),
        Binding("left", "go(-1)", "Before"),
        Binding("right", "go(1)", "After"),
        Binding("c", "turn", "Content or text"),
        Binding("m", "more", "More of it"),
        Binding("p", "pin", "Pin or unpin"),
    ]

    def __init__(self, state: TuiState, seq: int) -> None:
        super().__init__()
        self._state, self._seq = state, seq
        self._entry: FullEntry | None = None
        self._view: EntryView | None = None
        self._raw = False
        self._length = _STEP

    def compose(self) -> ComposeResult:
        """Yields a head and a scrollable text."""
        with Vertical(classes="box tall"):
            yield Static(Content(f"Entry {self._seq}"), classes="title", markup=False)
            yield Static(id="about", markup=False)
            with VerticalScroll(id="text"):
                yield Static(id="said", markup=False)
            yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Loads the entry."""
        self.query_one("#text").focus()
        self._reload()

    def _reload(self) -> None:
        run_exclusive(self, partial(self._load, self._seq), "entry")

    async def _load(self, seq: int) -> None:
        try:
            entry = await self._state.get_for_session(FullEntry, "entry", seq=seq)
            page = await self._state.get_for_session(EntryPage, "transcript", limit=1, from_=seq)
        except RectoError as error:
            self.notify(str(error), severity="warning", markup=False)
            return
        if (entry.seq, self._length) != (self._entry.seq if self._entry else 0, self._length):
            self.query_one("#text", VerticalScroll).scroll_home(animate=False)
        self._seq, self._entry, self._view = seq, entry, page.entries[0]
        self._draw()

    def _draw(self) -> None:
        entry, place = self._entry, self._view
        if entry is None or place is None:
            return
        kind = entry.role if entry.kind == "message" else entry.kind
        where = f"{PLACES[place.place]} {place.place}{', pinned ⚑' if place.pinned else ''}"
        text = entry.content if self._raw else entry.text
        rest = len(text) - self._length
        self.query_one(".title", Static).update(safe_content(f"Entry {entry.seq}: {kind}, {where}"))
        counter = f" ({entry.counter})" if entry.counter else ""
        details = (
            f"{format_time(entry.ts)} UTC · {entry.surface} · {plural(entry.tokens, 'token')}{counter} · {entry.wire}"
        )
        chain = f"id {entry.id} · hash {entry.hash[:16]}…" + (
            f" · {entry.meta}" if entry.meta not in ("", "{}") else ""
        )
        self.query_one("#about", Static).update(safe_content(f"{details}\n{chain[:500]}"))
        end = f"\n… {rest:,} more characters; m shows more" if rest > 0 else ""
        self.query_one("#said", Static).update(safe_content(text[: self._length] + end))

    def action_go(self, by: int) -> None:
        """Shows the previous or next entry."""
        if self._seq + by >= 1:
            self._length = _STEP
            run_exclusive(self, partial(self._load, self._seq + by), "entry")

    def action_turn(self) -> None:
        """Switches between text and exact content."""
        self._raw = not self._raw
        self._draw()

    def action_more(self) -> None:
        """Shows more of a long text."""
        self._length += _STEP
        self._draw()

    def action_pin(self) -> None:
        """Pins or unpins the entry."""
        if self._view is None or not self._state.has_right("change"):
            self.notify("this key may not do that; it needs the right 'change'", severity="warning", markup=False)
            return
        run_exclusive(self, partial(self._pin, self._view), "pin")

    async def _pin(self, entry: EntryView) -> None:
        try:
            text = await pin_or_unpin(self._state, entry.seq, pinned=entry.pinned)
        except RectoError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self.notify(text, markup=False)
        self.app.post_message(Changed())
        self._reload()
