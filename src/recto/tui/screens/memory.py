"""Durable memory: proposals, as the exact text they would store, and approved memories."""

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
from recto.gateway.client import decode_result
from recto.tui.dialogs import ConfirmDialog, TextDialog
from recto.tui.display_text import format_time, plural, safe_content
from recto.tui.screens.base import BaseView
from recto.tui.state import Changed
from recto.tui.widgets.table import Rows, TableRow

_PAGE = 50


class MemoryView(BaseView):
    """Approve or reject exactly what is shown."""

    PLACE = "memory"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "approve", "Approve"),
        Binding("x", "reject", "Reject"),
        Binding("t", "turn", "Proposals or memories"),
    ]
    AUTO_FOCUS = "Rows"
    _remembered = False
    _next: str | None = None

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._proposals: dict[str, Proposal] = {}
        self._memories: dict[str, MemoryListItem] = {}

    def compose_body(self) -> ComposeResult:
        """Yields a list, and the text under the cursor."""
        yield Static(id="which", markup=False)
        with Container(classes="split"):
            yield Rows("kind", "title", "by", "remarks", id="proposals")
            with VerticalScroll(classes="detail", id="page", can_focus=True):
                yield Static(id="text", markup=False)

    def main_selector(self) -> str:
        """The list."""
        return "#proposals"

    async def load_content(self) -> None:
        """Loads proposals or memories of the session's agent."""
        self._proposals, self._memories, self._next = {}, {}, None
        self.query_one(Rows).show(await self._page(""))
        self._show_title()
        self._detail(self.query_one(Rows).chosen)

    async def _page(self, after: str) -> list[TableRow]:
        query = {"limit": _PAGE, "agent": self._agent(), "after": after or None}
        if self._remembered:
            page = await self.state.get(MemoryPage, "/memory", **query)
            self._next = page.next
            self._memories |= {proposal.memory.id: proposal for proposal in page.memories}
            return [_memory_row(proposal) for proposal in page.memories]
        waiting = await self.state.get(ProposalPage, "/memory/proposals", **query)
        self._next = waiting.next
        self._proposals |= {proposal.id: proposal for proposal in waiting.proposals}
        return [_row(proposal) for proposal in waiting.proposals]

    def _agent(self) -> str | None:
        parts = self.state.session.split(":")
        return parts[1] if len(parts) > 2 and parts[0] == "agent" else None

    def on_rows_near_end(self, event: Rows.NearEnd) -> None:
        """Loads more."""
        if self._next is not None:
            self.run_in_background(partial(self._more, self._next), "more")

    async def _more(self, after: str) -> None:
        self.query_one(Rows).append_rows(await self._page(after))

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Shows another item."""
        self._detail(str(event.row_key.value))

    def _show_title(self) -> None:
        count, more = self.query_one(Rows).row_count, "+" if self._next else ""
        what = "remembered" if self._remembered else "waiting for a decision"
        agent = self._agent() or "the key's agent"
        self.query_one("#which", Static).update(safe_content(f"Memory of {agent}: {count}{more} {what} (t turns over)"))

    def _detail(self, key: str) -> None:
        text = self.query_one("#text", Static)
        if key in self._proposals:
            text.update(_describe_proposal(self._proposals[key]))
        elif key in self._memories:
            text.update(_describe_memory(self._memories[key]))
        else:
            text.update(Content("There is nothing."))

    def action_turn(self) -> None:
        """Switches between proposals and memories."""
        self._remembered = not self._remembered
        self.action_look()

    def action_approve(self) -> None:
        """Asks for confirmation, with the text."""
        proposal = self._proposals.get(self.query_one(Rows).chosen)
        if proposal is None or self.refuse_without("change"):
            return

        def on_answer(yes: bool | None) -> None:
            if yes:
                self.change(partial(self._approve, proposal), "decide")

        self.app.push_screen(
            ConfirmDialog("Remember exactly this?", f"{proposal.text}\n\ndigest {proposal.digest}"), on_answer
        )

    async def _approve(self, proposal: Proposal) -> None:
        body = {"proposal": proposal.id, "digest": proposal.digest}
        response = await self.state.client.post("/memory/proposals/approve", body, agent=self._agent())
        result = decode_result(ApprovalResult, response)
        self.notify(f"it is remembered as {result.memory}", markup=False)
        self.app.post_message(Changed())

    def action_reject(self) -> None:
        """Asks for a reason."""
        proposal = self._proposals.get(self.query_one(Rows).chosen)
        if proposal is None or self.refuse_without("change"):
            return

        def on_answer(why: str | None) -> None:
            if why is not None:
                self.change(partial(self._reject, proposal, why), "decide")

        self.app.push_screen(TextDialog("Reject it for good. Why? (may be empty)", empty=True), on_answer)

    async def _reject(self, proposal: Proposal, why: str) -> None:
        body = {"proposal": proposal.id} | ({"reason": why[:500]} if why else {})
        decode_result(StoredEvent, await self.state.client.post("/memory/proposals/reject", body, agent=self._agent()))
        self.notify("it is rejected, and will not be proposed again", markup=False)
        self.app.post_message(Changed())


def _row(proposal: Proposal) -> TableRow:
    kind = proposal.memory.kind if proposal.action == "keep" else f"{proposal.action} {proposal.memory.kind}"
    remarks = ", ".join(sorted({flag.kind for flag in proposal.flags}))
    return TableRow(key=proposal.id, cells=(kind, proposal.memory.title, proposal.by, remarks))


def _memory_row(item: MemoryListItem) -> TableRow:
    remarks = f"strength {item.strength:.2f}" + (", edited" if item.edited else "")
    return TableRow(key=item.memory.id, cells=(item.memory.kind, item.memory.title, item.approved_by, remarks))


def _describe_proposal(proposal: Proposal) -> Content:
    flags = [f"▲ {flag.kind} of {flag.id} ({flag.score:.2f})" for flag in proposal.flags]
    details = [
        f"{proposal.action}, proposed by {proposal.by}: {proposal.why}",
        f"from {proposal.pointer}, {format_time(proposal.ts)} UTC",
        *flags,
    ]
    return Content.assemble(
        safe_content("\n".join(details)), "\n\n", safe_content(proposal.text), "\n", f"digest {proposal.digest}"
    )


def _describe_memory(item: MemoryListItem) -> Content:
    memory = item.memory
    details = (
        f"{memory.kind} {memory.id}, approved by {item.approved_by} ({item.how}) on {format_time(item.approved)} UTC"
    )
    sources = f"from {plural(len(memory.sources), 'source')}: {', '.join(memory.sources)}" if memory.sources else ""
    return safe_content(
        "\n".join(part for part in (details, sources, "", memory.title, memory.text) if part or part == "")
    )
