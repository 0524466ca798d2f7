"""What a client asks the server to do with its context, in neutral types: edits of the prompt, and compaction.

Providers offer this as a request member. The gateway serves it itself for upstreams that lack it; each format says how
the member is read and how the result is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from recto.formats.json_spans import Json

MEMBER: Final = "context_management"
"""The member of a request body, in every format that has one."""
COMPACTED: Final = "recto:"
"""Prefix of the opaque content of a compaction that was made here; the id it is recorded under follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedPrompt:
    """The messages of a prompt, as edits change them."""

    messages: tuple[bytes, ...]
    tokens: int
    """Tokens of the whole prompt, with its tools and system text."""
    cost: Callable[[bytes], int]
    """Counts the tokens of a message."""
    pointer: Callable[[str], str]
    """Returns where the transcript holds the result of a call; empty if it is not known."""


class ContextEdit(Protocol):
    """One edit of a prompt. It is pure: the transcript keeps what it removes."""

    def apply(self, prompt: EditedPrompt) -> tuple[EditedPrompt, dict[str, Json] | None]:
        """Returns the prompt without what the edit removes, and what the response reports about it, if anything."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPlan:
    """What one request asks for. An empty plan asks for nothing, and is still reported."""

    edits: tuple[ContextEdit, ...] = ()
    """In the order in which they are applied."""
    compact_at: int | None = None
    """Tokens of the prompt from which on the history is compacted; None: never."""
    pauses: bool = False
    """Whether the response ends with the compaction."""
    focus: str = ""
    """Instructions for the summary."""


@dataclass(slots=True, kw_only=True)
class ContextReport:
    """What was done for a request; its response says so."""

    edits: list[Json] = field(default_factory=list)
    compaction: dict[str, Json] | None = None
    """The item or block that represents the history up to the response."""


def edited(prompt: EditedPrompt, edits: Sequence[ContextEdit]) -> tuple[tuple[bytes, ...], list[Json]]:
    """Applies edits. Returns the messages, and a report of each edit that removed something."""
    applied: list[Json] = []
    for edit in edits:
        prompt, about = edit.apply(prompt)
        if about is not None:
            applied.append(about)
    return prompt.messages, applied
