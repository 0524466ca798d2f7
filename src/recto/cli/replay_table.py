"""What a replay came to, as tables for people and as JSON for programs. It draws and computes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Column, Table
from rich.text import Text

from recto.cli import replay_figures as figures
from recto.cli.replay_figures import Measure
from recto.cli.screen import one_line, out, safe
from recto.engine.backtesting import Backtest
from recto.engine.ways import Outcome, Standing, Way, difference, standings, told

_TABLES = {
    "what was sent": (
        figures.OVER,
        figures.REFUSED,
        figures.TOKENS,
        figures.LARGEST,
        figures.CACHE_READ,
        figures.CACHE_WRITE,
        figures.DOLLARS,
    ),
    "how steady it was": (figures.DECISIONS, figures.BREAKS, figures.SHARE),
    "what was needed again": (
        figures.FETCHED,
        figures.REFERRED,
        figures.MET,
        figures.MISSED,
        figures.REGRET_RATE,
        figures.SURVIVAL,
    ),
}
_EACH = (figures.TURNS, figures.OVER, figures.REFUSED, figures.TOKENS, figures.DOLLARS, figures.MISSED)
_MOST_ROWS = 60
"""Rows of single files that are shown; who wants more of them has programs that read them."""
_ALARMING = {"over": "red", "refused": "yellow"}


def as_json(outcome: Outcome, baseline: Backtest | None) -> dict[str, Any]:
    """One file in one way; beside a baseline with the difference to it."""
    way = outcome.way
    row: dict[str, Any] = {"file": outcome.file, "way": way.name, "mode": way.mode, "policy": way.policy}
    row |= told(outcome.result)
    if baseline is not None:
        row["against"] = difference(outcome.result, baseline)
    return row


def show(outcomes: Sequence[Outcome], files: int) -> None:
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


def _summed(title: str, sums: Sequence[Standing], measures: Sequence[Measure]) -> Table:
    table = _table(title, ("way",), measures)
    for one in sums:
        table.add_row(_name(one.way), *(_cell(measure, one.result, one.against) for measure in measures))
    return table


def _show_each(outcomes: Sequence[Outcome]) -> None:
    table = _table("each file", ("file", "way"), _EACH)
    for one in outcomes[:_MOST_ROWS]:
        cells = [_cell(measure, one.result, None) for measure in _EACH]
        table.add_row(Text(one_line(one.file, 40), no_wrap=True, overflow="ellipsis"), _name(one.way), *cells)
    out.print(table)
    if len(outcomes) > _MOST_ROWS:
        out.print(f"and {len(outcomes) - _MOST_ROWS:,} more rows: --json or --html has them all", style="dim")


def _table(title: str, names: Sequence[str], measures: Sequence[Measure]) -> Table:
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


def _cell(measure: Measure, result: Backtest, against: Backtest | None) -> Text:
    mine = told(result)
    style = _ALARMING.get(measure.name, "") if mine[measure.name] else ""
    cell = Text(measure.text(mine), style)
    if against is not None:
        theirs = told(against)
        colour = {True: "green", False: "red", None: "dim"}[measure.is_better(mine, theirs)]
        cell.append(f"\n{measure.change(mine, theirs)}", colour)
    return cell


def _told_beside(sums: Sequence[Standing]) -> list[str]:
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
