"""Folders on disk: how they are named and made private, and flags for files in folders of others.

Loads nothing, so that a program can look whether there is memory.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from recto.text.lazy_re import lazy_re

O_NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
"""Refuse a symbolic link. 0 where the system has no such flag (Windows)."""
O_NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)
"""Do not wait for the other end of a named pipe. 0 where the system has no such flag."""
PAGES = "memories"
"""The folder of the pages, in the folder of an agent. It does not exist before the first approval."""
UNSAFE = lazy_re(r"[^a-z0-9]+", re.ASCII)
"""What is replaced in a name of a file or folder."""
_PLAIN = lazy_re(r"[a-z0-9][a-z0-9_-]{0,47}", re.ASCII)


def make_private_folder(path: Path) -> None:
    """Create a folder and every missing one above it, readable for the owner alone.

    `Path.mkdir(parents=True)` gives its mode to the last folder only; those above it would be open to everybody.
    """
    if not path.parent.exists():
        make_private_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


def folder_name(name: str) -> str:
    """Return a name as a folder name: safe on every file system and unique."""
    if _PLAIN.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{UNSAFE.sub('-', name.lower()).strip('-')[:32]}~{digest}"
