"""`recto lab tune`: searches settings by replay of your sessions, and judges them on held-out sessions."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from recto.cli._common import require_packages
from recto.cli.completion import complete_models
from recto.cli.console import Advance, err, one_line, progress
from recto.config import Settings
from recto.errors import InputError
from recto.lab.bootstrap import MIN_SESSIONS
from recto.lab.commands.replay import Size
from recto.lab.objective import MEANINGS, OBJECTIVES, Goal
from recto.lab.variants import MODES, variants

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recto.lab._tune_recordings import TuneRecording
    from recto.lab.search_space import Subject
    from recto.lab.tune import SearchOptions, Trial, TuneResult

EXIT_UNCHANGED = 1
PACKAGES = ("optuna",)
_INDEX_SECONDS = 600.0
_RANGE = re.compile(r"(\w+)\.\.(\w+)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRange:
    """The smallest and the largest window."""

    low: int
    high: int


class SizeRange(click.ParamType[WindowRange]):
    """A click type: one size, or two with dots between: 32k, 16k..64k."""

    name = "tokens"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> WindowRange:
        """Returns both ends; they are equal for a single size."""
        match = _RANGE.fullmatch(str(value))
        ends = [Size().convert(size, param, ctx) for size in (match.groups() if match else (value,))]
        if ends[0] > ends[-1]:
            self.fail(f"{value!r}: the smaller size comes first, as in 16k..64k.", param, ctx)
        return WindowRange(low=ends[0], high=ends[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions:
    """Options of the search."""

    trials: int = 40
    seconds: float | None = None
    seed: int = 0
    held_out: float = 0.3
    jobs: int | None = None
    objective: Any = "missed"
    allowance: float = 5.0

    @property
    def goal(self) -> Goal:
        """What to minimise."""
        return Goal(objective=self.objective, allowance=self.allowance / 100)


@click.command("tune")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--window", type=SizeRange(), metavar="N", help="In this window, or any of 16k..64k. [default: the model's]"
)
@click.option("--mode", type=click.Choice(MODES), help="In this mode. [default: the settings']")
@click.option("--model", metavar="NAME", shell_complete=complete_models, help="Counted and priced as this model.")
@click.option(
    "--objective",
    type=click.Choice(OBJECTIVES),
    default="missed",
    show_default=True,
    help="What should become less: " + "; ".join(f"{name}: {what}" for name, what in MEANINGS.items()) + ".",
)
@click.option(
    "--allowance",
    type=click.FloatRange(0, 100),
    default=5.0,
    show_default=True,
    metavar="PERCENT",
    help="What may rise for it: the cost, or where cost is tuned, the needs missed.",
)
@click.option("--trials", type=click.IntRange(1, 100_000), default=40, show_default=True, help="Candidates, at most.")
@click.option("--seconds", type=click.FloatRange(min=1), help="Begin none after so long; the judgement comes on top.")
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same sessions held out, same search.")
@click.option(
    "--held-out",
    type=click.FloatRange(0.1, 0.9),
    default=0.3,
    show_default=True,
    help="The share of sessions on which the result is judged and nothing is tried.",
)
@click.option("--jobs", type=click.IntRange(1, 256), metavar="N", help="In N processes. [default: by cores and work]")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the settings here.")
@click.option("--force", is_flag=True, help="Replace the output file if there is one.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def tune_command(
    settings: Settings,
    /,
    files: tuple[Path, ...],
    output: Path | None,
    force: bool,
    as_json: bool,
    window: WindowRange | None,
    mode: str | None,
    model: str | None,
    **search_options: Any,  # noqa: ANN401  # the options of the search, by name
) -> None:
    """Searches settings that suit your recorded sessions, and recommends them only where it is sure.

    Some sessions are held out. On the others, settings are tried by replay; the best is then judged once on those held
    out, against the settings as they are. Where the gain may be chance nothing is recommended and nothing is written.
    Ends with 0 where better settings were found, with 1 where the settings should stay as they are. Ctrl-C ends the
    search and judges the best so far. No model is asked, and nothing of yours is changed.

    \b
    Examples:
      recto lab tune ~/.claude/projects/*/*.jsonl --window 32k -o tuned.yaml
      recto lab tune sessions/*.jsonl --window 16k..64k --model claude-sonnet-5-5 --objective dollars
      recto lab tune sessions/*.jsonl --window 32k --mode zones --seconds 600 --json
    """
    require_packages("tune", PACKAGES, "tune")
    if output and output.exists() and not force:
        raise click.UsageError(f"'{output}' exists; replace it with --force")
    options = TuneOptions(**search_options)
    subject = make_subject(settings, window=window, mode=mode, model=model, options=options)
    result = tune_files(files, subject, options)
    from recto.lab.commands import _tune_report  # noqa: PLC0415  # not needed for --help

    _tune_report.show(result, subject, options.goal, as_json=as_json)
    if result.verdict != "better":
        click.get_current_context().exit(EXIT_UNCHANGED)
    text = _tune_report.render_settings_file(
        result, subject, options.goal, settings, trials=options.trials, seed=options.seed
    )
    if output is not None:
        from recto.cli.import_export import write_out  # noqa: PLC0415
        from recto.config.trust import SETTINGS_FILE, trust_file  # noqa: PLC0415

        write_out([text.encode()], output)
        if output.name == SETTINGS_FILE:
            trust_file(output, text.encode())
        err.print(f"written to {one_line(str(output), 400)}", markup=False, soft_wrap=True)
    elif not as_json:
        click.echo(f"\n{text}", nl=False)


def make_subject(
    settings: Settings, *, window: WindowRange | None, mode: str | None, model: str | None, options: TuneOptions
) -> Subject:
    """Returns the settings to tune, isolated from the user's data."""
    from recto.config.factory import model_card  # noqa: PLC0415
    from recto.lab.search_space import Subject  # noqa: PLC0415

    size = window.high if window else None
    base = variants(settings, model=model, window=size, modes=[mode or settings.window.mode])[0].settings
    ranged = window is not None and window.low < window.high
    if ranged and not (model or settings.model):
        raise click.UsageError("a range of windows needs --model: the window is the model's")
    if options.objective == "dollars" and model_card(base).input_price is None:
        raise click.UsageError("--objective dollars needs --model, with one whose prices are known")
    # Indexing must never time out on a busy machine, or the same input would give another result.
    base = replace(base, recall=replace(base.recall, index_seconds=_INDEX_SECONDS))
    smallest = window.low if ranged and window else None
    return Subject(settings=base, smallest=smallest, model=model or settings.model)


def tune_files(files: tuple[Path, ...], subject: Subject, options: TuneOptions) -> TuneResult:
    """Reads the sessions of the files, searches, and judges the best candidate."""
    from recto.lab._tune_recordings import load_recordings, make_measure  # noqa: PLC0415
    from recto.lab.tune import tune  # noqa: PLC0415

    with TemporaryDirectory(prefix="recto-tune-") as folder:
        sessions = load_recordings(subject.settings, files, Path(folder))
        keys = [recording.key for recording in sessions]
        if len(set(keys)) < 2 * MIN_SESSIONS:
            raise InputError(
                f"{len(set(keys))} different sessions with an answer are too few: {2 * MIN_SESSIONS} are needed to try "
                f"on some and judge on others, and thirty or more to find small gains. Nothing was tried."
            )
        with _progress_bar(sessions, options) as (advance, search):
            return tune(
                make_measure(subject, sessions, options.jobs, advance), keys, subject.space(), options.goal, search
            )


@contextmanager
def _progress_bar(sessions: list[TuneRecording], options: TuneOptions) -> Iterator[tuple[Advance, SearchOptions]]:
    """Shows progress, counting what is dropped as done, and limits the time of the search."""
    from recto.lab.tune import SearchOptions  # noqa: PLC0415

    total = sum(recording.size for recording in sessions)
    started, best = time.monotonic(), 1.0
    with progress(
        "tuning", int(total * ((1 - options.held_out) * (options.trials + 1) + 2 * options.held_out)), of_bytes=True
    ) as advance:

        def on_trial(trial: Trial) -> None:
            nonlocal best
            if trial.dropped or trial.refused:
                part = len(trial.results) / len(sessions)
                advance(int(total * max(1 - options.held_out - part, 0)))
            elif trial.score < best and err.is_terminal:
                best = trial.score
                err.print(f"trial {trial.number}: {1 - best:.1%} less of what should become less", markup=False)

        def on_judging(stopped: bool) -> None:
            if stopped:
                err.print("stopped; the best so far is judged on the sessions held out", markup=False)

        yield (
            advance,
            SearchOptions(
                trials=options.trials,
                seed=options.seed,
                held_out=options.held_out,
                is_done=lambda: options.seconds is not None and time.monotonic() - started >= options.seconds,
                on_trial=on_trial,
                on_judging=on_judging,
            ),
        )
