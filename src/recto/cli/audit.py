"""The command that tells what was done to sessions, why, and at whose word: audit."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing as closed
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Column, Table
from rich.text import Text

from recto.cli._common import open_to_look
from recto.cli.completion import sessions
from recto.cli.console import one_line, out, progress, safe, when
from recto.cli.import_export import write_out
from recto.cli.sessions import known_session
from recto.config import Settings
from recto.config.factory import open_store
from recto.engine.erasure import ERASED
from recto.engine.erasure import ERASURE_SESSION as ERASURES
from recto.errors import InputError
from recto.transcript.audit import COLUMNS, AuditFilter, AuditLine, table_cells
from recto.transcript.entries import Head
from recto.transcript.tenancy import operator_key

if TYPE_CHECKING:
    from recto.transcript.protocols import TranscriptStore

_AGO = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_USUAL = 50
"""Lines that a person is shown where no number is given."""
_CELL_MOST = 1 << 30


class Moment(click.ParamType[int]):
    """A time: a date, a date and time, or how long ago. In UTC where no zone is given."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401
        """Microseconds since 1970."""
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
@click.argument("session", required=False, shell_complete=sessions)
@click.option("--all", "every", is_flag=True, help="Every session of the tenant, one after the other.")
@click.option("--erased", is_flag=True, help="What was erased from the store on purpose, by whom and why.")
@click.option("--since", type=Moment(), metavar="TIME", help="From then on: 2026-11-15, 2026-11-15T08:30, or 7d.")
@click.option("--until", type=Moment(), metavar="TIME", help="Before then.")
@click.option("--kind", "kinds", multiple=True, metavar="NAME", help="This topic or event; may be given several times.")
@click.option("--policy", default="", metavar="NAME", help="What this policy decided.")
@click.option("--by", default="", metavar="NAME", help="What this person, model or rule asked for.")
@click.option("--surface", default="", metavar="NAME", help="What came in this way.")
@click.option("--newest/--oldest", default=None, help="Which come first. [default: for people the newest]")
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
    every: bool,
    erased: bool,
    check: Path | None,
    **given: Any,  # noqa: ANN401  # the options, by name
) -> None:
    """Tells what was done to sessions: when, why, by which policy, at whose word, at what cost, and whether it holds.

    Topics: decision, undo, pin, memory, continuity, recall, pressure, failure, session, note, other; and, only where it
    is named, bookkeeping.

    \b
    Examples:
      recto audit
      recto audit agent:default:main --kind decision --since 7d
      recto audit --all --csv -o audit.csv
      recto audit --all --json -o audit.jsonl
      recto audit --check audit.jsonl
    """
    if check is not None:
        with closed(open_store(settings, create=False)) as store:
            _checked(store, check)
        return
    with open_to_look(settings) as store:
        keys = [ERASURES] if erased else _keys(store, settings, session, every)
        asked = _asked(given)
        if erased and (session is not None or every or settings.tenant):
            raise click.UsageError("--erased is about the whole store: no session, --all or tenant beside it")
        if given["as_json"] and given["as_csv"]:
            raise click.UsageError("either --json or --csv")
        output = given["output"]
        if output is not None and output.exists() and not given["force"]:
            raise click.UsageError(f"'{output}' exists; replace it with --force")
        if not given["as_json"] and not given["as_csv"]:
            if output is not None:
                raise click.UsageError("say in which form to write it: --json or --csv")
            _show(store, keys, asked)
            return
        heads = [(key, store.head(key)) for key in keys]
        with progress("reading", sum(head.seq for _, head in heads)) as advance:
            rows = _rows(store, heads, asked, advance)
            write_out(_table(rows) if given["as_csv"] else _lines(rows), output)


def _asked(given: Mapping[str, Any]) -> AuditFilter:
    people = not given["as_json"] and not given["as_csv"]
    newest = people if given["newest"] is None else given["newest"]
    return AuditFilter(
        since=given["since"],
        until=given["until"],
        kinds=tuple(given["kinds"]),
        policy=given["policy"],
        by=given["by"],
        surface=given["surface"],
        newest=newest,
        past=given["past"],
        limit=given["limit"] or (_USUAL if people else None),
        text=given["text"],
    )


def _keys(store: TranscriptStore, settings: Settings, session: str | None, every: bool) -> list[str]:
    from recto.engine.audit import tenant_sessions  # noqa: PLC0415  # it knows all of memory's events

    key = operator_key(session or settings.session, settings.tenant)
    if every:
        if session is not None:
            raise click.UsageError("either a session or --all")
        return list(tenant_sessions(store, key))
    return [known_session(store, key)]


def _rows(
    store: TranscriptStore, heads: Sequence[tuple[str, Head]], asked: AuditFilter, advance: Callable[[int], None]
) -> Iterator[dict[str, Any]]:
    """The lines of each session, and after them the head they were read up to."""
    from recto.engine.audit import audit, make_closing  # noqa: PLC0415

    for key, head in heads:
        lines = 0
        for line in audit(store, key, asked, as_of=head.seq, advance=advance):
            lines += 1
            yield _row(line)
        yield make_closing(head, key, asked, lines).row()


def _row(line: AuditLine) -> dict[str, Any]:
    """A line as programs read it, with a time that people can read too."""
    return {**line.row(), "at": when(line.ts)}


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


def _show(store: TranscriptStore, keys: Sequence[str], asked: AuditFilter) -> None:
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
        lines = list(audit(store, key, asked))
        for line in lines:
            table.add_row(*_cells(line))
            if line.text is not None:
                table.add_row("", "", "", "", "", Text(one_line(line.text, 400), style="dim"))
        if lines:
            out.print(table)
        elif len(keys) == 1:
            out.print("Nothing of that kind was done to this session.")
        if asked.limit is not None and len(lines) == asked.limit:
            out.print(Text(f"There may be more: recto audit '{safe(key)}' --past {lines[-1].seq}"))


def _cells(line: AuditLine) -> tuple[str | Text, ...]:
    """One line as people read it: what it did, and by whom."""
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
    return f"{line.seq:,}", when(line.ts), what, messages, freed, Text(one_line(why, 300))


def _checked(store: TranscriptStore, file: Path) -> None:
    """Holds an export against the transcript."""
    from recto.engine.audit import differences  # noqa: PLC0415

    found = list(differences(store, lambda: _read(file), _same))
    for one in found:
        where = f"{one.session}" + (f", entry {one.seq}" if one.seq else "")
        out.print(Text.assemble(("DIFFERS ", "red"), (safe(where), "bold"), ": ", safe(one.says)))
    if found:
        click.get_current_context().exit(1)
    out.print("The export is what the transcript says, and the chain holds.")


def _read(file: Path) -> Iterator[Mapping[str, Any]]:
    """The rows of an export, whichever form it has."""
    csv.field_size_limit(_CELL_MOST)
    with file.open(encoding="utf-8", newline="") as stream:
        begins = stream.read(1)
        stream.seek(0)
        try:
            if begins != "{":
                yield from csv.DictReader(stream)
                return
            for line in stream:
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError
                yield row
        except (ValueError, csv.Error, RecursionError):
            raise InputError(f"'{file}' is no export of 'recto audit', or it was cut or edited") from None


def _same(line: AuditLine, row: Mapping[str, Any]) -> bool:
    """Whether a row says what the line does; what a newer version would tell beside it does not count."""
    told = _row(line)
    if isinstance(row.get("seq"), str):
        return [row.get(column) for column in COLUMNS] == table_cells(told)
    told = json.loads(json.dumps(told))
    return all(name in told and told[name] == value for name, value in row.items())
