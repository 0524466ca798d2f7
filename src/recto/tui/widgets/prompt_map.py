"""The context window as a map: every cell is a part of it, with the colour and the name of its component."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.content import Content
from textual.widget import Widget

from recto.context.window.budget import ComponentUsage
from recto.context.window.report import Report
from recto.tui.formatting import COMPONENTS, full_number

_STYLES = {"free": "$part-free", "reserve": "$part-reserve"}
"""Cells without text of the prompt have no background."""
_FILLS = {"free": "·", "reserve": "▒"}


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
