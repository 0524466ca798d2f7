"""Formats the measures of a replay: one text per measure, in the terminal tables and on the HTML page alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

from rich import box
from rich.table import Column, Table
from rich.text import Text

from recto.cli.console import one_line, out, safe
from recto.lab.backtest import Backtest
from recto.lab.bootstrap import Interval
from recto.lab.results import VariantOutcome, VariantSummary, Way, difference, measures_of, summarize

UNKNOWN = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportMeasure:
    """A measure of a result and how it is shown."""

    name: str
    """The key in the JSON output."""
    title: str
    format_value: Callable[[float], str]
    difference_unit: Literal["share", "count", "points"]
    """How a difference is shown: as a share of the baseline's value, as a number, in percentage points."""
    better: Literal["less", "more", ""] = ""
    """Which direction is better, if any."""

    def text(self, measures: Mapping[str, Any]) -> str:
        """Formats the value."""
        value = measures[self.name]
        return UNKNOWN if value is None else self.format_value(value)

    def change(self, measures: Mapping[str, Any], baseline: Mapping[str, Any]) -> str:
        """Formats the difference to the baseline; empty if either value is unknown."""
        value, other = measures[self.name], baseline[self.name]
        if value is None or other is None:
            return ""
        if value == other:
            return "="
        match self.difference_unit:
            case "points":
                return f"{signed(100 * (value - other), '.1f')} pt"
            case "share" if other:
                return f"{signed(100 * (value - other) / other, '.1f')}%"
            case _:
                return ("+" if value > other else "−") + self.format_value(abs(value - other))

    def is_better(self, measures: Mapping[str, Any], baseline: Mapping[str, Any]) -> bool | None:
        """Returns whether the difference is an improvement; None without a difference or a preferred direction."""
        value, other = measures[self.name], baseline[self.name]
        if not self.better or value is None or other is None or value == other:
            return None
        return bool((value < other) == (self.better == "less"))


def signed(value: float, spec: str) -> str:
    """Formats a number with its sign and a typographic minus."""
    return f"{value:+{spec}}".replace("-", "−")


def interval_text(interval: Interval) -> str:
    """Formats a value with its interval; of a single run, the value alone."""
    value, low, high = (signed(end, ".3f") for end in (interval.value, interval.low, interval.high))
    return f"{value} ({low} to {high})" if isfinite(interval.low) else value


def full_number(value: float) -> str:
    """Formats a number with all its digits."""
    return f"{value:,.0f}"


def short_number(value: float) -> str:
    """Formats a long number with three digits and a unit."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 10 * factor or (factor > 1e3 and value >= factor):
            scaled = value / factor
            return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f}{unit}"
    return f"{value:,.0f}"


def percent(value: float) -> str:
    """Formats a share as a percentage."""
    return f"{value:.1%}"


def money(value: float) -> str:
    """Formats dollars, with more digits for small amounts."""
    return f"{value:,.2f}" if value >= 1 else f"{value:,.4f}"


def rate(value: float) -> str:
    """Formats a number per turn."""
    return f"{value:.2f}"


TURNS = ReportMeasure(name="turns", title="turns", format_value=full_number, difference_unit="count")
OVER = ReportMeasure(name="over", title="over", format_value=full_number, difference_unit="count", better="less")
REFUSED = ReportMeasure(
    name="refused", title="refused", format_value=full_number, difference_unit="count", better="less"
)
TOKENS = ReportMeasure(name="tokens", title="sent", format_value=short_number, difference_unit="share", better="less")
LARGEST = ReportMeasure(
    name="largest", title="largest", format_value=short_number, difference_unit="share", better="less"
)
CACHE_READ = ReportMeasure(name="cache_read", title="cached", format_value=short_number, difference_unit="share")
CACHE_WRITE = ReportMeasure(
    name="cache_write", title="written", format_value=short_number, difference_unit="share", better="less"
)
DOLLARS = ReportMeasure(name="dollars", title="dollars", format_value=money, difference_unit="share", better="less")
SHARE = ReportMeasure(name="share", title="unchanged", format_value=percent, difference_unit="points", better="more")
BREAKS = ReportMeasure(name="breaks", title="breaks", format_value=full_number, difference_unit="count", better="less")
DECISIONS = ReportMeasure(name="decisions", title="decisions", format_value=full_number, difference_unit="count")
FETCHED = ReportMeasure(
    name="fetched_again", title="fetched", format_value=full_number, difference_unit="count", better="less"
)
FETCHED_MET = ReportMeasure(name="fetched_met", title="of these met", format_value=full_number, difference_unit="count")
REFERRED = ReportMeasure(
    name="referred", title="referred", format_value=full_number, difference_unit="count", better="less"
)
REFERRED_MET = ReportMeasure(
    name="referred_met", title="of these met", format_value=full_number, difference_unit="count"
)
REGRET = ReportMeasure(name="regret", title="regret", format_value=full_number, difference_unit="count", better="less")
MET = ReportMeasure(name="met", title="met", format_value=full_number, difference_unit="count")
MISSED = ReportMeasure(name="missed", title="missed", format_value=full_number, difference_unit="count", better="less")
REGRET_RATE = ReportMeasure(
    name="regret_rate", title="regret/turn", format_value=rate, difference_unit="count", better="less"
)
USED = ReportMeasure(name="entities_used", title="entities used", format_value=full_number, difference_unit="count")
THERE = ReportMeasure(name="entities_there", title="still there", format_value=full_number, difference_unit="count")
SURVIVAL = ReportMeasure(
    name="survival", title="survival", format_value=percent, difference_unit="points", better="more"
)


_TABLES = {
    "what was sent": (
        OVER,
        REFUSED,
        TOKENS,
        LARGEST,
        CACHE_READ,
        CACHE_WRITE,
        DOLLARS,
    ),
    "how steady it was": (DECISIONS, BREAKS, SHARE),
    "what was needed again": (
        FETCHED,
        REFERRED,
        MET,
        MISSED,
        REGRET_RATE,
        SURVIVAL,
    ),
}
_EACH = (TURNS, OVER, REFUSED, TOKENS, DOLLARS, MISSED)
_MOST_ROWS = 60
"""Rows of single files in the terminal; --json and --html have them all."""
_ALARMING = {"over": "red", "refused": "yellow"}


def as_json(outcome: VariantOutcome, baseline: Backtest | None) -> dict[str, Any]:
    """Returns the result of one file in one way, with the difference to a baseline."""
    way = outcome.way
    row: dict[str, Any] = {"file": outcome.file, "way": way.name, "mode": way.mode, "policy": way.policy}
    row |= measures_of(outcome.result)
    if baseline is not None:
        row["against"] = difference(outcome.result, baseline)
    return row


def show(outcomes: Sequence[VariantOutcome], files: int) -> None:
    """Prints all files in each way, then each file."""
    summaries = summarize(outcomes)
    turns = max((summary.result.turns for summary in summaries), default=0)
    out.print(Text(f"{files:,} {'file' if files == 1 else 'files'}, {turns:,} turns in each way", "bold"))
    for title, measures in _TABLES.items():
        out.print(_summary_table(title, summaries, measures))
    if files > 1:
        _show_each(outcomes)
    for line in _footnotes(summaries):
        out.print(Text(safe(line), "yellow"), soft_wrap=True)


def _summary_table(title: str, summaries: Sequence[VariantSummary], measures: Sequence[ReportMeasure]) -> Table:
    table = _table(title, ("way",), measures)
    for summary in summaries:
        table.add_row(_name(summary.way), *(_cell(measure, summary.result, summary.against) for measure in measures))
    return table


def _show_each(outcomes: Sequence[VariantOutcome]) -> None:
    table = _table("each file", ("file", "way"), _EACH)
    for outcome in outcomes[:_MOST_ROWS]:
        cells = [_cell(measure, outcome.result, None) for measure in _EACH]
        table.add_row(Text(one_line(outcome.file, 40), no_wrap=True, overflow="ellipsis"), _name(outcome.way), *cells)
    out.print(table)
    if len(outcomes) > _MOST_ROWS:
        out.print(f"and {len(outcomes) - _MOST_ROWS:,} more rows: --json or --html has them all", style="dim")


def _table(title: str, names: Sequence[str], measures: Sequence[ReportMeasure]) -> Table:
    """Creates a table for 80 columns: long names are cut, figures never."""
    return Table(
        *names,
        *(Column(measure.title, justify="right", no_wrap=True) for measure in measures),
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 0, 0, 1),
    )


def _name(way: Way) -> Text:
    return Text(one_line(way.name, 40), "dim" if way.is_baseline else "")


def _cell(measure: ReportMeasure, result: Backtest, against: Backtest | None) -> Text:
    measures = measures_of(result)
    style = _ALARMING.get(measure.name, "") if measures[measure.name] else ""
    cell = Text(measure.text(measures), style)
    if against is not None:
        baseline = measures_of(against)
        colour = {True: "green", False: "red", None: "dim"}[measure.is_better(measures, baseline)]
        cell.append(f"\n{measure.change(measures, baseline)}", colour)
    return cell


def _footnotes(summaries: Sequence[VariantSummary]) -> list[str]:
    """Returns explanations that the figures need."""
    lines = []
    if any(summary.result.picodollars is None for summary in summaries):
        lines.append("dollars: name a model whose prices are known with --model NAME; 'recto models' lists them")
    if any(summary.result.refused for summary in summaries):
        lines.append("refused: what must not leave did not fit; a larger --window, or fewer pins, would do")
    baseline = next((summary.way.name for summary in summaries if summary.way.is_baseline), None)
    if baseline is not None:
        lines.append(f"below each figure: the difference to '{one_line(baseline, 60)}'")
    return lines
