"""`recto chat`: a conversation through a gateway, at a terminal and in pipes.

Text of a model or a transcript is made safe character by character, so an escape sequence that arrives in two pieces is
as harmless as one that arrives in one.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from recto.cli._common import CLIENT_PACKAGES, GATEWAY_PACKAGES, SCREENS_EXTRA, require_packages, session_option
from recto.cli.completion import complete_models
from recto.cli.console import err, out, print_json, safe
from recto.config import Settings
from recto.config.factory import make_embedded_model
from recto.errors import RectoError
from recto.transcript.entries import session_key

if TYPE_CHECKING:
    from recto.cli._conversation import ChatClient
    from recto.gateway.client import GatewayAddress


@click.command("chat")
@session_option()
@click.option(
    "--model", metavar="NAME", shell_complete=complete_models, help="Ask this model. [default: the gateway's]"
)
@click.option("--url", default="", metavar="URL", help="A running gateway. [default: its own, on this store]")
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
    interactive = not as_json and sys.stdin.isatty() and out.is_terminal
    require_packages(
        "chat",
        [*(CLIENT_PACKAGES if url else GATEWAY_PACKAGES), *(["prompt_toolkit"] if interactive else [])],
        SCREENS_EXTRA,
    )
    from recto.gateway.client import connect_gateway  # noqa: PLC0415  # the packages are optional

    if not url and not settings.gateway.upstreams:
        make_embedded_model(settings)  # raises, with the cure, where it is not installed
    settings = replace(settings, session=session_key(session or settings.session))
    named_session = "" if url and not session else settings.session
    with connect_gateway(settings, url, key, name="recto chat") as reached:
        asyncio.run(_chat(reached, named_session, model or "", interactive=interactive, as_json=as_json))


async def _chat(reached: GatewayAddress, session: str, model: str, *, interactive: bool, as_json: bool) -> None:
    from recto.cli._conversation import start_conversation  # noqa: PLC0415
    from recto.gateway.client import GatewayClient  # noqa: PLC0415

    client = GatewayClient(reached.url, reached.key)
    try:
        chat = await start_conversation(client, session, model)
        await (_run_at_terminal(chat) if interactive else _run_in_pipe(chat, as_json=as_json))
    finally:
        await client.close()


async def _run_in_pipe(chat: ChatClient, *, as_json: bool) -> None:
    """Sends each line as a message."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        if not (text := line.strip()):
            continue
        exchange = await chat.send(text, (lambda piece: None) if as_json else _print_piece)
        if as_json:
            print_json(exchange)
        else:
            click.echo()


async def _run_at_terminal(chat: ChatClient) -> None:
    from recto.cli._chat_input import InputLine  # noqa: PLC0415  # needs prompt_toolkit
    from recto.cli._slash_commands import Quit  # noqa: PLC0415

    line = InputLine(chat)
    out.print(safe(f"{chat.model} in {chat.session}. /help lists commands, Ctrl-D leaves."), markup=False)
    while True:
        try:
            text = await line.next()
            if text.strip():
                await _unless_cancelled(_handle_input(chat, text))
        except KeyboardInterrupt:
            out.print("Ctrl-D or /quit leaves.", style="dim")
        except (EOFError, Quit):
            return


async def _handle_input(chat: ChatClient, text: str) -> None:
    """Runs a command or sends a message. Errors are printed, and the chat goes on."""
    try:
        if text.startswith("/"):
            from recto.cli._slash_commands import parse_command  # noqa: PLC0415

            command, argument = parse_command(text.rstrip())
            await command.run(chat, argument.strip())
        else:
            try:
                await chat.send(text.strip(), _print_piece)
            finally:
                click.echo()
    except RectoError as error:
        err.print("recto: ", style="red", end="", markup=False)
        err.print(safe(str(error)), markup=False, soft_wrap=True)
    await chat.refresh()


async def _unless_cancelled(work: Coroutine[Any, Any, None]) -> None:
    """Runs something that Ctrl-C cancels, without ending the chat."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        out.print("cancelled; what came so far is kept", style="dim")
    finally:
        # Not removed: between two tasks Ctrl-C would end the program.
        loop.add_signal_handler(signal.SIGINT, lambda: None)


def _print_piece(piece: str) -> None:
    click.echo(safe(piece), nl=False)
