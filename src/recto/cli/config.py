"""`recto config`: the settings that hold, and where each value comes from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click
import yaml
from rich.text import Text

from recto.cli.completion import keys, nearest_key
from recto.cli.console import err, out, safe
from recto.config import FILES, Settings, settings_file
from recto.config.loader import read_layers
from recto.config.sources import Setting, all_settings
from recto.errors import SettingsError

EXIT_FOUND = 1
_COMMENT_AT = 46
"""The column from which on it is told where a value comes from."""


@click.command("config")
@click.argument("key", required=False, shell_complete=keys)
@click.option("--path", "only_path", is_flag=True, help="Only the file of settings that is read.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a setting.")
@click.pass_context
def config_command(context: click.Context, key: str | None, only_path: bool, as_json: bool) -> None:
    """Shows the settings that hold, and where each value comes from; what is secret only as set or unset.

    With KEY it shows one setting, the bare value, or a group of them. Without a file of settings --path ends with 1.

    \b
    Examples:
      recto config
      recto config window
      recto config window.mode
      recto config --json | jq 'select(.origin != "default")'
      recto config --path
    """
    settings: Settings = context.obj
    given = context.find_root().params
    if only_path:
        _show_path(context, given.get("config"))
        return
    made = all_settings(settings, read_layers(path=given.get("config"), arguments={"store": given.get("store")}))
    found = [one for one in made if key is None or one.key == key or one.key.startswith(f"{key}.")]
    if not found:
        raise SettingsError(key or "", "there is no such setting", nearest_key(key or ""))
    if as_json:
        for one in found:
            click.echo(json.dumps({"key": one.key, "value": one.value, "origin": one.origin, "where": one.where}))
    elif key is not None and found[0].key == key:
        _show_value(found[0].value)
    else:
        _show_tree(found)


def _show_path(context: click.Context, named: str | None) -> None:
    file = settings_file(named)
    if file is None:
        err.print(f"there is no file of settings; these are looked for: {', '.join(FILES)}", markup=False)
        context.exit(EXIT_FOUND)
    click.echo(str(file.absolute()))


def _show_value(value: Any) -> None:  # noqa: ANN401  # any value of the tree
    click.echo(safe(str(value)) if isinstance(value, str) else safe(_yaml(value)))


def _show_tree(found: Sequence[Setting]) -> None:
    """The settings as YAML that could be read again, secrets aside; comments say where values come from."""
    parents: list[str] = []
    for one in found:
        *groups, name = one.key.split(".")
        for depth, group in enumerate(groups):
            if parents[depth : depth + 1] != [group]:
                del parents[depth:]
                out.print(Text(f"{'  ' * depth}{group}:"))
                parents.append(group)
        del parents[len(groups) :]
        line = f"{'  ' * len(groups)}{name}: {safe(_yaml(one.value))}"
        origin = f"# {one.origin}{f' {safe(one.where)}' if one.where else ''}"
        style = "dim" if one.origin == "default" else "bold"
        out.print(Text.assemble((line.ljust(_COMMENT_AT), ""), ("  ", ""), (origin, style)), soft_wrap=True)


def _yaml(value: Any) -> str:  # noqa: ANN401
    """A value on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=100_000, allow_unicode=True, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")
