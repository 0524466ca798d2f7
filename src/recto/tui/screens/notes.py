"""Notes and checkpoints: what the agent wrote down while working, and where the task stood."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.widgets import DataTable, Static

from recto.context.window.notes import NOTE_KINDS
from recto.continuity.checkpoints.checkpoint import Checkpoint, Item
from recto.engine.views.models import CheckpointPage, NoteList, SavedCheckpoint, StoredEvent
from recto.tui.dialogs import ChoiceDialog, TextDialog
from recto.tui.formatting import shown
from recto.tui.screens.base import BaseView
from recto.tui.state import Changed
from recto.tui.widgets.table import Rows, TableRow

_PAGE = 50
_NOTE, _CHECKPOINT = "note ", "checkpoint "


class NotesView(BaseView):
    """What was written down."""

    PLACE = "notes"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "note", "New note"),
        Binding("k", "checkpoint", "Save a checkpoint"),
    ]
    AUTO_FOCUS = "Rows"

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self._texts: dict[str, str] = {}

    def body(self) -> ComposeResult:
        """A list, and all of the one under the cursor."""
        with Container(classes="split"):
            yield Rows("what", "entry", "kind", "text", id="written")
            with VerticalScroll(classes="detail", can_focus=True):
                yield Static(id="text", markup=False)

    def main(self) -> str:
        """The list."""
        return "#written"

    async def look(self) -> None:
        """The newest checkpoints, then the notes."""
        page = await self.here.of_session(CheckpointPage, "checkpoints", limit=_PAGE)
        notes = (await self.here.of_session(NoteList, "notes")).notes
        rows = [
            TableRow(
                key=f"{_CHECKPOINT}{one.version}",
                cells=(f"checkpoint {one.version}", str(one.seq), one.reason, one.goal),
            )
            for one in page.checkpoints
        ]
        self._texts = {}
        for one in reversed(notes):
            key = f"{_NOTE}{one.seq}"
            self._texts[key] = (
                f"note of entry {one.seq}: {one.kind}{', critical' if one.critical else ''}\n\n{one.text}"
            )
            rows.append(
                TableRow(key=key, cells=("note ▲" if one.critical else "note", str(one.seq), one.kind, one.text[:200]))
            )
        self.query_one(Rows).show(rows)
        self._detail(self.query_one(Rows).chosen)

    def blank(self) -> None:
        """There is nothing."""
        self.query_one(Rows).show(())
        self._detail("")

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Another one is looked at."""
        self._detail(str(event.row_key.value))

    def _detail(self, key: str) -> None:
        text = self.query_one("#text", Static)
        if key in self._texts:
            text.update(shown(self._texts[key]))
        elif key.startswith(_CHECKPOINT):
            self.work(partial(self._checkpoint, int(key.removeprefix(_CHECKPOINT))), "checkpoint")
        else:
            text.update(Content("Nothing is written down. n writes a note, k saves a checkpoint."))

    async def _checkpoint(self, version: int) -> None:
        found = await self.here.of_session(Checkpoint, "checkpoint", version=version)
        if self.query_one(Rows).chosen == f"{_CHECKPOINT}{version}":
            self.query_one("#text", Static).update(shown("\n".join(_told(found))))

    def action_note(self) -> None:
        """Asks what kind of note, then for the note."""
        if self.refuse_without("change"):
            return

        def kind_chosen(kind: str | None) -> None:
            if kind:
                self.app.push_screen(TextDialog(f"The note ({kind})"), lambda text: written(kind, text))

        def written(kind: str, text: str | None) -> None:
            if text:
                self.change(partial(self._note, kind, text), "write")

        self.app.push_screen(ChoiceDialog("What is the note about?", NOTE_KINDS), kind_chosen)

    async def _note(self, kind: str, text: str) -> None:
        made = await self.here.do(StoredEvent, "notes", {"kind": kind, "text": text})
        self.notify(f"the note is entry {made.seq}", markup=False)
        self.app.post_message(Changed())

    def action_checkpoint(self) -> None:
        """Writes down where the work stands."""
        if not self.refuse_without("change"):
            self.change(self._save, "write")

    async def _save(self) -> None:
        made = await self.here.do(SavedCheckpoint, "checkpoints", {})
        self.notify(f"checkpoint {made.version} is entry {made.seq}", markup=False)
        self.app.post_message(Changed())


def _told(found: Checkpoint) -> Iterable[str]:
    yield f"checkpoint {found.version}, window {found.window}, up to entry {found.last}: {found.reason}"
    yield f"goal: {found.goal or '–'}"
    for task in found.subtasks:
        yield f"  {'✓' if task.status == 'done' else '▶' if task.status == 'in_progress' else '·'} {task.text}"
    yield from _items("done when", found.success_criteria)
    yield from _items("constraint", found.constraints)
    yield from (f"decided: {one.decision}" for one in found.decisions)
    yield from (f"issue: {one.error}" for one in found.open_issues)
    yield from _items("promised", found.promises)
    yield from _items("question", found.questions)
    yield from _items("learnt", found.learnings)
    if found.files:
        yield f"files: {', '.join(found.files)}"


def _items(name: str, items: Iterable[Item]) -> Iterable[str]:
    return (f"{name}: {one.text} (entry {one.seq})" for one in items)
