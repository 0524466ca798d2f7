"""Commands of sessions: session ls, show, fork and rename; and verify."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Protocol

import click
from rich.table import Column, Table
from rich.text import Text

from recto.cli._common import open_for_reading, session_option
from recto.cli.completion import complete_sessions
from recto.cli.console import err, format_time, one_line, out, print_json, progress, safe
from recto.config import Settings
from recto.config.factory import SystemClock, open_store, session_sources
from recto.engine.fork import fork
from recto.engine.titles import rename_draft, titles_of
from recto.engine.verification import Verification, verify
from recto.engine.views.models import SessionListItem, full_entry, session_item
from recto.errors import InputError, StoreError, UnknownSession
from recto.formats import entry_text
from recto.transcript.entries import DEFAULT_SESSION, Entry, Head, session_key
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import is_internal, list_sessions, operator_key, tenant_of

_TITLE_WIDTH = 62
_STYLES = {"system": "magenta", "user": "bold cyan", "assistant": "green", "tool": "yellow", "event": "dim"}


@click.command("ls")
@click.option("--after", default="", metavar="KEY", help="Start after this session.")
@click.option("--limit", default=1000, type=click.IntRange(1), show_default=True, metavar="N", help="How many at most.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_obj
def ls_command(settings: Settings, after: str, limit: int, as_json: bool) -> None:
    """Lists the sessions of the store.

    \b
    Examples:
      recto session ls
      recto session ls --json | jq -r .session
    """
    with open_for_reading(settings) as store:
        summaries = list_sessions(store, after, limit + 1)
        titles = titles_of(store, [summary.session for summary in summaries[:limit]])
        sources = session_sources(settings, store)
        items = [
            session_item(summary, titles.get(summary.session, ""), sources.of(summary.session), str)
            for summary in summaries[:limit]
        ]
    if as_json:
        for item in items:
            print_json(item)
        return
    if not items:
        nothing = "Nothing is stored here yet. 'recto import FILE' takes a session in."
        out.print(f"No session comes after '{safe(after)}'." if after else nothing, markup=False)
        return
    print_sessions(items)
    if len(summaries) > limit:
        out.print(f"There are more: recto session ls --after '{safe(summaries[limit - 1].session)}'", markup=False)


@click.command("show")
@click.argument("session", required=False, shell_complete=complete_sessions)
@click.option("--last", default=20, type=click.IntRange(1), show_default=True, metavar="N", help="The last N entries.")
@click.option("--from", "start", type=click.IntRange(1), metavar="SEQ", help="From this entry on.")
@click.option("--to", "stop", type=click.IntRange(1), metavar="SEQ", help="Up to and including this entry.")
@click.option("--full", is_flag=True, help="Whole texts, not only their beginnings.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, with the text and the exact content.")
@click.pass_obj
def show_command(
    settings: Settings, session: str | None, last: int, start: int | None, stop: int | None, full: bool, as_json: bool
) -> None:
    """Shows the entries of a session.

    \b
    Examples:
      recto session show agent:default:main
      recto session show agent:default:main --from 100 --to 120 --full
      recto session show agent:default:main --json | jq -r .text
    """
    if start is not None and stop is not None and start > stop:
        raise click.UsageError("--from is greater than --to")
    with open_for_reading(settings) as store:
        key = session_to_read(store, settings, session)
        is_range = start is not None or stop is not None
        entries = store.read(key, start or 1, stop) if is_range else iter(store.tail(key, last))
        for entry in entries:
            if as_json:
                print_json(full_entry(entry, str))
            elif full:
                print_entry(entry, entry_text(entry))
            else:
                _print_line(entry)


@click.command("verify")
@session_option("Check this session. [default: all sessions]")
@click.option("--heads", type=click.Path(dir_okay=False, path_type=Path), help="Heads you kept: compare with them too.")
@click.option("--write-heads", type=click.Path(dir_okay=False, path_type=Path), help="Write the heads here, to keep.")
@click.option("--accept", is_flag=True, help="Accept the store as it is, after restoring a copy.")
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
@click.pass_obj
def verify_command(
    settings: Settings, session: str | None, heads: Path | None, write_heads: Path | None, accept: bool, as_json: bool
) -> None:
    """Re-derives every hash chain and names the first entry that is not what was stored.

    A chain shows any edit. That its end is missing, or that all of it was rewritten, is shown by heads kept
    elsewhere: Recto keeps them beside the store; keep a copy on another machine with --write-heads.

    \b
    Examples:
      recto verify
      recto verify --write-heads /backup/heads.json
      recto verify --heads /backup/heads.json
    """
    with closing(open_store(settings, create=False)) as store:
        key = None if session is None else session_key(session)
        total = sum(summary.entries for summary in store.sessions()) if key is None else store.head(key).seq
        if accept:
            store.accept_heads()
        with progress("verifying", total) as advance:
            result = verify(store, key, _read_heads(heads) if heads else None, advance)
        is_forward = key is None and _bring_heads_forward(store, result)
        if write_heads:
            _write_heads(store, write_heads)
    if as_json:
        rows = [
            {"session": finding.session, "seq": finding.seq, "problem": finding.problem} for finding in result.findings
        ]
        payload = {
            "ok": result.ok,
            "entries": result.entries,
            "findings": rows,
            "erased": result.erased,
            "behind": result.behind,
        }
        click.echo(json.dumps(payload))
    else:
        for finding in result.findings:
            where = f"{finding.session or 'the store'}" + (f", entry {finding.seq}" if finding.seq else "")
            out.print(Text.assemble(("BROKEN ", "red"), (safe(where), "bold"), ": ", safe(finding.problem)))
        verdict = "all as stored" if result.ok else f"{len(result.findings)} found"
        sessions = "session" if result.sessions == 1 else "sessions"
        records = " and Recto's own records" if result.records else ""
        out.print(f"{result.entries:,} entries in {result.sessions:,} {sessions}{records}: {verdict}")
        if is_forward:
            out.print(
                f"{len(result.behind):,} of the heads kept beside the store were older; they are up to date again"
            )
        if result.erased:
            note = f"{len(result.erased):,} of the heads are of sessions that were erased on purpose"
            out.print(f"{note}: see 'recto audit --erased', and write new heads")
    if not result.ok:
        click.get_current_context().exit(1)


def _bring_heads_forward(store: TranscriptStore, result: Verification) -> bool:
    """Bring the heads beside a file up to date where a crash lost writes of them and the chains are whole."""
    if not result.ok or not result.behind or not store.is_local:
        return False
    with suppress(StoreError, OSError):  # looking works where writing does not
        store.accept_heads()
        return True
    return False


def print_sessions(items: Sequence[SessionListItem], current: str = "") -> None:
    """Prints a table of sessions, each with its title, its key and its agent below it, and marks the current one."""
    table = Table(
        Column("session", overflow="fold"),
        Column("entries", justify="right", no_wrap=True),
        Column("last", no_wrap=True),
    )
    for item in items:
        name = Text(one_line(item.title, _TITLE_WIDTH) + "\n" if item.title else "")
        name.append(safe(item.session), style="dim" if item.title else "")
        if item.agent:
            name.append(f" {safe(item.agent)}", style="blue")
        name.append(" ◀" if item.session == current else "")
        table.add_row(name, f"{item.entries:,}", format_time(item.last_ts)[:16])
    out.print(table)


def resolve_session(store: TranscriptStore, name: str) -> str:
    """Returns the key of an existing session.

    Raises:
        UnknownSession: There is none; the message names the nearest one.
    """
    key = session_key(name)
    if is_internal(key) or not store.head(key).seq:
        stored = [summary.session for summary in list_sessions(store, limit=10_000)]
        nearest = [each for each in stored if key in each] or get_close_matches(key, stored, n=1)
        raise UnknownSession(key, nearest[0] if nearest else None)
    return key


def session_to_read(store: TranscriptStore, settings: Settings, name: str | None) -> str:
    """Returns the key of a session to read: the named one; without a name the default one or, if that is empty, the
    newest, with a note on standard error.

    Raises:
        UnknownSession: There is none.
    """
    if newest := newest_instead_of_default(store, settings, name):
        note = f"This is the newest session, '{newest}': none is named. 'recto session ls' lists the others."
        err.print(safe(note), markup=False, highlight=False, soft_wrap=True)
        return newest
    return resolve_session(store, operator_key(name or settings.session, settings.tenant))


def session_to_change(store: TranscriptStore, settings: Settings, name: str | None) -> str:
    """Returns the key of a session to change: the named one or the default one.

    Raises:
        UnknownSession: There is none. If none was named, the message names the newest one, which is never changed on a
            guess.
    """
    if newest := newest_instead_of_default(store, settings, name):
        raise UnknownSession(settings.session, newest=newest)
    return resolve_session(store, operator_key(name or settings.session, settings.tenant))


def newest_instead_of_default(store: TranscriptStore, settings: Settings, name: str | None) -> str:
    """Returns the tenant's newest session, if neither a name nor the settings say which one is meant and nothing is
    stored in the default one; else an empty text.
    """
    if name is not None or settings.session != DEFAULT_SESSION:
        return ""
    if store.head(operator_key(settings.session, settings.tenant)).seq:
        return ""
    own = [summary for summary in list_sessions(store) if tenant_of(summary.session) == settings.tenant]
    return max(own, key=lambda summary: summary.last_ts).session if own else ""


class PrintableEntry(Protocol):
    """The printed attributes of an entry, from a store or from a gateway."""

    @property
    def seq(self) -> int: ...  # noqa: D102
    @property
    def ts(self) -> int: ...  # noqa: D102
    @property
    def role(self) -> str: ...  # noqa: D102
    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def tokens(self) -> int: ...  # noqa: D102


def _title(entry: PrintableEntry) -> Text:
    label = safe(entry.role if entry.role != "event" else entry.kind)
    counted = f"{entry.tokens:,} tok" if entry.tokens else ""
    return Text.assemble(
        (f"{entry.seq:>7} ", "dim"), (f"{label:<10} ", _STYLES.get(entry.role, "")), (f"{counted:>11}  ", "dim")
    )


def _print_line(entry: Entry) -> None:
    title = _title(entry)
    width = max(out.width - title.cell_len, 20)
    out.print(title.append(one_line(entry_text(entry), width)), no_wrap=True, overflow="ellipsis")


def print_entry(entry: PrintableEntry, text: str) -> None:
    """Prints a full entry."""
    out.print(_title(entry).append(format_time(entry.ts), "dim"))
    out.print(Text(safe(text)), soft_wrap=True)


def _read_heads(path: Path) -> dict[str, Head]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return {session: Head(int(row["seq"]), bytes.fromhex(row["hash"])) for session, row in rows.items()}
    except OSError as error:
        raise click.UsageError(f"cannot read '{path}': {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"'{path}' is no file of heads as --write-heads writes it. Nothing was verified.") from None


def _write_heads(store: TranscriptStore, path: Path) -> None:
    heads = {}
    for summary in store.sessions():
        head = store.head(summary.session)
        heads[summary.session] = {"seq": head.seq, "hash": head.hash.hex()}
    path.write_text(json.dumps(heads, indent=1) + "\n", encoding="utf-8")


@click.command("fork")
@click.argument("source", shell_complete=complete_sessions)
@click.argument("target")
@click.option("--at", type=click.IntRange(1), metavar="N", help="Copy up to entry N. [default: all of it]")
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
@click.pass_obj
def fork_command(settings: Settings, source: str, target: str, at: int | None, as_json: bool) -> None:
    """Begins a session as a copy of another, to try something else from there.

    Both record where they parted, and neither is changed by what happens in the other. A fork that was cut off goes on
    where it ended when it is asked for again.

    \b
    Examples:
      recto session fork agent:default:main agent:default:other-way
      recto session fork agent:default:main agent:default:before --at 40
    """
    with closing(open_store(settings, create=False)) as store:
        key = resolve_session(store, operator_key(source, settings.tenant))
        copy = operator_key(target, settings.tenant) if settings.tenant else target
        with progress(f"copying {key}", at or store.head(key).seq) as advance:
            entry = fork(store, key, copy, clock=SystemClock(), at=at, advance=advance)
    if as_json:
        click.echo(json.dumps({"session": copy, "source": key, "entries": entry.seq - 1}))
    else:
        out.print(f"{safe(copy)}: {entry.seq - 1:,} entries as in {safe(key)}", markup=False, soft_wrap=True)


@click.command("rename")
@click.argument("session", shell_complete=complete_sessions)
@click.argument("title")
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
@click.pass_obj
def rename_command(settings: Settings, session: str, title: str, as_json: bool) -> None:
    """Gives a session a title, of at most 120 characters. Its key stays.

    The title is stored as an event; earlier titles stay in the transcript.

    \b
    Examples:
      recto session rename agent:default:main "Login bug"
    """
    with closing(open_store(settings, create=False)) as store:
        key = resolve_session(store, operator_key(session, settings.tenant))
        [entry] = store.append(key, [rename_draft(SystemClock(), title, "cli")])
    if as_json:
        click.echo(json.dumps({"session": key, "title": title.strip(), "seq": entry.seq}))
    else:
        out.print(f"{safe(key)}: {safe(title.strip())}", markup=False, soft_wrap=True)
