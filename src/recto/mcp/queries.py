"""What the MCP server tells: each function finds what a desk may see, and asks the engine. None of them stores
anything."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from recto.context.window.report import DecisionSummary, Report
from recto.engine.pagination import decisions_before
from recto.engine.projection import checkpoint_key
from recto.engine.session import Session
from recto.errors import InputError
from recto.mcp import params, results
from recto.mcp.context import McpContext
from recto.mcp.pagination import MOST, NEIGHBOUR, paged
from recto.recall.quoting import Excerpt, format_minute, render_quotation
from recto.recall.recall import RecallService
from recto.recall.types import Hit, SearchResult
from recto.transcript.session_keys import is_memory_session, pointer_to, session_in

_EXCERPT = 2_400
"""Characters of one hit, however few there are."""
_QUOTED = 24_000
"""Characters of a quotation of hits, with its frame."""
_LEAST = 100
"""Characters below which an excerpt says nothing."""
_LARGEST = 10
_DECISIONS = 5
"""Holders and decisions in a report; the tool 'decisions' has all of them."""
_ENTRIES = 10
"""Entries on a page of the transcript."""


def sessions(desk: McpContext, given: params.SessionsParams) -> results.SessionPage:
    """A page of sessions."""
    found = desk.listed(given.after, given.limit + 1)
    shown = tuple(
        results.SessionLine(
            session=session_in(one.session),
            kind="memory" if is_memory_session(one.session) else "conversation",
            entries=one.entries,
            last=format_minute(one.last_ts),
        )
        for one in found[: given.limit]
    )
    return results.SessionPage(
        own=desk.own, sessions=shown, next=shown[-1].session if len(found) > given.limit else None
    )


def recall(desk: McpContext, given: params.RecallParams) -> results.QuotedRecall:
    """Searches everything that was ever said, and quotes what it finds."""
    end = given.skip + given.most
    with desk.opened(given.session) as session:
        found = session.recall(given.query, most=end + 1, scope=given.scope)
        page = replace(found, hits=found.hits[given.skip : end])
        following = end if len(found.hits) > end else None
        quotation = _quoted(session, page, following)
    return results.QuotedRecall(
        scope=found.scope,
        searched=found.searched,
        hits=tuple(map(_hit, page.hits)),
        quotation=quotation,
        notes=tuple(map(results.plain, found.notes)),
        next=following,
    )


def _quoted(session: Session, page: SearchResult, following: int | None) -> str:
    """The hits as a prompt would quote them; each gets less of the room where its lines are many and short."""
    if not page.hits:
        return ""
    more = "an ellipsis says that a message goes on: the tool 'read' has all of it, by its pointer"
    more = more if following is None else f"{more}; there are more hits: ask with skip={following}"
    characters = min(_EXCERPT, MOST // len(page.hits))
    while True:
        quotation = render_quotation(_excerpts(session.window.recall_engine, page, characters), more)
        if len(quotation) <= _QUOTED or characters <= _LEAST:
            return quotation
        characters //= 2


def _excerpts(recall: RecallService, page: SearchResult, characters: int) -> list[Excerpt]:
    """The hits, best first, as a prompt would quote them; of each at most so many characters."""
    excerpts: dict[str, Excerpt] = {}
    for excerpt in (found for hit in page.hits for found in recall.quotable(hit, page.query, characters)):
        if excerpt.pointer not in excerpts or len(excerpt.text) > len(excerpts[excerpt.pointer].text):
            excerpts[excerpt.pointer] = excerpt
    return list(excerpts.values())


def _hit(hit: Hit) -> results.QuotedHit:
    return results.QuotedHit(
        pointer=hit.pointer,
        session=session_in(hit.session),
        seq=hit.seq,
        role=hit.role,
        when=format_minute(hit.ts),
        chance=round(hit.chance, 4),
        in_prompt=hit.in_prompt,
        superseded_by=None if hit.superseded_by is None else pointer_to(hit.session, hit.superseded_by),
        characters=len(hit.text),
    )


def read(desk: McpContext, given: params.ReadParams) -> results.QuotedEntries:
    """An entry, a page at a time."""
    key, seq, found = desk.entries(given.pointer, given.around)
    parts = [paged(one, given.start) if one.seq == seq else paged(one, most=NEIGHBOUR) for one in found]
    return results.QuotedEntries(
        session=session_in(key),
        pages=tuple(page for page, _ in parts),
        quotation=render_quotation([one for _, one in parts]),
    )


def resume(desk: McpContext, given: params.ResumeParams) -> results.ResumeResult:
    """Where the work of a session stands, as the first page of a new window would tell it."""
    with desk.opened(given.session) as session:
        found = _resumed(session)
    if found is None:
        raise InputError("there is no checkpoint of this session yet; the tool 'checkpoint' writes one")
    return found


def _resumed(session: Session) -> results.ResumeResult | None:
    from recto.engine.continuity import resumed  # noqa: PLC0415  # wording of facts takes a while to load

    continuity = session.window.continuity
    checkpoint = continuity.newest()
    entry = session.store.find(session.key, checkpoint_key(checkpoint.version)) if checkpoint else None
    if checkpoint is None or entry is None:
        return None
    pointer = pointer_to(session.key, entry.seq)
    most, lookout = continuity.rules.resume_tokens, continuity.checkpoints.lookout
    found = resumed(checkpoint, lookout, most=most, count=session.meter.count, pointer=pointer)
    return results.ResumeResult(
        session=session_in(session.key),
        version=checkpoint.version,
        window=checkpoint.window,
        pointer=pointer,
        page=found.page.text,
        drift=tuple(results.plain(one.what) for one in found.drift),
        omitted=found.page.omitted,
    )


def standing(desk: McpContext, session: str) -> str:
    """The page of `resume`; empty where there is no checkpoint."""
    with desk.opened(session) as opened:
        found = _resumed(opened)
    return found.page if found else ""


def context_report(desk: McpContext, given: params.ReportParams) -> results.ContextBrief:
    """What the next prompt would be made of."""
    with desk.opened(given.session) as session:
        return _report(session.report())


def _report(report: Report) -> results.ContextBrief:
    return results.ContextBrief(
        session=session_in(report.session),
        model=results.plain(report.model),
        tokens=report.tokens,
        room=report.room,
        utilization=round(report.reading.utilization, 4),
        zone=report.reading.zone,
        turns_until_red=report.reading.turns_until_red,
        messages=report.messages,
        components=tuple(
            results.ComponentBrief(component=one.component, tokens=one.used, limit=one.hard)
            for one in report.components
        ),
        largest=tuple(
            results.HolderBrief(what=one.role or one.what, seq=one.seq, tokens=one.tokens, condition=one.condition)
            for one in report.largest[:_LARGEST]
        ),
        left_messages=report.left_messages,
        left_tokens=report.left_tokens,
        left_first=report.left_first,
        left_last=report.left_last,
        recalled_messages=len(report.recalled),
        summary_tokens=report.summary_tokens,
        notes=report.notes,
        decisions=tuple(map(_decision, report.decisions[:_DECISIONS])),
    )


def decisions(desk: McpContext, given: params.DecisionsParams) -> results.DecisionBriefPage:
    """A page of decisions, newest first."""
    with desk.opened(given.session) as session:
        page = decisions_before(session.window, given.before, limit=given.limit)
        name = session_in(session.key)
    return results.DecisionBriefPage(session=name, decisions=tuple(map(_decision, page.decisions)), next=page.next)


def _decision(one: DecisionSummary) -> results.DecisionBrief:
    return results.DecisionBrief(
        seq=one.seq,
        kind=one.kind,
        when=format_minute(one.ts),
        reason=results.plain(one.reason),
        messages=one.messages,
        freed_tokens=one.frees,
        undone=one.undone,
    )


def transcript(desk: McpContext, session: str, after: int) -> tuple[str, int | None]:
    """A page of the transcript from the entry after one, quoted; and what to give for the next page."""
    with desk.opened(session) as opened:
        found = list(islice(opened.read(after + 1), _ENTRIES + 1))
    following = found[_ENTRIES - 1].seq if len(found) > _ENTRIES else None
    excerpts = [paged(one, most=NEIGHBOUR)[1] for one in found[:_ENTRIES]]
    return render_quotation(excerpts, "" if following is None else f"it goes on after entry {following}"), following
