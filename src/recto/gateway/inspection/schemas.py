"""What the inspection API answers with: values, how they are written as JSON, and how that JSON is described.

The description of an answer is derived from the value it is made of. Whatever the engine tells as a value goes out as
it is; the ones here are those that only the API has.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from math import isfinite
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from recto.context.window.notes import Note
from recto.context.window.pressure import PressureReading
from recto.context.window.report import Compression, DecisionSummary
from recto.continuity.memory.model import Memory
from recto.continuity.memory.proposals import Proposal
from recto.engine.pagination import EntryView
from recto.gateway.api_keys import Right
from recto.recall.types import Hit, SearchResult
from recto.transcript.audit import AuditLine
from recto.transcript.entries import Entry
from recto.transcript.session_keys import session_in

Kept = Literal["conversation", "memory"]
_LONGEST = 2_000
"""Characters of a hit's text; the entry itself has all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Who asks, and what of."""

    name: str
    id: str
    rights: tuple[Right, ...]
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
class SessionLine:
    """One session of a list."""

    session: str
    kind: Kept
    """`memory` holds the decisions about an agent's memory; it is changed through the memory paths alone."""
    entries: int
    first_ts: int
    last_ts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage:
    """Sessions by name."""

    sessions: tuple[SessionLine, ...]
    next: str | None
    """What to give as `after` for the next page; none where this is the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionNow:
    """One session, in short."""

    session: str
    kind: Kept
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
class WholeEntry:
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
class PromptNow:
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
class HitLine:
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
class Recalled:
    """What recall answers."""

    query: str
    scope: Literal["session", "agent", "tenant"]
    searched: int
    behind: int
    without_vectors: int
    notes: tuple[str, ...]
    hits: tuple[HitLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """What is kept in the prompt by hand."""

    pins: tuple[EntryView, ...]
    more: bool
    """Whether there are more than are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The event that a change was stored as."""

    seq: int
    id: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What a compaction did; nothing where there was too little to be worth it."""

    decisions: tuple[DecisionSummary, ...]
    compressions: tuple[Compression, ...]
    tokens: int
    """What the prompt is now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointLine:
    """One checkpoint of a list."""

    version: int
    seq: int
    ts: int
    reason: str
    goal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPage:
    """Checkpoints, newest first."""

    checkpoints: tuple[CheckpointLine, ...]
    next: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved:
    """A checkpoint that was written."""

    version: int
    seq: int
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """What was written down, oldest first."""

    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """What was done to a session, newest first."""

    lines: tuple[AuditLine, ...]
    next: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLine:
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
    memories: tuple[MemoryLine, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalPage:
    """What waits for a decision, by id. `text` is exactly what would be remembered, `digest` what an approval names."""

    agent: str
    proposals: tuple[Proposal, ...]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """A proposal that became memory."""

    memory: str
    proposal: str
    digest: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a request was refused, and what to do."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The answer to a request that was refused."""

    error: Problem


def hit_line(hit: Hit) -> HitLine:
    """A hit as it goes out."""
    return HitLine(
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


def recalled(found: SearchResult) -> Recalled:
    """What was found as it goes out."""
    return Recalled(
        query=found.query,
        scope=found.scope,
        searched=found.searched,
        behind=found.behind,
        without_vectors=found.without_vectors,
        notes=found.notes,
        hits=tuple(map(hit_line, found.hits)),
    )


def stored(entry: Entry) -> Stored:
    """The event of a change as it goes out."""
    return Stored(seq=entry.seq, id=entry.id, kind=entry.kind)


def plain(value: object) -> Any:  # noqa: ANN401  # JSON is what it is
    """A value as JSON has it. A number that JSON does not have is none."""
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(held) for name, held in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else None
    return str(value)


def schema_of(kind: Any, into: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401  # a type or a special form
    """The JSON Schema of a type. Values that have a name are described once, in `into`."""
    if is_dataclass(kind) and isinstance(kind, type):
        if kind.__name__ not in into:
            into[kind.__name__] = {}  # its place, where it holds itself
            into[kind.__name__] = _object(kind, into)
        return {"$ref": f"#/components/schemas/{kind.__name__}"}
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"type": "string", "enum": list(parts)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(part, into) for part in parts]}
    if origin is tuple and parts[-1:] == (...,):
        return {"type": "array", "items": schema_of(parts[0], into)}
    if origin is tuple:
        return {
            "type": "array",
            "prefixItems": [schema_of(part, into) for part in parts],
            "minItems": len(parts),
            "maxItems": len(parts),
        }
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(parts[1], into)}
    return dict(_PLAIN[kind])


_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    types.NoneType: {"type": "null"},
    Any: {},
}


def _object(kind: type, into: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    properties = {one.name: schema_of(hints[one.name], into) for one in fields(kind)}
    return {
        "type": "object",
        "description": " ".join((kind.__doc__ or "").split()),
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
