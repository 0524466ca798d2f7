"""The folder of one agent's memory: pages, index, journals and the operation log.

Every file is written to a temporary name, synced and renamed, so readers see either the old or the new version. Nothing
is written outside the folder: names are generated here, and no link below its root is followed. Damaged files are
reported and left alone.

Journals and texts that people put there are searched by recall too (`FolderDocuments`). Each section is stored once, by
its content, as a message of the agent's memory session. Only sections that are in a file now are quoted: as data, with
their file, never as approved memory.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from recto.recall.documents import passages
from recto.text.lazy_re import lazy_re

try:
    import fcntl
except ImportError:  # Windows: `MemoryFolder.is_supported` is false there
    fcntl = None  # type: ignore[assignment]

from recto.continuity.folders import O_NOFOLLOW, O_NONBLOCK, PAGES, UNSAFE, make_private_folder
from recto.continuity.memory import KINDS
from recto.continuity.memory.markdown import LARGEST, MarkdownPage, read_page
from recto.continuity.memory.model import Memory, strength
from recto.errors import MalformedMemory, StoreFull, StoreLocked, StoreReadOnly, StoreUnavailable
from recto.recall.types import format_day
from recto.text.unicode import prompt_safe
from recto.transcript.entries import to_json

JOURNAL, INDEX, LOG, HANDOFF = "journal", "INDEX.md", "log.jsonl", "HANDOFF.md"
_TEXTS = (".md", ".txt", ".log")
_LISTS = (INDEX, HANDOFF)
_MAX_LISTED, _MAX_DEPTH = 1_000, 3
CYCLE_HEADING = "Consolidation, "
"""How the heading of a paragraph begins that a consolidation cycle wrote into a journal."""
_LOCK = ".lock"
_TEMPORARY = ".tmp"
_MAX_PAGES = 10_000
_LOCK_TIMEOUT, _LOCK_RETRY = 30.0, 0.005
"""Seconds that a writer waits for the lock, and between two attempts."""
_MAX_LOG_BYTES = 16 << 20
"""Bytes of the log that are read, from its end."""
_MAX_JOURNAL_BYTES = 4 << 20
_DIRECTORY: int = getattr(os, "O_DIRECTORY", 0)
_FOLDER = os.O_RDONLY | _DIRECTORY | O_NOFOLLOW
_READ = os.O_RDONLY | O_NOFOLLOW | O_NONBLOCK
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | O_NOFOLLOW
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | O_NOFOLLOW | O_NONBLOCK


class StoredPage(Struct, frozen=True, kw_only=True):
    """A page and its file."""

    path: str
    """Relative to the folder: `memories/decision/we-use-sqlite-3f2a….md`."""
    page: MarkdownPage

    @property
    def memory(self) -> Memory:
        """The memory on the page."""
        return self.page.memory


class FolderPages(Struct, frozen=True, kw_only=True):
    """All pages of a folder, and the unreadable ones."""

    by_id: Mapping[str, StoredPage]
    problems: tuple[MalformedMemory, ...]


class FileStatus(Struct, frozen=True):
    """What changes when a file is written."""

    inode: int
    size: int
    modified: int
    """Nanoseconds since 1970."""


class MemoryFolder:
    """The files of one agent's memory. Nothing is created before the first write."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._seen: dict[str, tuple[tuple[int, ...], MarkdownPage]] = {}
        """Parsed pages, each with the file status at that time."""

    @staticmethod
    def is_supported() -> bool:
        """Whether this system can open files relative to an open folder, which keeps writes inside it. Not Windows."""
        return fcntl is not None and os.open in os.supports_dir_fd

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the write lock across processes; removes what a dead writer left behind first."""
        with _translate_errors(str(self.root)):
            make_private_folder(self.root)
            with self._at() as root:
                lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | O_NOFOLLOW, 0o600, dir_fd=root)
        try:
            self._lock(lock)
            self._remove_temporary()
            yield
        finally:
            os.close(lock)

    def _lock(self, lock: int) -> None:
        deadline = time.monotonic() + _LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise StoreLocked(str(self.root), _LOCK_TIMEOUT) from None
                time.sleep(_LOCK_RETRY)
            else:
                return

    def pages(self) -> FolderPages:
        """Return every readable page by memory id, and the problems of the others."""
        by_id: dict[str, StoredPage] = {}
        problems: list[MalformedMemory] = []
        for path in self._paths():
            try:
                stored = StoredPage(path=path, page=self._page(path))
                if stored.memory.id in by_id:
                    other = by_id[stored.memory.id].path
                    raise MalformedMemory(path, 1, f"it has the same id as {other}; give one of them up")
                by_id[stored.memory.id] = stored
            except MalformedMemory as error:
                problems.append(error)
            except OSError as error:
                problems.append(MalformedMemory(path, 1, f"it cannot be read ({error.strerror})"))
        return FolderPages(by_id=by_id, problems=tuple(problems))

    def kept(self, memory: Memory) -> StoredPage | None:
        """Return the page of a memory, wherever people moved it. Fast if it is at its usual path."""
        path = _usual_path(memory)
        try:
            page = self._page(path)
        except (OSError, MalformedMemory):
            return self.pages().by_id.get(memory.id)
        return StoredPage(path=path, page=page) if page.memory.id == memory.id else self.pages().by_id.get(memory.id)

    def status(self, memories: Iterable[Memory] = ()) -> tuple[object, ...]:
        """Return what changes when a page is added, written, moved or removed, or one of these pages is edited.

        Empty if there are no pages. Reads no file.
        """
        if _status(self.root / PAGES) is None:
            return ()
        paths = [*(f"{PAGES}/{kind}" for kind in KINDS), *map(_usual_path, memories)]
        return tuple(_status(self.root / path) for path in paths)

    def write_page(self, memory: Memory, text: str, path: str = "") -> str:
        """Write a page at its path, or at the path derived from kind and title; returns the path."""
        path = path or _usual_path(memory)
        self.write(path, text.encode())
        return path

    def write(self, path: str, raw: bytes) -> None:
        """Replace a file atomically and durably."""
        *folders, name = path.split("/")
        with _translate_errors(str(self.root / path)), self._at(*folders, create=True) as folder:
            temporary = f".{name}.{os.getpid()}{_TEMPORARY}"
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
            file = os.open(temporary, _WRITE, 0o600, dir_fd=folder)
            try:
                _write_all(file, raw)
                os.fsync(file)
            finally:
                os.close(file)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)

    def write_index(self, memories: Sequence[tuple[str, Memory]], now: int) -> None:
        """Write the list of memories, the strongest first in each kind."""
        lines = ["# What is remembered", ""]
        for kind in KINDS:
            of_kind = [(path, memory) for path, memory in memories if memory.kind == kind]
            if of_kind:
                lines += [f"## {kind}", ""]
                of_kind.sort(key=lambda item: (-strength(item[1], now), item[1].id))
                lines += [_index_line(path, memory, now) for path, memory in of_kind]
                lines.append("")
        if not memories:
            lines.append("Nothing yet.")
        raw = "\n".join(lines).rstrip("\n").encode() + b"\n"
        if self._read_or_nothing(INDEX, LARGEST * 64) != raw:
            self.write(INDEX, raw)

    def write_journal(self, when: int, lines: Sequence[str]) -> str:
        """Append a paragraph to the journal of a day; returns the path."""
        path = f"{JOURNAL}/{format_day(when)}.md"
        before = self._read_or_nothing(path, _MAX_JOURNAL_BYTES) or f"# {format_day(when)}\n".encode()
        self.write(path, before + "\n".join(("", *lines, "")).encode())
        return path

    def log(self, **payload: Any) -> None:  # noqa: ANN401  # whatever JSON holds
        """Append a line to the operation log, durably."""
        with _translate_errors(str(self.root / LOG)), self._at() as root:
            file = os.open(LOG, _APPEND, 0o600, dir_fd=root)
            try:
                # After a crash the last line may be incomplete.
                incomplete = self._read_or_nothing(LOG, 1, tail=True) not in (None, b"", b"\n")
                _write_all(file, (b"\n" if incomplete else b"") + to_json(payload) + b"\n")
                os.fsync(file)
            finally:
                os.close(file)

    def logged(self) -> list[dict[str, Any]]:
        """Return the readable lines of the log, oldest first."""
        lines = []
        for line in (self._read_or_nothing(LOG, _MAX_LOG_BYTES, tail=True) or b"").splitlines():
            with suppress(ValueError, RecursionError):
                parsed = json.loads(line)
                lines.append(parsed if isinstance(parsed, dict) else {})
        return lines

    def text_files(self) -> list[tuple[str, FileStatus]]:
        """Return the plain text files that are neither pages nor written by Recto to list them, a few folders deep."""
        found: list[tuple[str, FileStatus]] = []
        folders: list[tuple[str, ...]] = [()]
        while folders and len(found) < _MAX_LISTED:
            parts = folders.pop()
            with suppress(OSError), self._at(*parts) as folder:
                for name in sorted(_names(folder))[:_MAX_LISTED]:
                    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode) and len(parts) < _MAX_DEPTH and (parts or name != PAGES):
                        folders.append((*parts, name))
                    elif stat.S_ISREG(status.st_mode) and name.endswith(_TEXTS) and (parts or name not in _LISTS):
                        path = "/".join((*parts, name))
                        found.append((path, FileStatus(status.st_ino, status.st_size, status.st_mtime_ns)))
        return found

    def text_of(self, path: str, most: int) -> str:
        """Return the end of a text file, in at most `most` bytes; empty if it cannot be read or is no text."""
        raw = self._read_or_nothing(path, most, tail=True) or b""
        return "" if b"\0" in raw else raw.decode("utf-8", "replace")

    def _page(self, path: str) -> MarkdownPage:
        *folders, name = path.split("/")
        with self._at(*folders) as folder:
            stat_result = os.stat(name, dir_fd=folder, follow_symlinks=False)
        status = (stat_result.st_ino, stat_result.st_size, stat_result.st_mtime_ns, stat_result.st_ctime_ns)
        if self._seen.get(path, ((), None))[0] != status:
            self._seen[path] = (status, read_page(self._read(path, LARGEST), path))
        return self._seen[path][1]

    def _paths(self) -> list[str]:
        found = []
        for kind in KINDS:
            with suppress(OSError), self._at(PAGES, kind) as folder:
                names = sorted(name for name in _names(folder) if name.endswith(".md"))
                found += [f"{PAGES}/{kind}/{name}" for name in names]
        return found[:_MAX_PAGES]

    def _remove_temporary(self) -> None:
        """Remove temporary files of dead writers. Requires the lock."""
        for parts in ((), (JOURNAL,), *((PAGES, kind) for kind in KINDS)):
            with suppress(OSError), self._at(*parts) as folder:
                for name in _names(folder, hidden=True):
                    if name.endswith(_TEMPORARY):
                        with suppress(OSError):
                            os.unlink(name, dir_fd=folder)

    def _read(self, path: str, most: int, *, tail: bool = False) -> bytes:
        *folders, name = path.split("/")
        with self._at(*folders) as folder:
            file = os.open(name, _READ, dir_fd=folder)
            try:
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode):
                    raise MalformedMemory(path, 1, "it is not a plain file")
                if status.st_size > most:
                    if not tail:
                        raise MalformedMemory(path, 1, f"it has {status.st_size:,} bytes, at most {most:,} are read")
                    os.lseek(file, -most, os.SEEK_END)
                with os.fdopen(os.dup(file), "rb") as opened:
                    return opened.read(most)
            finally:
                os.close(file)

    def _read_or_nothing(self, path: str, most: int, *, tail: bool = False) -> bytes | None:
        try:
            return self._read(path, most, tail=tail)
        except (OSError, MalformedMemory):
            return None

    @contextmanager
    def _at(self, *parts: str, create: bool = False) -> Iterator[int]:
        """Open a folder below the root step by step, so that no component is a link."""
        handles = [os.open(self.root, os.O_RDONLY | _DIRECTORY)]
        try:
            for part in parts:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=handles[-1])
                handles.append(os.open(part, _FOLDER, dir_fd=handles[-1]))
            yield handles[-1]
        finally:
            for handle in handles:
                os.close(handle)


def _usual_path(memory: Memory) -> str:
    slug = UNSAFE.sub("-", memory.title.lower()).strip("-")[:48].strip("-") or "memory"
    return f"{PAGES}/{memory.kind}/{slug}-{memory.id}.md"


def _status(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _write_all(file: int, raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(file, view) :]


def _names(folder: int, *, hidden: bool = False) -> list[str]:
    with os.scandir(folder) as items:
        return [item.name for item in items if item.name.startswith(".") is hidden]


@contextmanager
def _translate_errors(where: str) -> Iterator[None]:
    """Translate system errors into store errors."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(where) from None
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise StoreReadOnly(where) from None
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise StoreUnavailable(where, "there is a link or a file on the way, and links are not followed") from None
        raise StoreUnavailable(where, error.strerror or "it cannot be written") from None


def _index_line(path: str, memory: Memory, now: int) -> str:
    title = " ".join(prompt_safe(memory.title).split()).replace("[", "(").replace("]", ")")
    marks = "".join(f", {name}" for name in ("critical", "evergreen") if getattr(memory, name))
    return (
        f"- [{title}]({path}) ({format_day(memory.created)}, strength {strength(memory, now):.2f}, "
        f"used {memory.hits} times{marks})"
    )


MAX_FILES = 200
"""Files that are read: the ones written last."""
MAX_FILE_BYTES = 256 * 1024
"""Bytes of a file that are read, from its end: journals grow there."""
MAX_SECTIONS = 2_000
_SECTION_CHARS = 4_000
_MAX_PARTS = 16
"""Parts of a long section that are kept."""
_MAX_HEADING = 120
_HEADING = lazy_re(r"^#{1,6}[ \t]+(\S.*)$")


class FileSection(Struct, frozen=True, kw_only=True):
    """A section of a file."""

    path: str
    """Relative to the memory folder."""
    heading: str
    text: str
    ts: int
    """When the file was written, in microseconds since 1970."""

    @property
    def key(self) -> str:
        """Identifies the section by its file and its content."""
        content = "\0".join((self.path, self.heading, self.text)).encode("utf-8", "surrogatepass")
        return hashlib.sha256(content).hexdigest()[:32]

    @property
    def note(self) -> str:
        """The caption of a quotation."""
        section = f", “{self.heading}”" if self.heading else ""
        return f"from the file {self.path}{section} of the memory folder, not approved"


class FolderDocuments:
    """The sections of the files of one memory folder. A file is read again when it has changed."""

    def __init__(self, folder: MemoryFolder) -> None:
        self._folder = folder
        self._files: dict[str, tuple[FileStatus, tuple[FileSection, ...]]] = {}
        self.sections: Mapping[str, FileSection] = {}
        """By key, as of the last `refresh`."""

    def refresh(self) -> None:
        """Look which files have changed, and read those."""
        listed = sorted(self._folder.text_files(), key=lambda item: (-item[1].modified, item[0]))[:MAX_FILES]
        known, self._files = self._files, {}
        for path, status in listed:
            before = known.get(path)
            if before is None or before[0] != status:
                text = self._folder.text_of(path, MAX_FILE_BYTES)
                before = status, tuple(sections_of(path, text, status.modified // 1000))
            self._files[path] = before
        found = [section for _, sections in self._files.values() for section in sections][:MAX_SECTIONS]
        self.sections = {section.key: section for section in found}


def sections_of(path: str, text: str, ts: int) -> Iterator[FileSection]:
    """Split a text at its headings, and long sections into parts.

    What consolidation cycles report is left out: it names proposals, and would bring rejected and retired memory back.
    """
    heading, lines = "", list[str]()
    for line in [*text.splitlines(), None]:
        title = _HEADING.match(line) if line is not None else None
        if line is not None and title is None:
            lines.append(line)
            continue
        own = [] if heading.startswith(CYCLE_HEADING) else lines
        for part in passages("\n".join(own).strip(), _SECTION_CHARS, _MAX_PARTS):
            yield FileSection(path=path, heading=heading, text=part.strip(), ts=ts)
        heading, lines = title[1].strip()[:_MAX_HEADING] if title is not None else "", []
