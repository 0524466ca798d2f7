"""The command that begins a second session as a copy of a first: fork."""

from __future__ import annotations

import json
from contextlib import closing

import click

from recto.cli.completing import sessions
from recto.cli.screen import out, progress, safe
from recto.cli.transcripts import known_session
from recto.core.scopes import stored_key
from recto.engine.forking import fork
from recto.settings import Settings
from recto.storing import open_store
from recto.wiring import SystemClock


@click.command("fork")
@click.argument("source", shell_complete=sessions)
@click.argument("target")
@click.option("--at", type=click.IntRange(1), metavar="N", help="Copy up to entry N. [default: all of it]")
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
@click.pass_obj
def fork_command(settings: Settings, source: str, target: str, at: int | None, as_json: bool) -> None:
    """Begins a session as a copy of another, to try something else from there.

    Both record where they parted, and neither is changed by what happens in the other. A fork that was cut off goes on
    where it ended when it is asked for again.

    \b
    Examples:
      recto fork agent:default:main agent:default:other-way
      recto fork agent:default:main agent:default:before --at 40
    """
    with closing(open_store(settings, create=False)) as store:
        key = known_session(store, stored_key(source, settings.tenant) if settings.tenant else source)
        copy = stored_key(target, settings.tenant) if settings.tenant else target
        with progress(f"copying {key}", at or store.head(key).seq) as advance:
            entry = fork(store, key, copy, clock=SystemClock(), at=at, tell=advance)
    if as_json:
        click.echo(json.dumps({"session": copy, "source": key, "entries": entry.seq - 1}))
    else:
        out.print(f"{safe(copy)}: {entry.seq - 1:,} entries as in {safe(key)}", markup=False, soft_wrap=True)
