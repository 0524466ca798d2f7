"""Environment probe for checkpoints: directory, git, files, services. Read-only, bounded, never raises.

Paths and addresses come from transcripts and from files that others may have written. Only regular files below the
directory are read, git runs without a shell and without hooks, and only allowed hosts are connected to.
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
from recto.continuity.checkpoints.checkpoint import Environment, FileState, Service
from recto.continuity.checkpoints.rules import LOOPBACK
from recto.errors import InputError

_MAX_HASHED_BYTES = 1_000_000
"""Files up to this size are compared by content."""
_MAX_FILES, _MAX_DIRTY, _MAX_SERVICES = 40, 100, 16
_MAX_GIT_OUTPUT = 1_000_000
"""Bytes of git output that are parsed."""
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
_STATUS = ("status", "--porcelain=v2", "--branch", "--untracked-files=no", "--ignore-submodules=all", "-z")


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
        environ = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
        environ |= {name: os.environ[name] for name in ("HOME",) if name in os.environ}
        try:
            done = subprocess.run(  # noqa: S603  # no argument comes from a transcript
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
        return _parse_status(done.stdout[:_MAX_GIT_OUTPUT]) if done.returncode == 0 else ("", "", ())

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


def _parse_status(output: bytes) -> tuple[str, str, tuple[str, ...]]:
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
                next(fields, "")  # the previous name
            case "u ":
                dirty.append(field.split(" ", 10)[-1])
    return branch[:300], head[:64], tuple(path[:500] for path in sorted(dirty)[:_MAX_DIRTY])


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
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
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
