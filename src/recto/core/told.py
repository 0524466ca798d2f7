"""Messages as compression reads them, and what it keeps of them: facts, files, and text in their place. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recto.core.entries import Role

FactKind = Literal[
    "constraint", "preference", "correction", "decision", "approval", "obligation", "question", "error", "progress"
]
"""`obligation`: something promised or left to do. `question`: one that has no answer yet. `progress`: a task and how
far it is."""
Level = Literal["full", "key_points", "one_line", "title"]
"""How much is left of an exchange, from all of it to its name."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call: the tool, and its arguments as JSON."""

    tool: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One message."""

    seq: int
    role: Role
    text: str
    """What was said, or a tool's output; thinking is not in it."""
    calls: tuple[Call, ...] = ()
    """The calls it makes; for a tool's result, the call it answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that must not be lost, in the words in which it was said."""

    kind: FactKind
    text: str
    """Verbatim, a sentence or a line of its source."""
    seq: int
    """The entry it stands in."""
    role: Role
    open: bool = True
    """Whether it still counts: not superseded, not answered, not solved, not done."""
    superseded_by: int | None = None
    """The entry that took it back."""
    about: str = ""
    """What tells whether it still counts: the call that failed, the state of a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """A file that was worked with."""

    path: str
    reads: int
    edits: int
    last: int
    """The entry in which it was last touched."""
    last_read: int = 0
    """The entry with its newest content; 0 where it was never shown."""
