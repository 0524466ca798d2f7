"""`recto config`: the effective settings, and where each value comes from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.text import Text

from recto.cli.completion import complete_keys, nearest_key
from recto.cli.console import err, out, safe
from recto.config import FILES, Settings, settings_files
from recto.config.loader import read_layers
from recto.config.sources import Setting, all_settings, one_line_yaml
from recto.errors import SettingsError

EXIT_FOUND = 1
_COMMENT_AT = 46
"""Column of the comment on where a value comes from."""


@click.command("config")
@click.argument("key", required=False, shell_complete=complete_keys)
@click.option("--path", "only_path", is_flag=True, help="Only the files of settings that are read.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a setting.")
@click.pass_context
def config_command(context: click.Context, key: str | None, only_path: bool, as_json: bool) -> None:
    """Shows the settings that hold, and where each value comes from; what is secret only as set or unset.

    With KEY it shows one setting, the bare value, or a group of them. Without files of settings --path ends with 1.

    \b
    Examples:
      recto config
      recto config window
      recto config window.mode
      recto config --json | jq 'select(.origin != "default")'
      recto config --path
    """
    settings: Settings = context.obj
    options = context.find_root().params
    if only_path:
        _show_path(context, options.get("config"))
        return
    layers = read_layers(path=options.get("config"), arguments={"store": options.get("store")})
    for layer in layers:
        for note in layer.translation.notes:
            err.print(safe(note), markup=False, soft_wrap=True)
    settings_list = all_settings(settings, layers)
    matches = [
        setting for setting in settings_list if key is None or setting.key == key or setting.key.startswith(f"{key}.")
    ]
    if not matches:
        raise SettingsError(key or "", "there is no such setting", nearest_key(key or ""))
    if as_json:
        for setting in matches:
            click.echo(json.dumps(asdict(setting)))
    elif key is not None and matches[0].key == key:
        _show_value(matches[0].value)
    else:
        _show_tree(matches)


def _show_path(context: click.Context, path: str | None) -> None:
    files = settings_files(path)
    if not files:
        err.print(f"there is no file of settings; these are looked for: {', '.join(FILES)}", markup=False)
        context.exit(EXIT_FOUND)
    for file in files:
        click.echo(str(file.absolute()))


def _show_value(value: Any) -> None:  # noqa: ANN401  # any value of the tree
    click.echo(safe(str(value)) if isinstance(value, str) else safe(one_line_yaml(value)))


def _show_tree(settings: Sequence[Setting]) -> None:
    """Prints the settings as YAML that can be read again, except for secrets; comments say where values come from."""
    parents: list[str] = []
    for setting in settings:
        *groups, name = setting.key.split(".")
        for depth, group in enumerate(groups):
            if parents[depth : depth + 1] != [group]:
                del parents[depth:]
                out.print(Text(f"{'  ' * depth}{group}:"))
                parents.append(group)
        del parents[len(groups) :]
        shown = f"{'  ' * len(groups)}{name}: {safe(one_line_yaml(setting.value))}"
        line = f", line {setting.line}" if setting.line else ""
        name = f" ({setting.given_as})" if setting.given_as else ""
        origin = f"# {setting.origin}{f' {safe(setting.where + line + name)}' if setting.where else ''}"
        style = "dim" if setting.origin == "default" else "bold"
        out.print(Text.assemble((shown.ljust(_COMMENT_AT), ""), ("  ", ""), (origin, style)), soft_wrap=True)
