"""Safe edits of other programs' configuration files (MCP clients, coding agents).

A file that cannot be parsed exactly, including JSON with comments, is left unchanged. Before a change the original is
saved next to the file under another name, and the file is replaced atomically. This module does not know the contents
of any file.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recto.errors import InputError

_BACKUP_SUFFIX = ".before-recto"
_MAX_BYTES = 64 * 1024 * 1024


def read_text(path: Path) -> str:
    """Read a file; empty if it does not exist."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise refusal(path, f"it cannot be read ({error.strerror})") from None
    if len(raw) > _MAX_BYTES:
        raise refusal(path, "it is too large")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise refusal(path, "it is not UTF-8") from None


def parse_json(text: str, path: Path) -> dict[str, Any]:
    """Parse the text of a file as a JSON object; empty text is an empty object."""
    try:
        parsed = json.loads(text, object_pairs_hook=_unique_keys) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise refusal(path, f"it is not plain JSON ({error}); comments are not understood") from None
    if not isinstance(parsed, dict):
        raise refusal(path, "it is not a JSON object")
    return parsed


def render_json(value: Mapping[str, Any], before: str) -> str:
    """Render an object with the indentation of the previous text."""
    indent = re.search(r"^\{\r?\n([ \t]+)\"", before)
    return json.dumps(value, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


def replace_file(path: Path, before: str, after: str) -> Path:
    """Replace a file atomically and save the original. Symbolic links are followed. Returns the path of the backup, or
    of the new file."""
    target = path.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        backup = _backup_path(target) if target.exists() else None
        if backup is not None:
            _replace(backup, before, target)
        _replace(target, after, target)
    except OSError as error:
        raise refusal(path, f"it cannot be written ({error.strerror})") from None
    return backup or target


def refusal(path: Path, why: str) -> InputError:
    """Build the error for a file that is left unchanged."""
    return InputError(f"'{path}': {why}. Nothing was changed; --print shows what to write by hand.")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    parsed = dict(pairs)
    if len(parsed) != len(pairs):
        raise ValueError("a key occurs twice")
    return parsed


def _backup_path(target: Path) -> Path:
    """Return an unused name: earlier backups are never overwritten."""
    number = 1
    while (backup := target.with_name(f"{target.name}{_BACKUP_SUFFIX}{'' if number == 1 else f'-{number}'}")).exists():
        number += 1
    return backup


def _replace(path: Path, text: str, like: Path) -> None:
    mode = like.stat().st_mode & 0o777 if like.exists() else 0o600
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
