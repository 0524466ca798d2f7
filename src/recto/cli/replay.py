"""`recto replay`: what recorded sessions would have come to in a window of another size or mode."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Column, Table
from rich.text import Text

from recto.cli.apart import apart, sessions_in
from recto.cli.completing import models
from recto.cli.screen import Advance, one_line, out, progress, safe
from recto.core.entries import Entry
from recto.settings import Settings
from recto.stores.memory import MemoryStore
from recto.wiring import indexer_for, open_session

if TYPE_CHECKING:
    from recto.engine.backtesting import Backtest

MODES = ("sliding_window", "auto_compact", "zones")
EXIT_FOUND = 1
_SIZE = re.compile(r"(\d{1,9})([km]?)", re.ASCII | re.IGNORECASE)
_FACTORS = {"": 1, "k": 1_000, "m": 1_000_000}
_LEAST = 1_000


class Size(click.ParamType[int]):
    """A number of tokens, as people write it: 32000, 32k, 1m."""

    name = "tokens"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        found = _SIZE.fullmatch(str(value))
        size = int(found[1]) * _FACTORS[found[2].lower()] if found else 0
        if size < _LEAST:
            self.fail(f"{value!r} is not a number of tokens from {_LEAST:,} on, such as 32k or 128000.", param, ctx)
        return size


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One file in one mode."""

    file: str
    mode: str
    result: Backtest


@click.command("replay")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--window", type=Size(), metavar="N", help="In a window of so many tokens: 32k. [default: the model's]")
@click.option("--mode", "modes", multiple=True, type=click.Choice(MODES), help="In this mode; several times. [all]")
@click.option("--model", metavar="NAME", shell_complete=models, help="Counted and priced as this model.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each file and mode.")
@click.pass_obj
def replay_command(
    settings: Settings,
    files: tuple[Path, ...],
    window: int | None,
    modes: tuple[str, ...],
    model: str | None,
    as_json: bool,
) -> None:
    """Goes through recorded sessions again, turn by turn, and tells what they come to in each mode.

    Takes every format that 'recto import' takes. Nothing is written into your store and no model is asked. Prices are
    those of prompts, with what stands unchanged at the beginning cached. Ends with 1 where something did not fit.

    \b
    Examples:
      recto replay session.jsonl --window 32k --model claude-sonnet-4-5
      recto replay ~/.claude/projects/*/*.jsonl --window 128k --mode sliding_window --mode zones
      recto replay session.json --window 16k --json | jq '{mode, share, dollars}'
    """
    own = _quick(apart(settings, model=model, window=window))
    rows: list[Row] = []
    with progress("replaying", len(modes or MODES) * sum(file.stat().st_size for file in files), of_bytes=True) as bar:
        for file in files:
            sessions = sessions_in(own, file)
            for mode in modes or MODES:
                moded = replace(own, window=replace(own.window, mode=mode))
                rows.append(Row(file=file.name, mode=mode, result=_result(moded, sessions, file, bar)))
                if as_json:
                    click.echo(json.dumps(_json(rows[-1])))
    if not as_json:
        _show(rows, len(files))
    if any(row.result.over or row.result.refused for row in rows):
        click.get_current_context().exit(EXIT_FOUND)


def _quick(settings: Settings) -> Settings:
    """With an embedder that takes no time, unless the settings name one: what a window costs hardly depends on it."""
    given = settings.recall
    use = "hashing" if given.embedder.use == "auto" else given.embedder.use
    return replace(settings, recall=replace(given, embedder=replace(given.embedder, use=use)))


def _result(settings: Settings, sessions: Mapping[str, Sequence[Entry]], file: Path, advance: Advance) -> Backtest:
    """All sessions of a file, each in a window of its own."""
    from recto.engine.backtesting import Backtest, backtest  # noqa: PLC0415  # only for who replays

    left = file.stat().st_size

    def passed(entries: Sequence[Entry]) -> Iterator[Entry]:
        nonlocal left
        for entry in entries:
            size = min(len(entry.content), left)
            left -= size
            advance(size)
            yield entry

    total = Backtest()
    for entries in sessions.values():
        with (
            closing(MemoryStore()) as store,
            closing(indexer_for(settings, store)) as indexer,
            closing(open_session(settings, store, indexer)) as session,
        ):
            total += backtest(session, passed(entries))
    advance(left)
    return total


def _json(row: Row) -> dict[str, object]:
    told = asdict(row.result) | {"share": round(row.result.share, 4), "dollars": _dollars(row.result)}
    return {"file": row.file, "mode": row.mode, **told}


def _dollars(result: Backtest) -> float | None:
    return None if result.picodollars is None else round(result.picodollars / 1e12, 6)


def _show(rows: Sequence[Row], files: int) -> None:
    right = ("turns", "sent", "unchanged", "dollars", "decisions", "largest", "over", "refused")
    table = Table("file", "mode", *(Column(name, justify="right") for name in right))
    for row in rows:
        table.add_row(Text(one_line(row.file, 40)), row.mode, *_cells(row.result))
    if files > 1:
        table.add_section()
        for mode in dict.fromkeys(row.mode for row in rows):
            first, *others = [row.result for row in rows if row.mode == mode]
            for one in others:
                first += one
            table.add_row(Text(f"{files:,} files", "bold"), mode, *_cells(first))
    out.print(table)
    if any(row.result.refused for row in rows):
        says = "refused: what must not leave did not fit; a larger --window, or fewer pins, would do"
        out.print(safe(says), style="yellow", soft_wrap=True)


def _cells(result: Backtest) -> tuple[str | Text, ...]:
    dollars = _dollars(result)
    return (
        f"{result.turns:,}",
        f"{result.tokens:,}",
        f"{result.share:.1%}",
        "–" if dollars is None else f"{dollars:,.4f}",
        f"{result.decisions:,}",
        f"{result.largest:,}",
        Text(f"{result.over:,}", "red" if result.over else ""),
        Text(f"{result.refused:,}", "yellow" if result.refused else ""),
    )
