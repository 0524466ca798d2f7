"""Values of fact extraction: message views, facts, worked-on files, levels and classification marks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntFlag
from typing import Literal, NamedTuple

from recto.context.facts.text_protocol import command_in, looks_like_output
from recto.formats import read
from recto.formats.message import Message
from recto.transcript.entries import MESSAGE, Entry, Role

FactKind = Literal[
    "constraint",
    "instruction",
    "preference",
    "correction",
    "decision",
    "approval",
    "deferral",
    "circumstance",
    "obligation",
    "question",
    "error",
    "progress",
]
"""`constraint`: what is forbidden or limited. `approval`: what is allowed. `deferral`: what the user left open or wants
to be asked about. `circumstance`: what the user states about themselves and their environment. `obligation`: something
promised or still to do. `question`: one without an answer yet. `progress`: a task and its status."""
Level = Literal["full", "key_points", "one_line", "title"]
"""How much remains of an exchange, from all of it to its title."""


class Mark(IntFlag):
    """What kind of statement a message makes, detected by rule. Stored with the index: bits never change their
    meaning."""

    NONE = 0
    CORRECTION = 1
    """Retracts or replaces an earlier statement."""
    CONSTRAINT = 2
    """What must, must not, always or never be done."""
    DECISION = 4
    PREFERENCE = 8
    QUESTION = 16
    ERROR = 32
    """Contains an error message or a failure."""
    CRITICAL = 64
    """States that it is important or must be remembered."""
    EVERGREEN = 128
    """Does not age: names, birthdays, permanent facts about a person or a project."""
    SECRET = 256
    """Contains something that looks like a key or a password."""


class ToolCall(NamedTuple):
    """A tool call: the tool, and its arguments as JSON."""

    tool: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView:
    """One message, as fact extraction and compaction read it."""

    seq: int
    role: Role
    text: str
    """Message text or tool output, without thinking."""
    calls: tuple[ToolCall, ...] = ()
    """The calls it makes; for a tool result, the call it answers."""
    typed: str = ""
    """What a user typed in the same message as a tool result, as after an interrupt; part of `text`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that must not be lost, in its original words."""

    kind: FactKind
    text: str
    """Verbatim: a sentence or a line of its source."""
    seq: int
    """The source entry."""
    role: Role
    open: bool = True
    """Whether it still holds: not superseded, answered, resolved or done."""
    superseded_by: int | None = None
    """The entry that superseded it."""
    about: str = ""
    """What decides whether it still holds: the failed call, the status of a task; for a question, its options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkedFile:
    """A file the agent worked with."""

    path: str
    reads: int
    edits: int
    last: int
    """The entry in which it was last used."""
    last_read: int = 0
    """The entry with its newest content; 0 if it was never shown."""


class MessageViewReader:
    """Reads messages in order and remembers the calls that results answer.

    A command written as text is a call, and the user message that holds its output is a tool result.
    """

    def __init__(self) -> None:
        self._calls: dict[str, ToolCall] = {}
        self._command: ToolCall | None = None
        """The command that the last message wrote as text."""

    def view(self, seq: int, message: Message) -> MessageView:
        """The view of one message."""
        calls: dict[str, ToolCall] = {}
        results: list[str] = []
        texts: list[str] = []
        for part in message.parts:
            if part.kind == "call":
                calls[part.call_id] = self._calls[part.call_id] = ToolCall(part.name, part.text)
            elif part.kind == "text":
                texts.append(part.text)
            elif part.kind == "result":
                texts.append(part.text)
                results.append(part.call_id)
        answered = [call for id in results if (call := self._calls.get(id)) is not None]
        text = texts[0] if len(texts) == 1 else "\n".join(texts)
        typed = "\n".join(part.text for part in message.parts if part.kind == "text") if message.role == "tool" else ""
        role, before, self._command = message.role, self._command, None
        if role == "user" and before is not None and not results and looks_like_output(text):
            role, answered = "tool", [before]
        elif role == "assistant" and not calls and (command := command_in(text)):
            self._command = ToolCall("bash", json.dumps({"command": command}))
            return MessageView(seq=seq, role=role, text=text, calls=(self._command,))
        return MessageView(seq=seq, role=role, text=text, calls=(*calls.values(), *answered), typed=typed)


def message_views(entries: Iterable[Entry]) -> list[MessageView]:
    """Views of the messages among stored entries."""
    reader = MessageViewReader()
    return [reader.view(entry.seq, read(entry.content, entry.wire)) for entry in entries if entry.kind == MESSAGE]
