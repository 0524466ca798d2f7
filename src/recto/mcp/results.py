"""What the tools of the MCP server answer with: values for programs, and the same in words for whoever reads.

Text of a transcript stands only in what is quoted: in `quotation` and `page`, never in a field of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from recto.mcp.pagination import TextPage
from recto.text.secrets import mask_secrets
from recto.text.unicode import one_line, prompt_safe

_LONGEST = 300
"""Characters of a name or a reason."""


class McpResult(Protocol):
    """An answer."""

    def words(self) -> str:
        """For whoever reads."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLine:
    """One session."""

    session: str
    kind: Literal["conversation", "memory"]
    entries: int
    last: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage:
    """Sessions by name. `own` is the one that is meant where none is named."""

    own: str
    sessions: tuple[SessionLine, ...]
    next: str | None

    def words(self) -> str:
        """One line a session."""
        lines = [f"{plain(one.session)}: {one.entries:,} entries, last {one.last}" for one in self.sessions]
        lines += [f"(there are more; ask with after={plain(self.next)})"] if self.next else []
        return "\n".join((*lines, f"Without a name, {plain(self.own)} is meant."))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotedHit:
    """A message that was found. What it says is quoted."""

    pointer: str
    session: str
    seq: int
    role: str
    when: str
    chance: float
    in_prompt: bool
    superseded_by: str | None
    characters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotedRecall:
    """What recall found, the likeliest first. `next` is what to give as `skip` for more."""

    scope: Literal["session", "agent", "tenant"]
    searched: int
    hits: tuple[QuotedHit, ...]
    quotation: str
    notes: tuple[str, ...]
    next: int | None

    def words(self) -> str:
        """The quotation, and what must be known of the search."""
        if not self.hits:
            return "\n".join((f"Nothing was found among {self.searched:,} entries.", *map(plain, self.notes)))
        return "\n".join((self.quotation, *map(plain, self.notes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotedEntries:
    """An entry, with those around it where that was asked for."""

    session: str
    pages: tuple[TextPage, ...]
    quotation: str

    def words(self) -> str:
        """The quotation."""
        return self.quotation


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The event that a change was stored as."""

    done: str
    session: str
    seq: int
    pointer: str

    def words(self) -> str:
        """What was done."""
        return f"{self.done} It is entry {self.seq} of session {plain(self.session)}."


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved:
    """A checkpoint that was written."""

    session: str
    version: int
    seq: int
    pointer: str

    def words(self) -> str:
        """Which, and where."""
        where = f"entry {self.seq} of session {plain(self.session)}"
        return f"Checkpoint {self.version} is written: {where}. The tool 'resume' tells where the work stands."


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeResult:
    """Where the work stands by the newest checkpoint, and what has changed around it since."""

    session: str
    version: int
    window: int
    pointer: str
    page: str
    drift: tuple[str, ...]
    omitted: Mapping[str, int]

    def words(self) -> str:
        """The page."""
        return self.page


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentBrief:
    """A part of the prompt."""

    component: str
    tokens: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderBrief:
    """Something that holds many tokens of the prompt."""

    what: str
    seq: int | None
    tokens: int
    condition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionBrief:
    """What was done to the prompt. The tool 'restore' undoes it by its entry."""

    seq: int
    kind: str
    when: str
    reason: str
    messages: int
    freed_tokens: int
    undone: bool

    def words(self) -> str:
        """On one line."""
        undone = " (undone)" if self.undone else ""
        what = f"{self.messages:,} messages, {self.freed_tokens:,} tokens"
        return f"entry {self.seq}, {self.when}: {self.kind}{undone}: {what}: {plain(self.reason)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionBriefPage:
    """Decisions, newest first. `next` is what to give as `before` for older ones."""

    session: str
    decisions: tuple[DecisionBrief, ...]
    next: int | None

    def words(self) -> str:
        """One line a decision."""
        lines = [one.words() for one in self.decisions] or ["Nothing has been decided here."]
        return "\n".join((*lines, *([f"(there may be more; ask with before={self.next})"] if self.next else ())))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBrief:
    """What the next prompt would be made of, and what would not be in it."""

    session: str
    model: str
    tokens: int
    room: int
    utilization: float
    zone: Literal["green", "yellow", "orange", "red"]
    turns_until_red: int | None
    messages: int
    components: tuple[ComponentBrief, ...]
    largest: tuple[HolderBrief, ...]
    left_messages: int
    left_tokens: int
    left_first: int
    left_last: int
    recalled_messages: int
    summary_tokens: int
    notes: int
    decisions: tuple[DecisionBrief, ...]

    def words(self) -> str:
        """A few lines."""
        lines = [
            f"{self.tokens:,} of {self.room:,} tokens ({self.utilization:.0%}), zone {self.zone}, "
            f"{self.messages:,} messages for {plain(self.model) or 'an unknown model'}"
        ]
        lines += [f"{one.component}: {one.tokens:,} of {one.limit:,}" for one in self.components if one.tokens]
        if self.left_messages:
            where = f"entries {self.left_first} to {self.left_last}"
            lines.append(f"{self.left_messages:,} messages have left ({where}); the tool 'recall' finds them")
        if self.turns_until_red is not None:
            lines.append(f"turns until red: {self.turns_until_red}")
        lines += [f"notes: {self.notes:,}"] if self.notes else []
        lines += [f"holds {one.tokens:,}: {one.what} {one.seq or ''}".rstrip() for one in self.largest[:5]]
        return "\n".join((*lines, *(one.words() for one in self.decisions)))


def plain(text: str) -> str:
    """A name or a short text on one line, with nothing in it that hides or acts."""
    return one_line(mask_secrets(prompt_safe(text)), _LONGEST)
