"""What one prompt is made of, what is not in it, and what that costs. Values only: screens draw them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from recto.context.window.budget import ComponentUsage
from recto.context.window.pressure import PressureReading
from recto.context.window.state import WindowState


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenHolder:
    """Something that holds tokens of the prompt."""

    what: str
    """`entry`, or the part of the prompt that is none: `tools`, `frame`."""
    seq: int | None
    role: str
    tools: tuple[str, ...]
    tokens: int
    share: float
    """Of the prompt."""
    condition: str
    """`whole`, `shrunk`, or `pinned`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSummary:
    """A decision, as it is told."""

    seq: int
    id: str
    ts: int
    kind: str
    policy: str
    reason: str
    messages: int
    """How many messages left or shrank."""
    frees: int
    undone: bool
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """For each unit that was weighed, by its first entry, every part of its score; only where it was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledMessage:
    """A message that had left and was quoted in the last prompt."""

    pointer: str
    score: float
    chance: float
    parts: Mapping[str, float]
    superseded_by: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression:
    """How content became shorter, as it is told."""

    seq: int
    """The decision."""
    kind: str
    style: str
    engine: str
    """Who wrote it: `extractive`, a model, or `sub-agent`."""
    tokens_from: int
    tokens_to: int
    seconds: float
    picodollars: int
    attempts: tuple[str, ...]
    """Every try, and what came of it."""
    claims: int
    invented: int
    """What was written that is not in its sources; it was taken out."""
    fidelity: float | None
    """How much of what must not be lost stands in what was written, from 0 to 1."""
    ledger: float | None
    entities: float | None
    lost: Mapping[str, int]
    """How many paths, numbers, ids and decisions can no longer be read in the prompt; each is in the decision, with
    the entry where it lives."""
    undone: bool

    @property
    def ratio(self) -> float:
        """How many times shorter it became."""
        return self.tokens_from / max(self.tokens_to, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEstimate:
    """How much of the prompt a provider has seen before, unchanged from its beginning."""

    prefix: int
    share: float
    picodollars: int
    """What sending it would cost with that prefix cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One prompt, taken apart."""

    session: str
    model: str
    window: int
    room: int
    tokens: int
    messages: int
    """Messages of the session that are in it; what is said in place of others is none."""
    reading: PressureReading
    components: tuple[ComponentUsage, ...]
    largest: tuple[TokenHolder, ...]
    protected_tokens: int
    """What may not leave."""
    left_messages: int
    left_tokens: int
    left_first: int
    left_last: int
    recalled: tuple[RecalledMessage, ...]
    """What came back for the latest question, by itself."""
    recalled_tokens: int
    decisions: tuple[DecisionSummary, ...]
    """The latest ones, newest first."""
    compressions: tuple[Compression, ...]
    """Those of them that wrote something."""
    judged: float | None
    """How far a model found answers from the prompt to agree with answers from everything, when it was last asked."""
    marker_tokens: int
    """What is said in place of what left: that it left, the notes, and the summary."""
    summary_tokens: int
    """The summary alone."""
    notes: int
    omitted: tuple[str, ...]
    """Results that stand in the transcript but could not stand in a valid prompt, and why."""
    cache: CacheEstimate | None


def holders_of(state: WindowState, beside: Mapping[str, int], total: int) -> list[TokenHolder]:
    """Everything that holds tokens, the largest first. `beside` is what is not a message."""
    whole = max(total, 1)
    found = [
        TokenHolder(
            what="entry",
            seq=seq,
            role=line.role,
            tools=line.tools,
            tokens=state.cost(seq),
            share=state.cost(seq) / whole,
            condition="pinned" if seq in state.pins else "shrunk" if seq in state.shrunk else "whole",
        )
        for seq, line in state.lines.items()
    ]
    found += [
        TokenHolder(what=name, seq=None, role="", tools=(), tokens=tokens, share=tokens / whole, condition="whole")
        for name, tokens in beside.items()
        if tokens
    ]
    return sorted(found, key=lambda holder: (-holder.tokens, holder.seq or 0))
