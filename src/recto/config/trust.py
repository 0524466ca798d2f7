"""Trust in settings files that lie in working folders.

A working folder may come from a stranger: a cloned repository, an unpacked archive. Its `recto.yaml` may set only
`FOLDER_SETTINGS`. Anything else needs the user's own file, an environment variable, `--config`, or an entry in the
user's list of trusted files. An entry holds the hash of the file, so a file that changes has to be trusted again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from recto.config.settings import FOLDER_SETTINGS, Settings
from recto.errors import SettingsError

SETTINGS_FILE = "recto.yaml"
"""The name of the settings file of a working folder."""
TRUSTED_FILES = "~/.recto/trusted.json"
"""The user's list: resolved paths of settings files, and the hash of each."""


def beyond_folder(tree: Mapping[str, Any]) -> list[str]:
    """Return the settings of a tree that a working folder may not set, in their order."""
    return [name for name in _names(Settings(), tree, "") if name not in FOLDER_SETTINGS]


def check_folder_file(file: Path, content: bytes, tree: Mapping[str, Any]) -> None:
    """Raise `SettingsError` if a file of a working folder sets more than it may and is not trusted as it is."""
    refused = beyond_folder(tree)
    if not refused:
        return
    trusted = trusted_files().get(str(file.resolve()))
    if trusted == digest(content):
        return
    more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    changed = ", which changed since it was trusted," if trusted else ""
    raise SettingsError(
        refused[0],
        f"'{file.absolute()}'{changed} may not set it{more}: a file in a working folder may choose only the window, "
        "budgets, the mode and the session. Read the file; if you trust it, run "
        f"'recto trust {shlex.quote(str(file.absolute().parent))}'",
    )


def trusted_files() -> dict[str, str]:
    """Return the hash of each trusted file, by its resolved path. A list that cannot be read trusts nothing."""
    try:
        found = json.loads(_list_path().read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {path: known for path, known in found.items() if isinstance(known, str)}


def trust_file(file: Path, content: bytes) -> None:
    """Trust a settings file as it is: with these bytes."""
    _write({**trusted_files(), str(file.resolve()): digest(content)})


def distrust_file(file: Path) -> bool:
    """Remove a file from the list; return whether it was in it."""
    files = trusted_files()
    if files.pop(str(file.resolve()), None) is None:
        return False
    _write(files)
    return True


def digest(content: bytes) -> str:
    """Return the hash of the content of a file."""
    return hashlib.sha256(content).hexdigest()


def _names(node: object, tree: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the settings that a tree sets. Unknown keys are left to the loader, which names the nearest known one."""
    for key, value in tree.items():
        current = getattr(node, key, None) if key in getattr(node, "__dataclass_fields__", ()) else None
        if is_dataclass(current) and isinstance(value, Mapping):
            yield from _names(current, value, f"{path}{key}.")
        elif current is not None:
            yield f"{path}{key}"


def _list_path() -> Path:
    return Path(TRUSTED_FILES).expanduser()


def _write(files: Mapping[str, str]) -> None:
    path = _list_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".trusted.")  # readable for its owner alone
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(files, file, indent=1)
            file.write("\n")
        Path(name).replace(path)
    except OSError as error:
        raise SettingsError("config", f"'{path}' cannot be written ({error.strerror})") from None
