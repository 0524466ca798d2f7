"""Looks at where the work is done: the directory, git, files, services. It only looks, bounded, and never raises.

Paths and addresses come from transcripts and from files that others may have written. So only regular files below the
directory are read, git is asked without a shell and without its hooks, and a connection is made to a host that the
settings allow and to no other.
"""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from recto.continuity.checkpoints.builder import address_in
from recto.continuity.checkpoints.checkpoint import LOOPBACK, Environment, FileState, Service
from recto.errors import InputError

_HASHED = 1_000_000
"""Bytes of a file up to which its content is compared."""
_MOST_FILES, _MOST_DIRTY, _MOST_SERVICES = 40, 100, 16
_OUTPUT = 1_000_000
"""Bytes of what git says that are read."""
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
_STATUS = ("status", "--porcelain=v2", "--branch", "--untracked-files=no", "--ignore-submodules=all", "-z")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentProbe:
    """Where to look, and how far."""

    directory: str = ""
    """Empty: the current folder of the process."""
    hosts: tuple[str, ...] = LOOPBACK
    """Hosts that may be connected to."""
    seconds: float = 2.0
    """How long git may take."""
    connect_seconds: float = 0.25
    """How long a service may take to answer."""

    def look(self, paths: Iterable[str] = (), services: Iterable[str] = ()) -> Environment:
        """The environment as it is now."""
        try:
            root = Path(self.directory or os.getcwd()).expanduser().resolve()  # noqa: PTH109  # it may be gone
            if not root.is_dir():
                return Environment()
        except (OSError, RuntimeError, ValueError):
            return Environment()
        branch, head, dirty = self._git(root)
        found, missing = _files(root, list(dict.fromkeys(paths))[:_MOST_FILES])
        asked = [self._service(address) for address in list(dict.fromkeys(services))[:_MOST_SERVICES]]
        return Environment(
            directory=_storable(str(root)),
            branch=branch,
            head=head,
            dirty=dirty,
            paths=found,
            missing=missing,
            services=tuple(one for one in asked if one is not None),
        )

    def _git(self, root: Path) -> tuple[str, str, tuple[str, ...]]:
        environ = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
        environ |= {name: os.environ[name] for name in ("HOME",) if name in os.environ}
        try:
            done = subprocess.run(  # noqa: S603  # nothing of it comes from a transcript
                [*_GIT, "-C", str(root), *_STATUS],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=self.seconds,
                env=environ,
                check=False,
            )
        except (OSError, subprocess.SubprocessError, ValueError):
            return "", "", ()
        return _status(done.stdout[:_OUTPUT]) if done.returncode == 0 else ("", "", ())

    def _service(self, address: str) -> Service | None:
        """Whether something listens; nothing where it may not be asked."""
        try:
            host, port = address_in(address)
        except InputError:
            return None
        if host not in self.hosts:
            return None
        hosts = ("127.0.0.1", "::1") if host == "localhost" else (host,)  # no name server is asked for our own name
        return Service(address=address, alive=any(self._answers(one, port) for one in hosts))

    def _answers(self, host: str, port: int) -> bool:
        try:
            with socket.create_connection((host, port), timeout=self.connect_seconds):
                return True
        except OSError:
            return False


def _status(output: bytes) -> tuple[str, str, tuple[str, ...]]:
    branch = head = ""
    dirty: list[str] = []
    fields = iter(output.decode("utf-8", "replace").split("\0"))
    for field in fields:
        match field[:2]:
            case "# ":
                name, _, value = field[2:].partition(" ")
                branch = value if name == "branch.head" else branch
                head = value if name == "branch.oid" and value != "(initial)" else head
            case "1 ":
                dirty.append(field.split(" ", 8)[-1])
            case "2 ":
                dirty.append(field.split(" ", 9)[-1])
                next(fields, "")  # the name it had before
            case "u ":
                dirty.append(field.split(" ", 10)[-1])
    return branch[:300], head[:64], tuple(path[:500] for path in sorted(dirty)[:_MOST_DIRTY])


def _files(root: Path, paths: Sequence[str]) -> tuple[tuple[FileState, ...], tuple[str, ...]]:
    found: list[FileState] = []
    missing: list[str] = []
    for path in paths:
        try:
            place = (root / path).resolve()
            name = str(place.relative_to(root))
        except (OSError, ValueError, RuntimeError):
            continue  # outside, or no path at all
        state = _file(place, _storable(name))
        if state is not None:
            found.append(state)
        elif not os.path.lexists(place):
            missing.append(_storable(name))
    return tuple(found), tuple(missing)


def _file(place: Path, name: str) -> FileState | None:
    try:
        # Without O_NONBLOCK a pipe would hold the turn up until somebody writes into it.
        handle = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            return None
        digest = ""
        if about.st_size <= _HASHED:
            digest = hashlib.sha256(os.read(handle, _HASHED + 1)).hexdigest()
        return FileState(path=name, size=about.st_size, modified=max(about.st_mtime_ns // 1000, 0), digest=digest)
    except OSError:
        return None
    finally:
        os.close(handle)


def _storable(text: str) -> str:
    """A name of a file as text; bytes that are no characters are shown as such."""
    return text.encode("utf-8", "replace").decode()
