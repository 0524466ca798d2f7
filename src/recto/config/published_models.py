"""The published list of models that a user has taken over: a file in the user's data folder.

`recto models update` writes it. The registry reads it between the package's own data and the settings.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from recto.errors import InputError
from recto.tokens.model_registry import Registry

if TYPE_CHECKING:
    from recto.tokens.published_list import PublishedModels

_PRICE_OR_LIMIT = frozenset(
    {
        "window",
        "max_input",
        "max_output",
        "input_price",
        "output_price",
        "cache_read_price",
        "cache_write_price",
    }
)


class StoredList(Struct, frozen=True, kw_only=True):
    """A list as it is stored."""

    source: str
    """Where its figures come from, and when they were taken over; empty without a list."""
    models: Mapping[str, Mapping[str, int]]


_NONE = StoredList(source="", models={})


def list_file() -> Path:
    """Return the file of the list, whether it exists or not."""
    if configured := os.environ.get("XDG_DATA_HOME"):
        base = Path(configured).expanduser()
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path.home() / ".local" / "share"
    return base / "recto" / "models.json"


def stored_list() -> StoredList:
    """Return the list, read again if the file has changed. A file that cannot be read is ignored."""
    try:
        file = list_file()
        about = file.stat()
    except (OSError, RuntimeError):  # no file, or no home
        return _NONE
    return _read(file, about.st_mtime_ns, about.st_size)


def registry(models: Mapping[str, Mapping[str, Any]]) -> Registry:
    """Return a registry with the user's list and these settings."""
    stored = stored_list()
    return Registry(overrides=models, published=stored.models, published_from=stored.source)


def store_list(published: PublishedModels, source: str, date: str) -> Path:
    """Replace the list. Returns its file, which is never half written."""
    import tempfile  # noqa: PLC0415  # start-up

    file = list_file()
    body = {"about": "Written by 'recto models update'.", "from": source, "date": date, "models": published.models}
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, suffix=".new", delete=False, encoding="utf-8") as made:
        json.dump(body, made, indent=1, sort_keys=True)
    Path(made.name).replace(file)
    return file


@lru_cache(maxsize=4)
def _read(file: Path, _mtime: int, _size: int) -> StoredList:
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
        models = {name: _checked(fields) for name, fields in body["models"].items()}
        return StoredList(source=f"list of {body['date']}: {body['from']}", models=models)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError):
        return _NONE


def _checked(fields: Mapping[str, Any]) -> Mapping[str, int]:
    known = {key: value for key, value in fields.items() if key in _PRICE_OR_LIMIT and type(value) is int}
    if known.get("window", 0) < 1:
        raise InputError("a model without a window")
    return known
