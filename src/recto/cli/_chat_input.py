"""The input line of `recto chat`: prompt, status line and completion of slash commands.

Needs prompt_toolkit, an optional dependency, so `recto chat` imports it only at a terminal.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import TypeAlias

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style
from rich.cells import cell_len

from recto.cli._conversation import ChatClient
from recto.cli._slash_commands import COMMANDS, SlashCommand
from recto.cli.console import one_line, safe
from recto.engine.views.models import SessionOverview
from recto.errors import RectoError

Styled: TypeAlias = list[tuple[str, str]]
"""Pieces of a line: the style class and a safe text."""

_CELLS = 10
_SEPARATOR = " · "


def gauge(now: SessionOverview | None, *, recalled: int, model: str, session: str, width: int) -> Styled:
    """Renders the status line, as much as fits, the most important first. The zone is a word and not only a colour."""
    parts = [*(_pressure(now, recalled) if now else [[("", "nothing was said yet")]])]
    parts += [[("", one_line(model, 40))], [("class:dim", one_line(session, 60))]]
    line: Styled = [("", " ")]
    for part in parts:
        longer = [*line, *([("class:dim", _SEPARATOR)] if len(line) > 1 else []), *part]
        if sum(cell_len(text) for _, text in longer) > width:
            break
        line = longer
    return line


def _pressure(now: SessionOverview, recalled: int) -> list[Styled]:
    reading = now.reading
    filled = min(round(_CELLS * reading.utilization), _CELLS)
    zone = f"class:{reading.zone}"
    full = f" {reading.tokens:,} of {reading.room:,} tokens ({reading.utilization:.0%}) "
    parts: list[Styled] = [
        [(zone, "█" * filled), ("class:dim", "░" * (_CELLS - filled)), ("", full), (zone, reading.zone)]
    ]
    if reading.turns_until_red:
        turns = "1 turn" if reading.turns_until_red == 1 else f"{reading.turns_until_red:,} turns"
        parts.append([("", f"red in {turns}")])
    if now.left_messages:
        parts.append([("", f"{now.left_messages:,} left")])
    if recalled:
        parts.append([("", f"{recalled:,} recalled")])
    return parts


_MENU = 6
"""Lines reserved below for completions."""
_STYLE = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "bottom-toolbar": "noreverse",
        "dim": "ansibrightblack",
        "green": "ansigreen",
        "yellow": "ansiyellow",
        "orange": "#d78700",
        "red": "bold ansired",
    }
)


class InputLine:
    """The input line at the bottom of a chat."""

    def __init__(self, chat: ChatClient) -> None:
        self._chat = chat
        self._completer = SlashCompleter(chat)
        self._prompt: PromptSession[str] = PromptSession(
            history=InMemoryHistory(),
            multiline=True,
            completer=self._completer,
            complete_while_typing=Condition(lambda: get_app().current_buffer.text.startswith("/")),
            key_bindings=_keys(),
            bottom_toolbar=self._gauge,
            prompt_continuation=[("class:dim", "… ")],
            reserve_space_for_menu=_MENU,
            style=_STYLE,
        )

    async def next(self) -> str:
        """Reads the next input.

        Raises:
            EOFError: Ctrl-D.
            KeyboardInterrupt: Ctrl-C.
        """
        self._completer.forget()
        return await self._prompt.prompt_async([("class:prompt", "› ")])

    def _gauge(self) -> FormattedText:
        chat = self._chat
        width = get_app().output.get_size().columns
        parts = gauge(chat.now, recalled=chat.recalled, model=chat.model, session=chat.session, width=width)
        return FormattedText(parts)


class SlashCompleter(Completer):
    """Completes command names, and arguments with values from the gateway."""

    def __init__(self, chat: ChatClient) -> None:
        self._chat = chat
        self._choices: dict[str, Sequence[str]] = {}

    def forget(self) -> None:
        """Drops the cached values, which may have changed."""
        self._choices.clear()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yields the commands that start with the input."""
        typed = document.text_before_cursor
        if not typed.startswith("/") or "\n" in typed:
            return
        for command in COMMANDS.values():
            if f"/{command.name}".startswith(typed):
                yield Completion(f"/{command.name}", -len(typed), display=command.usage, display_meta=command.help)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Yields the same, and values of the argument."""
        for completion in self.get_completions(document, complete_event):
            yield completion
        typed = document.text_before_cursor
        for command in COMMANDS.values():
            if typed.startswith(f"/{command.name} "):
                word = typed.removeprefix(f"/{command.name} ").rpartition(" ")[2]
                for text in await self._choices_of(command):
                    if text.startswith(word):
                        yield Completion(text, -len(word), display=safe(text))

    async def _choices_of(self, command: SlashCommand) -> Sequence[str]:
        if command.name not in self._choices:
            try:
                self._choices[command.name] = await command.choices(self._chat)
            except RectoError:  # no completion; the command itself reports the error
                self._choices[command.name] = ()
        return self._choices[command.name]


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.current_line_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.newline()
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.newline()

    return keys
