"""The prompt as a map: every cell is a part of the window, with the colour and letter of its component."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.content import Content
from textual.widget import Widget

from recto.context.window.budget import ComponentUsage
from recto.context.window.report import Report
from recto.tui.formatting import COMPONENTS, full_number

_FREE = "·"
_STYLES = {"free": "$part-free", "reserve": "$part-reserve"}
"""Cells without text have no background."""


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
        runs = _runs(report.components, report.window, cells)
        lines: list[Content] = []
        line, available = Content(""), width
        for name, count in runs:
            remaining = count
            while remaining:
                take = min(remaining, available)
                line = Content.assemble(line, (_letter(name) * take, _STYLES.get(name, f"$background on $part-{name}")))
                remaining, available = remaining - take, available - take
                if not available:
                    lines.append(line)
                    line, available = Content(""), width
        return Content("\n").join(lines)


def _letter(name: str) -> str:
    return COMPONENTS.get(name, _FREE)


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
