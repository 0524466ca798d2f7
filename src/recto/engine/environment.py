"""Environment probe for checkpoints: directory, git, files, services. Read-only, bounded, never raises.

Paths and addresses come from transcripts and from files that others may have written. Only regular files below the
directory are read, and only allowed hosts are connected to. git sees a repository's index and objects, but none of its
configuration: filters, monitors, hooks, remotes and everything else that a repository can make git execute are
configured there.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct

from recto.continuity.checkpoints.builder import address_in
from recto.continuity.checkpoints.checkpoint import Environment, FileState, Service
from recto.continuity.checkpoints.rules import LOOPBACK
from recto.continuity.folders import O_NOFOLLOW, O_NONBLOCK
from recto.errors import InputError

_MAX_HASHED_BYTES = 1_000_000
"""Files up to this size are compared by content."""
_MAX_FILES, _MAX_DIRTY, _MAX_SERVICES = 40, 100, 16
_MAX_GIT_OUTPUT = 1_000_000
"""Bytes of git output that are parsed."""
_STATUS = ("status", "--porcelain=v2", "--untracked-files=no", "--ignore-submodules=all", "-z")
_MAX_REFS = 10_000_000
"""Bytes of a file of references that are read."""
_MAX_PARENTS = 64
_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentProbe:
    """What to examine, and within which limits."""

    directory: str = ""
    """Empty: the working directory of the process."""
    hosts: tuple[str, ...] = LOOPBACK
    """Hosts that may be connected to."""
    seconds: float = 2.0
    """Time-out of git."""
    connect_seconds: float = 0.25
    """Time-out of a connection to a service."""
    _slow: set[Path] = field(default_factory=set, init=False, repr=False, compare=False)
    """Repositories in which git timed out. It is not started there again, or every checkpoint would wait for it."""

    def examine(self, paths: Iterable[str] = (), services: Iterable[str] = ()) -> Environment:
        """Return the current environment."""
        try:
            root = Path(self.directory or os.getcwd()).expanduser().resolve()  # noqa: PTH109  # may not exist any more
            if not root.is_dir():
                return Environment()
        except (OSError, RuntimeError, ValueError):
            return Environment()
        branch, head, dirty = self._git(root)
        files, missing = _file_states(root, list(dict.fromkeys(paths))[:_MAX_FILES])
        probed = [self._service(address) for address in list(dict.fromkeys(services))[:_MAX_SERVICES]]
        return Environment(
            directory=_to_text(str(root)),
            branch=branch,
            head=head,
            dirty=dirty,
            paths=files,
            missing=missing,
            services=tuple(service for service in probed if service is not None),
        )

    def _git(self, root: Path) -> tuple[str, str, tuple[str, ...]]:
        """Return branch, commit and changed files of the repository around a directory."""
        try:
            found = _repository(root)
            if found is None:
                return "", "", ()
            branch, head = _head_of(found)
        except (OSError, ValueError, RuntimeError):  # a name that is no path, links that lead in circles
            return "", "", ()
        program = _program("git", found.top)
        if program is None or found.top in self._slow:
            return branch[:300], head, ()
        try:
            with tempfile.TemporaryDirectory(prefix="recto-git-") as folder:
                _make_git_folder(Path(folder), branch, head)
                done = subprocess.run(  # noqa: S603  # no argument comes from a transcript
                    [program, "--no-optional-locks", *_STATUS],
                    cwd=found.top,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    timeout=self.seconds,
                    env=_git_environ(found, folder),
                    check=False,
                )
        except subprocess.TimeoutExpired:
            self._slow.add(found.top)
            return branch[:300], head, ()
        except (OSError, subprocess.SubprocessError, ValueError):
            return branch[:300], head, ()
        return branch[:300], head, _dirty_files(done.stdout[:_MAX_GIT_OUTPUT]) if done.returncode == 0 else ()

    def _service(self, address: str) -> Service | None:
        """Whether something listens at the address; None if it may not be probed."""
        try:
            host, port = address_in(address)
        except InputError:
            return None
        if host not in self.hosts:
            return None
        hosts = ("127.0.0.1", "::1") if host == "localhost" else (host,)  # localhost is not looked up in DNS
        return Service(address=address, alive=any(self._answers(name, port) for name in hosts))

    def _answers(self, host: str, port: int) -> bool:
        try:
            with socket.create_connection((host, port), timeout=self.connect_seconds):
                return True
        except OSError:
            return False


class _Repository(Struct, frozen=True, kw_only=True):
    top: Path
    """Its working directory."""
    folder: Path
    """Its own git folder, with the index and `HEAD`."""
    common: Path
    """The folder with objects and references; another one in a linked working directory."""


def _repository(root: Path) -> _Repository | None:
    """Find the repository that a directory belongs to."""
    for top in (root, *root.parents[:_MAX_PARENTS]):
        folder = top / ".git"
        if not os.path.lexists(folder):
            continue
        if folder.is_file():
            named = _text_in(folder).removeprefix("gitdir:").strip()
            folder = top / named if named else folder
        if not folder.is_dir():
            return None
        shared = _text_in(folder / "commondir").strip()
        return _Repository(top=top, folder=folder, common=(folder / shared).resolve() if shared else folder)
    return None


def _head_of(repository: _Repository) -> tuple[str, str]:
    """Return the branch and the commit; empty where there is none yet."""
    text = _text_in(repository.folder / "HEAD").strip()
    reference = text.removeprefix("ref:").strip()
    if reference == text:
        return "(detached)", text if _OBJECT_ID.fullmatch(text) else ""
    branch = reference.removeprefix("refs/heads/")
    if not reference.startswith("refs/") or ".." in reference.split("/"):
        return "", ""
    for folder in (repository.folder, repository.common):
        if _OBJECT_ID.fullmatch(commit := _text_in(folder / reference).strip()):
            return branch, commit
    for line in _text_in(repository.common / "packed-refs", _MAX_REFS).splitlines():
        commit, _, name = line.partition(" ")
        if name == reference and _OBJECT_ID.fullmatch(commit):
            return branch, commit
    return branch, ""


def _make_git_folder(folder: Path, branch: str, head: str) -> None:
    """Make a git folder with nothing in it but the commit."""
    (folder / "refs").mkdir()
    (folder / "objects").mkdir()
    (folder / "HEAD").write_text(f"{head or 'ref: refs/heads/unborn'}\n", encoding="utf-8")
    extension = "[extensions]\n\tobjectformat = sha256\n" if len(head) == 64 else ""
    version = 1 if extension else 0
    (folder / "config").write_text(f"[core]\n\trepositoryformatversion = {version}\n{extension}", encoding="utf-8")


def _git_environ(repository: _Repository, folder: str) -> dict[str, str]:
    return {
        "LC_ALL": "C",
        "PATH": os.defpath,
        "GIT_DIR": folder,
        "GIT_WORK_TREE": str(repository.top),
        "GIT_INDEX_FILE": str((repository.folder / "index").resolve()),
        "GIT_OBJECT_DIRECTORY": str((repository.common / "objects").resolve()),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
    }


def _program(name: str, top: Path) -> str | None:
    """Find a program in the absolute folders of PATH, outside of the repository."""
    folders = [Path(folder) for folder in os.environ.get("PATH", os.defpath).split(os.pathsep)]
    usable = [folder for folder in folders if folder.is_absolute() and not folder.resolve().is_relative_to(top)]
    return shutil.which(name, path=os.pathsep.join(map(str, usable))) if usable else None


def _dirty_files(output: bytes) -> tuple[str, ...]:
    dirty: list[str] = []
    fields = iter(output.decode("utf-8", "replace").split("\0"))
    for line in fields:
        match line[:2]:
            case "1 ":
                dirty.append(line.split(" ", 8)[-1])
            case "2 ":
                dirty.append(line.split(" ", 9)[-1])
                next(fields, "")  # the previous name
            case "u ":
                dirty.append(line.split(" ", 10)[-1])
    return tuple(path[:500] for path in sorted(dirty)[:_MAX_DIRTY])


def _text_in(path: Path, most: int = 10_000) -> str:
    """Return the text of a regular file, up to so many bytes; empty where there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | O_NONBLOCK)
    except (OSError, ValueError):
        return ""
    try:
        return os.read(handle, most).decode("utf-8", "replace") if stat.S_ISREG(os.fstat(handle).st_mode) else ""
    except OSError:
        return ""
    finally:
        os.close(handle)


def _file_states(root: Path, paths: Sequence[str]) -> tuple[tuple[FileState, ...], tuple[str, ...]]:
    states: list[FileState] = []
    missing: list[str] = []
    for path in paths:
        try:
            target = (root / path).resolve()
            name = str(target.relative_to(root))
        except (OSError, ValueError, RuntimeError):
            continue  # outside, or not a path
        state = _file_state(target, _to_text(name))
        if state is not None:
            states.append(state)
        elif not os.path.lexists(target):
            missing.append(_to_text(name))
    return tuple(states), tuple(missing)


def _file_state(path: Path, name: str) -> FileState | None:
    try:
        # Without O_NONBLOCK, opening a named pipe would block until another process writes to it.
        handle = os.open(path, os.O_RDONLY | O_NONBLOCK | O_NOFOLLOW)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return None
        digest = ""
        if status.st_size <= _MAX_HASHED_BYTES:
            digest = hashlib.sha256(os.read(handle, _MAX_HASHED_BYTES + 1)).hexdigest()
        return FileState(path=name, size=status.st_size, modified=max(status.st_mtime_ns // 1000, 0), digest=digest)
    except OSError:
        return None
    finally:
        os.close(handle)


def _to_text(text: str) -> str:
    """Convert a file name to valid text; undecodable bytes become replacement characters."""
    return text.encode("utf-8", "replace").decode()
