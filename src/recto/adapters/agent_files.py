"""Session files that coding agents on this machine have written: finds them by name, and imports them."""

from __future__ import annotations

import hashlib
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from recto.adapters.agent_databases import is_database, write_sessions
from recto.engine.recorded_messages import RecordedMessages
from recto.errors import InputError
from recto.formats.session_files import aider, detect_source
from recto.text.secrets import mask_secrets
from recto.transcript.entries import event
from recto.transcript.sources import SessionSource

if TYPE_CHECKING:
    from recto.engine.importer import Advance, Importer, ImportResult

_MAX_FILES = 20_000
"""Files of one agent that are listed."""
_MAX_READ = 300
"""Newest files of one agent in which the folders of projects are looked for."""
_TASK_FILE = "api_conversation_history.json"
_TASKS = {"saoudrizwan.claude-dev": "cline", "rooveterinaryinc.roo-cline": "roo-code"}
"""Extensions of Visual Studio Code that keep a folder per task, and the agents they are."""
_HEAD_BYTES = 1 << 20
"""Bytes of a file in which its project is named."""
_AREA = "imports"
"""The records of imported files, by the hash of their bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFiles:
    """The session files of one agent, oldest first."""

    agent: str
    files: tuple[Path, ...]
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where an agent keeps its sessions, relative to its own folder."""

    agent: str
    variable: str = ""
    """The environment variable that names its folder."""
    folder: str = ""
    """Its folder below the home folder, where the variable is not set."""
    applications: tuple[str, ...] = ()
    """Its folders where the system keeps the data of applications."""
    patterns: tuple[str, ...]

    def folders(self, home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
        """Yields its folders on any system; most are not there."""
        if named := environ.get(self.variable, "") if self.variable else "":
            yield Path(named).expanduser()
            return
        if self.folder:
            yield home / self.folder
        for name in self.applications:
            for variable, usual in _APPLICATION_DATA:
                root = environ.get(variable, "") if variable else ""
                yield (Path(root) if root else home / usual) / name


_APPLICATION_DATA = (
    ("XDG_CONFIG_HOME", ".config"),
    ("", "Library/Application Support"),
    ("APPDATA", "AppData/Roaming"),
)
"""Where Linux, macOS and Windows keep the data of applications: the variable that names it, and the usual folder."""
_EDITORS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")
"""Visual Studio Code, and what is made of it."""


def _extension(agent: str, name: str) -> _Place:
    """Returns the place of an extension of Visual Studio Code that keeps a folder per task."""
    storage = f"User/globalStorage/{name}"
    return _Place(
        agent=agent,
        folder=f".vscode-server/data/{storage}",
        applications=tuple(f"{editor}/{storage}" for editor in _EDITORS),
        patterns=(f"tasks/*/{_TASK_FILE}",),
    )


_PLACES = (
    _Place(
        agent="Claude Code",
        variable="CLAUDE_CONFIG_DIR",
        folder=".claude",
        patterns=("projects/*/*.jsonl", "projects/*/*/subagents/*.jsonl"),
    ),
    _Place(
        agent="Codex",
        variable="CODEX_HOME",
        folder=".codex",
        patterns=("sessions/**/rollout-*.jsonl", "archived_sessions/rollout-*.jsonl"),
    ),
    _Place(
        agent="pi",
        variable="PI_CODING_AGENT_DIR",
        folder=".pi/agent",
        patterns=("sessions/**/*.jsonl",),
    ),
    _Place(
        agent="Gemini CLI",
        folder=".gemini",
        patterns=("tmp/*/chats/*.json", "tmp/*/chats/**/*.jsonl"),
    ),
    _Place(agent="Qwen Code", folder=".qwen", patterns=("projects/*/chats/*.jsonl",)),
    _Place(
        agent="opencode",
        folder=".local/share/opencode",
        patterns=("opencode.db",),
    ),
    _Place(
        agent="goose",
        variable="GOOSE_PATH_ROOT",
        folder=".local/share/goose",
        applications=("Block/goose",),
        patterns=tuple(f"{data}sessions/{name}" for data in ("", "data/") for name in ("sessions.db", "*.jsonl")),
    ),
    _Place(
        agent="Copilot CLI",
        folder=".copilot",
        patterns=("session-state/*/events.jsonl", "session-state/*.jsonl", "history-session-state/*.jsonl"),
    ),
    _extension("Cline", "saoudrizwan.claude-dev"),
    _extension("Roo Code", "rooveterinaryinc.roo-cline"),
    _Place(
        agent="Cursor",
        applications=("Cursor/User",),
        patterns=("globalStorage/state.vscdb", "workspaceStorage/*/state.vscdb"),
    ),
)


def find_agent_files(home: Path, environ: Mapping[str, str], folder: Path | None = None) -> list[AgentFiles]:
    """Returns the session files of every agent that has some.

    aider keeps its history in the folders of projects: looked for in `folder`, and where the other agents worked.
    Without `folder`, it is not looked for.
    """
    found = [_files_of(place, home, environ) for place in _PLACES]
    if folder is not None:
        found.append(_files_of_aider({folder, *_projects(found)}))
    return [files for files in found if files.files]


def _projects(found: Iterable[AgentFiles]) -> Iterator[Path]:
    """Yields the folders that session files name."""
    for file in (file for files in found for file in files.files[-_MAX_READ:]):
        with suppress(OSError):
            named = _project_of(file, min(file.stat().st_size, _HEAD_BYTES // 16))
            if named and Path(named).is_absolute():
                yield Path(named)


@lru_cache(_MAX_FILES)
def _project_of(file: Path, size: int) -> str:
    """Returns the folder that the first bytes of a file name; empty for none. Those bytes do not change any more."""
    with suppress(InputError), file.open("rb") as opened:
        return detect_source(opened.read(size), file.name)[1] or project_beside(file)
    return ""


def _files_of_aider(folders: Iterable[Path]) -> AgentFiles:
    dated = []
    for folder in folders:
        with suppress(OSError):
            status = (folder / aider.FILE_NAME).stat()
            if stat.S_ISREG(status.st_mode):
                dated.append((status.st_mtime, status.st_size, folder / aider.FILE_NAME))
    files = tuple(file for *_, file in sorted(dated))
    return AgentFiles(agent="aider", files=files, bytes=sum(size for _, size, _ in dated))


def _files_of(place: _Place, home: Path, environ: Mapping[str, str]) -> AgentFiles:
    listed = {row[2]: row for root in place.folders(home, environ) for row in _dated(root, place)}
    dated = sorted(listed.values(), key=lambda row: (row[0], row[2]))[-_MAX_FILES:]
    return AgentFiles(
        agent=place.agent,
        files=tuple(file for *_, file in dated),
        bytes=sum(size for _, size, _ in dated),
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
    """None where the file is as it was when it was imported, or could not be read."""
    reason: str = ""
    """Why nothing was imported."""
    is_elsewhere: bool = False
    """Whether it is a session of another project than the one whose sessions are imported."""


class AgentImport:
    """Imports files of agents into a store: what is new, and was not recorded by the gateway."""

    def __init__(
        self, importer: Importer, *, keep_going: bool = False, project: str = "", masks_secrets: bool = False
    ) -> None:
        self._importer = importer
        self._records = importer.view
        self._keep_going = keep_going
        self._project = SessionSource(project=project)
        """The folder whose sessions are imported; empty for all."""
        self._masks_secrets = masks_secrets
        """Whether keys and passwords are replaced before anything is stored."""

    def run(self, files: Iterable[Path], advance: Advance = lambda _: None) -> Iterator[FileOutcome]:
        """Import files one by one, and the sessions of databases; what cannot be read is yielded with the reason.

        `advance` is called with the bytes of each file, twice.
        """
        recorded = RecordedMessages(self._importer.store)
        for file in files:
            try:
                if is_database(file):
                    with tempfile.TemporaryDirectory(prefix="recto-import-") as folder:  # for its owner alone
                        for session in write_sessions(file, Path(folder), self._importer.clock.now()):
                            yield replace(self._try_import(session, recorded), file=file)
                else:
                    yield self._try_import(file, recorded)
            except (InputError, OSError) as error:
                yield _failed(file, error)
            with suppress(OSError):
                advance(2 * file.stat().st_size)

    def _try_import(self, file: Path, recorded: RecordedMessages) -> FileOutcome:
        """Import a file, or one session of a database, the others of which are imported whatever comes of this one."""
        try:
            return self._import(file, recorded)
        except (InputError, OSError) as error:
            return _failed(file, error)

    def _import(self, file: Path, recorded: RecordedMessages) -> FileOutcome:
        if self._project.project:
            with file.open("rb") as opened:
                _, project = detect_source(opened.read(_HEAD_BYTES), file.name)
            if not self._project.contains(SessionSource(project=project or project_beside(file))):
                return FileOutcome(file=file, is_elsewhere=True)
        if not self._masks_secrets:
            return self._import_copy(file, file, recorded)
        with tempfile.TemporaryDirectory(prefix="recto-import-") as folder:  # for its owner alone
            copy = Path(folder) / file.name
            _write_masked(file, copy)
            return self._import_copy(file, copy, recorded)

    def _import_copy(self, file: Path, copy: Path, recorded: RecordedMessages) -> FileOutcome:
        with copy.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
        if self._records.find_record(_AREA, digest[:2], digest) is not None:
            return FileOutcome(file=file)
        agent = _TASKS.get(file.parent.parent.parent.name, "") if file.name == _TASK_FILE else ""
        imported = self._importer.import_file(
            copy,
            session=self._records.key(f"{agent}-{file.parent.name}") if agent else None,
            keep_going=self._keep_going,
            recorded=recorded,
            source=SessionSource(agent=agent, project=project_beside(file)),
        )
        if not imported.problems:
            payload = {"file": file.name, "entries": imported.entries}
            record = event(self._importer.clock, _AREA, payload, digest, surface="import")
            self._records.append_record(_AREA, digest[:2], [record])
        return FileOutcome(file=file, imported=imported)


def _failed(file: Path, error: InputError | OSError) -> FileOutcome:
    reason = str(error) if isinstance(error, InputError) else error.strerror or type(error).__name__
    return FileOutcome(file=file, reason=reason)


def _write_masked(file: Path, copy: Path) -> None:
    """Copy a file with every key and password replaced by a note. Bytes that are not UTF-8 stay.

    In JSON a secret is on one line; in aider's Markdown a private key is on several.
    """
    with (
        file.open(encoding="utf-8", errors="surrogateescape", newline="") as text,
        copy.open("w", encoding="utf-8", errors="surrogateescape", newline="") as masked,
    ):
        masked.writelines(map(mask_secrets, [text.read()] if file.name == aider.FILE_NAME else text))


def project_beside(file: Path) -> str:
    """Return the project folder that Gemini CLI writes beside its chats, or in which aider keeps its history."""
    if file.name == aider.FILE_NAME:
        return str(file.parent.resolve())
    with suppress(OSError, UnicodeDecodeError):
        return (file.parent.parent / ".project_root").read_text(encoding="utf-8").strip()[:1_000]
    return ""


class AgentFileWatch:
    """Tells which session files have changed, by their sizes and times."""

    def __init__(self, home: Path, environ: Mapping[str, str], folder: Path | None = None) -> None:
        self._home, self._environ, self._folder = home, environ, folder
        self._seen: dict[Path, tuple[tuple[int, int], ...]] = {}

    def changed(self) -> list[tuple[str, list[Path]]]:
        """Return the files of each agent that are new or changed since the last call; all of them at the first."""
        found = find_agent_files(self._home, self._environ, self._folder)
        now = {file: _states(file) for files in found for file in files.files}
        changed = [(one.agent, [file for file in one.files if self._seen.get(file) != now[file]]) for one in found]
        self._seen = now
        return [(agent, files) for agent, files in changed if files]


def _states(file: Path) -> tuple[tuple[int, int], ...]:
    """Return size and time of a file, and of the log that a database keeps beside it."""
    states = []
    for path in (file, file.with_name(f"{file.name}-wal")):
        with suppress(OSError):
            status = path.stat()
            states.append((status.st_size, status.st_mtime_ns))
    return tuple(states)
