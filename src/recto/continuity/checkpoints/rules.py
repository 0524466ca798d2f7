"""When checkpoints are written, and what is probed for them."""

from __future__ import annotations

from dataclasses import dataclass

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRules:
    """When checkpoints are written, where they are stored, and what is probed for them."""

    folder: str = ""
    """Folder in which checkpoints are also written as files; empty: none."""
    milestones: bool = False
    """Whether a checkpoint is written when a subtask is done, a decision is made or the work is blocked."""
    environment: bool = False
    """Whether the directory, git, files and services are probed."""
    directory: str = ""
    """The working directory; empty: that of the process."""
    hosts: tuple[str, ...] = LOOPBACK
    """Hosts whose services may be probed."""
    resume_tokens: int = 1_500
    """Maximum length of the first page of a new window."""
