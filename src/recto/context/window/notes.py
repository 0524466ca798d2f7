"""Notes written by the agent while it works, so that it can continue from them alone.

Notes are short, grouped by kind, and shown by level, critical ones first; the text shown is bounded. All notes stay in
the transcript.

A new note is shown before the next question, where it stays until an edit of the prompt moves it to the marker with all
others: what was sent before it does not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from recto.text.unicode import prompt_safe

NoteKind = Literal["task_progress", "decisions", "bugs", "constraints", "learnings", "misc"]
NOTE_KINDS: tuple[NoteKind, ...] = get_args(NoteKind)
NoteLevel = Literal["critical", "high", "normal"]
NOTE_LEVELS: tuple[NoteLevel, ...] = get_args(NoteLevel)
"""Most important first."""

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


class Note(Struct, frozen=True, kw_only=True):
    """One note."""

    seq: int
    """The entry that stores it."""
    kind: NoteKind
    text: str
    critical: bool = False
    """Whether its level is `critical`."""
    level: NoteLevel = "normal"
    """Notes of a higher level are shown first and kept longest."""
    before: int = 0
    """The question before which it is shown while it is new; 0: the next one."""

    def __post_init__(self) -> None:
        if self.critical != (self.level == "critical"):  # notes of earlier versions are critical or not
            force_setattr(self, "level", "critical" if self.critical else self.level)
            force_setattr(self, "critical", self.level == "critical")

    @property
    def rank(self) -> int:
        """0 for the most important level."""
        return NOTE_LEVELS.index(self.level)


def new_notes(notes: Sequence[Note], shown: Sequence[Note], question: int) -> dict[int, list[Note]]:
    """The notes that were written since the `shown` ones, by the question before which each is shown."""
    last = shown[-1].seq if shown else 0
    by_question: dict[int, list[Note]] = {}
    for note in notes:
        if note.seq > last and 0 < note.before <= question:
            by_question.setdefault(note.before, []).append(note)
    return by_question


def before_question(notes: Sequence[Note], question: int) -> tuple[Note, ...]:
    """The notes, with those that wait for a question shown before this one."""
    return tuple([note if note.before else replace(note, before=question) for note in notes])


def limit_notes(notes: Sequence[Note], max_chars: int = MAX_NOTES_CHARS) -> tuple[Note, ...]:
    """The newest notes, higher levels preferred, that fit into `max_chars`; in their original order."""
    chosen: list[Note] = []
    available = max_chars
    for note in sorted(notes, key=lambda note: (note.rank, -note.seq)):
        if len(note.text) <= available:
            available -= len(note.text)
            chosen.append(note)
    return tuple(sorted(chosen, key=lambda note: note.seq))


def render_notes(notes: Sequence[Note], max_chars: int) -> list[str]:
    """Notes as lines by kind, higher levels first, in at most `max_chars`. Reports how many are not shown."""
    shown = limit_notes(notes, max_chars)
    lines: list[str] = []
    for kind, title in _TITLES.items():
        of_kind = [note for note in shown if note.kind == kind]
        if of_kind:
            lines.append(f"{title}:")
            lines += (_render_note(note) for note in sorted(of_kind, key=lambda note: (note.rank, note.seq)))
    if len(shown) < len(notes):
        lines.append(f"({len(notes) - len(shown)} more notes are kept and not shown here)")
    return lines


def _render_note(note: Note) -> str:
    prefix = f"{note.level}: " if note.level != "normal" else ""
    return f"- {prefix}{' '.join(prompt_safe(note.text).split())} ({note.seq})"
