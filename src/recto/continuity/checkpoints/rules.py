"""When checkpoints are written, and what is probed for them."""

from __future__ import annotations

from msgspec import Struct

LOOPBACK = ("localhost", "127.0.0.1", "::1")
HANDOFF_FILE = "handoff.md"
"""The file of the newest handoff, in the folder of its session."""


class CheckpointRules(Struct, frozen=True, kw_only=True):
    """When checkpoints are written, where they are stored, and what is probed for them."""

    folder: str = ""
    """Folder in which checkpoints are also written as files; empty: none."""
    state_file: str = "checkpoint.json"
    """The name of the file for programs."""
    progress_file: str = "checkpoint.md"
    """The name of the file for people."""
    notes_file: str = ""
    """The name of the file with the notes of a session; empty: none."""
    milestones: bool = False
    """Whether a checkpoint is written when a subtask is done, a decision is made or the work is blocked."""
    pressure: float = 0.85
    """The share of the input budget from which on a checkpoint is written, where milestones are."""
    environment: bool = False
    """Whether the directory, git, files and services are probed."""
    directory: str = ""
    """The working directory; empty: that of the process."""
    hosts: tuple[str, ...] = LOOPBACK
    """Hosts whose services may be probed."""
    resume_tokens: int = 1_500
    """Maximum length of the first page of a new window."""
