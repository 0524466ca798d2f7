"""Settings files of other programs, into which something of Recto's is put and taken out again.

A file that cannot be read for certain, one with comments among them, is left as it is. Before a file is changed it is
kept beside itself under another name, and it is replaced whole or not at all. What stands in it is not known here.
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

_KEPT = ".before-recto"
_LARGEST = 64 * 1024 * 1024


def read_text(path: Path) -> str:
    """What stands in a file; nothing where there is none."""
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise refusal(path, f"it cannot be read ({error.strerror})") from None
    if len(raw) > _LARGEST:
        raise refusal(path, "it is too large")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise refusal(path, "it is not UTF-8") from None


def parse_json(text: str, path: Path) -> dict[str, Any]:
    """The object in the text of a file; an empty one where nothing stands in it."""
    try:
        found = json.loads(text, object_pairs_hook=_once) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise refusal(path, f"it is not plain JSON ({error}); comments are not understood") from None
    if not isinstance(found, dict):
        raise refusal(path, "it is no JSON object")
    return found


def render_json(value: Mapping[str, Any], before: str) -> str:
    """An object with the indentation that the file had."""
    indent = re.search(r"^\{\r?\n([ \t]+)\"", before)
    return json.dumps(value, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


def replace_file(path: Path, before: str, after: str) -> Path:
    """Replaces a file whole, and keeps it as it was: returns where. A link stays one: what it leads to is replaced."""
    target = path.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        kept = _kept(target) if target.exists() else None
        if kept is not None:
            _replace(kept, before, target)
        _replace(target, after, target)
    except OSError as error:
        raise refusal(path, f"it cannot be written ({error.strerror})") from None
    return kept or target


def refusal(path: Path, why: str) -> InputError:
    """Why a file is left as it is."""
    return InputError(f"'{path}': {why}. Nothing was changed; --print shows what to write by hand.")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands in it twice")
    return found


def _kept(target: Path) -> Path:
    """A name that is free: what was kept before is never written over."""
    number = 1
    while (kept := target.with_name(f"{target.name}{_KEPT}{'' if number == 1 else f'-{number}'}")).exists():
        number += 1
    return kept


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
