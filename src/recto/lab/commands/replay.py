"""`recto lab replay`: replays recorded sessions in other modes, under other policies and in other windows."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from recto.cli.completion import complete_models
from recto.cli.console import Advance, err, progress, safe
from recto.cli.import_export import write_out
from recto.config import Settings
from recto.lab import report
from recto.lab.commands._html_report import DOCTYPE, page
from recto.lab.process_pool import in_processes
from recto.lab.recordings import ReplayTask, run_task
from recto.lab.results import VariantOutcome, has_overflow
from recto.lab.variants import MODES, POLICIES, Against, Variant, variants

__all__ = ["MODES", "Replay", "Size", "replay_command"]

EXIT_OVERFLOW = 1
_SIZE = re.compile(r"(\d{1,9})([km]?)", re.ASCII | re.IGNORECASE)
_FACTORS = {"": 1, "k": 1_000, "m": 1_000_000}
_MIN_TOKENS = 1_000
_BYTES_PER_PROCESS = 400_000
"""Bytes to replay from which another process pays for its start."""
_CURVES = 3
"""Files with a plot of prompt sizes on the page: the largest ones."""


class Size(click.ParamType[int]):
    """A click type: a number of tokens such as 32000, 32k or 1m."""

    name = "tokens"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Returns the number."""
        match = _SIZE.fullmatch(str(value))
        size = int(match[1]) * _FACTORS[match[2].lower()] if match else 0
        if size < _MIN_TOKENS:
            self.fail(
                f"{value!r} is not a number of tokens from {_MIN_TOKENS:,} on, such as 32k or 128000.", param, ctx
            )
        return size


class PageFile(click.Path):
    """A click type: a file for the page, new or an earlier page. Other files are never overwritten."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Returns the path."""
        file = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not file.parent.is_dir():
            self.fail(f"there is no folder '{file.parent}'.", param, ctx)
        if file.exists():
            with file.open("rb") as stream:
                beginning = stream.read(len(DOCTYPE))
            if beginning not in (b"", DOCTYPE.encode()):
                self.fail(f"'{file}' is there already and is no page, so it is not replaced.", param, ctx)
        return file


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The files to replay, in which variants and processes."""

    files: tuple[Path, ...]
    variants: Sequence[Variant]
    jobs: int | None = None
    """Processes; None for as many as pay off."""
    with_curves: bool = False

    def tasks(self) -> list[ReplayTask]:
        """Returns every file in every variant, in the order of the files."""
        by_size = sorted(range(len(self.files)), key=lambda place: -self.files[place].stat().st_size)
        with_plot = frozenset(by_size[:_CURVES]) if self.with_curves else frozenset()
        return [
            ReplayTask(place=place, file=file, variant=variant, with_curve=place in with_plot)
            for place, file in enumerate(self.files)
            for variant in self.variants
        ]

    def outcomes(self, advance: Advance) -> Iterator[VariantOutcome]:
        """Yields the results in the order of the tasks."""
        tasks = self.tasks()
        processes = sum(task.size for task in tasks) // _BYTES_PER_PROCESS
        jobs = self.jobs or max(1, min(os.cpu_count() or 1, processes))
        return in_processes(run_task, tasks, jobs, advance, size=lambda task: task.size)


@click.command("replay")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--window", type=Size(), metavar="N", help="In a window of so many tokens: 32k. [default: the model's]")
@click.option("--mode", "modes", multiple=True, type=click.Choice(MODES), help="In this mode; several times. [all]")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(POLICIES),
    help="Under this policy; several times, crossed with the modes. [default: the settings']",
)
@click.option(
    "--against",
    type=Against(),
    help="Beside a baseline: the whole history, the oldest left out, or other settings.",
)
@click.option("--model", metavar="NAME", shell_complete=complete_models, help="Counted and priced as this model.")
@click.option("--jobs", type=click.IntRange(1, 256), metavar="N", help="In N processes. [default: one a core]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each file and way.")
@click.option(
    "--html",
    type=PageFile(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Write one page with plots that needs nothing else.",
)
@click.pass_obj
def replay_command(
    settings: Settings,
    /,
    files: tuple[Path, ...],
    as_json: bool,
    html: Path | None,
    jobs: int | None,
    **options: Any,  # noqa: ANN401  # the arguments of `variants`
) -> None:
    """Goes through recorded sessions again, turn by turn, and tells what they come to in each way.

    Takes every format that 'recto import' takes. Nothing is written into your store and no model is asked. Prices are
    those of prompts, with an unchanged beginning cached. Ends with 1 where something did not fit.

    \b
    Examples:
      recto lab replay session.jsonl --window 32k --model claude-sonnet-5-5
      recto lab replay ~/.claude/projects/*/*.jsonl --window 128k --mode zones --against trim --html replay.html
      recto lab replay session.json --window 16k --mode sliding_window --policy prune --policy hybrid
      recto lab replay session.json --window 16k --json | jq '{way, dollars, missed}'
    """
    compared = variants(settings, **options)
    replay = Replay(files=files, variants=compared, jobs=jobs, with_curves=html is not None)
    size = len(compared) * sum(file.stat().st_size for file in files)
    with progress("replaying", size, of_bytes=True) as advance:
        outcomes = list(_print_json(replay.outcomes(advance), as_json=as_json))
    _show_results(outcomes, options, files=len(files), as_json=as_json, html=html)
    if has_overflow(outcomes):
        click.get_current_context().exit(EXIT_OVERFLOW)


def _print_json(outcomes: Iterator[VariantOutcome], *, as_json: bool) -> Iterator[VariantOutcome]:
    """Passes the results on, and prints each as JSON if requested. A file's baseline comes before its other ways."""
    baseline: VariantOutcome | None = None
    for outcome in outcomes:
        baseline = outcome if outcome.way.is_baseline else baseline
        if as_json:
            against = None if baseline is None or outcome.way.is_baseline else baseline.result
            click.echo(json.dumps(report.as_json(outcome, against)))
        yield outcome


def _show_results(
    outcomes: list[VariantOutcome], options: dict[str, Any], *, files: int, as_json: bool, html: Path | None
) -> None:
    if not as_json:
        report.show(outcomes, files)
    if html is not None:
        subtitle = {"model": options["model"]} if options["model"] else {}
        subtitle |= {"window of": f"{options['window']:,} tokens"} if options["window"] else {}
        write_out([page(outcomes, files=files, subtitle=subtitle).encode(errors="replace")], html)
        err.print(f"written to {safe(str(html))}", markup=False, highlight=False, soft_wrap=True)
