"""Report values: what a prompt consists of, what was evicted or shortened, and what that costs. Screens render them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from recto.context.window.budget import ComponentUsage, PressureReading
from recto.context.window.state import WindowState

PieceKind = Literal[
    "tool",
    "system",
    "file",
    "history",
    "result",
    "recalled",
    "handoff",
    "record",
    "notes",
    "summary",
    "marker",
    "generated",
    "frame",
]
"""What a piece of a prompt is: the schema of a tool, a section of the system text, a standing file, messages of the
user or the assistant, results of a tool, what was recalled or handed over for the question, the parts of the marker
that replaces evicted messages, placeholders that keep the prompt valid, and what the model's template adds."""

PIECES: Mapping[PieceKind, str] = {
    "tool": "tool schema",
    "system": "system text",
    "file": "standing file",
    "history": "messages",
    "result": "tool results",
    "recalled": "recalled",
    "handoff": "handoff",
    "record": "working record",
    "notes": "notes",
    "summary": "summary",
    "marker": "marker",
    "generated": "placeholders",
    "frame": "frame",
}
"""What each kind is called on screens."""


class PromptPiece(Struct, frozen=True, kw_only=True):
    """A piece of a prompt as it was sent."""

    kind: PieceKind
    name: str
    """The tool, the heading, the file or the role; `3 others` for those that are added up; empty if there is none."""
    tokens: int
    raw: int | None = None
    """Of a file: its tokens before it was cut."""


class PromptRun(Struct, frozen=True, kw_only=True):
    """A prompt that was answered: what it was made of when it was sent."""

    seq: int
    """The entry of the answer, by which a run is named."""
    ts: int
    model: str
    window: int
    """The context window of the model."""
    room: int
    """Tokens that the prompt could have."""
    reserve: int
    """Tokens that were kept free for the answer."""
    tokens: int
    """Tokens that were sent: those of all pieces."""
    pieces: tuple[PromptPiece, ...]
    """Largest first; empty for an answer that was stored before pieces were."""
    previous: int | None
    """The run before it; null if there is none near."""


class TokenHolder(Struct, frozen=True, kw_only=True):
    """Something that uses tokens of the prompt."""

    what: str
    """`entry`, or a part of the prompt that is not an entry: `tools`, `frame`."""
    seq: int | None
    role: str
    tools: tuple[str, ...]
    tokens: int
    share: float
    """Share of the prompt's tokens."""
    condition: str
    """`whole`, `shrunk`, or `pinned`."""


class DecisionSummary(Struct, frozen=True, kw_only=True):
    """A decision, as reported."""

    seq: int
    id: str
    ts: int
    kind: str
    policy: str
    reason: str
    messages: int
    """Number of messages evicted or shortened."""
    frees: int
    undone: bool
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Every part of each unit's score, by the unit's first entry; only if requested."""


class RecalledMessage(Struct, frozen=True, kw_only=True):
    """An evicted message quoted in the last prompt."""

    pointer: str
    score: float
    chance: float
    parts: Mapping[str, float]
    superseded_by: int | None


class Compression(Struct, frozen=True, kw_only=True):
    """A compaction, as reported."""

    seq: int
    """The decision."""
    kind: str
    style: str
    engine: str
    """What wrote the text: `extractive`, a model, or `sub-agent`."""
    tokens_from: int
    tokens_to: int
    seconds: float
    picodollars: int
    attempts: tuple[str, ...]
    """Every attempt and its outcome."""
    claims: int
    invented: int
    """Claims that are not in the sources; they were removed."""
    fidelity: float | None
    """Share of the required information that the text contains, from 0 to 1."""
    ledger: float | None
    entities: float | None
    lost: Mapping[str, int]
    """Numbers of paths, numbers, ids and decisions that are no longer readable in the prompt; each is listed in the
    decision with its source entry."""
    undone: bool

    @property
    def ratio(self) -> float:
        """Compression ratio: tokens before over tokens after."""
        return self.tokens_from / max(self.tokens_to, 1)


class CacheEstimate(Struct, frozen=True, kw_only=True):
    """How much of the prompt the provider has already seen as an unchanged prefix."""

    prefix: int
    share: float
    picodollars: int
    """Cost of sending the prompt with that prefix cached."""


class ReliefCandidates(Struct, frozen=True, kw_only=True):
    """What one policy of the next relief would take first, if it began now."""

    policy: str
    action: Literal["evict", "shorten", "clear"]
    """Whether messages would leave, become shorter, or lose their thinking."""
    ranges: tuple[tuple[int, int], ...]
    """Their entries, both ends included."""
    messages: int
    frees: int
    """Tokens that this would free."""


class Report(Struct, frozen=True, kw_only=True):
    """Breakdown of the next prompt of a session, and of the last one that was sent."""

    session: str
    model: str
    window: int
    room: int
    tokens: int
    messages: int
    """Messages of the session in the prompt, not counting markers and summaries."""
    reading: PressureReading
    components: tuple[ComponentUsage, ...]
    largest: tuple[TokenHolder, ...]
    protected_tokens: int
    """Tokens that may not be evicted."""
    left_messages: int
    left_tokens: int
    left_first: int
    left_last: int
    tools_left_out: int
    """Tool definitions that are not sent because they are not used; the model can search for them."""
    tools_left_out_tokens: int
    """Tokens that the prompt saves by that."""
    recalled: tuple[RecalledMessage, ...]
    """Messages recalled automatically for the latest question."""
    recalled_tokens: int
    decisions: tuple[DecisionSummary, ...]
    """The latest decisions, newest first."""
    compressions: tuple[Compression, ...]
    """Those that wrote a text."""
    judged: float | None
    """Agreement of answers from the prompt with answers from the full history, as last judged by a model."""
    marker_tokens: int
    """Tokens of the marker, the notes and the summary, which replace evicted messages."""
    summary_tokens: int
    """Tokens of the summary alone."""
    notes: int
    omitted: tuple[str, ...]
    """Results that are stored but cannot be part of a valid prompt, and why."""
    cache: CacheEstimate | None
    candidates: tuple[ReliefCandidates, ...]
    """What the next relief would take, by policy, from the yellow zone on."""
    run: PromptRun | None
    """The last prompt that was answered, as it was sent, or an earlier one where it was asked for."""


def list_token_holders(state: WindowState, other_tokens: Mapping[str, int], total: int) -> list[TokenHolder]:
    """Everything that uses tokens, largest first. `other_tokens` are parts of the prompt that are not messages."""
    prompt_tokens, shorter = max(total, 1), state.shortened.keys() | state.cleared.keys()
    holders = [
        TokenHolder(
            what="entry",
            seq=seq,
            role=message.role,
            tools=message.tools,
            tokens=state.cost(seq),
            share=state.cost(seq) / prompt_tokens,
            condition="pinned" if seq in state.pins else "shrunk" if seq in shorter else "whole",
        )
        for seq, message in state.messages.items()
    ]
    holders += [
        TokenHolder(
            what=name, seq=None, role="", tools=(), tokens=tokens, share=tokens / prompt_tokens, condition="whole"
        )
        for name, tokens in other_tokens.items()
        if tokens
    ]
    return sorted(holders, key=lambda holder: (-holder.tokens, holder.seq or 0))
