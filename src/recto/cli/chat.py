"""`recto chat`: a conversation through a gateway, at a terminal and in pipes.

Whatever comes from a model or a transcript is made harmless character by character, so that an escape that comes in two
pieces is as harmless as one that comes in one.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import click
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

from recto.cli._common import CLIENT, GATEWAY, need
from recto.cli._conversation import ChatClient
from recto.cli.completion import models, sessions
from recto.cli.console import err, one_line, out, print_json, safe
from recto.cli.slash_commands import COMMANDS, Slash
from recto.config import Settings
from recto.engine.views.models import SessionOverview
from recto.errors import RectoError
from recto.transcript.entries import session_key

if TYPE_CHECKING:
    from recto.cli._conversation import ChatClient
    from recto.gateway.local import GatewayAddress


EXTRA = "screens,gateway"


@click.command("chat")
@click.option("--session", metavar="KEY", shell_complete=sessions, help="In this session. [default: the settings']")
@click.option("--model", metavar="NAME", shell_complete=models, help="Ask this model. [default: the gateway's]")
@click.option("--url", default="", metavar="URL", help="A gateway that runs. [default: one of its own, on this store]")
@click.option("--key", default="", metavar="SECRET", envvar="RECTO_KEY", help="Its key. Better given as RECTO_KEY.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each answer.")
@click.pass_obj
def chat_command(settings: Settings, session: str | None, model: str | None, url: str, key: str, as_json: bool) -> None:
    """Talks to a model, through a gateway of its own on this store or through one that runs.

    At a terminal: /help lists what can be asked beside talking, Ctrl-C cancels an answer, Ctrl-D leaves. In a pipe
    each line is a message, and answers go to standard output.

    \b
    Examples:
      recto chat
      recto chat --session agent:default:plans --model gpt-4o
      echo "What did we decide about the cache?" | recto chat
      RECTO_KEY=rk-… recto chat --url http://127.0.0.1:8642
    """
    watched = not as_json and sys.stdin.isatty() and out.is_terminal
    need("chat", [*(CLIENT if url else GATEWAY), *(["prompt_toolkit"] if watched else [])], EXTRA)
    from recto.gateway.local import connect_gateway  # noqa: PLC0415  # only for who has the packages

    settings = replace(settings, session=session_key(session or settings.session))
    own = "" if url and not session else settings.session
    with connect_gateway(settings, url, key, name="recto chat") as reached:
        asyncio.run(_chat(reached, own, model or "", watched=watched, as_json=as_json))


async def _chat(reached: GatewayAddress, session: str, model: str, *, watched: bool, as_json: bool) -> None:
    from recto.cli._conversation import begun  # noqa: PLC0415
    from recto.gateway.client import GatewayClient  # noqa: PLC0415

    client = GatewayClient(reached.url, reached.key)
    try:
        talk = await begun(client, session, model)
        await (_at_a_terminal(talk) if watched else _in_a_pipe(talk, as_json=as_json))
    finally:
        await client.close()


async def _in_a_pipe(talk: ChatClient, *, as_json: bool) -> None:
    """Each line is a message."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        if not (text := line.strip()):
            continue
        turn = await talk.say(text, (lambda piece: None) if as_json else _tell)
        if as_json:
            print_json(turn)
        else:
            click.echo()


async def _at_a_terminal(talk: ChatClient) -> None:
    from recto.cli.slash_commands import Quit  # noqa: PLC0415

    typing = Typing(talk)
    out.print(safe(f"{talk.model} in {talk.session}. /help lists commands, Ctrl-D leaves."), markup=False)
    while True:
        try:
            text = await typing.next()
            if text.strip():
                await _unless_cancelled(_acted(talk, text))
        except KeyboardInterrupt:
            out.print("Ctrl-D or /quit leaves.", style="dim")
        except (EOFError, Quit):
            return


async def _acted(talk: ChatClient, text: str) -> None:
    """Does what was typed: a command, or a message. What goes wrong is told, and the chat goes on."""
    try:
        if text.startswith("/"):
            from recto.cli.slash_commands import find  # noqa: PLC0415

            command, given = find(text.rstrip())
            await command.does(talk, given.strip())
        else:
            try:
                await talk.say(text.strip(), _tell)
            finally:
                click.echo()
    except RectoError as error:
        err.print("recto: ", style="red", end="", markup=False)
        err.print(safe(str(error)), markup=False, soft_wrap=True)
    await talk.look()


async def _unless_cancelled(work: Coroutine[Any, Any, None]) -> None:
    """Something that Ctrl-C stops, without stopping the chat."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        out.print("cancelled; what came so far is kept", style="dim")
    finally:
        # Not taken away: between two tasks Ctrl-C would end the program.
        loop.add_signal_handler(signal.SIGINT, lambda: None)


def _tell(piece: str) -> None:
    click.echo(safe(piece), nl=False)


Styled: TypeAlias = list[tuple[str, str]]
"""Pieces of a line: the class of a style, and a text that cannot act on a terminal."""

_CELLS = 10
_BETWEEN = " · "


def gauge(now: SessionOverview | None, *, recalled: int, model: str, session: str, width: int) -> Styled:
    """What there is room for, the most important first; the zone is a word and not only a colour."""
    parts = [*(_pressure(now, recalled) if now else [[("", "nothing was said yet")]])]
    parts += [[("", one_line(model, 40))], [("class:dim", one_line(session, 60))]]
    line: Styled = [("", " ")]
    for part in parts:
        longer = [*line, *([("class:dim", _BETWEEN)] if len(line) > 1 else []), *part]
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

    def __init__(self, talk: ChatClient) -> None:
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

    def __init__(self, talk: ChatClient) -> None:
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
