"""Small questions in front of a screen: yes or no, a line of text, one of several. Escape is always no answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from recto.tui.formatting import shown


class ConfirmDialog(ModalScreen[bool]):
    """Yes or no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "answer(True)", "Yes"),
        Binding("n,escape", "answer(False)", "No"),
    ]

    def __init__(self, title: str, text: str = "") -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        """The question, and how to answer it."""
        with Vertical(classes="box"):
            yield Static(shown(self._title), classes="title")
            with VerticalScroll():
                yield Static(shown(self._text))
            yield Static(Content("y or Enter: yes   n or Esc: no"), classes="keys")

    def action_answer(self, yes: bool) -> None:
        """It is answered."""
        self.dismiss(yes)


class TextDialog(ModalScreen[str | None]):
    """One line of text."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Never mind")]

    def __init__(self, title: str, value: str = "", *, empty: bool = False, number: bool = False) -> None:
        super().__init__()
        self._title, self._value, self._empty, self._number = title, value, empty, number

    def compose(self) -> ComposeResult:
        """The question and a field."""
        with Vertical(classes="box"):
            yield Static(shown(self._title), classes="title")
            kind: Literal["integer", "text"] = "integer" if self._number else "text"
            yield Input(self._value, type=kind, max_length=2_000, select_on_focus=False)
            yield Static(Content("Enter: done   Esc: never mind"), classes="keys")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """It is answered."""
        event.stop()
        text = event.value.strip()
        if text or self._empty:
            self.dismiss(text)


class ChoiceDialog(ModalScreen[str | None]):
    """One of several."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Never mind")]

    def __init__(self, title: str, names: Sequence[str], now: str = "") -> None:
        super().__init__()
        self._title, self._names, self._now = title, tuple(names), now

    def compose(self) -> ComposeResult:
        """The question and its answers."""
        with Vertical(classes="box"):
            yield Static(shown(self._title), classes="title")
            yield OptionList(*(Option(shown(name)) for name in self._names), markup=False)
            yield Static(Content("Enter: choose   Esc: never mind"), classes="keys")

    def on_mount(self) -> None:
        """The one of now is under the cursor."""
        if self._now in self._names:
            self.query_one(OptionList).highlighted = self._names.index(self._now)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """It is answered."""
        event.stop()
        self.dismiss(self._names[event.option_index])
