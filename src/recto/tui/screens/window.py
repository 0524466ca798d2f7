"""The window: the prompt as it is sent, block by block, at any turn of the session; and its budget.

`BlockScreen` shows a block that is no entry with its whole text, over a screen.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Static

from recto.context.window.report import Report
from recto.engine.timeline import MAX_ENTRIES, Timeline, TurnPoint
from recto.engine.window_view import PromptBlock, WindowView
from recto.tui.actions import pin_or_unpin
from recto.tui.display_text import full_number, percent, plural, right_aligned, safe_content
from recto.tui.screens.base import BaseView
from recto.tui.state import Changed, ShowEntry, TuiState
from recto.tui.widgets.budget_panel import BudgetPanel
from recto.tui.widgets.prompt_blocks import block_key, block_name, block_row, describe_block
from recto.tui.widgets.table import Rows
from recto.tui.widgets.transcript_strip import TranscriptStrip

_FIRST_TURN = 0
"""A moment before the first entry: the end of the first turn, once it is loaded."""
_SCRUBBING = ("step", "first", "live", "decision")


class BlockScreen(ModalScreen[None]):
    """What Recto or the client added to the prompt."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss(None)", "Close"),
        Binding("s", "source", "Open a quoted entry"),
    ]

    def __init__(self, block: PromptBlock) -> None:
        super().__init__()
        self._block = block
        self._opened = 0

    def compose(self) -> ComposeResult:
        """Yields the name and the text."""
        with Vertical(classes="box tall"):
            yield Static(safe_content(block_name(self._block)), classes="title", markup=False)
            with VerticalScroll(id="text"):
                yield Static(describe_block(self._block), markup=False)
            yield Footer(show_command_palette=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offers the source only where an entry is quoted."""
        return action != "source" or bool(self._block.sources)

    def action_source(self) -> None:
        """Opens the first quoted entry, then the next one."""
        sources = self._block.sources
        self.app.post_message(ShowEntry(sources[self._opened % len(sources)]))
        self._opened += 1


class WindowScreen(BaseView):
    """The prompt, its blocks and the turn that is shown."""

    PLACE = "window"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", "Turn before", key_display="←", priority=True),
        Binding("right", "step(1)", "after", key_display="→", priority=True),
        Binding("home", "first", "First turn", show=False, priority=True),
        Binding("end", "live", "Now", priority=True),
        Binding("comma", "decision(-1)", "Decision before", show=False),
        Binding("full_stop", "decision(1)", "Decision after", show=False),
        Binding("p", "pin", "Pin or unpin"),
        Binding("t", "budget", "Budget"),
        Binding("c", "app.compact", "Compact", show=False),
    ]
    AUTO_FOCUS = "#blocks"

    def __init__(self, state: TuiState) -> None:
        super().__init__(state)
        self._session = ""
        self._at: int | None = None
        """The entry after which the window is shown; None: as it is."""
        self._view: WindowView | None = None
        self._blocks: dict[str, PromptBlock] = {}
        self._turns: tuple[TurnPoint, ...] = ()
        """The turns around the shown moment: those of one page of entries."""
        self._page = 1

    def compose_body(self) -> ComposeResult:
        """Yields the scrubber, the blocks with the one under the cursor, and the budget."""
        with Vertical(id="prompt"):
            with Vertical(id="scrubber"):
                yield TranscriptStrip(id="strip")
                yield Static(id="now", markup=False)
            with Container(classes="split"):
                yield Rows(right_aligned("entry"), "block", right_aligned("tokens"), "why", "text", id="blocks")
                with VerticalScroll(classes="detail", can_focus=False):
                    yield Static(id="block", markup=False)
        yield BudgetPanel()

    @property
    def _shows_budget(self) -> bool:
        return self.has_class("with-budget")

    def main_selector(self) -> str:
        """The blocks, or the largest parts."""
        return "#holders" if self._shows_budget else "#blocks"

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leaves the keys of the scrubber to the table while the budget is shown."""
        return not (self._shows_budget and action in _SCRUBBING)

    async def load_content(self) -> None:
        """Loads the window at the chosen moment, or the report."""
        if self._session != self.state.session:
            self._session, self._at, self._turns = self.state.session, None, ()
        if self._shows_budget:
            self.query_one(BudgetPanel).show(await self.state.get_for_session(Report, "context"))
            return
        if self._at == _FIRST_TURN:
            await self._load_turns(1)
            self._at = self._turns[0].last if self._turns else None
        view = await self.state.get_for_session(WindowView, "window", at=self._at)
        await self._load_turns(view.at)
        self._show(view)

    async def _load_turns(self, seq: int) -> None:
        """Loads the turns of the page that has an entry."""
        page = (seq - 1) // MAX_ENTRIES * MAX_ENTRIES + 1
        timeline = await self.state.get_for_session(Timeline, "timeline", from_=page, limit=MAX_ENTRIES)
        self._page, self._turns = page, timeline.points

    def show_empty(self) -> None:
        """Shows that there is no prompt."""
        self._view, self._blocks, self._turns = None, {}, ()
        self.query_one(TranscriptStrip).show(None)
        self.query_one("#now", Static).update("")
        self.query_one("#blocks", Rows).show(())
        self._detail("")
        self.query_one(BudgetPanel).show(None)

    def _show(self, view: WindowView) -> None:
        self._view = view
        self._blocks = {block_key(block, place): block for place, block in enumerate(view.blocks)}
        self.query_one(TranscriptStrip).show(view)
        self.query_one("#now", Static).update(self._moment(view))
        rows = self.query_one("#blocks", Rows)
        rows.show(block_row(block, place) for place, block in enumerate(view.blocks))
        self._detail(rows.chosen)

    def _moment(self, view: WindowView) -> Content:
        """Describes which moment is shown, how full the prompt is, and what was decided in that turn."""
        turns = self.state.now.reading.turn if self.state.now else view.turn
        past = f"of {turns:,}, after entry {view.at:,}; End: now"
        where = "now: what would be sent next" if self._at is None else past
        more = f", {plural(view.more, 'older message')} not listed" if view.more else ""
        lines = [
            Content.assemble((f"Turn {view.turn:,}", "bold"), f" {where}"),
            Content.assemble(
                f"{full_number(view.tokens)} of {full_number(view.room)} tokens ",
                (f"{percent(view.utilization)} {view.zone}", f"bold $zone-{view.zone}"),
                f"  {plural(view.messages, 'message')} in the prompt{more}, {full_number(view.evicted)} evicted",
            ),
        ]
        turn = next((turn for turn in self._turns if turn.first <= view.at <= turn.last), None)
        marks = [mark for mark in turn.decisions if mark.seq <= view.at] if turn else []
        if marks:
            words = (f"{mark.kind.replace('_', ' ')} ({full_number(mark.frees)} tokens freed)" for mark in marks)
            lines.append(Content(f"▼ in this turn: {', '.join(words)}"))
        return Content("\n").join(lines)

    def _detail(self, key: str) -> None:
        block = self._blocks.get(key)
        self.query_one("#block", Static).update(describe_block(block) if block else "")

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Shows another block."""
        if event.data_table.id == "blocks":
            self._detail(str(event.row_key.value))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Opens the entry with its history, or the whole text of a block that is no entry."""
        key = str(event.row_key.value)
        block = self._blocks.get(key)
        if event.data_table.id == "holders":
            seq = int(key) if key.isdecimal() else None
        else:
            seq = block.seq if block else None
        if seq is not None:
            self.app.post_message(ShowEntry(seq))
        elif block is not None:
            self.app.push_screen(BlockScreen(block))

    def action_step(self, by: int) -> None:
        """Shows the window at the end of the turn before or after."""
        if self._view is None:
            return
        here, last = self._view.last if self._at is None else self._at, self._view.last
        stops = [turn.last for turn in self._turns]
        if by < 0:
            older = [stop for stop in stops if stop < here]
            target = older[-1] if older else self._page - 1
        else:
            newer = [stop for stop in stops if stop > here]
            target = newer[0] if newer else min(self._page + MAX_ENTRIES, last)
        if target < 1:
            self.show_message("This is the first turn.", bad=False)
        else:
            self._move(target)

    def action_decision(self, by: int) -> None:
        """Shows the window right after the decision before or after."""
        here = self._at if self._at is not None else self._view.last + 1 if self._view else 1
        marks = [mark.seq for turn in self._turns for mark in turn.decisions]
        found = [seq for seq in marks if (seq < here if by < 0 else seq > here)]
        if found:
            self._move(found[-1] if by < 0 else found[0])
        else:
            self.show_message(f"No decision {'before' if by < 0 else 'after'} this one nearby.", bad=False)

    def action_first(self) -> None:
        """Shows the window at the end of the first turn."""
        self._move(_FIRST_TURN)

    def action_live(self) -> None:
        """Shows what would be sent now, and follows the session."""
        if self._view is not None:
            self._move(self._view.last)

    def _move(self, seq: int) -> None:
        live = self._view is None or seq >= self._view.last
        self._at = None if live else seq
        self.show_message("")
        where = "the first turn" if seq == _FIRST_TURN else "now" if live else f"entry {seq:,}"
        self.query_one("#now", Static).update(f"Loading the window at {where} …")
        self.action_look()

    def action_budget(self) -> None:
        """Switches between the prompt and its budget."""
        self.toggle_class("with-budget")
        self.refresh_bindings()
        self.query_one(self.main_selector()).focus()
        self.action_look()

    def action_pin(self) -> None:
        """Pins or unpins the entry under the cursor."""
        rows = self.query_one(self.main_selector(), Rows)
        if self._shows_budget:
            seq = int(rows.chosen) if rows.chosen.isdecimal() else None
            pinned = seq is not None and rows.get_row(rows.chosen)[4].plain == "pinned"
        else:
            block = self._blocks.get(rows.chosen)
            seq, pinned = (block.seq, block.reason == "pinned") if block else (None, False)
        if seq is not None and not self.refuse_without("change"):
            self.change(partial(self._pin, seq, pinned=pinned), "pin")

    async def _pin(self, seq: int, *, pinned: bool) -> None:
        self.notify(await pin_or_unpin(self.state, seq, pinned=pinned), markup=False)
        self.app.post_message(Changed())
