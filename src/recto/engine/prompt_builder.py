"""Builds prompts: the exact bytes of the messages in the window, what they cost, and the list that is sent.

`MessageCache` holds the messages of the window by entry number. `PromptBuilder` is a value: the cache together with
everything else a prompt contains (`PromptExtras`). The live window of a session and the stateless `fit` share both.
Neither makes decisions: the state says which lines are in the prompt, the policies say what should be evicted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from typing import Any, Literal, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from recto.context.facts.statements import own_lines
from recto.context.facts.types import MessageView, MessageViewReader, command_in, looks_like_output
from recto.context.window.budget import BudgetWarning, PressureReading, may_warn, read_warning
from recto.context.window.report import PieceKind, PromptPiece
from recto.context.window.state import (
    MAX_NOTES_CHARS,
    Protection,
    UnitSplit,
    WindowState,
    in_flight,
    new_notes,
    ranges_of,
    render_notes,
    seqs_in,
    split_units,
)
from recto.context.window.units import EntryVectors, PolicyView, ToolResult, WindowMessage
from recto.engine.composition import (
    MessageTally,
    SentTally,
    folded,
    pieces_of,
    section_pieces,
    system_pieces,
    with_less,
)
from recto.errors import InputError, WindowOverflow
from recto.formats import DEFAULT_FORMAT, format_named, read
from recto.formats.arrangement import Arrangement, KeepSome, begins_part, missing_results
from recto.formats.cache_control import cache_marks, newest_marks, with_cache_mark
from recto.formats.json_spans import Json
from recto.formats.message import (
    CACHE_MARKS,
    MEDIUM_BYTES,
    SHORT_BYTES,
    Media,
    Message,
    Part,
    content_blocks,
    copied,
    fields_of,
    media_in,
    whole_characters,
    with_placeholders,
    without_empty_calls,
)
from recto.formats.prompt_layout import LaidLine, LaidNote, LaidOut, PromptLayout
from recto.formats.tool_calls import ToolCallIds
from recto.health.metrics import call_fingerprint
from recto.recall.types import Hit
from recto.text.truncation import clamp
from recto.tokens.media_limits import MediaLimits, media_limits, surplus_media
from recto.tokens.meter import Meter
from recto.tokens.model_card import ModelCard
from recto.transcript.entries import Entry, Role

MARKER = -1
"""The number of the marker line that says what was evicted; entries count from 1."""
RECALLED = -2
"""The number of the message that quotes what was recalled for this prompt."""
HANDOFF = -3
"""The number of the message with the handoff from before the last compaction."""
NEW_NOTES = -10
"""The number of the first message with new notes; further ones count down."""
_MARKS = tuple(name.encode() for name in CACHE_MARKS)
_STEPS_ABOVE = 3
"""Steps of the turn before that are between recalled text and the question, at most."""
_MARKER_LINE = WindowMessage(seq=MARKER, id="", role="user", tokens=0)
_NOTE_CHARS = 2_400
"""Characters of notes in a prompt."""
NOTES_HEADING = "[Notes written down on the way, for reference; a number in parentheses is the entry of a note:]"
RECORD_HEADING = "[Working record of what is not shown, for reference; a number in parentheses is an entry:]"
"""The line before the working record in a prompt."""
_MERGED_HEADING = "[Of these, some are said again below, where they are shown; numbers are entries:]"
_MAX_MERGED_LINES, _MAX_RANGES = 12, 6
"""Lines for messages that are said again, and ranges in one of them."""
_OTHER_RESULT = "[Left out as well: the entry that the other result names has it, too.]"
_SMALL_RESULT_CHARS = 120
"""Characters of a result that stays beside a shortened one: a line in its place would cost about as much."""


class BuiltPrompt(Struct, frozen=True, kw_only=True):
    """A prompt as it is sent."""

    wire: str
    messages: tuple[bytes, ...]
    system: tuple[bytes, ...]
    """System messages that are sent outside the list, where the format wants them there."""
    costs: tuple[int, ...]
    """What each message costs, in order."""
    spent: int
    """What all of them cost."""
    tokens: int
    """What is sent: messages, system, tools and the frame."""
    arrangement: Arrangement


class TurnNote(Struct, frozen=True, kw_only=True):
    """A text that Recto puts behind a question for as long as its turn lasts."""

    question: int
    text: str
    tokens: int


class PromptExtras(Struct, frozen=True, kw_only=True):
    """What a prompt contains besides the messages of the session. Numbers are tokens."""

    frame: int = 0
    """The fixed cost of any prompt."""
    tools: int = 0
    """Tool schemas."""
    system: int = 0
    """Text that the caller sends outside the messages."""
    answer: int = 0
    """What is kept free for an answer that may be longer than the output reserve."""
    foreword: str = ""
    """System text before everything else that is no message of the session."""
    files: tuple[PromptPiece, ...] = ()
    """The files that it was made of."""
    digest: int = 0
    """Critical memory in it."""
    pieces: tuple[PromptPiece, ...] = ()
    """The tool schemas, by tool, and the system text, by section."""
    recalled: TurnNote | None = None
    """What was recalled for the turn in flight."""
    handoff: TurnNote | None = None
    """The handoff from before the last compaction, for the turn after it."""

    @property
    def costs(self) -> tuple[int, int, int, int]:
        """The tokens of the frame, the tools, the system text and the answer."""
        return self.frame, self.tools, self.system, self.answer

    def costing(self, frame: int, tools: int, system: int, answer: int) -> PromptExtras:
        """The same extras with other `costs`."""
        return replace(self, frame=frame, tools=tools, system=system, answer=answer)

    @property
    def sent(self) -> int:
        """What all of it costs that is sent and does not depend on the state."""
        return self.frame + self.tools + self.system

    @property
    def fixed(self) -> int:
        """What all of it takes of the input budget that does not depend on the state."""
        return self.sent + self.answer


_PartPlayed = Literal["", "runs", "output", "injected", "typed"]
"""What a message is besides its role: see `WindowMessage`."""


class _Traits(NamedTuple):
    """What follows from the bytes of a message alone."""

    role: Role
    calls: tuple[str, ...]
    """Not every call of a message: some tools the provider runs and answers itself."""
    answers: tuple[str, ...]
    tools: tuple[str, ...]
    leads: bool
    cache_marked: bool
    media: tuple[Media, ...]
    part: _PartPlayed
    """Whether it is the output of a command depends on the message before it."""
    may_warn: bool
    """Whether it can contain a warning about the model's window."""
    escapes: bool
    """Whether characters of its text may be written as escapes."""
    is_bound: bool
    """Whether only its own format can express it."""
    has_empty_calls: bool
    """Whether it has a list of tool calls, and nothing in it."""


def _traits_of(raw: bytes, wire: str, knows_parts: bool, message: Message | None) -> _Traits:
    """The traits of a message; remembered as long as the parsed message is, for sessions that are opened again."""
    if len(raw) <= SHORT_BYTES:
        return _short_traits(raw, wire, knows_parts)
    if len(raw) <= MEDIUM_BYTES:
        return _medium_traits(raw, wire, knows_parts)
    return _find_traits(raw, wire, knows_parts, message)


def _find_traits(raw: bytes, wire: str, knows_parts: bool, message: Message | None = None) -> _Traits:
    validation, fields = format_named(wire).validation, fields_of(raw)
    if message is None:
        message = read(raw, wire)
    tied = validation.tool_call_ids(fields)
    tools: tuple[str, ...] = ()
    if tied.calls or tied.answers:
        names = {part.call_id: part.name for part in message.parts if part.kind in ("call", "result")}
        tools = tuple([names.get(call, "") for call in (*tied.calls, *tied.answers)])
    return _Traits(
        role=message.role,
        calls=tied.calls,
        answers=tied.answers,
        tools=tools,
        leads=validation.leads_on(fields),
        cache_marked=b"cache_" in raw and any(map(raw.__contains__, _MARKS)),
        media=media_in(raw),
        part=_part_played(message) if knows_parts else "",
        may_warn=may_warn(raw),
        escapes=b"\\u" in raw,
        is_bound=wire != DEFAULT_FORMAT.name or _is_bound_to_default(fields, tied),
        has_empty_calls=fields.get("tool_calls") == [],
    )


def _is_bound_to_default(fields: Mapping[str, Json], tied: ToolCallIds) -> bool:
    """Whether a message of the default format has calls, results or content that other formats write differently."""
    return bool(tied.calls or tied.answers) or any(map(DEFAULT_FORMAT.messages.is_own_block, content_blocks(fields)))


_short_traits = lru_cache(maxsize=16_384)(_find_traits)
_medium_traits = lru_cache(maxsize=1024)(_find_traits)


def _part_played(message: Message) -> _PartPlayed:
    text = _typed_text(message)
    if not text:
        return ""
    if message.role == "assistant" and not message.calls and command_in(text):
        return "runs"
    if message.role == "tool" and any(own_lines(text)):
        return "typed"
    is_plain = sum(part.kind != "other" for part in message.parts) == 1  # Codex adds metadata to its own texts
    if message.role == "user" and is_plain and not any(map(str.strip, own_lines(text))):
        return "injected"
    return ""


@lru_cache(maxsize=8)
def _bytes_of_mark(mark: str) -> bytes | None:
    """What is in every message whose text contains a mark and has no escapes; `None` if there is no mark."""
    if not mark:
        return None
    return mark.encode() if mark.isidentifier() else b""


@lru_cache(maxsize=8)
def _note_message(text: str, wire: str) -> bytes:
    """A note as a message; every prompt of its turn contains it."""
    return format_named(wire).text_message("user", text)


def _trim(raw: bytes, wire: str, text: str) -> bytes:
    """A message with its results replaced by a text; a message without results becomes that text."""
    message, format = read(raw, wire), format_named(wire)
    if results := message.results:
        main = _largest_first(results)[0].call_id
        replaced = [part.call_id for part in results if part.call_id != main and not _stays(part, message)]
        return format.edits.with_results(raw, dict.fromkeys(replaced, _OTHER_RESULT) | {main: text})
    return format.text_message(message.role if message.role in ("system", "assistant") else "user", text)


def _largest_first(results: Sequence[Part]) -> list[Part]:
    """Results of one message: what replaces them is written in place of the largest, and names its call."""
    return sorted(results, key=lambda part: -len(part.text))


def _stays(result: Part, message: Message) -> bool:
    """Whether a result is as short as the line that would replace it. Which one has an image is not known."""
    has_media = any(part.kind in ("image", "media") for part in message.parts)
    return not has_media and not result.weight and len(result.text) <= _SMALL_RESULT_CHARS


_trimmed = lru_cache(maxsize=1024)(_trim)


_MAX_LINES, _MAX_LINE_CHARS = 2048, 400
"""Generated lines whose tokens are remembered, and the characters of each."""


class MessageCache(Struct, kw_only=True):
    """The messages that are in the window, by entry number, and what was derived from them."""

    meter: Meter
    pointer_of: Callable[[int], str]
    """Where the full text of an entry can be read."""
    mark: str = ""
    """A message whose text contains this is never evicted."""
    goal: str = ""
    """The task that a program stated; empty: the first message of the user is the task."""
    knows_parts: bool = True
    """Whether outputs of commands written as text and injected text are distinguished from words of the user."""
    raws: dict[int, bytes] = field(default_factory=dict)
    wires: dict[int, str] = field(default_factory=dict)
    cache_marked: set[int] = field(default_factory=set)
    """Messages that carry cache marks."""
    media: dict[int, tuple[Media, ...]] = field(default_factory=dict)
    """Images, documents and audio of the messages that carry any."""
    _costs: dict[tuple[str, str, str], int] = field(default_factory=dict)
    _line_costs: dict[str, int] = field(default_factory=dict)
    """What lines of records and summaries cost. The next relief writes most of them again."""
    _placeholders: dict[int, tuple[tuple[int, ...], bytes, int]] = field(default_factory=dict)
    """For each message with media that are not sent: which, the message without them, and what it costs."""
    _trimmed: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    """For each message with results: the text that last replaced them, and the message with it."""
    _trimmed_costs: dict[int, tuple[str, int]] = field(default_factory=dict)
    """For each of these: the text, and what the message costs with it. A plan and the decision both ask for it."""
    _without_thinking: dict[int, bytes | None] = field(default_factory=dict)
    _calls: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """The ids of the calls of messages that make any."""
    _callers: dict[str, set[int]] = field(default_factory=dict)
    """For each id of a call: the messages that make it. Ids may be reused."""
    _call_marks: dict[int, dict[str, str]] = field(default_factory=dict)
    """The calls of messages by id: the mark by which the same call is recognised when it is made again."""
    _layout: PromptLayout | None = None
    """The last prompt, arranged and rendered: the next one mostly adds to its end."""
    _basis: object = None
    """What determines the bytes of its messages besides their numbers."""
    _laid_from: list[int] | None = None
    """The lines that it was made of; a list that only grows."""
    _order: _LineOrder | None = None
    """The order of the lines of the last prompt."""
    _outputs: dict[int, int] = field(default_factory=dict)
    """User messages that hold the output of a command written as text, and the message with that command."""
    _command: int = 0
    """The last message that was added, if it writes a command as text."""
    _marker_pieces: tuple[str, list[PromptPiece]] = "", []
    """The text of the last marker, and what it is made of."""
    _sent: SentTally | None = None
    """What the last prompt consists of whose messages are not sent as they are."""
    _units: tuple[tuple[object, ...], UnitSplit] | None = None
    """The units of the state that was last divided, and what they depend on."""

    def take(
        self,
        seq: int,
        id: str,
        raw: bytes,
        wire: str,
        tokens: int | None = None,
        message: Message | None = None,
        role: Role | None = None,
    ) -> WindowMessage:
        """Adds a message and returns its line for the state. What is known of it already need not be parsed."""
        traits = _traits_of(raw, wire, self.knows_parts, message)
        sent = whole_characters(raw) if traits.escapes else raw
        self.raws[seq], self.wires[seq] = without_empty_calls(sent) if traits.has_empty_calls else sent, wire
        if traits.cache_marked:
            self.cache_marked.add(seq)
        if traits.media:
            self.media[seq] = traits.media
        if traits.calls:
            self._calls[seq] = traits.calls
            for call in traits.calls:
                self._callers.setdefault(call, set()).add(seq)
        part: _PartPlayed = traits.part
        command, self._command = self._command, seq if part == "runs" else 0
        if command and traits.role == "user" and looks_like_output(_typed_text(message or read(raw, wire))):
            self._outputs[seq] = command
        if seq in self._outputs:
            part = "output"
        marked = self._may_be_marked(raw, traits.escapes) and self.mark in (message or read(raw, wire)).text
        warning = self._warning(raw, wire, message) if part != "output" and traits.may_warn else None
        if tokens is None:
            tokens = self.meter.message(message or read(raw, wire))
        # Without the names of its fields, which take longer than the rest: opening a session makes a thousand.
        return WindowMessage(
            seq,
            id,
            traits.role if role is None else role,
            tokens,
            traits.calls,
            traits.answers,
            traits.tools,
            marked,
            wire if traits.is_bound else "",
            traits.leads,
            part == "runs",
            part == "output",
            part == "injected",
            part == "typed",
            warning,
        )

    @contextmanager
    def taking_again(self) -> Iterator[None]:
        """Messages that are taken meanwhile return to the window: the newest one is the same as before."""
        command, self._command = self._command, 0
        try:
            yield
        finally:
            self._command = command

    @staticmethod
    def _warning(raw: bytes, wire: str, message: Message | None) -> BudgetWarning | None:
        """What a message says about the model's window. Tool output and answers that quote a warning do not count."""
        parsed = message or read(raw, wire)
        return None if parsed.role == "assistant" else read_warning(_typed_text(parsed))

    def _may_be_marked(self, raw: bytes, escapes: bool) -> bool:
        """Whether a message can contain the mark: most cannot, by their bytes, and their text need not be searched."""
        sought = _bytes_of_mark(self.mark)
        return sought is not None and (escapes or sought in raw)

    def sent_tally(self, wire: str) -> SentTally:
        """What the messages of the last prompt in this format cost, by what they are."""
        if self._sent is None or self._sent.wire != wire:
            self._sent = SentTally(self.meter, wire)
        return self._sent

    def forget(self, seqs: Iterable[int]) -> None:
        """Drops messages that were evicted."""
        for seq in seqs:
            self.raws.pop(seq, None)
            self.wires.pop(seq, None)
            self._trimmed.pop(seq, None)
            self._trimmed_costs.pop(seq, None)
            self._without_thinking.pop(seq, None)
            self.cache_marked.discard(seq)
            self._call_marks.pop(seq, None)
            for call in set(self._calls.pop(seq, ())):  # an id may be there twice
                self._callers[call].discard(seq)
                if not self._callers[call]:
                    del self._callers[call]
            self._outputs.pop(seq, None)
            self.media.pop(seq, None)
            self._placeholders.pop(seq, None)

    @property
    def size(self) -> int:
        """Bytes of all messages."""
        return sum(map(len, list(self.raws.values())))

    def message(self, seq: int) -> Message:
        """A message, parsed."""
        return read(self.raws[seq], self.wires[seq])

    def count(self, text: str) -> int:
        """Tokens of a generated text. Those of short ones are remembered."""
        if len(text) > _MAX_LINE_CHARS:
            return self.meter.count(text)
        tokens = self._line_costs.get(text)
        if tokens is None:
            if len(self._line_costs) >= _MAX_LINES:
                self._line_costs.clear()
            tokens = self._line_costs[text] = self.meter.count(text)
        return tokens

    def text_of(self, seq: int) -> str:
        """The text of a message."""
        return self.message(seq).text

    def goal_of(self, state: WindowState) -> str:
        """The task as a program stated it, else the text of the first one, where it is still in the window."""
        return self.goal or (self.text_of(state.task_seq) if state.task_seq in self.raws else "")

    def views(self, seqs: Iterable[int]) -> list[MessageView]:
        """Messages as compaction reads them, in the given order."""
        reader = MessageViewReader()
        return [reader.view(seq, self.message(seq)) for seq in seqs]

    def units(self, state: WindowState, protection: Protection) -> UnitSplit:
        """The units of a state. A plan asks again after results were shortened, which divides nothing differently."""
        spared = state.task_seq, state.question, state.answered, frozenset(state.pins), protection
        basis = state.members, len(state.messages), state.seq, spared
        if self._units is None or self._units[0] != basis:
            self._units = basis, split_units(state, protection)
        return self._units[1]

    def result_of(self, state: WindowState, seq: int) -> ToolResult:
        """The call and the output of a message that carries tool results."""
        results = self.message(seq).results
        if seq in self._outputs:
            command = self._outputs[seq]
            arguments = command_in(self.text_of(command)) if command in self.raws else ""
            return ToolResult(tool="", arguments=arguments, output=self.text_of(seq))
        ordered = _largest_first(results)
        output = "\n".join(part.text for part in ordered)
        for call_id in dict.fromkeys(part.call_id for part in ordered):
            callers = [caller for caller in self._callers.get(call_id, ()) if caller in state.messages]
            if callers:
                # Calls of every step may have the same ids, as from some servers: a result answers the nearest.
                caller = max((caller for caller in callers if caller < seq), default=min(callers))
                call = next(part for part in self.message(caller).calls if part.call_id == call_id)
                failed = any(part.failed for part in ordered if part.call_id == call_id)
                return ToolResult(tool=call.name, arguments=call.text, output=output, failed=failed)
        name = next((part.name for part in results if part.name), "")
        return ToolResult(tool=name, arguments="", output=output)

    def newest_cache_mark(self, seqs: Sequence[int]) -> str:
        """The cache mark of the last of these messages that carries one."""
        for seq in reversed(seqs):
            if seq in self.cache_marked and (marks := cache_marks(self.raws[seq], self.wires[seq])):
                return marks[-1].decode()
        return ""

    def calls_lost(self, before: WindowState, after: WindowState, touched: Iterable[int]) -> list[str]:
        """The marks of calls that are no longer complete in the prompt once these entries are evicted or trimmed."""
        marks = {
            call: mark
            for seq, line in before.messages.items()
            if line.calls
            for call, mark in self._marks_of_calls(seq).items()
        }
        trimmed = {call for seq in after.shortened if seq in after.messages for call in after.messages[seq].answers}
        complete = {marks.get(call) for line in after.messages.values() for call in line.calls if call not in trimmed}
        lines = [before.messages[seq] for seq in touched if seq in before.messages]
        lost = {marks[call] for line in lines for call in (*line.calls, *line.answers) if call in marks}
        return sorted(lost - complete)

    def cost_with(self, seq: int, text: str) -> int:
        """What a message costs when its results are replaced by a text."""
        known = self._trimmed_costs.get(seq)
        if known is None or known[0] != text:
            known = text, self.meter.message(read(self.trimmed(seq, text), self.wires[seq]))
            self._trimmed_costs[seq] = known
        return known[1]

    def cost_of_text(self, text: str, wire: str) -> int:
        """What a user message with this text costs."""
        return self.cost_of_generated("marker", "", wire) + self.count(text)

    def cost_of_generated(self, kind: str, text: str, wire: str) -> int:
        """What a message costs that Recto generates; cached, because the same ones recur in every prompt."""
        key = (kind, text, wire)
        if key not in self._costs:
            format = format_named(wire)
            if kind in ("marker", "foreword"):
                raw = format.text_message("user" if kind == "marker" else "system", text)
            else:
                raw = format.edits.result_message(text, text, "[No result yet: the call is still running.]")
            if len(self._costs) > 1000:
                self._costs.clear()
            self._costs[key] = self.meter.message(read(raw, wire))
        return self._costs[key]

    def synthetic_cost(self, missing: Iterable[tuple[str, str]], wire: str) -> int:
        """What the results cost that are synthesised for calls: their ids, and their tools."""
        return sum([self.cost_of_generated("answer", call_id + tool, wire) for call_id, tool in missing])

    def marker_pieces(self, state: WindowState, marker: str, cost: int) -> list[PromptPiece]:
        """What the marker is made of: the record, the notes, the summary, and the line that says what was evicted."""
        if self._marker_pieces[0] != marker:
            texts: tuple[tuple[PieceKind, str], ...] = (
                ("record", f"{RECORD_HEADING}\n{state.record.text}" if state.record and state.record.text else ""),
                ("notes", "\n".join(render_notes(state.shown_notes, _NOTE_CHARS))),
                ("summary", state.summary.text if state.summary else ""),
            )
            counted = [(kind, self.meter.count(text)) for kind, text in texts if text]
            pieces = [PromptPiece(kind=kind, name="", tokens=tokens) for kind, tokens in counted]
            rest = cost - sum(tokens for _, tokens in counted)
            self._marker_pieces = marker, [*pieces, PromptPiece(kind="marker", name="", tokens=rest)]
        return self._marker_pieces[1]

    def clamp_text(self, seq: int, tokens: int) -> str:
        """Head and tail of a message's results, or of its text, in about so many tokens."""
        message = self.message(seq)
        output = "\n".join(part.text for part in message.results)
        # A template may quote results, which takes more tokens: count them as the message will be counted.
        count = self.meter.result_text if output else self.meter.count
        return clamp(output or message.text, tokens, count, self.pointer_of(seq))

    def trimmed(self, seq: int, text: str) -> bytes:
        """A message with its results replaced by a text; a message without results becomes that text."""
        known = self._trimmed.get(seq)
        if known is not None and known[0] == text:
            return known[1]
        trim = _trimmed if len(self.raws[seq]) <= MEDIUM_BYTES else _trim
        raw = trim(self.raws[seq], self.wires[seq], text)
        self._trimmed[seq] = text, raw
        return raw

    def without_thinking(self, seq: int) -> bytes | None:
        """A message without its thinking; None where nothing else is in it."""
        if seq not in self._without_thinking:
            self._without_thinking[seq] = format_named(self.wires[seq]).edits.without_thinking(self.raws[seq])
        return self._without_thinking[seq]

    def without_old_thinking(self, seq: int) -> bytes | None:
        """A message of an earlier turn without its thinking; None where nothing else is in it."""
        return format_named(self.wires[seq]).edits.without_old_thinking(self.raws[seq])

    def old_thinking(self, state: WindowState, turns: int) -> dict[int, int]:
        """Messages before the last so many questions that have thinking, and what each costs without it.

        What was pinned, marked or shortened stays as it is. Thinking that is an item of its own stays if the provider
        knows what it led to by an id: it refuses the one without the other.
        """
        questions = [line.seq for line in state.messages.values() if line.acts_as == "user" and not line.is_injected]
        if len(questions) < turns:
            return {}
        spared = state.pins | state.kept | state.shortened.keys() | state.cleared.keys() | self.media.keys()
        old = [line for line in state.messages.values() if line.seq < questions[-turns]]
        found: dict[int, int] = {}
        led_by_id = False
        for line in reversed(old):
            if line.role != "assistant":
                led_by_id = False
                continue
            raw, wire = self.raws[line.seq], self.wires[line.seq]
            if line.seq not in spared and any(part.kind == "thinking" for part in self.message(line.seq).parts):
                rest = self.without_old_thinking(line.seq)
                if rest is not None and rest != raw:
                    found[line.seq] = self.meter.message(read(rest, wire))
                elif rest is None and line.leads and not led_by_id:
                    found[line.seq] = 0
            led_by_id = led_by_id or ("id" in fields_of(raw) and not line.leads)
        return found

    def without_media(self, seq: int, places: tuple[int, ...]) -> tuple[bytes, int]:
        """A message with a line of text in place of some of its media, and what it costs."""
        known = self._placeholders.get(seq)
        if known is None or known[0] != places:
            texts = {place: _media_line(self.media[seq][place], self.pointer_of(seq)) for place in places}
            raw = with_placeholders(self.raws[seq], texts)
            known = places, raw, self.meter.message(read(raw, self.wires[seq]))
            self._placeholders[seq] = known
        return known[1:]

    def layout(self, lines: PromptLines) -> PromptLayout:
        """The layout of a prompt. Of the last one, everything before the first difference is kept."""
        layout = self.grown_layout(lines)
        if layout is None:
            layout, laid = self._layout or self._new_layout(lines.wire), lines.laid_all(lines.seqs)
            layout.extend(laid[layout.keep(laid) :])
            self._basis, self._laid_from = lines.basis, lines.seqs
        return layout

    def grown_layout(self, lines: PromptLines) -> PromptLayout | None:
        """The layout of a prompt that adds nothing but messages at the end of the last one; None for any other."""
        if self._layout is None or self._layout.wire != lines.wire:
            self._layout, self._basis, self._laid_from = self._new_layout(lines.wire), lines.basis, lines.seqs
        known = len(self._layout.seqs)
        if self._basis != lines.basis:
            return None
        if self._laid_from is not lines.seqs:  # the same list has only grown
            if lines.seqs[:known] != self._layout.seqs:
                return None
            self._laid_from = lines.seqs
        if known < len(lines.seqs):
            self._layout.extend(lines.laid_all(lines.seqs[known:]))
        return self._layout

    def order_of(self, state: WindowState, wire: str, marker_of: Callable[[WindowState], str]) -> _LineOrder:
        """The order of the lines of a prompt: that of the last one, with the messages appended since, or a new one."""
        order = self._order
        if order is None or not order.is_of(state, wire, marker_of):
            order = self._order = _LineOrder(state, wire, marker_of, self)
        order.extend(state)
        return order

    def _new_layout(self, wire: str) -> PromptLayout:
        return PromptLayout(wire, lambda raw: self.meter.message(read(raw, wire)))

    def _marks_of_calls(self, seq: int) -> dict[str, str]:
        if seq not in self._call_marks:
            calls = self.message(seq).calls
            self._call_marks[seq] = {part.call_id: call_fingerprint(part.name, part.text) for part in calls}
        return self._call_marks[seq]


class _LineOrder:
    """The lines of a prompt in order, with the marker where the gap is. Extended with the messages that are appended.

    Rebuilt after an edit, which shows in `WindowState.edit`.
    """

    def __init__(
        self,
        state: WindowState,
        wire: str,
        marker_of: Callable[[WindowState], str],
        messages: MessageCache,
    ) -> None:
        self.wire = wire
        self.seqs: list[int] = []
        self.apart: list[int] = []
        self.marker, self.marker_cost = "", 0
        self.shortened = dict(state.shortened)
        self.cleared = frozenset(state.cleared)
        self._edit = state.edit
        self._marker_of = marker_of
        self._behind = _marker_place(state)
        self._system_apart = format_named(wire).system_apart
        self._messages = messages
        self._tally, self._untallied = MessageTally(messages.meter), list[WindowMessage]()
        self._count = 0
        """How many messages of the state are among the lines."""
        self.extend(state)
        if has_marker(state):
            self.marker = marker_of(state)
            self.marker_cost = messages.cost_of_generated("marker", self.marker, wire)
            place = next((at for at, seq in enumerate(self.seqs) if seq > self._behind), len(self.seqs))
            self.seqs.insert(place, MARKER)

    def is_of(self, state: WindowState, wire: str, marker_of: Callable[[WindowState], str]) -> bool:
        """Whether a prompt of this state differs only in messages that were appended."""
        return (
            self._edit is state.edit
            and self.wire == wire
            and self._marker_of == marker_of
            and self._behind == _marker_place(state)
            and self._count <= len(state.messages)
        )

    def extend(self, state: WindowState) -> None:
        """Adds the messages of a state that are not among the lines yet."""
        new = list(islice(reversed(state.messages.values()), len(state.messages) - self._count))
        self._count = len(state.messages)
        for line in reversed(new):
            (self.apart if self._system_apart and line.role == "system" else self.seqs).append(line.seq)
            self._untallied.append(line)

    def tally(self, state: WindowState) -> MessageTally:
        """What the messages cost, by what they are. A state that a plan is made on is never asked for it."""
        for line in self._untallied:
            self._tally.add(line, state.cost(line.seq), partial(self._messages.message, line.seq))
        self._untallied.clear()
        return self._tally


def _marker_place(state: WindowState) -> int:
    """The entry behind which the marker is placed.

    The record follows the task where only results were shortened: steps are evicted from there on.
    """
    return state.first_evicted or state.task_seq


class PromptLines(Struct, frozen=True, kw_only=True):
    """What a prompt is laid out from: its lines in order, and what determines their bytes."""

    wire: str
    seqs: list[int]
    """The entries, and the marker. Shared: do not modify it."""
    apart: list[int]
    """System messages that are sent outside the list."""
    marker: str
    marker_cost: int
    unbound: frozenset[int]
    """Messages that are sent without their thinking."""
    surplus: Mapping[int, tuple[int, ...]]
    """Media that are not sent because the provider would refuse the request, by message: their places in it."""
    basis: tuple[object, ...]
    """What determines the bytes of the lines besides their numbers."""
    state: WindowState
    messages: MessageCache

    def laid_all(self, seqs: Sequence[int]) -> list[LaidLine]:
        """Lines, with their bytes and what they cost. Nearly all are messages as they are."""
        messages, raws = self.state.messages, self.messages.raws
        edited = {MARKER, *self.unbound, *self.surplus, *self.state.cleared, *self.state.shortened}
        return [
            self.laid(seq) if seq in edited else LaidLine(line := messages[seq], raws[seq], line.tokens) for seq in seqs
        ]

    def laid(self, seq: int) -> LaidLine:
        """A line, with its bytes and what they cost."""
        if seq == MARKER:
            raw = format_named(self.wire).text_message("user", self.marker)
            if self.state.cache_mark:
                raw = with_cache_mark(raw, self.wire, self.state.cache_mark.encode())
            return LaidLine(_MARKER_LINE, raw, self.marker_cost)
        line, shortened = self.state.messages[seq], self.state.shortened.get(seq)
        if seq in self.unbound:
            return LaidLine(line, self.messages.without_thinking(seq), None)
        if seq in self.surplus:
            return LaidLine(line, *self.messages.without_media(seq, self.surplus[seq]))
        if shortened is None and seq in self.state.cleared:
            return LaidLine(line, self.messages.without_old_thinking(seq), self.state.cleared[seq])
        if shortened is None:
            return LaidLine(line, self.messages.raws[seq], line.tokens)
        return LaidLine(line, self.messages.trimmed(seq, shortened.text), shortened.tokens)


class PromptBuilder(Struct, frozen=True, kw_only=True):
    """Measures and builds the prompts of states, with the same extras in each."""

    messages: MessageCache
    marker_of: Callable[[WindowState], str]
    """The text that replaces evicted messages."""
    extras: PromptExtras = field(default_factory=PromptExtras)
    input_budget: int = 0
    """Tokens a prompt may have; 0 if unknown."""
    usual_wire: str = DEFAULT_FORMAT.name
    """The wire format of a prompt whose messages are valid in every format."""
    binds_thinking: bool = False
    """Whether the provider refuses thinking once anything before it was edited."""
    vectors_of: Callable[[Collection[int], str], EntryVectors] = lambda seqs, goal: EntryVectors()
    """Reads the vectors of messages and of a goal for the policies that ask for them."""
    card: ModelCard | None = None
    """The model whose provider limits images, documents and audio; None: the limits of the wire format apply."""

    def using(self, *, handoff: TurnNote | None = None, recalled: TurnNote | None = None) -> PromptBuilder:
        """The same builder with other notes behind the question."""
        if handoff == self.extras.handoff and recalled == self.extras.recalled:
            return self
        return replace(self, extras=replace(self.extras, handoff=handoff, recalled=recalled))

    def wire_of(self, state: WindowState) -> str:
        """The format in which all messages can be sent; plain text messages are the same in all."""
        wires = {*state.wires, state.wire} if state.wire else set(state.wires)
        if len(wires) > 1:
            raise InputError(
                f"this prompt mixes {' and '.join(sorted(wires))}; one list cannot hold both. "
                "Continue in another session, or append all messages in one format"
            )
        return wires.pop() if wires else self.usual_wire

    def prompt_tokens(self, state: WindowState, lines: PromptLines | None = None) -> int:
        """What the prompt of a state costs at most, with everything that is generated for it.

        `lines` are those of the state, where they are known already.
        """
        extras, lines = self.extras, lines or self.lines(state)
        layout = self.messages.grown_layout(lines)
        # A state that a plan is made on is not laid out: only its calls without a result are needed.
        missing = (
            [(result.call_id, result.tool) for result in layout.missing()]
            if layout is not None
            else missing_results(list(state.messages.values()))
        )
        synthetic = self.messages.synthetic_cost(missing, lines.wire)
        opening = 24 if self._may_need_opening(state, lines) else 0
        notes = sum(note.tokens for note in (extras.handoff, extras.recalled) if note)
        notes += self.notes_cost(state)
        generated = self.foreword_cost(lines.wire) + lines.marker_cost + synthetic + opening + notes
        for seq, places in lines.surplus.items():
            generated += self.messages.without_media(seq, places)[1] - state.cost(seq)
        return extras.fixed + state.tokens + generated + state.planned_text_tokens + state.planned_record_tokens

    def _may_need_opening(self, state: WindowState, lines: PromptLines) -> bool:
        """Whether a prompt may need a message of the user before all others; one that may be dropped is not enough."""
        if not state.messages or not format_named(lines.wire).user_first:
            return not state.messages
        first = lines.seqs[0] if lines.seqs else 0
        if first == MARKER:
            return False
        line = state.messages.get(first)
        blank = self.messages.meter.frame.message + 8
        return line is None or line.role != "user" or bool(line.answers) or state.cost(first) <= blank

    def marker_cost(self, state: WindowState) -> int:
        """What the marker costs, with the working record, notes and summary."""
        if not has_marker(state):
            return self.notes_cost(state)
        marker = self.messages.cost_of_generated("marker", self.marker_of(state), self.wire_of(state))
        return marker + self.notes_cost(state)

    def new_notes(self, state: WindowState) -> list[TurnNote]:
        """The notes that are not in the marker yet, each before the question that followed it."""
        if not state.notes or state.notes is state.shown_notes:
            return []
        wire = self.wire_of(state)
        texts = [
            (question, "\n".join([NOTES_HEADING, *render_notes(notes, MAX_NOTES_CHARS)]))
            for question, notes in new_notes(state.notes, state.shown_notes, state.question).items()
            if question in state.messages
        ]
        return [
            TurnNote(question=question, text=text, tokens=self.messages.cost_of_generated("marker", text, wire))
            for question, text in texts
        ]

    def notes_cost(self, state: WindowState) -> int:
        """What the notes cost that are not in the marker yet."""
        return sum([note.tokens for note in self.new_notes(state)])

    def foreword_cost(self, wire: str) -> int:
        """What the system text before everything else costs."""
        foreword = self.extras.foreword
        return self.messages.cost_of_generated("foreword", foreword, wire) if foreword else 0

    def cost_with(self, seq: int, text: str) -> int:
        """What a message costs when its results are replaced by a text."""
        return self.messages.cost_with(seq, text)

    def clamp_text(self, seq: int, tokens: int) -> str:
        """Head and tail of a message's results, in about so many tokens."""
        return self.messages.clamp_text(seq, tokens)

    def view(self, state: WindowState, protection: Protection) -> PolicyView:
        """What a policy may look at."""
        parts, messages = self.messages.units(state, protection), self.messages
        goal = messages.goal_of(state)
        return PolicyView(
            eligible=parts.eligible,
            protected=parts.protected,
            recent=parts.recent,
            input_budget=self.input_budget,
            tokens=state.costs(),
            shortened=frozenset(state.shortened),
            turn=state.turn,
            goal=goal,
            written=state.planned_text_tokens or (messages.meter.count(state.summary.text) if state.summary else 0),
            text_of=messages.text_of,
            result_of=partial(messages.result_of, state),
            pointer_of=messages.pointer_of,
            count=messages.meter.count,
            cost_with=messages.cost_with,
            thinking=partial(messages.old_thinking, state),
            vectors=partial(self.vectors_of, state.messages.keys(), goal),
        )

    def build(self, state: WindowState, lines: PromptLines | None = None, laid: LaidOut | None = None) -> BuiltPrompt:
        """The prompt of a state. `lines` and `laid` are those of the state, where they are known already."""
        messages, lines = self.messages, lines or self.lines(state)
        wire, format = lines.wire, format_named(lines.wire)
        notes = [
            LaidNote(NEW_NOTES - place, note.question, _note_message(note.text, wire))
            for place, note in enumerate(self.new_notes(state))
        ]
        notes += [
            LaidNote(seq, entry or note.question, _note_message(note.text, wire))
            for seq, note, entry in (
                (HANDOFF, self.extras.handoff, 0),
                (RECALLED, self.extras.recalled, self.quoted_before(state, lines)),
            )
            if note is not None
        ]
        arrangement, rendered, costs = laid or messages.layout(lines).laid_out(notes)
        if state.cache_mark or any(seq in state.messages for seq in messages.cache_marked):
            rendered = newest_marks(rendered, wire)
        system = tuple(messages.raws[seq] for seq in lines.apart)
        system_cost = sum(state.cost(seq) for seq in lines.apart)
        if self.extras.foreword:
            raw, cost = DEFAULT_FORMAT.text_message("system", self.extras.foreword), self.foreword_cost(wire)
            if format.system_apart:
                system, system_cost = (raw, *system), system_cost + cost
            else:
                rendered, costs = [raw, *rendered], [cost, *costs]
        spent = sum(costs)
        return BuiltPrompt(
            wire=wire,
            messages=tuple(rendered),
            system=system,
            costs=tuple(costs),
            spent=spent,
            tokens=self.extras.sent + spent + system_cost - self._joined_frames(wire, len(system)),
            arrangement=arrangement,
        )

    def quoted_before(self, state: WindowState, lines: PromptLines | None = None) -> int:
        """The entry that recalled text goes before: a few steps above the question, in the turn before; 0 without any.

        The nearer a quotation is to the answer, the more a model takes it up instead of the question. A few steps above
        it is as good as at the beginning, and little of the prompt is written to the provider's cache again.
        """
        note = self.extras.recalled
        if note is None or self.binds_thinking:
            return note.question if note is not None else 0
        seqs, messages = (lines or self.lines(state)).seqs, state.messages
        place, steps = note.question, 0
        for at in range(seqs.index(place) - 1 if place in messages and place in seqs else 0, 0, -1):
            line, before = messages.get(seqs[at]), messages.get(seqs[at - 1], _MARKER_LINE)
            if line is None or line.seq == state.task_seq or steps == _STEPS_ABOVE:
                break  # the marker, the task, or far enough
            if line.acts_as == "user" and steps:  # the request of the turn before
                return place if line.answers or before.leads else line.seq
            if line.role == "assistant" and begins_part(line, before) and not before.leads:
                place, steps = line.seq, steps + 1
        return place

    def _joined_frames(self, wire: str, system: int) -> int:
        """The frames of system texts that are sent as one, in formats that send it outside the messages."""
        if not format_named(wire).system_apart:
            return 0
        return self.messages.meter.frame.message * max(system + bool(self.extras.system) - 1, 0)

    def pieces(self, state: WindowState, built: BuiltPrompt) -> Callable[[], tuple[PromptPiece, ...]]:
        """What a built prompt is made of, when called. The tokens of the pieces are its tokens.

        Where something is left out or added to keep the prompt valid, all its messages are read. They are stored with
        the answer, so that the prompt need not wait for it.
        """
        extras, messages, wire = self.extras, self.messages, built.wire
        order = messages.order_of(state, wire, self.marker_of)
        generated = self._generated(state, order, built.messages, built.costs)
        own = [piece for several in generated.values() for piece in several]
        foreword = self.foreword_cost(wire)
        outside = 0 if format_named(wire).system_apart else foreword
        spent = built.spent - outside
        apart = sum([state.cost(seq) for seq in order.apart])
        read_all: Callable[[], list[PromptPiece]] = list
        if state.tokens - apart + sum([piece.tokens for piece in own]) == spent:
            said = [*pieces_of(order.tally(state).tokens), *own]
        else:
            first = 1 if outside else 0
            tally = messages.sent_tally(wire)
            read_all = partial(tally.pieces, built.messages[first:], built.costs[first:], generated)
            said = self._system_sections(state, order.apart)
        files = list(extras.files) if foreword else []
        frame = extras.frame + foreword - sum([piece.tokens for piece in files])
        before, after = [*extras.pieces, *files], [*said, PromptPiece(kind="frame", name="", tokens=frame)]
        joined = self._joined_frames(wire, len(built.system))
        return lambda: folded(with_less([*before, *read_all(), *after], joined))

    def _system_sections(self, state: WindowState, seqs: Sequence[int]) -> list[PromptPiece]:
        """What system messages are made of that are sent outside the list."""
        pieces: list[PromptPiece] = []
        for seq in seqs:
            texts = [part.text for part in self.messages.message(seq).parts]
            pieces += section_pieces(self.messages.meter, texts, state.cost(seq))
        return pieces

    def pieces_as_sent(
        self, state: WindowState, messages: Sequence[bytes], system: bytes, wire: str
    ) -> tuple[PromptPiece, ...]:
        """What a prompt is made of whose messages were converted or edited after it was built."""
        extras, meter = self.extras, self.messages.meter
        order = self.messages.order_of(state, self.wire_of(state), self.marker_of)
        costs = [meter.message(read(raw, wire)) for raw in messages]
        said = self.messages.sent_tally(wire).pieces(messages, costs, self._generated(state, order))
        tools = [piece for piece in extras.pieces if piece.kind == "tool" or piece.name == "tools"]
        outside = system_pieces(meter, system, wire) if system else ()
        frame = PromptPiece(kind="frame", name="", tokens=extras.frame)
        return folded([*tools, *outside, *said, frame])

    def _generated(
        self, state: WindowState, order: _LineOrder, messages: Sequence[bytes] = (), costs: Sequence[int] = ()
    ) -> dict[str, list[PromptPiece]]:
        """The messages of a prompt that Recto writes, by their text: the marker, and the notes behind the question.

        `messages` and `costs` are those of the built prompt, where a note may cost more than alone.
        """
        found: dict[str, list[PromptPiece]] = {}
        if order.marker:
            found[order.marker.strip()] = self.messages.marker_pieces(state, order.marker, order.marker_cost)
        kinds: list[tuple[PieceKind, TurnNote | None]] = [("notes", note) for note in self.new_notes(state)]
        kinds += [("handoff", self.extras.handoff), ("recalled", self.extras.recalled)]
        for kind, note in kinds:
            if note is not None:
                raw = _note_message(note.text, order.wire)
                try:
                    cost = costs[messages.index(raw)]
                except ValueError:
                    cost = note.tokens
                found[note.text.strip()] = [PromptPiece(kind=kind, name="", tokens=cost)]
        return found

    def shown(self, state: WindowState, built: BuiltPrompt) -> frozenset[int]:
        """The entries that the built prompt contains, in full or in part: a result without its call is not sent."""
        edits, raws = format_named(built.wire).edits, self.messages.raws
        omitted = {result.seq for result in built.arrangement.omitted}
        kept = {
            piece.seq
            for piece in built.arrangement.pieces
            if piece.seq in omitted
            and isinstance(piece, KeepSome)
            and (piece.answers or edits.only_answers(raws[piece.seq], (), rest=piece.rest) is not None)
        }
        return frozenset(seq for seq in state.messages if seq not in omitted or seq in kept)

    def overflow(
        self, state: WindowState, input_budget: int, kept_by: str = "", *, stored: bool | None = True
    ) -> WindowOverflow:
        """The error for a prompt that is too long: by how much, what holds the space, and why it was not evicted."""
        extras = self.extras
        holders = [(f"entry {seq} ({line.role})", state.cost(seq)) for seq, line in state.messages.items()]
        holders.append(("tools and frame", extras.frame + extras.tools))
        holders.append(("system text", extras.system))
        holders.append(("the answer", extras.answer))
        holders = [holder for holder in holders if holder[1]]
        holders.sort(key=lambda holder: -holder[1])
        tokens, pins = self.prompt_tokens(state), state.pins & state.messages.keys()
        pinned = len(pins), sum(map(state.cost, pins))
        return WindowOverflow(tokens, input_budget, holders, kept_by, fixed=extras.fixed, stored=stored, pinned=pinned)

    def lines(self, state: WindowState) -> PromptLines:
        """The lines of a prompt, with the marker where the gap is. Valid until the state changes."""
        wire = self.wire_of(state)
        order = self.messages.order_of(state, wire, self.marker_of)
        unbound, surplus = self._unbound(state, wire), self._surplus(state, order.seqs, wire)
        return PromptLines(
            wire=wire,
            seqs=order.seqs,
            apart=order.apart,
            marker=order.marker,
            marker_cost=order.marker_cost,
            unbound=unbound,
            surplus=surplus,
            basis=(order.marker, state.cache_mark, unbound, surplus, order.shortened, order.cleared),
            state=state,
            messages=self.messages,
        )

    def media_limits(self, wire: str) -> MediaLimits:
        """What the provider accepts of images, documents and audio in a request of this format."""
        return media_limits("", wire) if self.card is None else media_limits(self.card.provider, wire, self.card.window)

    def _surplus(self, state: WindowState, seqs: Sequence[int], wire: str) -> dict[int, tuple[int, ...]]:
        """Media that a request with these messages may not contain."""
        cache = self.messages
        if not cache.media:  # mostly there are none
            return {}
        media = {seq: cache.media[seq] for seq in seqs if seq in cache.media and seq not in state.shortened}
        if not media:
            return {}
        total = sum(len(cache.raws[seq]) for seq in state.messages)
        text_bytes = total - sum(item.weight for items in media.values() for item in items)
        return surplus_media(media, text_bytes, self.media_limits(wire))

    def _unbound(self, state: WindowState, wire: str) -> frozenset[int]:
        """Messages whose thinking follows something that was edited since.

        What the model said after the last edit is bound to the prompt as it is now. Nothing in flight may be edited.
        """
        if not self.binds_thinking or not format_named(wire).signs_thinking or not state.last_edit:
            return frozenset()
        first = min([state.first_evicted or state.last_edit, *state.shortened, *state.cleared])
        flying = in_flight(state)
        return frozenset(
            seq
            for seq, line in state.messages.items()
            if first < seq < state.last_edit and line.role == "assistant" and seq not in flying
        )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Prompt:
    """A prompt as `Session.prompt` returns it: what to send to the model now."""

    built: BuiltPrompt
    reading: PressureReading
    decisions: tuple[Entry, ...]
    """Decisions that were made for this prompt."""
    prefix: int
    """Tokens at the beginning that are unchanged from the prompt before."""
    recalled: tuple[Hit, ...] = ()
    """Evicted messages that are quoted in this prompt."""
    room: int
    """Tokens that this prompt may have: the input budget, less what a long answer needs beyond the output reserve."""
    schemas: Sequence[Any] | bytes = ()
    """The tool schemas that it was built for, as they were passed in."""

    @property
    def tools(self) -> list[Any]:
        """The tool schemas to send with it."""
        return list(json.loads(self.schemas or b"[]") if isinstance(self.schemas, bytes) else self.schemas)

    @property
    def raw(self) -> tuple[bytes, ...]:
        """The messages, byte for byte as they were stored; half of a surrogate pair is replaced by U+FFFD."""
        return self.built.messages

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages as provider clients take them. The list and everything in it is yours to change."""
        return [copied(fields_of(raw)) for raw in self.built.messages]

    @property
    def system(self) -> str:
        """System text that is sent outside the messages, where the format wants it there."""
        return "\n\n".join(_system_text(raw, self.built.wire) for raw in self.built.system)

    @property
    def tokens(self) -> int:
        """The total cost, tools and frame included."""
        return self.built.tokens

    def __repr__(self) -> str:
        messages = f"{len(self.built.messages):,} messages"
        return f"<Prompt: {messages}, {self.tokens:,} of {self.room:,} tokens, {self.built.wire}>"

    def _repr_html_(self) -> str:
        """The prompt as a notebook draws it."""
        from recto.engine._notebook import prompt_html  # noqa: PLC0415  # start-up

        built = self.built
        return prompt_html(
            built.messages, built.costs, built.wire, tokens=self.tokens, room=self.room, recalled=len(self.recalled)
        )


def _system_text(raw: bytes, wire: str) -> str:
    fields = fields_of(raw)
    return str(fields["content"]) if "content" in fields else read(raw, wire).text


def has_marker(state: WindowState) -> bool:
    """Whether the prompt of a state contains the marker: messages were evicted, or there are a record or notes."""
    return bool(state.evicted_messages or state.shown_notes or (state.record is not None and state.record.text))


def render_marker(state: WindowState, reader: str = "") -> str:
    """The text that replaces evicted messages: how many there are, the working record, the notes, and the summary.

    `reader` is the tool with which the model can look them up; without one, the marker promises none.
    """
    lines: list[str] = []
    kept = f"kept in full: call the tool {reader} to look them up" if reader else "kept in full"
    if state.evicted_messages:
        tokens = f", {state.evicted_tokens:,} tokens" if state.evicted_tokens else ""
        where = f"entries {state.first_evicted} to {state.last_evicted}{tokens}"
        lines.append(
            f"[{state.evicted_messages:,} earlier messages ({where}) are not shown here, to keep within the context "
            f"window. They are {kept}.]"
        )
        lines += _merged_lines(state)
    elif reader and state.shortened:
        lines.append(f"[Earlier results are shortened here, to keep within the context window. They are {kept}.]")
    if state.record is not None and state.record.text:
        lines += [RECORD_HEADING, state.record.text]
    notes = render_notes(state.shown_notes, _NOTE_CHARS)
    lines += [NOTES_HEADING, *notes] if notes else []
    lines += [state.summary.text] if state.summary else []
    return "\n".join(lines)


def _merged_lines(state: WindowState) -> list[str]:
    """Names evicted messages beside the newer ones that say the same: what they say is in the prompt once."""
    groups = sorted(state.merged_into().items())[-_MAX_MERGED_LINES:]
    lines = [_MERGED_HEADING] if groups else []
    for kept, units in groups:
        ranges = ranges_of(sorted({seq for unit in units for seq in seqs_in(unit.ranges)}))
        where = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges[:_MAX_RANGES])
        more = f" and {len(ranges) - _MAX_RANGES} more" if len(ranges) > _MAX_RANGES else ""
        lines.append(f"- {where}{more}: as {kept}, “{units[-1].digest}”")
    return lines


def _media_line(media: Media, pointer: str) -> str:
    """The line in place of an image, a document or audio."""
    about = [f"{media.size[0]}×{media.size[1]}"] if media.size else []
    about += [f"{media.pages} pages"] if media.pages else []
    about += [f"{media.weight / 1e6:.1f} MB"] if media.weight >= 50_000 else []
    size = f" ({', '.join(about)})" if about else ""
    return f"[One {media.kind}{size} is not shown here, to stay within what the provider accepts: {pointer}]"


def _typed_text(message: Message) -> str:
    """The text parts of a message, without calls and results."""
    return "\n".join(part.text for part in message.parts if part.kind == "text")
