"""Notes and checkpoints of the session."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.widgets import DataTable, Static

from recto.context.window.state import NOTE_KINDS
from recto.continuity.checkpoints.checkpoint import Checkpoint, Item
from recto.engine.views.models import CheckpointPage, NoteList, SavedCheckpoint, StoredEvent
from recto.tui.dialogs import ChoiceDialog, TextDialog
from recto.tui.display_text import safe_content
from recto.tui.screens.base import BaseView
from recto.tui.state import Changed
from recto.tui.widgets.table import Rows, TableRow

_PAGE = 50
_NOTE, _CHECKPOINT = "note ", "checkpoint "


class NotesView(BaseView):
    """Notes and checkpoints."""

    PLACE = "notes"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "note", "New note"),
        Binding("k", "checkpoint", "Save a checkpoint"),
    ]
    AUTO_FOCUS = "Rows"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._texts: dict[str, str] = {}

    def compose_body(self) -> ComposeResult:
        """Yields a list, and the full text under the cursor."""
        with Container(classes="split"):
            yield Rows("what", "entry", "kind", "text", id="written")
            with VerticalScroll(classes="detail", can_focus=True):
                yield Static(id="text", markup=False)

    def main_selector(self) -> str:
        """The list."""
        return "#written"

    async def load_content(self) -> None:
        """Loads the newest checkpoints, then the notes."""
        page = await self.state.get_for_session(CheckpointPage, "checkpoints", limit=_PAGE)
        notes = (await self.state.get_for_session(NoteList, "notes")).notes
        rows = [
            TableRow(
                key=f"{_CHECKPOINT}{checkpoint.version}",
                cells=(f"checkpoint {checkpoint.version}", str(checkpoint.seq), checkpoint.reason, checkpoint.goal),
            )
            for checkpoint in page.checkpoints
        ]
        self._texts = {}
        for note in reversed(notes):
            key = f"{_NOTE}{note.seq}"
            self._texts[key] = (
                f"note of entry {note.seq}: {note.kind}{', critical' if note.critical else ''}\n\n{note.text}"
            )
            rows.append(
                TableRow(
                    key=key, cells=("note ▲" if note.critical else "note", str(note.seq), note.kind, note.text[:200])
                )
            )
        self.query_one(Rows).show(rows)
        self._detail(self.query_one(Rows).chosen)

    def show_empty(self) -> None:
        """Shows that there is nothing."""
        self.query_one(Rows).show(())
        self._detail("")

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Shows another item."""
        self._detail(str(event.row_key.value))

    def _detail(self, key: str) -> None:
        text = self.query_one("#text", Static)
        if key in self._texts:
            text.update(safe_content(self._texts[key]))
        elif key.startswith(_CHECKPOINT):
            self.run_in_background(partial(self._checkpoint, int(key.removeprefix(_CHECKPOINT))), "checkpoint")
        else:
            text.update(Content("Nothing is written down. n writes a note, k saves a checkpoint."))

    async def _checkpoint(self, version: int) -> None:
        checkpoint = await self.state.get_for_session(Checkpoint, "checkpoint", version=version)
        if self.query_one(Rows).chosen == f"{_CHECKPOINT}{version}":
            self.query_one("#text", Static).update(safe_content("\n".join(_describe(checkpoint))))

    def action_note(self) -> None:
        """Asks for the kind of a note, then for its text."""
        if self.refuse_without("change"):
            return

        def on_kind(kind: str | None) -> None:
            if kind:
                self.app.push_screen(TextDialog(f"The note ({kind})"), lambda text: on_text(kind, text))

        def on_text(kind: str, text: str | None) -> None:
            if text:
                self.change(partial(self._note, kind, text), "write")

        self.app.push_screen(ChoiceDialog("What is the note about?", NOTE_KINDS), on_kind)

    async def _note(self, kind: str, text: str) -> None:
        event = await self.state.post_to_session(StoredEvent, "notes", {"kind": kind, "text": text})
        self.notify(f"the note is entry {event.seq}", markup=False)
        self.app.post_message(Changed())

    def action_checkpoint(self) -> None:
        """Saves a checkpoint."""
        if not self.refuse_without("change"):
            self.change(self._save, "write")

    async def _save(self) -> None:
        event = await self.state.post_to_session(SavedCheckpoint, "checkpoints", {})
        self.notify(f"checkpoint {event.version} is entry {event.seq}", markup=False)
        self.app.post_message(Changed())


def _describe(checkpoint: Checkpoint) -> Iterable[str]:
    position = f"window {checkpoint.window}, up to entry {checkpoint.last}"
    yield f"checkpoint {checkpoint.version}, {position}: {checkpoint.reason}"
    yield f"goal: {checkpoint.goal or '–'}"
    for task in checkpoint.subtasks:
        yield f"  {'✓' if task.status == 'done' else '▶' if task.status == 'in_progress' else '·'} {task.text}"
    yield from _items("done when", checkpoint.success_criteria)
    yield from _items("constraint", checkpoint.constraints)
    yield from (f"decided: {item.decision}" for item in checkpoint.decisions)
    yield from (f"issue: {item.error}" for item in checkpoint.open_issues)
    yield from _items("promised", checkpoint.promises)
    yield from _items("question", checkpoint.questions)
    yield from _items("learnt", checkpoint.learnings)
    if checkpoint.files:
        yield f"files: {', '.join(checkpoint.files)}"


def _items(name: str, items: Iterable[Item]) -> Iterable[str]:
    return (f"{name}: {item.text} (entry {item.seq})" for item in items)
