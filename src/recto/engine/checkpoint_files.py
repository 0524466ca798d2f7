"""Checkpoints as files, written atomically: a crash leaves either the old or the new version complete.

A new version is written next to the old one, synced to disk, and renamed over it. The files are copies of what the
transcript holds; a file that cannot be written loses nothing else.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from recto.continuity.checkpoints.rules import HANDOFF_FILE
from recto.continuity.folders import O_NOFOLLOW, make_private_folder

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_STALE_SECONDS = 3600
"""Age at which temporary files of a stopped process are removed."""

ARCHIVE = "archive"
"""The folder of the checkpoints of completed tasks."""


def safe_name(session: str) -> str:
    """Return a folder name that is unique to the session, on any file system."""
    digest = hashlib.sha256(session.encode("utf-8", "replace")).hexdigest()[:12]
    readable = _UNSAFE.sub("_", session).strip("._-")[:80]
    return f"{readable or 'session'}-{digest}"


def session_folder(folder: str | os.PathLike[str], session: str) -> Path:
    """Return the folder of a session's files."""
    return Path(folder).expanduser() / safe_name(session)


def archive_files(folder: Path, version: int, files: Mapping[str, bytes]) -> None:
    """Write the last checkpoint of a task to the archive; none waits in the folder any more. Raises `OSError`.

    `files` are its files by name.
    """
    for name, content in files.items():
        archived = Path(name)
        write_atomically(folder / ARCHIVE / f"{archived.stem}-{version}{archived.suffix}", content)
    for name in (*files, HANDOFF_FILE):
        (folder / name).unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file. Raises `OSError`; then the previous version is still there."""
    make_private_folder(path.parent)
    _remove_stale(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | O_NOFOLLOW, 0o600)
    try:
        try:
            remaining = memoryview(content)
            while remaining:
                remaining = remaining[os.write(handle, remaining) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Sync the new name to disk, where folders can be synced: not on Windows."""
    directory = getattr(os, "O_DIRECTORY", None)
    if directory is None:
        return
    handle = os.open(folder, os.O_RDONLY | directory)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_stale(path: Path) -> None:
    """Remove temporary files that a stopped process left behind."""
    cutoff = time.time() - _STALE_SECONDS
    for temporary in path.parent.glob(f".{path.name}.*"):
        with suppress(OSError):
            if temporary.stat().st_mtime < cutoff:
                temporary.unlink()
