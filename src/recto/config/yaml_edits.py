"""Small edits of other programs' YAML files that leave every other line as it is, with its comments.

Only files in block style are edited: a section at the margin, its keys indented below it. Each edit is checked by
parsing the result; a file in which it would change anything else is refused.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from recto.config.client_files import refusal


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
