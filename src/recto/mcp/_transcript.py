"""Tools that search the transcript like files, and the record of work: outline, grep and work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from recto.context.work import CommandHistory, ErrorHistory, FileHistory, NumberHistory, WorkHistory, WorkStep
from recto.engine.session import Session
from recto.engine.views.models import (
    EntryOutline,
    GrepBrief,
    GrepMatch,
    OutlineBrief,
    QuotedGrep,
    QuotedOutline,
    QuotedWork,
    WorkBrief,
    WorkKind,
)
from recto.errors import InputError
from recto.mcp import params
from recto.mcp.context import McpContext
from recto.recall.types import Excerpt, format_minute, frame_quotation, render_excerpt
from recto.transcript.entries import MESSAGE
from recto.transcript.session_keys import session_in

_MAX_QUOTATION = 20_000
"""Characters of a quotation without its frame."""
_MAX_EXCERPT = 3_000
"""Characters of one excerpt, nearly."""
_LINE_COST = 16
"""Characters that a line counts for at least."""
_MAX_FIRST_LINE = 160
_KINDS: tuple[WorkKind, ...] = ("file", "command", "error", "number")

_Item = tuple[WorkBrief, Excerpt]


def outline(context: McpContext, request: params.OutlineParams) -> QuotedOutline:
    """A page of entries with their first lines."""
    with context.open_session(request.session) as session:
        _check_start(session, request)
        page = session.transcript.outline(request.start, limit=request.limit, newest_first=request.newest_first)
        name = session_in(session.key)
    shown, quotation = _quote([_outline_excerpt(entry) for entry in page.entries])
    following = page.entries[shown].seq if shown < len(page.entries) else page.next
    return QuotedOutline(
        session=name, entries=tuple(map(_outline_brief, page.entries[:shown])), quotation=quotation, next=following
    )


def _check_start(session: Session, request: params.OutlineParams | params.GrepParams) -> None:
    """Raise `InputError` where nothing follows the entry to begin with."""
    last = len(session)
    if request.start and 0 < last < request.start and not request.newest_first:
        raise InputError(f"there is no entry {request.start}: the session ends at entry {last}")


def _outline_brief(entry: EntryOutline) -> OutlineBrief:
    return OutlineBrief(
        pointer=entry.pointer,
        seq=entry.seq,
        role=_role(entry),
        when=format_minute(entry.ts),
        tokens=entry.tokens,
        characters=entry.characters,
        lines=entry.lines,
    )


def _outline_excerpt(entry: EntryOutline) -> Excerpt:
    size = f"{entry.tokens:,} tokens, {entry.characters:,} characters"
    return Excerpt(entry.pointer, _role(entry), entry.ts, entry.first_line[:_MAX_FIRST_LINE], size)


def _role(entry: EntryOutline) -> str:
    return entry.role if entry.kind == MESSAGE else entry.kind


def grep(context: McpContext, request: params.GrepParams) -> QuotedGrep:
    """The lines that match a pattern, by entry."""
    with context.open_session(request.session) as session:
        _check_start(session, request)
        page = session.transcript.grep(
            request.pattern,
            request.start,
            regex=request.regex,
            case=request.case,
            context=request.context,
            newest_first=request.newest_first,
            limit=request.limit,
        )
        name = session_in(session.key)
    shown, quotation = _quote([_grep_excerpt(match) for match in page.matches])
    following = page.matches[shown].seq if shown < len(page.matches) else page.next
    briefs = tuple(
        GrepBrief(
            pointer=match.pointer, seq=match.seq, role=match.role, when=format_minute(match.ts), count=match.count
        )
        for match in page.matches[:shown]
    )
    return QuotedGrep(session=name, matches=briefs, searched=page.searched, quotation=quotation, next=following)


def _grep_excerpt(match: GrepMatch) -> Excerpt:
    lines = [f"{line.number}{':' if line.matches else '-'} {line.text}" for line in match.lines]
    kept = _cut_lines(lines)
    more = "" if len(kept) == len(lines) and match.count <= len(lines) else "; the tool 'read' has all of it"
    count = "1 line matches" if match.count == 1 else f"{match.count:,} lines match"
    return Excerpt(match.pointer, match.role, match.ts, "\n".join(kept), f"{count}{more}")


def work(context: McpContext, request: params.WorkParams) -> QuotedWork:
    """What was done with a file, how a command ran, how an error ended, or which numbers came up."""
    asked = [(kind, text) for kind in _KINDS if (text := getattr(request, kind))]
    if len(asked) != 1:
        raise InputError("give exactly one of file, command, error and number")
    kind, text = asked[0]
    with context.open_session(request.session) as session:
        find = getattr(session.work, kind)
        history: WorkHistory = find(text, limit=request.limit, before=request.before)
        name = session_in(session.key)
    items = list(_items(history))
    shown, quotation = _quote([excerpt for _, excerpt in items])
    return QuotedWork(
        session=name,
        kind=kind,
        count=_count(history),
        state=history.state if isinstance(history, ErrorHistory) else "",
        steps=tuple(brief for brief, _ in items[:shown]),
        quotation=quotation,
        next=history.next if shown == len(items) or isinstance(history, ErrorHistory) else items[shown - 1][0].seq,
    )


def _count(history: WorkHistory) -> int:
    match history:
        case FileHistory():
            return history.versions
        case CommandHistory():
            return len(history.runs)
        case ErrorHistory():
            return history.count
        case NumberHistory():
            return len(history.numbers)


def _items(history: WorkHistory) -> Iterator[_Item]:
    match history:
        case FileHistory():
            for event in history.events:
                yield _step(event.step, event.change, [event.path], version=event.version)
        case CommandHistory():
            for run in history.runs:
                changed = [f"changed since the failure: {event.path} ({event.step.seq})" for event in run.changed]
                ran = [f"ran since the failure: {step.call} ({step.seq})" for step in run.ran]
                yield _step(run.step, "run", [*changed, *ran, *run.numbers])
        case ErrorHistory():
            yield from _error_items(history)
        case NumberHistory():
            for found in history.numbers:
                brief = _brief(found.pointer, found.seq, found.ts, "number")
                yield brief, Excerpt(found.pointer, found.role, found.ts, f"{found.number}: {found.line}")


def _error_items(history: ErrorHistory) -> Iterator[_Item]:
    if history.ended_by is not None:
        yield _step(history.ended_by, "ended_by", [])
    events = [*history.events]
    if history.first is not None and history.first not in events:
        events.append(history.first)
    for event in events:
        what = "came first" if event == history.first else "came"
        text = [event.line, f"in: {event.step.call}" if event.step else "pasted by the user"]
        brief = _brief(event.pointer, event.seq, event.ts, what)
        yield brief, Excerpt(event.pointer, what, event.ts, "\n".join(text))
    for step in history.followed:
        yield _step(step, "followed", [])


def _step(step: WorkStep, what: str, more: Iterable[str], version: int | None = None) -> _Item:
    brief = replace(
        _brief(step.pointer, step.seq, step.ts, what), state=step.state, exit_code=step.exit_code, version=version
    )
    lines = [step.call, *([f"failed: {step.line}"] if step.line else []), *([f"why: {step.why}"] if step.why else [])]
    code = "" if step.exit_code is None else f" (exit {step.exit_code})"
    label = what if version is None else f"{what}, version {version}"
    excerpt = Excerpt(step.pointer, label, step.ts, "\n".join(_cut_lines([*lines, *more])), f"{step.state}{code}")
    return brief, excerpt


def _brief(pointer: str, seq: int, ts: int, what: str) -> WorkBrief:
    return WorkBrief(
        pointer=pointer, seq=seq, when=format_minute(ts), what=what, state="", exit_code=None, version=None
    )


def _cut_lines(lines: Sequence[str]) -> list[str]:
    """As many lines as fit into one excerpt; at least one."""
    kept: list[str] = []
    size = 0
    for line in lines:
        size += max(len(line), _LINE_COST)
        if kept and size > _MAX_EXCERPT:
            break
        kept.append(line)
    return kept


def _quote(excerpts: Sequence[Excerpt]) -> tuple[int, str]:
    """How many of the excerpts fit into one answer, and the quotation of them."""
    rendered: list[str] = []
    size = 0
    for excerpt in excerpts:
        text = render_excerpt(excerpt)
        size += len(text)
        if rendered and size > _MAX_QUOTATION:
            break
        rendered.append(text)
    return len(rendered), frame_quotation(rendered) if rendered else ""
