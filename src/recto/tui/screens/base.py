"""What every screen is: a frame, a body that is loaded by a worker, and a line for what went wrong.

A screen asks again when it comes up and something changed since. What it shows is its own business.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.widgets import Footer, Static

from recto.errors import RectoError, RequestRefused
from recto.gateway.api_keys import Right
from recto.tui.formatting import shown
from recto.tui.state import TuiState
from recto.tui.widgets.header import Menu, WindowGauge
from recto.tui.workers import beside

EMPTY = "Nothing was said in this session yet."


class BaseView(Screen[None]):
    """A screen of a session."""

    PLACE: ClassVar[str]
    """Its name among the places."""
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012  # as Textual declares it
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "look", "Look again", show=False),
        Binding("escape", "leave", "Leave the field", show=False),
    ]

    def __init__(self, here: TuiState) -> None:
        super().__init__()
        self.here = here
        self._seen: tuple[str, int] | None = None
        self._lost = False
        """Whether the line for what went wrong tells of the last look: the next one that goes well takes it away."""

    def compose(self) -> ComposeResult:
        """The frame, and the body within it."""
        yield Menu(self.PLACE)
        yield WindowGauge(self.here)
        with Container(id="body"):
            yield from self.body()
        yield Static(id="trouble", markup=False)
        yield Footer()

    def body(self) -> ComposeResult:
        """What is within the frame."""
        yield from ()

    async def look(self) -> None:
        """Asks for what is shown, and shows it."""

    def blank(self) -> None:
        """Shows that there is nothing."""

    def main(self) -> str:
        """The part that has the keys, as a selector."""
        return ""

    def on_screen_resume(self) -> None:
        """It came up: what changed since is asked for."""
        self.query_one(WindowGauge).refresh()
        if self._seen != (self.here.session, self.here.moment):
            self._seen = self.here.session, self.here.moment
            self.action_look()

    def action_look(self) -> None:
        """Asks again."""
        self.work(self._look, "look")

    def action_leave(self) -> None:
        """Leaves a field, so that keys are keys again."""
        if self.main():
            self.query_one(self.main()).focus()

    def work(self, job: Callable[[], Coroutine[Any, Any, None]], group: str) -> None:
        """Does something beside what is drawn; a new one of a group ends the one before. What goes wrong is told."""
        beside(self, partial(self._told, job), group)

    def change(self, job: Callable[[], Coroutine[Any, Any, None]], group: str) -> None:
        """The same for something that was asked for by hand: what was told before is over."""
        self.trouble("")
        self.work(job, group)

    def refuse_without(self, right: Right) -> bool:
        """Whether the key lacks a right; it is told."""
        if self.here.may(right):
            return False
        self.trouble(f"this key may not do that; it needs the right '{right}'")
        return True

    def trouble(self, says: str, *, bad: bool = True) -> None:
        """Tells something in the line for it; an empty text takes the line away."""
        line = self.query_one("#trouble", Static)
        line.update(shown(says))
        line.set_class(bad, "bad")
        line.display = bool(says)
        self._lost = False

    def lost(self, says: str) -> None:
        """The gateway could not be asked; it is told until it can."""
        self.trouble(says)
        self._lost = True

    async def _look(self) -> None:
        if not self.here.session:
            return
        try:
            await self.look()
        except RequestRefused as refused:
            if refused.status != 404:
                raise
            self.blank()
            self.trouble(EMPTY if self.here.now is None else refused.message, bad=False)
            self._lost = True
        else:
            if self._lost:
                self.trouble("")

    async def _told(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await job()
        except RectoError as error:
            if self.is_attached:
                self.trouble(str(error))
                self._lost = job == self._look
