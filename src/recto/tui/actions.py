"""Actions that several screens share: pin, undo, redo."""

from __future__ import annotations

from functools import partial

from recto.engine.views.models import AuditPage, StoredEvent
from recto.errors import RequestRefused
from recto.tui.screens.base import BaseView
from recto.tui.state import Changed, TuiState


async def pin_or_unpin(state: TuiState, seq: int, *, pinned: bool) -> str:
    """Pins or unpins an entry and returns a message about it."""
    if pinned:
        await state.client.delete("/session/pins", session=state.session, seq=seq)
        return f"entry {seq} is no longer pinned: it may be evicted"
    await state.post_to_session(StoredEvent, "pins", {"entries": [seq]})
    return f"entry {seq} is pinned: it stays in the prompt"


class Undoing(BaseView):
    """A screen with decisions that can be undone."""

    def undo(self, decision: int) -> None:
        """Undoes a decision."""
        if not self.refuse_without("change"):
            self.change(partial(self._undo, decision), "undo")

    def redo(self, decision: int) -> None:
        """Makes an undone decision again."""
        if not self.refuse_without("change"):
            self.change(partial(self._redo, decision), "undo")

    async def _undo(self, decision: int) -> None:
        await self.state.post_to_session(StoredEvent, "restore", {"decision": decision})
        self.notify(f"decision {decision} is undone: its messages are in the prompt again", markup=False)
        self.app.post_message(Changed())

    async def _redo(self, decision: int) -> None:
        page = await self.state.get_for_session(AuditPage, "audit", from_=decision, limit=1)
        undone_by = next((line.undone_by for line in page.lines if line.seq == decision), None)
        if undone_by is None:
            raise RequestRefused(409, "refused", f"decision {decision} is not undone")
        event = await self.state.post_to_session(StoredEvent, "redo", {"restored": undone_by})
        self.notify(f"decision {decision} is made again, as entry {event.seq}", markup=False)
        self.app.post_message(Changed())
