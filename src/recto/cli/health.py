"""`recto health`: measures, trends and alerts of a session's turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click
from rich.table import Column, Table
from rich.text import Text

from recto.cli._common import session_option
from recto.cli.compact import open_existing_session
from recto.cli.console import format_time, out, print_json, safe
from recto.cli.context import print_reading
from recto.config import Settings
from recto.config.factory import build_health_report
from recto.engine.report import current_reading
from recto.health.metrics import METRICS_BY_FIELD, Alert, TurnHealth
from recto.health.trends import HealthReport, Trend

_GRADES = {"critical": ("✗ ", "red"), "degradation": ("▲ ", "yellow"), "anomaly": ("· ", "cyan")}
_ARROWS = {"rising": "↑", "falling": "↓", "steady": "→"}
_LEVELS = "▁▂▃▄▅▆▇█"


@click.command("health")
@session_option()
@click.option("--turns", metavar="N", type=click.IntRange(1, 10_000), default=20, help="Look at the last N turns. [20]")
@click.option("--json", "as_json", is_flag=True, help="The whole report as one JSON object.")
@click.pass_obj
def health_command(settings: Settings, session: str | None, turns: int, as_json: bool) -> None:
    """Shows how the last turns of a session went, where that is heading, and what should be looked at.

    Ends with 1 where something critical is the matter, so that scripts can ask.

    \b
    Examples:
      recto health --session agent:default:main
      recto health --turns 100 --json | jq .alerts
    """
    with open_existing_session(settings, session, to_read=True) as opened:
        report = build_health_report(settings, opened.store, opened.key, turns)
        report = report.now(current_reading(opened.window))
    if as_json:
        print_json(report)
    else:
        print_health(report)
    if report.critical:
        click.get_current_context().exit(1)


def print_health(report: HealthReport) -> None:
    """Prints the measures of the last turns, their trends and alerts."""
    last = report.last
    if last is None:
        out.print("no turn of this session was measured: no prompt was built by Recto", markup=False)
        return
    if report.reading is not None:
        print_reading(report.reading, last.model)
    out.print(_turns(report.turns[-10:]))
    out.print(_measures(report.trends))
    for alert in report.alerts:
        out.print(_alert(alert), soft_wrap=True)
    if not report.alerts:
        out.print("nothing is the matter", style="green")
    if report.forecast is not None:
        out.print(report.forecast.says, markup=False)


def _turns(turns: Sequence[TurnHealth]) -> Table:
    headings = ("used", "left", "added", "ratio", "fidelity", "bloat", "prefix", "regret")
    table = Table("turn", "when", *(Column(name, justify="right") for name in headings))
    for turn in turns:
        table.add_row(
            f"{turn.turn:,}",
            format_time(turn.ts)[-8:],
            f"{turn.utilization:.0%}",
            f"{turn.evicted:,}",
            f"{turn.burn:,}",
            _format(turn.ratio, lambda ratio: f"{ratio:.1f}x"),
            _format(turn.fidelity, lambda score: f"{score:.2f}"),
            f"{turn.bloat:.0%}",
            f"{turn.prefix:.0%}",
            f"{turn.regret:,}",
        )
    return table


def _measures(trends: Sequence[Trend]) -> Table:
    table = Table("measure", Column("now", justify="right"), Column("change", justify="right"), "", "")
    for trend in trends:
        style = "" if trend.direction == "steady" else "red" if trend.worse else "green"
        metric = METRICS_BY_FIELD[trend.name]
        format_value = _share if metric.is_ratio else _number
        sign = "+" if trend.delta is not None and trend.delta > 0 else ""
        change = sign + _format(trend.delta, format_value)
        arrow = Text(_ARROWS[trend.direction], style=style)
        table.add_row(metric.label, _format(trend.now, format_value), change, arrow, sparkline(trend.values))
    return table


def sparkline(values: Sequence[float | None]) -> str:
    """Renders values as bars, from 0 or the lowest to the highest; a blank for a missing value."""
    known = [value for value in values[-40:] if value is not None]
    low, high = min([0.0, *known]), max([0.0, *known])
    span = high - low or 1.0
    return "".join(" " if value is None else _LEVELS[int((value - low) / span * 7.999)] for value in values[-40:])


def _format(value: float | None, format_value: Callable[[float], str]) -> str:
    return "–" if value is None else format_value(value)


def _share(value: float) -> str:
    return f"{value:.0%}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.2f}"


def _alert(alert: Alert) -> Text:
    sign, style = _GRADES[alert.grade]
    says = safe(f"{alert.says}, at turn {alert.turn:,}. What to do: {alert.action}")
    return Text.assemble((sign, style), (f"{alert.grade} {alert.name}", "bold"), f": {says}")
