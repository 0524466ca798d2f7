"""The figures of a replay as people read them: one text for each measure, in tables and on the page alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich import box
from rich.table import Column, Table
from rich.text import Text

from recto.cli.console import one_line, out, safe
from recto.lab.backtest import Backtest
from recto.lab.results import VariantOutcome, VariantSummary, Way, difference, standings, told

UNKNOWN = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportMeasure:
    """One measure of a result."""

    name: str
    """As in the JSON."""
    title: str
    shown: Callable[[float], str]
    changed: Literal["share", "count", "points"]
    """How a difference is told: as a share of the baseline's value, as a number, in percentage points."""
    better: Literal["less", "more", ""] = ""
    """Which way is good, where one is."""

    def text(self, told: Mapping[str, Any]) -> str:
        """The value."""
        value = told[self.name]
        return UNKNOWN if value is None else self.shown(value)

    def change(self, told: Mapping[str, Any], baseline: Mapping[str, Any]) -> str:
        """What it is more or less than the baseline's; empty where that cannot be told."""
        value, other = told[self.name], baseline[self.name]
        if value is None or other is None:
            return ""
        if value == other:
            return "="
        match self.changed:
            case "points":
                return f"{signed(100 * (value - other), '.1f')} pt"
            case "share" if other:
                return f"{signed(100 * (value - other) / other, '.1f')}%"
            case _:
                return ("+" if value > other else "−") + self.shown(abs(value - other))

    def is_better(self, told: Mapping[str, Any], baseline: Mapping[str, Any]) -> bool | None:
        """Whether the difference is a good one; None where there is none, or neither way is good."""
        value, other = told[self.name], baseline[self.name]
        if not self.better or value is None or other is None or value == other:
            return None
        return bool((value < other) == (self.better == "less"))


def signed(value: float, form: str) -> str:
    """With its sign, a minus as it is printed."""
    return f"{value:+{form}}".replace("-", "−")


def whole(value: float) -> str:
    """A number in full."""
    return f"{value:,.0f}"


def compact(value: float) -> str:
    """A number in three digits where it is long."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 10 * factor or (factor > 1e3 and value >= factor):
            scaled = value / factor
            return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f}{unit}"
    return f"{value:,.0f}"


def percent(value: float) -> str:
    """A share."""
    return f"{value:.1%}"


def money(value: float) -> str:
    """Dollars; as many digits as it takes to see the small ones."""
    return f"{value:,.2f}" if value >= 1 else f"{value:,.4f}"


def rate(value: float) -> str:
    """Something for each turn."""
    return f"{value:.2f}"


TURNS = ReportMeasure(name="turns", title="turns", shown=whole, changed="count")
OVER = ReportMeasure(name="over", title="over", shown=whole, changed="count", better="less")
REFUSED = ReportMeasure(name="refused", title="refused", shown=whole, changed="count", better="less")
TOKENS = ReportMeasure(name="tokens", title="sent", shown=compact, changed="share", better="less")
LARGEST = ReportMeasure(name="largest", title="largest", shown=compact, changed="share", better="less")
CACHE_READ = ReportMeasure(name="cache_read", title="cached", shown=compact, changed="share")
CACHE_WRITE = ReportMeasure(name="cache_write", title="written", shown=compact, changed="share", better="less")
DOLLARS = ReportMeasure(name="dollars", title="dollars", shown=money, changed="share", better="less")
SHARE = ReportMeasure(name="share", title="unchanged", shown=percent, changed="points", better="more")
BREAKS = ReportMeasure(name="breaks", title="breaks", shown=whole, changed="count", better="less")
DECISIONS = ReportMeasure(name="decisions", title="decisions", shown=whole, changed="count")
FETCHED = ReportMeasure(name="fetched_again", title="fetched", shown=whole, changed="count", better="less")
FETCHED_MET = ReportMeasure(name="fetched_met", title="of these met", shown=whole, changed="count")
REFERRED = ReportMeasure(name="referred", title="referred", shown=whole, changed="count", better="less")
REFERRED_MET = ReportMeasure(name="referred_met", title="of these met", shown=whole, changed="count")
REGRET = ReportMeasure(name="regret", title="regret", shown=whole, changed="count", better="less")
MET = ReportMeasure(name="met", title="met", shown=whole, changed="count")
MISSED = ReportMeasure(name="missed", title="missed", shown=whole, changed="count", better="less")
REGRET_RATE = ReportMeasure(name="regret_rate", title="regret/turn", shown=rate, changed="count", better="less")
USED = ReportMeasure(name="entities_used", title="entities used", shown=whole, changed="count")
THERE = ReportMeasure(name="entities_there", title="still there", shown=whole, changed="count")
SURVIVAL = ReportMeasure(name="survival", title="survival", shown=percent, changed="points", better="more")


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
"""Rows of single files that are shown; who wants more of them has programs that read them."""
_ALARMING = {"over": "red", "refused": "yellow"}


def as_json(outcome: VariantOutcome, baseline: Backtest | None) -> dict[str, Any]:
    """One file in one way; beside a baseline with the difference to it."""
    way = outcome.way
    row: dict[str, Any] = {"file": outcome.file, "way": way.name, "mode": way.mode, "policy": way.policy}
    row |= told(outcome.result)
    if baseline is not None:
        row["against"] = difference(outcome.result, baseline)
    return row


def show(outcomes: Sequence[VariantOutcome], files: int) -> None:
    """All files in each way, then each file."""
    sums = standings(outcomes)
    turns = max((one.result.turns for one in sums), default=0)
    out.print(Text(f"{files:,} {'file' if files == 1 else 'files'}, {turns:,} turns in each way", "bold"))
    for title, measures in _TABLES.items():
        out.print(_summed(title, sums, measures))
    if files > 1:
        _show_each(outcomes)
    for line in _told_beside(sums):
        out.print(Text(safe(line), "yellow"), soft_wrap=True)


def _summed(title: str, sums: Sequence[VariantSummary], measures: Sequence[ReportMeasure]) -> Table:
    table = _table(title, ("way",), measures)
    for one in sums:
        table.add_row(_name(one.way), *(_cell(measure, one.result, one.against) for measure in measures))
    return table


def _show_each(outcomes: Sequence[VariantOutcome]) -> None:
    table = _table("each file", ("file", "way"), _EACH)
    for one in outcomes[:_MOST_ROWS]:
        cells = [_cell(measure, one.result, None) for measure in _EACH]
        table.add_row(Text(one_line(one.file, 40), no_wrap=True, overflow="ellipsis"), _name(one.way), *cells)
    out.print(table)
    if len(outcomes) > _MOST_ROWS:
        out.print(f"and {len(outcomes) - _MOST_ROWS:,} more rows: --json or --html has them all", style="dim")


def _table(title: str, names: Sequence[str], measures: Sequence[ReportMeasure]) -> Table:
    """Narrow enough for eighty columns: long names are cut, figures never."""
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
    mine = told(result)
    style = _ALARMING.get(measure.name, "") if mine[measure.name] else ""
    cell = Text(measure.text(mine), style)
    if against is not None:
        theirs = told(against)
        colour = {True: "green", False: "red", None: "dim"}[measure.is_better(mine, theirs)]
        cell.append(f"\n{measure.change(mine, theirs)}", colour)
    return cell


def _told_beside(sums: Sequence[VariantSummary]) -> list[str]:
    """What the figures do not say by themselves."""
    lines = []
    if any(one.result.picodollars is None for one in sums):
        lines.append("dollars: name a model whose prices are known with --model NAME; 'recto models' lists them")
    if any(one.result.refused for one in sums):
        lines.append("refused: what must not leave did not fit; a larger --window, or fewer pins, would do")
    baseline = next((one.way.name for one in sums if one.way.is_baseline), None)
    if baseline is not None:
        lines.append(f"below each figure: the difference to '{one_line(baseline, 60)}'")
    return lines
