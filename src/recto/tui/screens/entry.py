"""One entry, all of it, in front of a screen."""

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
from recto.tui.formatting import PLACES, counted, shown, when
from recto.tui.state import Changed, TuiState
from recto.tui.workers import beside

_STEP = 20_000
"""Characters that are drawn at once: an entry may be of any length."""


class EntryScreen(ModalScreen[None]):
    """An entry: what it says, its exact content, where it is."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss(None)", "Close"),
        Binding("left", "go(-1)", "Before"),
        Binding("right", "go(1)", "After"),
        Binding("c", "turn", "Content or text"),
        Binding("m", "more", "More of it"),
        Binding("p", "pin", "Pin or unpin"),
    ]

    def __init__(self, here: TuiState, seq: int) -> None:
        super().__init__()
        self._here, self._seq = here, seq
        self._entry: FullEntry | None = None
        self._shown: EntryView | None = None
        self._raw = False
        self._length = _STEP

    def compose(self) -> ComposeResult:
        """A head, and a text to scroll."""
        with Vertical(classes="box tall"):
            yield Static(Content(f"Entry {self._seq}"), classes="title", markup=False)
            yield Static(id="about", markup=False)
            with VerticalScroll(id="text"):
                yield Static(id="said", markup=False)
            yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Asks for it."""
        self.query_one("#text").focus()
        self._ask()

    def _ask(self) -> None:
        beside(self, partial(self._load, self._seq), "entry")

    async def _load(self, seq: int) -> None:
        try:
            entry = await self._here.of_session(FullEntry, "entry", seq=seq)
            page = await self._here.of_session(EntryPage, "transcript", limit=1, from_=seq)
        except RectoError as error:
            self.notify(str(error), severity="warning", markup=False)
            return
        if (entry.seq, self._length) != (self._entry.seq if self._entry else 0, self._length):
            self.query_one("#text", VerticalScroll).scroll_home(animate=False)
        self._seq, self._entry, self._shown = seq, entry, page.entries[0]
        self._draw()

    def _draw(self) -> None:
        entry, place = self._entry, self._shown
        if entry is None or place is None:
            return
        kind = entry.role if entry.kind == "message" else entry.kind
        where = f"{PLACES[place.place]} {place.place}{', pinned ⚑' if place.pinned else ''}"
        text = entry.content if self._raw else entry.text
        rest = len(text) - self._length
        self.query_one(".title", Static).update(shown(f"Entry {entry.seq}: {kind}, {where}"))
        counter = f" ({entry.counter})" if entry.counter else ""
        about = f"{when(entry.ts)} UTC · {entry.surface} · {counted(entry.tokens, 'token')}{counter} · {entry.wire}"
        chain = f"id {entry.id} · hash {entry.hash[:16]}…" + (
            f" · {entry.meta}" if entry.meta not in ("", "{}") else ""
        )
        self.query_one("#about", Static).update(shown(f"{about}\n{chain[:500]}"))
        end = f"\n… {rest:,} more characters; m shows more" if rest > 0 else ""
        self.query_one("#said", Static).update(shown(text[: self._length] + end))

    def action_go(self, by: int) -> None:
        """The entry before or after."""
        if self._seq + by >= 1:
            self._length = _STEP
            beside(self, partial(self._load, self._seq + by), "entry")

    def action_turn(self) -> None:
        """From the text to the exact content, and back."""
        self._raw = not self._raw
        self._draw()

    def action_more(self) -> None:
        """More of a long text."""
        self._length += _STEP
        self._draw()

    def action_pin(self) -> None:
        """Keeps it in the prompt, or lets it leave again."""
        if self._shown is None or not self._here.may("change"):
            self.notify("this key may not do that; it needs the right 'change'", severity="warning", markup=False)
            return
        beside(self, partial(self._pin, self._shown), "pin")

    async def _pin(self, entry: EntryView) -> None:
        try:
            says = await pin_or_unpin(self._here, entry.seq, pinned=entry.pinned)
        except RectoError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self.notify(says, markup=False)
        self.app.post_message(Changed())
        self._ask()
