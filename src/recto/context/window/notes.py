"""Notes written by the agent while it works, so that it can continue from them alone.

Notes are short, grouped by kind, and shown with critical ones first; the text shown is bounded. All notes stay in the
transcript.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from recto.text.unicode import prompt_safe

NoteKind = Literal["task_progress", "decisions", "bugs", "constraints", "learnings", "misc"]
NOTE_KINDS: tuple[NoteKind, ...] = get_args(NoteKind)

MAX_NOTE_CHARS = 2_000
"""Characters of one note."""
MAX_NOTES_CHARS = 8_000
"""Characters of all notes kept in the window state."""
_TITLES: dict[NoteKind, str] = {
    "constraints": "Constraints",
    "task_progress": "Task progress",
    "bugs": "Bugs",
    "decisions": "Decisions",
    "learnings": "Learnings",
    "misc": "Other notes",
}
"""Headings, in the order in which a reader without context needs them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One note."""

    seq: int
    """The entry that stores it."""
    kind: NoteKind
    text: str
    critical: bool = False
    """Whether it is shown before all others."""


def limit_notes(notes: Sequence[Note], max_chars: int = MAX_NOTES_CHARS) -> tuple[Note, ...]:
    """The newest notes, critical ones preferred, that fit into `max_chars`; in their original order."""
    chosen: list[Note] = []
    available = max_chars
    for note in sorted(notes, key=lambda note: (note.critical, note.seq), reverse=True):
        if len(note.text) <= available:
            available -= len(note.text)
            chosen.append(note)
    return tuple(sorted(chosen, key=lambda note: note.seq))


def render_notes(notes: Sequence[Note], max_chars: int) -> list[str]:
    """Notes as lines by kind, critical ones first, in at most `max_chars`. Reports how many are not shown."""
    shown = limit_notes(notes, max_chars)
    lines: list[str] = []
    for kind, title in _TITLES.items():
        of_kind = [note for note in shown if note.kind == kind]
        if of_kind:
            lines.append(f"{title}:")
            lines += (_render_note(note) for note in sorted(of_kind, key=lambda note: (not note.critical, note.seq)))
    if len(shown) < len(notes):
        lines.append(f"({len(notes) - len(shown)} more notes are kept and not shown here)")
    return lines


def _render_note(note: Note) -> str:
    prefix = "critical: " if note.critical else ""
    return f"- {prefix}{' '.join(prompt_safe(note.text).split())} ({note.seq})"
