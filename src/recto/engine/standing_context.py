"""Standing context: files that say who the agent is, who the user is and how the project works, before everything else.

They are read again when they change, and not otherwise. A file that is missing or cannot be read is told and left out;
one that is too long is cut. What the files say is system text: it is the operator's own word, so only files that the
settings name are ever read.
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
"""The event that says what stands before everything else, from there on."""
_MOST_BYTES = 256 * 1024
"""Bytes of one file that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingFile:
    """One of the files, as it is told."""

    name: str
    tokens: int
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingText:
    """What all of them say."""

    text: str
    tokens: int
    files: tuple[StandingFile, ...]
    cut: bool
    """Whether it was too long and is not whole."""
    large: bool
    """Whether it takes a larger share of the room than it should."""
    digest: str

    def to_json(self) -> dict[str, Any]:
        """As an event keeps it. Secrets are not kept."""
        return {
            "files": [asdict(file) for file in self.files],
            "tokens": self.tokens,
            "cut": self.cut,
            "large": self.large,
            "digest": self.digest,
            "text": mask_secrets(self.text),
        }


class StandingContext:
    """Watches the files."""

    def __init__(self, files: Sequence[Path], *, count: Callable[[str], int], share: int, most: int) -> None:
        self._files = tuple(files)
        self._count = count
        self._share = share
        """Tokens above which it should be thinner."""
        self._most = most
        """Tokens above which it is cut."""
        self._seen: tuple[object, ...] | None = None
        self._current: StandingText | None = None

    def look(self) -> StandingText:
        """What the files say now; they are read only where one of them changed."""
        stamps = tuple(_stamp(file) for file in self._files)
        if self._current is None or stamps != self._seen:
            self._current, self._seen = self._read(), stamps
        return self._current

    def _read(self) -> StandingText:
        told: list[StandingFile] = []
        texts: list[str] = []
        for file in self._files:
            text, problem = _text(file)
            told.append(StandingFile(name=file.name, tokens=self._count(text) if text else 0, problem=problem))
            if text:
                texts.append(f"# {file.name}\n\n{text.strip()}")
        whole = "\n\n".join(texts)
        kept = clamp(whole, self._most, self._count, "in the files") if whole else ""
        tokens = self._count(kept)
        return StandingText(
            text=kept,
            tokens=tokens,
            files=tuple(told),
            cut=kept != whole,
            large=tokens > self._share,
            digest=hashlib.sha256(kept.encode("utf-8", "replace")).hexdigest(),
        )


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _text(file: Path) -> tuple[str, str]:
    """What a file says, and what is wrong with it."""
    try:
        with file.open("rb") as stream:
            raw = stream.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return "", "there is no such file"
    except OSError as error:
        return "", f"it cannot be read ({error.strerror})"
    problem = f"longer than {_MOST_BYTES:,} bytes; the rest is not read" if len(raw) > _MOST_BYTES else ""
    return raw[:_MOST_BYTES].decode("utf-8", "replace"), problem
