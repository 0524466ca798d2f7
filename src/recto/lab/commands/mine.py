"""`recto lab mine`: what a smaller window would have cost and lost in your own sessions, and which mode fits."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Column, Table
from rich.text import Text

from recto.cli._common import open_for_reading
from recto.cli.completion import complete_models
from recto.cli.console import err, one_line, out, progress, safe
from recto.cli.import_export import write_out
from recto.config import Settings
from recto.lab.backtest import Backtest
from recto.lab.commands._mine_page import SHOWN, cost_text, lost_statements, mine_page
from recto.lab.commands._sessions import load_sessions
from recto.lab.commands.replay import PageFile, Size
from recto.lab.comparison import MEASURES, MeasureName, Share
from recto.lab.own_sessions import FITS, OwnTask, WayResult, WindowResult, sum_windows, try_window
from recto.lab.process_pool import in_processes
from recto.lab.report import UNKNOWN, short_number
from recto.lab.results import measures_of
from recto.lab.variants import MODES
from recto.transcript.session_keys import is_internal, list_sessions

_DEFAULT_WINDOWS = (16_000, 32_000)
_MOST_SESSIONS = 100_000
_ENTRIES_PER_PROCESS = 2_000
"""Entries to replay from which another process pays for its start."""
_COUNTED = ("turns", "refused", "tokens", "dollars", "share", "missed", "survival")


@click.command("mine")
@click.argument("sessions", nargs=-1)
@click.option(
    "--window", "windows", multiple=True, type=Size(), metavar="N", help="In a window of so many tokens; several times."
)
@click.option("--mode", "modes", multiple=True, type=click.Choice(MODES), help="In this mode; several times. [all]")
@click.option(
    "--most",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    metavar="N",
    help="How many sessions of the store, the longest first.",
)
@click.option("--model", metavar="NAME", shell_complete=complete_models, help="Counted and priced as this model.")
@click.option("--jobs", type=click.IntRange(1, 256), metavar="N", help="In N processes. [default: one a core]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option(
    "--html",
    type=PageFile(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Write one page with plots that needs nothing else.",
)
@click.option("--with-content", is_flag=True, help="Name the sessions, and quote the statements that were lost.")
@click.pass_obj
def mine_command(
    settings: Settings,
    /,
    sessions: tuple[str, ...],
    as_json: bool,
    html: Path | None,
    with_content: bool,
    **options: Any,  # noqa: ANN401  # the other options, by name
) -> None:
    """Shows what a smaller window would have cost and lost in your own sessions, and which mode fits.

    SESSIONS are files that 'recto import' takes, or sessions of your store; without any, the longest of your store are
    taken. They are replayed in each mode and window. No model is called, and nothing is written into your store. Unless
    you ask for it, nothing that sessions say is shown, so the page can be shared.

    \b
    Examples:
      recto lab mine --model gpt-4o --window 32k --html mine.html
      recto lab mine ~/.claude/projects/*/*.jsonl --window 64k --json
    """
    names = list(sessions) or list(_longest(settings, options["most"]))
    tasks = [
        OwnTask(
            name=name,
            entries=entries,
            settings=settings,
            window=window,
            modes=tuple(mode for mode in MODES if mode in options["modes"]) or MODES,
            model=options["model"],
        )
        for name, entries in load_sessions(settings, names)
        for window in options["windows"] or _DEFAULT_WINDOWS
    ]
    total = sum(task.size for task in tasks)
    jobs = options["jobs"] or max(1, min(os.cpu_count() or 1, total // _ENTRIES_PER_PROCESS))
    with progress("replaying", total) as advance:
        results = list(in_processes(try_window, tasks, jobs, advance, size=lambda task: task.size))
    windows = sum_windows(results)
    content = [(task.name, result) for task, result in zip(tasks, results, strict=True)] if with_content else []
    if as_json:
        click.echo(json.dumps(_json(windows, content)))
    else:
        _show(windows, content)
    if html is not None:
        write_out([mine_page(windows, content, model=options["model"] or "").encode(errors="replace")], html)
        err.print(f"written to {safe(str(html))}", markup=False, highlight=False, soft_wrap=True)


def _longest(settings: Settings, most: int) -> Iterator[str]:
    """Yields the keys of the longest sessions of the store."""
    with open_for_reading(settings) as store:
        known = [one for one in list_sessions(store, "", _MOST_SESSIONS) if not is_internal(one.session)]
    for summary in sorted(known, key=lambda one: (-one.entries, one.session))[:most]:
        yield summary.session


def _json(windows: Sequence[WindowResult], content: Sequence[tuple[str, WindowResult]]) -> dict[str, Any]:
    report: dict[str, Any] = {"rule": FITS, "windows": [_window_json(result) for result in windows]}
    if content:
        report["sessions"] = [
            {"session": name, "window": result.window, "lost": lost_statements(result)} for name, result in content
        ]
    return report


def _window_json(result: WindowResult) -> dict[str, Any]:
    best = result.best
    return {
        "window": result.window,
        "sessions": result.sessions,
        "fitting": result.fitting,
        "fits": None if best is None else best.way.name,
        "whole": _counted(result.whole),
        "ways": [
            {"way": way.way.name, **_counted(way.result), **{name: _share(way, name) for name in MEASURES}}
            for way in result.ways
        ],
    }


def _counted(result: Backtest) -> dict[str, Any]:
    measures = measures_of(result)
    return {name: measures[name] for name in _COUNTED}


def _share(way: WayResult, name: MeasureName) -> dict[str, Any]:
    share = way.measures.shares.get(name, Share())
    return {"value": share.value, "part": share.part, "of": share.total}


def _show(windows: Sequence[WindowResult], content: Sequence[tuple[str, WindowResult]]) -> None:
    if not windows:
        out.print("There is no session to replay. 'recto import FILE' takes one in.")
        return
    for result in windows:
        out.print(_table(result))
        best = result.best
        fits = "no mode fits: each refused a prompt" if best is None else f"the mode that fits: {best.way.name}"
        out.print(Text(fits, "bold"))
    out.print(f"The mode that fits: {FITS[0].lower()}{FITS[1:]}", soft_wrap=True)
    if any(result.whole.picodollars is None for result in windows):
        out.print("dollars: name a model whose prices are known with --model NAME", style="yellow")
    for name, result in content:
        out.print(Text(f"{one_line(name, 80)}, window of {result.window:,}", "bold"))
        for statement in lost_statements(result):
            out.print(Text(f"- {one_line(statement, 200)}"), soft_wrap=True)


def _table(result: WindowResult) -> Table:
    ways = result.ways
    table = Table(
        Column(""),
        *(Column(name, justify="right") for name in ("whole history", *(way.way.name for way in ways))),
        title=f"window of {result.window:,}: {result.sessions:,} sessions, {result.fitting:,} fit as they are",
        title_justify="left",
        title_style="bold",
    )
    costs = [cost_text(result.whole, None), *(cost_text(way.result, result.whole) for way in ways)]
    table.add_row("tokens", *(short_number(one.tokens) for one in (result.whole, *(way.result for way in ways))))
    table.add_row("dollars", *(shown for shown, _ in costs))
    table.add_row("against whole", *(change for _, change in costs))
    table.add_row("prompts refused", UNKNOWN, *(f"{way.result.refused:,}" for way in ways))
    table.add_row("needs missed", UNKNOWN, *(f"{way.result.missed:,}" for way in ways))
    table.add_row("survival", UNKNOWN, *(f"{way.result.survival:.1%}" for way in ways))
    for name in SHOWN:
        shares = [way.measures.shares.get(name, Share()).value for way in ways]
        cells = (UNKNOWN if share is None else f"{share:.0%}" for share in shares)
        table.add_row(MEASURES[name][0], UNKNOWN, *cells)
    return table
