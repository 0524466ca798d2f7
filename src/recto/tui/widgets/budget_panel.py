"""The budget of the prompt: its components against their limits, its largest parts, and what is not in it.

The map draws the context window: every cell is a part of it, with the colour and the name of its component.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from recto.context.window.budget import ComponentUsage
from recto.context.window.report import PIECES, PromptRun, Report, TokenHolder
from recto.tui.display_text import (
    COMPONENTS,
    full_number,
    percent,
    plural,
    reading_line,
    right_aligned,
    safe_content,
)
from recto.tui.widgets.table import Rows, TableRow

_STYLES = {"free": "$part-free", "reserve": "$part-reserve"}
"""Cells without text of the prompt have no background."""
_FILLS = {"free": "·", "reserve": "▒"}
_BAR = 12
_NAME = 15
_PIECES = 12
"""Pieces of a run that are listed."""
_LEVELS = {"ok": ("", "green"), "warning": (" ▲ warning", "orange"), "violation": (" ✗ over its limit", "red")}


class PromptMap(Widget, can_focus=False):
    """The context window, filled with its components."""

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401  # as every widget takes it
        super().__init__(**kwargs)
        self._report: Report | None = None

    def show(self, report: Report | None) -> None:
        """Shows another prompt."""
        self._report = report
        self.tooltip = None if report is None else f"{full_number(report.window)} tokens in all"
        self.refresh()

    def render(self) -> Content:
        """Renders the cells row by row; the output reserve is at the end, after the free cells."""
        report, width = self._report, self.size.width
        cells = width * self.size.height
        if report is None or not cells:
            return Content("")
        lines: list[Content] = []
        line, available = Content(""), width
        for name, count in _runs(report.components, report.window, cells):
            drawn = _named(name, count, available)
            while drawn:
                part, drawn = drawn[:available], drawn[available:]
                line = Content.assemble(line, (part, _STYLES.get(name, f"$background on $part-{name}")))
                available -= len(part)
                if not available:
                    lines.append(line)
                    line, available = Content(""), width
        return Content("\n").join(lines)


def _named(name: str, count: int, available: int) -> str:
    """The cells of a component: its name on the first line on which it fits, and what fills the rest."""
    fill, label = _FILLS.get(name, " "), f"▏{COMPONENTS[name]} "
    if len(label) <= min(available, count):
        return label + fill * (count - len(label))
    if len(label) <= count - available:  # the name begins on the next line
        return f"▏{fill * (available - 1)}{label[1:]}".ljust(count, fill)[:count]
    return f"▏{fill * count}"[:count]


def _runs(components: Sequence[ComponentUsage], window: int, cells: int) -> list[tuple[str, int]]:
    """Returns the number of cells per component; a component with tokens has at least one."""
    used = [(usage.component, usage.used) for usage in components if usage.used and usage.component != "reserve"]
    reserve = sum(usage.used for usage in components if usage.component == "reserve")
    sizes = [(str(name), max(round(tokens * cells / max(window, 1)), 1)) for name, tokens in used]
    reserved = max(round(reserve * cells / max(window, 1)), 1) if reserve else 0
    free = cells - reserved - sum(size for _, size in sizes)
    while free < 0:  # rounding: shrink the largest
        place = max(range(len(sizes)), key=lambda place: sizes[place][1])
        sizes[place] = sizes[place][0], sizes[place][1] - 1
        free += 1
    return [*sizes, ("free", free), ("reserve", reserved)]


class BudgetPanel(Vertical):
    """The map of the context window, its components, and the largest parts of the prompt."""

    def compose(self) -> ComposeResult:
        """Yields the map, the components, and the largest parts."""
        yield PromptMap(id="map")
        with VerticalScroll(id="parts", can_focus=False):
            yield Static(id="components", markup=False)
            yield Static(id="beside", markup=False)
        yield Rows("largest", "role", right_aligned("tokens"), right_aligned("share"), "state", "tools", id="holders")

    def show(self, report: Report | None) -> None:
        """Shows a report."""
        self.query_one(PromptMap).show(report)
        self.query_one("#components", Static).update(_components(report) if report else "")
        self.query_one("#beside", Static).update(_outside(report) if report else "")
        self.query_one(Rows).show(_row(holder) for holder in (report.largest if report else ()))


def _row(holder: TokenHolder) -> TableRow:
    key = holder.what if holder.seq is None else str(holder.seq)
    name = holder.what if holder.seq is None else f"entry {holder.seq:,}"
    numbers = right_aligned(full_number(holder.tokens)), right_aligned(percent(holder.share, 1))
    return TableRow(key=key, cells=(name, holder.role, *numbers, holder.condition, ", ".join(holder.tools)))


def _components(report: Report) -> Content:
    head = f"{'component':<{_NAME}}{'tokens':>9}{'of window':>11}{'limit':>9}  "
    lines = [_component(usage, report.window) for usage in report.components]
    return Content("\n").join([Content.styled(head, "bold"), *lines])


def _component(usage: ComponentUsage, window: int) -> Content:
    level, zone = _LEVELS["ok" if usage.component == "reserve" else usage.level]  # the output reserve is always full
    filled = min(round(_BAR * usage.used / max(usage.hard, 1)), _BAR)
    return Content.assemble(
        (f"{COMPONENTS[usage.component]:<{_NAME}}", f"bold $part-{usage.component}"),
        f"{full_number(usage.used):>9}{percent(usage.used / max(window, 1), 1):>11}",
        f"{full_number(usage.hard):>9}  ",
        ("█" * filled, f"$part-{usage.component}"),
        ("░" * (_BAR - filled), "$text-muted"),
        (level, f"bold $zone-{zone}"),
    )


def _run(run: PromptRun) -> list[str]:
    """Describes the last prompt as it was sent, the largest pieces first."""
    lines = [f"run {run.seq:,}: {full_number(run.tokens)} tokens were sent, output reserve {full_number(run.reserve)}"]
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
        f"{full_number(report.protected_tokens)} tokens protected; {report.model or 'an unknown model'}"
    ]
    if report.left_messages:
        where = f"entries {report.left_first:,}–{report.left_last:,}"
        lines.append(
            f"{plural(report.left_messages, 'message')} evicted ({where}, {full_number(report.left_tokens)} tokens)"
        )
    if report.tools_left_out:
        tokens = full_number(report.tools_left_out_tokens)
        lines.append(f"{plural(report.tools_left_out, 'tool definition')} left out ({tokens} tokens)")
    if report.summary_tokens:
        lines.append(f"{full_number(report.summary_tokens)} tokens summarise evicted messages")
    if report.recalled:
        lines.append(
            f"{plural(len(report.recalled), 'message')} recalled ({full_number(report.recalled_tokens)} tokens)"
        )
    if report.cache is not None:
        lines.append(f"{percent(report.cache.share)} of the prompt is unchanged from its beginning")
    lines += [f"not in the prompt: {item}" for item in report.omitted]
    if report.run is not None:
        lines += _run(report.run)
    return safe_content("\n".join(lines))
