"""A block of the prompt that is no entry, with its whole text, over a screen."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from recto.engine.window_view import PromptBlock
from recto.tui.formatting import safe_content
from recto.tui.state import ShowEntry
from recto.tui.widgets.prompt_blocks import block_name, describe_block


class BlockScreen(ModalScreen[None]):
    """What Recto or the client added to the prompt."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss(None)", "Close"),
        Binding("s", "source", "Open a quoted entry"),
    ]

    def __init__(self, block: PromptBlock) -> None:
        super().__init__()
        self._block = block
        self._opened = 0

    def compose(self) -> ComposeResult:
        """Yields the name and the text."""
        with Vertical(classes="box tall"):
            yield Static(safe_content(block_name(self._block)), classes="title", markup=False)
            with VerticalScroll(id="text"):
                yield Static(describe_block(self._block), markup=False)
            yield Footer(show_command_palette=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offers the source only where an entry is quoted."""
        return action != "source" or bool(self._block.sources)

    def action_source(self) -> None:
        """Opens the first quoted entry, then the next one."""
        sources = self._block.sources
        self.app.post_message(ShowEntry(sources[self._opened % len(sources)]))
        self._opened += 1
