"""Prompts of the past, and two of them side by side: what both hold, what only one of them holds, what each costs.

A past prompt is folded from the transcript like the live one, from the last snapshot before it. What was recalled for
it is quoted again from its pointers, cut short; what it cost is what was told then. It does not know which tools were
offered with a prompt, so none are counted; what stands before everything else is as it is now.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from recto.context.window.state import WindowState
from recto.engine.projection import HANDOFF, WindowProjection, snapshot_key
from recto.engine.prompt_builder import BuiltPrompt, PromptBuilder, PromptExtras, TurnNote
from recto.engine.recall_injection import INJECTED
from recto.engine.timeline import MOST, builder_like
from recto.engine.window import Window
from recto.errors import InputError
from recto.formats import format_named
from recto.formats.entry_text import entry_text
from recto.recall.chunking import excerpt
from recto.recall.quoting import Excerpt, render_quotation
from recto.transcript.session_keys import parse_pointer, reach_of

MOST_LINES = 1_000
"""Lines that one comparison tells at most."""
_LONGEST = 400
"""Characters of a line's text; the entry itself has all of it."""
_SHORT = 1_024
"""Up to this entry a session that has no snapshot is folded from its beginning."""
_TURN = 400
"""Entries back from a prompt in which it is looked for what was recalled for it: the length of a long turn."""

What = Literal["frame", "standing", "system", "entry", "marker", "summary", "recalled", "handoff"]
"""What a line is. `frame`: what a format adds to messages, or leaves out of them. `standing`: system text that is no
message of the session. `marker`: what is said of what has left, with the notes."""
Side = Literal["both", "first", "second", "changed"]
_Known: TypeAlias = tuple[str, int]
"""What a line is known by in another prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLine:
    """One thing that stands in one of two prompts, or in both."""

    seq: int | None
    """Its entry, where it is one."""
    what: What
    role: str
    text: str
    """As it stands in the second where it stands in both."""
    cut: bool
    """Whether the text goes on."""
    first_tokens: int | None
    second_tokens: int | None
    """What it costs in each; none where it is not in it."""
    side: Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two prompts of one session, as they stood after two entries, in the order in which a prompt holds its lines."""

    first: int
    second: int
    room: int
    first_tokens: int
    second_tokens: int
    first_messages: int
    second_messages: int
    lines: tuple[PromptLine, ...]
    more: bool
    """Whether lines were left out: those that both hold alike, and then the last ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    what: What
    role: str
    text: str
    tokens: int
    seq: int | None = None


_NOTHING = _Piece(what="frame", role="", text="", tokens=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Past:
    """A session as it stood after an entry, or stands now, with what its prompts are made of."""

    state: WindowState
    builder: PromptBuilder
    built: BuiltPrompt


def prompt_after(window: Window, seq: int) -> BuiltPrompt:
    """The prompt as it stood after an entry, with what had been decided and recalled by then."""
    with window.lock:
        return _past(window, seq).built


def compare(window: Window, first: int, second: int) -> Comparison:
    """The prompts after two entries, side by side."""
    with window.lock:
        one, other = _past(window, first), _past(window, second)
        lines = _lines(dict(_pieces(one)), dict(_pieces(other)))
    shown = lines if len(lines) <= MOST_LINES else [line for line in lines if line.side != "both"][:MOST_LINES]
    return Comparison(
        first=first,
        second=second,
        room=window.budget.input_budget,
        first_tokens=one.built.tokens,
        second_tokens=other.built.tokens,
        first_messages=len(one.state.messages),
        second_messages=len(other.state.messages),
        lines=tuple(shown),
        more=len(shown) < len(lines),
    )


def _past(window: Window, seq: int) -> _Past:
    """After the last entry it is the window as it stands, with what stands in it for the question in flight."""
    if seq == window.state.seq:
        builder = window.builder_for()
        return _Past(state=window.state, builder=builder, built=builder.build(window.state))
    builder = builder_like(window)
    fold = WindowProjection(window.store, window.session, builder.messages, window.budget.input_budget)
    state = WindowState()
    for _, found in fold.states(_begin(window, seq), seq):
        state = found
    recalled = _recalled(window, state)
    builder = builder.using(handoff=_handoff(window, builder, state), recalled=recalled)
    built = builder.build(state)
    return _Past(state=state, builder=builder, built=_as_told(built, recalled) if recalled else built)


def _begin(window: Window, seq: int) -> int:
    """The entry to fold from on. Where no snapshot is before it, as many of the last entries as the room holds."""
    first = window.store.find(window.session, snapshot_key(1))
    if seq <= _SHORT or (first is not None and first.seq < seq):
        return seq
    spent, begin = 0, seq
    for entry in reversed(list(window.store.read(window.session, seq - MOST + 1, seq))):
        spent += entry.tokens
        if spent > window.budget.input_budget:
            break
        begin = entry.seq
    return begin


def _handoff(window: Window, builder: PromptBuilder, state: WindowState) -> TurnNote | None:
    """Where the work stood before a new window, behind the question that it was told for."""
    seq, behind = state.shown_handoff
    question = _question(state)
    entry = next(iter(window.store.read(window.session, seq, seq)), None) if seq else None
    if entry is None or entry.kind != HANDOFF or not question or behind not in (0, question):
        return None
    text = str(json.loads(entry.content).get("text", ""))
    return TurnNote(question=question, text=text, tokens=builder.messages.cost_of_text(text, builder.wire_of(state)))


def _recalled(window: Window, state: WindowState) -> TurnNote | None:
    """What had come back for the question, quoted from its pointers."""
    question = _question(state)
    if not question:
        return None
    for entry in reversed(list(window.store.read(window.session, max(question, state.seq - _TURN) + 1, state.seq))):
        if entry.kind == INJECTED:
            with suppress(KeyError, TypeError, ValueError, AttributeError, InputError):
                about = json.loads(entry.content)
                tokens, pointers = int(about["tokens"]), [str(hit["pointer"]) for hit in about["hits"]]
                text = render_quotation(list(_excerpts(window, pointers, tokens)))
                return TurnNote(question=question, text=text, tokens=tokens)
    return None


def _excerpts(window: Window, pointers: list[str], tokens: int) -> Iterator[Excerpt]:
    """What pointers name, each in its share of so many tokens. A file from elsewhere may name what is not ours."""
    share, reach = 4 * tokens // max(len(pointers), 1), reach_of(window.session, "tenant")
    for pointer in pointers:
        session, seq = parse_pointer(pointer)
        entry = next(iter(window.store.read(session, seq, seq)), None) if reach.contains(session) else None
        if entry is not None:
            yield Excerpt(pointer, entry.role, entry.ts, excerpt(entry_text(entry), lambda _: 0.0, max(share, 80)))


def _as_told(built: BuiltPrompt, recalled: TurnNote) -> BuiltPrompt:
    """The prompt with the cost of what was recalled as it was told then: the quotation then had other cuts."""
    raw = format_named(built.wire).text_message("user", recalled.text)
    if raw not in built.messages:
        return built
    place = built.messages.index(raw)
    costs = (*built.costs[:place], recalled.tokens, *built.costs[place + 1 :])
    return replace(built, costs=costs, tokens=built.tokens + recalled.tokens - built.costs[place])


def _pieces(past: _Past) -> Iterator[tuple[_Known, _Piece]]:
    """What a prompt holds, each with what it is known by in another one; in order, and adding up to its tokens."""
    pieces = list(_said(past))
    rest = past.built.tokens - sum(piece.tokens for _, piece in pieces)
    yield ("frame", 0), _Piece(what="frame", role="", text="", tokens=rest)
    yield from pieces


def _said(past: _Past) -> Iterator[tuple[_Known, _Piece]]:
    state, builder = past.state, past.builder
    if builder.extras.foreword:
        cost = builder.foreword_cost(past.built.wire)
        yield ("standing", 0), _Piece(what="standing", role="system", text=builder.extras.foreword, tokens=cost)
    without = _without(past)
    marked = not state.evicted_messages
    for seq, line in state.messages.items():
        if not marked and seq > state.first_evicted:
            yield from _marker(past)
            marked = True
        if seq not in without:
            shrink = state.shortened.get(seq)
            text = builder.messages.text_of(seq) if shrink is None else shrink.text
            what: What = "system" if line.role == "system" else "entry"
            yield ("entry", seq), _Piece(what=what, role=line.role, text=text, tokens=state.cost(seq), seq=seq)
        yield from _notes(builder.extras, seq)
    if not marked:
        yield from _marker(past)


def _notes(extras: PromptExtras, seq: int) -> Iterator[tuple[_Known, _Piece]]:
    """What stands behind a question: first the handoff, then what came back."""
    behind: tuple[tuple[What, TurnNote | None], ...] = (("handoff", extras.handoff), ("recalled", extras.recalled))
    for what, text in behind:
        if text is not None and text.question == seq:
            yield (what, seq), _Piece(what=what, role="user", text=text.text, tokens=text.tokens)


def _marker(past: _Past) -> Iterator[tuple[_Known, _Piece]]:
    state, builder = past.state, past.builder
    text = builder.marker_of(state)
    cost = builder.messages.cost_of_text(text, past.built.wire)
    summary = state.summary.text if state.summary else ""
    known = min(builder.messages.meter.count(summary), cost) if summary else 0
    told = text.removesuffix(summary).rstrip()
    yield ("marker", 0), _Piece(what="marker", role="user", text=told, tokens=cost - known)
    if summary:
        yield ("summary", 0), _Piece(what="summary", role="user", text=summary, tokens=known)


def _without(past: _Past) -> frozenset[int]:
    """Entries whose every result belongs nowhere, so that they are not in the prompt."""
    gone: dict[int, int] = {}
    for one in past.built.arrangement.omitted:
        gone[one.seq] = gone.get(one.seq, 0) + 1
    return frozenset(seq for seq, count in gone.items() if count >= len(past.state.messages[seq].answers))


def _lines(first: Mapping[_Known, _Piece], second: Mapping[_Known, _Piece]) -> list[PromptLine]:
    """Both in one order: what only the first holds stands before what both hold next."""
    lines: list[PromptLine] = []
    order, reached = list(first), 0
    places = {key: place for place, key in enumerate(order)}
    for key, piece in second.items():
        upto = max(places.get(key, -1), reached)
        lines += (_line(first[one], None) for one in order[reached:upto] if one not in second)
        lines.append(_line(first.get(key), piece))
        reached = upto
    return lines + [_line(first[one], None) for one in order[reached:] if one not in second]


def _line(first: _Piece | None, second: _Piece | None) -> PromptLine:
    side: Side = "first" if second is None else "second"
    if first is not None and second is not None:
        side = "both" if first == second else "changed"
    shown = second or first or _NOTHING
    return PromptLine(
        seq=shown.seq,
        what=shown.what,
        role=shown.role,
        text=shown.text[:_LONGEST],
        cut=len(shown.text) > _LONGEST,
        first_tokens=first.tokens if first else None,
        second_tokens=second.tokens if second else None,
        side=side,
    )


def _question(state: WindowState) -> int:
    return next((line.seq for line in reversed(state.messages.values()) if line.role == "user"), 0)
