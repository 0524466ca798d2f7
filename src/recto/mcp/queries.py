"""Tools that read: each finds what the caller may see and returns a result. None of them stores anything.

Long texts come in pages: the characters of one result are bounded, and each page says where the next one begins. Texts
are quoted as recall quotes them in a prompt: every line marked, control characters and secrets removed. They are
cleaned before they are cut, so that no secret is cut in two and passes unmasked.
"""

from __future__ import annotations

from itertools import islice

from msgspec.structs import replace

from recto.context.window.report import DecisionSummary, PromptPiece, Report
from recto.engine.pagination import decision_page
from recto.engine.projection import checkpoint_key
from recto.engine.session import Session
from recto.engine.titles import titles_of
from recto.engine.views.models import (
    ComponentBrief,
    ContextBrief,
    DecisionBrief,
    DecisionBriefPage,
    HolderBrief,
    QuotedEntries,
    QuotedRecall,
    ResumeResult,
    SessionPage,
    TextPage,
    quoted_hit,
    session_page,
)
from recto.errors import InputError
from recto.formats import entry_text
from recto.mcp import params
from recto.mcp.context import McpContext
from recto.mcp.result_text import clean
from recto.recall.recall import RecallService
from recto.recall.types import Excerpt, SearchResult, format_minute, render_quotation
from recto.text.secrets import mask_secrets
from recto.text.unicode import prompt_safe
from recto.transcript.entries import MESSAGE, Entry
from recto.transcript.session_keys import parse_pointer, pointer_to, session_in
from recto.transcript.sources import SessionSource, source_of, sources_of

_SEARCHED_ALL = (
    "no session was named and the usual one is empty, so all sessions were searched; name one to search it alone"
)
_MAX_EXCERPT = 2_400
"""Characters of one hit, however few hits there are."""
_MAX_QUOTATION = 24_000
"""Characters of a quotation of hits, with its frame."""
_MIN_EXCERPT = 100
"""Characters below which an excerpt is useless."""
_MAX_HOLDERS = 10
_MAX_DECISIONS = 5
"""Holders and decisions in a report; the tool 'decisions' lists all decisions."""
_MAX_RANGE = 20
"""Entries of a range that is read."""
_PAGE_ENTRIES = 10
"""Entries on a page of the transcript."""
MAX_CHARS = 16_000
"""Characters of history in one result, nearly: about 4,000 tokens, far below the limit of hosts."""
MAX_NEIGHBOUR_CHARS = 1_600
"""Characters of an entry next to the requested one."""
_LINE_COST = 16
"""Characters that a line counts for at least: the mark of a quoted line costs too."""
_EARLIEST_BREAK = 0.8
"""A page ends at the end of a line, or between words, where there is one in its last fifth."""


def sessions(context: McpContext, request: params.SessionsParams) -> SessionPage:
    """A page of sessions."""
    summaries = context.list_sessions(request.after, request.limit + 1)
    shown = [summary.session for summary in summaries[: request.limit]]
    titles = {key: clean(title) for key, title in titles_of(context.store, shown).items()}
    sources = {
        key: SessionSource(agent=clean(source.agent), project=clean(source.project))
        for key, source in sources_of(context.store, shown).items()
    }
    return session_page(summaries, titles, sources, limit=request.limit, own=context.default_session)


def recall(context: McpContext, request: params.RecallParams) -> QuotedRecall:
    """Search the history and quote the hits; that of all sessions, where none is named and the default one is empty."""
    end = request.skip + request.most
    source = source_of(request.agent, request.project)
    searches_all = not (request.scope or source) and bool(context.newest_instead(request.session))
    scope = "tenant" if searches_all else request.scope
    # The session that is searched from belongs to the search, so it is one of the project or the agent.
    place = context.open_newest_of(source) if source and not request.session else context.open_session(request.session)
    with place as session:
        result = session.recall(request.query, most=end + 1, scope=scope, project=request.project, agent=request.agent)
        page = replace(result, hits=result.hits[request.skip : end])
        next_skip = end if end <= params.MAX_SKIP and len(result.hits) > end else None
        quotation = _quote_hits(session, page, next_skip)
    return QuotedRecall(
        scope=result.scope,
        searched=result.searched,
        hits=tuple(map(quoted_hit, page.hits)),
        quotation=quotation,
        notes=(*([_SEARCHED_ALL] if searches_all else []), *map(clean, result.notes)),
        next=next_skip,
    )


def _quote_hits(session: Session, page: SearchResult, next_skip: int | None) -> str:
    """Quote hits as a prompt would. Excerpts are halved until the quotation fits: many short lines cost more."""
    if not page.hits:
        return ""
    more = "an ellipsis says that a message goes on: the tool 'read' has all of it, by its pointer"
    more = more if next_skip is None else f"{more}; there are more hits: ask with skip={next_skip}"
    characters = min(_MAX_EXCERPT, MAX_CHARS // len(page.hits))
    while True:
        quotation = render_quotation(_excerpts(session.window.recall_engine, page, characters), more)
        if len(quotation) <= _MAX_QUOTATION or characters <= _MIN_EXCERPT:
            return quotation
        characters //= 2


def _excerpts(recall: RecallService, page: SearchResult, characters: int) -> list[Excerpt]:
    """The hits, best first, as a prompt would quote them, with at most so many characters of each."""
    excerpts: dict[str, Excerpt] = {}
    for excerpt in (excerpt for hit in page.hits for excerpt in recall.excerpts_of(hit, page.query, characters)):
        if excerpt.pointer not in excerpts or len(excerpt.text) > len(excerpts[excerpt.pointer].text):
            excerpts[excerpt.pointer] = excerpt
    return list(excerpts.values())


def read(context: McpContext, request: params.ReadParams) -> QuotedEntries:
    """An entry, a page at a time; with a range, the beginnings of up to 20 entries."""
    pointer = context.pointer_of(request.pointer)
    more, first = 0, parse_pointer(pointer)[1]
    if request.through is not None:
        if request.through < first:
            raise InputError(f"through={request.through} is before entry {first}, where the range begins")
        more = min(request.through - first, _MAX_RANGE - 1)
    key, seq, entries = context.read_pointer(pointer, request.around, more)
    most = MAX_CHARS // (more + 1)
    beside = most if more else MAX_NEIGHBOUR_CHARS
    parts = [
        text_page(entry, request.start, most) if entry.seq == seq else text_page(entry, max_chars=beside)
        for entry in entries
    ]
    last = min(request.through or 0, context.store.head(key).seq)
    rest = f"the range goes on at {pointer_to(key, seq + more + 1)}" if last > seq + more else ""
    return QuotedEntries(
        session=session_in(key),
        pages=tuple(page for page, _ in parts),
        quotation=render_quotation([excerpt for _, excerpt in parts], rest),
    )


def resume(context: McpContext, request: params.ResumeParams) -> ResumeResult:
    """The state of a session's work, as the first page of a new window would say it."""
    with context.open_session(request.session) as session:
        result = _resume(session)
    if result is None:
        raise InputError("there is no checkpoint of this session yet; the tool 'checkpoint' writes one")
    return result


def _resume(session: Session) -> ResumeResult | None:
    from recto.engine.continuity import resume_state  # noqa: PLC0415  # loading the patterns of facts takes a while

    continuity = session.window.continuity
    checkpoint = continuity.newest()
    entry = session.store.find(session.key, checkpoint_key(checkpoint.version)) if checkpoint else None
    if checkpoint is None or entry is None:
        return None
    pointer = pointer_to(session.key, entry.seq)
    most, probe = continuity.rules.resume_tokens, continuity.checkpoints.probe
    state = resume_state(checkpoint, probe, most=most, count=session.meter.count, pointer=pointer)
    return ResumeResult(
        session=session_in(session.key),
        version=checkpoint.version,
        window=checkpoint.window,
        pointer=pointer,
        page=state.page.text,
        drift=tuple(clean(change.what) for change in state.drift),
        omitted=state.page.omitted,
    )


def resume_page(context: McpContext, session: str) -> str:
    """The page of `resume`; empty where there is no checkpoint."""
    with context.open_session(session) as opened:
        result = _resume(opened)
    return result.page if result else ""


def context_report(context: McpContext, request: params.ReportParams) -> ContextBrief:
    """What the last prompt was made of, or that of an earlier run, and the next one."""
    with context.open_session(request.session) as session:
        waiting = session.checkpoints.waiting()
        return _context_brief(session.report(run=request.run), waiting.version if waiting else 0)


def _context_brief(report: Report, waiting: int) -> ContextBrief:
    return ContextBrief(
        session=session_in(report.session),
        model=clean(report.model),
        tokens=report.reading.tokens,
        room=report.reading.room,
        utilization=round(report.reading.utilization, 4),
        zone=report.reading.zone,
        turn=report.reading.turn,
        turns_until_red=report.reading.turns_until_red,
        messages=report.messages,
        components=tuple(
            ComponentBrief(component=usage.component, tokens=usage.used, limit=usage.hard)
            for usage in report.components
        ),
        largest=tuple(
            HolderBrief(
                what=holder.role or holder.what, seq=holder.seq, tokens=holder.tokens, condition=holder.condition
            )
            for holder in report.largest[:_MAX_HOLDERS]
        ),
        left_messages=report.left_messages,
        left_tokens=report.left_tokens,
        left_first=report.left_first,
        left_last=report.left_last,
        tools_left_out=report.tools_left_out,
        tools_left_out_tokens=report.tools_left_out_tokens,
        recalled_messages=len(report.recalled),
        summary_tokens=report.summary_tokens,
        notes=report.notes,
        run=None if report.run is None else replace(report.run, model=clean(report.run.model), pieces=_pieces(report)),
        decisions=tuple(map(_decision_brief, report.decisions[:_MAX_DECISIONS])),
        waiting=waiting,
    )


def _pieces(report: Report) -> tuple[PromptPiece, ...]:
    """The pieces of a run; names of tools, files and sections are what others wrote."""
    pieces = report.run.pieces if report.run is not None else ()
    return tuple(replace(piece, name=clean(piece.name)) for piece in pieces)


def decisions(context: McpContext, request: params.DecisionsParams) -> DecisionBriefPage:
    """A page of decisions, newest first."""
    with context.open_session(request.session) as session:
        page = decision_page(session.window, request.before, limit=request.limit)
        name = session_in(session.key)
    return DecisionBriefPage(
        session=name, decisions=tuple(map(_decision_brief, page.decisions)), before=request.before, next=page.next
    )


def _decision_brief(decision: DecisionSummary) -> DecisionBrief:
    return DecisionBrief(
        seq=decision.seq,
        kind=decision.kind,
        when=format_minute(decision.ts),
        reason=clean(decision.reason),
        messages=decision.messages,
        freed_tokens=decision.frees,
        undone=decision.undone,
    )


def transcript(context: McpContext, session: str, after: int) -> tuple[str, int | None]:
    """A quoted page of the transcript that begins after an entry, and the `after` of the next page."""
    with context.open_session(session) as opened:
        entries = list(islice(opened.read(after + 1), _PAGE_ENTRIES + 1))
    next_after = entries[_PAGE_ENTRIES - 1].seq if len(entries) > _PAGE_ENTRIES else None
    excerpts = [text_page(entry, max_chars=MAX_NEIGHBOUR_CHARS)[1] for entry in entries[:_PAGE_ENTRIES]]
    return render_quotation(excerpts, "" if next_after is None else f"it goes on after entry {next_after}"), next_after


def text_page(entry: Entry, start: int = 0, max_chars: int = MAX_CHARS) -> tuple[TextPage, Excerpt]:
    """A page of an entry's text, and the excerpt to quote for it. Raises `InputError` for a start beyond the end."""
    text = mask_secrets(prompt_safe(entry_text(entry)))
    if start and start >= len(text):
        raise InputError(f"start={start} is beyond the end of entry {entry.seq}: it has {len(text):,} characters")
    end = _page_end(text, start, max_chars)
    pointer, role = pointer_to(entry.session, entry.seq), entry.role if entry.kind == MESSAGE else entry.kind
    page = TextPage(
        pointer=pointer,
        role=role,
        when=format_minute(entry.ts),
        characters=len(text),
        start=start,
        next=end if end < len(text) else None,
    )
    return page, Excerpt(pointer, role, entry.ts, text[start:end], _extent(page, end))


def _extent(page: TextPage, end: int) -> str:
    if page.next is None and not page.start:
        return ""
    extent = f"characters {page.start:,} to {end:,} of {page.characters:,}"
    return extent if page.next is None else f"{extent}; read it with start={page.next} for more"


def _page_end(text: str, begin: int, max_chars: int) -> int:
    end = _lines_end(text, begin, min(begin + max_chars, len(text)), max_chars // _LINE_COST)
    if end == len(text):
        return end
    earliest = begin + int(max_chars * _EARLIEST_BREAK)
    for separator in ("\n", " "):
        at = text.rfind(separator, earliest, end)
        if at > 0:
            return at + 1
    return end


def _lines_end(text: str, begin: int, end: int, max_lines: int) -> int:
    """Where `max_lines` lines end, if that is before `end`."""
    at = begin
    for _ in range(max_lines):
        at = text.find("\n", at, end) + 1
        if not at:
            return end
    return at
