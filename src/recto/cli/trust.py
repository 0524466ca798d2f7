"""`recto trust`: the list of working folders whose settings file may set everything."""

from __future__ import annotations

from pathlib import Path

import click

from recto.cli.console import err, out, print_json, safe
from recto.config.loader import parse_settings
from recto.config.trust import SETTINGS_FILE, beyond_folder, digest, distrust_file, trust_file, trusted_files
from recto.errors import SettingsError


@click.command("trust")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--list", "as_list", is_flag=True, help="Show the files that are trusted.")
@click.option("--remove", is_flag=True, help="Trust the folder's file no longer.")
@click.option("--json", "as_json", is_flag=True, help="With --list: one JSON object a file.")
def trust_command(folder: Path | None, as_list: bool, remove: bool, as_json: bool) -> None:
    """Trusts the recto.yaml of FOLDER, the current one by default, as it is now.

    Without it, a file in a working folder may choose only the window, budgets, the mode and the session: settings that
    can send, execute or read elsewhere are refused, since a folder may come from a stranger. Read the file first. A
    file that changes has to be trusted again.

    \b
    Examples:
      recto trust
      recto trust ~/projects/parser
      recto trust --list
      recto trust --remove ~/projects/parser
    """
    if as_list:
        _show(as_json=as_json)
        return
    file = (folder or Path()) / SETTINGS_FILE
    if remove:
        if not distrust_file(file):
            raise SettingsError("config", f"'{file.absolute()}' is not trusted")
        out.print(f"no longer trusted: {safe(str(file.resolve()))}", markup=False, soft_wrap=True)
        return
    try:
        content = file.read_bytes()
    except OSError as error:
        raise SettingsError("config", f"'{file.absolute()}' cannot be read ({error.strerror})") from None
    names = beyond_folder(parse_settings(file, content).tree)
    trust_file(file, content)
    out.print(f"trusted as it is now: {safe(str(file.resolve()))}", markup=False, soft_wrap=True)
    if names:
        err.print(f"it sets {safe(', '.join(names))}", markup=False, soft_wrap=True)


def _show(*, as_json: bool) -> None:
    for path, known in sorted(trusted_files().items()):
        state = _state(Path(path), known)
        if as_json:
            print_json({"file": path, "state": state})
        else:
            out.print(f"{state:<8} {safe(path)}", markup=False, soft_wrap=True)


def _state(file: Path, known: str) -> str:
    try:
        return "trusted" if digest(file.read_bytes()) == known else "changed"
    except OSError:
        return "missing"
