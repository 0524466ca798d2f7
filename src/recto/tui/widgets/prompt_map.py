"""The prompt as a map: every cell a part of the window, in the colour and with the letter of its component."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.content import Content
from textual.widget import Widget

from recto.context.window.budget import ComponentUsage
from recto.context.window.report import Report
from recto.tui.formatting import COMPONENTS, whole

_FREE = "·"
_STYLES = {"free": "$part-free", "reserve": "$part-reserve"}
"""What is not filled with text has no ground of its own."""


class PromptMap(Widget, can_focus=False):
    """The window, filled with what it holds."""

    def __init__(self, **more: Any) -> None:  # noqa: ANN401  # as every widget takes it
        super().__init__(**more)
        self._report: Report | None = None

    def show(self, report: Report | None) -> None:
        """Shows another prompt."""
        self._report = report
        self.tooltip = None if report is None else f"{whole(report.window)} tokens in all"
        self.refresh()

    def render(self) -> Content:
        """The cells, row by row; the reserve stands at the end, behind what is free."""
        report, width = self._report, self.size.width
        cells = width * self.size.height
        if report is None or not cells:
            return Content("")
        runs = _runs(report.components, report.window, cells)
        lines: list[Content] = []
        line, room = Content(""), width
        for name, count in runs:
            left = count
            while left:
                take = min(left, room)
                line = Content.assemble(line, (_letter(name) * take, _STYLES.get(name, f"$background on $part-{name}")))
                left, room = left - take, room - take
                if not room:
                    lines.append(line)
                    line, room = Content(""), width
        return Content("\n").join(lines)


def _letter(name: str) -> str:
    return COMPONENTS.get(name, _FREE)


def _runs(components: Sequence[ComponentUsage], window: int, cells: int) -> list[tuple[str, int]]:
    """How many cells each has; what holds anything has at least one."""
    used = [(one.component, one.used) for one in components if one.used and one.component != "reserve"]
    reserve = sum(one.used for one in components if one.component == "reserve")
    sizes = [(str(name), max(round(tokens * cells / max(window, 1)), 1)) for name, tokens in used]
    kept = max(round(reserve * cells / max(window, 1)), 1) if reserve else 0
    free = cells - kept - sum(size for _, size in sizes)
    while free < 0:  # rounding: the largest gives way
        place = max(range(len(sizes)), key=lambda at: sizes[at][1])
        sizes[place] = sizes[place][0], sizes[place][1] - 1
        free += 1
    return [*sizes, ("free", free), ("reserve", kept)]
