"""Drift: how the environment changed since a checkpoint. Pure: two recorded environments in, differences out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recto.continuity.checkpoints.checkpoint import Environment, FileState

DriftKind = Literal["directory", "branch", "head", "dirty", "missing", "changed", "service", "unknown"]
_MAX_NAMED = 12
"""Maximum number of uncommitted files named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One difference."""

    kind: DriftKind
    what: str
    """A description."""


def drift_of(recorded: Environment, now: Environment) -> tuple[Drift, ...]:
    """Compare the current environment with that of a checkpoint; empty if none was recorded."""
    if not recorded.directory:
        return ()
    if not now.directory:
        return (Drift(kind="unknown", what="the environment could not be looked at: nothing of it is confirmed"),)
    drift: list[Drift] = []
    if recorded.directory != now.directory:
        drift.append(Drift(kind="directory", what=f"the work was in {recorded.directory}; this is {now.directory}"))
    drift += _git(recorded, now)
    drift += _files(recorded, now)
    listening = {service.address: service.alive for service in now.services}
    for service in recorded.services:
        if service.alive and not listening.get(service.address, False):
            problem = "no longer answers" if service.address in listening else "may not be asked by the settings"
            drift.append(Drift(kind="service", what=f"{service.address} {problem}"))
    return tuple(drift)


def _git(recorded: Environment, now: Environment) -> list[Drift]:
    if not recorded.head:
        return [Drift(kind="head", what=f"there is git now, at {now.head[:12]}")] if now.head else []
    if not now.head:
        return [Drift(kind="head", what=f"there is no git here any more; the work was at {recorded.head[:12]}")]
    drift: list[Drift] = []
    if recorded.branch != now.branch:
        drift.append(Drift(kind="branch", what=f"the branch was {recorded.branch}, it is {now.branch}"))
    if recorded.head != now.head:
        drift.append(Drift(kind="head", what=f"the commit was {recorded.head[:12]}, it is {now.head[:12]}"))
    newly_dirty = [path for path in now.dirty if path not in recorded.dirty]
    newly_clean = [path for path in recorded.dirty if path not in now.dirty]
    if newly_dirty:
        drift.append(Drift(kind="dirty", what=f"changed since and not committed: {_name_some(newly_dirty)}"))
    if newly_clean:
        drift.append(Drift(kind="dirty", what=f"no longer different from the commit: {_name_some(newly_clean)}"))
    return drift


def _files(recorded: Environment, now: Environment) -> list[Drift]:
    drift: list[Drift] = []
    present = {file.path: file for file in now.paths}
    for file in recorded.paths:
        current = present.get(file.path)
        if current is None:
            drift.append(Drift(kind="missing", what=f"{file.path} is not there any more"))
        elif (file.digest or current.digest) and file.digest != current.digest:
            drift.append(Drift(kind="changed", what=f"{file.path} has other content, {_sizes(file, current)}"))
        elif not file.digest and (file.size, file.modified) != (current.size, current.modified):
            drift.append(Drift(kind="changed", what=f"{file.path} was written to, {_sizes(file, current)}"))
    return drift


def _sizes(recorded: FileState, now: FileState) -> str:
    return f"{now.size:,} bytes where there were {recorded.size:,}"


def _name_some(paths: list[str]) -> str:
    more = f" and {len(paths) - _MAX_NAMED} more" if len(paths) > _MAX_NAMED else ""
    return ", ".join(paths[:_MAX_NAMED]) + more
