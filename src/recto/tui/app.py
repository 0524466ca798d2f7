"""`recto tui`: the terminal screens of one gateway, put together.

It knows which screens there are, which session is looked at and when to look again. What a screen shows is known to
the screen; what the numbers mean, to the gateway that is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen, Screen
from textual.timer import Timer

from recto.config import Settings
from recto.errors import RectoError
from recto.gateway.client import GatewayClient
from recto.gateway.local import connect_gateway
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
from recto.tui.screens.window import WindowView
from recto.tui.state import Changed, GoTo, OpenSession, ShowEntry, TuiState
from recto.tui.widgets.header import PLACES
from recto.tui.workers import beside

_VIEWS: Mapping[str, Callable[[TuiState], BaseView]] = {
    view.PLACE: view
    for view in (
        ChatView, SessionsView, TimelineView, WindowView, TranscriptView, RecallView, DecisionsView, HealthView,
        MemoryView, NotesView,
    )
}  # fmt: skip
_SECONDS = 3.0
"""How often it is asked how full the prompt is: others may write to the session too."""
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
"""Zones and components, on dark and on light; readable as letters on both."""


class RectoApp(App[None]):
    """The screens."""

    TITLE = "Recto"
    CSS_PATH = "screens.tcss"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(one.key, f"go('{one.name}')", one.title, show=False) for one in PLACES),
        *(
            Binding(f"f{place}", f"go('{one.name}')", one.title, show=False, priority=True)
            for place, one in enumerate(PLACES, 1)
        ),
        Binding("question_mark", "explain", "Help", key_display="?"),
        Binding("d", "light", "Dark or light", show=False),
        Binding("m", "choose_model", "Model", show=False),
        Binding("c", "compact", "Compact", show=False),
        Binding("q,ctrl+q", "quit", "Quit", show=False),
    ]

    def __init__(self, client: GatewayClient, session: str = "") -> None:
        self.here = TuiState(client, session)
        super().__init__()
        for name, view in _VIEWS.items():
            self.add_mode(name, partial(view, self.here))
        self._timer: Timer | None = None

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """The colours of zones and components, as the theme is dark or light."""
        return dict(_COLOURS[self.current_theme.dark])

    async def on_mount(self) -> None:
        """The chat comes first; who we are is asked meanwhile."""
        await self.switch_mode("chat")
        beside(self, self._arrive, "arrive")
        self._timer = self.set_interval(_SECONDS, self._look)

    async def _arrive(self) -> None:
        try:
            await self.here.arrive()
            await self.here.look()
        except RectoError as error:
            self._told(error)
            return
        self._again()
        try:
            self.here.models = tuple(await self.here.client.models())
        except RectoError as error:
            self._told(error)

    def _look(self) -> None:
        if self.here.asker is not None:
            beside(self, self._looked, "gauge")

    async def _looked(self) -> None:
        before = self.here.now
        try:
            now = await self.here.look()
        except RectoError as error:
            self._told(error)
            return
        if now != before:
            self._again()

    def _again(self) -> None:
        """Something is no longer as it was shown."""
        self.here.moment += 1
        if isinstance(self.screen, BaseView):
            self.screen.on_screen_resume()

    def _told(self, error: RectoError) -> None:
        if isinstance(self.screen, BaseView):
            self.screen.lost(str(error))
        else:
            self.notify(str(error), severity="error", markup=False)

    def on_changed(self, event: Changed) -> None:
        """Something was changed here: it is asked for at once."""
        self._again()
        self._look()

    def on_open_session(self, event: OpenSession) -> None:
        """Another session is looked at."""
        self.here.session, self.here.now, self.here.chosen = event.session, None, ""
        beside(self, self._opened, "gauge")

    async def _opened(self) -> None:
        try:
            await self.here.look()
        except RectoError as error:
            self._told(error)
        self._again()

    def on_show_entry(self, event: ShowEntry) -> None:
        """An entry is shown in front of what is there."""
        self.push_screen(EntryScreen(self.here, event.seq))

    async def on_go_to(self, event: GoTo) -> None:
        """Another screen is shown."""
        await self.switch_mode(event.screen)

    async def action_go(self, name: str) -> None:
        """Shows a screen; a question in front of one is answered first."""
        if not isinstance(self.screen, ModalScreen):
            await self.switch_mode(name)

    def action_light(self) -> None:
        """From dark to light, and back."""
        self.theme = "textual-light" if self.current_theme.dark else "textual-dark"

    def action_explain(self) -> None:
        """The keys."""
        self.push_screen(HelpScreen(self.screen.active_bindings.values()))

    def action_choose_model(self) -> None:
        """Which model is asked from now on."""
        if not self.here.models:
            self.notify("the gateway names no models", severity="warning", markup=False)
            return
        self.push_screen(
            ChoiceDialog("Which model answers from now on?", self.here.models, self.here.model), self._chosen
        )

    def _chosen(self, model: str | None) -> None:
        if model:
            self.here.chosen = model
            self.notify(f"{model} answers from now on", markup=False)

    def action_compact(self) -> None:
        """Makes the prompt smaller now."""
        if isinstance(self.screen, BaseView) and not self.screen.refuse_without("change"):
            question = "Compact the prompt now. What should the summary keep above all? (may be empty)"
            self.push_screen(TextDialog(question, empty=True), self._compact)

    def _compact(self, focus: str | None) -> None:
        if focus is not None:
            beside(self, partial(self._compacted, focus), "compact")

    async def _compacted(self, focus: str) -> None:
        body = {"focus": focus} if focus else {}
        try:
            made = await self.here.client.post("/session/compact", body, session=self.here.session)
        except RectoError as error:
            self._told(error)
            return
        many = len(made["decisions"])
        says = (
            f"{many} decisions; the prompt has {made['tokens']:,} tokens now" if many else "there was too little to do"
        )
        self.notify(says, markup=False)
        self.on_changed(Changed())

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Everything that a key does, in the palette too."""
        for one in PLACES:
            yield SystemCommand(one.title, f"{one.about} ({one.key})", partial(self.switch_mode, one.name))
        for active in own_keys(screen.active_bindings.values()):
            run = partial(self.run_action, active.binding.action, active.node)
            yield SystemCommand(active.binding.description, f"Key: {self.get_key_display(active.binding)}", run)
        yield SystemCommand("Theme", "Choose among all themes", self.action_change_theme)


def run(settings: Settings, url: str = "", key: str = "", session: str = "") -> None:
    """Shows the screens until they are left: of the gateway at an address, or of one's own store."""
    with connect_gateway(settings, url, key, name="recto tui") as reached:
        RectoApp(GatewayClient(reached.url, reached.key), session or ("" if url else settings.session)).run()
