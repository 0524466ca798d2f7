"""Folders that only their owner may read."""

from __future__ import annotations

from pathlib import Path


def make_private_folder(path: Path) -> None:
    """Create a folder and every missing one above it, readable for the owner alone.

    `Path.mkdir(parents=True)` gives its mode to the last folder only; those above it would be open to everybody.
    """
    if not path.parent.exists():
        make_private_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
