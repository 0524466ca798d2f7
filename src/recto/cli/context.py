"""Commands that show what the model sees: context list, context detail."""

from __future__ import annotations

from collections.abc import Callable

import click
from rich.table import Column, Table
from rich.text import Text

from recto.cli._common import session_option
from recto.cli._lazy_group import SpellingGroup
from recto.cli.compact import open_existing_session, print_compression
from recto.cli.completion import complete_models
from recto.cli.console import err, format_time, one_line, out, print_json, safe
from recto.config import Settings
from recto.context.window.budget import PressureReading
from recto.context.window.report import PIECES, PieceKind, PromptPiece, PromptRun, ReliefCandidates, Report, TokenHolder
from recto.continuity.checkpoints.checkpoint import Checkpoint

_MAX_RANGES = 5
"""Ranges of entries that are printed."""
ZONES = {"green": "green", "yellow": "yellow", "orange": "dark_orange", "red": "red"}


_run_option = click.option(
    "--run", metavar="SEQ", type=click.IntRange(1), help="The prompt that this entry answered. [default: the last one]"
)


@click.group("context", cls=SpellingGroup)
def context_command() -> None:
    """Shows what the model sees of a session, and what it does not.

    \b
    Examples:
      recto context list --session agent:default:main --model gpt-4o
      recto context detail --session agent:default:main --model gpt-4o
    """


@context_command.command("list")
@session_option()
@click.option("--model", metavar="NAME", shell_complete=complete_models, help="As this model would see it.")
@_run_option
@click.option("--json", "as_json", is_flag=True, help="The whole report as one JSON object.")
@click.pass_obj
def list_command(settings: Settings, session: str | None, model: str | None, run: int | None, as_json: bool) -> None:
    """Where the tokens of the prompt go: what was sent last, budgets, pressure, what was evicted.

    \b
    Examples:
      recto context list --session agent:default:main --model gpt-4o
      recto context list --json | jq .reading
    """
    _show(settings, session, model, run, as_json, detail=False)


@context_command.command("detail")
@session_option()
@click.option("--model", metavar="NAME", shell_complete=complete_models, help="As this model would see it.")
@_run_option
@click.option("--json", "as_json", is_flag=True, help="The whole report as one JSON object.")
@click.pass_obj
def detail_command(settings: Settings, session: str | None, model: str | None, run: int | None, as_json: bool) -> None:
    """Every piece of the last prompt as it was sent, the largest messages, and the decisions that shaped it.

    \b
    Examples:
      recto context detail --session agent:default:main --model gpt-4o
      recto context detail --run 42
    """
    _show(settings, session, model, run, as_json, detail=True)


def _show(
    settings: Settings, session: str | None, model: str | None, run: int | None, as_json: bool, *, detail: bool
) -> None:
    with open_existing_session(settings, session, model, to_read=True) as opened:
        report = opened.report(run=run)
        if as_json:
            print_json(report)
        elif detail:
            print_detail(report, opened.window.messages.text_of)
        else:
            print_list(report)
            print_waiting(opened.checkpoints.waiting())
        if not report.model and not as_json:
            window = f"{opened.window.budget.window:,}"
            hint = f"no model is named, so its window is taken to be {window} tokens; use --model, or set 'model'"
            err.print(hint, highlight=False, soft_wrap=True)


def print_waiting(checkpoint: Checkpoint | None) -> None:
    """Prints that earlier work waits to be taken up."""
    if checkpoint is not None:
        out.print(f"Checkpoint {checkpoint.version} waits (up to entry {checkpoint.last}); 'recto resume' shows it")


def print_reading(reading: PressureReading, model: str) -> None:
    """Prints how full the prompt of a session is now."""
    out.print(
        Text.assemble(
            (f"{reading.tokens:,}", "bold"),
            f" of {reading.room:,} tokens ({reading.utilization:.0%}), ",
            (reading.zone, ZONES[reading.zone]),
            f", turn {reading.turn:,}, {safe(model) or 'an unknown model'}",
        )
    )


def print_run(run: PromptRun, *, by_kind: bool) -> None:
    """Prints what a prompt was made of when it was sent: the sum of each kind of piece, or every piece."""
    when = format_time(run.ts)
    earlier = f"; the run before it is entry {run.previous}" if run.previous else ""
    out.print(f"Run {run.seq} ({when}): {run.tokens:,} tokens were sent, {run.reserve:,} kept for the answer{earlier}")
    if not run.pieces:
        out.print("What it was made of was not stored.")
        return
    numbers = [Column(name, justify="right", no_wrap=True) for name in ("tokens", "share")]
    table = Table("piece", "name", *numbers, "")
    if by_kind:
        pieces: dict[PieceKind, tuple[int, int]] = {}
        for piece in run.pieces:
            tokens, count = pieces.get(piece.kind, (0, 0))
            pieces[piece.kind] = tokens + piece.tokens, count + 1
        rows = [(PIECES[kind], f"{count:,}", tokens, "") for kind, (tokens, count) in pieces.items()]
        rows.sort(key=lambda row: -row[2])
    else:
        rows = [(PIECES[piece.kind], piece.name, piece.tokens, _cut(piece)) for piece in run.pieces]
    for kind, name, tokens, note in rows:
        table.add_row(kind, Text(safe(name)), f"{tokens:,}", f"{tokens / max(run.tokens, 1):.1%}", note)
    out.print(table)


def _cut(piece: PromptPiece) -> str:
    return f"cut from {piece.raw:,}" if piece.raw is not None and piece.raw > piece.tokens else ""


def print_list(report: Report) -> None:
    """Prints where the tokens of a prompt go."""
    reading = report.reading
    print_reading(reading, report.model)
    if report.run is not None:
        print_run(report.run, by_kind=True)
    numbers = [Column(name, justify="right", no_wrap=True) for name in ("tokens", "share", "limit")]
    table = Table(
        Column("component", no_wrap=True), *numbers, Column(overflow="crop")
    )  # a narrow terminal cuts the bar
    for usage in report.components:
        share = usage.used / max(report.window, 1)
        table.add_row(
            usage.component, f"{usage.used:,}", f"{share:.1%}", f"{usage.hard:,}", _bar(usage.used, usage.hard)
        )
    out.print(table)
    if report.left_messages:
        tokens = f", {report.left_tokens:,} tokens" if report.left_tokens else ""
        out.print(
            f"{report.left_messages:,} messages evicted (entries {report.left_first} to {report.left_last}{tokens})"
        )
    if report.tools_left_out:
        out.print(f"Tools left out: {report.tools_left_out:,}, {report.tools_left_out_tokens:,} tokens")
    if report.summary_tokens:
        out.print(f"A summary of {report.summary_tokens:,} tokens replaces evicted messages")
    if report.notes:
        out.print(f"{report.notes:,} notes are kept" if report.notes > 1 else "1 note is kept")
    if report.recalled:
        out.print(f"{len(report.recalled)} messages came back for this turn ({report.recalled_tokens:,} tokens)")
    if reading.turns_until_red is not None:
        out.print(f"{reading.velocity:,.0f} tokens a turn; turns until red: {reading.turns_until_red}")
    for candidates in report.candidates:
        out.print(f"Next, by {candidates.policy}: {_entries(candidates)} ({candidates.frees:,} tokens)")


def _entries(candidates: ReliefCandidates) -> str:
    """Which messages the next relief would take, the first few ranges of them."""
    ranges = [str(first) if first == last else f"{first}-{last}" for first, last in candidates.ranges]
    more = f" and {len(ranges) - _MAX_RANGES} more" if len(ranges) > _MAX_RANGES else ""
    return f"{candidates.action} {candidates.messages:,} messages, entries {', '.join(ranges[:_MAX_RANGES])}{more}"


def print_detail(report: Report, text_of: Callable[[int], str]) -> None:
    """Prints every piece of the last prompt, the largest parts of the next, and the decisions that shaped it."""
    if report.run is not None:
        print_run(report.run, by_kind=False)
    numbers = [Column(name, justify="right", no_wrap=True) for name in ("tokens", "share")]
    table = Table(Column("what", no_wrap=True), *numbers, "state", "text")
    for holder in report.largest:
        table.add_row(*_row(holder, text_of))
    out.print(table)
    for decision in report.decisions[:10]:
        undone = " (undone)" if decision.undone else ""
        out.print(
            Text(f"entry {decision.seq}: {decision.kind}{undone}, {decision.frees:,} tokens: {safe(decision.reason)}")
        )
    for compression in report.compressions[:10]:
        print_compression(compression)
    for hit in report.recalled:
        out.print(Text(f"came back: {safe(hit.pointer)} (chance {hit.chance:.2f})"))
    for omitted in report.omitted:
        out.print(Text(f"not in the prompt: {safe(omitted)}"))


def _row(holder: TokenHolder, text_of: Callable[[int], str]) -> tuple[str | Text, ...]:
    what = holder.what if holder.seq is None else f"{holder.seq} {holder.role}"
    text = "" if holder.seq is None else one_line(text_of(holder.seq), 60)
    return what, f"{holder.tokens:,}", f"{holder.share:.1%}", holder.condition, Text(text)


def _bar(used: int, limit: int) -> Text:
    filled = min(round(20 * used / max(limit, 1)), 20)
    style = "red" if used > limit else "yellow" if used > 0.8 * limit else "green"
    return Text("█" * filled, style=style).append("░" * (20 - filled), "dim")
