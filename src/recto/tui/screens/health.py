"""Health: alerts, trends of the measures, and the forecast."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Sparkline, Static

from recto.health.metrics import METRICS_BY_FIELD, Alert
from recto.health.trends import MEASURES, HealthReport, Trend
from recto.tui.display_text import (
    DIRECTIONS,
    GRADES,
    format_time,
    full_number,
    percent,
    plural,
    reading_line,
    right_aligned,
    safe_content,
)
from recto.tui.screens.base import BaseView
from recto.tui.widgets.table import Rows, TableRow

_TURNS = 60
_GRADE_ZONES = {"critical": "red", "degradation": "orange", "anomaly": "yellow"}


class MeasureRow(Horizontal):
    """A measure: its name, value, trend and last turns."""

    def __init__(self, name: str) -> None:
        super().__init__(classes="measure")
        self._measure = name

    def compose(self) -> ComposeResult:
        """Yields the words and a curve."""
        yield Static(Content(METRICS_BY_FIELD[self._measure].label), classes="words", markup=False)
        yield Sparkline([0.0], summary_function=max)

    def show(self, trend: Trend | None) -> None:
        """Shows a trend."""
        name = f"{METRICS_BY_FIELD[self._measure].label:<15}"
        known = [value for value in trend.values if value is not None] if trend else []
        curve = self.query_one(Sparkline)
        curve.data = known or [0.0]
        curve.display = bool(known)
        if trend is None:
            self.query_one(Static).update(Content(name))
            return
        format_value: Callable[[float], str] = percent if METRICS_BY_FIELD[trend.name].is_ratio else _number
        now = "–" if trend.now is None else format_value(trend.now)
        sign = "+" if trend.delta is not None and trend.delta > 0 else ""
        change = "–" if trend.delta is None else f"{sign}{format_value(trend.delta)}"
        worse = trend.worse and trend.direction != "steady"
        direction = f"{DIRECTIONS[trend.direction]} {'worse' if worse else trend.direction}"
        style = "bold $zone-red" if worse else "$text-muted"
        self.query_one(Static).update(Content.assemble(f"{name}{now:>9}{change:>10}  ", (f"{direction:<9}", style)))


class HealthView(BaseView):
    """How the last turns went."""

    PLACE = "health"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("t", "turns", "Turns or measures")]
    AUTO_FOCUS = "#measures"

    def compose_body(self) -> ComposeResult:
        """Yields alerts, measures and turns."""
        yield Static(id="state", markup=False)
        with Container(classes="split"):
            with VerticalScroll(id="measures", can_focus=True):
                for name in MEASURES:
                    yield MeasureRow(name)
            titles = ("used", "evicted", "added", "ratio", "fidelity", "bloat", "prefix", "regret")
            yield Rows("run", "when", *map(right_aligned, titles), id="turns")

    def main_selector(self) -> str:
        """The measures."""
        return "#measures"

    async def load_content(self) -> None:
        """Loads the report on the last turns."""
        report = await self.state.get_for_session(HealthReport, "health", turns=_TURNS)
        self._show(report)

    def show_empty(self) -> None:
        """Shows that no turn was measured."""
        self.query_one("#state", Static).update("")
        self.query_one(Rows).show(())

    def _show(self, report: HealthReport) -> None:
        self.query_one("#state", Static).update(_state(report))
        trends = {trend.name: trend for trend in report.trends}
        for name, measure in zip(MEASURES, self.query(MeasureRow), strict=True):
            measure.show(trends.get(name))
        self.query_one(Rows).show(_turns(report))

    def action_turns(self) -> None:
        """Switches between measures and turns where only one of them fits."""
        self.toggle_class("with-turns")
        (self.query_one(Rows) if self.has_class("with-turns") else self.query_one("#measures")).focus()


def _state(report: HealthReport) -> Content:
    last = report.last
    if last is None:
        return Content("No turn of this session was measured: no prompt was built for it.")
    lines = [_alert(alert) for alert in report.alerts]
    if not lines:
        lines = [Content.styled("✓ nothing is the matter", "$zone-green")]
    ahead = f"; {report.forecast.says}" if report.forecast else ""
    lines.append(safe_content(f"{reading_line(report.reading)}{ahead}" if report.reading else ahead))
    if report.sinks_failed:
        lines.append(Content(f"▲ an alert exporter failed {plural(report.sinks_failed, 'time')}"))
    return Content("\n").join(lines)


def _alert(alert: Alert) -> Content:
    style = f"bold $zone-{_GRADE_ZONES[alert.grade]}"
    text = safe_content(f": {alert.says}, at turn {alert.turn:,}. What to do: {alert.action}")
    return Content.assemble((f"{GRADES[alert.grade]} {alert.grade} {alert.name}", style), text)


def _turns(report: HealthReport) -> list[TableRow]:
    return [
        TableRow(
            key=str(turn.seq),
            cells=(
                f"{turn.seq:,}",
                format_time(turn.ts)[-8:],
                right_aligned(percent(turn.utilization)),
                right_aligned(full_number(turn.evicted)),
                right_aligned(full_number(turn.burn)),
                right_aligned("–" if turn.ratio is None else f"{turn.ratio:.1f}x"),
                right_aligned("–" if turn.fidelity is None else f"{turn.fidelity:.2f}"),
                right_aligned(percent(turn.bloat)),
                right_aligned(percent(turn.prefix)),
                right_aligned(full_number(turn.regret)),
            ),
        )
        for turn in reversed(report.turns)
    ]


def _number(value: float) -> str:
    return full_number(value) if abs(value) >= 10 or value == int(value) else f"{value:.2f}"
