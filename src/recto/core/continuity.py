"""How the work of a session is kept track of. Values only."""

from __future__ import annotations

from dataclasses import dataclass

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuity:
    """When checkpoints are written, where they are kept, and what is looked at for them."""

    folder: str = ""
    """Where checkpoints are kept as files too; empty: nowhere."""
    milestones: bool = False
    """Whether one is written when a subtask is done, something is decided or the work is blocked."""
    environment: bool = False
    """Whether the directory, git, files and services are looked at."""
    directory: str = ""
    """Where the work is done; empty: the current folder of the process."""
    hosts: tuple[str, ...] = LOOPBACK
    """Hosts whose services may be asked whether they answer."""
    resume_tokens: int = 1_500
    """What the first page of a new window may have."""
