"""Where a piece of work stands: machine-readable, and as a page that somebody who knows nothing can go on from.

It is filled from facts, notes and files, each with the entry it stands in. A planned item is never told as done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from recto.core.ledger import critical_first
from recto.core.notes import Note, rendered
from recto.core.sections import CountText, bullet
from recto.core.told import Fact, FactKind, Touched

HEADER = (
    "[Handoff: where the work stood when the window was made smaller, for reference only. It carries no instructions.]"
)
FOOTER = "[End of the handoff]"
_GOAL = 1_200
"""Characters of the goal that are kept; the whole stands in its entry."""
_MOST = 60
"""Items of each kind."""
_FILES = 20
_NOTES = 1_500
"""Characters of notes in a handoff."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Something that was said, verbatim, and the entry it was said in."""

    text: str
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The state of a task."""

    version: int
    """Counts up in a session."""
    window: int
    """How often the window was made anew."""
    goal: str
    constraints: tuple[Item, ...]
    """What the user wants, does not want and corrected."""
    decisions: tuple[Item, ...]
    open_issues: tuple[Item, ...]
    progress: tuple[Item, ...]
    """The task list as it was last written, and what was promised."""
    questions: tuple[Item, ...]
    files: tuple[str, ...]
    notes: tuple[Note, ...]
    last: int
    """The last entry it knows of."""

    def to_json(self) -> dict[str, Any]:
        """As an event keeps it."""
        return asdict(self)


def checkpoint_of(
    facts: Sequence[Fact],
    touched: Sequence[Touched],
    notes: Sequence[Note],
    *,
    goal: str,
    version: int,
    window: int,
    last: int,
) -> Checkpoint:
    """The state of a task, from what is known of it."""
    ordered = [fact for fact in critical_first(facts) if fact.open]

    def of(*kinds: FactKind) -> tuple[Item, ...]:
        return tuple(Item(text=fact.text, seq=fact.seq) for fact in ordered if fact.kind in kinds)[:_MOST]

    newest = sorted(touched, key=lambda file: (file.edits > 0, file.last), reverse=True)
    return Checkpoint(
        version=version,
        window=window,
        goal=goal[:_GOAL],
        constraints=of("constraint", "preference", "correction", "approval"),
        decisions=of("decision"),
        open_issues=of("error"),
        progress=of("progress", "obligation"),
        questions=of("question"),
        files=tuple(file.path for file in newest[:_FILES]),
        notes=tuple(notes),
        last=last,
    )


def handoff_of(checkpoint: Checkpoint, said: str, *, most: int, count: CountText) -> str:
    """A checkpoint as a page of at most so many tokens; `said` is what the agent said last."""
    groups = (
        ("Goal", [bullet(checkpoint.goal)] if checkpoint.goal else []),
        ("What holds", _bullets(checkpoint.constraints)),
        ("Not solved", _bullets(checkpoint.open_issues)),
        ("To do", _bullets(checkpoint.progress)),
        ("The agent's last words", [bullet(said[:600])] if said.strip() else []),
        ("Not answered", _bullets(checkpoint.questions)),
        ("Notes", rendered(checkpoint.notes, _NOTES) if checkpoint.notes else []),
        ("Decided", _bullets(checkpoint.decisions)),
        ("Files worked on", [bullet(", ".join(checkpoint.files))] if checkpoint.files else []),
    )
    lines, room = [HEADER], most - count(HEADER) - count(FOOTER) - 8
    for title, own in groups:
        fitting: list[str] = []
        for line in own:
            cost = count(line) + 1
            if cost + 4 <= room:
                room -= cost
                fitting.append(line)
        if fitting:
            room -= count(f"{title}:") + 1
            lines += [f"{title}:", *fitting]
    return "\n".join((*lines, FOOTER))


def _bullets(items: Sequence[Item]) -> list[str]:
    return [bullet(item.text, item.seq) for item in items]
