"""Commands that compact a prompt and show what was preserved: compact, facts, note, restore."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import click
from rich.table import Column, Table
from rich.text import Text

from recto.cli._common import session_option
from recto.cli._lazy_group import SpellingGroup
from recto.cli.completion import complete_models
from recto.cli.console import err, one_line, out, print_json, safe
from recto.cli.sessions import session_to_change, session_to_read
from recto.config import Settings
from recto.config.factory import open_session, open_store
from recto.context.window.report import Compression
from recto.context.window.state import NOTE_KINDS, NOTE_LEVELS, NoteKind, NoteLevel, render_notes
from recto.engine.report import compressions
from recto.engine.runs import last_model
from recto.engine.session import Session
from recto.engine.views.models import stored_event
from recto.tokens.model_registry import UnknownModelWarning
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import session_in, tenant_of

if TYPE_CHECKING:
    from recto.recall.indexer import Indexer

_model_option = click.option(
    "--model", metavar="NAME", shell_complete=complete_models, help="As this model would see it."
)
NOTHING_TO_COMPACT = (
    "Nothing to compact: the older messages that may be evicted are not worth a summary. "
    "Pinned and restored messages stay."
)
_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")


@contextmanager
def open_existing_session(
    settings: Settings, session: str | None, model: str | None = None, *, to_read: bool = False
) -> Iterator[Session]:
    """Opens an existing session as the named model sees it, else as the one that was used last.

    `to_read` is for commands that change nothing: where no session is named, they show the newest one.
    """
    with closing(open_store(settings, create=False)) as store:
        key = (session_to_read if to_read else session_to_change)(store, settings, session)
        with open_as_last_seen(settings, store, key, model) as opened:
            yield opened


@contextmanager
def open_as_last_seen(
    settings: Settings, store: TranscriptStore, key: str, model: str | None = None, indexer: Indexer | None = None
) -> Iterator[Session]:
    """Opens a session of an open store as the named model sees it, else as the one that was used last."""
    used_last = "" if model else last_model(store, key)
    seen_by = model or used_last or settings.model
    given = replace(settings, session=session_in(key), tenant=tenant_of(key), model=seen_by)
    with warnings.catch_warnings():
        if used_last:  # it is not named now: there is nothing to warn about
            warnings.simplefilter("ignore", UnknownModelWarning)
        with open_session(given, store, indexer) as opened:
            yield opened


@click.command("compact")
@click.argument("focus", required=False, default="")
@session_option()
@_model_option
@_json_option
@click.pass_obj
def compact_command(settings: Settings, focus: str, session: str | None, model: str | None, as_json: bool) -> None:
    """Makes the prompt of a session smaller now, and says what was kept.

    Evicts all but the newest messages. A summary replaces them, checked against them; FOCUS says what it should keep
    above all. Nothing is deleted: 'recto restore' brings all of it back.

    \b
    Examples:
      recto compact --model gpt-4o
      recto compact "the database migration" --session agent:default:main --model gpt-4o
    """
    with open_existing_session(settings, session, model) as opened:
        decisions = opened.compact(focus)
        results = [
            compression
            for compression in compressions(opened.window)
            if compression.seq in {entry.seq for entry in decisions}
        ]
        if as_json:
            for compression in results:
                print_json(compression)
        elif not results:
            out.print(NOTHING_TO_COMPACT, soft_wrap=True)
        else:
            for compression in results:
                print_compression(compression)
            state = opened.window.state
            for kept in (state.record, state.summary):
                if kept is not None and kept.text:
                    out.print(Text(safe(kept.text)), soft_wrap=True)


@click.command("facts")
@session_option()
@click.option("--all", "include_closed", is_flag=True, help="Also what is settled, answered or superseded.")
@_json_option
@click.pass_obj
def facts_command(settings: Settings, session: str | None, include_closed: bool, as_json: bool) -> None:
    """Lists what must not be lost: constraints, decisions, approvals, open errors, in the words they were said in.

    \b
    Examples:
      recto facts
      recto facts --all --json | jq -r .text
    """
    table = Table("kind", Column("entry", justify="right"), "who", "what", "")
    with open_existing_session(settings, session, to_read=True) as opened:
        for fact in opened.facts():
            if not (fact.open or include_closed):
                continue
            if as_json:
                print_json(fact)
            replaced = f"superseded by {fact.superseded_by}" if fact.superseded_by else "" if fact.open else "settled"
            table.add_row(fact.kind, str(fact.seq), fact.role, Text(one_line(fact.text, 100)), replaced)
    if not as_json:
        out.print(table if table.row_count else "Nothing was found that must not be lost.")


@click.group("note", cls=SpellingGroup)
def note_command() -> None:
    """Writes down and shows what an agent should not have to work out again.

    \b
    Examples:
      recto note add decisions "We use SQLite, because there is no server to run"
      recto note list
    """


@note_command.command("add")
@click.argument("kind", type=click.Choice(NOTE_KINDS))
@click.argument("text")
@click.option("--level", type=click.Choice(NOTE_LEVELS), default="normal", help="Higher ones are shown first.")
@click.option("--critical", is_flag=True, help="The same as --level critical.")
@session_option()
@_json_option
@click.pass_obj
def add_command(
    settings: Settings,
    kind: NoteKind,
    text: str,
    level: NoteLevel,
    critical: bool,
    session: str | None,
    as_json: bool,
) -> None:
    """Writes a note into a session.

    \b
    Examples:
      recto note add constraints "Never touch migrations/" --level critical
    """
    with open_existing_session(settings, session) as opened:
        entry = opened.note(kind, text, level=level, critical=critical)
        if as_json:
            click.echo(json.dumps({"seq": entry.seq, "kind": kind}))
        else:
            out.print(f"kept as entry {entry.seq}", markup=False)


@note_command.command("list")
@session_option()
@_json_option
@click.pass_obj
def list_command(settings: Settings, session: str | None, as_json: bool) -> None:
    """Shows the notes of a session, the most important first.

    \b
    Examples:
      recto note list
    """
    with open_existing_session(settings, session, to_read=True) as opened:
        notes = opened.notes
        if as_json:
            for note in notes:
                print_json(note)
        else:
            for line in render_notes(notes, sum(len(note.text) for note in notes)) or ["There are no notes."]:
                out.print(Text(safe(line)))


@click.command("restore")
@click.argument("decision", type=int)
@session_option()
@_json_option
@click.pass_obj
def restore_command(settings: Settings, decision: int, session: str | None, as_json: bool) -> None:
    """Undoes a decision: what was evicted is in the prompt again and stays, what shrank is whole again.

    \b
    Examples:
      recto context detail
      recto restore 57
    """
    with open_existing_session(settings, session) as opened:
        entry = opened.restore(decision)
        if as_json:
            print_json(stored_event(entry, f"Decision {decision} is undone.", str), decision=decision)
            return
        err.print(
            f"entry {decision} is undone (entry {entry.seq}); 'recto context list' shows the prompt", markup=False
        )


def print_compression(compression: Compression) -> None:
    """Prints how something was shortened."""
    fidelity = "" if compression.fidelity is None else f", fidelity {compression.fidelity:.2f}"
    out.print(
        f"entry {compression.seq}: {compression.kind} by {safe(compression.engine)}, "
        f"{compression.tokens_from:,} tokens to {compression.tokens_to:,} "
        f"({compression.ratio:.1f} times shorter){fidelity}",
        markup=False,
        soft_wrap=True,
    )
    for attempt in compression.attempts:
        out.print(f"  {safe(attempt)}", markup=False, soft_wrap=True)
    lost = ", ".join(
        f"{number:,} {kind}{'s' if number > 1 else ''}" for kind, number in compression.lost.items() if number
    )
    if lost:
        line = f"  not in the prompt any more: {lost}; the entry names where each is now"
        out.print(line, markup=False, soft_wrap=True)
