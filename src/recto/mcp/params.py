"""Parameters of the MCP tools: validated as they come in, and described for the model that fills them in."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from recto.context.window.state import MAX_NOTE_CHARS, NoteKind, NoteLevel
from recto.engine.transcript_search import MAX_CONTEXT
from recto.text.line_pattern import MAX_PATTERN_CHARS
from recto.transcript.entries import MAX_SEQ

MAX_SKIP = 40
_Seq = Annotated[int, Field(ge=1, le=MAX_SEQ)]
_Text = Annotated[str, Field(min_length=1, max_length=2_000)]
_Texts = Annotated[tuple[_Text, ...], Field(max_length=50)]


class _Params(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class SessionsParams(_Params):
    """A page of the list of sessions."""

    after: Annotated[str, Field(max_length=256)] = ""
    """Begin after the session with this name."""
    limit: Annotated[int, Field(ge=1, le=100)] = 50
    """How many at most."""


class _SessionParams(_Params):
    session: Annotated[str, Field(max_length=256)] = ""
    """The session, as the tool 'sessions' names it. Leave it out for the usual one; while that is empty, the newest is
    read, and 'recall' searches all of them."""


class RecallParams(_SessionParams):
    """A question to everything that was ever said."""

    query: Annotated[str, Field(min_length=1, max_length=4_000)]
    """What to look for: a question, names, words, or a time such as 'last Tuesday'."""
    most: Annotated[int, Field(ge=1, le=20)] = 6
    """How many messages at most."""
    skip: Annotated[int, Field(ge=0, le=MAX_SKIP)] = 0
    """How many of the likeliest to pass over; for more of the same question."""
    scope: Literal["session", "agent", "tenant"] | None = None
    """How far to search: this session, all sessions of its agent, or all there are."""
    project: Annotated[str, Field(max_length=1_000)] = ""
    """Search the sessions of all agents and sub-agents in this project: its folder, as an absolute path."""
    agent: Annotated[str, Field(max_length=64)] = ""
    """Search the sessions of this program: claude-code, codex, opencode, pi, …"""


class ReadParams(_Params):
    """An entry by its pointer."""

    pointer: Annotated[str, Field(min_length=1, max_length=300)]
    """As in recalled text and in placeholders: recto://agent:default:main/57; or the number of an entry of the usual
    session."""
    start: Annotated[int, Field(ge=0, le=10**9)] = 0
    """Where to go on reading a long entry: the 'next' of the page before."""
    around: Annotated[int, Field(ge=0, le=3)] = 0
    """How many entries before and after it to show the beginning of."""
    through: _Seq | None = None
    """The number of the last entry of a range that begins at the pointer; of up to 20 entries the beginnings."""


class OutlineParams(_SessionParams):
    """A page of the list of entries."""

    start: _Seq | None = None
    """The entry to begin with; without it, the first, or the newest."""
    limit: Annotated[int, Field(ge=1, le=100)] = 50
    """How many at most."""
    newest_first: bool = False
    """Go back from there instead of forward."""


class GrepParams(_SessionParams):
    """A text to search the lines of messages for."""

    pattern: Annotated[str, Field(min_length=1, max_length=MAX_PATTERN_CHARS)]
    """The text, or a regular expression."""
    regex: bool = False
    """The pattern is a regular expression, without back-references and look-around."""
    case: bool = False
    """Case matters."""
    context: Annotated[int, Field(ge=0, le=MAX_CONTEXT)] = 0
    """Lines before and after a match."""
    start: _Seq | None = None
    """The entry to begin with; without it, the newest, or the first."""
    newest_first: bool = True
    """Go back from there instead of forward."""
    limit: Annotated[int, Field(ge=1, le=100)] = 30
    """How many matching lines, nearly."""


class WorkParams(_SessionParams):
    """A question about what was done: exactly one of file, command, error and number."""

    file: Annotated[str, Field(max_length=300)] = ""
    """A path or a file name: who read, edited, created or deleted it, when and why."""
    command: Annotated[str, Field(max_length=500)] = ""
    """A command or a part of it: its runs, how they ended, and what made it pass."""
    error: Annotated[str, Field(max_length=500)] = ""
    """An error message or a part of it: where it came from, what followed, how it ended."""
    number: Annotated[str, Field(max_length=500)] = ""
    """Words of a line: the numbers with units in it."""
    limit: Annotated[int, Field(ge=1, le=50)] = 10
    """How many at most."""
    before: _Seq | None = None
    """Only what is before this entry; for older pages."""


class NoteParams(_SessionParams):
    """Something to write down."""

    text: Annotated[str, Field(min_length=1, max_length=MAX_NOTE_CHARS)]
    """The note: one thing, in a sentence or two."""
    kind: NoteKind = "misc"
    """What it is about."""
    level: NoteLevel = "normal"
    """How important it is: notes of a higher level are shown first and kept longest."""
    critical: bool = False
    """The same as the level `critical`."""


class JudgeParams(_SessionParams):
    """A recalled message, and whether it helped."""

    pointer: Annotated[str, Field(min_length=1, max_length=300)]
    """As it is written in recalled text: recto://agent:default:main/57."""
    verdict: Literal["helpful", "not_helpful", "withdrawn"]
    """`withdrawn` takes an earlier verdict back."""


class PinParams(_SessionParams):
    """Messages by number."""

    entries: Annotated[tuple[_Seq, ...], Field(min_length=1, max_length=100)]
    """Numbers of messages: the last part of their pointers."""


class CheckpointParams(_SessionParams):
    """The state of the work; what is left out is filled in from what is known."""

    goal: Annotated[str, Field(max_length=4_000)] = ""
    """What all of it is for."""
    success_criteria: _Texts = ()
    """When it is done."""
    plan: _Texts = ()
    """Subtasks that are planned."""
    doing: _Texts = ()
    """Subtasks that are worked on."""
    done: _Texts = ()
    """Subtasks that are done."""
    issues: _Texts = ()
    """What is broken."""
    solved: _Texts = ()
    """Issues that are over."""
    decisions: _Texts = ()
    """What was decided."""
    learnings: _Texts = ()
    """What should not have to be found out again."""
    expect: Annotated[int, Field(ge=0, le=MAX_SEQ)] | None = None
    """The newest version; if it is another by now, nothing is written."""


class ResumeParams(_SessionParams):
    """A session to go on with."""


class ReportParams(_SessionParams):
    """A session whose prompt is taken apart."""

    run: _Seq | None = None
    """The entry of an answer: its prompt as it was sent; without it, the last one."""


class DecisionsParams(_SessionParams):
    """A page of decisions."""

    before: _Seq | None = None
    """Begin with this entry, going back; without it, with the newest."""
    limit: Annotated[int, Field(ge=1, le=50)] = 20
    """How many at most."""


class RestoreParams(_SessionParams):
    """A decision to undo."""

    decision: _Seq
    """The entry of the decision, as the tool 'decisions' names it."""
