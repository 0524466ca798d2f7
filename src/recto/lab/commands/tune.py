"""`recto tune`: settings searched by replay of one's own sessions, and judged on sessions that were held out."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from recto.cli._common import need
from recto.cli.completion import models
from recto.cli.console import Advance, err, one_line, progress
from recto.config import Settings
from recto.errors import InputError
from recto.lab.bootstrap import LEAST
from recto.lab.commands.replay import Size
from recto.lab.objective import MEANINGS, OBJECTIVES, Goal
from recto.lab.variants import MODES, variants

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recto.lab.search_space import Subject
    from recto.lab.tune import Effort, Trial, Tuned
    from recto.lab.tune_recordings import Recording

EXIT_KEPT = 1
PACKAGES = ("optuna",)
_PATIENT = 600.0
_RANGE = re.compile(r"(\w+)\.\.(\w+)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRange:
    """The smallest and the largest window."""

    low: int
    high: int


class SizeRange(click.ParamType[WindowRange]):
    """One size, or two with dots between: 32k, 16k..64k."""

    name = "tokens"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> WindowRange:
        """Both ends; the same twice where one is given."""
        found = _RANGE.fullmatch(str(value))
        ends = [Size().convert(one, param, ctx) for one in (found.groups() if found else (value,))]
        if ends[0] > ends[-1]:
            self.fail(f"{value!r}: the smaller size comes first, as in 16k..64k.", param, ctx)
        return WindowRange(low=ends[0], high=ends[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions:
    """What somebody asked for, by the names of the options."""

    trials: int = 40
    seconds: float | None = None
    seed: int = 0
    held_out: float = 0.3
    jobs: int | None = None
    objective: Any = "missed"
    allowance: float = 5.0

    @property
    def goal(self) -> Goal:
        """What should become less."""
        return Goal(objective=self.objective, allowance=self.allowance / 100)


@click.command("tune")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--window", type=SizeRange(), metavar="N", help="In this window, or any of 16k..64k. [default: the model's]"
)
@click.option("--mode", type=click.Choice(MODES), help="In this mode. [default: the settings']")
@click.option("--model", metavar="NAME", shell_complete=models, help="Counted and priced as this model.")
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
    **given: Any,  # noqa: ANN401  # the options of the search, by name
) -> None:
    """Searches settings that suit your recorded sessions, and recommends them only where it is sure.

    Some sessions are held out. On the others, settings are tried by replay; the best is then judged once on those held
    out, against the settings as they are. Where the gain may be chance nothing is recommended and nothing is written.
    Ends with 0 where better settings were found, with 1 where the settings should stay as they are. Ctrl-C ends the
    search and judges the best so far. No model is asked, and nothing of yours is changed.

    \b
    Examples:
      recto tune ~/.claude/projects/*/*.jsonl --window 32k -o tuned.yaml
      recto tune sessions/*.jsonl --window 16k..64k --model claude-sonnet-4-5 --objective dollars
      recto tune sessions/*.jsonl --window 32k --mode zones --seconds 600 --json
    """
    need("tune", PACKAGES, "tune")
    if output and output.exists() and not force:
        raise click.UsageError(f"'{output}' exists; replace it with --force")
    asked = TuneOptions(**given)
    subject = subject_for(settings, window=window, mode=mode, model=model, asked=asked)
    tuned = tuned_on(files, subject, asked)
    from recto.lab import tune_report  # noqa: PLC0415  # only for who tunes

    tune_report.show(tuned, subject, asked.goal, as_json=as_json)
    if tuned.verdict != "better":
        click.get_current_context().exit(EXIT_KEPT)
    text = tune_report.file_of(tuned, subject, asked.goal, settings, trials=asked.trials, seed=asked.seed)
    if output is not None:
        from recto.cli.import_export import write_out  # noqa: PLC0415

        write_out([text.encode()], output)
        err.print(f"written to {one_line(str(output), 400)}", markup=False, soft_wrap=True)
    elif not as_json:
        click.echo(f"\n{text}", nl=False)


def subject_for(
    settings: Settings, *, window: WindowRange | None, mode: str | None, model: str | None, asked: TuneOptions
) -> Subject:
    """What is tuned, set apart from everything of the user's."""
    from recto.config.factory import model_card  # noqa: PLC0415
    from recto.lab.search_space import Subject  # noqa: PLC0415

    size = window.high if window else None
    own = variants(settings, model=model, window=size, modes=[mode or settings.window.mode])[0].settings
    ranged = window is not None and window.low < window.high
    if ranged and not (model or settings.model):
        raise click.UsageError("a range of windows needs --model: the window is the model's")
    if asked.objective == "dollars" and model_card(own).input_price is None:
        raise click.UsageError("--objective dollars needs --model, with one whose prices are known")
    # However busy the machine is, nothing stays for want of time to index it: the same comes of the same.
    own = replace(own, recall=replace(own.recall, index_seconds=_PATIENT))
    smallest = window.low if ranged and window else None
    return Subject(settings=own, smallest=smallest, model=model or settings.model)


def tuned_on(files: tuple[Path, ...], subject: Subject, asked: TuneOptions) -> Tuned:
    """Sets the sessions of the files apart, searches, and judges."""
    from recto.lab.tune import tune  # noqa: PLC0415
    from recto.lab.tune_recordings import measuring, recordings  # noqa: PLC0415

    with TemporaryDirectory(prefix="recto-tune-") as folder:
        sessions = recordings(subject.settings, files, Path(folder))
        keys = [one.key for one in sessions]
        if len(set(keys)) < 2 * LEAST:
            raise InputError(
                f"{len(set(keys))} different sessions with an answer are too few: {2 * LEAST} are needed to try on "
                f"some and judge on others, and thirty or more to find small gains. Nothing was tried."
            )
        with _bar(sessions, asked) as (advance, effort):
            return tune(measuring(subject, sessions, asked.jobs, advance), keys, subject.space(), asked.goal, effort)


@contextmanager
def _bar(sessions: list[Recording], asked: TuneOptions) -> Iterator[tuple[Advance, Effort]]:
    """A bar that takes what is dropped as done, and a search that ends when its time is up."""
    from recto.lab.tune import Effort  # noqa: PLC0415

    whole = sum(one.size for one in sessions)
    begun, best = time.monotonic(), 1.0
    with progress(
        "tuning", int(whole * ((1 - asked.held_out) * (asked.trials + 1) + 2 * asked.held_out)), of_bytes=True
    ) as advance:

        def told(trial: Trial) -> None:
            nonlocal best
            if trial.dropped or trial.refused:
                part = len(trial.results) / len(sessions)
                advance(int(whole * max(1 - asked.held_out - part, 0)))
            elif trial.score < best and err.is_terminal:
                best = trial.score
                err.print(f"trial {trial.number}: {1 - best:.1%} less of what should become less", markup=False)

        def judging(stopped: bool) -> None:
            if stopped:
                err.print("stopped; the best so far is judged on the sessions held out", markup=False)

        yield (
            advance,
            Effort(
                trials=asked.trials,
                seed=asked.seed,
                held_out=asked.held_out,
                enough=lambda: asked.seconds is not None and time.monotonic() - begun >= asked.seconds,
                told=told,
                judging=judging,
            ),
        )
