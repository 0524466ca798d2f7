"""The report on a window: what the next prompt contains and what it does not, ready to be shown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from recto.context.facts.types import Fact, message_views
from recto.context.policies.planner import plan_next, plan_relief
from recto.context.window.budget import PressureReading, call_price
from recto.context.window.report import (
    CacheEstimate,
    Compression,
    DecisionSummary,
    RecalledMessage,
    ReliefCandidates,
    Report,
    list_token_holders,
)
from recto.context.window.state import WindowState, ranges_of, split_units
from recto.engine.projection import DECISIONS, JUDGED, RESTORED, WRITTEN
from recto.engine.prompt_builder import BuiltPrompt, PromptBuilder
from recto.engine.recall_injection import INJECTED
from recto.engine.relief import PlannedRelief, pressure_of, usage_of, write_record
from recto.engine.runs import prompt_run
from recto.engine.window import Window
from recto.transcript.entries import MESSAGE, Entry

_REACH = 2000
"""Entries back in which decisions are listed."""
_LEDGER_REACH = 5000
"""Entries back that are read for facts, where evicted messages have no summary."""
_RECALL_REACH = 400
"""Entries back in which the last recall is searched: the length of a long turn."""


def report(window: Window, tools: Sequence[Any] = (), largest: int = 20, run: int | None = None) -> Report:
    """What the last prompt was made of, or that of a run; what the next would contain, and what it would not.

    Changes nothing. Without `tools`, the next prompt has the tools and the system text of the last answered one.
    """
    with window.lock:
        return _report(window, tools, largest, run)


def current_reading(window: Window) -> PressureReading:
    """How full the prompt of a session is now. Every screen shows this reading.

    It is that of the last answered prompt with everything since: its answer, results, a new question, decisions. Of a
    session that is longer than its window, because it was imported or had no prompt for long, it is that of the next
    prompt.
    """
    outlook = window.outlook()
    with window.lock:
        state, builder = outlook.state, outlook.builder
        if builder.prompt_tokens(state) > outlook.input_budget:
            state = _after_relief(window, state, builder)
        return pressure_of(state, builder, window.rules, outlook.input_budget)


def preview(window: Window, tools: Sequence[Any] = ()) -> BuiltPrompt:
    """The prompt as it would be sent now, without a new recall or summary. Changes nothing."""
    with window.lock:
        return _planned(window, window.builder_for(tools))[1]


def _planned(window: Window, builder: PromptBuilder) -> tuple[WindowState, BuiltPrompt]:
    """The state of the next prompt, and that prompt."""
    state = _after_relief(window, window.state, builder)
    return state, builder.build(state)


def _after_relief(window: Window, state: WindowState, builder: PromptBuilder) -> WindowState:
    """The state after the relief that is due, with the working record that it would write."""
    relief = plan_relief(state, window.rules, builder)
    planned = PlannedRelief(relief=relief, indexed="", state=state, rules=window.rules)
    record = write_record(planned, window.messages)
    if record is None:
        return relief.state
    # `edit` is another one, so that the marker with the record replaces the one that was laid out for the plan.
    return replace(relief.state, record=record, planned_record_tokens=0, edit=object())


def _builder(window: Window, tools: Sequence[Any]) -> PromptBuilder:
    """The builder of the next prompt: with these tools, or with what came with the last one."""
    if tools:
        return window.builder_for(tools)
    outlook, live = window.outlook().builder, window.builder.extras
    return outlook.using(handoff=live.handoff, recalled=live.recalled)


def _report(window: Window, tools: Sequence[Any], largest: int, run: int | None) -> Report:
    budget, meter = window.budget, window.messages.meter
    builder = _builder(window, tools)
    (state, built), extras = _planned(window, builder), builder.extras
    beside = {"tools": extras.tools, "system": extras.system, "answer": extras.answer, "frame": extras.frame}
    protected = split_units(state, window.rules.protection).protected
    recalled, recalled_tokens = last_recall(window)
    recent = window.store.tail(window.session, _REACH)
    return Report(
        session=window.session,
        model=window.rules.card.name if window.rules.card else "",
        window=budget.window,
        room=window.outlook().input_budget,
        tokens=built.tokens,
        messages=len(state.messages),
        reading=current_reading(window),
        components=usage_of(state, builder, budget),
        largest=tuple(list_token_holders(state, beside, built.tokens)[:largest]),
        protected_tokens=extras.fixed + sum(state.cost(seq) for unit in protected for seq in unit.seqs),
        left_messages=state.evicted_messages,
        left_tokens=state.evicted_tokens,
        left_first=state.first_evicted,
        left_last=state.last_evicted,
        tools_left_out=len(state.left_out.hidden),
        tools_left_out_tokens=state.left_out.tokens,
        recalled=recalled,
        recalled_tokens=recalled_tokens,
        decisions=tuple(_decisions(recent)),
        compressions=tuple(_compressions(recent)),
        judged=_judged(recent),
        marker_tokens=builder.marker_cost(state),
        summary_tokens=meter.count(state.summary.text) if state.summary else state.planned_text_tokens,
        notes=len(state.notes),
        omitted=tuple(f"entry {left.seq}: {left.reason}" for left in built.arrangement.omitted),
        cache=_cache(window, built),
        candidates=tuple(_candidates(window, state, builder)),
        run=prompt_run(window.store, window.session, run),
    )


def _candidates(window: Window, state: WindowState, builder: PromptBuilder) -> Iterator[ReliefCandidates]:
    """What the next relief would take. Nothing is planned in the green zone."""
    if current_reading(window).zone == "green":
        return
    for plan in plan_next(state, window.rules, builder):
        evicted = [seq for unit in plan.evicts for seq in unit.seqs]
        shortened = [result.seq for result in plan.shortens]
        seqs = sorted({*evicted, *shortened, *(cleared.seq for cleared in plan.clears)})
        yield ReliefCandidates(
            policy=plan.policy,
            action="evict" if evicted else "shorten" if shortened else "clear",
            ranges=tuple((first, last) for first, last in ranges_of(seqs)),
            messages=len(seqs),
            frees=plan.frees,
        )


def decisions(window: Window, reach: int = _REACH, *, scores: bool = False) -> Iterator[DecisionSummary]:
    """The decisions among the last entries, newest first; with `scores`, every score that went into them."""
    return _decisions(window.store.tail(window.session, reach), scores=scores)


def _decisions(recent: Sequence[Entry], *, scores: bool = False) -> Iterator[DecisionSummary]:
    undone = {json.loads(entry.content)["decision"] for entry in recent if entry.kind == RESTORED}
    made = (entry for entry in reversed(recent) if entry.kind in DECISIONS)
    return (summarize_decision(entry, undone=entry.seq in undone, scores=scores) for entry in made)


def summarize_decision(entry: Entry, *, undone: bool, scores: bool = False) -> DecisionSummary:
    """A decision, read from its entry."""
    from recto.engine.audit import audit_line  # noqa: PLC0415  # loads every kind of event

    line = audit_line(entry)
    return DecisionSummary(
        seq=line.seq,
        id=line.id,
        ts=line.ts,
        kind=line.kind,
        policy=line.policy,
        reason=line.reason,
        messages=line.messages,
        frees=line.freed or 0,
        undone=undone,
        scores=line.scores if scores else {},
    )


def compressions(window: Window, reach: int = _REACH) -> Iterator[Compression]:
    """The compressions among the last entries, newest first."""
    return _compressions(window.store.tail(window.session, reach))


def _compressions(recent: Sequence[Entry]) -> Iterator[Compression]:
    undone = {json.loads(entry.content)["decision"] for entry in recent if entry.kind == RESTORED}
    for entry in reversed(recent):
        payload = json.loads(entry.content).get("compression") if entry.kind in WRITTEN else None
        if payload:
            yield _compression(entry, payload, entry.seq in undone)


def _compression(entry: Entry, payload: Mapping[str, Any], undone: bool) -> Compression:
    attempts, fidelity = payload.get("attempts", ()), payload.get("fidelity", {})
    return Compression(
        seq=entry.seq,
        kind=entry.kind,
        style=payload["style"],
        engine=payload["engine"],
        tokens_from=payload["tokens_from"],
        tokens_to=payload["tokens_to"],
        seconds=sum(attempt["seconds"] for attempt in attempts),
        picodollars=sum(attempt["picodollars"] for attempt in attempts),
        attempts=tuple(f"{attempt['engine']}: {attempt['outcome']}" for attempt in attempts),
        claims=payload.get("claims", 0),
        invented=len(payload.get("invented", ())),
        fidelity=fidelity.get("score"),
        ledger=fidelity.get("ledger"),
        entities=fidelity.get("entities"),
        lost=payload.get("lost", {}).get("counts", {}),
        undone=undone,
    )


def _judged(recent: Sequence[Entry]) -> float | None:
    return next((float(json.loads(entry.content)["score"]) for entry in reversed(recent) if entry.kind == JUDGED), None)


def ledger(window: Window) -> tuple[Fact, ...]:
    """The facts of a session that must not be lost: those of evicted messages, and those in the prompt."""
    from recto.context.facts.extraction import extract_facts  # noqa: PLC0415  # patterns for facts take a while to load

    with window.lock:
        state = window.state
        if state.summary is not None or not state.evicted_messages:
            return extract_facts(window.messages.views(state.messages), state.summary.facts if state.summary else ())
        return extract_facts(message_views(window.store.tail(window.session, _LEDGER_REACH)))


def last_recall(window: Window) -> tuple[tuple[RecalledMessage, ...], int]:
    """What was recalled for the question in flight, and its tokens."""
    for entry in reversed(window.store.tail(window.session, _RECALL_REACH)):
        if entry.kind == MESSAGE and entry.role == "user":
            break
        if entry.kind == INJECTED:
            payload = json.loads(entry.content)
            return tuple(RecalledMessage(**hit) for hit in payload["hits"]), payload["tokens"]
    return (), 0


def _cache(window: Window, built: BuiltPrompt) -> CacheEstimate | None:
    card = window.rules.card
    if card is None:
        return None
    prefix = min(window.last.prefix if window.last else 0, built.tokens)
    fresh = built.tokens - prefix
    return CacheEstimate(
        prefix=prefix, share=prefix / max(built.tokens, 1), picodollars=call_price(card, prefix, fresh)
    )
