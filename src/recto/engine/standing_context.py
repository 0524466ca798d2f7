"""Standing context: files about the agent, the user and the project, whose text opens every prompt.

A file is read again only when it changes. A file that is missing or cannot be read is reported and skipped; text that
is too long is cut. The text is system text with the authority of the operator, so only files that the settings name
are read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from recto.text.secrets import mask_secrets
from recto.text.truncation import clamp

STANDING = "standing_changed"
"""The event that records the standing text from there on."""
_MAX_BYTES = 256 * 1024
"""Bytes that are read of one file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingFile:
    """One of the files, as the event records it."""

    name: str
    tokens: int
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingText:
    """The text of all files."""

    text: str
    tokens: int
    files: tuple[StandingFile, ...]
    cut: bool
    """Whether it was too long and was cut."""
    large: bool
    """Whether it takes a larger share of the input budget than it should."""
    digest: str

    def to_json(self) -> dict[str, Any]:
        """The event payload, with secrets masked."""
        return {
            "files": [asdict(file) for file in self.files],
            "tokens": self.tokens,
            "cut": self.cut,
            "large": self.large,
            "digest": self.digest,
            "text": mask_secrets(self.text),
        }


class StandingContext:
    """The standing files of a session, read when they change."""

    def __init__(self, files: Sequence[Path], *, count: Callable[[str], int], share: int, most: int) -> None:
        self._files = tuple(files)
        self._count = count
        self._share = share
        """Tokens above which there is a warning."""
        self._most = most
        """Tokens above which it is cut."""
        self._seen: tuple[object, ...] | None = None
        self._current: StandingText | None = None

    def read(self) -> StandingText:
        """The text of the files now; they are read only if one of them changed."""
        stamps = tuple(_stamp(file) for file in self._files)
        if self._current is None or stamps != self._seen:
            self._current, self._seen = self._load(), stamps
        return self._current

    def _load(self) -> StandingText:
        files: list[StandingFile] = []
        texts: list[str] = []
        for file in self._files:
            content, problem = _read_file(file)
            tokens = self._count(content) if content else 0
            files.append(StandingFile(name=file.name, tokens=tokens, problem=problem))
            if content:
                texts.append(f"# {file.name}\n\n{content.strip()}")
        complete = "\n\n".join(texts)
        text = clamp(complete, self._most, self._count, "in the files") if complete else ""
        tokens = self._count(text)
        return StandingText(
            text=text,
            tokens=tokens,
            files=tuple(files),
            cut=text != complete,
            large=tokens > self._share,
            digest=hashlib.sha256(text.encode("utf-8", "replace")).hexdigest(),
        )


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read_file(file: Path) -> tuple[str, str]:
    """The text of a file, and what is wrong with it."""
    try:
        with file.open("rb") as stream:
            raw = stream.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return "", "there is no such file"
    except OSError as error:
        return "", f"it cannot be read ({error.strerror})"
    problem = f"longer than {_MAX_BYTES:,} bytes; the rest is not read" if len(raw) > _MAX_BYTES else ""
    return raw[:_MAX_BYTES].decode("utf-8", "replace"), problem
