"""The window: what the prompt is made of, against its budgets, and what is not in it."""

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
from recto.context.window.report import Report, TokenHolder
from recto.tui.actions import pin_or_unpin
from recto.tui.formatting import COMPONENTS, counted, right, share, shown, whole
from recto.tui.screens.base import BaseView
from recto.tui.state import Changed, ShowEntry
from recto.tui.widgets.prompt_map import PromptMap
from recto.tui.widgets.table import Rows, TableRow

_BAR = 16
_LEVELS = {"ok": ("", "green"), "warning": (" ▲ warning", "orange"), "violation": (" ✗ over its limit", "red")}


class WindowView(BaseView):
    """The prompt, taken apart."""

    PLACE = "window"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "pin", "Pin or unpin"),
        Binding("c", "app.compact", "Compact"),
    ]
    AUTO_FOCUS = "Rows"

    def body(self) -> ComposeResult:
        """The map, its words, and the largest holders."""
        yield PromptMap(id="map")
        with VerticalScroll(id="parts", can_focus=False):
            yield Static(id="components", markup=False)
            yield Static(id="beside", markup=False)
        yield Rows("largest", "role", right("tokens"), right("share"), "state", "tools", id="holders")

    def main(self) -> str:
        """The holders."""
        return "#holders"

    async def look(self) -> None:
        """The report."""
        report = await self.here.of_session(Report, "context")
        self.query_one(PromptMap).show(report)
        self.query_one("#components", Static).update(_components(report))
        self.query_one("#beside", Static).update(_beside(report))
        self.query_one(Rows).show(_row(one) for one in report.largest)

    def blank(self) -> None:
        """There is no prompt."""
        self.query_one(PromptMap).show(None)
        self.query_one("#components", Static).update("")
        self.query_one("#beside", Static).update("")
        self.query_one(Rows).show(())

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """All of an entry."""
        if str(event.row_key.value).isdecimal():
            self.app.post_message(ShowEntry(int(str(event.row_key.value))))

    def action_pin(self) -> None:
        """Keeps an entry in the prompt, or lets it leave again."""
        rows = self.query_one(Rows)
        if rows.chosen.isdecimal() and not self.refuse_without("change"):
            pinned = rows.get_row(rows.chosen)[4].plain == "pinned"
            self.change(partial(self._pin, int(rows.chosen), pinned=pinned), "pin")

    async def _pin(self, seq: int, *, pinned: bool) -> None:
        self.notify(await pin_or_unpin(self.here, seq, pinned=pinned), markup=False)
        self.app.post_message(Changed())


def _row(one: TokenHolder) -> TableRow:
    key = one.what if one.seq is None else str(one.seq)
    name = one.what if one.seq is None else f"entry {one.seq:,}"
    cells: list[str | Text] = [name, one.role, right(whole(one.tokens)), right(share(one.share, 1)), one.condition]
    return TableRow(key=key, cells=[*cells, ", ".join(one.tools)])


def _components(report: Report) -> Content:
    head = f"  {'component':<11}{'tokens':>9}{'of window':>11}{'limit':>9}  "
    lines = [_component(one, report.window) for one in report.components]
    return Content("\n").join([Content.styled(head, "bold"), *lines])


def _component(one: ComponentUsage, window: int) -> Content:
    level, zone = _LEVELS["ok" if one.component == "reserve" else one.level]  # the reserve is full by its nature
    filled = min(round(_BAR * one.used / max(one.hard, 1)), _BAR)
    return Content.assemble(
        (f"{COMPONENTS[one.component]} ", f"bold $part-{one.component}"),
        f"{one.component:<11}{whole(one.used):>9}{share(one.used / max(window, 1), 1):>11}{whole(one.hard):>9}  ",
        ("█" * filled, f"$part-{one.component}"),
        ("░" * (_BAR - filled), "$text-muted"),
        (level, f"bold $zone-{zone}"),
    )


def _beside(report: Report) -> Content:
    """What the prompt is not made of, in sentences."""
    lines = [
        f"{whole(report.tokens)} of {whole(report.room)} tokens, {counted(report.messages, 'message')}, "
        f"{whole(report.protected_tokens)} tokens may not leave; {report.model or 'an unknown model'}"
    ]
    if report.left_messages:
        where = f"entries {report.left_first:,}–{report.left_last:,}"
        lines.append(f"{counted(report.left_messages, 'message')} left ({where}, {whole(report.left_tokens)} tokens)")
    if report.summary_tokens:
        lines.append(f"{whole(report.summary_tokens)} tokens stand for what left")
    if report.recalled:
        lines.append(f"{counted(len(report.recalled), 'message')} came back ({whole(report.recalled_tokens)} tokens)")
    if report.cache is not None:
        lines.append(f"{share(report.cache.share)} of the prompt is unchanged from its beginning")
    lines += [f"not in the prompt: {one}" for one in report.omitted]
    return shown("\n".join(lines))
