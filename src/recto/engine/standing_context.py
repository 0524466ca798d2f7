"""Standing context: files about the agent, the user and the project, the task, and critical memory.

It opens every prompt.

A file is read again only when it changes. A file that is missing or cannot be read is reported and skipped; text that
is too long is cut. The text is system text with the authority of the operator, so only files that the settings name
are read. The critical memory of the agent follows them (`recto.continuity.memory.authority`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from recto.context.window.report import PromptPiece
from recto.text.secrets import mask_secrets
from recto.text.truncation import clamp

if TYPE_CHECKING:
    from recto.continuity.memory.authority import MemoryDigest

STANDING = "standing_changed"
"""The event that records the standing text from there on."""
_MEMORY = "critical memory"
"""The name of the digest among the files of an event."""
_TASK = "task"
"""The name of the task among the files of an event."""
_MAX_BYTES = 256 * 1024
"""Bytes that are read of one file."""


class StandingFile(Struct, frozen=True, kw_only=True):
    """One of the files, as the event records it."""

    name: str
    tokens: int
    """Tokens of the file."""
    injected: int = 0
    """Tokens of it that are in the prompt: fewer where the text was cut."""
    problem: str = ""


class StandingText(Struct, frozen=True, kw_only=True):
    """The text of all files, and the digest of critical memory."""

    text: str
    tokens: int
    files: tuple[StandingFile, ...]
    cut: bool
    """Whether it was too long and was cut."""
    large: bool
    """Whether it takes a larger share of the input budget than it should."""
    digest: str
    memories: frozenset[int] = frozenset()
    """Messages of the agent's memory session whose whole text is in it."""

    @property
    def memory_tokens(self) -> int:
        """Tokens of critical memory in it."""
        return sum([file.injected for file in self.files if file.name == _MEMORY])

    @property
    def pieces(self) -> tuple[PromptPiece, ...]:
        """The files as pieces of a prompt."""
        return tuple(
            PromptPiece(kind="file", name=file.name, tokens=file.injected, raw=file.tokens) for file in self.files
        )

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
    """The standing files and the critical memory of a session, read when they change."""

    def __init__(
        self,
        files: Sequence[Path] = (),
        *,
        count: Callable[[str], int],
        share: int = 0,
        most: int = 0,
        memory: Callable[[], MemoryDigest | None] = lambda: None,
    ) -> None:
        """Prepare the standing text.

        Args:
            files: Files whose text comes first.
            count: Counts tokens.
            share: Tokens of the files above which there is a warning.
            most: Tokens of the files above which they are cut.
            memory: The critical memory of the agent as of now.
        """
        self._files = tuple(files)
        self._count = count
        self._share = share
        self._most = most
        self._memory = memory
        self.task = ""
        """The task that a program stated, in its words."""
        self._seen: tuple[object, ...] | None = None
        self._current: StandingText | None = None

    def read(self) -> StandingText:
        """The text now; the files are read only if one of them changed."""
        memory = self._memory()
        stamps = (memory, self.task, *map(_stamp, self._files))
        if self._current is None or stamps != self._seen:
            self._current, self._seen = self._load(memory), stamps
        return self._current

    def _load(self, memory: MemoryDigest | None) -> StandingText:
        files: list[StandingFile] = []
        texts: list[str] = []
        for file in self._files:
            content, problem = _read_file(file)
            tokens = self._count(content) if content else 0
            files.append(StandingFile(name=file.name, tokens=tokens, problem=problem))
            if content:
                texts.append(f"{_heading(file.name)}{content.strip()}")
        complete = "\n\n".join(texts)
        text = clamp(complete, self._most, self._count, "in the files") if complete else ""
        large = self._count(text) > self._share
        cut = text != complete
        files = [
            replace(file, injected=self._count(section) if section else 0)
            for file, section in zip(files, _sections(text, [file.name for file in files]), strict=True)
        ]
        if self.task:
            task = clamp(self.task, self._most, self._count, "in the task") if self._most else self.task
            files.append(StandingFile(name=_TASK, tokens=self._count(self.task), injected=self._count(task)))
            text = "\n\n".join(part for part in (text, task) if part)
        if memory is not None and memory.text:
            files.append(StandingFile(name=_MEMORY, tokens=memory.tokens, injected=memory.tokens))
            text = "\n\n".join(part for part in (text, memory.text) if part)
        return StandingText(
            text=text,
            tokens=self._count(text),
            files=tuple(files),
            cut=cut,
            large=large,
            digest=hashlib.sha256(text.encode("utf-8", "replace")).hexdigest(),
            memories=memory.complete if memory is not None else frozenset(),
        )


def _heading(name: str) -> str:
    return f"# {name}\n\n"


def _sections(text: str, names: Sequence[str]) -> list[str]:
    """What a text that may have been cut holds of each file: a part without a heading belongs to the one before it."""
    starts: list[int] = []
    reached = 0
    for name in names:
        found = text.find(_heading(name), reached)
        starts.append(found)
        reached = max(found, reached)
    sections = []
    for place, start in enumerate(starts):
        end = next((later for later in starts[place + 1 :] if later >= 0), len(text))
        sections.append(text[start:end] if start >= 0 else "")
    return sections


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
