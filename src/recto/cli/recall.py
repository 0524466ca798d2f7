"""Commands that find and read stored messages (recall, read, index), and what was done in a session (work)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import click
from msgspec import structs
from rich.text import Text

from recto.cli._common import session_option
from recto.cli.compact import open_as_last_seen
from recto.cli.console import format_time, one_line, out, print_json, progress, safe
from recto.cli.sessions import newest_instead_of_default, print_entry, resolve_session, session_to_read
from recto.config import Settings
from recto.config.factory import SystemClock, make_indexer, make_recall, open_store, session_sources
from recto.context.work import WorkHistory
from recto.engine.views.models import full_entry, recall_result
from recto.engine.work import SessionWork
from recto.errors import EmbedderFailed, InputError, SettingsError
from recto.formats import entry_text
from recto.recall.documents import passages
from recto.recall.index.rows import gaps
from recto.recall.protocols import Lexicon
from recto.recall.recall import relevant_hits
from recto.recall.types import Hit, Query, SearchResult
from recto.transcript.entries import DEFAULT_SESSION
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import (
    Scope,
    list_sessions,
    operator_sees,
    parse_pointer,
    pointer_to,
    reach_of,
    session_in,
    tenant_key,
    tenant_of,
)
from recto.transcript.sources import SessionSource, source_of

if TYPE_CHECKING:
    from recto.recall.indexer import Indexer
from collections.abc import Iterator

from recto.context.work import (
    CommandHistory,
    CommandRun,
    ErrorHistory,
    FileEvent,
    FileHistory,
    NumberHistory,
    WorkStep,
)

_INDENT = " " * 6
_STATES = {"ok": "green", "failed": "red", "refused": "yellow", "unanswered": "dim"}
_ERROR_STATES = {"over": "over", "open": "still open", "not_found": "never reported"}


def print_work(history: WorkHistory) -> None:
    """Prints a history, newest first."""
    for line in _lines(history):
        out.print(line, soft_wrap=True)
    if history.next is not None:
        out.print(f"Older entries: --before {history.next}")


def _lines(history: WorkHistory) -> Iterator[Text | str]:
    match history:
        case FileHistory():
            yield from (line for event in history.events for line in _file_lines(event))
            if not history.events:
                yield "Nothing was done with such a file."
        case CommandHistory():
            yield from (line for run in history.runs for line in _run_lines(run))
            if not history.runs:
                yield "No such command was run."
        case ErrorHistory():
            yield from _error_lines(history)
        case NumberHistory():
            for found in history.numbers:
                yield _work_title(found.number, "bold", found.ts, found.pointer)
                yield Text(_INDENT + safe(found.line))
            if not history.numbers:
                yield "No number with a unit was found beside these words."


def _file_lines(event: FileEvent) -> Iterator[Text]:
    label = event.change if event.change == "read" else f"{event.change} (version {event.version})"
    yield from _step_lines(event.step, label, event.path)


def _run_lines(run: CommandRun) -> Iterator[Text]:
    yield from _step_lines(run.step, "run", ", ".join(run.numbers))
    if run.failures:
        times = "failure" if run.failures == 1 else f"{run.failures} failures"
        yield Text(f"{_INDENT}passed after {times}; changed in between:", "dim")
        for event in run.changed:
            yield Text(f"{_INDENT}  {event.change:<6}  {safe(event.path)}  {safe(event.step.pointer)}")
        for step in run.ran:
            yield Text(f"{_INDENT}  ran     {safe(step.call)}  {safe(step.pointer)}")


def _error_lines(history: ErrorHistory) -> Iterator[Text]:
    times = "once" if history.count == 1 else f"{history.count:,} times"
    yield Text(f"{_ERROR_STATES[history.state]}{f'; it came {times}' if history.count else ''}", "bold")
    for event in history.events:
        yield _work_title("came", "red", event.ts, event.pointer)
        yield Text(_INDENT + safe(event.line))
        yield Text(f"{_INDENT}{f'in: {safe(event.step.call)}' if event.step else 'pasted by the user'}", "dim")
    for step in history.followed:
        yield from _step_lines(step, "then")
    if history.omitted:
        yield Text(f"{_INDENT}{history.omitted:,} earlier steps after it are not listed", "dim")
    if history.ended_by is not None:
        yield from _step_lines(history.ended_by, "ended by")


def _step_lines(step: WorkStep, label: str, about: str = "") -> Iterator[Text]:
    title = _work_title(label, "bold", step.ts, step.pointer)
    state = step.state if step.exit_code is None else f"{step.state} (exit {step.exit_code})"
    title.append(f"  {state}", _STATES[step.state])
    yield title.append(f"  {safe(about)}") if about else title
    yield Text(_INDENT + safe(step.call))
    if step.line:
        yield Text(_INDENT + safe(step.line), "red")
    if step.why:
        yield Text(f"{_INDENT}why: {safe(step.why)}", "dim")


def _work_title(label: str, style: str, ts: int, pointer: str) -> Text:
    return Text.assemble((safe(label), style), f"  {format_time(ts)[:16]}  ", (safe(pointer), "cyan"))


_VECTOR_SECONDS = 3.0
"""How long a search waits for missing vectors; the rest is found by words alone."""
_STEP = 256
"""Entries between two moves of the progress bar."""
_PIECES = 200
"""Passages of a long text among which the best line is chosen."""
_MAX_WIDTH = 160
_SCOPE_NAMES: dict[Scope, str] = {"session": "this session", "agent": "this agent", "tenant": "all sessions"}


@click.command("recall")
@click.argument("query", required=False)
@click.option("--file", "file", metavar="PATH", help="What was done with a file: reads, edits, creations, deletions.")
@click.option("--command", metavar="TEXT", help="The runs of a command, and what changed between failure and success.")
@click.option("--error", metavar="TEXT", help="Where an error came from, what followed, and how it ended.")
@click.option("--number", metavar="TEXT", help="Numbers with units in lines with these words.")
@session_option()
@click.option("--scope", type=click.Choice(["session", "agent", "tenant"]), help="How far to search.")
@click.option(
    "--project", type=click.Path(file_okay=False, path_type=Path), help="Search the sessions of this project folder."
)
@click.option("--agent", default="", metavar="NAME", help="Search the sessions of this program, such as codex.")
@click.option("-n", "--most", default=10, show_default=True, type=click.IntRange(1, 100), help="How many hits at most.")
@click.option("--before", type=click.IntRange(1), metavar="SEQ", help="With --file and the like: before this entry.")
@click.option("--explain", is_flag=True, help="Show the parts of each score and what would be recalled.")
@click.option("--json", "as_json", is_flag=True, help="The whole answer as one JSON object.")
@click.pass_obj
def recall_command(  # noqa: PLR0913, PLR0917  # an argument for each option
    settings: Settings,
    /,
    query: str | None,
    session: str | None,
    scope: Scope | None,
    project: Path | None,
    agent: str,
    most: int,
    before: int | None,
    explain: bool,
    as_json: bool,
    **work: str | None,
) -> None:
    """Searches everything that was said, in the prompt or not; or what was done in one session.

    \b
    Examples:
      recto recall "which database did we choose"
      recto recall "deadline last Tuesday" --scope agent --explain
      recto recall "how did we deploy" --project . --agent codex
      recto recall "parse_header" --json | jq -r '.hits[].pointer'
      recto recall --file src/parser.py        when it changed last, and why
      recto recall --command "pytest tests"    how its runs ended, and what made them pass
      recto recall --error "KeyError: 'port'"  where it came from, and how it ended
    """
    asked = [(kind, text) for kind, text in work.items() if text is not None]
    if len(asked) + (query is not None) != 1:
        raise click.UsageError("give a question, or one of --file, --command, --error and --number")
    if asked:
        if scope not in (None, "session") or project or agent or explain:
            raise click.UsageError(
                "--scope, --project, --agent and --explain are for questions: what was done is searched in one session"
            )
        with closing(open_store(settings, create=False)) as store:
            evidence = SessionWork(store, session_to_read(store, settings, session))
            history: WorkHistory = getattr(evidence, asked[0][0])(asked[0][1], limit=most, before=before)
        if as_json:
            print_json(history)
        else:
            print_work(history)
        return
    if query is not None and not query.strip():
        raise click.UsageError("the question is empty; say what to look for")
    if before is not None:
        raise click.UsageError("--before is for --file, --command, --error and --number")
    if scope and (project or agent):
        raise click.UsageError("--project and --agent say how far to search; leave --scope out")
    where = SearchPlace(
        session=session, scope=scope, source=source_of(agent, str(project.resolve()) if project else "")
    )
    _search(settings, query or "", where, most=most, explain=explain, as_json=as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlace:
    """Where a search looks."""

    session: str | None
    scope: Scope | None
    source: SessionSource | None

    @property
    def is_open(self) -> bool:
        """Whether the caller did not say where to look."""
        return self.session is None and self.scope is None and self.source is None


def _search(
    settings: Settings,
    query: str,
    where: SearchPlace,
    *,
    most: int,
    explain: bool,
    as_json: bool,
) -> None:
    if not settings.recall.enabled:
        raise SettingsError("recall.enabled", "recall is switched off, so nothing is indexed and nothing can be found")
    with closing(open_store(settings, create=False)) as store:
        if where.is_open and newest_instead_of_default(store, settings, None):
            where = replace(where, scope="tenant")
        key = _search_from(store, settings, where)
        with closing(make_indexer(settings, store)) as indexer:
            indexer.with_repair(lambda: _index_words(indexer, key))
            problem = _index_vectors(indexer, key, patience=settings.recall.index_seconds)
            session_settings = replace(settings, session=session_in(key), tenant=tenant_of(key))
            with open_as_last_seen(settings, store, key, indexer=indexer) as opened:
                in_prompt, judged = opened.window.shown_entries(), opened.window.judged_entries()
            request = Query(text=query, now=SystemClock().now(), judged=judged, source=where.source)
            result = make_recall(session_settings, store, key, indexer).search(
                request, limit=most, scope=where.scope, shown=in_prompt
            )
            notes = [*([problem] if problem else []), *_index_notes(indexer, key, result.scope), *result.notes]
            result = structs.replace(result, notes=tuple(dict.fromkeys(notes)))
            if as_json:
                payload = recall_result(result, max_text=None, session_name=str)
                print_json(payload, threshold=settings.recall.threshold)
            else:
                print_results(result, settings.recall.threshold, indexer.lexicon, explain=explain)
                is_guess = where.is_open and result.scope == "session" and settings.session == DEFAULT_SESSION
                if is_guess and len(list_sessions(store, limit=2)) > 1:
                    out.print("There are other sessions: --scope tenant searches all of them.", soft_wrap=True)


@click.command("read")
@click.argument("pointer")
@session_option("The session of an entry that is named by its number. [default: the one in the settings]")
@click.option("--around", default=0, type=click.IntRange(0), metavar="N", help="N entries before and after it too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, with the text and the exact content.")
@click.pass_obj
def read_command(settings: Settings, pointer: str, session: str | None, around: int, as_json: bool) -> None:
    """Reads a whole entry, by its pointer or by its number in a session.

    \b
    Examples:
      recto read recto://agent:default:main/42
      recto read 42
      recto read 42 --session agent:default:main --around 2
    """
    entries = []
    with closing(open_store(settings, create=False)) as store:
        if pointer.isascii() and pointer.isdecimal():
            pointer = pointer_to(session_to_read(store, settings, session), int(pointer))
        elif session is not None:
            raise click.UsageError("a pointer names its session; leave --session out")
        key, seq = parse_pointer(pointer)
        if operator_sees(key, settings.tenant):
            entries = list(store.read(key, max(seq - around, 1), seq + around))
    if not any(entry.seq == seq for entry in entries):
        raise InputError(f"there is nothing at '{pointer:.300}'; 'recto recall' shows pointers to what there is")
    for entry in entries:
        if as_json:
            print_json(full_entry(entry, str))
        else:
            print_entry(entry, entry_text(entry))


@click.command("index")
@session_option("Index this session; may be repeated. [default: all sessions]", multiple=True)
@click.option("--rebuild", is_flag=True, help="Delete the index and build it again.")
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
@click.pass_obj
def index_command(settings: Settings, session: tuple[str, ...], rebuild: bool, as_json: bool) -> None:
    """Takes everything that is stored into the recall index, or what is missing there.

    \b
    Examples:
      recto index
      recto index --session agent:default:main --rebuild
    """
    with closing(open_store(settings, create=False)) as store:
        keys = [_resolve(store, settings, name) for name in session]
        keys = keys or [
            summary.session for summary in list_sessions(store) if operator_sees(summary.session, settings.tenant)
        ]
        with closing(make_indexer(settings, store)) as indexer:
            for key in keys if rebuild else ():
                indexer.rebuild(key)
            problem = _index_sessions(indexer, keys)
            total = sum(store.head(key).seq for key in keys)
            without_vectors = sum(indexer.backlog(key)[1] for key in keys)
            if as_json:
                click.echo(json.dumps({"sessions": len(keys), "entries": total, "without_vectors": without_vectors}))
            else:
                out.print(f"{_plural(total, 'entry', 'entries')} of {_plural(len(keys), 'session')} in the index")
            if without_vectors and not as_json:
                out.print(f"{_plural(without_vectors, 'entry', 'entries')} without vectors, found by words alone")
        if problem is not None:
            raise problem


def _resolve(store: TranscriptStore, settings: Settings, name: str) -> str:
    """Returns the stored key of an existing session. Without a tenant in the settings, a stored key is accepted too."""
    return resolve_session(store, tenant_key(name, settings.tenant))


def _search_from(store: TranscriptStore, settings: Settings, where: SearchPlace) -> str:
    """Returns the session whose scope is searched: where none is named and the default one is empty, the newest one
    that the scope reaches; of a project or an agent, the newest of theirs."""
    name, scope = where.session, where.scope
    if name is None and where.source is not None:
        wanted = session_sources(settings, store).matching(where.source)
        found = [summary for summary in list_sessions(store) if summary.session in wanted]
        if not found:
            of = " and ".join(filter(None, (where.source.agent, where.source.project)))
            raise InputError(f"no session of {of} is known; 'recto import --discover' finds those on this machine")
        return max(found, key=lambda summary: summary.last_ts).session
    default = tenant_key(settings.session, settings.tenant)
    if name is None and scope in ("agent", "tenant") and not store.head(default).seq:
        reach = reach_of(default, scope)
        reached = [summary for summary in list_sessions(store, limit=10_000) if reach.contains(summary.session)]
        if reached:
            return max(reached, key=lambda summary: summary.last_ts).session
    return _resolve(store, settings, name or settings.session)


def _index_sessions(indexer: Indexer, keys: Sequence[str]) -> EmbedderFailed | None:
    """Indexes what is missing of sessions, with a progress bar. If the embedder fails, the words are indexed all the
    same, and the last error is returned.
    """
    behind = {key: sum(indexer.backlog(key)) for key in keys}
    problem: EmbedderFailed | None = None
    with progress("indexing", sum(behind.values())) as advance:
        for key in (key for key, missing in behind.items() if missing):
            try:
                indexer.catch_up(key, advance=advance)
            except EmbedderFailed as error:
                problem = error
    return problem


def _index_words(indexer: Indexer, key: str) -> None:
    """Indexes all words of a session, with a progress bar."""
    missing = indexer.words.backlog(key, indexer.store.head(key).seq)
    with progress("indexing", len(missing)) as advance:
        for page in (missing[at : at + _STEP] for at in range(0, len(missing), _STEP)):
            indexer.index_words(key, page[-1], inf)
            advance(len(page))


def _index_vectors(indexer: Indexer, key: str, *, patience: float) -> str:
    """Computes missing vectors for a few seconds, newest messages first; returns the problem, if any."""
    if not indexer.backlog(key)[1] or indexer.embedder is None:
        return ""
    deadline = monotonic() + _VECTOR_SECONDS
    try:
        covered = indexer.vector_index(indexer.embedder).covered(key)
    except EmbedderFailed as error:
        return str(error)
    for first, last in reversed(gaps(covered, 1, indexer.store.head(key).seq)):
        for seq in range(last, first - 1, -1):
            if monotonic() >= deadline:
                return ""
            if problem := indexer.embed(key, seq, seq, patience):
                return problem
    return ""


def _index_notes(indexer: Indexer, key: str, scope: Scope) -> list[str]:
    """Returns a note if other sessions of the scope are not fully indexed, and so not fully searched."""
    if scope == "session":
        return []
    reach = reach_of(key, scope)
    others = [
        summary.session
        for summary in indexer.store.sessions()
        if summary.session != key and reach.contains(summary.session)
    ]
    count = sum(indexer.backlog(other)[0] > 0 for other in others)
    return [f"not all of {_plural(count, 'other session')} is indexed; 'recto index' takes it in"] if count else []


def print_results(result: SearchResult, threshold: float | None, lexicon: Lexicon, *, explain: bool = False) -> None:
    """Prints the hits, best first. `threshold` is the chance at which a hit is injected into a prompt, if known."""
    terms = lexicon.terms(result.query).keys()

    def relevance(piece: str) -> float:
        return float(len(terms & lexicon.terms(piece).keys()))

    width = min(out.width, _MAX_WIDTH) - len(_INDENT)
    relevant = None if threshold is None else relevant_hits(result, threshold, spare=True)
    for hit in result.hits:
        out.print(_title(hit, is_relevant=None if relevant is None else hit in relevant), soft_wrap=True)
        out.print(Text(_INDENT + _best_line(hit.text, relevance, width)), soft_wrap=True)
        if explain:
            out.print(Text(_INDENT + _reasons(hit), "dim"), soft_wrap=True)
    if not result.hits:
        out.print("Nothing like it was said.")
    for note in result.notes:
        out.print(Text(f"note: {safe(note)}", "yellow"), soft_wrap=True)
    out.print(_summary(result), soft_wrap=True)
    if explain and threshold is not None:
        best = max((hit.chance for hit in result.hits), default=0.0)
        verdict = "enough" if relevant else "not enough"
        needs = f"{verdict} to come back into a prompt by itself: that takes {threshold:.2f}"
        if relevant and best < threshold:
            needs += ", or a little less where it is well above the others and there are tokens to spare"
        out.print(f"The best chance is {best:.2f}, {needs}.", soft_wrap=True)


def _best_line(text: str, relevance: Callable[[str], float], width: int) -> str:
    """Returns the line of a text that has most of the search terms."""
    pieces = passages(text, size=max(width - 2, 20), limit=_PIECES)
    best = max(range(len(pieces)), key=lambda place: relevance(pieces[place]), default=None)
    return "" if best is None else one_line(("… " if best else "") + pieces[best], width)


def _title(hit: Hit, *, is_relevant: bool | None) -> Text:
    style = "bold" if is_relevant is None else "bold green" if is_relevant else "dim"
    chance = (f"{hit.chance:.2f}  ", style)
    title = Text.assemble(chance, f"{hit.role:<9}  {format_time(hit.ts)[:16]}  ", (safe(hit.pointer), "cyan"))
    if hit.superseded_by is not None:
        title.append(f"  taken back by entry {hit.superseded_by}", "red")
    if hit.supersedes:
        title.append(f"  takes back {', '.join(f'entry {seq}' for seq in hit.supersedes)}", "yellow")
    if hit.agent or hit.project:
        title.append(f"  {safe(' in '.join(filter(None, (hit.agent, hit.project))))}", "blue")
    if hit.note:
        title.append(f"  {safe(hit.note)}", "green")
    return title.append("  in the prompt", "dim") if hit.in_prompt else title


def _reasons(hit: Hit) -> str:
    reasons = [f"score {hit.score:.2f}:", *(f"{name} {value:+.2f}" for name, value in hit.parts.items())]
    if marks := _marks(hit):
        reasons.append(f"({', '.join(marks)})")
    if hit.context:
        reasons.append(f"{'answered in' if hit.role == 'user' else 'answers'} entry {hit.context[0]}")
    return "  ".join(reasons)


def _summary(result: SearchResult) -> str:
    text = f"{_plural(result.searched, 'message')} of {_SCOPE_NAMES[result.scope]} searched"
    if result.behind:
        text += f"; {_plural(result.behind, 'entry', 'entries')} not indexed yet"
    if result.without_vectors:
        text += f"; {_plural(result.without_vectors, 'entry', 'entries')} found by words alone so far"
    return text + (": 'recto index' finishes it" if result.behind or result.without_vectors else "")


def _marks(hit: Hit) -> list[str]:
    return [str(mark.name).lower() for mark in hit.marks]


def _plural(count: int, singular: str, plural: str = "") -> str:
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"
