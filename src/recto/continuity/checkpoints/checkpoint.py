"""The state of a task as values: what a checkpoint holds, and what may be set in it by hand. Nothing is decided.

Everything that was said stands in the words in which it was said, with its entry. What was set by hand is marked as
such and never passes for the user's words.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from recto.context.window.notes import Note
from recto.errors import InputError

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRules:
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


SCHEMA = 1
"""The number of this form; a higher one is of a newer Recto."""
Status = Literal["planned", "in_progress", "done"]
Speaker = Literal["system", "user", "assistant", "tool", "agent"]
"""Who said it; `agent` where it was written down or set by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Something that was said, verbatim."""

    text: str
    seq: int = 0
    """The entry it stands in; 0 where it stands in none of this transcript."""
    by: Speaker = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtask:
    """A part of the work, and how far it is."""

    text: str
    status: Status
    seq: int = 0
    """The entry that says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDecision:
    """What was decided."""

    decision: str
    rationale: str = ""
    """Why, as far as the wording tells."""
    alternatives: tuple[str, ...] = ()
    """What was decided against, as far as the wording tells."""
    seq: int = 0
    by: Speaker = "assistant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """Something that is broken and not mended."""

    error: str
    reproduction: str = ""
    """The call that shows it; empty where nobody knows."""
    seq: int = 0
    by: Speaker = "tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """A file as it was."""

    path: str
    """Below the directory."""
    size: int
    modified: int
    """Microseconds since 1970."""
    digest: str = ""
    """SHA-256 of what it held; empty where it was too large to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Something that listens."""

    address: str
    """`host:port`."""
    alive: bool
    """Whether it answered when it was looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where the work is done, as it was found."""

    directory: str = ""
    """Empty where nobody looked."""
    branch: str = ""
    head: str = ""
    """The commit; empty outside of git."""
    dirty: tuple[str, ...] = ()
    """Files that differ from it."""
    paths: tuple[FileState, ...] = ()
    missing: tuple[str, ...] = ()
    """Paths that were looked for and are not there."""
    services: tuple[Service, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualState:
    """What was set by hand, or taken over from a checkpoint of another transcript. It stays until it is set again."""

    goal: str = ""
    success_criteria: tuple[Item, ...] = ()
    constraints: tuple[Item, ...] = ()
    """Only taken over, never set: what holds is said by people, in the transcript."""
    subtasks: tuple[Subtask, ...] = ()
    """Each with the entry after which it was set: what the task list says later counts more."""
    issues: tuple[Issue, ...] = ()
    solved: tuple[Item, ...] = ()
    """Issues that are over, with the entry after which that was said."""
    decisions: tuple[TaskDecision, ...] = ()
    learnings: tuple[Item, ...] = ()
    services: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What somebody sets in a checkpoint. What is empty is left as it is."""

    goal: str = ""
    success_criteria: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()
    """Subtasks that are planned."""
    doing: tuple[str, ...] = ()
    """Subtasks that are worked on; the last is the current one."""
    done: tuple[str, ...] = ()
    issues: tuple[str, ...] = ()
    solved: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    learnings: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    """`host:port` of what has to listen for the work to go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The state of a task."""

    schema: int = SCHEMA
    session: str = ""
    version: int
    """Counts up in a session."""
    window: int
    """How often the window was made anew; never goes back."""
    last: int
    """The last entry it knows of."""
    reason: str = ""
    """Why it was written."""
    goal: str
    goal_seq: int = 0
    """The entry with the whole of it."""
    success_criteria: tuple[Item, ...] = ()
    constraints: tuple[Item, ...] = ()
    """What the user wants, does not want, corrected and agreed to."""
    subtasks: tuple[Subtask, ...] = ()
    decisions: tuple[TaskDecision, ...] = ()
    open_issues: tuple[Issue, ...] = ()
    promises: tuple[Item, ...] = ()
    """What was promised or left for later."""
    questions: tuple[Item, ...] = ()
    learnings: tuple[Item, ...] = ()
    environment: Environment = field(default_factory=Environment)
    files: tuple[str, ...] = ()
    """Files that were worked with, the most important first."""
    notes: tuple[Note, ...] = ()
    summary: str = ""
    """Where the summary of what left the window can be read."""
    given: ManualState = field(default_factory=ManualState)

    @property
    def current(self) -> Subtask | None:
        """What is worked on: what was begun last; where nothing is begun, what is planned first."""
        begun = [task for task in self.subtasks if task.status == "in_progress"]
        if begun:
            return max(begun, key=lambda task: task.seq)
        return next((task for task in self.subtasks if task.status == "planned"), None)

    def to_json(self) -> dict[str, Any]:
        """As an event and a file keep it; `current` is told for readers."""
        return asdict(self) | {"current": self.current.text if self.current else ""}


def changes_given(given: Mapping[str, str | Sequence[str]]) -> Changes | None:
    """What is set in a checkpoint, as it was given: a text, or several."""
    known = [one.name for one in fields(Changes)]
    for name, value in given.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean '{near[0]}'?" if near else f"; it has {', '.join(known)}"
            raise InputError(f"a checkpoint has no '{name}' that can be set{hint}")
        several = [value] if isinstance(value, str) else list(value)
        if not all(isinstance(one, str) for one in several) or (name == "goal" and len(several) != 1):
            raise InputError(f"'{name}' of a checkpoint is text")
    if not given:
        return None
    goal = given.get("goal", "")
    texts = {name: (value,) if isinstance(value, str) else tuple(value) for name, value in given.items()}
    texts.pop("goal", None)
    return Changes(goal=goal if isinstance(goal, str) else goal[0], **texts)
