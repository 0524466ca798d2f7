"""`recto acp`: a proxy between an editor and its agent that passes every byte on and stores the turns."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from typing import IO

import click

from recto.adapters.acp import AcpTurns, Stored
from recto.cli.completion import complete_models
from recto.cli.console import safe
from recto.config import Settings
from recto.config.factory import open_session, open_store
from recto.errors import RectoError
from recto.transcript.session_keys import plain_name

_SURFACE = "acp"
_SECONDS = 10.0
"""How long storing may go on after the agent has ended."""


@click.command("acp", context_settings={"ignore_unknown_options": True})
@click.option("--model", metavar="NAME", shell_complete=complete_models, help="Count tokens as this model does.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_obj
def acp_command(settings: Settings, model: str | None, command: tuple[str, ...]) -> None:
    """Starts an agent for an editor that speaks the Agent Client Protocol, and stores every turn.

    Put it before the agent's command in the editor's settings. Nothing that passes is changed, and a store that fails
    does not hold it up. Sessions are stored under the agent's own ids. Ends with the exit code of the agent.

    \b
    Examples:
      recto acp -- opencode acp
      recto --store work.db acp -- gemini --experimental-acp
    """
    stored: queue.SimpleQueue[list[Stored] | None] = queue.SimpleQueue()
    writer = threading.Thread(
        target=_store, args=(replace(settings, model=model or settings.model), stored), daemon=True
    )
    writer.start()
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603  # as asked
    except OSError as error:
        raise click.UsageError(f"'{safe(command[0])}' cannot be started: {error.strerror}") from None
    turns, lock = AcpTurns(), threading.Lock()
    if process.stdin is None or process.stdout is None:
        raise AssertionError("both are pipes")

    def taken(take: Callable[[bytes], list[Stored]]) -> Callable[[bytes], None]:
        def put(line: bytes) -> None:
            with lock:
                if messages := take(line):
                    stored.put(messages)

        return put

    forth = (sys.stdin.buffer, process.stdin, taken(turns.from_editor))
    threading.Thread(target=_pass_on, args=forth, daemon=True).start()
    _pass_on(process.stdout, sys.stdout.buffer, taken(turns.from_agent))
    code = process.wait()
    with lock:
        stored.put(turns.end())
    stored.put(None)
    writer.join(_SECONDS)
    raise SystemExit(code)


def _pass_on(source: IO[bytes], target: IO[bytes], take: Callable[[bytes], None]) -> None:
    """Passes lines on until the end, and closes the other side; each is sent before it is looked at."""
    with suppress(OSError, ValueError):  # the other side has gone
        for line in source:
            target.write(line)
            target.flush()
            take(line)
    if target is not sys.stdout.buffer:
        with suppress(OSError):
            target.close()


def _store(settings: Settings, queued: queue.SimpleQueue[list[Stored] | None]) -> None:
    """Stores messages as they come. What fails is reported once on standard error."""
    try:
        with closing(open_store(settings)) as store:
            while (messages := queued.get()) is not None:
                for name, message in messages:
                    with open_session(replace(settings, session=plain_name(name)), store) as session:
                        session.append(message, surface=_SURFACE)
    except (RectoError, OSError) as error:
        click.echo(f"recto acp: {safe(str(error))}; the rest of this connection is not stored", err=True)
