"""Commands for a complete store: store copy, erase, upgrade, grant; and the erasure of sessions: session rm."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace

import click

from recto.cli._common import require_answer
from recto.cli._lazy_group import SpellingGroup
from recto.cli.completion import complete_sessions
from recto.cli.console import err, out, print_json, progress, safe
from recto.config import Settings
from recto.config.factory import (
    SystemClock,
    derived_folders,
    grant_role,
    open_index,
    open_store,
    upgrade_database,
    uses_postgres,
)
from recto.engine.erasure import Eraser, Erasure, erasable_sessions
from recto.engine.store_copy import copy_store, count_entries
from recto.engine.views.codec import to_builtins
from recto.errors import SettingsError, UnknownSession
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import is_internal, operator_key

_VACUUM_NOTE = (
    "Until it is written over, a database keeps bytes of removed rows in the gaps of its tables: --vacuum writes the "
    "parts that held them. Its log, replicas and backups are its own: see docs/postgres.md."
)


@click.group("store", cls=SpellingGroup)
def store_command() -> None:
    """Moves a store, and looks after one in a database.

    \b
    Examples:
      recto store copy postgresql://recto@db/recto
      recto --store postgresql://recto@db/recto store copy backup.db
      recto store erase --tenant acme --reason "contract ended"
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
    again, so a copy that was cut off goes on when it is asked for again, and so does one of a store that grew. A
    session that is damaged is copied up to the damage, and all others whole; the command then ends with an error. The
    index of recall is not copied: the next use, or `recto index`, rebuilds it.

    \b
    Examples:
      recto store copy postgresql://recto@db/recto
      recto --store postgresql://recto@db/recto store copy backup.db --json
    """
    if target == settings.store:
        raise SettingsError("store", "a store cannot be copied onto itself; name another target")
    with (
        closing(open_store(settings, create=False)) as source,
        closing(open_store(replace(settings, store=target))) as other,
    ):
        count = new = 0
        with progress(f"copying to {other.location}", count_entries(source)) as advance:
            for session_copy in copy_store(source, other, advance=advance):
                if not is_internal(session_copy.session):
                    count, new = count + 1, new + session_copy.new
                if as_json:
                    out.print(json.dumps(to_builtins(session_copy)), markup=False, soft_wrap=True)
        if not as_json:
            sessions, entries = "session" if count == 1 else "sessions", "entry" if new == 1 else "entries"
            line = f"{count:,} {sessions}, {new:,} new {entries}; every chain ends as in {source.location}"
            out.print(safe(line), markup=False, soft_wrap=True)


def _erasing(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that every erasure has."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="One JSON object a session."),
        click.option("--vacuum", is_flag=True, help="In a database: rewrite the parts that held them now."),
        click.option("--yes", is_flag=True, help="Erase without asking."),
        click.option("--by", default="", metavar="NAME", help="Who requests it. [default: your user name]"),
        click.option("--reason", required=True, metavar="TEXT", help="Why; it is kept, with your name."),
    ):
        command = option(command)
    return command


@store_command.command("erase")
@click.option("--tenant", required=True, metavar="NAME", help="The tenant.")
@_erasing
@click.pass_obj
def erase_command(
    settings: Settings, /, tenant: str, reason: str, by: str, yes: bool, vacuum: bool, as_json: bool
) -> None:
    """Removes everything of a tenant for good: sessions, memory, index, checkpoints. It cannot be undone.

    What stays is a record of each session: how many entries, the hash of the last, who and why
    (`recto audit --erased`). `recto session rm` erases single sessions.

    \b
    Examples:
      recto store erase --tenant acme --reason "contract ended" --yes
      recto --store postgresql://owner@db/recto store erase --tenant acme --reason "contract ended" --vacuum
    """
    with closing(open_store(settings, create=False)) as store:
        names = erasable_sessions(store, tenant)
        _erase(settings, store, names, tenant, reason=reason, by=by, yes=yes, vacuum=vacuum, as_json=as_json)


@click.command("rm")
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION...", shell_complete=complete_sessions)
@_erasing
@click.pass_obj
def rm_command(
    settings: Settings, /, sessions: tuple[str, ...], reason: str, by: str, yes: bool, vacuum: bool, as_json: bool
) -> None:
    """Removes whole sessions for good: transcript, index, checkpoints. It cannot be undone.

    What stays is a record: which session, how many entries, the hash of the last, who and why (`recto audit --erased`).
    The file of the store is rewritten without them; in a database that takes `--vacuum`, and the role that owns the
    tables. An erasure that was interrupted is finished when it is requested again.

    \b
    Examples:
      recto session rm agent:default:main --reason "asked for by the user"
      recto session rm agent:default:a agent:default:b --reason "tests" --yes
    """
    with closing(open_store(settings, create=False)) as store:
        names = [_stored(settings, name) for name in sessions]
        _erase(settings, store, names, "", reason=reason, by=by, yes=yes, vacuum=vacuum, as_json=as_json)


def _erase(  # noqa: PLR0913  # one parameter for each option
    settings: Settings,
    store: TranscriptStore,
    names: list[str],
    tenant: str,
    *,
    reason: str,
    by: str,
    yes: bool,
    vacuum: bool,
    as_json: bool,
) -> None:
    with closing(open_index(settings, store)) as index:
        eraser = Eraser(store=store, index=index, clock=SystemClock(), by=by or getpass.getuser(), reason=reason)
        if not yes:
            _confirm(tenant, names)
        with progress("erasing", len(names)) as advance:
            for erasure in eraser.erase(names):
                _print_erasure(erasure, as_json)
                advance(1)
        scrub = vacuum or not uses_postgres(settings)
        eraser.clean_up(names, derived_folders(settings, store, names, tenant), scrub=scrub)
        if not scrub:
            err.print(_VACUUM_NOTE, markup=False)


def _stored(settings: Settings, name: str) -> str:
    key = operator_key(name, settings.tenant)
    if is_internal(key):
        raise UnknownSession(key)
    return key


def _confirm(tenant: str, names: Sequence[str]) -> None:
    """Asks the user to type what will be erased; anything else refuses."""
    expected = tenant or (names[0] if len(names) == 1 else f"{len(names)} sessions")
    what = f"{len(names):,} sessions of tenant {tenant}" if tenant else expected
    question = safe(f"{what}: erased for good. Type '{expected}' to go on")
    with require_answer():
        typed = click.prompt(question, default="", show_default=False)
    if typed != expected:
        raise click.UsageError("the typed name does not match; nothing was erased")


def _print_erasure(erasure: Erasure, as_json: bool) -> None:
    if as_json:
        print_json(erasure)
    else:
        line = f"{erasure.session}: {erasure.entries:,} entries erased, the last was {erasure.hash}"
        out.print(safe(line), markup=False, soft_wrap=True)


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
@click.option("--new-key", is_flag=True, help="Replace the role's store key; the old one opens nothing from now on.")
@click.pass_obj
def grant_command(settings: Settings, role: str, new_key: bool) -> None:
    """Gives a role of the database what a gateway needs, and no more: it adds, and can neither change nor remove.

    The role is there already; the store's address names the owner of its tables. The first grant prints a store key,
    once: gateways that connect as this role need it as `RECTO_STORE_KEY`. Without it the role opens no tenant.

    \b
    Examples:
      recto --store postgresql://owner@db/recto store grant recto_gateway
      recto --store postgresql://owner@db/recto store grant recto_gateway --new-key
    """
    key = grant_role(settings, role, new_key=new_key)
    err.print(safe(f"{role} may add to the store, read it, and keep its index"), markup=False, soft_wrap=True)
    if key:
        out.print(f"RECTO_STORE_KEY={key}", markup=False, soft_wrap=True)
    else:
        err.print("its store key is the one that was printed before; --new-key replaces it", markup=False)
