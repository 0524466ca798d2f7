"""Result models: what the inspection API, the MCP server, the command line's `--json` and the page return.

Each result is described once, as a frozen dataclass; `codec` derives its JSON, its JSON Schema and its decoder. Values
that the engine has anyway (`Report`, `HealthReport`, `Checkpoint`, `Timeline`, …) are results as they are and have no
model here.

Results for programs carry everything, with times in microseconds since 1970. Results for a model (`Quoted…`, `…Brief`)
are short, with readable times, and carry text of a transcript only inside a quotation, never in a field of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from recto.context.window.budget import PressureReading
from recto.context.window.report import Compression, DecisionSummary, PromptRun
from recto.context.window.state import Note
from recto.continuity.memory.events import Approval
from recto.continuity.memory.manager import Remembered
from recto.continuity.memory.model import Memory, strength
from recto.continuity.memory.proposals import Proposal
from recto.formats import entry_text
from recto.recall.types import Hit, SearchResult, Verdict, format_minute, reasons_in_words, verdict_of
from recto.transcript.audit import AuditLine
from recto.transcript.entries import Entry, SessionSummary
from recto.transcript.session_keys import Scope, is_memory_session, pointer_to, session_in
from recto.transcript.sources import SessionSource

MAX_TEXT = 2_000
"""Characters of a text in a list; the entry itself has all of it."""

SessionKind = Literal["conversation", "memory"]
"""`memory` holds the decisions about an agent's memory; it is changed through the memory paths alone."""

Place = Literal["in", "trimmed", "out", "recalled", "event"]
"""Where a message is now: in the prompt, in it but trimmed, not in it, or not in it but quoted for this turn."""


class SessionListItem(Struct, frozen=True, kw_only=True):
    """One session of a list."""

    session: str
    title: str
    """As a person named it, else the first words of its first user message; empty where there are none."""
    kind: SessionKind
    """`memory` holds the decisions about an agent's memory; it is changed through the memory paths alone."""
    entries: int
    first_ts: int
    last_ts: int
    last: str
    """Day and minute of the last entry, in UTC."""
    agent: str
    """The program that the session comes from, such as `codex`; empty where it is not known."""
    project: str
    """The folder that the program worked in; empty where it is not known."""


class SessionPage(Struct, frozen=True, kw_only=True):
    """Sessions by name."""

    own: str
    """The session that is used where a request names none."""
    sessions: tuple[SessionListItem, ...]
    next: str | None
    """The `after` of the next page; null on the last page."""


class SessionOverview(Struct, frozen=True, kw_only=True):
    """One session, in short."""

    session: str
    title: str
    """As a person named it, else the first words of its first user message; empty where there are none."""
    kind: SessionKind
    entries: int
    first_ts: int
    last_ts: int
    hash: str
    """Hash of the last entry: the end of the chain."""
    model: str
    """The model whose window the prompt is measured by."""
    requested_model: str
    """The model that the client named in its last request; empty before the first one."""
    upstream: str
    """The upstream that answers for this model, such as `embedded`; empty where none does, and without a gateway."""
    reading: PressureReading
    messages: int
    """Messages in the next prompt."""
    left_messages: int
    """Messages that are not in the next prompt: evicted before, or evicted when it is built."""
    left_tokens: int
    pins: int
    notes: int
    checkpoints: int
    windows: int
    """How often a new window was opened."""


class Caller(Struct, frozen=True, kw_only=True):
    """The API key of a request and what it may do."""

    name: str
    id: str
    rights: tuple[Literal["ask", "read", "change", "erase"], ...]
    tenant: str
    agent: str
    """Its requests belong to sessions that begin with `agent:<agent>:`."""
    main: str
    """The session of requests that name none."""
    newest: str
    """The session with the newest entry, if nothing is stored in `main`, as after an import; else empty."""
    model: str
    """The model whose window counts where a request names none."""
    version: str
    """Version of the gateway."""


class KeyItem(Struct, frozen=True, kw_only=True):
    """A key of the gateway, without its secret. A limit of 0 is none."""

    id: str
    name: str
    rights: tuple[Literal["ask", "read", "change", "erase"], ...]
    agent: str
    state: Literal["live", "expired", "revoked"]
    expires: int
    """Microseconds since 1970; 0: never."""
    requests_per_minute: int
    concurrency: int
    tokens_per_day: int
    dollars_per_day: float
    tokens_today: int
    """Used since midnight in UTC; counted only for keys with a daily limit."""
    dollars_today: float
    new_windows: bool | None
    """Whether its requests get the tools for new windows; null: as `gateway.new_windows` says."""


class KeyList(Struct, frozen=True, kw_only=True):
    """The keys of a tenant, oldest first."""

    keys: tuple[KeyItem, ...]


class SettingItem(Struct, frozen=True, kw_only=True):
    """One setting of the gateway, and where its value comes from."""

    key: str
    value: str
    """As YAML; secrets only as `(set)` or `(unset)`."""
    origin: Literal["default", "file", "environment", "argument"]
    where: str
    """The file with its line, or the environment variable; empty for defaults and arguments."""


class SettingList(Struct, frozen=True, kw_only=True):
    """The settings of the gateway; empty for the key of a tenant."""

    settings: tuple[SettingItem, ...]


def session_item(
    summary: SessionSummary, title: str, source: SessionSource | None, session_name: Callable[[str], str] = session_in
) -> SessionListItem:
    """A session as a list shows it."""
    source = source or SessionSource()
    return SessionListItem(
        session=session_name(summary.session),
        title=title,
        kind=session_kind(summary.session),
        entries=summary.entries,
        first_ts=summary.first_ts,
        last_ts=summary.last_ts,
        last=format_minute(summary.last_ts),
        agent=source.agent,
        project=source.project,
    )


def session_page(
    summaries: Sequence[SessionSummary],
    titles: Mapping[str, str],
    sources: Mapping[str, SessionSource],
    *,
    limit: int,
    own: str,
) -> SessionPage:
    """A page of at most `limit` sessions. One summary more than that means that there is another page."""
    items = tuple(
        session_item(summary, titles.get(summary.session, ""), sources.get(summary.session))
        for summary in summaries[:limit]
    )
    return SessionPage(own=own, sessions=items, next=items[-1].session if len(summaries) > limit else None)


def session_kind(key: str) -> SessionKind:
    """What a session holds."""
    return "memory" if is_memory_session(key) else "conversation"


class EntryView(Struct, frozen=True, kw_only=True):
    """An entry on a page."""

    seq: int
    id: str
    ts: int
    role: str
    kind: str
    surface: str
    tokens: int
    text: str
    cut: bool
    """Whether the text goes on; the entry itself has all of it."""
    place: Place
    pinned: bool


class EntryPage(Struct, frozen=True, kw_only=True):
    """Entries in the requested order."""

    entries: tuple[EntryView, ...]
    next: int | None
    """The first entry of the next page; null on the last page."""


class FullEntry(Struct, frozen=True, kw_only=True):
    """An entry, complete."""

    session: str
    seq: int
    id: str
    ts: int
    role: str
    kind: str
    wire: str
    surface: str
    tokens: int
    counter: str
    text: str
    content: str
    """The exact bytes as text."""
    meta: str
    prev: str
    hash: str


class EntryOutline(Struct, frozen=True, kw_only=True):
    """An entry in a list: its size and its first line."""

    pointer: str
    seq: int
    ts: int
    role: str
    kind: str
    tokens: int
    characters: int
    lines: int
    first_line: str


class OutlinePage(Struct, frozen=True, kw_only=True):
    """Entries in the requested order."""

    entries: tuple[EntryOutline, ...]
    next: int | None
    """The first entry of the next page; null on the last page."""


class GrepLine(Struct, frozen=True, kw_only=True):
    """A line of an entry's text; a long one is cut around the match."""

    number: int
    text: str
    matches: bool
    """False for a line around a match."""


class GrepMatch(Struct, frozen=True, kw_only=True):
    """An entry with lines that match."""

    pointer: str
    seq: int
    ts: int
    role: str
    count: int
    """How many of its lines match; the first 50 are listed."""
    lines: tuple[GrepLine, ...]


class GrepPage(Struct, frozen=True, kw_only=True):
    """Entries with lines that match, in the requested order."""

    matches: tuple[GrepMatch, ...]
    searched: int
    """Entries that were searched for this page."""
    next: int | None
    """The entry to go on with; null where nothing is left to search."""


class PinList(Struct, frozen=True, kw_only=True):
    """Pinned messages."""

    pins: tuple[EntryView, ...]
    more: bool
    """Whether there are more than are listed."""


class PromptView(Struct, frozen=True, kw_only=True):
    """A prompt, as it would be sent."""

    wire: str
    tokens: int
    room: int
    fits: bool
    system: tuple[Mapping[str, Any], ...]
    messages: tuple[Mapping[str, Any], ...]
    costs: tuple[int, ...]
    """Tokens of each message."""


def full_entry(entry: Entry, session_name: Callable[[str], str] = session_in) -> FullEntry:
    """An entry with its text and its exact content."""
    return FullEntry(
        session=session_name(entry.session),
        seq=entry.seq,
        id=entry.id,
        ts=entry.ts,
        role=entry.role,
        kind=entry.kind,
        wire=entry.wire,
        surface=entry.surface,
        tokens=entry.tokens,
        counter=entry.counter,
        text=entry_text(entry),
        content=entry.content.decode(errors="replace"),
        meta=entry.meta.decode(errors="replace"),
        prev=entry.prev.hex(),
        hash=entry.hash.hex(),
    )


class RecallHit(Struct, frozen=True, kw_only=True):
    """A message that recall found, and why."""

    pointer: str
    session: str
    seq: int
    role: str
    ts: int
    text: str
    cut: bool
    score: float
    chance: float
    parts: Mapping[str, float]
    marks: tuple[str, ...]
    in_prompt: bool
    superseded_by: int | None
    supersedes: tuple[int, ...]
    note: str
    context: tuple[int, ...]
    reasons: tuple[str, ...]
    """The strongest parts of the score, in words."""
    verdict: Verdict | None
    """What it was judged last."""
    agent: str
    """The program that wrote the session, where that is known and others were searched."""
    project: str
    """The folder in which it worked."""


class RecallResult(Struct, frozen=True, kw_only=True):
    """What recall found, the likeliest first."""

    query: str
    scope: Scope
    searched: int
    behind: int
    without_vectors: int
    notes: tuple[str, ...]
    hits: tuple[RecallHit, ...]


class QuotedHit(Struct, frozen=True, kw_only=True):
    """A message that recall found; its text is in the quotation."""

    pointer: str
    session: str
    seq: int
    role: str
    when: str
    chance: float
    in_prompt: bool
    superseded_by: str | None
    characters: int
    agent: str
    """The program that wrote the session, where that is known."""
    project: str
    """The folder in which it worked."""


class QuotedRecall(Struct, frozen=True, kw_only=True):
    """What recall found, the likeliest first. `next` is what to give as `skip` for more."""

    scope: Scope
    searched: int
    hits: tuple[QuotedHit, ...]
    quotation: str
    notes: tuple[str, ...]
    next: int | None


class TextPage(Struct, frozen=True, kw_only=True):
    """A part of one entry's text."""

    pointer: str
    """The entry."""
    role: str
    when: str
    """Day and minute, in UTC."""
    characters: int
    """Length of the complete text."""
    start: int
    """Where this page begins."""
    next: int | None
    """The `start` of the next page; null on the last page."""


class QuotedEntries(Struct, frozen=True, kw_only=True):
    """An entry, with its neighbours where they were requested."""

    session: str
    pages: tuple[TextPage, ...]
    quotation: str


class OutlineBrief(Struct, frozen=True, kw_only=True):
    """An entry in a list; its first line is in the quotation."""

    pointer: str
    seq: int
    role: str
    when: str
    tokens: int
    characters: int
    lines: int


class QuotedOutline(Struct, frozen=True, kw_only=True):
    """Entries in the requested order. `next` is what to give as `start` for more."""

    session: str
    entries: tuple[OutlineBrief, ...]
    quotation: str
    next: int | None


class GrepBrief(Struct, frozen=True, kw_only=True):
    """An entry with lines that match; the lines are in the quotation."""

    pointer: str
    seq: int
    role: str
    when: str
    count: int
    """How many of its lines match."""


class QuotedGrep(Struct, frozen=True, kw_only=True):
    """Entries with lines that match. `next` is what to give as `start` to search on."""

    session: str
    matches: tuple[GrepBrief, ...]
    searched: int
    quotation: str
    next: int | None


WorkKind = Literal["file", "command", "error", "number"]


class WorkBrief(Struct, frozen=True, kw_only=True):
    """A step, or a line with a number; what it says is in the quotation."""

    pointer: str
    seq: int
    when: str
    what: str
    """Its part in the history: `edit`, `run`, `came`, `followed`, `ended_by`, …"""
    state: str
    """How it ended; empty for what is no step."""
    exit_code: int | None
    version: int | None
    """The version of the file, in the history of one."""


class QuotedWork(Struct, frozen=True, kw_only=True):
    """What was done. `next` is what to give as `before` for older steps."""

    session: str
    kind: WorkKind
    count: int
    """Versions of a file, appearances of an error; else the steps that are listed."""
    state: Literal["", "not_found", "open", "over"]
    """How an error ended; empty for everything else."""
    steps: tuple[WorkBrief, ...]
    quotation: str
    next: int | None


def recall_result(
    result: SearchResult, *, max_text: int | None = MAX_TEXT, session_name: Callable[[str], str] = session_in
) -> RecallResult:
    """A search result, with texts of at most `max_text` characters."""
    return RecallResult(
        query=result.query,
        scope=result.scope,
        searched=result.searched,
        behind=result.behind,
        without_vectors=result.without_vectors,
        notes=result.notes,
        hits=tuple(_recall_hit(hit, result.query, max_text, session_name) for hit in result.hits),
    )


def _recall_hit(hit: Hit, query: str, max_text: int | None, session_name: Callable[[str], str]) -> RecallHit:
    return RecallHit(
        pointer=hit.pointer,
        session=session_name(hit.session),
        seq=hit.seq,
        role=hit.role,
        ts=hit.ts,
        text=hit.text[:max_text],
        cut=max_text is not None and len(hit.text) > max_text,
        score=hit.score,
        chance=hit.chance,
        parts=hit.parts,
        marks=tuple(str(mark.name).lower() for mark in hit.marks),
        in_prompt=hit.in_prompt,
        superseded_by=hit.superseded_by,
        supersedes=hit.supersedes,
        note=hit.note,
        context=hit.context,
        reasons=reasons_in_words(hit.parts, query, hit.text),
        verdict=verdict_of(hit.helpful),
        agent=hit.agent,
        project=hit.project,
    )


def quoted_hit(hit: Hit) -> QuotedHit:
    """A hit without its text."""
    return QuotedHit(
        pointer=hit.pointer,
        session=session_in(hit.session),
        seq=hit.seq,
        role=hit.role,
        when=format_minute(hit.ts),
        chance=round(hit.chance, 4),
        in_prompt=hit.in_prompt,
        superseded_by=None if hit.superseded_by is None else pointer_to(hit.session, hit.superseded_by),
        characters=len(hit.text),
        agent=hit.agent,
        project=hit.project,
    )


class DecisionPage(Struct, frozen=True, kw_only=True):
    """Decisions, newest first."""

    decisions: tuple[DecisionSummary, ...]
    next: int | None


class DecisionBrief(Struct, frozen=True, kw_only=True):
    """What was done to the prompt. The tool 'restore' undoes it by its entry."""

    seq: int
    kind: str
    when: str
    reason: str
    messages: int
    freed_tokens: int
    undone: bool


class DecisionBriefPage(Struct, frozen=True, kw_only=True):
    """Decisions, newest first. `next` is what to give as `before` for older ones."""

    session: str
    decisions: tuple[DecisionBrief, ...]
    before: int | None
    """The entry that the page begins with; null if it is the newest."""
    next: int | None


class ComponentBrief(Struct, frozen=True, kw_only=True):
    """A part of the prompt."""

    component: str
    tokens: int
    limit: int


class HolderBrief(Struct, frozen=True, kw_only=True):
    """Something that holds many tokens of the prompt."""

    what: str
    seq: int | None
    tokens: int
    condition: str


class ContextBrief(Struct, frozen=True, kw_only=True):
    """How full the prompt is now, what the last one was made of, what the next would be and what not."""

    session: str
    model: str
    tokens: int
    room: int
    utilization: float
    zone: Literal["green", "yellow", "orange", "red"]
    turn: int
    turns_until_red: int | None
    messages: int
    components: tuple[ComponentBrief, ...]
    largest: tuple[HolderBrief, ...]
    left_messages: int
    left_tokens: int
    left_first: int
    left_last: int
    tools_left_out: int
    """Tool definitions that are not sent; the model can search for them."""
    tools_left_out_tokens: int
    recalled_messages: int
    summary_tokens: int
    notes: int
    run: PromptRun | None
    """The last prompt that was answered, as it was sent, or the one that was asked for."""
    decisions: tuple[DecisionBrief, ...]
    waiting: int
    """Version of the checkpoint of earlier work that waits to be taken up; 0 without one."""


class AuditPage(Struct, frozen=True, kw_only=True):
    """What was done to a session, newest first."""

    lines: tuple[AuditLine, ...]
    next: int | None


class ForkedSession(Struct, frozen=True, kw_only=True):
    """A session that was begun as a copy of another."""

    session: str
    source: str
    entries: int
    """How many entries were copied."""


class ErasedSession(Struct, frozen=True, kw_only=True):
    """A session that was removed for good, as the record of the erasure names it."""

    session: str
    entries: int
    hash: str
    """Hash of its last entry."""


class ExportPage(Struct, frozen=True, kw_only=True):
    """A part of a session as Recto's JSONL: a file is the lines of all parts, one after the other."""

    lines: tuple[str, ...]
    through: int
    """The last entry of the export; pass it with `from` to get the next part."""
    next: int | None
    """The `from` of the next part; null after the last one."""


class StoredEvent(Struct, frozen=True, kw_only=True):
    """The event that a change was stored as."""

    done: str
    """What was done, in words."""
    session: str
    seq: int
    id: str
    kind: str
    pointer: str


class CompactionResult(Struct, frozen=True, kw_only=True):
    """What a compaction did; empty where there was too little to compact."""

    decisions: tuple[DecisionSummary, ...]
    compressions: tuple[Compression, ...]
    tokens: int
    """Tokens of the prompt now."""


def stored_event(entry: Entry, done: str, session_name: Callable[[str], str] = session_in) -> StoredEvent:
    """The event of a change."""
    return StoredEvent(
        done=done,
        session=session_name(entry.session),
        seq=entry.seq,
        id=entry.id,
        kind=entry.kind,
        pointer=pointer_to(entry.session, entry.seq),
    )


class CheckpointListItem(Struct, frozen=True, kw_only=True):
    """One checkpoint of a list."""

    version: int
    seq: int
    ts: int
    reason: str
    goal: str


class CheckpointPage(Struct, frozen=True, kw_only=True):
    """Checkpoints, newest first."""

    checkpoints: tuple[CheckpointListItem, ...]
    next: int | None


class SavedCheckpoint(Struct, frozen=True, kw_only=True):
    """A checkpoint that was stored."""

    session: str
    version: int
    seq: int
    id: str
    pointer: str


class ResumeResult(Struct, frozen=True, kw_only=True):
    """The state of the work by the newest checkpoint, and what has changed around it since."""

    session: str
    version: int
    window: int
    pointer: str
    page: str
    drift: tuple[str, ...]
    omitted: Mapping[str, int]


class NoteList(Struct, frozen=True, kw_only=True):
    """Notes, oldest first."""

    notes: tuple[Note, ...]


def saved_checkpoint(entry: Entry) -> SavedCheckpoint:
    """A checkpoint by the entry that it was stored as; its key ends with the version."""
    return SavedCheckpoint(
        session=session_in(entry.session),
        version=int((entry.key or "/0").rpartition("/")[2]),
        seq=entry.seq,
        id=entry.id,
        pointer=pointer_to(entry.session, entry.seq),
    )


class MemoryListItem(Struct, frozen=True, kw_only=True):
    """One memory of an agent."""

    memory: Memory
    strength: float
    approved_by: str
    how: str
    approved: int
    edited: bool
    retired: str


class MemoryPage(Struct, frozen=True, kw_only=True):
    """Memories by id."""

    agent: str
    memories: tuple[MemoryListItem, ...]
    next: str | None


class ProposalPage(Struct, frozen=True, kw_only=True):
    """Proposals by id. `text` is exactly what would be remembered; an approval names its `digest`."""

    agent: str
    proposals: tuple[Proposal, ...]
    next: str | None


class ApprovalResult(Struct, frozen=True, kw_only=True):
    """A proposal that became memory."""

    memory: str
    proposal: str
    digest: str
    by: str


def memory_item(remembered: Remembered, now: int) -> MemoryListItem:
    """A memory with its strength at a moment."""
    return MemoryListItem(
        memory=remembered.memory,
        strength=round(strength(remembered.memory, now), 4),
        approved_by=remembered.approved_by,
        how=remembered.how,
        approved=remembered.approved,
        edited=remembered.edited,
        retired=remembered.retired,
    )


def approval_result(approval: Approval) -> ApprovalResult:
    """An approval as it is reported."""
    return ApprovalResult(memory=approval.memory.id, proposal=approval.proposal, digest=approval.digest, by=approval.by)


class ErrorDetail(Struct, frozen=True, kw_only=True):
    """Why a request was refused, and what to do."""

    code: str
    message: str


class ErrorResponse(Struct, frozen=True, kw_only=True):
    """The response to a request that was refused."""

    error: ErrorDetail
