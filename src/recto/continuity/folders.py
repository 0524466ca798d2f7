"""Folders that only their owner may read, and flags for files in folders of others."""

from __future__ import annotations

import os
from pathlib import Path

O_NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
"""Refuse a symbolic link. 0 where the system has no such flag (Windows)."""
O_NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)
"""Do not wait for the other end of a named pipe. 0 where the system has no such flag."""


def make_private_folder(path: Path) -> None:
    """Create a folder and every missing one above it, readable for the owner alone.

    `Path.mkdir(parents=True)` gives its mode to the last folder only; those above it would be open to everybody.
    """
    if not path.parent.exists():
        make_private_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
