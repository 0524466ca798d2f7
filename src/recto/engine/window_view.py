"""The window after any entry: the prompt block by block, why each block is in it, and where all other entries are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from recto.context.policies.planner import plan_relief
from recto.context.window.budget import Zone
from recto.context.window.report import DecisionSummary
from recto.context.window.state import Protection, ProtectionReason, WindowState, protection_reasons
from recto.engine.pagination import EntryPositions
from recto.engine.projection import DECISIONS, RESTORED
from recto.engine.prompt_builder import (
    HANDOFF,
    MARKER,
    NEW_NOTES,
    NOTES_HEADING,
    RECALLED,
    RECORD_HEADING,
    PromptBuilder,
    TurnNote,
)
from recto.engine.prompt_diff import PastPrompt, rebuild_prompt, recall_event, recalled_note
from recto.engine.relief import prompt_size
from recto.engine.report import current_reading, summarize_decision
from recto.engine.views.models import EntryView
from recto.engine.window import Window
from recto.errors import InputError
from recto.formats.arrangement import SyntheticResult
from recto.recall.types import Verdict, reasons_in_words, split_quotation, verdict_of
from recto.transcript.entries import Entry
from recto.transcript.session_keys import parse_pointer

MAX_BLOCKS = 1_000
"""Blocks of a view; of a longer prompt the oldest messages are left out."""
_MAX_TEXT = 600
"""Characters of a block's text; the entry has all of it."""
_MAX_SCANNED = 50_000
"""Entries behind a message that are searched for the decision that evicted it."""

BlockKind = Literal[
    "tools", "instructions", "message", "placeholder", "marker", "record", "notes", "summary", "recalled", "handoff",
    "frame",
]  # fmt: skip
"""The kind of a block. `placeholder`: a result that the format requires and that was never stored. `marker`: the notice
of evicted messages. `frame`: what the format adds."""
BlockReason = Literal[ProtectionReason, "fits", "written", "client"]
"""Why a block is in the prompt: the reason why it is protected, or: `fits`, nothing evicted it so far; `written`, Recto
wrote it; `client`, it comes with every request."""
SpanPlace = Literal["in", "trimmed", "pinned", "protected", "summarized", "evicted", "recalled", "event"]
"""Where entries are: in the prompt (whole, trimmed, pinned, protected), evicted (with or without a summary), or evicted
and quoted in the prompt. `event`: no message."""


class RecalledQuote(Struct, frozen=True, kw_only=True):
    """One quotation of a recalled block."""

    pointer: str
    seq: int | None
    """Its entry; null for one of another session."""
    heading: str
    """Who said it and when, as it was sent."""
    text: str
    """As it was sent."""
    question: int
    """The user message it was quoted for."""
    reasons: tuple[str, ...]
    """The strongest reasons why it was recalled, in words; none for a question that is quoted with its answer."""
    verdict: Verdict | None
    """What it was judged last."""


class PromptBlock(Struct, frozen=True, kw_only=True):
    """One block of a prompt."""

    what: BlockKind
    seq: int | None
    """Its entry, if it is one."""
    role: str
    text: str
    cut: bool
    """Whether the text goes on; the entry has all of it."""
    tokens: int
    stored_tokens: int
    """Tokens of the stored message; more than `tokens` where the prompt has it in a shorter form."""
    reason: BlockReason
    sources: tuple[int, ...] = ()
    """The entries of this session that it quotes."""
    quotes: tuple[RecalledQuote, ...] = ()
    """Of a recalled block: its quotations."""


class EntrySpan(Struct, frozen=True, kw_only=True):
    """Entries one after another that are in the same place."""

    first: int
    last: int
    place: SpanPlace


class WindowView(Struct, frozen=True, kw_only=True):
    """The window after one entry."""

    at: int
    """The entry."""
    last: int
    """The newest entry of the session."""
    turn: int
    tokens: int
    """Tokens of the prompt, by the provider's last report where there is one and our own count since."""
    counted: int
    """Our own count: the sum of all blocks."""
    room: int
    utilization: float
    zone: Zone
    messages: int
    evicted: int
    """Messages that are not in the prompt; now: those that the next prompt evicts included."""
    blocks: tuple[PromptBlock, ...]
    """In the order of the prompt."""
    more: int
    """Messages of the prompt that are not among the blocks."""
    spans: tuple[EntrySpan, ...]
    """All entries up to `at`, oldest first."""


class EntryHistory(Struct, frozen=True, kw_only=True):
    """What became of an entry: where it is now, and the decisions that evicted or shortened it, newest first."""

    entry: EntryView
    decisions: tuple[EntryDecision, ...]
    more: bool
    """Whether later decisions may concern it: not all entries after it were searched."""


class EntryDecision(Struct, frozen=True, kw_only=True):
    """A decision about an entry."""

    action: Literal["evicted", "trimmed"]
    decision: DecisionSummary
    utilization: float
    """How full the prompt was before it."""
    ceiling: float
    """How full a prompt may be before something is evicted."""
    tokens_before: int
    tokens_after: int
    """The prompt before and after it."""


def window_view(window: Window, at: int | None = None) -> WindowView:
    """The window after an entry, or now: what would be sent next."""
    with window.lock:
        past = _planned(window) if at is None or at >= window.state.seq else rebuild_prompt(window, at)
        state, reading = past.state, current_reading(window)
        room = reading.room
        quotes = tuple(_quotes(window, past))
        recalled = tuple(quote.seq for quote in quotes if quote.seq is not None and quote.reasons)
        blocks = list(_blocks(past, window.rules.protection, recalled, quotes))
        frame = past.built.tokens - sum(block.tokens for block in blocks)
        blocks += [_written("frame", "", frame, "client")] if frame else []
        spans = tuple(_spans(past, window.rules.protection, frozenset(recalled)))
        last = window.store.head(window.session).seq
    messages = [place for place, block in enumerate(blocks) if block.what == "message" and block.reason != "system"]
    left_out = frozenset(messages[: max(len(blocks) - MAX_BLOCKS, 0)])
    exact = past.builder.messages.meter.exact
    tokens = prompt_size(state, past.built.tokens, exact=exact)[0].tokens if at is not None else reading.tokens
    return WindowView(
        at=state.seq,
        last=last,
        turn=state.turn,
        tokens=tokens,
        counted=past.built.tokens,
        room=room,
        utilization=tokens / max(room, 1),
        zone=window.rules.thresholds.zone(tokens / max(room, 1)),
        messages=len(state.messages),
        evicted=state.evicted_messages,
        blocks=tuple(block for place, block in enumerate(blocks) if place not in left_out),
        more=len(left_out),
        spans=spans,
    )


def entry_history(window: Window, seq: int) -> EntryHistory:
    """What became of an entry.

    Raises:
        InputError: There is no such entry.
    """
    entry = next(iter(window.store.read(window.session, seq, seq)), None)
    if entry is None:
        raise InputError(f"there is no entry {seq} in this session")
    head = window.store.head(window.session).seq
    found: list[tuple[Entry, Literal["evicted", "trimmed"]]] = []
    undone: set[int] = set()
    for later in window.store.read(window.session, seq + 1, seq + _MAX_SCANNED):
        if later.kind == RESTORED:
            undone.add(json.loads(later.content)["decision"])
        elif later.kind in DECISIONS:
            payload = json.loads(later.content)
            if any(first <= seq <= last for first, last in payload["left"]):
                found.append((later, "evicted"))
            elif str(seq) in payload["shrunk"]:
                found.append((later, "trimmed"))
    return EntryHistory(
        entry=EntryPositions(window).view(entry),
        decisions=tuple(_decision(window, made, action, undone) for made, action in reversed(found)),
        more=seq + _MAX_SCANNED < head,
    )


def _decision(window: Window, entry: Entry, action: Literal["evicted", "trimmed"], undone: set[int]) -> EntryDecision:
    payload = json.loads(entry.content)
    return EntryDecision(
        action=action,
        decision=summarize_decision(entry, undone=entry.seq in undone),
        utilization=payload["tokens_before"] / max(window.budget.input_budget, 1),
        ceiling=window.rules.ceiling,
        tokens_before=payload["tokens_before"],
        tokens_after=payload["tokens_after"],
    )


def next_state(window: Window) -> WindowState:
    """The state of the next prompt: after the relief that is due. Nothing is stored for it."""
    with window.lock:
        return plan_relief(window.state, window.rules, _next_builder(window)).state


def _next_builder(window: Window) -> PromptBuilder:
    """The builder of the next prompt, with the tools of the last one."""
    outlook, live = window.outlook().builder, window.builder.extras
    recalled = live.recalled or recalled_note(window, window.state, outlook)
    return outlook.using(handoff=live.handoff, recalled=recalled)


def _planned(window: Window) -> PastPrompt:
    """The next prompt. Nothing is stored for it."""
    builder = _next_builder(window)
    state = plan_relief(window.state, window.rules, builder).state
    return PastPrompt(state=state, builder=builder, built=builder.build(state))


def _quotes(window: Window, past: PastPrompt) -> Iterator[RecalledQuote]:
    """The quotations of the recalled block, in its order."""
    note, event = past.builder.extras.recalled, recall_event(window, past.state)
    if note is None or event is None:
        return
    judged = window.judged_entries()
    with suppress(KeyError, TypeError, ValueError, AttributeError, InputError):
        parts = {str(hit["pointer"]): hit["parts"] for hit in json.loads(event.content)["hits"]}
        question = past.builder.messages.text_of(note.question)
        for pointer, heading, text in split_quotation(note.text):
            session, seq = parse_pointer(pointer)
            helpful = judged.get((session, seq))
            yield RecalledQuote(
                pointer=pointer,
                seq=seq if session == window.session else None,
                heading=heading,
                text=text,
                question=note.question,
                reasons=reasons_in_words(parts[pointer], question, text) if pointer in parts else (),
                verdict=verdict_of(helpful),
            )


def _blocks(
    past: PastPrompt, protection: Protection, recalled: tuple[int, ...], quotes: tuple[RecalledQuote, ...]
) -> Iterator[PromptBlock]:
    """The blocks of a prompt in the order in which they are sent."""
    builder, built, state = past.builder, past.built, past.state
    extras = builder.extras
    if extras.tools:
        yield _written("tools", "", extras.tools, "client")
    if extras.foreword or extras.system:
        yield _written("instructions", extras.foreword, builder.foreword_cost(built.wire) + extras.system, "system")
    reasons, shown = _reasons(state, protection), builder.shown(state, built)
    written = _notes(past)
    for seq in builder.lines(state).apart:
        yield _message(past, seq, reasons)
    for piece in built.arrangement.pieces:
        if piece.seq == MARKER:
            yield from _marker(past)
        elif isinstance(piece, SyntheticResult):
            cost = builder.messages.cost_of_generated("answer", piece.call_id + piece.tool, built.wire)
            yield replace(_written("placeholder", piece.tool, cost), role="tool", seq=piece.seq)
        elif piece.seq in written:
            what, note = written[piece.seq]
            block = _written(what, note.text, note.tokens)
            yield replace(block, sources=recalled, quotes=quotes) if what == "recalled" else block
        elif piece.seq in shown:
            yield _message(past, piece.seq, reasons)


def _notes(past: PastPrompt) -> dict[int, tuple[BlockKind, TurnNote]]:
    """What Recto wrote behind a question, by its number in the arrangement."""
    extras = past.builder.extras
    notes: dict[int, tuple[BlockKind, TurnNote]] = {
        NEW_NOTES - place: ("notes", note) for place, note in enumerate(past.builder.new_notes(past.state))
    }
    if extras.handoff is not None:
        notes[HANDOFF] = ("handoff", extras.handoff)
    if extras.recalled is not None:
        notes[RECALLED] = ("recalled", extras.recalled)
    return notes


def _message(past: PastPrompt, seq: int, reasons: dict[int, BlockReason]) -> PromptBlock:
    state = past.state
    shorter = state.shortened.get(seq)
    text = shorter.text if shorter is not None else past.builder.messages.text_of(seq)
    line = state.messages[seq]
    return PromptBlock(
        what="message",
        seq=seq,
        role=line.role,
        text=text[:_MAX_TEXT],
        cut=len(text) > _MAX_TEXT,
        tokens=state.cost(seq),
        stored_tokens=line.tokens,
        reason=reasons.get(seq, "fits"),
    )


def _marker(past: PastPrompt) -> Iterator[PromptBlock]:
    """The notice of evicted messages, and what follows in the same message: record, notes and summary."""
    state, builder = past.state, past.builder
    text = builder.marker_of(state)
    cost = builder.messages.cost_of_generated("marker", text, past.built.wire)
    pieces = builder.messages.marker_pieces(state, text, cost)
    tokens: dict[str, int] = {piece.kind: piece.tokens for piece in pieces}
    summary = state.summary.text if state.summary else ""
    headings: tuple[tuple[BlockKind, str], ...] = (
        ("record", RECORD_HEADING), ("notes", NOTES_HEADING), ("summary", summary)
    )  # fmt: skip
    found = [(text.find(heading), what) for what, heading in headings if heading and heading in text]
    starts: list[tuple[int, BlockKind]] = [(0, "marker"), *sorted(found)]
    for (start, what), (end, _) in zip(starts, [*starts[1:], (len(text), "")], strict=True):
        yield _written(what, text[start:end].strip(), tokens.get(what, 0))


def _written(what: BlockKind, text: str, tokens: int, reason: BlockReason = "written") -> PromptBlock:
    """A block that is no message of the session. It is in no entry, so its text is not cut as short."""
    longest = 20 * _MAX_TEXT
    return PromptBlock(
        what=what,
        seq=None,
        role="system" if reason == "system" else "user",
        text=text[:longest],
        cut=len(text) > longest,
        tokens=tokens,
        stored_tokens=tokens,
        reason=reason,
    )


def _reasons(state: WindowState, protection: Protection) -> dict[int, BlockReason]:
    """Why messages are protected; the strongest reason of each."""
    reasons: dict[int, BlockReason] = {}
    for reason, seqs in protection_reasons(state, protection):
        reasons.update(dict.fromkeys(seqs, reason))
    return reasons


def _spans(past: PastPrompt, protection: Protection, recalled: frozenset[int]) -> Iterator[EntrySpan]:
    """Where all entries are. The prompt is read and not the transcript: a long session costs no more than a short one.

    Whatever is no message counts as evicted among evicted messages.
    """
    state = past.state
    reasons, shown = _reasons(state, protection), past.builder.shown(state, past.built)
    summarized = state.summary.covered_until if state.summary else 0
    places: dict[int, SpanPlace] = dict.fromkeys(recalled, "recalled")
    for seq in state.messages:
        if seq not in shown:
            places[seq] = "evicted"
        elif seq in state.shortened:
            places[seq] = "trimmed"
        elif reasons.get(seq) == "pinned":
            places[seq] = "pinned"
        else:
            places[seq] = "in" if reasons.get(seq, "fits") == "fits" else "protected"
    runs: list[EntrySpan] = []

    def add(first: int, last: int, place: SpanPlace) -> None:
        if first > last:
            return
        if runs and runs[-1].place == place:
            runs[-1] = replace(runs[-1], last=last)
        else:
            runs.append(EntrySpan(first=first, last=last, place=place))

    def gap(first: int, last: int) -> None:
        """Entries that are not in the prompt: evicted ones, and events before and behind these."""
        begin, end = max(first, state.first_evicted or last + 1), min(last, state.last_evicted)
        if begin > end:
            add(first, last, "event")
            return
        add(first, begin - 1, "event")
        add(begin, min(end, summarized), "summarized")
        add(max(begin, summarized + 1), end, "evicted")
        add(end + 1, last, "event")

    reached = 0
    for seq in sorted(places):
        gap(reached + 1, seq - 1)
        add(seq, seq, places[seq])
        reached = seq
    gap(reached + 1, state.seq)
    return iter(runs)
