"""Durable memory: what waits for a decision, as the exact text it would be, and what is remembered."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.widgets import DataTable, Static

from recto.continuity.memory.proposals import Proposal
from recto.engine.views.models import ApprovalResult, MemoryListItem, MemoryPage, ProposalPage, StoredEvent
from recto.gateway.client import value_of
from recto.tui.dialogs import ConfirmDialog, TextDialog
from recto.tui.formatting import counted, shown, when
from recto.tui.screens.base import BaseView
from recto.tui.state import Changed
from recto.tui.widgets.table import Rows, TableRow

_PAGE = 50


class MemoryView(BaseView):
    """Approve or reject, exactly what is shown."""

    PLACE = "memory"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "approve", "Approve"),
        Binding("x", "reject", "Reject"),
        Binding("t", "turn", "Proposals or memories"),
    ]
    AUTO_FOCUS = "Rows"
    _remembered = False
    _next: str | None = None

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self._proposals: dict[str, Proposal] = {}
        self._memories: dict[str, MemoryListItem] = {}

    def body(self) -> ComposeResult:
        """A list, and the text of the one under the cursor."""
        yield Static(id="which", markup=False)
        with Container(classes="split"):
            yield Rows("kind", "title", "by", "remarks", id="proposals")
            with VerticalScroll(classes="detail", id="page", can_focus=True):
                yield Static(id="text", markup=False)

    def main(self) -> str:
        """The list."""
        return "#proposals"

    async def look(self) -> None:
        """What waits, or what is remembered, of the agent whose session is looked at."""
        self._proposals, self._memories, self._next = {}, {}, None
        self.query_one(Rows).show(await self._page(""))
        self._say()
        self._detail(self.query_one(Rows).chosen)

    async def _page(self, after: str) -> list[TableRow]:
        asked = {"limit": _PAGE, "agent": self._agent(), "after": after or None}
        if self._remembered:
            page = await self.here.get(MemoryPage, "/memory", **asked)
            self._next = page.next
            self._memories |= {one.memory.id: one for one in page.memories}
            return [_memory_row(one) for one in page.memories]
        waiting = await self.here.get(ProposalPage, "/memory/proposals", **asked)
        self._next = waiting.next
        self._proposals |= {one.id: one for one in waiting.proposals}
        return [_row(one) for one in waiting.proposals]

    def _agent(self) -> str | None:
        parts = self.here.session.split(":")
        return parts[1] if len(parts) > 2 and parts[0] == "agent" else None

    def on_rows_near_end(self, event: Rows.NearEnd) -> None:
        """The end of what is loaded is in sight."""
        if self._next is not None:
            self.work(partial(self._more, self._next), "more")

    async def _more(self, after: str) -> None:
        self.query_one(Rows).more(await self._page(after))

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Another one is looked at."""
        self._detail(str(event.row_key.value))

    def _say(self) -> None:
        many, more = self.query_one(Rows).row_count, "+" if self._next else ""
        what = "remembered" if self._remembered else "waiting for a decision"
        agent = self._agent() or "the key's agent"
        self.query_one("#which", Static).update(shown(f"Memory of {agent}: {many}{more} {what} (t turns over)"))

    def _detail(self, key: str) -> None:
        text = self.query_one("#text", Static)
        if key in self._proposals:
            text.update(_told(self._proposals[key]))
        elif key in self._memories:
            text.update(_told_memory(self._memories[key]))
        else:
            text.update(Content("There is nothing."))

    def action_turn(self) -> None:
        """From what waits to what is remembered, and back."""
        self._remembered = not self._remembered
        self.action_look()

    def action_approve(self) -> None:
        """Asks once more, with the text."""
        one = self._proposals.get(self.query_one(Rows).chosen)
        if one is None or self.refuse_without("change"):
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self.change(partial(self._approve, one), "decide")

        self.app.push_screen(ConfirmDialog("Remember exactly this?", f"{one.text}\n\ndigest {one.digest}"), answered)

    async def _approve(self, one: Proposal) -> None:
        body = {"proposal": one.id, "digest": one.digest}
        told = await self.here.client.post("/memory/proposals/approve", body, agent=self._agent())
        made = value_of(ApprovalResult, told)
        self.notify(f"it is remembered as {made.memory}", markup=False)
        self.app.post_message(Changed())

    def action_reject(self) -> None:
        """Asks why."""
        one = self._proposals.get(self.query_one(Rows).chosen)
        if one is None or self.refuse_without("change"):
            return

        def answered(why: str | None) -> None:
            if why is not None:
                self.change(partial(self._reject, one, why), "decide")

        self.app.push_screen(TextDialog("Reject it for good. Why? (may be empty)", empty=True), answered)

    async def _reject(self, one: Proposal, why: str) -> None:
        body = {"proposal": one.id} | ({"reason": why[:500]} if why else {})
        value_of(StoredEvent, await self.here.client.post("/memory/proposals/reject", body, agent=self._agent()))
        self.notify("it is rejected, and will not be proposed again", markup=False)
        self.app.post_message(Changed())


def _row(one: Proposal) -> TableRow:
    kind = one.memory.kind if one.action == "keep" else f"{one.action} {one.memory.kind}"
    remarks = ", ".join(sorted({flag.kind for flag in one.flags}))
    return TableRow(key=one.id, cells=(kind, one.memory.title, one.by, remarks))


def _memory_row(one: MemoryListItem) -> TableRow:
    remarks = f"strength {one.strength:.2f}" + (", edited" if one.edited else "")
    return TableRow(key=one.memory.id, cells=(one.memory.kind, one.memory.title, one.approved_by, remarks))


def _told(one: Proposal) -> Content:
    flags = [f"▲ {flag.kind} of {flag.id} ({flag.score:.2f})" for flag in one.flags]
    about = [f"{one.action}, proposed by {one.by}: {one.why}", f"from {one.pointer}, {when(one.ts)} UTC", *flags]
    return Content.assemble(shown("\n".join(about)), "\n\n", shown(one.text), "\n", f"digest {one.digest}")


def _told_memory(one: MemoryListItem) -> Content:
    memory = one.memory
    about = f"{memory.kind} {memory.id}, approved by {one.approved_by} ({one.how}) on {when(one.approved)} UTC"
    sources = f"from {counted(len(memory.sources), 'source')}: {', '.join(memory.sources)}" if memory.sources else ""
    return shown("\n".join(part for part in (about, sources, "", memory.title, memory.text) if part or part == ""))
