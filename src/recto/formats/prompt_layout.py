"""Puts the messages of a prompt together in a form that the provider accepts.

Whether a message is edited or evicted is decided elsewhere; each format edits its own messages (its `edits` module).
`render_arrangement` does it for a list that is at hand. `PromptLayout` does it for a prompt that grows: what comes
before its end is kept, arranged and rendered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple, Protocol

from msgspec import Struct, field

from recto.formats.arrangement import (
    OPENING,
    ArrangedPart,
    ArrangedPiece,
    Arrangement,
    Keep,
    KeepSome,
    Omitted,
    Orderable,
    SyntheticResult,
    arrange_part,
    begins_part,
    needs_opening,
)
from recto.formats.format import Format
from recto.formats.message import fields_of, text_in
from recto.formats.registry import format_named
from recto.transcript.entries import Role

_REASONS: Final[Mapping[str, str]] = {
    "interrupted": "[No result: the call was interrupted.]",
    "not arrived yet": "[No result yet: the call is still running.]",
}


_MAX_COUNTED: Final = 256
_MANY_LINES: Final = 32
"""Lines from which on they are added at once, as when a session is opened or its prompt was edited."""


def render_arrangement(
    arrangement: Arrangement,
    contents: Mapping[int, bytes | None],
    wire: str,
) -> list[bytes]:
    """Returns the messages of an arrangement as the provider accepts them. Entries whose content is `None` are skipped.

    Args:
        arrangement: The order of the messages.
        contents: The message of each entry.
        wire: The name of the format.
    """
    format = format_named(wire)
    rendered = (_render(piece, contents[piece.seq], format) for piece in arrangement.pieces)
    messages = format.edits.settle([raw for raw in rendered if raw is not None])
    if _lacks_opening(arrangement, messages, format):
        messages.insert(0, format.text_message("user", OPENING))
    return messages


def _lacks_opening(arrangement: Arrangement, messages: Sequence[bytes], format: Format) -> bool:
    if not messages:
        return False  # there is nothing to open; the caller says why
    # The first user message may have been empty, and was dropped then.
    needs = arrangement.needs_opening or format.user_first
    return needs and fields_of(messages[0]).get("role", "user") != "user"


def _render(piece: ArrangedPiece, raw: bytes | None, format: Format) -> bytes | None:
    if raw is None:
        return None
    match piece:
        case Keep():
            return raw
        case KeepSome():
            return format.edits.only_answers(raw, piece.answers, rest=piece.rest)
        case SyntheticResult():
            fields = fields_of(raw)
            if piece.call_id not in format.validation.tool_call_ids(fields).calls:
                return None  # the provider runs and answers this call itself
            kind = text_in(fields.get("type"))
            return format.edits.result_message(piece.call_id, piece.tool, _REASONS[piece.reason], kind)


class Line(Orderable, Protocol):
    """A message in a layout."""

    @property
    def leads(self) -> bool:
        """Whether it belongs to the next assistant message, as reasoning does to the call it leads to."""
        ...


class LaidLine(NamedTuple):
    """A message in a layout, and its bytes."""

    line: Line
    raw: bytes | None
    """Its content as it is shown; `None`: it is skipped."""
    cost: int | None
    """What these bytes cost; `None`: they have to be counted."""


class LaidNote(NamedTuple):
    """A user message that is no entry, and the entry it goes before; behind it, if that one carries tool results."""

    seq: int
    entry: int
    raw: bytes


class LaidOut(NamedTuple):
    """A prompt, arranged and rendered."""

    arrangement: Arrangement
    messages: list[bytes]
    costs: list[int]


class _Rendered(Struct):
    """Messages in their final order: the pieces, the bytes of what is sent, and what each of these costs."""

    pieces: list[ArrangedPiece] = field(default_factory=list)
    messages: list[bytes] = field(default_factory=list)
    costs: list[int] = field(default_factory=list)
    omitted: list[Omitted] = field(default_factory=list)
    missing: list[SyntheticResult] = field(default_factory=list)
    """The results that had to be synthesised."""

    def __add__(self, other: _Rendered) -> _Rendered:
        return _Rendered(
            self.pieces + other.pieces,
            self.messages + other.messages,
            self.costs + other.costs,
            self.omitted + other.omitted,
            self.missing + other.missing,
        )


class _Part(Struct):
    """Lines that are arranged together, and the result, as far as it is known."""

    lines: list[LaidLine] = field(default_factory=list)
    calls: set[str] = field(default_factory=set)
    """Ids of the calls in it that a result may answer."""
    leads: bool = False
    """Whether the last assistant message in it belongs to one that has not come yet."""
    arranged: ArrangedPart | None = None
    rendered: tuple[Sequence[LaidNote], _Rendered] | None = None
    """The result, and the notes in it."""
    at: tuple[int, int] = 0, 0
    """Where it begins among the pieces and the messages of all parts."""
    open_calls: set[str] | None = field(default_factory=set)
    """Of a step, which is one message and then the results of its calls, each once: the calls without a result.
    `None`: it is something else."""

    def add(self, laid: LaidLine) -> None:
        """Adds a line at the end."""
        line = laid.line
        calls, answers = line.calls, line.answers
        if self.open_calls is not None:
            if not self.lines:
                self.open_calls = _calls_of_step(line)
            elif answers and not calls and line.role != "assistant" and self.open_calls.issuperset(answers):
                self.open_calls.difference_update(answers)
                if len(answers) > 1 and len(set(answers)) < len(answers):
                    self.open_calls = None
            else:
                self.open_calls = None
        self.lines.append(laid)
        if line.role == "assistant":
            if calls:
                self.calls.update([call for call in calls if call not in answers] if answers else calls)
            self.leads = line.leads
        self.arranged = self.rendered = None

    def add_all(self, lines: Sequence[LaidLine]) -> None:
        """Adds lines at the end."""
        at = 0
        while at < len(lines) and (self.open_calls is not None or not self.lines):
            self.add(lines[at])
            at += 1
        if at == len(lines):
            return
        # Of more than one step, only the calls are collected, and whether the last message of the assistant leads on.
        for line in [laid.line for laid in lines[at:] if laid.line.role == "assistant"]:
            if line.calls:
                self.calls.update([call for call in line.calls if call not in line.answers])
            self.leads = line.leads
        self.lines += lines[at:]
        self.arranged = self.rendered = None

    @property
    def is_whole_step(self) -> bool:
        """Whether it is a step with all its results, which every provider takes as it is."""
        return self.open_calls is not None and not self.open_calls and bool(self.lines)


def _calls_of_step(line: Line) -> set[str] | None:
    """The calls of a message that begins a step; `None` if a step cannot begin with it."""
    if line.answers or (line.calls and line.role != "assistant"):
        return None
    calls = set(line.calls)
    return None if "" in calls or len(calls) < len(line.calls) else calls


class PromptLayout:
    """The messages of a prompt in one format, arranged and rendered while it grows.

    The list is divided into parts that are arranged by themselves (`begins_part`). Only the last one is open: what is
    added changes no other, unless it is a late result for a call in one, which makes all parts from there on one again.
    The result is that of `arrange` and `render_arrangement` for the whole list.
    """

    def __init__(self, wire: str, count: Callable[[bytes], int], many: int = _MANY_LINES) -> None:
        """`count` counts the tokens of a message; from `many` lines on, they are added at once."""
        self.wire = wire
        self._many = many
        self.seqs: list[int] = []
        """The entries of all lines, in order."""
        self._format = format_named(wire)
        self._count = count
        self._counted: dict[bytes, int] = {}
        self._parts = [_Part()]
        self._part_of: dict[int, int] = {}
        """For each entry: the part that it is in."""
        self._owners: dict[str, int] = {}
        """For each call id in a closed part: the last such part."""
        self._closed = _Rendered()
        """All parts but the last, rendered without notes."""

    def keep(self, lines: Sequence[LaidLine]) -> int:
        """Drops everything from the first line on that differs from these; returns how many lines are kept."""
        kept = 0
        for at, part in enumerate(self._parts):
            for place, laid in enumerate(part.lines):
                if kept == len(lines) or (laid.line.seq, laid.raw) != (lines[kept].line.seq, lines[kept].raw):
                    self._cut(at, place)
                    del self.seqs[kept:]
                    return kept
                kept += 1
        return kept

    def extend(self, lines: Sequence[LaidLine]) -> None:
        """Adds lines at the end."""
        at_once = self._add_at_once(lines) if len(lines) >= self._many else 0
        for laid in islice(lines, at_once, None):
            line = laid.line
            late = [self._owners[call] for call in line.answers if call in self._owners and self._waits(call)]
            if late:
                self._join(min(late))
            elif self._begins(laid):
                self._close()
            self._parts[-1].add(laid)
            self._part_of[line.seq] = len(self._parts) - 1
            self.seqs.append(line.seq)

    def _add_at_once(self, lines: Sequence[LaidLine]) -> int:
        """Adds all lines before the last question to the open part, which is quicker than to divide them into parts.

        Returns how many. None where one of them may be a late result for a closed part. Notes stand before the last
        question: the part with them is arranged again when they change.
        """
        owners, part = self._owners, self._parts[-1]
        questions = (at for at in range(len(lines) - 1, 0, -1) if lines[at].line.role == "user")
        last = next((at for at in questions if begins_part(lines[at].line, lines[at - 1].line)), 0)
        if owners and any(call in owners for laid in lines[:last] for call in laid.line.answers):
            return 0
        part.add_all(lines[:last])
        seqs = [laid.line.seq for laid in lines[:last]]
        self._part_of.update(dict.fromkeys(seqs, len(self._parts) - 1))
        self.seqs += seqs
        return last

    def missing(self) -> list[SyntheticResult]:
        """The results that have to be synthesised."""
        return self._closed.missing + self._arranged(self._parts[-1]).synthetic

    def laid_out(self, notes: Sequence[LaidNote] = ()) -> LaidOut:
        """The prompt, with notes directly before their entries, in the order of the notes."""
        last = len(self._parts) - 1
        by_part: dict[int, list[LaidNote]] = {}
        for note in notes:
            by_part.setdefault(self._part_of.get(note.entry, last), []).append(note)
        whole = self._closed + self._rendered(self._parts[-1], by_part.pop(last, ()))
        for at in sorted(by_part, reverse=True):
            self._replace(whole, at, self._rendered(self._parts[at], by_part[at]))
        return self._opened(whole, notes)

    def laid_behind(self, head: Sequence[LaidLine], seq: int) -> LaidOut | None:
        """The prompt with other lines in place of all before an entry.

        `None` if no part begins with this entry, or would not behind these lines, or if a result was omitted.
        """
        part = self._parts[self._part_of[seq]]
        front = PromptLayout(self.wire, self._count)
        front.extend(head)
        begins = part.lines[0].line.seq == seq and front._begins(part.lines[0])
        if not begins or self._closed.omitted:
            return None
        front._close()
        (piece, message), closed = part.at, self._closed
        rest = _Rendered(closed.pieces[piece:], closed.messages[message:], closed.costs[message:])
        return front._opened(front._closed + rest + self._rendered(self._parts[-1], ()))

    def _opened(self, whole: _Rendered, notes: Sequence[LaidNote] = ()) -> LaidOut:
        """A prompt, with a message of the user before all others where it needs one."""
        first = self._parts[0].lines
        noted = {note.seq for note in notes}
        entries = [piece for piece in whole.pieces[: len(notes) + 1] if piece.seq not in noted]
        opens = needs_opening(entries, first[0].line if first else None, self._format.adjacency)
        arrangement = Arrangement(tuple(whole.pieces), tuple(whole.omitted), opens)
        if _lacks_opening(arrangement, whole.messages, self._format):
            opening = self._format.text_message("user", OPENING)
            whole.messages.insert(0, opening)
            whole.costs.insert(0, self._cost(opening))
        return LaidOut(arrangement, whole.messages, whole.costs)

    def _replace(self, whole: _Rendered, at: int, part: _Rendered) -> None:
        """Puts another rendering of a closed part in its place."""
        (piece, message), (next_piece, next_message) = self._parts[at].at, self._parts[at + 1].at
        whole.pieces[piece:next_piece] = part.pieces
        whole.messages[message:next_message] = part.messages
        whole.costs[message:next_message] = part.costs

    def _waits(self, call: str) -> bool:
        """Whether a result for this call belongs to a closed part."""
        owner = self._owners.get(call)
        return (
            owner is not None
            and call not in self._parts[-1].calls
            and call in self._arranged(self._parts[owner]).waiting
        )

    def _begins(self, laid: LaidLine) -> bool:
        """Whether a line begins a new part. Neither the line nor the message before it may be dropped later on."""
        part = self._parts[-1]
        if not part.lines or part.leads or laid.raw is None or not begins_part(laid.line, part.lines[-1].line):
            return False
        role, raw = self._last_of(part)
        turns = role != "system" and (role == "assistant") != (laid.line.role == "assistant")
        settle = self._format.edits.settle
        return turns and raw is not None and bool(settle([raw])) and (laid.line.leads or bool(settle([laid.raw])))

    def _last_of(self, part: _Part) -> tuple[Role, bytes | None]:
        """The last message of a part as it is rendered, and its role."""
        last = part.lines[-1]
        if last.raw is not None and (part.is_whole_step or self._arranged(part).unchanged):
            return last.line.role, last.raw
        arranged = self._arranged(part)
        by_seq = {laid.line.seq: laid for laid in part.lines}
        for piece in reversed(arranged.pieces):
            raw = _render(piece, by_seq[piece.seq].raw, self._format)
            if raw is not None:
                return "tool" if isinstance(piece, SyntheticResult) else by_seq[piece.seq].line.role, raw
        return last.line.role, None

    def _close(self) -> None:
        part = self._parts[-1]
        # other messages follow now, so results that are missing will not arrive
        if not part.is_whole_step and self._arranged(part).waiting:
            part.arranged, part.rendered = self._arranged(part).closed(), None
        self._add_closed(len(self._parts) - 1)
        self._parts.append(_Part(at=(len(self._closed.pieces), len(self._closed.messages))))

    def _add_closed(self, at: int) -> None:
        part, closed = self._parts[at], self._closed
        rendered = self._rendered(part, ())
        part.at = len(closed.pieces), len(closed.messages)
        closed.pieces += rendered.pieces
        closed.messages += rendered.messages
        closed.costs += rendered.costs
        closed.omitted += rendered.omitted
        closed.missing += rendered.missing
        if calls := self._arranged(part).calls:
            self._owners.update(dict.fromkeys(calls, at))

    def _join(self, at: int) -> None:
        """Makes all parts from here on one."""
        joined = _Part()
        for laid in chain.from_iterable(part.lines for part in self._parts[at:]):
            joined.add(laid)
        self._reopen([*self._parts[:at], joined])

    def _cut(self, at: int, place: int) -> None:
        """Drops everything from a line of a part on."""
        opened = _Part()
        first = at if place or not at else at - 1  # what closed the part before is gone
        for laid in chain(*(part.lines for part in self._parts[first:at]), self._parts[at].lines[:place]):
            opened.add(laid)
        self._reopen([*self._parts[:first], opened])

    def _reopen(self, parts: list[_Part]) -> None:
        self._parts, self._owners, self._closed = parts, {}, _Rendered()
        self._part_of = {laid.line.seq: at for at, part in enumerate(parts) for laid in part.lines}
        for at in range(len(parts) - 1):
            self._add_closed(at)
        parts[-1].at = len(self._closed.pieces), len(self._closed.messages)

    def _arranged(self, part: _Part) -> ArrangedPart:
        if part.arranged is None and part.is_whole_step:
            pieces = tuple([Keep(laid.line.seq) for laid in part.lines])
            part.arranged = ArrangedPart(pieces, (), frozenset(part.calls), frozenset(), unchanged=True)
        elif part.arranged is None:
            lines = [laid.line for laid in part.lines]
            part.arranged = arrange_part(lines, self._format.adjacency, earlier=self._owners)
        return part.arranged

    def _rendered(self, part: _Part, notes: Sequence[LaidNote]) -> _Rendered:
        if part.rendered is None or part.rendered[0] != notes:
            arranged = self._arranged(part)
            if arranged.unchanged and not notes and (result := self._rendered_as_is(part, arranged)) is not None:
                part.rendered = notes, result
                return result
            pieces, contents = list(arranged.pieces), {laid.line.seq: laid.raw for laid in part.lines}
            results = {laid.line.seq for laid in part.lines if laid.line.answers}
            for note in notes:
                places = [at for at, piece in enumerate(pieces) if piece.seq == note.entry]
                # Results follow their call directly, so nothing may stand before them.
                place = places[-1] + 1 if note.entry in results else places[0] if places else len(pieces)
                pieces.insert(place if places else len(pieces), Keep(note.seq))
                contents[note.seq] = note.raw
            rendered = (_render(piece, contents[piece.seq], self._format) for piece in pieces)
            messages = self._format.edits.settle([raw for raw in rendered if raw is not None])
            known = {laid.raw: laid.cost for laid in part.lines}
            costs = [self._cost(raw) if (cost := known.get(raw)) is None else cost for raw in messages]
            result = _Rendered(pieces, messages, costs, list(arranged.omitted), arranged.synthetic)
            part.rendered = notes, result
        return part.rendered[1]

    def _rendered_as_is(self, part: _Part, arranged: ArrangedPart) -> _Rendered | None:
        """A part whose messages stay as they are, as nearly all do; `None` if one is skipped or not counted yet."""
        messages = [laid.raw for laid in part.lines if laid.raw is not None]
        costs = [laid.cost for laid in part.lines if laid.cost is not None]
        if len(messages) < len(part.lines) or len(costs) < len(part.lines):
            return None
        settled = self._format.edits.settle(messages)
        return _Rendered(list(arranged.pieces), settled, costs) if settled == messages else None

    def _cost(self, raw: bytes) -> int:
        if raw not in self._counted:
            if len(self._counted) > _MAX_COUNTED:
                self._counted.clear()
            self._counted[raw] = self._count(raw)
        return self._counted[raw]
