"""What somebody types in a chat: several lines, completion, a gauge below. Nothing of it is written to a disk."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style

from recto.cli.conversation import Conversation
from recto.cli.gauge import gauge
from recto.cli.screen import safe
from recto.cli.slash import COMMANDS, Slash
from recto.errors import RectoError

_MENU = 6
"""Lines that are kept free below for completions."""
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


class Typing:
    """The line at the bottom of a chat."""

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk
        self._completer = SlashCompleter(talk)
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
        """What is sent next. Raises `EOFError` for Ctrl-D and `KeyboardInterrupt` for Ctrl-C."""
        self._completer.forget()
        return await self._prompt.prompt_async([("class:prompt", "› ")])

    def _gauge(self) -> FormattedText:
        talk = self._talk
        width = get_app().output.get_size().columns
        parts = gauge(talk.now, recalled=talk.recalled, model=talk.model, session=talk.session, width=width)
        return FormattedText(parts)


class SlashCompleter(Completer):
    """Completes the names of commands, and their arguments by what the gateway lists."""

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk
        self._offered: dict[str, Sequence[str]] = {}

    def forget(self) -> None:
        """Asks again for what may have changed."""
        self._offered.clear()

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """The names of commands that begin like this."""
        typed = document.text_before_cursor
        if not typed.startswith("/") or "\n" in typed:
            return
        for one in COMMANDS.values():
            if f"/{one.name}".startswith(typed):
                yield Completion(f"/{one.name}", -len(typed), display=one.usage, display_meta=one.says)

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """The same, and what can follow the name of one."""
        for found in self.get_completions(document, complete_event):
            yield found
        typed = document.text_before_cursor
        for one in COMMANDS.values():
            if typed.startswith(f"/{one.name} "):
                word = typed.removeprefix(f"/{one.name} ").rpartition(" ")[2]
                for text in await self._offers(one):
                    if text.startswith(word):
                        yield Completion(text, -len(word), display=safe(text))

    async def _offers(self, one: Slash) -> Sequence[str]:
        if one.name not in self._offered:
            try:
                self._offered[one.name] = await one.offers(self._talk)
            except RectoError:  # nothing is offered then; asked for, it says why
                self._offered[one.name] = ()
        return self._offered[one.name]


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
