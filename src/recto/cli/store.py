"""Commands about a store as a whole: store copy, store upgrade, store grant."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict, replace

import click

from recto.cli.screen import out, progress, safe
from recto.engine.copying import copy, size_of
from recto.errors import SettingsError
from recto.settings import Settings
from recto.storing import grant, open_store, upgrade_database


@click.group("store")
def store_command() -> None:
    """Moves a store, and looks after one in a database.

    \b
    Examples:
      recto store copy postgresql://recto@db/recto
      recto --store postgresql://recto@db/recto store copy backup.db
      recto --store postgresql://owner@db/recto store upgrade
      recto --store postgresql://owner@db/recto store grant recto_gateway
    """


@store_command.command("copy")
@click.argument("target")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a session.")
@click.pass_obj
def copy_command(settings: Settings, target: str, as_json: bool) -> None:
    """Copies every session into another store, a file or a database, entry by entry as they are.

    Numbers, times, ids and hashes stay, and both ends of every chain are compared. What was copied before is not copied
    again, so a copy that was cut off goes on when it is asked for again, and so does one of a store that grew. The
    index of recall is not copied: the next use, or `recto index`, makes it anew.

    \b
    Examples:
      recto store copy postgresql://recto@db/recto
      recto --store postgresql://recto@db/recto store copy backup.db --json
    """
    if target == settings.store:
        raise SettingsError("store", "a store is not copied onto itself; name another target")
    with (
        closing(open_store(settings, create=False)) as source,
        closing(open_store(replace(settings, store=target))) as other,
    ):
        count = new = 0
        with progress(f"copying to {other.location}", size_of(source)) as advance:
            for done in copy(source, other, tell=advance):
                count, new = count + 1, new + done.new
                if as_json:
                    out.print(json.dumps(asdict(done)), markup=False, soft_wrap=True)
        if not as_json:
            said = f"{count:,} sessions, {new:,} new entries; every chain ends as in {source.location}"
            out.print(safe(said), markup=False, soft_wrap=True)


@store_command.command("upgrade")
@click.option("--finish", is_flag=True, help="No older Recto uses it any more: take away what only they need.")
@click.pass_obj
def upgrade_command(settings: Settings, finish: bool) -> None:
    """Brings a database to the schema of this Recto, while an older one goes on serving.

    Run it before the new version serves, and again with `--finish` when the last old one is gone. One at a time does
    it, the others wait; each step is carried out whole or not at all. A file needs no such command: it is upgraded when
    it is opened.

    \b
    Examples:
      recto --store postgresql://owner@db/recto store upgrade
      recto --store postgresql://owner@db/recto store upgrade --finish
    """
    steps = upgrade_database(settings, finish=finish)
    for step in steps or ["nothing to do: the schema is that of this Recto"]:
        out.print(step, markup=False)


@store_command.command("grant")
@click.argument("role")
@click.pass_obj
def grant_command(settings: Settings, role: str) -> None:
    """Gives a role of the database what a gateway needs, and no more: it adds, and can neither change nor remove.

    The role is there already; the store's address names the owner of its tables.

    \b
    Examples:
      recto --store postgresql://owner@db/recto store grant recto_gateway
    """
    grant(settings, role)
    out.print(safe(f"{role} may add to the store, read it, and keep its index"), markup=False, soft_wrap=True)
