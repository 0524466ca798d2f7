"""The base of every screen: a frame, a body that a worker loads, and a message line.

A screen reloads when it is shown and something changed since.
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
from recto.tui.display_text import safe_content
from recto.tui.state import TuiState
from recto.tui.widgets.header import Menu, WindowGauge
from recto.tui.workers import run_exclusive

EMPTY = "Nothing was said in this session yet."


class BaseView(Screen[None]):
    """A screen of a session."""

    PLACE: ClassVar[str]
    """Its name in the menu."""
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (120, "-wide")]  # noqa: RUF012  # as Textual declares it
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "look", "Look again", show=False),
        Binding("escape", "leave", "Leave the field", show=False),
    ]

    def __init__(self, state: TuiState) -> None:
        super().__init__()
        self.state = state
        self._loaded_revision: tuple[str, int] | None = None
        self._load_failed = False
        """Whether the message is about the last load; the next successful one removes it."""
        self._loaded_session = ""
        """The session whose content is shown; while another one is loaded, the screen says so."""

    def compose(self) -> ComposeResult:
        """Yields the frame and the body."""
        yield Menu(self.PLACE)
        yield WindowGauge(self.state)
        with Container(id="body"):
            yield from self.compose_body()
            yield Static("Loading …", id="loading", markup=False)
        yield Static(id="trouble", markup=False)
        yield Footer()

    def compose_body(self) -> ComposeResult:
        """Yields the body."""
        yield from ()

    async def load_content(self) -> None:
        """Loads and shows the content."""

    def show_empty(self) -> None:
        """Shows that there is nothing."""

    def main_selector(self) -> str:
        """Returns the selector of the part that gets the focus."""
        return ""

    def on_screen_resume(self) -> None:
        """Reloads if something changed since the last load; nothing before the screen is composed."""
        gauges = self.query(WindowGauge)
        if not gauges:
            return
        gauges.refresh()
        if self._loaded_revision != (self.state.session, self.state.revision):
            self._loaded_revision = self.state.session, self.state.revision
            self.action_look()

    def action_look(self) -> None:
        """Reloads."""
        self.query_one("#loading").display = not self._loaded_session or self._loaded_session != self.state.session
        self.run_in_background(self._load_safely, "look")

    def action_leave(self) -> None:
        """Moves the focus out of a field, so that keys are shortcuts again."""
        if self.main_selector():
            self.query_one(self.main_selector()).focus()

    def run_in_background(self, job: Callable[[], Coroutine[Any, Any, None]], group: str) -> None:
        """Runs a job in a worker that replaces earlier ones of its group. Errors are shown."""
        run_exclusive(self, partial(self._report_errors, job), group)

    def change(self, job: Callable[[], Coroutine[Any, Any, None]], group: str) -> None:
        """Runs a job that the user started, and clears the message."""
        self.show_message("")
        self.run_in_background(job, group)

    def refuse_without(self, right: Right) -> bool:
        """Returns whether the key lacks a right, and shows a message in that case."""
        if self.state.has_right(right):
            return False
        self.show_message(f"this key may not do that; it needs the right '{right}'")
        return True

    def show_message(self, text: str, *, bad: bool = True) -> None:
        """Shows a message; an empty text hides the line."""
        line = self.query_one("#trouble", Static)
        line.update(safe_content(text))
        line.set_class(bad, "bad")
        line.display = bool(text)
        self._load_failed = False

    def show_load_error(self, text: str) -> None:
        """Shows that the gateway cannot be reached, until it can."""
        self.show_message(text)
        self._load_failed = True
        self.query_one("#loading").display = False

    async def _load_safely(self) -> None:
        if not self.state.session:
            return
        try:
            await self.load_content()
        except RequestRefused as refused:
            if refused.status != 404:
                raise
            self.show_empty()
            self.show_message(EMPTY if self.state.now is None else refused.message, bad=False)
            self._load_failed = True
        else:
            if self._load_failed:
                self.show_message("")
        self._loaded_session = self.state.session
        self.query_one("#loading").display = False

    async def _report_errors(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await job()
        except RectoError as error:
            if self.is_attached:
                self.show_message(str(error))
                self._load_failed = job == self._load_safely
                self.query_one("#loading").display = False
