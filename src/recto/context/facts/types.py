"""Messages as compression reads them, and what it keeps of them: facts, files, and text in their place. Values only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntFlag
from typing import Literal

from recto.formats import read
from recto.formats.message import Message
from recto.transcript.entries import MESSAGE, Entry, Role

FactKind = Literal[
    "constraint", "preference", "correction", "decision", "approval", "obligation", "question", "error", "progress"
]
"""`obligation`: something promised or left to do. `question`: one that has no answer yet. `progress`: a task and how
far it is."""
Level = Literal["full", "key_points", "one_line", "title"]
"""How much is left of an exchange, from all of it to its name."""


class Mark(IntFlag):
    """What kind of thing a message says, told by rule. Kept with the index, so its bits never change their meaning."""

    NONE = 0
    CORRECTION = 1
    """Takes back or replaces something said before."""
    CONSTRAINT = 2
    """What must, must not, always or never be done."""
    DECISION = 4
    PREFERENCE = 8
    QUESTION = 16
    ERROR = 32
    """Carries an error message or a failure."""
    CRITICAL = 64
    """Says of itself that it is important or must be remembered."""
    EVERGREEN = 128
    """Does not age: names, birthdays, standing facts about a person or a project."""
    SECRET = 256
    """Holds something that looks like a key or a password."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call: the tool, and its arguments as JSON."""

    tool: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView:
    """One message."""

    seq: int
    role: Role
    text: str
    """What was said, or a tool's output; thinking is not in it."""
    calls: tuple[ToolCall, ...] = ()
    """The calls it makes; for a tool's result, the call it answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that must not be lost, in the words in which it was said."""

    kind: FactKind
    text: str
    """Verbatim, a sentence or a line of its source."""
    seq: int
    """The entry it stands in."""
    role: Role
    open: bool = True
    """Whether it still counts: not superseded, not answered, not solved, not done."""
    superseded_by: int | None = None
    """The entry that took it back."""
    about: str = ""
    """What tells whether it still counts: the call that failed, the state of a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkedFile:
    """A file that was worked with."""

    path: str
    reads: int
    edits: int
    last: int
    """The entry in which it was last touched."""
    last_read: int = 0
    """The entry with its newest content; 0 where it was never shown."""


_SAID = ("text", "result")


class MessageViewReader:
    """Reads messages in their order, and remembers the calls that results answer."""

    def __init__(self) -> None:
        self._calls: dict[str, ToolCall] = {}

    def tell(self, seq: int, message: Message) -> MessageView:
        """One message."""
        made = {part.call_id: ToolCall(part.name, part.text) for part in message.calls}
        self._calls |= made
        answered = (self._calls.get(part.call_id) for part in message.results)
        return MessageView(
            seq=seq,
            role=message.role,
            text="\n".join(part.text for part in message.parts if part.kind in _SAID),
            calls=(*made.values(), *(call for call in answered if call is not None)),
        )


def told_in(entries: Iterable[Entry]) -> list[MessageView]:
    """The messages among stored entries."""
    teller = MessageViewReader()
    return [teller.tell(entry.seq, read(entry.content, entry.wire)) for entry in entries if entry.kind == MESSAGE]
