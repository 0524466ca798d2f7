"""Session files that coding agents on this machine have written: finds them by name, and imports them."""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recto.adapters.agent_databases import is_database, write_sessions
from recto.errors import InputError

if TYPE_CHECKING:
    from recto.engine.importer import Advance, Importer, ImportResult

_MAX_FILES = 20_000
"""Files of one agent that are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFiles:
    """The session files of one agent, oldest first."""

    agent: str
    files: tuple[Path, ...]
    bytes: int
    is_readable: bool
    """Whether `recto import` has a reader for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where an agent keeps its sessions, relative to its own folder."""

    agent: str
    variable: str
    """The environment variable that names its folder."""
    folder: str
    """Its folder below the home folder, where the variable is not set."""
    patterns: tuple[str, ...]
    is_readable: bool = False


_PLACES = (
    _Place(
        agent="Claude Code",
        variable="CLAUDE_CONFIG_DIR",
        folder=".claude",
        patterns=("projects/*/*.jsonl", "projects/*/*/subagents/*.jsonl"),
        is_readable=True,
    ),
    _Place(
        agent="Codex",
        variable="CODEX_HOME",
        folder=".codex",
        patterns=("sessions/**/rollout-*.jsonl", "archived_sessions/rollout-*.jsonl"),
        is_readable=True,
    ),
    _Place(
        agent="pi",
        variable="PI_CODING_AGENT_DIR",
        folder=".pi/agent",
        patterns=("sessions/**/*.jsonl",),
        is_readable=True,
    ),
    _Place(
        agent="Gemini CLI",
        variable="",
        folder=".gemini",
        patterns=("tmp/*/chats/*.json", "tmp/*/chats/**/*.jsonl"),
        is_readable=True,
    ),
    _Place(agent="Qwen Code", variable="", folder=".qwen", patterns=("projects/*/chats/*.jsonl",), is_readable=True),
    _Place(
        agent="opencode",
        variable="",
        folder=".local/share/opencode",
        patterns=("opencode.db",),
        is_readable=True,
    ),
    _Place(agent="Cursor", variable="", folder=".config/Cursor/User/globalStorage", patterns=("state.vscdb",)),
)


def find_agent_files(home: Path, environ: Mapping[str, str]) -> list[AgentFiles]:
    """Returns the session files of every agent that has some."""
    found = [_files_of(place, home, environ) for place in _PLACES]
    return [files for files in found if files.files]


def _files_of(place: _Place, home: Path, environ: Mapping[str, str]) -> AgentFiles:
    named = environ.get(place.variable, "") if place.variable else ""
    root = Path(named).expanduser() if named else home / place.folder
    dated = sorted(_dated(root, place), key=lambda row: (row[0], row[2]))[-_MAX_FILES:]
    return AgentFiles(
        agent=place.agent,
        files=tuple(file for *_, file in dated),
        bytes=sum(size for _, size, _ in dated),
        is_readable=place.is_readable,
    )


def _dated(root: Path, place: _Place) -> Iterator[tuple[float, int, Path]]:
    """Yields the files with their times and sizes; one that is gone or forbidden is left out."""
    for pattern in place.patterns if root.is_dir() else ():
        for file in root.glob(pattern):
            with suppress(OSError):
                status = file.stat()
                if stat.S_ISREG(status.st_mode):
                    yield status.st_mtime, status.st_size, file


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOutcome:
    """What came of one file, or of one session of a database."""

    file: Path
    """The file of the agent."""
    imported: ImportResult | None = None
    reason: str = ""
    """Why nothing was imported."""


def import_agent_files(
    importer: Importer, files: Iterable[Path], *, keep_going: bool = False, advance: Advance = lambda _: None
) -> Iterator[FileOutcome]:
    """Imports session files one by one, and the sessions of databases; what cannot be read is yielded with the reason.

    `advance` is called for every byte read; each is read twice.
    """
    for file in files:
        try:
            if not is_database(file):
                imported = importer.import_file(file, keep_going=keep_going, advance=advance)
                yield FileOutcome(file=file, imported=imported)
                continue
            with tempfile.TemporaryDirectory(prefix="recto-import-") as folder:  # readable by its owner alone
                for session in write_sessions(file, Path(folder), importer.clock.now()):
                    imported = importer.import_file(session, keep_going=keep_going)
                    yield FileOutcome(file=file, imported=imported)
            advance(2 * file.stat().st_size)
        except InputError as error:
            yield FileOutcome(file=file, reason=str(error))
        except OSError as error:
            yield FileOutcome(file=file, reason=error.strerror or type(error).__name__)
