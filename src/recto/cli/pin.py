"""Commands for single messages: pin, unpin, judge."""

from __future__ import annotations

import click

from recto.cli._common import session_option
from recto.cli.compact import open_existing_session
from recto.cli.console import err, print_json
from recto.config import Settings
from recto.engine.views.models import stored_event
from recto.errors import InputError
from recto.recall.types import VERDICTS, Verdict
from recto.transcript.entries import Entry

_json_option = click.option("--json", "as_json", is_flag=True, help="The event as one JSON object.")


@click.command("pin")
@click.argument("entries", metavar="SEQ...", nargs=-1, required=True, type=click.IntRange(1))
@session_option()
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
    with open_existing_session(settings, session) as opened:
        _print_event(opened.pin(*entries), entries, "pinned", as_json)


@click.command("unpin")
@click.argument("entries", metavar="SEQ...", nargs=-1, required=True, type=click.IntRange(1))
@session_option()
@_json_option
@click.pass_obj
def unpin_command(settings: Settings, entries: tuple[int, ...], session: str | None, as_json: bool) -> None:
    """Lets pinned messages leave the prompt again when it needs room.

    \b
    Examples:
      recto unpin 12
      recto unpin 12 40 --session agent:default:main
    """
    with open_existing_session(settings, session) as opened:
        pinned = opened.window.state.pins
        if unpinned := [seq for seq in entries if seq not in pinned]:
            listed = ", ".join(map(str, sorted(pinned)[:20])) or "none"
            raise InputError(f"entry {unpinned[0]} is not pinned; pinned are: {listed}. Nothing was changed")
        _print_event(opened.unpin(*entries), entries, "unpinned", as_json)


@click.command("judge")
@click.argument("pointer", metavar="SEQ|POINTER")
@click.argument("verdict", type=click.Choice(VERDICTS))
@session_option()
@_json_option
@click.pass_obj
def judge_command(settings: Settings, pointer: str, verdict: Verdict, session: str | None, as_json: bool) -> None:
    """Stores whether a recalled message was helpful: later searches rank it higher or lower.

    \b
    Examples:
      recto recall "which database did we choose"
      recto judge 12 helpful
      recto judge recto://agent:default:main/40 not_helpful
      recto judge 12 withdrawn
    """
    with open_existing_session(settings, session) as opened:
        event = opened.window.judge_recall(int(pointer) if pointer.isdecimal() else pointer, verdict)
        if as_json:
            print_json(stored_event(event, f"Judged: {verdict.replace('_', ' ')}.", str))
        else:
            err.print(f"judged {verdict.replace('_', ' ')} (entry {event.seq})", markup=False)


def _print_event(event: Entry, entries: tuple[int, ...], done: str, as_json: bool) -> None:
    if as_json:
        pinned = ", ".join(map(str, sorted(set(entries))))
        print_json(stored_event(event, f"{done.title()}: {pinned}.", str), entries=sorted(set(entries)))
    else:
        listed = ", ".join(f"entry {seq}" for seq in sorted(set(entries)))
        err.print(f"{done}: {listed} (entry {event.seq}); 'recto context list' shows the prompt", markup=False)
