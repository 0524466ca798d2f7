"""The window: the components of the prompt against their budgets, and what is not in it."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import DataTable, Static

from recto.context.window.budget import ComponentUsage
from recto.context.window.report import PIECES, PromptRun, Report, TokenHolder
from recto.tui.actions import pin_or_unpin
from recto.tui.formatting import (
    COMPONENTS,
    full_number,
    percent,
    plural,
    reading_line,
    right_aligned,
    safe_content,
)
from recto.tui.screens.base import BaseView
from recto.tui.state import Changed, ShowEntry
from recto.tui.widgets.prompt_map import PromptMap
from recto.tui.widgets.table import Rows, TableRow

_BAR = 16
_PIECES = 12
"""Pieces of a run that are listed."""
_LEVELS = {"ok": ("", "green"), "warning": (" ▲ warning", "orange"), "violation": (" ✗ over its limit", "red")}


class WindowView(BaseView):
    """The prompt and its parts."""

    PLACE = "window"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "pin", "Pin or unpin"),
        Binding("c", "app.compact", "Compact"),
    ]
    AUTO_FOCUS = "Rows"

    def compose_body(self) -> ComposeResult:
        """Yields the map, its legend, and the largest parts."""
        yield PromptMap(id="map")
        with VerticalScroll(id="parts", can_focus=False):
            yield Static(id="components", markup=False)
            yield Static(id="beside", markup=False)
        yield Rows("largest", "role", right_aligned("tokens"), right_aligned("share"), "state", "tools", id="holders")

    def main_selector(self) -> str:
        """The largest parts."""
        return "#holders"

    async def load_content(self) -> None:
        """Loads the report."""
        report = await self.state.get_for_session(Report, "context")
        self.query_one(PromptMap).show(report)
        self.query_one("#components", Static).update(_components(report))
        self.query_one("#beside", Static).update(_outside(report))
        self.query_one(Rows).show(_row(holder) for holder in report.largest)

    def show_empty(self) -> None:
        """Shows that there is no prompt."""
        self.query_one(PromptMap).show(None)
        self.query_one("#components", Static).update("")
        self.query_one("#beside", Static).update("")
        self.query_one(Rows).show(())

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Shows the full entry."""
        if str(event.row_key.value).isdecimal():
            self.app.post_message(ShowEntry(int(str(event.row_key.value))))

    def action_pin(self) -> None:
        """Pins or unpins an entry."""
        rows = self.query_one(Rows)
        if rows.chosen.isdecimal() and not self.refuse_without("change"):
            pinned = rows.get_row(rows.chosen)[4].plain == "pinned"
            self.change(partial(self._pin, int(rows.chosen), pinned=pinned), "pin")

    async def _pin(self, seq: int, *, pinned: bool) -> None:
        self.notify(await pin_or_unpin(self.state, seq, pinned=pinned), markup=False)
        self.app.post_message(Changed())


def _row(holder: TokenHolder) -> TableRow:
    key = holder.what if holder.seq is None else str(holder.seq)
    name = holder.what if holder.seq is None else f"entry {holder.seq:,}"
    cells: list[str | Text] = [
        name,
        holder.role,
        right_aligned(full_number(holder.tokens)),
        right_aligned(percent(holder.share, 1)),
        holder.condition,
    ]
    return TableRow(key=key, cells=[*cells, ", ".join(holder.tools)])


def _components(report: Report) -> Content:
    head = f"  {'component':<11}{'tokens':>9}{'of window':>11}{'limit':>9}  "
    lines = [_component(usage, report.window) for usage in report.components]
    return Content("\n").join([Content.styled(head, "bold"), *lines])


def _component(usage: ComponentUsage, window: int) -> Content:
    level, zone = _LEVELS["ok" if usage.component == "reserve" else usage.level]  # the output reserve is always full
    filled = min(round(_BAR * usage.used / max(usage.hard, 1)), _BAR)
    return Content.assemble(
        (f"{COMPONENTS[usage.component]} ", f"bold $part-{usage.component}"),
        f"{usage.component:<11}{full_number(usage.used):>9}{percent(usage.used / max(window, 1), 1):>11}",
        f"{full_number(usage.hard):>9}  ",
        ("█" * filled, f"$part-{usage.component}"),
        ("░" * (_BAR - filled), "$text-muted"),
        (level, f"bold $zone-{zone}"),
    )


def _run(run: PromptRun) -> list[str]:
    """Describes the last prompt as it was sent, the largest pieces first."""
    lines = [f"run {run.seq:,}: {full_number(run.tokens)} tokens were sent, {full_number(run.reserve)} kept free"]
    for piece in run.pieces[:_PIECES]:
        raw = f", cut from {full_number(piece.raw)}" if piece.raw is not None and piece.raw > piece.tokens else ""
        lines.append(f"  {full_number(piece.tokens):>9}  {PIECES[piece.kind]} {piece.name}{raw}".rstrip())
    rest = run.pieces[_PIECES:]
    if rest:
        lines.append(f"  {full_number(sum(piece.tokens for piece in rest)):>9}  {plural(len(rest), 'other piece')}")
    return lines


def _outside(report: Report) -> Content:
    """Describes what is not in the prompt."""
    lines = [
        f"{reading_line(report.reading)}, {plural(report.messages, 'message')}, "
        f"{full_number(report.protected_tokens)} tokens may not leave; {report.model or 'an unknown model'}"
    ]
    if report.left_messages:
        where = f"entries {report.left_first:,}–{report.left_last:,}"
        lines.append(
            f"{plural(report.left_messages, 'message')} left ({where}, {full_number(report.left_tokens)} tokens)"
        )
    if report.tools_left_out:
        tokens = full_number(report.tools_left_out_tokens)
        lines.append(f"{plural(report.tools_left_out, 'tool definition')} left out ({tokens} tokens)")
    if report.summary_tokens:
        lines.append(f"{full_number(report.summary_tokens)} tokens stand for what left")
    if report.recalled:
        lines.append(
            f"{plural(len(report.recalled), 'message')} came back ({full_number(report.recalled_tokens)} tokens)"
        )
    if report.cache is not None:
        lines.append(f"{percent(report.cache.share)} of the prompt is unchanged from its beginning")
    lines += [f"not in the prompt: {item}" for item in report.omitted]
    if report.run is not None:
        lines += _run(report.run)
    return safe_content("\n".join(lines))
