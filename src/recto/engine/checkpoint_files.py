"""Checkpoints as files: each is there whole, as it was before or as it is now, whenever the machine stops.

A new version is written beside the old one, brought to the disk, and takes its name in one step. The files are copies:
what counts is the transcript, and a file that cannot be written costs nothing but the file.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from contextlib import suppress
from pathlib import Path

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_FORGOTTEN = 3600
"""Seconds after which what a stopped process left beside a file is taken away."""

JSON, PAGE, HANDOFF = "checkpoint.json", "checkpoint.md", "handoff.md"


def safe_name(session: str) -> str:
    """A name for a folder that no other session has, whatever its key is and however a disk compares names."""
    digest = hashlib.sha256(session.encode("utf-8", "replace")).hexdigest()[:12]
    readable = _UNSAFE.sub("_", session).strip("._-")[:80]
    return f"{readable or 'session'}-{digest}"


def folder_of(folder: str | os.PathLike[str], session: str) -> Path:
    """Where the files of a session are."""
    return Path(folder).expanduser() / safe_name(session)


def write_whole(path: Path, content: bytes) -> None:
    """Puts a file in place of the one before. Raises `OSError`; then the one before is still there."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _sweep(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(handle, left) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            beside.unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """The new name is on the disk too."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sweep(path: Path) -> None:
    """What a process that was stopped had begun to write."""
    before = time.time() - _FORGOTTEN
    for left in path.parent.glob(f".{path.name}.*"):
        with suppress(OSError):
            if left.stat().st_mtime < before:
                left.unlink()
