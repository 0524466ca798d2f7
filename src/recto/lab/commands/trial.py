"""`recto lab trial`: is a smaller prompt as good as the whole history, at moments of recorded runs?"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.table import Column, Table
from rich.text import Text

from recto.cli.completion import complete_models
from recto.cli.console import err, one_line, out, progress, safe
from recto.cli.import_export import write_out
from recto.config import Settings
from recto.config.factory import make_chat_model
from recto.errors import ModelFailed, SettingsError
from recto.lab.bootstrap import MARGIN, Equivalence, Interval
from recto.lab.commands._sessions import load_sessions
from recto.lab.commands._trial_page import trial_page
from recto.lab.commands.replay import PageFile, Size
from recto.lab.likelihood import ActionScorer, KeptScores, Score, make_scorer
from recto.lab.moments import Choice, evenly
from recto.lab.process_pool import in_processes
from recto.lab.question_sets import read_questions
from recto.lab.reader import ReaderResult, ask_reader, summarize_answers
from recto.lab.report import UNKNOWN, interval_text
from recto.lab.trial import ArmResult, TrialTask, TriedRun, score_moments, summarize_trial, try_run
from recto.lab.variants import MODES

_DEFAULT_WINDOWS = (8_000, 16_000, 32_000)
_ENTRIES_PER_PROCESS = 2_000
"""Entries to replay from which another process pays for its start."""


@dataclass(slots=True)
class TrialOutcome:
    """What a trial came to."""

    runs: list[TriedRun] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    """Prompts that the model did not score or answer, by reason."""
    answers: list[ReaderResult] = field(default_factory=list)


@click.command("trial")
@click.argument("sessions", nargs=-1)
@click.option(
    "--window", "windows", multiple=True, type=Size(), metavar="N", help="In a window of so many tokens; several times."
)
@click.option("--mode", "modes", multiple=True, type=click.Choice(MODES), help="In this mode; several times. [all]")
@click.option(
    "--moments",
    type=click.IntRange(1, 1000),
    default=4,
    show_default=True,
    metavar="N",
    help="Moments of each run and window.",
)
@click.option("--longest", type=Size(), metavar="N", help="Only histories of at most so many tokens.")
@click.option("--likelihood", is_flag=True, help="Score the recorded responses with the model of compress.model.")
@click.option(
    "--questions",
    type=click.Path(exists=True, path_type=Path),
    metavar="PATH",
    help="Ask the model of compress.model questions of LongMemEval (a file) or BEAM (a folder).",
)
@click.option(
    "--most",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    metavar="N",
    help="Conversations with questions, evenly spaced.",
)
@click.option(
    "--keep",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Keep scores as JSON lines, and do not compute them again.",
)
@click.option(
    "--margin",
    type=click.FloatRange(0, min_open=True),
    default=MARGIN,
    show_default=True,
    help="Nats per token that count as equivalent.",
)
@click.option("--model", metavar="NAME", shell_complete=complete_models, help="Counted as this model counts.")
@click.option("--jobs", type=click.IntRange(1, 256), metavar="N", help="In N processes. [default: one a core]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option(
    "--html",
    type=PageFile(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Write one page with plots that needs nothing else.",
)
@click.option("--with-names", is_flag=True, help="Name the runs on the page and in the JSON.")
@click.pass_obj
def trial_command(
    settings: Settings,
    /,
    sessions: tuple[str, ...],
    as_json: bool,
    html: Path | None,
    with_names: bool,
    **options: Any,  # noqa: ANN401  # the other options, by name
) -> None:
    """Compares prompts at moments of recorded runs with the whole history: Recto's modes, trimming, search.

    SESSIONS are files that 'recto import' takes, or sessions of your store. A moment is a model call whose history does
    not fit the window. Counted by rule: how much of what the recorded next action uses is in each prompt. With
    --likelihood a model is called, of the settings compress.model: how likely it finds the recorded response after each
    prompt, and whether that is equivalent to the whole history. With --questions that model answers questions from each
    prompt, and those whose answer is a value are scored by rule. Nothing is written into your store.

    \b
    Examples:
      recto lab trial runs/*.jsonl --window 8k --html trial.html
      recto lab trial session.jsonl --window 16k --likelihood --longest 32k --keep scores.jsonl --json
      recto lab trial --questions beam/1 --window 8k
    """
    if not sessions and options["questions"] is None:
        raise click.UsageError("name sessions to try, or --questions to ask")
    scorer = make_scorer(settings) if options["likelihood"] else None
    context = click.get_current_context()
    context.call_on_close(scorer.close if scorer else lambda: None)
    kept = KeptScores(options["keep"])
    choice = Choice(
        windows=options["windows"] or _DEFAULT_WINDOWS,
        modes=tuple(mode for mode in MODES if mode in options["modes"]) or MODES,
        count=options["moments"],
        longest=options["longest"],
    )
    tasks = [
        TrialTask(
            name=name,
            entries=entries,
            settings=settings,
            choice=choice,
            model=options["model"],
            with_prompts=scorer is not None,
        )
        for name, entries in load_sessions(settings, sessions)
    ]
    outcome = _tried(tasks, options["jobs"], scorer, kept)
    if options["questions"] is not None:
        _ask(settings, choice, options, outcome)
    results = summarize_trial(outcome.runs, outcome.scores, margin=options["margin"])
    report = trial_json(results, outcome, margin=options["margin"], model=scorer.name if scorer else None)
    if with_names:
        report["names"] = [run.name for run in outcome.runs]
    if as_json:
        click.echo(json.dumps(report))
    else:
        _show(results, outcome)
    if html is not None:
        names = [run.name for run in outcome.runs] if with_names else []
        scored_by = scorer.name if scorer else ""
        page = trial_page(results, outcome.answers, runs=outcome.runs, names=names, scored_by=scored_by)
        write_out([page.encode(errors="replace")], html)
        err.print(f"written to {safe(str(html))}", markup=False, highlight=False, soft_wrap=True)


def _tried(tasks: Sequence[TrialTask], jobs: int | None, scorer: ActionScorer | None, kept: KeptScores) -> TrialOutcome:
    """Takes all runs through all arms, and scores the moments of each as soon as they are known."""
    outcome = TrialOutcome()
    pay_off = sum(task.size for task in tasks) // _ENTRIES_PER_PROCESS
    processes = jobs or max(1, min(os.cpu_count() or 1, pay_off))

    def fail(error: ModelFailed) -> None:
        outcome.failures[error.detail] += 1

    with progress("replaying", sum(task.size for task in tasks)) as advance:
        for run in in_processes(try_run, tasks, processes, advance, size=lambda task: task.size):
            if scorer is not None:
                outcome.scores += score_moments(scorer, run.moments, kept, on_failure=fail)
            outcome.runs.append(TriedRun(name=run.name, support=run.support))
    return outcome


def _ask(settings: Settings, choice: Choice, options: dict[str, Any], outcome: TrialOutcome) -> None:
    """Asks the reader questions, from the prompts of all arms."""
    reader = make_chat_model(settings)
    if reader is None:
        raise SettingsError("compress.model.use", "--questions needs a model that answers")
    found = [conversation for conversation in read_questions(options["questions"]) if conversation.questions]
    chosen = [found[place] for place in evenly(range(len(found)), options["most"])]
    seconds = settings.compress.model.seconds
    try:
        with progress("asking", len(chosen)) as advance:
            answers, failures = ask_reader(
                reader, chosen, settings, choice, model=options["model"], seconds=seconds, advance=advance
            )
    finally:
        reader.close()
    outcome.answers = summarize_answers(answers)
    outcome.failures += failures


def trial_json(
    results: Sequence[ArmResult], outcome: TrialOutcome, *, margin: float, model: str | None
) -> dict[str, Any]:
    """Returns the result of a trial, with nothing of the runs in it."""
    return {
        "runs": len(outcome.runs),
        "model": model,
        "margin": margin,
        "arms": [_arm_json(result) for result in results],
        "answers": [
            {
                "window": result.window,
                "arm": result.arm,
                "right": result.right,
                "of": result.questions,
                "gain": None if result.gain is None else _interval_json(result.gain),
            }
            for result in outcome.answers
        ],
        "not_scored": dict(outcome.failures),
    }


def _arm_json(result: ArmResult) -> dict[str, Any]:
    support = result.support
    return {
        "window": result.window,
        "arm": result.arm,
        "moments": support.moments,
        "refused": support.refused,
        "tokens": support.tokens,
        "all": {"value": support.all, "part": support.found, "of": support.needed},
        "old": {"value": support.old, "part": support.old_found, "of": support.old_needed},
        "gain": None if result.gain is None else _interval_json(result.gain),
        "likelihood": None if result.likelihood is None else _likelihood_json(result.likelihood),
    }


def _interval_json(interval: Interval) -> dict[str, float | None]:
    ends = {"value": interval.value, "low": interval.low, "high": interval.high}
    return {name: round(end, 5) if abs(end) < float("inf") else None for name, end in ends.items()}


def _likelihood_json(judged: Equivalence) -> dict[str, Any]:
    return {
        **_interval_json(judged.interval),
        "pooled": round(judged.pooled, 5),
        "within": round(judged.within, 4),
        "moments": judged.moments,
        "runs": judged.runs,
        "verdict": judged.verdict,
    }


def _show(results: Sequence[ArmResult], outcome: TrialOutcome) -> None:
    for window in dict.fromkeys(result.window for result in outcome.answers):
        out.print(_answers_table(window, [result for result in outcome.answers if result.window == window]))
    if outcome.runs:
        _show_runs(results, outcome)
    elif not outcome.answers:
        out.print("Nothing was answered: every conversation fits these windows, or the model failed.")
    for reason, count in outcome.failures.most_common():
        prompts = "1 prompt was" if count == 1 else f"{count:,} prompts were"
        out.print(Text(f"{prompts} not scored: {one_line(reason, 200)}", "yellow"), soft_wrap=True)


def _answers_table(window: int, results: Sequence[ReaderResult]) -> Table:
    table = Table(
        Column("arm"),
        Column("right", justify="right"),
        Column("gain", justify="right"),
        title=f"answers in a window of {window:,}",
        title_justify="left",
        title_style="bold",
    )
    for result in results:
        gain = UNKNOWN if result.gain is None else interval_text(result.gain)
        table.add_row(result.arm, f"{result.share:.0%} of {result.questions:,}", gain)
    return table


def _show_runs(results: Sequence[ArmResult], outcome: TrialOutcome) -> None:
    runs = len(outcome.runs)
    out.print(Text(f"{runs:,} {'run' if runs == 1 else 'runs'}", "bold"))
    if not results:
        out.print("Every history fits these windows: name a smaller --window.")
    for window in dict.fromkeys(result.window for result in results):
        out.print(_table(window, [result for result in results if result.window == window]))
    out.print(
        "support: of the names, paths and numbers that the next action uses from the history, those in the prompt; "
        "old: of those that trimming to the window has lost; gain: support above trimming at equal tokens, with its "
        "95 % interval by run",
        soft_wrap=True,
    )
    if outcome.scores:
        out.print(
            "loss: nats per token of the recorded response above those after the whole history, with its 90 % "
            "interval by run; equivalent: the interval is within the margin",
            soft_wrap=True,
        )


def _table(window: int, results: Sequence[ArmResult]) -> Table:
    with_loss = any(result.likelihood for result in results)
    titles = ["tokens", "support", "old", "gain", *(["loss", "verdict"] if with_loss else [])]
    moments = max(result.support.moments for result in results)
    table = Table(
        Column("arm"),
        *(Column(title, justify="right") for title in titles),
        title=f"window of {window:,}, {moments:,} {'moment' if moments == 1 else 'moments'}",
        title_justify="left",
        title_style="bold",
    )
    for result in results:
        cells = [
            f"{result.support.tokens // max(result.support.moments, 1):,}",
            _share(result.support.all, result.support.needed),
            _share(result.support.old, result.support.old_needed),
            UNKNOWN if result.gain is None else interval_text(result.gain),
        ]
        if with_loss:
            judged = result.likelihood
            cells += [UNKNOWN, UNKNOWN] if judged is None else [interval_text(judged.interval), judged.verdict]
        table.add_row(result.arm, *cells)
    return table


def _share(value: float | None, of: int) -> str:
    return UNKNOWN if value is None else f"{value:.0%} of {of:,}"
