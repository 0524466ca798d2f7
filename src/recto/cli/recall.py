"""Commands that find and read what was said: recall, read, index."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

import click
from rich.text import Text

from recto.cli.completion import sessions
from recto.cli.console import one_line, out, print_json, progress, safe, when
from recto.cli.sessions import known_session, print_whole
from recto.config import Settings
from recto.config.factory import SystemClock, make_indexer, make_recall, open_session, open_store
from recto.engine.views.models import full_entry, recall_result
from recto.errors import EmbedderFailed, InputError, SettingsError
from recto.formats.entry_text import entry_text, list_sessions
from recto.recall.chunking import passages
from recto.recall.index.rows import gaps
from recto.recall.protocols import Lexicon
from recto.recall.types import Hit, Query, SearchResult
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import Scope, parse_pointer, reach_of, session_in, tenant_of
from recto.transcript.tenancy import operator_sees, tenant_key

if TYPE_CHECKING:
    from recto.recall.indexer import Indexer

_VECTOR_SECONDS = 3.0
"""How long a question waits for vectors that are missing; the rest is found by its words."""
_STEP = 256
"""Entries between two moves of the bar."""
_PIECES = 200
"""Pieces of a long text in which the best line is looked for."""
_INDENT = 6
_WIDEST = 160
_IN_SCOPE: dict[Scope, str] = {"session": "this session", "agent": "this agent", "tenant": "this tenant"}


@click.command("recall")
@click.argument("query")
@click.option(
    "--session", metavar="KEY", shell_complete=sessions, help="Search this session. [default: the one in the settings]"
)
@click.option("--scope", type=click.Choice(["session", "agent", "tenant"]), help="How far to search.")
@click.option("-n", "--most", default=10, show_default=True, type=click.IntRange(1, 100), help="How many hits at most.")
@click.option("--explain", is_flag=True, help="What each score is made of, and what would come back by itself.")
@click.option("--json", "as_json", is_flag=True, help="The whole answer as one JSON object.")
@click.pass_obj
def recall_command(
    settings: Settings, query: str, session: str | None, scope: Scope | None, most: int, explain: bool, as_json: bool
) -> None:
    """Searches everything that was said, in the prompt or not.

    \b
    Examples:
      recto recall "which database did we choose"
      recto recall "deadline last Tuesday" --scope agent --explain
      recto recall "parse_header" --json | jq -r '.hits[].pointer'
    """
    if not settings.recall.enabled:
        raise SettingsError("recall.enabled", "recall is switched off, so nothing is indexed and nothing can be found")
    with closing(open_store(settings, create=False)) as store:
        key = _known(store, settings, session or settings.session)
        with closing(make_indexer(settings, store)) as indexer:
            indexer.with_repair(lambda: _take_words(indexer, key))
            trouble = _take_vectors(indexer, key, patience=settings.recall.index_seconds)
            own = replace(settings, session=session_in(key), tenant=tenant_of(key))
            shown = open_session(own, store, indexer).window.state.messages.keys()
            asked = Query(text=query, now=SystemClock().now())
            found = make_recall(own, store, key, indexer).search(asked, limit=most, scope=scope, shown=shown)
            notes = [*([trouble] if trouble else []), *_unindexed(indexer, key, found.scope), *found.notes]
            found = replace(found, notes=tuple(dict.fromkeys(notes)))
            if as_json:
                result = recall_result(found, max_text=None, session_name=str)
                print_json(result, threshold=settings.recall.threshold)
            else:
                print_found(found, settings.recall.threshold, indexer.lexicon, explain=explain)


@click.command("read")
@click.argument("pointer")
@click.option("--around", default=0, type=click.IntRange(0), metavar="N", help="N entries before and after it too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, with the text and the exact content.")
@click.pass_obj
def read_command(settings: Settings, pointer: str, around: int, as_json: bool) -> None:
    """Reads what a pointer leads to, whole.

    \b
    Examples:
      recto read recto://agent:default:main/42
      recto read recto://agent:default:main/42 --around 2
    """
    key, seq = parse_pointer(pointer)
    entries = []
    with closing(open_store(settings, create=False)) as store:
        if operator_sees(key, settings.tenant):
            entries = list(store.read(key, max(seq - around, 1), seq + around))
    if not any(entry.seq == seq for entry in entries):
        raise InputError(f"there is nothing at '{pointer:.300}'")
    for entry in entries:
        if as_json:
            print_json(full_entry(entry, str))
        else:
            print_whole(entry, entry_text(entry))


@click.command("index")
@click.argument("sessions", nargs=-1, shell_complete=sessions)
@click.option("--rebuild", is_flag=True, help="Forget what is indexed and begin anew.")
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
@click.pass_obj
def index_command(settings: Settings, sessions: tuple[str, ...], rebuild: bool, as_json: bool) -> None:
    """Takes everything that is stored into the recall index, or what is missing there.

    \b
    Examples:
      recto index
      recto index agent:default:main --rebuild
    """
    with closing(open_store(settings, create=False)) as store:
        keys = [_known(store, settings, name) for name in sessions]
        keys = keys or [one.session for one in list_sessions(store) if operator_sees(one.session, settings.tenant)]
        with closing(make_indexer(settings, store)) as indexer:
            for key in keys if rebuild else ():
                indexer.index.forget(key)
            trouble = _take_in(indexer, keys)
            total = sum(store.head(key).seq for key in keys)
            bare = sum(indexer.backlog(key)[1] for key in keys)
            if as_json:
                click.echo(json.dumps({"sessions": len(keys), "entries": total, "without_vectors": bare}))
            else:
                out.print(f"{_counted(total, 'entry', 'entries')} of {_counted(len(keys), 'session')} in the index")
            if bare and not as_json:
                out.print(f"{_counted(bare, 'entry', 'entries')} without vectors, found by words alone")
        if trouble is not None:
            raise trouble


def _known(store: TranscriptStore, settings: Settings, name: str) -> str:
    """The stored key of a session that exists. Without a tenant it may be named as it is stored, by whoever may."""
    return known_session(store, tenant_key(name, settings.tenant))


def _take_in(indexer: Indexer, keys: Sequence[str]) -> EmbedderFailed | None:
    """Brings the index of sessions up to date, with a bar for people who wait. An embedder that fails keeps no words
    out: they come first. What it said is given back."""
    behind = {key: sum(indexer.backlog(key)) for key in keys}
    trouble: EmbedderFailed | None = None
    with progress("indexing", sum(behind.values())) as advance:
        for key in (key for key, missing in behind.items() if missing):
            try:
                indexer.catch_up(key, advance=advance)
            except EmbedderFailed as error:
                trouble = error
    return trouble


def _take_words(indexer: Indexer, key: str) -> None:
    """All the words of a session, however long that takes, with a bar for people who wait."""
    indexer.discard_foreign_rows(key)
    missing = gaps(indexer.words.covered(key), 1, indexer.store.head(key).seq)
    with progress("indexing", sum(last - first + 1 for first, last in missing)) as advance:
        for first, last in missing:
            for start in range(first, last + 1, _STEP):
                stop = min(start + _STEP - 1, last)
                indexer.index_words(key, stop, inf)
                advance(stop - start + 1)


def _take_vectors(indexer: Indexer, key: str, *, patience: float) -> str:
    """Vectors that are missing, of the newest messages first, for a few seconds. What went wrong, if anything."""
    if not indexer.backlog(key)[1] or indexer.embedder is None:
        return ""
    enough = monotonic() + _VECTOR_SECONDS
    try:
        covered = indexer.vector_index(indexer.embedder).covered(key)
    except EmbedderFailed as error:
        return str(error)
    for first, last in reversed(gaps(covered, 1, indexer.store.head(key).seq)):
        for seq in range(last, first - 1, -1):
            if monotonic() >= enough:
                return ""
            confirmed = indexer.confirm(key, [seq], patience)
            if not confirmed.complete:
                return confirmed.reason
    return ""


def _unindexed(indexer: Indexer, key: str, scope: Scope) -> list[str]:
    """That other sessions of the scope are not in the index, where that is so: they are not searched whole."""
    if scope == "session":
        return []
    reach = reach_of(key, scope)
    others = [one.session for one in indexer.store.sessions() if one.session != key and reach.contains(one.session)]
    count = sum(indexer.backlog(other)[0] > 0 for other in others)
    return [f"not all of {_counted(count, 'other session')} is indexed; 'recto index' takes it in"] if count else []


def print_found(found: SearchResult, threshold: float | None, lexicon: Lexicon, *, explain: bool = False) -> None:
    """What was found, best first. `threshold` is the chance that does to come back by itself, where it is known."""
    wanted = lexicon.terms(found.query).keys()

    def matters(piece: str) -> float:
        return float(len(wanted & lexicon.terms(piece).keys()))

    width = min(out.width, _WIDEST) - _INDENT
    for hit in found.hits:
        out.print(_title(hit, threshold), soft_wrap=True)
        out.print(Text(" " * _INDENT + _line_of(hit.text, matters, width)), soft_wrap=True)
        if explain:
            out.print(Text(" " * _INDENT + _reasons(hit), "dim"), soft_wrap=True)
    if not found.hits:
        out.print("Nothing like it was said.")
    for note in found.notes:
        out.print(Text(f"note: {safe(note)}", "yellow"), soft_wrap=True)
    out.print(_summary(found), soft_wrap=True)
    if explain and threshold is not None:
        best = max((hit.chance for hit in found.hits), default=0.0)
        verdict = "enough" if best >= threshold else "not enough"
        needs = f"{verdict} to come back into a prompt by itself: that takes {threshold:.2f}"
        out.print(f"The best chance is {best:.2f}, {needs}.", soft_wrap=True)


def _line_of(text: str, matters: Callable[[str], float], width: int) -> str:
    """The line of a text that has most of what was asked for."""
    pieces = passages(text, size=max(width - 2, 20), limit=_PIECES)
    best = max(range(len(pieces)), key=lambda place: matters(pieces[place]), default=None)
    return "" if best is None else one_line(("… " if best else "") + pieces[best], width)


def _title(hit: Hit, threshold: float | None) -> Text:
    style = "bold" if threshold is None else "bold green" if hit.chance >= threshold else "dim"
    chance = (f"{hit.chance:.2f}  ", style)
    title = Text.assemble(chance, f"{hit.role:<9}  {when(hit.ts)[:16]}  ", (safe(hit.pointer), "cyan"))
    if hit.superseded_by is not None:
        title.append(f"  taken back by entry {hit.superseded_by}", "red")
    if hit.supersedes:
        title.append(f"  takes back {', '.join(f'entry {seq}' for seq in hit.supersedes)}", "yellow")
    if hit.note:
        title.append(f"  {safe(hit.note)}", "green")
    return title.append("  in the prompt", "dim") if hit.in_prompt else title


def _reasons(hit: Hit) -> str:
    told = [f"score {hit.score:.2f}:", *(f"{name} {value:+.2f}" for name, value in hit.parts.items())]
    if marks := _marks(hit):
        told.append(f"({', '.join(marks)})")
    if hit.context:
        told.append(f"{'answered in' if hit.role == 'user' else 'answers'} entry {hit.context[0]}")
    return "  ".join(told)


def _summary(found: SearchResult) -> str:
    told = f"{_counted(found.searched, 'message')} of {_IN_SCOPE[found.scope]} searched"
    if found.behind:
        told += f"; {_counted(found.behind, 'entry', 'entries')} not indexed yet"
    if found.without_vectors:
        told += f"; {_counted(found.without_vectors, 'entry', 'entries')} found by words alone so far"
    return told + (": 'recto index' finishes it" if found.behind or found.without_vectors else "")


def _marks(hit: Hit) -> list[str]:
    return [str(mark.name).lower() for mark in hit.marks]


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
