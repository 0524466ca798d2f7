"""`recto audit`: what was done to sessions, why, and by whom."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing as closed
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Column, Table
from rich.text import Text

from recto.cli._common import open_for_reading, session_option
from recto.cli.console import format_time, one_line, out, progress, safe
from recto.cli.import_export import write_out
from recto.cli.sessions import session_to_read
from recto.config import Settings
from recto.config.factory import open_store
from recto.engine.erasure import ERASED
from recto.engine.erasure import ERASURE_SESSION as ERASURES
from recto.errors import InputError
from recto.transcript.audit import COLUMNS, AuditFilter, AuditLine, table_cells
from recto.transcript.entries import Head
from recto.transcript.session_keys import operator_key

if TYPE_CHECKING:
    from recto.transcript.protocols import TranscriptStore

_AGO = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DEFAULT_LINES = 50
"""Lines that are printed without --limit."""
_MAX_CELL = 1 << 30


class TimeOption(click.ParamType[int]):
    """A click type: a date, a date and time, or a duration before now; UTC without a time zone."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401
        """Returns microseconds since 1970."""
        if isinstance(value, int):
            return value
        try:
            if ago := _AGO.fullmatch(value):
                moment = datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
            else:
                moment = datetime.fromisoformat(value)
                moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return round(moment.timestamp() * 1_000_000)
        except (ValueError, OverflowError):
            self.fail(f"'{value}' is no time; one looks like 2026-11-15, 2026-11-15T08:30 or 7d", param, ctx)


@click.command("audit")
@session_option()
@click.option("--all", "all_sessions", is_flag=True, help="Every session of the tenant, one after the other.")
@click.option("--erased", is_flag=True, help="What was erased from the store on purpose, by whom and why.")
@click.option("--since", type=TimeOption(), metavar="TIME", help="From then on: 2026-11-15, 2026-11-15T08:30, or 7d.")
@click.option("--until", type=TimeOption(), metavar="TIME", help="Before then.")
@click.option("--kind", "kinds", multiple=True, metavar="NAME", help="This topic or event; may be given several times.")
@click.option("--policy", default="", metavar="NAME", help="What this policy decided.")
@click.option("--by", default="", metavar="NAME", help="What this person, model or rule asked for.")
@click.option("--surface", default="", metavar="NAME", help="What came in this way.")
@click.option("--newest/--oldest", default=None, help="The order. [default: newest first in tables]")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="How many of a session at most.")
@click.option("--past", type=int, metavar="SEQ", help="Go on behind this line of the page before.")
@click.option("--text", is_flag=True, help="With all that the entries say, texts of messages included.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, ended by the head of the chain.")
@click.option("--csv", "as_csv", is_flag=True, help="A table for spreadsheets, ended by the head of the chain.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write here.")
@click.option("--force", is_flag=True, help="Replace the output file if there is one.")
@click.option("--check", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Check an export.")
@click.pass_obj
def audit_command(
    settings: Settings,
    /,
    session: str | None,
    all_sessions: bool,
    erased: bool,
    check: Path | None,
    **options: Any,  # noqa: ANN401  # the options, by name
) -> None:
    """Tells what was done to sessions: when, why, by which policy, at whose word, at what cost, and whether it holds.

    Topics: decision, undo, pin, memory, continuity, recall, pressure, failure, session, note, other; and, only where it
    is named, bookkeeping.

    \b
    Examples:
      recto audit
      recto audit --session agent:default:main --kind decision --since 7d
      recto audit --all --csv -o audit.csv
      recto audit --all --json -o audit.jsonl
      recto audit --check audit.jsonl
    """
    if check is not None:
        with closed(open_store(settings, create=False)) as store:
            _check_export(store, check)
        return
    from recto.engine.audit import check_kinds  # noqa: PLC0415  # slow to import

    with open_for_reading(settings) as store:
        keys = [ERASURES] if erased else _keys(store, settings, session, all_sessions)
        filters = _audit_filter(options)
        if erased and (session is not None or all_sessions or settings.tenant):
            raise click.UsageError("--erased covers the whole store; leave --session, --all and the tenant out")
        check_kinds(filters.kinds, partial(_is_recorded, store, keys))
        if options["as_json"] and options["as_csv"]:
            raise click.UsageError("use either --json or --csv, not both")
        output = options["output"]
        if output is not None and output.exists() and not options["force"]:
            raise click.UsageError(f"'{output}' exists; replace it with --force")
        if not options["as_json"] and not options["as_csv"]:
            if output is not None:
                raise click.UsageError("choose the output format: --json or --csv")
            _show(store, keys, filters)
            return
        heads = [(key, store.head(key)) for key in keys]
        with progress("reading", sum(head.seq for _, head in heads)) as advance:
            rows = _rows(store, heads, filters, advance)
            write_out(_table(rows) if options["as_csv"] else _lines(rows), output)


def _audit_filter(options: Mapping[str, Any]) -> AuditFilter:
    for_people = not options["as_json"] and not options["as_csv"]
    newest = for_people if options["newest"] is None else options["newest"]
    return AuditFilter(
        since=options["since"],
        until=options["until"],
        kinds=tuple(options["kinds"]),
        policy=options["policy"],
        by=options["by"],
        surface=options["surface"],
        newest=newest,
        past=options["past"],
        limit=options["limit"] or (_DEFAULT_LINES if for_people else None),
        text=options["text"],
    )


def _is_recorded(store: TranscriptStore, keys: Sequence[str], kind: str) -> bool:
    from recto.engine.audit import audit  # noqa: PLC0415  # slow to import

    return any(True for key in keys for _ in audit(store, key, AuditFilter(kinds=(kind,), limit=1)))


def _keys(store: TranscriptStore, settings: Settings, session: str | None, all_sessions: bool) -> list[str]:
    from recto.engine.audit import tenant_sessions  # noqa: PLC0415  # slow to import

    key = operator_key(session or settings.session, settings.tenant)
    if all_sessions:
        if session is not None:
            raise click.UsageError("use either --session or --all, not both")
        return list(tenant_sessions(store, key))
    return [session_to_read(store, settings, session)]


def _rows(
    store: TranscriptStore, heads: Sequence[tuple[str, Head]], filters: AuditFilter, advance: Callable[[int], None]
) -> Iterator[dict[str, Any]]:
    """Yields the lines of each session, followed by the head they were read up to."""
    from recto.engine.audit import audit, make_closing  # noqa: PLC0415

    for key, head in heads:
        lines = 0
        for line in audit(store, key, filters, as_of=head.seq, advance=advance):
            lines += 1
            yield _row(line)
        yield make_closing(head, key, filters, lines).row()


def _row(line: AuditLine) -> dict[str, Any]:
    """Returns a line for JSON output, with a readable time."""
    return {**line.row(), "at": format_time(line.ts)}


def _lines(rows: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    return (json.dumps(row).encode() + b"\n" for row in rows)


def _table(rows: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    yield _csv(COLUMNS)
    for row in rows:
        yield _csv(table_cells(row))


def _csv(values: Sequence[str]) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow(values)
    return line.getvalue().encode("utf-8", "replace")


def _show(store: TranscriptStore, keys: Sequence[str], filters: AuditFilter) -> None:
    from recto.engine.audit import audit  # noqa: PLC0415

    for key in keys:
        table = Table(
            Column("entry", justify="right"),
            "when (UTC)",
            Column("what", overflow="fold"),
            Column("messages", justify="right"),
            Column("freed", justify="right"),
            "why",
            title=Text(safe(key), style="bold") if len(keys) > 1 else None,
        )
        lines = list(audit(store, key, filters))
        for line in lines:
            table.add_row(*_cells(line))
            if line.text is not None:
                table.add_row("", "", "", "", "", Text(one_line(line.text, 400), style="dim"))
        if lines:
            out.print(table)
        elif len(keys) == 1:
            out.print("No erasure found." if key == ERASURES else "Nothing of that kind was done to this session.")
        if filters.limit is not None and len(lines) == filters.limit:
            option = "--erased" if key == ERASURES else f"--session '{safe(key)}'"
            out.print(Text(f"There may be more: recto audit {option} --past {lines[-1].seq}"))


def _cells(line: AuditLine) -> tuple[str | Text, ...]:
    """Returns the cells of a line: what was done, and by whom."""
    named = " ".join(filter(None, (line.policy, f"by {line.by}" if line.by else "")))
    what = Text(safe(line.kind)).append(f"\n{safe(named)}" if named else "", "dim")
    if line.undone_by is not None:
        what.append(f"\nundone by entry {line.undone_by}", "yellow")
    why = line.reason or ", ".join(f"{name} {value}" for name, value in line.details.items())
    if line.kind == ERASED:
        why = f"{line.details.get('session')}, {line.details.get('entries')} entries: {why}"
    if line.picodollars:
        why = f"{why} (${line.picodollars / 10**12:.4f})"
    freed = "" if line.freed is None else f"{line.freed:,}"
    messages = f"{line.messages:,}" if line.messages else ""
    return f"{line.seq:,}", format_time(line.ts), what, messages, freed, Text(one_line(why, 300))


def _check_export(store: TranscriptStore, file: Path) -> None:
    """Compares an export with the transcript."""
    from recto.engine.audit import differences  # noqa: PLC0415

    differences_found = list(differences(store, lambda: _read(file), _same))
    for difference in differences_found:
        where = f"{difference.session}" + (f", entry {difference.seq}" if difference.seq else "")
        out.print(Text.assemble(("DIFFERS ", "red"), (safe(where), "bold"), ": ", safe(difference.says)))
    if differences_found:
        click.get_current_context().exit(1)
    out.print("The export is what the transcript says, and the chain holds.")


def _read(file: Path) -> Iterator[Mapping[str, Any]]:
    """Yields the rows of an export in either format."""
    csv.field_size_limit(_MAX_CELL)
    with file.open(encoding="utf-8", newline="") as stream:
        first_character = stream.read(1)
        stream.seek(0)
        try:
            if first_character != "{":
                yield from csv.DictReader(stream)
                return
            for line in stream:
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError
                yield row
        except (ValueError, csv.Error, RecursionError):
            raise InputError(f"'{file}' is not an export of 'recto audit', or it was cut or edited") from None


def _same(line: AuditLine, row: Mapping[str, Any]) -> bool:
    """Returns whether a row matches a line; fields that only a newer version writes are ignored."""
    expected = _row(line)
    if isinstance(row.get("seq"), str):
        return [row.get(column) for column in COLUMNS] == table_cells(expected)
    expected = json.loads(json.dumps(expected))
    return all(name in expected and expected[name] == value for name, value in row.items())
