"""`recto lab compare`: one session in several ways and windows, by what its prompts hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Column, Table
from rich.text import Text

from recto.cli.completion import complete_models
from recto.cli.console import one_line, out, progress, safe
from recto.config import Settings
from recto.lab.commands._sessions import stored_session
from recto.lab.commands.replay import Size
from recto.lab.comparison import MEASURES, MeasureName, Share, WayMeasures, compare
from recto.lab.isolation import isolated, read_sessions
from recto.lab.variants import MODES, Variant, variants
from recto.transcript.entries import Entry, session_key

TRIM = "trim"
WAYS = (*MODES, TRIM)
_DEFAULT_WINDOWS = (16_000, 32_000)


@click.command("compare")
@click.argument("session")
@click.option(
    "--window", "windows", multiple=True, type=Size(), metavar="N", help="In a window of so many tokens; several times."
)
@click.option("--mode", "modes", multiple=True, type=click.Choice(WAYS), help="In this mode; several times. [all]")
@click.option("--model", metavar="NAME", shell_complete=complete_models, help="Counted as this model counts.")
@click.option("--name", metavar="KEY", help="Which session, where a file holds several.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def compare_command(
    settings: Settings,
    session: str,
    windows: tuple[int, ...],
    modes: tuple[str, ...],
    model: str | None,
    name: str | None,
    as_json: bool,
) -> None:
    """Compares sliding window, compaction, zones and plain trimming on one session.

    SESSION is a file that 'recto import' takes, or a session of your store. It is replayed in each mode and window; the
    same eight prompts of each are examined, by rule. What a model would have answered is unknown.

    \b
    Examples:
      recto lab compare session.jsonl --window 16k --window 64k
      recto lab compare agent:default:main --mode sliding_window --mode auto_compact --json
    """
    entries = _entries(settings, session, name)
    ways = _variants(settings, model, windows or _DEFAULT_WINDOWS, modes or WAYS)
    with progress("replaying", len(ways) * len(entries)) as advance:
        measured = compare(entries, ways, advance)
    if as_json:
        click.echo(json.dumps(_json(measured)))
    else:
        _show(measured, len(entries))


def _entries(settings: Settings, name: str, key: str | None) -> list[Entry]:
    """The entries of a session in a file, or in the store."""
    file = Path(name)
    if not file.is_file():
        return list(stored_session(settings, name)[1])
    sessions = read_sessions(isolated(settings), file)
    if key is None and len(sessions) == 1:
        return next(iter(sessions.values()))
    if key is None or session_key(key) not in sessions:
        known = ", ".join(list(sessions)[:5])
        raise click.UsageError(f"'{name}' holds {len(sessions)} sessions; name one of them with --name: {known}")
    return sessions[session_key(key)]


def _variants(settings: Settings, model: str | None, windows: Sequence[int], modes: Sequence[str]) -> list[Variant]:
    chosen = tuple(mode for mode in MODES if mode in modes)
    against = TRIM if TRIM in modes else None
    ways: list[Variant] = []
    for window in windows:
        made = variants(settings, model=model, window=window, modes=chosen, against=against)
        # without modes there are all of them
        ways += [variant for variant in made if variant.way.mode is None or chosen]
    return ways


def _json(measured: Sequence[WayMeasures]) -> dict[str, Any]:
    definitions = {name: {"title": title, "is": text} for name, (title, text) in MEASURES.items()}
    return {"measures": definitions, "ways": [_row(result) for result in measured]}


def _row(result: WayMeasures) -> dict[str, Any]:
    shares = {name: result.shares.get(name, Share()) for name in MEASURES}
    row: dict[str, Any] = {"way": result.way, "window": result.window, "prompts": result.prompts}
    row |= {"tokens": result.tokens, "evicted": result.evicted, "outdated": result.outdated}
    return row | {name: {"value": share.value, "part": share.part, "of": share.total} for name, share in shares.items()}


def _show(measured: Sequence[WayMeasures], entries: int) -> None:
    out.print(Text(f"{entries:,} entries, {max(result.prompts for result in measured):,} prompts in each way", "bold"))
    for window in dict.fromkeys(result.window for result in measured):
        of_window = [result for result in measured if result.window == window]
        ways = (Column(Text(one_line(result.way, 40)), justify="right") for result in of_window)
        table = Table(f"window of {window:,}", *ways)
        means = (f"{result.tokens // max(result.prompts, 1):,}" for result in of_window)
        table.add_row("tokens a prompt", *means)
        for name, (title, _) in MEASURES.items():
            table.add_row(title, *(_cell(result, name) for result in of_window))
        out.print(table)
    for title, text in MEASURES.values():
        out.print(Text.assemble((f"{title}: ", "bold"), safe(text)), soft_wrap=True)


def _cell(result: WayMeasures, name: MeasureName) -> str:
    """A share, and of how many: of three statements it says little."""
    share = result.shares.get(name, Share())
    return "–" if share.value is None else f"{share.value:.0%} of {share.total:,}"
