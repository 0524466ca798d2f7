"""Health: what should be looked at, how the measures move, and how long it goes on like this."""

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
from recto.tui.formatting import DIRECTIONS, GRADES, counted, right, share, shown, when, whole
from recto.tui.screens.base import BaseView
from recto.tui.widgets.table import Rows, TableRow

_TURNS = 60
_GRADE_ZONES = {"critical": "red", "degradation": "orange", "anomaly": "yellow"}


class MeasureRow(Horizontal):
    """One measure: its name, where it is, where it goes, and its last turns."""

    def __init__(self, name: str) -> None:
        super().__init__(classes="measure")
        self._measure = name

    def compose(self) -> ComposeResult:
        """Words, then a curve."""
        yield Static(Content(METRICS_BY_FIELD[self._measure].label), classes="words", markup=False)
        yield Sparkline([0.0], summary_function=max)

    def show(self, trend: Trend | None) -> None:
        """The words and the curve of these turns."""
        name = f"{METRICS_BY_FIELD[self._measure].label:<15}"
        known = [value for value in trend.values if value is not None] if trend else []
        curve = self.query_one(Sparkline)
        curve.data = known or [0.0]
        curve.display = bool(known)
        if trend is None:
            self.query_one(Static).update(Content(name))
            return
        told: Callable[[float], str] = share if METRICS_BY_FIELD[trend.name].is_ratio else _number
        now = "–" if trend.now is None else told(trend.now)
        sign = "+" if trend.delta is not None and trend.delta > 0 else ""
        change = "–" if trend.delta is None else f"{sign}{told(trend.delta)}"
        worse = trend.worse and trend.direction != "steady"
        way = f"{DIRECTIONS[trend.direction]} {'worse' if worse else trend.direction}"
        style = "bold $zone-red" if worse else "$text-muted"
        self.query_one(Static).update(Content.assemble(f"{name}{now:>9}{change:>10}  ", (f"{way:<9}", style)))


class HealthView(BaseView):
    """How the last turns went."""

    PLACE = "health"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("t", "turns", "Turns or measures")]
    AUTO_FOCUS = "#measures"

    def body(self) -> ComposeResult:
        """Alerts, measures, turns."""
        yield Static(id="state", markup=False)
        with Container(classes="split"):
            with VerticalScroll(id="measures", can_focus=True):
                for name in MEASURES:
                    yield MeasureRow(name)
            titles = ("used", "left", "added", "ratio", "fidelity", "bloat", "prefix", "regret")
            yield Rows("turn", "when", *map(right, titles), id="turns")

    def main(self) -> str:
        """The measures."""
        return "#measures"

    async def look(self) -> None:
        """The report on the last turns."""
        report = await self.here.of_session(HealthReport, "health", turns=_TURNS)
        self._show(report)

    def blank(self) -> None:
        """No turn was measured."""
        self.query_one("#state", Static).update("")
        self.query_one(Rows).show(())

    def _show(self, report: HealthReport) -> None:
        self.query_one("#state", Static).update(_state(report))
        trends = {one.name: one for one in report.trends}
        for name, measure in zip(MEASURES, self.query(MeasureRow), strict=True):
            measure.show(trends.get(name))
        self.query_one(Rows).show(_turns(report))

    def action_turns(self) -> None:
        """From the measures to the turns, and back, where only one of them fits."""
        self.toggle_class("with-turns")
        (self.query_one(Rows) if self.has_class("with-turns") else self.query_one("#measures")).focus()


def _state(report: HealthReport) -> Content:
    last = report.last
    if last is None:
        return Content("No turn of this session was measured: nobody asked Recto for its prompts.")
    lines = [_alert(one) for one in report.alerts]
    if not lines:
        lines = [Content.styled("✓ nothing is the matter", "$zone-green")]
    ahead = f"; {report.forecast.says}" if report.forecast else ""
    full = f"turn {last.turn:,}: {whole(last.tokens)} of {whole(last.room)} tokens ({share(last.utilization)})"
    lines.append(shown(f"{full}{ahead}"))
    if report.sinks_failed:
        lines.append(Content(f"▲ somebody who was to be told failed {counted(report.sinks_failed, 'time')}"))
    return Content("\n").join(lines)


def _alert(one: Alert) -> Content:
    style = f"bold $zone-{_GRADE_ZONES[one.grade]}"
    says = shown(f": {one.says}, at turn {one.turn:,}. What to do: {one.action}")
    return Content.assemble((f"{GRADES[one.grade]} {one.grade} {one.name}", style), says)


def _turns(report: HealthReport) -> list[TableRow]:
    return [
        TableRow(
            key=str(one.turn),
            cells=(
                f"{one.turn:,}", when(one.ts)[-8:], right(share(one.utilization)), right(whole(one.evicted)),
                right(whole(one.burn)), right("–" if one.ratio is None else f"{one.ratio:.1f}x"),
                right("–" if one.fidelity is None else f"{one.fidelity:.2f}"), right(share(one.bloat)),
                right(share(one.prefix)), right(whole(one.regret)),
            ),
        )
        for one in reversed(report.turns)
    ]  # fmt: skip


def _number(value: float) -> str:
    return whole(value) if abs(value) >= 10 or value == int(value) else f"{value:.2f}"
