"""Commands that keep messages in the prompt by hand: pin, unpin."""

from __future__ import annotations

import click

from recto.cli.compact import opened
from recto.cli.completion import sessions
from recto.cli.console import err, print_json
from recto.config import Settings
from recto.engine.session import Session
from recto.engine.views.models import stored_event
from recto.errors import InputError
from recto.transcript.entries import MESSAGE, Entry

_session_option = click.option(
    "--session", metavar="KEY", shell_complete=sessions, help="This session. [default: the one in the settings]"
)
_json_option = click.option("--json", "as_json", is_flag=True, help="The event as one JSON object.")


@click.command("pin")
@click.argument("entries", metavar="SEQ...", nargs=-1, required=True, type=click.IntRange(1))
@_session_option
@_json_option
@click.pass_obj
def pin_command(settings: Settings, entries: tuple[int, ...], session: str | None, as_json: bool) -> None:
    """Keeps messages in the prompt until they are unpinned; those that left come back.

    \b
    Examples:
      recto recall "never touch migrations"
      recto pin 12
      recto pin 12 40 41 --session agent:default:main
    """
    with opened(settings, session) as found:
        for seq in entries:
            _message(found, seq)
        _tell(found.pin(*entries), entries, "pinned", as_json)


@click.command("unpin")
@click.argument("entries", metavar="SEQ...", nargs=-1, required=True, type=click.IntRange(1))
@_session_option
@_json_option
@click.pass_obj
def unpin_command(settings: Settings, entries: tuple[int, ...], session: str | None, as_json: bool) -> None:
    """Lets pinned messages leave the prompt again when it needs room.

    \b
    Examples:
      recto unpin 12
      recto unpin 12 40 --session agent:default:main
    """
    with opened(settings, session) as found:
        pinned = found.window.state.pins
        if strangers := [seq for seq in entries if seq not in pinned]:
            listed = ", ".join(map(str, sorted(pinned)[:20])) or "none"
            raise InputError(f"entry {strangers[0]} is not pinned; pinned are: {listed}. Nothing was changed")
        _tell(found.unpin(*entries), entries, "unpinned", as_json)


def _message(session: Session, seq: int) -> None:
    entry = next(iter(session.read(seq, seq)), None)
    if entry is None:
        raise InputError(f"there is no entry {seq} in session '{session.key}'. Nothing was changed")
    if entry.kind != MESSAGE:
        raise InputError(f"entry {seq} is an event; only messages can be pinned. Nothing was changed")


def _tell(made: Entry, entries: tuple[int, ...], done: str, as_json: bool) -> None:
    if as_json:
        several = ", ".join(map(str, sorted(set(entries))))
        print_json(stored_event(made, f"{done.title()}: {several}.", str), entries=sorted(set(entries)))
    else:
        several = ", ".join(f"entry {seq}" for seq in sorted(set(entries)))
        err.print(f"{done}: {several} (entry {made.seq}); 'recto context list' shows the prompt", markup=False)
