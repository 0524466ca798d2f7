"""Commands for the gateway's API keys: keys add, keys list, keys limit, keys revoke."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import cast

import click
from rich.table import Column, Table
from rich.text import Text

from recto.cli._lazy_group import SpellingGroup
from recto.cli.console import err, format_time, out, print_json, safe
from recto.config import Settings
from recto.config.factory import SystemClock, open_store
from recto.gateway.api_keys import RIGHTS, Key, Keys, Right
from recto.gateway.budgets import Budgets, Spending
from recto.tokens.model_registry import Registry
from recto.transcript.session_keys import TenantStore

_DAY = 24 * 60 * 60 * 1_000_000


@click.group("keys", cls=SpellingGroup)
def keys_command() -> None:
    """Makes, shows and revokes keys of the gateway.

    \b
    Examples:
      recto keys add laptop
      recto keys list
      recto keys revoke 3f1c9a0b2d4e
    """


@keys_command.command("add")
@click.argument("name")
@click.option("--right", "rights", multiple=True, type=click.Choice(RIGHTS), help="What it may do. [default: ask]")
@click.option("--tenant", metavar="NAME", help="Tenant whose sessions it sees. [default: that of the settings]")
@click.option(
    "--agent", default="default", show_default=True, metavar="NAME", help="Agent that its requests belong to."
)
@click.option("--upstream", default="", metavar="NAME", help="The only upstream it may ask.")
@click.option(
    "--path",
    "paths",
    multiple=True,
    metavar="PREFIX",
    help="A path that is passed on to the upstream, such as /v1/files. [default: those where a provider keeps nothing]",
)
@click.option("--profile", default="", metavar="NAME", help="The budget's profile.")
@click.option("--rpm", type=click.IntRange(0), default=0, metavar="N", help="Requests a minute. [default: no limit]")
@click.option("--concurrency", type=click.IntRange(0), default=0, metavar="N", help="Requests at once.")
@click.option("--body-bytes", type=click.IntRange(0), default=0, metavar="N", help="Largest request.")
@click.option("--tokens-per-day", type=click.IntRange(0), default=0, metavar="N", help="Tokens in a day, in UTC.")
@click.option("--dollars-per-day", type=click.FloatRange(0), default=0.0, metavar="X", help="Their price, where known.")
@click.option("--expires-days", type=click.IntRange(1, 36_500), metavar="N", help="When it ends. [default: never]")
@click.option(
    "--canonical/--own-session",
    default=False,
    show_default=True,
    help="Whether a request without tools, history and a session's name joins the agent's main session, or opens one.",
)
@click.option(
    "--new-windows/--no-new-windows",
    default=None,
    help="Whether models get the tools for new windows. [default: as gateway.new_windows]",
)
@click.option("--json", "as_json", is_flag=True, help="The key and its secret as one JSON object.")
@click.pass_obj
def add_command(
    settings: Settings,
    /,
    name: str,
    rights: tuple[str, ...],
    tenant: str | None,
    expires_days: int | None,
    as_json: bool,
    **options: object,
) -> None:
    """Makes a key. Its secret is shown now and never again: only a hash of it is kept.

    Without a terminal, the secret is all that is printed to standard output. A key for an agent should only
    `ask`: with `change` it could approve what it proposes to remember.

    \b
    Examples:
      recto keys add laptop
      recto keys add ci --tenant acme --rpm 60 --expires-days 30
      recto keys add intern --tokens-per-day 2000000 --dollars-per-day 10
      recto keys add batches --upstream openai --path /v1/files --path /v1/batches
      recto keys add operator --right ask --right read --right change
    """
    clock = SystemClock()
    limits = {("requests_per_minute" if option == "rpm" else option): value for option, value in options.items()}
    requested = Key(
        name=name,
        rights=frozenset(cast(tuple[Right, ...], rights) or ("ask",)),
        tenant=settings.tenant if tenant is None else tenant,
        expires=clock.now() + expires_days * _DAY if expires_days else 0,
        **limits,  # type: ignore[arg-type]  # options of the same names and types
    )
    with closing(open_store(settings)) as store:
        key, secret = Keys(store, clock).add(requested)
    if as_json:
        print_json(key, rights=_rights(key), secret=secret)
        return
    click.echo(secret)
    console = err if not out.is_terminal else out
    console.print(f"This is the secret of key {key.id}, '{safe(key.name)}'. It is not shown again.", markup=False)


@keys_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_obj
def list_command(settings: Settings, as_json: bool) -> None:
    """Lists all keys that were ever made, without their secrets, and what those with a budget have used today.

    \b
    Examples:
      recto keys list
      recto keys list --json | jq -r .id
    """
    clock = SystemClock()
    card = partial(Registry(overrides=settings.models).card, warn=False)
    with closing(open_store(settings, create=False)) as store:
        keys = Keys(store, clock).list()
        budgets = Budgets(lambda key: TenantStore(store, key.tenant), clock, card)
        used = {key.id: budgets.today(key) for key in keys if key.has_budget}
    names = ("name", "rights", "tenant", "agent", "limits", "used today")
    table = Table(
        Column("id", no_wrap=True, min_width=12),  # 'recto keys revoke' takes it whole
        *(Column(name, overflow="fold") for name in names),
        Column("state", min_width=7),
    )
    for key in keys:
        if as_json:
            print_json(key, rights=_rights(key), **_used_fields(used.get(key.id)))
        else:
            texts = (key.name, " ".join(_rights(key)), key.tenant, key.agent, _limits(key), _used(used.get(key.id)))
            table.add_row(key.id, *(Text(safe(text)) for text in texts), _state(key, clock.now()))
    if not as_json:
        out.print(table if keys else "There are no keys yet. 'recto keys add NAME' makes one.")


@keys_command.command("limit")
@click.argument("id")
@click.option("--rpm", "requests_per_minute", type=click.IntRange(0), metavar="N", help="Requests a minute.")
@click.option("--concurrency", type=click.IntRange(0), metavar="N", help="Requests at once.")
@click.option("--body-bytes", type=click.IntRange(0), metavar="N", help="Largest request.")
@click.option("--tokens-per-day", type=click.IntRange(0), metavar="N", help="Tokens in a day, in UTC.")
@click.option("--dollars-per-day", type=click.FloatRange(0), metavar="X", help="Their price, where known.")
@click.option("--new-windows/--no-new-windows", default=None, help="Whether models get the tools for new windows.")
@click.option("--json", "as_json", is_flag=True, help="The key as one JSON object.")
@click.pass_obj
def limit_command(settings: Settings, /, id: str, as_json: bool, **limits: float | None) -> None:
    """Changes limits of a key, for every gateway on this store, from its next request on. 0: no limit.

    \b
    Examples:
      recto keys limit 3f1c9a0b2d4e --tokens-per-day 5000000
      recto keys limit 3f1c9a0b2d4e --new-windows
      recto keys limit 3f1c9a0b2d4e --dollars-per-day 0
    """
    given = {name: value for name, value in limits.items() if value is not None}
    if not given:
        raise click.UsageError("name at least one limit, such as --tokens-per-day")
    with closing(open_store(settings, create=False)) as store:
        key = Keys(store, SystemClock()).limit(id, given)
    if as_json:
        print_json(key, rights=_rights(key))
    else:
        out.print(f"{key.id}, '{safe(key.name)}': {_limits(key) or 'no limits'}", markup=False)


@keys_command.command("revoke")
@click.argument("id")
@click.option("--json", "as_json", is_flag=True, help="The key as one JSON object.")
@click.pass_obj
def revoke_command(settings: Settings, id: str, as_json: bool) -> None:
    """Ends a key for good, for every gateway on this store, from its next request on.

    \b
    Examples:
      recto keys revoke 3f1c9a0b2d4e
    """
    with closing(open_store(settings, create=False)) as store:
        key = Keys(store, SystemClock()).revoke(id)
    if as_json:
        print_json(key, rights=_rights(key))
    else:
        out.print(f"{key.id}, '{safe(key.name)}': revoked", markup=False)


def _rights(key: Key) -> list[str]:
    return [right for right in RIGHTS if right in key.rights]


def _limits(key: Key) -> str:
    limits = []
    if key.requests_per_minute:
        limits.append(f"{key.requests_per_minute:,} a minute")
    if key.concurrency:
        limits.append(f"{key.concurrency:,} at once")
    if key.body_bytes:
        limits.append(f"{key.body_bytes:,} bytes")
    if key.tokens_per_day:
        limits.append(f"{key.tokens_per_day:,} tokens a day")
    if key.dollars_per_day:
        limits.append(f"{key.dollars_per_day:,.2f} dollars a day")
    if key.new_windows is not None:
        limits.append("new windows" if key.new_windows else "no new windows")
    limits += key.paths
    return ", ".join(limits)


def _used(spent: Spending | None) -> str:
    if spent is None:
        return ""
    unpriced = f" ({spent.unpriced:,} tokens without a price)" if spent.unpriced else ""
    return f"{spent.tokens:,} tokens, {spent.dollars:,.2f} dollars{unpriced}"


def _used_fields(spent: Spending | None) -> dict[str, float]:
    if spent is None:
        return {}
    return {"tokens_today": spent.tokens, "dollars_today": spent.dollars, "unpriced_tokens_today": spent.unpriced}


def _state(key: Key, now: int) -> str:
    if key.revoked:
        return "revoked"
    if not key.is_live(now):
        return "expired"
    return f"until {format_time(key.expires)}" if key.expires else "in use"
