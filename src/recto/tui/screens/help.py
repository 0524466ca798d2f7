"""The keys of a screen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Input, OptionList, Static, TextArea

from recto.tui.display_text import PLACES as WHERE
from recto.tui.widgets.header import PLACES

_COMMON_KEYS = (
    ("↑ ↓ PgUp PgDn Home End", "move"),
    ("Enter", "open what is under the cursor"),
    ("Tab", "the next part of the screen"),
    ("Esc", "leave a field, cancel an answer, close what is in front"),
    ("Ctrl+P", "every action by name"),
)


_LIBRARY_ACTIONS = frozenset(
    binding.action
    for kind in (Screen, DataTable, Input, OptionList, TextArea, VerticalScroll)
    for binding in kind.BINDINGS
    if isinstance(binding, Binding)
)
"""Actions of Textual's own keys, for moving and editing."""


def own_keys(bindings: Iterable[ActiveBinding]) -> list[ActiveBinding]:
    """Returns Recto's own bindings, each action once, without those that switch screens."""
    active_bindings: dict[str, ActiveBinding] = {}
    for active in bindings:
        binding = active.binding
        known = (
            binding.action in _LIBRARY_ACTIONS
            or binding.action.startswith(("go(", "command_palette"))
            or binding.system
        )
        if binding.description and not known:
            active_bindings.setdefault(binding.action, active)
    return list(active_bindings.values())


class HelpScreen(ModalScreen[None]):
    """Shows the keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter", "dismiss(None)", "Close")]

    def __init__(self, bindings: Iterable[ActiveBinding]) -> None:
        super().__init__()
        self._active = tuple(bindings)

    def compose(self) -> ComposeResult:
        """Yields the keys of the screen, the common keys, and the meaning of signs."""
        with Vertical(classes="box tall"):
            yield Static(Content("Keys"), classes="title")
            with VerticalScroll():
                yield Static(Content("\n").join(self._lines()))
            yield Static(Content("Esc: close"), classes="keys")

    def _lines(self) -> list[Content]:
        own = [
            Content.assemble((self.app.get_key_display(item.binding).ljust(10), "bold"), item.binding.description)
            for item in own_keys(self._active)
        ]
        places = [
            Content.assemble((f"{item.key} F{number}".ljust(10), "bold"), f"{item.title}: {item.description}")
            for number, item in enumerate(PLACES, 1)
        ]
        signs = "   ".join(WHERE.values())
        return [
            *own,
            Content(""),
            *places,
            Content(""),
            *(Content.assemble((f"{key}  ", "bold"), meaning) for key, meaning in _COMMON_KEYS),
            Content(""),
            Content(f"An entry is: {signs}"),
        ]
