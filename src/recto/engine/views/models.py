"""What the inspection API answers with: values, how they are written as JSON, and how that JSON is described.

The description of an answer is derived from the value it is made of. Whatever the engine tells as a value goes out as
it is; the ones here are those that only the API has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from recto.context.window.notes import Note
from recto.context.window.pressure import PressureReading
from recto.context.window.report import Compression, DecisionSummary
from recto.continuity.memory.model import Memory
from recto.continuity.memory.proposals import Proposal
from recto.engine.pagination import EntryView
from recto.recall.types import Hit, SearchResult
from recto.transcript.audit import AuditLine
from recto.transcript.entries import Entry
from recto.transcript.session_keys import session_in

SessionKind = Literal["conversation", "memory"]
_LONGEST = 2_000
"""Characters of a hit's text; the entry itself has all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, and what of."""

    name: str
    id: str
    rights: tuple[Literal["ask", "read", "change"], ...]
    tenant: str
    agent: str
    """Its requests belong to sessions that begin with `agent:<agent>:`."""
    main: str
    """The session that a question without any other goes to."""
    model: str
    """The model whose window counts where a request names none."""
    version: str
    """Of the gateway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionListItem:
    """One session of a list."""

    session: str
    kind: SessionKind
    """`memory` holds the decisions about an agent's memory; it is changed through the memory paths alone."""
    entries: int
    first_ts: int
    last_ts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage:
    """Sessions by name."""

    sessions: tuple[SessionListItem, ...]
    next: str | None
    """What to give as `after` for the next page; none where this is the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOverview:
    """One session, in short."""

    session: str
    kind: SessionKind
    entries: int
    first_ts: int
    last_ts: int
    hash: str
    """Of the last entry: the end of the chain."""
    model: str
    """The model whose window it is measured by."""
    reading: PressureReading
    messages: int
    """Messages in the prompt."""
    left_messages: int
    left_tokens: int
    pins: int
    notes: int
    checkpoints: int
    windows: int
    """How often the window was made anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullEntry:
    """An entry, all of it."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptView:
    """A prompt, as it would be sent."""

    wire: str
    tokens: int
    room: int
    fits: bool
    system: tuple[Mapping[str, Any], ...]
    messages: tuple[Mapping[str, Any], ...]
    costs: tuple[int, ...]
    """What each message costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallHit:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallResult:
    """What recall answers."""

    query: str
    scope: Literal["session", "agent", "tenant"]
    searched: int
    behind: int
    without_vectors: int
    notes: tuple[str, ...]
    hits: tuple[RecallHit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PinList:
    """What is kept in the prompt by hand."""

    pins: tuple[EntryView, ...]
    more: bool
    """Whether there are more than are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """The event that a change was stored as."""

    seq: int
    id: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """What a compaction did; nothing where there was too little to be worth it."""

    decisions: tuple[DecisionSummary, ...]
    compressions: tuple[Compression, ...]
    tokens: int
    """What the prompt is now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointListItem:
    """One checkpoint of a list."""

    version: int
    seq: int
    ts: int
    reason: str
    goal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPage:
    """Checkpoints, newest first."""

    checkpoints: tuple[CheckpointListItem, ...]
    next: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCheckpoint:
    """A checkpoint that was written."""

    version: int
    seq: int
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteList:
    """What was written down, oldest first."""

    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """What was done to a session, newest first."""

    lines: tuple[AuditLine, ...]
    next: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryListItem:
    """Something that is remembered."""

    memory: Memory
    strength: float
    approved_by: str
    how: str
    approved: int
    edited: bool
    retired: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPage:
    """What is remembered, by id."""

    agent: str
    memories: tuple[MemoryListItem, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalPage:
    """What waits for a decision, by id. `text` is exactly what would be remembered, `digest` what an approval names."""

    agent: str
    proposals: tuple[Proposal, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalResult:
    """A proposal that became memory."""

    memory: str
    proposal: str
    digest: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDetail:
    """Why a request was refused, and what to do."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorResponse:
    """The answer to a request that was refused."""

    error: ErrorDetail


def recall_hit(hit: Hit) -> RecallHit:
    """A hit as it goes out."""
    return RecallHit(
        pointer=hit.pointer,
        session=session_in(hit.session),
        seq=hit.seq,
        role=hit.role,
        ts=hit.ts,
        text=hit.text[:_LONGEST],
        cut=len(hit.text) > _LONGEST,
        score=hit.score,
        chance=hit.chance,
        parts=hit.parts,
        marks=tuple(str(mark.name).lower() for mark in hit.marks),
        in_prompt=hit.in_prompt,
        superseded_by=hit.superseded_by,
        supersedes=hit.supersedes,
        note=hit.note,
        context=hit.context,
    )


def recall_result(found: SearchResult) -> RecallResult:
    """What was found as it goes out."""
    return RecallResult(
        query=found.query,
        scope=found.scope,
        searched=found.searched,
        behind=found.behind,
        without_vectors=found.without_vectors,
        notes=found.notes,
        hits=tuple(map(recall_hit, found.hits)),
    )


def stored_event(entry: Entry) -> StoredEvent:
    """The event of a change as it goes out."""
    return StoredEvent(seq=entry.seq, id=entry.id, kind=entry.kind)
