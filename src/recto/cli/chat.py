"""`recto chat`: a conversation through a gateway, at a terminal and in pipes.

Whatever comes from a model or a transcript is made harmless character by character, so that an escape that comes in two
pieces is as harmless as one that comes in one.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Coroutine
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from recto.cli.completing import models, sessions
from recto.cli.extras import CLIENT, GATEWAY, need
from recto.cli.screen import err, out, safe
from recto.core.entries import session_key
from recto.errors import RectoError
from recto.settings import Settings

if TYPE_CHECKING:
    from recto.cli.conversation import Conversation
    from recto.gateway.nearby import Reached

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
    from recto.gateway.nearby import nearby  # noqa: PLC0415  # only for who has the packages

    settings = replace(settings, session=session_key(session or settings.session))
    own = "" if url and not session else settings.session
    with nearby(settings, url, key, name="recto chat") as reached:
        asyncio.run(_chat(reached, own, model or "", watched=watched, as_json=as_json))


async def _chat(reached: Reached, session: str, model: str, *, watched: bool, as_json: bool) -> None:
    from recto.cli.conversation import begun  # noqa: PLC0415
    from recto.gateway.client import Client  # noqa: PLC0415

    client = Client(reached.url, reached.key)
    try:
        talk = await begun(client, session, model)
        await (_at_a_terminal(talk) if watched else _in_a_pipe(talk, as_json=as_json))
    finally:
        await client.close()


async def _in_a_pipe(talk: Conversation, *, as_json: bool) -> None:
    """Each line is a message."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        if not (text := line.strip()):
            continue
        turn = await talk.say(text, (lambda piece: None) if as_json else _tell)
        if as_json:
            click.echo(json.dumps(asdict(turn)))
        else:
            click.echo()


async def _at_a_terminal(talk: Conversation) -> None:
    from recto.cli.slash import Quit  # noqa: PLC0415
    from recto.cli.typing_in import Typing  # noqa: PLC0415

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


async def _acted(talk: Conversation, text: str) -> None:
    """Does what was typed: a command, or a message. What goes wrong is told, and the chat goes on."""
    try:
        if text.startswith("/"):
            from recto.cli.slash import find  # noqa: PLC0415

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
