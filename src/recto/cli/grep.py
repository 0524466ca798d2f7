"""The command `grep`: searches the lines of stored messages."""

from __future__ import annotations

from contextlib import closing

import click
from rich.text import Text

from recto.cli._common import session_option
from recto.cli.console import format_time, out, print_json, safe
from recto.cli.sessions import session_to_read
from recto.config import Settings
from recto.config.factory import open_store
from recto.engine.transcript_search import MAX_CONTEXT, grep
from recto.engine.views.models import GrepMatch, GrepPage
from recto.text.line_pattern import LinePattern


@click.command("grep")
@click.argument("pattern")
@session_option()
@click.option("-E", "--regex", is_flag=True, help="The pattern is a regular expression.")
@click.option("--case", is_flag=True, help="Case matters.")
@click.option(
    "-C", "--context", default=0, type=click.IntRange(0, MAX_CONTEXT), metavar="N", help="N lines around each match."
)
@click.option("--from", "start", type=click.IntRange(1), metavar="SEQ", help="Search back from this entry.")
@click.option(
    "-n", "--most", default=50, show_default=True, type=click.IntRange(1, 1000), help="How many lines, nearly."
)
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
@click.pass_obj
def grep_command(  # noqa: PLR0913, PLR0917  # one parameter for each option
    settings: Settings,
    /,
    pattern: str,
    session: str | None,
    regex: bool,
    case: bool,
    context: int,
    start: int | None,
    most: int,
    as_json: bool,
) -> None:
    """Searches the lines of all messages of a session for a text, newest first.

    A regular expression knows no back-references and no look-around, so that no pattern can take long.

    \b
    Examples:
      recto grep "connection refused" -C 2
      recto grep -E "\\d+ (passed|failed)"
    """
    compiled = LinePattern(pattern, regex=regex, case=case)
    with closing(open_store(settings, create=False)) as store:
        key = session_to_read(store, settings, session)
        page = grep(store, key, compiled, start, context=context, limit=most)
    if as_json:
        print_json(page)
    else:
        _print_page(page)


def _print_page(page: GrepPage) -> None:
    for match in page.matches:
        _print_match(match)
    if not page.matches:
        out.print(f"No line matches in {page.searched:,} entries.")
    if page.next is not None:
        out.print(f"There is more to search: --from {page.next}")


def _print_match(match: GrepMatch) -> None:
    title = Text.assemble((safe(match.pointer), "cyan"), f"  {match.role}  {format_time(match.ts)[:16]}")
    out.print(title, soft_wrap=True)
    for line in match.lines:
        sign, style = (":", "") if line.matches else ("-", "dim")
        out.print(Text(f"{line.number:>7}{sign} {safe(line.text)}", style), soft_wrap=True)
    listed = sum(line.matches for line in match.lines)
    if match.count > listed:
        out.print(Text(f"        {match.count - listed:,} more lines match", "dim"))
