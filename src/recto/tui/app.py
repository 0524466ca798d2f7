"""`recto tui`: the application, with its screens, the current session and the reload timer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen, Screen
from textual.timer import Timer

from recto.config import Settings
from recto.errors import RectoError, RequestRefused
from recto.gateway.client import GatewayClient, connect_gateway
from recto.tui.dialogs import ChoiceDialog, TextDialog
from recto.tui.screens.base import BaseView
from recto.tui.screens.chat import ChatView
from recto.tui.screens.decisions import DecisionsView
from recto.tui.screens.entry import EntryScreen
from recto.tui.screens.health import HealthView
from recto.tui.screens.help import HelpScreen, own_keys
from recto.tui.screens.memory import MemoryView
from recto.tui.screens.notes import NotesView
from recto.tui.screens.recall import RecallView
from recto.tui.screens.sessions import SessionsView
from recto.tui.screens.timeline import TimelineView
from recto.tui.screens.transcript import TranscriptView
from recto.tui.screens.window import WindowScreen
from recto.tui.state import Changed, GoTo, OpenSession, ShowEntry, TuiState
from recto.tui.widgets.header import PLACES
from recto.tui.workers import run_exclusive

_VIEWS: Mapping[str, Callable[[TuiState], BaseView]] = {
    view.PLACE: view
    for view in (
        ChatView, SessionsView, TimelineView, WindowScreen, TranscriptView, RecallView, DecisionsView, HealthView,
        MemoryView, NotesView,
    )
}  # fmt: skip
_WRONG_KEY = (
    "This key is not valid here. Copy it from where it was printed ('recto serve --key' prints it when it starts, "
    "'recto keys add' prints it once) and start 'recto tui --key rk-…' again."
)
_SECONDS = 3.0
"""How often the session is polled: others may write to it too."""
_COLOURS: Mapping[bool, Mapping[str, str]] = {
    True: {
        "zone-green": "#4ec07a", "zone-yellow": "#e5c542", "zone-orange": "#f08c3c", "zone-red": "#ff6b6b",
        "part-system": "#7aa2f7", "part-tools": "#bb9af7", "part-history": "#4fb8a8", "part-results": "#e0af68",
        "part-memory": "#f7768e", "part-reserve": "#8a8fa3", "part-free": "#5a6072",
    },
    False: {
        "zone-green": "#17703a", "zone-yellow": "#7a5c00", "zone-orange": "#a84300", "zone-red": "#b3152b",
        "part-system": "#2952b8", "part-tools": "#6b3fb0", "part-history": "#0f6b5f", "part-results": "#8a5200",
        "part-memory": "#ad2049", "part-reserve": "#555b6e", "part-free": "#767c8c",
    },
}  # fmt: skip
"""Colours of zones and components on dark and on light, readable as text on both."""


class RectoApp(App[None]):
    """The application."""

    TITLE = "Recto"
    CSS_PATH = "screens.tcss"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(item.key, f"go('{item.name}')", item.title, show=False) for item in PLACES),
        *(
            Binding(f"f{place}", f"go('{item.name}')", item.title, show=False, priority=True)
            for place, item in enumerate(PLACES, 1)
        ),
        Binding("question_mark", "explain", "Help", key_display="?"),
        Binding("d", "light", "Dark or light", show=False),
        Binding("m", "choose_model", "Model", show=False),
        Binding("c", "compact", "Compact", show=False),
        Binding("q,ctrl+q", "quit", "Quit", show=False),
    ]

    def __init__(self, client: GatewayClient, session: str = "") -> None:
        self.state = TuiState(client, session)
        super().__init__()
        for name, view in _VIEWS.items():
            self.add_mode(name, partial(view, self.state))
        self._timer: Timer | None = None

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Returns the colours of zones and components for the theme."""
        return dict(_COLOURS[self.current_theme.dark])

    async def on_mount(self) -> None:
        """Shows the chat, and loads the caller meanwhile."""
        await self.switch_mode("chat")
        run_exclusive(self, self._load_caller, "arrive")
        self._timer = self.set_interval(_SECONDS, self._poll)

    async def _load_caller(self) -> None:
        try:
            await self.state.load_caller()
            await self.state.load_session()
        except RectoError as error:
            self._show_error(error)
            return
        self._reload()
        try:
            self.state.models = tuple(await self.state.client.models())
        except RectoError as error:
            self._show_error(error)

    def _poll(self) -> None:
        if self.state.caller is not None:
            run_exclusive(self, self._poll_session, "gauge")

    async def _poll_session(self) -> None:
        before = self.state.now
        try:
            now = await self.state.load_session()
        except RectoError as error:
            self._show_error(error)
            return
        if now != before:
            self._reload()

    def _reload(self) -> None:
        """Marks what is shown as out of date, and reloads the screen."""
        self.state.revision += 1
        if isinstance(self.screen, BaseView):
            self.screen.on_screen_resume()

    def _show_error(self, error: RectoError) -> None:
        wrong_key = isinstance(error, RequestRefused) and error.status == 401  # HTTP
        text = _WRONG_KEY if wrong_key else str(error)
        if isinstance(self.screen, BaseView):
            self.screen.show_load_error(text)
        else:
            self.notify(text, severity="error", markup=False)

    def on_changed(self, event: Changed) -> None:
        """Reloads at once after a change."""
        self._reload()
        self._poll()

    def on_open_session(self, event: OpenSession) -> None:
        """Opens another session."""
        self.state.open(event.session)
        run_exclusive(self, self._load_session, "gauge")

    async def _load_session(self) -> None:
        try:
            await self.state.load_session()
        except RectoError as error:
            self._show_error(error)
        self._reload()

    def on_show_entry(self, event: ShowEntry) -> None:
        """Shows an entry over the current screen."""
        self.push_screen(EntryScreen(self.state, event.seq))

    async def on_go_to(self, event: GoTo) -> None:
        """Shows another screen."""
        await self.switch_mode(event.screen)

    async def action_go(self, name: str) -> None:
        """Shows a screen, unless a dialog is open."""
        if not isinstance(self.screen, ModalScreen):
            await self.switch_mode(name)

    def action_light(self) -> None:
        """Switches between dark and light."""
        self.theme = "textual-light" if self.current_theme.dark else "textual-dark"

    def action_explain(self) -> None:
        """Shows the keys."""
        self.push_screen(HelpScreen(self.screen.active_bindings.values()))

    def action_choose_model(self) -> None:
        """Asks for the model of the next messages."""
        if not self.state.models:
            self.notify("the gateway names no models", severity="warning", markup=False)
            return
        self.push_screen(
            ChoiceDialog("Which model answers from now on?", self.state.models, self.state.model), self._choose_model
        )

    def _choose_model(self, model: str | None) -> None:
        if model:
            self.state.chosen_model = model
            self.notify(f"{model} answers from now on", markup=False)

    def action_compact(self) -> None:
        """Asks for the focus of a compaction."""
        if isinstance(self.screen, BaseView) and not self.screen.refuse_without("change"):
            question = "Compact the prompt now. What should the summary keep above all? (may be empty)"
            self.push_screen(TextDialog(question, empty=True), self._start_compaction)

    def _start_compaction(self, focus: str | None) -> None:
        if focus is not None:
            run_exclusive(self, partial(self._compact, focus), "compact")

    async def _compact(self, focus: str) -> None:
        body = {"focus": focus} if focus else {}
        try:
            result = await self.state.client.post("/session/compact", body, session=self.state.session)
        except RectoError as error:
            self._show_error(error)
            return
        count = len(result["decisions"])
        text = (
            f"{count} decisions; the prompt has {result['tokens']:,} tokens now"
            if count
            else "there was too little to do"
        )
        self.notify(text, markup=False)
        self.on_changed(Changed())

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Yields every action for the command palette."""
        for item in PLACES:
            yield SystemCommand(item.title, f"{item.description} ({item.key})", partial(self.switch_mode, item.name))
        for active in own_keys(screen.active_bindings.values()):
            run = partial(self.run_action, active.binding.action, active.node)
            yield SystemCommand(active.binding.description, f"Key: {self.get_key_display(active.binding)}", run)
        yield SystemCommand("Theme", "Choose among all themes", self.action_change_theme)


def run(settings: Settings, url: str = "", key: str = "", session: str = "") -> None:
    """Runs the application until the user quits, on a running gateway or on one of its own."""
    with connect_gateway(settings, url, key, name="recto tui") as reached:
        RectoApp(GatewayClient(reached.url, reached.key), session or ("" if url else settings.session)).run()
