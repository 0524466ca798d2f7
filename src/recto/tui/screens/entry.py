"""A full entry with its history, over a screen."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from recto.engine.views.models import EntryView, FullEntry, StoredEvent
from recto.engine.window_view import EntryDecision, EntryHistory
from recto.errors import RectoError
from recto.tui.actions import pin_or_unpin
from recto.tui.display_text import PLACES, format_time, full_number, percent, plural, safe_content
from recto.tui.state import Changed, TuiState
from recto.tui.workers import run_exclusive

_STEP = 20_000
"""Characters drawn at once: an entry may be of any length."""


class EntryScreen(ModalScreen[None]):
    """An entry: its text, its exact content, where it is, and the decisions about it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss(None)", "Close"),
        Binding("left", "go(-1)", "Before"),
        Binding("right", "go(1)", "After"),
        Binding("c", "turn", "Content"),
        Binding("m", "more", "More"),
        Binding("p", "pin", "Pin or unpin"),
        Binding("u", "restore", "Restore"),
    ]

    def __init__(self, state: TuiState, seq: int) -> None:
        super().__init__()
        self._state, self._seq = state, seq
        self._entry: FullEntry | None = None
        self._history: EntryHistory | None = None
        self._raw = False
        self._length = _STEP

    def compose(self) -> ComposeResult:
        """Yields a head and a scrollable text."""
        with Vertical(classes="box tall"):
            yield Static(Content(f"Entry {self._seq}"), classes="title", markup=False)
            yield Static(id="became", markup=False)
            yield Static(id="about", markup=False)
            with VerticalScroll(id="text"):
                yield Static("Loading …", id="said", markup=False)
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
            history = await self._state.get_for_session(EntryHistory, "entry/history", seq=seq)
        except RectoError as error:
            self.notify(str(error), severity="warning", markup=False)
            return
        if (entry.seq, self._length) != (self._entry.seq if self._entry else 0, self._length):
            self.query_one("#text", VerticalScroll).scroll_home(animate=False)
        self._seq, self._entry, self._history = seq, entry, history
        self.refresh_bindings()
        self._draw()

    def _draw(self) -> None:
        entry, history = self._entry, self._history
        if entry is None or history is None:
            return
        place = history.entry
        kind = entry.role if entry.kind == "message" else entry.kind
        where = f"{PLACES[place.place]}{', pinned ⚑' if place.pinned else ''}"
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
        became = "\n".join(_became(history))
        self.query_one("#became", Static).update(safe_content(became))
        self.query_one("#became").display = bool(became)
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
        if self._history is not None and self._may_change():
            run_exclusive(self, partial(self._change, partial(self._pin, self._history.entry)), "change")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offers to restore only where a decision can be undone."""
        return action != "restore" or self._decision is not None

    @property
    def _decision(self) -> EntryDecision | None:
        """The newest decision about the entry, unless it is undone."""
        newest = self._history.decisions[0] if self._history and self._history.decisions else None
        return None if newest is None or newest.decision.undone else newest

    def action_restore(self) -> None:
        """Undoes the decision that evicted or trimmed the entry."""
        if self._decision is not None and self._may_change():
            run_exclusive(self, partial(self._change, partial(self._restore, self._decision.decision.seq)), "change")

    def _may_change(self) -> bool:
        allowed = self._state.has_right("change")
        if not allowed:
            self.notify("this key may not do that; it needs the right 'change'", severity="warning", markup=False)
        return allowed

    async def _pin(self, entry: EntryView) -> str:
        return await pin_or_unpin(self._state, entry.seq, pinned=entry.pinned)

    async def _restore(self, decision: int) -> str:
        await self._state.post_to_session(StoredEvent, "restore", {"decision": decision})
        return f"decision {decision} is undone: its messages are in the prompt again"

    async def _change(self, change: Callable[[], Coroutine[Any, Any, str]]) -> None:
        """Changes something, and shows the entry as it is afterwards."""
        try:
            text = await change()
        except RectoError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self.notify(text, markup=False)
        self.app.post_message(Changed())
        self._reload()


def _became(history: EntryHistory) -> list[str]:
    """What became of an entry, in sentences: the newest decision first."""
    entry = history.entry
    lines = [_decided(made) for made in history.decisions]
    if entry.place == "out" and not lines:
        lines.append(
            "No decision about it among the next 50,000 entries."
            if history.more
            else "No decision evicted it: the prompt cannot hold it, or begins after it."
        )
    if entry.place in ("out", "recalled"):
        lines.append("p restores only this message and pins it.")
    return lines


def _decided(made: EntryDecision) -> str:
    decision = made.decision
    sign = "↺ undone: " if decision.undone else "○ " if made.action == "evicted" else "◐ "
    full = f"the prompt was {percent(made.utilization)} full, relief begins at {percent(made.ceiling)}"
    tokens = f"{full_number(made.tokens_before)} → {full_number(made.tokens_after)} tokens"
    undo = "" if decision.undone else f"; u restores {plural(decision.messages, 'message')}"
    return (
        f"{sign}{made.action} by {decision.policy}, decision {decision.seq:,} at {format_time(decision.ts)[:16]} UTC "
        f"({decision.reason}): {full}; {tokens}{undo}"
    )
