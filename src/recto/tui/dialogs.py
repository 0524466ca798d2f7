"""Dialogs: yes or no, a line of text, one of several. Escape cancels."""

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

from recto.tui.display_text import safe_content


class ConfirmDialog(ModalScreen[bool]):
    """Asks yes or no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "answer(True)", "Yes"),
        Binding("n,escape", "answer(False)", "No"),
    ]

    def __init__(self, title: str, text: str = "") -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        """Yields the question and its keys."""
        with Vertical(classes="box"):
            yield Static(safe_content(self._title), classes="title")
            with VerticalScroll():
                yield Static(safe_content(self._text))
            yield Static(Content("y or Enter: yes   n or Esc: no"), classes="keys")

    def action_answer(self, yes: bool) -> None:
        """Closes with the answer."""
        self.dismiss(yes)


class TextDialog(ModalScreen[str | None]):
    """Asks for a line of text."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Never mind")]

    def __init__(self, title: str, value: str = "", *, empty: bool = False, number: bool = False) -> None:
        super().__init__()
        self._title, self._value, self._empty, self._number = title, value, empty, number

    def compose(self) -> ComposeResult:
        """Yields the question and a field."""
        with Vertical(classes="box"):
            yield Static(safe_content(self._title), classes="title")
            kind: Literal["integer", "text"] = "integer" if self._number else "text"
            yield Input(self._value, type=kind, max_length=2_000, select_on_focus=False)
            yield Static(Content("Enter: done   Esc: never mind"), classes="keys")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Closes with the text."""
        event.stop()
        text = event.value.strip()
        if text or self._empty:
            self.dismiss(text)


class ChoiceDialog(ModalScreen[str | None]):
    """Asks for one of several."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Never mind")]

    def __init__(self, title: str, names: Sequence[str], current: str = "") -> None:
        super().__init__()
        self._title, self._names, self._current = title, tuple(names), current

    def compose(self) -> ComposeResult:
        """Yields the question and the choices."""
        with Vertical(classes="box"):
            yield Static(safe_content(self._title), classes="title")
            yield OptionList(*(Option(safe_content(name)) for name in self._names), markup=False)
            yield Static(Content("Enter: choose   Esc: never mind"), classes="keys")

    def on_mount(self) -> None:
        """Highlights the current choice."""
        if self._current in self._names:
            self.query_one(OptionList).highlighted = self._names.index(self._current)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Closes with the choice."""
        event.stop()
        self.dismiss(self._names[event.option_index])
