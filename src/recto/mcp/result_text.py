"""Renders the results of tools as text for the model: the same as the structured result, in words."""

from __future__ import annotations

from collections.abc import Iterator

from recto.engine.views.models import (
    ContextBrief,
    DecisionBrief,
    DecisionBriefPage,
    QuotedEntries,
    QuotedGrep,
    QuotedOutline,
    QuotedRecall,
    QuotedWork,
    ResumeResult,
    SavedCheckpoint,
    SessionPage,
    StoredEvent,
)
from recto.text.secrets import mask_secrets
from recto.text.unicode import one_line, prompt_safe

_MAX_NAME = 300
"""Characters of a name or a reason."""

ToolResult = (
    SessionPage
    | QuotedRecall
    | QuotedEntries
    | QuotedOutline
    | QuotedGrep
    | QuotedWork
    | StoredEvent
    | SavedCheckpoint
    | ResumeResult
    | ContextBrief
    | DecisionBriefPage
)


def render(result: ToolResult) -> str:
    """The text of a result."""
    match result:
        case QuotedEntries():
            return result.quotation
        case QuotedOutline():
            return _with_more(
                result.quotation or "There are no entries.", "there are more; ask with start", result.next
            )
        case QuotedGrep():
            found = result.quotation or f"No line matches in {result.searched:,} entries."
            return _with_more(found, "there is more to search; ask with start", result.next)
        case QuotedWork():
            found = result.quotation or "Nothing of the kind was done here."
            return _with_more(found, "for older entries ask with before", result.next)
        case ResumeResult():
            return result.page
        case StoredEvent():
            return f"{result.done} It is entry {result.seq} of session {clean(result.session)}."
        case SavedCheckpoint():
            where = f"entry {result.seq} of session {clean(result.session)}"
            return f"Checkpoint {result.version} is written: {where}. The tool 'resume' shows the state of the work."
        case QuotedRecall():
            found = result.quotation if result.hits else f"Nothing was found among {result.searched:,} entries."
            if not result.hits and result.scope == "session":
                found += " Only this session was searched; with scope 'tenant' all sessions are."
            return "\n".join((found, *map(clean, result.notes)))
        case SessionPage():
            return "\n".join(_session_lines(result))
        case DecisionBriefPage():
            return "\n".join(_decision_lines(result))
        case ContextBrief():
            return "\n".join(_context_lines(result))


def _with_more(text: str, hint: str, value: int | None) -> str:
    return text if value is None else f"{text}\n({hint}={value})"


def clean(text: str) -> str:
    """A name or a short text on one line, without control characters and secrets."""
    return one_line(mask_secrets(prompt_safe(text)), _MAX_NAME)


def _session_lines(page: SessionPage) -> Iterator[str]:
    for item in page.sessions:
        project = f" in {clean(item.project)}" if item.project else ""
        source = f", {clean(item.agent)}{project}" if item.agent else ""
        title = f'"{clean(item.title)}", ' if item.title else ""
        entries = "1 entry" if item.entries == 1 else f"{item.entries:,} entries"
        yield f"{clean(item.session)}: {title}{entries}, last {item.last}{source}"
    if page.next:
        yield f"(there are more; ask with after={clean(page.next)})"
    yield f"Without a name, {clean(page.own)} is meant."


def _decision_lines(page: DecisionBriefPage) -> Iterator[str]:
    if not page.decisions:
        before = "" if page.before is None else f" up to entry {page.before}"
        yield f"Nothing has been decided in session {clean(page.session)}{before}."
    else:
        yield f"Decisions of session {clean(page.session)}:"
    yield from map(_decision_line, page.decisions)
    if page.next:
        yield f"(there may be more; ask with before={page.next})"


def _decision_line(decision: DecisionBrief) -> str:
    undone = " (undone)" if decision.undone else ""
    size = f"{decision.messages:,} messages, {decision.freed_tokens:,} tokens"
    return f"entry {decision.seq}, {decision.when}: {decision.kind}{undone}: {size}: {clean(decision.reason)}"


def _context_lines(brief: ContextBrief) -> Iterator[str]:
    yield f"Session {clean(brief.session)}:"
    yield (
        f"{brief.tokens:,} of {brief.room:,} tokens ({brief.utilization:.0%}), zone {brief.zone}, "
        f"{brief.messages:,} messages for {clean(brief.model) or 'an unknown model'}"
    )
    for part in brief.components:
        if part.tokens:
            yield f"{part.component}: {part.tokens:,} of {part.limit:,}"
    if brief.left_messages:
        where = f"entries {brief.left_first} to {brief.left_last}"
        yield f"{brief.left_messages:,} messages have left ({where}); the tool 'recall' finds them"
    if brief.tools_left_out:
        yield f"tools left out: {brief.tools_left_out:,}, {brief.tools_left_out_tokens:,} tokens"
    if brief.turns_until_red is not None:
        yield f"turns until red: {brief.turns_until_red}"
    if brief.notes:
        yield f"notes: {brief.notes:,}"
    if brief.waiting:
        yield f"checkpoint {brief.waiting} of earlier work waits; the tool 'resume' says where it is"
    for holder in brief.largest[:5]:
        yield f"holds {holder.tokens:,}: {holder.what} {holder.seq or ''}".rstrip()
    if brief.run is not None:
        yield f"the prompt before entry {brief.run.seq}:"
        yield from (f"{piece.name or piece.kind}: {piece.tokens:,}" for piece in brief.run.pieces)
    yield from map(_decision_line, brief.decisions)
