"""What an agent writes down while it works, so that it can go on from the notes alone.

Notes are short, sorted by kind, and shown critical ones first; however many there are, what is shown is bounded. All of
them stay in the transcript.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from recto.text.unicode import harmless

NoteKind = Literal["task_progress", "decisions", "bugs", "constraints", "learnings", "misc"]
KINDS: tuple[NoteKind, ...] = get_args(NoteKind)

LONGEST = 2_000
"""Characters of one note."""
_REMEMBERED = 8_000
"""Characters of all notes that are kept at hand."""
_TITLES: dict[NoteKind, str] = {
    "constraints": "Constraints",
    "task_progress": "Task progress",
    "bugs": "Bugs",
    "decisions": "Decisions",
    "learnings": "Learnings",
    "misc": "Other notes",
}
"""In the order in which somebody who knows nothing needs them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One thing written down."""

    seq: int
    """The entry it is kept in."""
    kind: NoteKind
    text: str
    critical: bool = False
    """Whether it is shown before all others."""


def bounded(notes: Sequence[Note], most: int = _REMEMBERED) -> tuple[Note, ...]:
    """The newest notes, critical ones before all others, in at most so many characters; in their order."""
    kept: list[Note] = []
    room = most
    for note in sorted(notes, key=lambda note: (note.critical, note.seq), reverse=True):
        if len(note.text) <= room:
            room -= len(note.text)
            kept.append(note)
    return tuple(sorted(kept, key=lambda note: note.seq))


def rendered(notes: Sequence[Note], most: int) -> list[str]:
    """Notes as lines by kind, critical ones first in each, in at most so many characters. Says what is not shown."""
    shown = bounded(notes, most)
    lines: list[str] = []
    for kind, title in _TITLES.items():
        own = [note for note in shown if note.kind == kind]
        if own:
            lines.append(f"{title}:")
            lines += (_line(note) for note in sorted(own, key=lambda note: (not note.critical, note.seq)))
    if len(shown) < len(notes):
        lines.append(f"({len(notes) - len(shown)} more notes are kept and not shown here)")
    return lines


def _line(note: Note) -> str:
    marked = "critical: " if note.critical else ""
    return f"- {marked}{' '.join(harmless(note.text).split())} ({note.seq})"
