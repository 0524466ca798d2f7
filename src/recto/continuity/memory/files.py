"""The folder of one agent's memory: pages, their index, journals and the log of what was done.

Every file is written beside its place, synced and renamed into it, so a reader sees the old one or the new one. Nothing
is written outside the folder: names are made here, and no link is followed below its root. Files that people broke are
named and left alone. What may be written is not decided here.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recto.continuity.memory.markdown import LARGEST, MarkdownPage, read_page
from recto.continuity.memory.model import KINDS, Memory, strength
from recto.errors import MalformedMemory, StoreFull, StoreLocked, StoreReadOnly, StoreUnavailable
from recto.recall.quoting import format_day
from recto.text.unicode import prompt_safe
from recto.transcript.events import to_json

PAGES, JOURNAL, INDEX, LOG, HANDOFF = "memories", "journal", "INDEX.md", "log.jsonl", "HANDOFF.md"
_LOCK = ".lock"
_TEMPORARY = ".tmp"
_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,47}", re.ASCII)
_ODD = re.compile(r"[^a-z0-9]+", re.ASCII)
_MOST_PAGES = 10_000
_PATIENCE, _STEP = 30.0, 0.005
"""Seconds that a writer waits for another one, and between two tries."""
_MOST_LOGGED = 16 << 20
"""Bytes of the log that are read, from its end."""
_MOST_JOURNAL = 4 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPage:
    """A page and the file it is in."""

    path: str
    """Below the folder: `memories/decision/we-use-sqlite-3f2a….md`."""
    page: MarkdownPage

    @property
    def memory(self) -> Memory:
        """What the page says."""
        return self.page.memory


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderPages:
    """All pages of a folder, and what could not be read."""

    by_id: Mapping[str, StoredPage]
    problems: tuple[MalformedMemory, ...]


def folder_name(name: str) -> str:
    """A name as a folder: safe on every file system, and never the same for two names."""
    if _PLAIN.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{_ODD.sub('-', name.lower()).strip('-')[:32]}~{digest}"


class MemoryFolder:
    """The files of one agent's memory. Nothing is made before something is written."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._seen: dict[str, tuple[tuple[int, ...], MarkdownPage]] = {}
        """Pages that were read, each with how its file looked then."""

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One writer at a time, over all processes; what a dead one left half-written is cleared away first."""
        with _told(str(self.root)):
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._at() as root:
                lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=root)
        try:
            self._take(lock)
            self._clear()
            yield
        finally:
            os.close(lock)

    def _take(self, lock: int) -> None:
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise StoreLocked(str(self.root), _PATIENCE) from None
                time.sleep(_STEP)
            else:
                return

    def pages(self) -> FolderPages:
        """Every page that can be read, by the id of its memory, and what is wrong with the others."""
        found: dict[str, StoredPage] = {}
        problems: list[MalformedMemory] = []
        for path in self._paths():
            try:
                kept = StoredPage(path=path, page=self._page(path))
                if kept.memory.id in found:
                    other = found[kept.memory.id].path
                    raise MalformedMemory(path, 1, f"it has the same id as {other}; give one of them up")
                found[kept.memory.id] = kept
            except MalformedMemory as error:
                problems.append(error)
            except OSError as error:
                problems.append(MalformedMemory(path, 1, f"it cannot be read ({error.strerror})"))
        return FolderPages(by_id=found, problems=tuple(problems))

    def kept(self, memory: Memory) -> StoredPage | None:
        """The page of a memory, wherever people put it. Quick where it is in its usual place."""
        path = _usual_path(memory)
        try:
            page = self._page(path)
        except (OSError, MalformedMemory):
            return self.pages().by_id.get(memory.id)
        return StoredPage(path=path, page=page) if page.memory.id == memory.id else self.pages().by_id.get(memory.id)

    def write_page(self, memory: Memory, text: str, path: str = "") -> str:
        """Writes a page, at its path or in the place that its kind and title give it; returns where it is."""
        path = path or _usual_path(memory)
        self.write(path, text.encode())
        return path

    def write(self, path: str, raw: bytes) -> None:
        """Puts bytes into a file: all of them or none, and there for good when this returns."""
        *folders, name = path.split("/")
        with _told(str(self.root / path)), self._at(*folders, create=True) as folder:
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
        """Writes the list of what is remembered, the strongest first in each kind."""
        lines = ["# What is remembered", ""]
        for kind in KINDS:
            own = [(path, memory) for path, memory in memories if memory.kind == kind]
            if own:
                lines += [f"## {kind}", ""]
                own.sort(key=lambda one: (-strength(one[1], now), one[1].id))
                lines += [_index_line(path, memory, now) for path, memory in own]
                lines.append("")
        if not memories:
            lines.append("Nothing yet.")
        raw = "\n".join(lines).rstrip("\n").encode() + b"\n"
        if self._read_or_nothing(INDEX, LARGEST * 64) != raw:
            self.write(INDEX, raw)

    def write_journal(self, when: int, lines: Sequence[str]) -> str:
        """Adds a paragraph to the journal of a day; returns the path."""
        path = f"{JOURNAL}/{format_day(when)}.md"
        before = self._read_or_nothing(path, _MOST_JOURNAL) or f"# {format_day(when)}\n".encode()
        self.write(path, before + "\n".join(("", *lines, "")).encode())
        return path

    def log(self, **about: Any) -> None:  # noqa: ANN401  # whatever JSON holds
        """Adds a line to the log of what was done; it is there for good when this returns."""
        with _told(str(self.root / LOG)), self._at() as root:
            file = os.open(LOG, _APPEND, 0o600, dir_fd=root)
            try:
                # After a crash the last line may have no end.
                torn = self._read_or_nothing(LOG, 1, tail=True) not in (None, b"", b"\n")
                _write_all(file, (b"\n" if torn else b"") + to_json(about) + b"\n")
                os.fsync(file)
            finally:
                os.close(file)

    def logged(self) -> list[dict[str, Any]]:
        """The lines of the log that can be read, oldest first."""
        found = []
        for line in (self._read_or_nothing(LOG, _MOST_LOGGED, tail=True) or b"").splitlines():
            with suppress(ValueError, RecursionError):
                one = json.loads(line)
                found.append(one if isinstance(one, dict) else {})
        return found

    def _page(self, path: str) -> MarkdownPage:
        *folders, name = path.split("/")
        with self._at(*folders) as folder:
            seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
        looks = (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
        if self._seen.get(path, ((), None))[0] != looks:
            self._seen[path] = (looks, read_page(self._read(path, LARGEST), path))
        return self._seen[path][1]

    def _paths(self) -> list[str]:
        found = []
        for kind in KINDS:
            with suppress(OSError), self._at(PAGES, kind) as folder:
                names = sorted(name for name in _names(folder) if name.endswith(".md"))
                found += [f"{PAGES}/{kind}/{name}" for name in names]
        return found[:_MOST_PAGES]

    def _clear(self) -> None:
        """Removes what was being written when a process died. Only who holds the lock may."""
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
        """A folder below the root, opened step by step so that no step of the way is a link."""
        held = [os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
        try:
            for part in parts:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=held[-1])
                held.append(os.open(part, _FOLDER, dir_fd=held[-1]))
            yield held[-1]
        finally:
            for one in held:
                os.close(one)


def _usual_path(memory: Memory) -> str:
    slug = _ODD.sub("-", memory.title.lower()).strip("-")[:48].strip("-") or "memory"
    return f"{PAGES}/{memory.kind}/{slug}-{memory.id}.md"


def _write_all(file: int, raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(file, view) :]


def _names(folder: int, *, hidden: bool = False) -> list[str]:
    with os.scandir(folder) as found:
        return [one.name for one in found if one.name.startswith(".") is hidden]


@contextmanager
def _told(where: str) -> Iterator[None]:
    """What the system says of a file, in our words."""
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
