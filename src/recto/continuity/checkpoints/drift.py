"""What has changed around a piece of work since it was last looked at: told as drift, never passed over in silence.

Pure: two pictures of an environment in, a list of differences out. Who takes the pictures is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recto.continuity.checkpoints.checkpoint import Environment, FileState

DriftKind = Literal["directory", "branch", "head", "dirty", "missing", "changed", "service", "unknown"]
_NAMED = 12
"""Files that are named of those that differ from the commit now and did not, or the other way round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One difference."""

    kind: DriftKind
    what: str
    """In words."""


def drift_of(then: Environment, now: Environment) -> tuple[Drift, ...]:
    """How the environment differs from what a checkpoint says; nothing where nobody had looked."""
    if not then.directory:
        return ()
    if not now.directory:
        return (Drift(kind="unknown", what="the environment could not be looked at: nothing of it is confirmed"),)
    found: list[Drift] = []
    if then.directory != now.directory:
        found.append(Drift(kind="directory", what=f"the work was in {then.directory}; this is {now.directory}"))
    found += _git(then, now)
    found += _files(then, now)
    listening = {service.address: service.alive for service in now.services}
    for service in then.services:
        if service.alive and not listening.get(service.address, False):
            told = "no longer answers" if service.address in listening else "may not be asked by the settings"
            found.append(Drift(kind="service", what=f"{service.address} {told}"))
    return tuple(found)


def _git(then: Environment, now: Environment) -> list[Drift]:
    if not then.head:
        return [Drift(kind="head", what=f"there is git now, at {now.head[:12]}")] if now.head else []
    if not now.head:
        return [Drift(kind="head", what=f"there is no git here any more; the work was at {then.head[:12]}")]
    found: list[Drift] = []
    if then.branch != now.branch:
        found.append(Drift(kind="branch", what=f"the branch was {then.branch}, it is {now.branch}"))
    if then.head != now.head:
        found.append(Drift(kind="head", what=f"the commit was {then.head[:12]}, it is {now.head[:12]}"))
    since = [path for path in now.dirty if path not in then.dirty]
    clean = [path for path in then.dirty if path not in now.dirty]
    if since:
        found.append(Drift(kind="dirty", what=f"changed since and not committed: {_told(since)}"))
    if clean:
        found.append(Drift(kind="dirty", what=f"no longer different from the commit: {_told(clean)}"))
    return found


def _files(then: Environment, now: Environment) -> list[Drift]:
    found: list[Drift] = []
    present = {file.path: file for file in now.paths}
    for file in then.paths:
        other = present.get(file.path)
        if other is None:
            found.append(Drift(kind="missing", what=f"{file.path} is not there any more"))
        elif (file.digest or other.digest) and file.digest != other.digest:
            found.append(Drift(kind="changed", what=f"{file.path} has other content, {_sizes(file, other)}"))
        elif not file.digest and (file.size, file.modified) != (other.size, other.modified):
            found.append(Drift(kind="changed", what=f"{file.path} was written to, {_sizes(file, other)}"))
    return found


def _sizes(then: FileState, now: FileState) -> str:
    return f"{now.size:,} bytes where there were {then.size:,}"


def _told(paths: list[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more
