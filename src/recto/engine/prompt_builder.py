"""What prompts are made of: the exact bytes of the messages that are in, how they cost, and how they become a list.

Shared by the live window of a session and by the stateless `fit`. It holds no decisions: which lines are in is the
state's business, what should leave is the policies'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from recto.context.facts.types import MessageView, MessageViewReader
from recto.context.window.plan import PolicyView, ToolResult
from recto.context.window.state import Protection, WindowState, in_flight, split_units
from recto.context.window.units import WindowMessage
from recto.errors import InputError
from recto.formats import DEFAULT_FORMAT, format_named, read
from recto.formats.cache_control import cache_marks, newest_marks, with_cache_mark
from recto.formats.edits import render_arrangement
from recto.formats.message import CACHE_MARKS, Message, fields_of
from recto.formats.ordering import Adjacency, Arrangement, Keep, SyntheticResult, arrange
from recto.health.metrics import call_fingerprint
from recto.text.truncation import clamp
from recto.tokens.meter import Meter

MARKER = -1
"""The number of the line that says what has left; entries count from 1."""
RECALLED = -2
"""The number of the message that quotes what came back for this prompt."""
HANDOFF = -3
"""The number of the message that says where the work stood before the last compaction."""
_MARKS = tuple(name.encode() for name in CACHE_MARKS)
_SEQ = attrgetter("seq")
_OTHER_RESULT = "[Left out together with the result before.]"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltPrompt:
    """A prompt as it is sent."""

    wire: str
    messages: tuple[bytes, ...]
    system: tuple[bytes, ...]
    """System messages that go beside the list, where the format wants them there."""
    costs: tuple[int, ...]
    """What each message costs, in their order."""
    tokens: int
    """Everything: messages, system, tools, the frame."""
    arrangement: Arrangement


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnNote:
    """A text that stands behind a question for as long as its turn lasts."""

    question: int
    text: str
    tokens: int


@dataclass(slots=True, kw_only=True)
class PromptBuilder:
    """The messages that are in, by number."""

    meter: Meter
    pointer_of: Callable[[int], str]
    marker_of: Callable[[WindowState], str]
    """What is said in place of what has left."""
    mark: str = ""
    """A message whose text holds this never leaves."""
    usual_wire: str = DEFAULT_FORMAT.name
    """The wire format of a prompt whose messages are the same in all."""
    binds_thinking: bool = False
    """Whether thinking is refused once anything before it was edited."""
    fixed: int = 0
    """What tools, the prompt's frame and the text beside the messages cost."""
    beside: int = 0
    """What of it is the text that the caller sends beside the messages."""
    answer: int = 0
    """What of it is kept for an answer that may be longer than the reserve."""
    foreword: str = ""
    """System text that stands before everything else and is no message of the session."""
    recalled: TurnNote | None = None
    """What came back for the turn that is in flight."""
    handoff: TurnNote | None = None
    """Where the work stood before the last compaction, for the turn after it."""
    raws: dict[int, bytes] = field(default_factory=dict)
    wires: dict[int, str] = field(default_factory=dict)
    _made: dict[tuple[str, str, str], int] = field(default_factory=dict)
    _short: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    """For each message with results: the text that was last put in their place, and the message with it."""
    _bare: dict[int, bytes | None] = field(default_factory=dict)
    """Messages without their thinking."""
    _cached: set[int] = field(default_factory=set)
    """Messages that carry cache marks."""
    _marks: dict[int, dict[str, str]] = field(default_factory=dict)
    """The calls of messages, by their ids: what each is recognised by when it is made again."""
    _arranged: tuple[tuple[int, ...], Adjacency, Arrangement] | None = None
    """The last arrangement, with what it was made of: one prompt asks for the same one several times."""
    _answers: list[SyntheticResult] = field(default_factory=list)
    """Those of its results that have to be made."""

    @property
    def schemas(self) -> int:
        """What of the fixed costs are tool schemas."""
        return self.fixed - self.beside - self.answer - self.meter.frame.prompt

    def take(self, seq: int, id: str, raw: bytes, wire: str, tokens: int | None = None) -> WindowMessage:
        """Takes a message in; its line is what the state wants to know of it."""
        format = format_named(wire)
        message = format.messages.read(raw)
        self.raws[seq], self.wires[seq] = raw, wire
        if any(name in raw for name in _MARKS):
            self._cached.add(seq)
        fields = fields_of(raw)
        # not every call of a message: some tools the provider runs and answers itself
        tied = format.validation.tool_call_ids(fields)
        names = {part.call_id: part.name for part in message.parts if part.kind in ("call", "result")}
        return WindowMessage(
            seq=seq,
            id=id,
            role=message.role,
            tokens=self.meter.message(message) if tokens is None else tokens,
            calls=tuple(tied.calls),
            answers=tuple(tied.answers),
            tools=tuple(names.get(call, "") for call in (*tied.calls, *tied.answers)),
            marked=bool(self.mark) and self.mark in message.text,
            wire="" if format is DEFAULT_FORMAT else wire,
            leads=format.validation.leads_on(fields),
        )

    def forget(self, seqs: Iterable[int]) -> None:
        """Lets go of messages that left."""
        for seq in seqs:
            self.raws.pop(seq, None)
            self.wires.pop(seq, None)
            self._short.pop(seq, None)
            self._bare.pop(seq, None)
            self._cached.discard(seq)
            self._marks.pop(seq, None)

    def wire_of(self, state: WindowState) -> str:
        """The one format all of them can be sent in: plain text messages are the same in all."""
        found = {line.wire for line in state.messages.values() if line.wire} | ({state.wire} if state.wire else set())
        if len(found) > 1:
            raise InputError(f"this prompt mixes {' and '.join(sorted(found))}; one list cannot hold both")
        return found.pop() if found else self.usual_wire

    def prompt_tokens(self, state: WindowState) -> int:
        """What the prompt of a state costs at most, with everything that would be made for it."""
        wire = self.wire_of(state)
        self._arrange(self._lines(state)[0], wire)
        made = sum(self._count_made("answer", piece.call_id + piece.tool, wire) for piece in self._answers)
        opening = 0 if state.messages and not format_named(wire).user_first else 24
        quoted = sum(text.tokens for text in (self.handoff, self.recalled) if text)
        before, said = self.foreword_cost(wire), self.marker_cost(state)
        return self.fixed + before + state.tokens + made + opening + said + quoted + state.planned_text_tokens

    def marker_cost(self, state: WindowState) -> int:
        """What is said in place of what left, with notes and summary, costs."""
        return self._count_made("marker", self.marker_of(state), self.wire_of(state)) if state.evicted_messages else 0

    def foreword_cost(self, wire: str) -> int:
        """What the system text before everything else costs."""
        return self._count_made("foreword", self.foreword, wire) if self.foreword else 0

    def view(self, state: WindowState, protection: Protection) -> PolicyView:
        """What a policy may look at."""
        parts = split_units(state, protection)
        return PolicyView(
            eligible=parts.eligible,
            protected=parts.protected,
            tokens={seq: state.cost(seq) for seq in state.messages},
            shortened=frozenset(state.shortened),
            turn=state.turn,
            goal=self.text_of(state.task_seq) if state.task_seq in self.raws else "",
            written=state.planned_text_tokens or (self.meter.count(state.summary.text) if state.summary else 0),
            text_of=self.text_of,
            result_of=lambda seq: self.result_of(state, seq),
            pointer_of=self.pointer_of,
            count=self.meter.count,
            cost_with=self.cost_with,
        )

    def newest_mark(self, seqs: Sequence[int]) -> str:
        """The cache mark of the last of these messages that carries one."""
        for seq in reversed(seqs):
            if seq in self._cached and (marks := cache_marks(self.raws[seq], self.wires[seq])):
                return marks[-1].decode()
        return ""

    def calls_gone(self, before: WindowState, after: WindowState, touched: Iterable[int]) -> list[str]:
        """Which tool calls nobody can see whole any more once these entries have left or shrunk, by their marks."""
        marks = {
            call: mark for seq, line in before.messages.items() if line.calls for call, mark in self._calls(seq).items()
        }
        short = {call for seq in after.shortened if seq in after.messages for call in after.messages[seq].answers}
        shown = {marks.get(call) for line in after.messages.values() for call in line.calls if call not in short}
        lines = [before.messages[seq] for seq in touched if seq in before.messages]
        about = {marks[call] for line in lines for call in (*line.calls, *line.answers) if call in marks}
        return sorted(about - shown)

    def _calls(self, seq: int) -> dict[str, str]:
        if seq not in self._marks:
            self._marks[seq] = {part.call_id: call_fingerprint(part.name, part.text) for part in self._read(seq).calls}
        return self._marks[seq]

    def told(self, seqs: Iterable[int]) -> list[MessageView]:
        """Messages as compression reads them, in the order given."""
        teller = MessageViewReader()
        return [teller.tell(seq, self._read(seq)) for seq in seqs]

    def text_of(self, seq: int) -> str:
        """What a message says."""
        return self._read(seq).text

    def result_of(self, state: WindowState, seq: int) -> ToolResult:
        """The call and the output of a message that carries results."""
        results = self._read(seq).results
        asked = {part.call_id for part in results}
        for line in state.messages.values():
            if asked.intersection(line.calls):
                call = next(part for part in self._read(line.seq).calls if part.call_id in asked)
                return ToolResult(tool=call.name, arguments=call.text, output="\n".join(part.text for part in results))
        name = next((part.name for part in results if part.name), "")
        return ToolResult(tool=name, arguments="", output="\n".join(part.text for part in results))

    def cost_with(self, seq: int, text: str) -> int:
        """What a message costs when its results are replaced by a text."""
        return self.meter.message(read(self._shrunk(seq, text), self.wires[seq]))

    def clamp_text(self, seq: int, tokens: int) -> str:
        """Head and tail of a message's results, in about so many tokens."""
        output = "\n".join(part.text for part in self._read(seq).results)
        return clamp(output, tokens, self.meter.count, self.pointer_of(seq))

    def cost_of_text(self, text: str, wire: str) -> int:
        """What a message costs that only says this."""
        return self.meter.message(read(format_named(wire).text_message("user", text), wire))

    def build(self, state: WindowState) -> BuiltPrompt:
        """The prompt of a state, with what came back for it."""
        wire = self.wire_of(state)
        format = format_named(wire)
        lines, marker = self._lines(state)
        contents: dict[int, bytes | None] = {}
        costs: dict[bytes, int] = {}
        for line in lines:
            contents[line.seq] = raw = self._content(state, line.seq, marker, wire)
            costs[raw] = self._count_made("marker", marker, wire) if line.seq == MARKER else state.cost(line.seq)
        contents |= {seq: self._without_thinking(seq) for seq in self._unbound(state, wire)}
        apart = [line.seq for line in lines if line.role == "system" and format.system_apart and line.seq != MARKER]
        arrangement = self._arrange([line for line in lines if line.seq not in apart], wire)
        for seq, standing in ((RECALLED, self.recalled), (HANDOFF, self.handoff)):
            if standing is not None:
                contents[seq] = format.text_message("user", standing.text)
                arrangement = _with_standing(arrangement, seq, standing.question)
        messages = render_arrangement(arrangement, contents, wire)
        spent = tuple(costs[raw] if raw in costs else self.meter.message(read(raw, wire)) for raw in messages)
        if state.cache_mark or not self._cached.isdisjoint(state.messages):
            messages = newest_marks(messages, wire)
        system = tuple(self.raws[seq] for seq in apart)
        beside = sum(state.cost(seq) for seq in apart)
        if self.foreword:
            raw, cost = DEFAULT_FORMAT.text_message("system", self.foreword), self.foreword_cost(wire)
            if format.system_apart:
                system, beside = (raw, *system), beside + cost
            else:
                messages, spent = [raw, *messages], (cost, *spent)
        return BuiltPrompt(
            wire=wire,
            messages=tuple(messages),
            system=system,
            costs=spent,
            tokens=self.fixed + sum(spent) + beside,
            arrangement=arrangement,
        )

    def _lines(self, state: WindowState) -> tuple[list[WindowMessage], str]:
        """The lines of a prompt, with the marker where the gap is."""
        lines: list[WindowMessage] = list(state.messages.values())
        if not state.evicted_messages:
            return lines, ""
        place = next((at for at, line in enumerate(lines) if line.seq > state.first_evicted), len(lines))
        lines.insert(place, WindowMessage(seq=MARKER, id="", role="user", tokens=0))
        return lines, self.marker_of(state)

    def _arrange(self, lines: list[WindowMessage], wire: str) -> Arrangement:
        """Entries never change, so their numbers tell whether the lines are the same."""
        seqs, adjacency = tuple(map(_SEQ, lines)), format_named(wire).adjacency
        if self._arranged is None or self._arranged[:2] != (seqs, adjacency):
            self._arranged = seqs, adjacency, arrange(lines, adjacency)
            self._answers = [piece for piece in self._arranged[2].pieces if isinstance(piece, SyntheticResult)]
        return self._arranged[2]

    def _unbound(self, state: WindowState, wire: str) -> list[int]:
        """Messages whose thinking was made behind something that has been edited since.

        What the model said after the last edit is bound to the prompt as it is now. In flight nothing may be touched.
        """
        if not self.binds_thinking or not format_named(wire).signs_thinking or not state.last_edit:
            return []
        first = min([state.first_evicted or state.last_edit, *state.shortened])
        flying = in_flight(state)
        return [
            seq
            for seq, line in state.messages.items()
            if first < seq < state.last_edit and line.role == "assistant" and seq not in flying
        ]

    def _without_thinking(self, seq: int) -> bytes | None:
        if seq not in self._bare:
            self._bare[seq] = format_named(self.wires[seq]).edits.without_thinking(self.raws[seq])
        return self._bare[seq]

    def _content(self, state: WindowState, seq: int, marker: str, wire: str) -> bytes:
        if seq == MARKER:
            made = format_named(wire).text_message("user", marker)
            return with_cache_mark(made, wire, state.cache_mark.encode()) if state.cache_mark else made
        shrink = state.shortened.get(seq)
        return self.raws[seq] if shrink is None else self._shrunk(seq, shrink.text)

    def _shrunk(self, seq: int, text: str) -> bytes:
        known = self._short.get(seq)
        if known is not None and known[0] == text:
            return known[1]
        calls = [part.call_id for part in self._read(seq).results]
        texts = dict.fromkeys(calls, _OTHER_RESULT) | ({calls[0]: text} if calls else {})
        raw = format_named(self.wires[seq]).edits.with_results(self.raws[seq], texts)
        self._short[seq] = text, raw
        return raw

    def _read(self, seq: int) -> Message:
        return read(self.raws[seq], self.wires[seq])

    def _count_made(self, kind: str, text: str, wire: str) -> int:
        """What a message costs that Recto makes itself; the same ones come again and again."""
        key = (kind, text, wire)
        if key not in self._made:
            format = format_named(wire)
            if kind in ("marker", "foreword"):
                raw = format.text_message("user" if kind == "marker" else "system", text)
            else:
                raw = format.edits.result_message(text, text, "[No result yet: the call is still running.]")
            if len(self._made) > 1000:
                self._made.clear()
            self._made[key] = self.meter.message(read(raw, wire))
        return self._made[key]


def _with_standing(arrangement: Arrangement, seq: int, question: int) -> Arrangement:
    """Directly behind the question, for as long as its turn lasts: what a provider has cached stays cached."""
    pieces = list(arrangement.pieces)
    places = [at for at, piece in enumerate(pieces) if piece.seq == question]
    pieces.insert(places[-1] + 1 if places else len(pieces), Keep(seq))
    return replace(arrangement, pieces=tuple(pieces))
