"""Safe edits of other programs' configuration files (MCP clients, coding agents).

A file that cannot be parsed exactly, including JSON with comments, is left unchanged. Before a change the original is
saved next to the file under another name, and the file is replaced atomically. This module does not know the contents
of any file.

Edits of YAML files leave every other line as it is, with its comments.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

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


def with_scalar(text: str, section: str, key: str, value: str, path: Path) -> str:
    """The text with `key: value` in a section."""
    known = _parse(text, path)
    if _in(known, section, path).get(key) == value:
        return text
    wanted = {**known, section: {**_in(known, section, path), key: value}}
    lines, place, indent = _lines(text, section, key, path)
    line = f"{indent}{key}: {value}\n"
    edited = [*lines[:place], line, *lines[place + _is_key(lines, place, indent, key) :]]
    return _checked("".join(edited), wanted, path)


def replaced_scalar(text: str, section: str, key: str, old: str, new: str, path: Path) -> str:
    """The text with another value of a key, where it has the old one."""
    is_old = _in(_parse(text, path), section, path).get(key) == old
    return with_scalar(text, section, key, new, path) if is_old else text


def with_item(text: str, section: str, key: str, item: str, path: Path) -> str:
    """The text with an item added to the list `key` of a section."""
    known = _parse(text, path)
    before = _in(known, section, path).get(key) or []
    if not isinstance(before, list):
        raise refusal(path, f"'{section}.{key}' in it is not a list")
    return text if item in before else _with_list(text, section, key, [*before, item], path)


def without_item(text: str, section: str, key: str, item: str, path: Path) -> str:
    """The text without an item of the list `key` of a section."""
    before = _in(_parse(text, path), section, path).get(key)
    if not isinstance(before, list) or item not in before:
        return text
    return _with_list(text, section, key, [other for other in before if other != item], path)


def _with_list(text: str, section: str, key: str, items: list[Any], path: Path) -> str:
    known = _parse(text, path)
    wanted = {**known, section: {**_in(known, section, path), key: items}}
    lines, place, indent = _lines(text, section, key, path)
    end = place + _is_key(lines, place, indent, key)
    while end < len(lines) and re.match(rf"{indent}\s*-(\s|$)", lines[end]):
        end += 1
    line = f"{indent}{key}: {json.dumps(items, ensure_ascii=False)}\n"  # YAML in flow style
    return _checked("".join([*lines[:place], line, *lines[end:]]), wanted, path)


def _lines(text: str, section: str, key: str, path: Path) -> tuple[list[str], int, str]:
    """The lines, with the section in them; the line where its key is or belongs, and the indentation there."""
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    if (start := _find(lines, rf"{section}:\s*(#.*)?$", 0)) is None:
        if section in _parse(text, path):
            raise refusal(path, f"'{section}' in it is not in block style")
        return [*lines, f"{section}:\n"], len(lines) + 1, "  "
    indented = next((line for line in lines[start + 1 :] if line.strip() and not line.lstrip().startswith("#")), "")
    indent = indented[: len(indented) - len(indented.lstrip())] or "  "
    end = _find(lines, r"[^\s#]", start + 1) or len(lines)
    place = _find(lines[:end], rf"{indent}{key}:(\s|$)", start + 1)
    return lines, start + 1 if place is None else place, indent


def _find(lines: list[str], pattern: str, start: int) -> int | None:
    return next((place for place in range(start, len(lines)) if re.match(pattern, lines[place])), None)


def _is_key(lines: list[str], place: int, indent: str, key: str) -> bool:
    return place < len(lines) and re.match(rf"{indent}{key}:(\s|$)", lines[place]) is not None


def _parse(text: str, path: Path) -> dict[str, Any]:
    try:
        known = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError):
        raise refusal(path, "it is not valid YAML") from None
    if known is not None and not isinstance(known, dict):
        raise refusal(path, "it is no mapping")
    return known or {}


def _in(known: dict[str, Any], section: str, path: Path) -> dict[str, Any]:
    found = known.get(section) or {}
    if not isinstance(found, dict):
        raise refusal(path, f"'{section}' in it is no mapping")
    return found


def _checked(text: str, wanted: dict[str, Any], path: Path) -> str:
    if _parse(text, path) != wanted:
        raise refusal(path, "it is written in a style that is not understood")
    return text
