"""Commands that show what the model sees: context list, context detail."""

from __future__ import annotations

from collections.abc import Callable

import click
from rich.table import Column, Table
from rich.text import Text

from recto.cli.compact import open_existing_session, print_compression
from recto.cli.completion import complete_models, complete_sessions
from recto.cli.console import one_line, out, print_json, safe
from recto.config import Settings
from recto.context.window.report import Report, TokenHolder

ZONES = {"green": "green", "yellow": "yellow", "orange": "dark_orange", "red": "red"}


@click.group("context")
def context_command() -> None:
    """Shows what the model sees of a session, and what it does not.

    \b
    Examples:
      recto context list agent:default:main --model gpt-4o
      recto context detail agent:default:main --model gpt-4o
    """


@context_command.command("list")
@click.argument("session", required=False, shell_complete=complete_sessions)
@click.option("--model", metavar="NAME", shell_complete=complete_models, help="As this model would see it.")
@click.option("--json", "as_json", is_flag=True, help="The whole report as one JSON object.")
@click.pass_obj
def list_command(settings: Settings, session: str | None, model: str | None, as_json: bool) -> None:
    """Where the tokens of the prompt go: components, budgets, pressure, what has left.

    \b
    Examples:
      recto context list agent:default:main --model gpt-4o
      recto context list --json | jq .reading
    """
    _show(settings, session, model, as_json, detail=False)


@context_command.command("detail")
@click.argument("session", required=False, shell_complete=complete_sessions)
@click.option("--model", metavar="NAME", shell_complete=complete_models, help="As this model would see it.")
@click.option("--json", "as_json", is_flag=True, help="The whole report as one JSON object.")
@click.pass_obj
def detail_command(settings: Settings, session: str | None, model: str | None, as_json: bool) -> None:
    """The largest holders of the prompt, and the decisions that shaped it.

    \b
    Examples:
      recto context detail agent:default:main --model gpt-4o
    """
    _show(settings, session, model, as_json, detail=True)


def _show(settings: Settings, session: str | None, model: str | None, as_json: bool, *, detail: bool) -> None:
    with open_existing_session(settings, session, model) as opened:
        report = opened.report()
        if as_json:
            print_json(report)
        elif detail:
            print_detail(report, opened.window.messages.text_of)
        else:
            print_list(report)


def print_list(report: Report) -> None:
    """Prints where the tokens of a prompt go."""
    reading = report.reading
    out.print(
        Text.assemble(
            (f"{report.tokens:,}", "bold"),
            f" of {report.room:,} tokens ({reading.utilization:.0%}), ",
            (reading.zone, ZONES[reading.zone]),
            f", {report.messages:,} messages for {safe(report.model) or 'an unknown model'}",
        )
    )
    table = Table("component", *(Column(name, justify="right") for name in ("tokens", "share", "limit")), "")
    for usage in report.components:
        share = usage.used / max(report.window, 1)
        table.add_row(
            usage.component, f"{usage.used:,}", f"{share:.1%}", f"{usage.hard:,}", _bar(usage.used, usage.hard)
        )
    out.print(table)
    if report.left_messages:
        tokens = f", {report.left_tokens:,} tokens" if report.left_tokens else ""
        out.print(
            f"{report.left_messages:,} messages have left (entries {report.left_first} to {report.left_last}{tokens})"
        )
    if report.summary_tokens:
        out.print(f"A summary of {report.summary_tokens:,} tokens stands for what left")
    if report.notes:
        out.print(f"{report.notes:,} notes are kept" if report.notes > 1 else "1 note is kept")
    if report.recalled:
        out.print(f"{len(report.recalled)} messages came back for this turn ({report.recalled_tokens:,} tokens)")
    if reading.turns_until_red is not None:
        out.print(f"{reading.velocity:,.0f} tokens a turn; turns until red: {reading.turns_until_red}")


def print_detail(report: Report, text_of: Callable[[int], str]) -> None:
    """Prints the largest parts of a prompt, with the beginning of each, and the decisions that shaped it."""
    table = Table("what", Column("tokens", justify="right"), Column("share", justify="right"), "state", "text")
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
