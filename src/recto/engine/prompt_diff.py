"""Past prompts, and the difference between two of them: common lines, lines of one only, and their costs.

A past prompt is rebuilt from the transcript like the live one, from the last snapshot before it. Recalled text is
quoted again from its pointers, shortened; its cost is the one recorded then. The tools offered with a past prompt are
unknown, so none are counted; standing context is the current one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from recto.context.window.state import WindowState
from recto.engine.projection import HANDOFF, WindowProjection, snapshot_key
from recto.engine.prompt_builder import BuiltPrompt, PromptBuilder, PromptExtras, TurnNote, has_marker
from recto.engine.recall_injection import INJECTED
from recto.engine.timeline import MAX_ENTRIES, copy_builder
from recto.engine.window import Window
from recto.errors import InputError
from recto.formats import entry_text, format_named
from recto.recall.documents import excerpt
from recto.recall.types import Excerpt, render_quotation
from recto.transcript.entries import Entry
from recto.transcript.session_keys import parse_pointer, reach_of

MAX_LINES = 1_000
"""Maximum number of lines in a comparison."""
_MAX_TEXT = 400
"""Characters of a line's text; the entry has the full text."""
_FULL_FOLD_ENTRIES = 1_024
"""Up to this entry a session without a snapshot is folded from its beginning."""
_FOLD_PAGE = 200
"""Entries that are read at once to find where a fold without a snapshot begins."""
_RECALL_LOOKBACK = 400
"""Entries before a prompt in which its recall event is searched: the length of a long turn."""

What = Literal["frame", "standing", "system", "entry", "marker", "summary", "recalled", "handoff"]
"""The kind of a line. `frame`: what a format adds to messages, or omits. `standing`: system text that is not a message
of the session. `marker`: the notice of evicted messages, with the notes."""
Side = Literal["both", "first", "second", "changed"]
_PieceKey: TypeAlias = tuple[str, int]
"""Identifies a piece across prompts."""


class PromptLine(Struct, frozen=True, kw_only=True):
    """One piece of one of two prompts, or of both."""

    seq: int | None
    """Its entry, if it is one."""
    what: What
    role: str
    text: str
    """As in the second prompt if it is in both."""
    cut: bool
    """Whether the text was shortened."""
    first_tokens: int | None
    second_tokens: int | None
    """Its cost in each; None if it is not in it."""
    side: Side


class Comparison(Struct, frozen=True, kw_only=True):
    """Two prompts of one session, as of two entries, in prompt order."""

    first: int
    second: int
    room: int
    first_tokens: int
    second_tokens: int
    first_messages: int
    second_messages: int
    lines: tuple[PromptLine, ...]
    more: bool
    """Whether lines were omitted: first those common to both, then the last ones."""


class _Piece(Struct, frozen=True, kw_only=True):
    what: What
    role: str
    text: str
    tokens: int
    seq: int | None = None


_EMPTY_PIECE = _Piece(what="frame", role="", text="", tokens=0)


class PastPrompt(Struct, frozen=True, kw_only=True):
    """A session as of an entry, with the builder of its prompt."""

    state: WindowState
    builder: PromptBuilder
    built: BuiltPrompt


def prompt_after(window: Window, seq: int) -> BuiltPrompt:
    """Return the prompt as of an entry, with the decisions and recalls up to it."""
    with window.lock:
        return rebuild_prompt(window, seq).built


def compare(window: Window, first: int, second: int) -> Comparison:
    """Compare the prompts as of two entries."""
    with window.lock:
        earlier, later = rebuild_prompt(window, first), rebuild_prompt(window, second)
        lines = _merge_lines(dict(_pieces(earlier)), dict(_pieces(later)))
    visible = lines if len(lines) <= MAX_LINES else [line for line in lines if line.side != "both"][:MAX_LINES]
    return Comparison(
        first=first,
        second=second,
        room=window.budget.input_budget,
        first_tokens=earlier.built.tokens,
        second_tokens=later.built.tokens,
        first_messages=len(earlier.state.messages),
        second_messages=len(later.state.messages),
        lines=tuple(visible),
        more=len(visible) < len(lines),
    )


def rebuild_prompt(window: Window, seq: int) -> PastPrompt:
    """Rebuild the prompt as of an entry. As of the last entry it is the live window, including recalled text."""
    if seq == window.state.seq:
        builder = window.builder_for()
        return PastPrompt(state=window.state, builder=builder, built=builder.build(window.state))
    builder = copy_builder(window)
    projection = WindowProjection(window.store, window.session, builder.messages, window.budget.input_budget)
    state = WindowState()
    for _, folded in projection.states(_fold_start(window, seq), seq):
        state = folded
    recalled = recalled_note(window, state, builder)
    builder = builder.using(handoff=_handoff(window, builder, state), recalled=recalled)
    built = builder.build(state)
    return PastPrompt(state=state, builder=builder, built=_with_recorded_cost(built, recalled) if recalled else built)


def _fold_start(window: Window, seq: int) -> int:
    """The entry to fold from. Without an earlier snapshot, as many of the last entries as the input budget holds."""
    first = window.store.find(window.session, snapshot_key(1))
    if seq <= _FULL_FOLD_ENTRIES or (first is not None and first.seq < seq):
        return seq
    spent, begin, oldest = 0, seq, max(seq - MAX_ENTRIES + 1, 1)
    for stop in range(seq, oldest - 1, -_FOLD_PAGE):  # mostly one page of entries fills the prompt
        for entry in reversed(list(window.store.read(window.session, max(stop - _FOLD_PAGE + 1, oldest), stop))):
            spent += entry.tokens
            if spent > window.budget.input_budget:
                return begin
            begin = entry.seq
    return begin


def _handoff(window: Window, builder: PromptBuilder, state: WindowState) -> TurnNote | None:
    """The handoff that was replayed for the question, if any."""
    seq, behind = state.shown_handoff
    question = state.question
    entry = next(iter(window.store.read(window.session, seq, seq)), None) if seq else None
    if entry is None or entry.kind != HANDOFF or not question or behind not in (0, question):
        return None
    text = str(json.loads(entry.content).get("text", ""))
    return TurnNote(question=question, text=text, tokens=builder.messages.cost_of_text(text, builder.wire_of(state)))


def recall_event(window: Window, state: WindowState) -> Entry | None:
    """The event of what was recalled for the question of a state, if anything was."""
    question = state.question
    first = max(question, state.seq - _RECALL_LOOKBACK) + 1
    later = list(window.store.read(window.session, first, state.seq)) if question else []
    return next((entry for entry in reversed(later) if entry.kind == INJECTED), None)


def recalled_note(window: Window, state: WindowState, builder: PromptBuilder) -> TurnNote | None:
    """What was recalled for the question, as it was sent; quoted from its pointers where that is not possible."""
    entry = recall_event(window, state)
    if entry is None:
        return None
    with suppress(KeyError, TypeError, ValueError, AttributeError, InputError):
        payload = json.loads(entry.content)
        tokens, pointers = int(payload["tokens"]), [str(hit["pointer"]) for hit in payload["hits"]]
        text = window.quote_again(entry, state, builder) or render_quotation(list(_excerpts(window, pointers, tokens)))
        return TurnNote(question=state.question, text=text, tokens=tokens)
    return None


def _excerpts(window: Window, pointers: list[str], tokens: int) -> Iterator[Excerpt]:
    """Excerpts of the entries that pointers name, each with its share of the tokens. An imported file may name entries
    of other tenants, which are skipped."""
    share, reach = 4 * tokens // max(len(pointers), 1), reach_of(window.session, "tenant")
    for pointer in pointers:
        session, seq = parse_pointer(pointer)
        entry = next(iter(window.store.read(session, seq, seq)), None) if reach.contains(session) else None
        if entry is not None:
            text = excerpt(entry_text(entry), lambda pieces: [0.0] * len(pieces), max(share, 80))
            yield Excerpt(pointer, entry.role, entry.ts, text)


def _with_recorded_cost(built: BuiltPrompt, recalled: TurnNote) -> BuiltPrompt:
    """Return the prompt with the recorded cost of the recalled text, which was cut differently then."""
    raw = format_named(built.wire).text_message("user", recalled.text)
    if raw not in built.messages:
        return built
    place = built.messages.index(raw)
    costs = (*built.costs[:place], recalled.tokens, *built.costs[place + 1 :])
    return replace(built, costs=costs, tokens=built.tokens + recalled.tokens - built.costs[place])


def _pieces(past: PastPrompt) -> Iterator[tuple[_PieceKey, _Piece]]:
    """The pieces of a prompt by key, in order; their tokens add up to those of the prompt."""
    pieces = list(_message_pieces(past))
    rest = past.built.tokens - sum(piece.tokens for _, piece in pieces)
    yield ("frame", 0), _Piece(what="frame", role="", text="", tokens=rest)
    yield from pieces


def _message_pieces(past: PastPrompt) -> Iterator[tuple[_PieceKey, _Piece]]:
    state, builder = past.state, past.builder
    if builder.extras.foreword:
        cost = builder.foreword_cost(past.built.wire)
        yield ("standing", 0), _Piece(what="standing", role="system", text=builder.extras.foreword, tokens=cost)
    shown = builder.shown(state, past.built)
    marked = not has_marker(state)
    quoted = builder.quoted_before(state)
    for seq, line in state.messages.items():
        if not marked and seq > (state.first_evicted or state.task_seq):
            yield from _marker_pieces(past)
            marked = True
        if not line.answers:
            yield from _notes(builder.extras, seq, quoted)
        if seq in shown:
            shrink = state.shortened.get(seq)
            text = builder.messages.text_of(seq) if shrink is None else shrink.text
            what: What = "system" if line.role == "system" else "entry"
            yield ("entry", seq), _Piece(what=what, role=line.role, text=text, tokens=state.cost(seq), seq=seq)
        if line.answers:
            yield from _notes(builder.extras, seq, quoted)
    if not marked:
        yield from _marker_pieces(past)


def _notes(extras: PromptExtras, seq: int, quoted: int) -> Iterator[tuple[_PieceKey, _Piece]]:
    """The notes before an entry: the handoff before its question, recalled text before the entry `quoted`."""
    notes: tuple[tuple[What, TurnNote | None, int], ...] = (
        ("handoff", extras.handoff, 0),
        ("recalled", extras.recalled, quoted),
    )
    for what, note, entry in notes:
        if note is not None and (entry or note.question) == seq:
            yield (what, note.question), _Piece(what=what, role="user", text=note.text, tokens=note.tokens)


def _marker_pieces(past: PastPrompt) -> Iterator[tuple[_PieceKey, _Piece]]:
    state, builder = past.state, past.builder
    text = builder.marker_of(state)
    cost = builder.messages.cost_of_text(text, past.built.wire)
    summary = state.summary.text if state.summary else ""
    summary_tokens = min(builder.messages.meter.count(summary), cost) if summary else 0
    notice = text.removesuffix(summary).rstrip()
    yield ("marker", 0), _Piece(what="marker", role="user", text=notice, tokens=cost - summary_tokens)
    if summary:
        yield ("summary", 0), _Piece(what="summary", role="user", text=summary, tokens=summary_tokens)


def _merge_lines(first: Mapping[_PieceKey, _Piece], second: Mapping[_PieceKey, _Piece]) -> list[PromptLine]:
    """Merge both prompts in one order: pieces of the first only come before the next common piece."""
    lines: list[PromptLine] = []
    order, reached = list(first), 0
    places = {key: place for place, key in enumerate(order)}
    for key, piece in second.items():
        upto = max(places.get(key, -1), reached)
        lines += (_make_line(first[earlier], None) for earlier in order[reached:upto] if earlier not in second)
        lines.append(_make_line(first.get(key), piece))
        reached = upto
    return lines + [_make_line(first[earlier], None) for earlier in order[reached:] if earlier not in second]


def _make_line(first: _Piece | None, second: _Piece | None) -> PromptLine:
    side: Side = "first" if second is None else "second"
    if first is not None and second is not None:
        side = "both" if first == second else "changed"
    piece = second or first or _EMPTY_PIECE
    return PromptLine(
        seq=piece.seq,
        what=piece.what,
        role=piece.role,
        text=piece.text[:_MAX_TEXT],
        cut=len(piece.text) > _MAX_TEXT,
        first_tokens=first.tokens if first else None,
        second_tokens=second.tokens if second else None,
        side=side,
    )
