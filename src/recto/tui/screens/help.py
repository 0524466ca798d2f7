"""The keys of a screen, in front of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Input, OptionList, Static, TextArea

from recto.tui.formatting import PLACES as SIGNS
from recto.tui.widgets.header import PLACES

_MOVES = (
    ("↑ ↓ PgUp PgDn Home End", "move"),
    ("Enter", "open what is under the cursor"),
    ("Tab", "the next part of the screen"),
    ("Esc", "leave a field, cancel an answer, close what is in front"),
    ("Ctrl+P", "every action by name"),
)


_THEIRS = frozenset(
    binding.action
    for kind in (Screen, DataTable, Input, OptionList, TextArea, VerticalScroll)
    for binding in kind.BINDINGS
    if isinstance(binding, Binding)
)
"""What the library's own keys do: moving and editing, as everywhere."""


def own_keys(bindings: Iterable[ActiveBinding]) -> list[ActiveBinding]:
    """What can be pressed that only we know, each action once; going to another screen is told apart."""
    found: dict[str, ActiveBinding] = {}
    for active in bindings:
        binding = active.binding
        known = binding.action in _THEIRS or binding.action.startswith(("go(", "command_palette")) or binding.system
        if binding.description and not known:
            found.setdefault(binding.action, active)
    return list(found.values())


class HelpScreen(ModalScreen[None]):
    """What can be pressed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter", "dismiss(None)", "Close")]

    def __init__(self, bindings: Iterable[ActiveBinding]) -> None:
        super().__init__()
        self._active = tuple(bindings)

    def compose(self) -> ComposeResult:
        """The keys here, the keys everywhere, and what signs mean."""
        with Vertical(classes="box tall"):
            yield Static(Content("Keys"), classes="title")
            with VerticalScroll():
                yield Static(Content("\n").join(self._lines()))
            yield Static(Content("Esc: close"), classes="keys")

    def _lines(self) -> list[Content]:
        here = [
            Content.assemble((self.app.get_key_display(one.binding).ljust(10), "bold"), one.binding.description)
            for one in own_keys(self._active)
        ]
        places = [
            Content.assemble((f"{one.key} F{number}".ljust(10), "bold"), f"{one.title}: {one.about}")
            for number, one in enumerate(PLACES, 1)
        ]
        signs = "   ".join(f"{sign} {word}" for word, sign in SIGNS.items())
        return [
            *here,
            Content(""),
            *places,
            Content(""),
            *(Content.assemble((f"{key}  ", "bold"), says) for key, says in _MOVES),
            Content(""),
            Content(f"An entry is: {signs}"),
        ]
