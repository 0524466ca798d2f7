"""Measures a window and relieves it: pressure, plans, and the decisions that carry them out.

Relief in a window: plans become decisions, once what is evicted is indexed and every summary is written.

`plan` decides what should be evicted or trimmed. `carry_out` turns the plans into events. Everything that belongs to
one relief is stored at once, all or nothing: the warning, the checkpoint and the handoff that go before a compaction,
the decisions, and the replay of the handoff.

Measures a window: its pressure, its budgets, and what the prompt that is sent is made of.

Every function here is pure: it takes a state and the builder of its prompt, and returns values. `measure` returns the
events that should be recorded; the window appends them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from recto.context.policies.eviction import describe_units
from recto.context.policies.planner import Relief, ReliefRules, plan_arrivals, plan_relief
from recto.context.record import WorkingRecord, extend_record, render_record
from recto.context.window.budget import (
    COMPONENTS,
    PLAUSIBLE_RATIOS,
    Budget,
    BudgetVerdict,
    CacheAge,
    Component,
    ComponentUsage,
    Pressure,
    PressureReading,
    PromptSize,
    Source,
    VelocitySpike,
    compare_readings,
    measure_prompt,
    source_of,
)
from recto.context.window.state import (
    FIDELITY_ALARM,
    ExecutedPlan,
    WindowState,
    component_of,
    lasting_tokens,
    protected_tokens,
    ranges_of,
)
from recto.context.window.units import Plan, WindowMessage
from recto.engine.continuity import WindowContinuity
from recto.engine.projection import (
    CLEARED,
    COMPACTION,
    COMPRESSED,
    EVICTED,
    FIDELITY_LOW,
    MERGED,
    NEW_WINDOW,
    PRUNED,
    SPIKE,
    TRIMMED,
    VIOLATION,
    WARNING,
    ZONE,
    EventLog,
)
from recto.engine.prompt_builder import RECORD_HEADING, BuiltPrompt, MessageCache, PromptBuilder
from recto.engine.recall_injection import RecallInjection
from recto.errors import InputError
from recto.health.metrics import PromptComposition
from recto.transcript.entries import Draft

if TYPE_CHECKING:
    from recto.engine.compactor import Compactor


class PlannedRelief(Struct, frozen=True, kw_only=True):
    """What should be evicted or trimmed, for one state."""

    relief: Relief
    indexed: str
    """How far what is evicted is indexed, as the decision records it."""
    state: WindowState
    rules: ReliefRules


class PendingDecision(Struct, frozen=True, kw_only=True):
    """Events to store, and the entry they must follow."""

    drafts: tuple[Draft, ...]
    after: int
    record: WorkingRecord | None = None
    """The working record in the last decision."""


class LazyCompactor:
    """Opens the compactor of a window when the first summary has to be written."""

    def __init__(self, opener: Callable[[MessageCache], Compactor] | None, messages: MessageCache) -> None:
        self.available = opener is not None
        self._opener = opener
        self._messages = messages

    @cached_property
    def compactor(self) -> Compactor:
        """The compactor."""
        if self._opener is None:
            raise InputError("this window was opened without anybody who writes shorter texts; use recto.open")
        return self._opener(self._messages)

    def close(self) -> None:
        """Closes the compactor, if it was ever opened."""
        if "compactor" in self.__dict__:
            self.compactor.close()


class ReliefExecutor:
    """Plans relief for one window and turns plans into events. It stores nothing."""

    def __init__(
        self,
        recall: RecallInjection | None,
        compactor: LazyCompactor,
        continuity: WindowContinuity,
        events: EventLog,
    ) -> None:
        self._recall = recall
        self._compactor = compactor
        self._continuity = continuity
        self._events = events

    def plan(
        self, state: WindowState, rules: ReliefRules, builder: PromptBuilder, cache: CacheAge, used: int | None = None
    ) -> PlannedRelief:
        """What should be evicted. Nothing is evicted whose words are not indexed; vectors may follow later.

        Where the word index fails, everything stays as long as it fits. Where it does not fit, nothing is evicted
        either, and results are trimmed, because their pointers lead to the full text. `used` are the tokens of the
        prompt, where they are known already.
        """
        relief = plan_relief(state, rules, builder, cache, used)
        relief, indexed = self._indexed(relief, state, rules, builder, cache)
        return PlannedRelief(relief=relief, indexed=indexed, state=state, rules=rules)

    @staticmethod
    def plan_arrivals(
        state: WindowState, rules: ReliefRules, builder: PromptBuilder, after: int
    ) -> PlannedRelief | None:
        """What should be summarised of the results behind entry `after` that the model has not seen yet."""
        relief = plan_arrivals(state, rules, builder, after)
        if relief is None:
            return None
        without_record = replace(rules, record_tokens=0)
        return PlannedRelief(relief=relief, indexed="by pointer", state=state, rules=without_record)

    def carry_out(self, planned: PlannedRelief, messages: MessageCache) -> PendingDecision:
        """The events of a relief: its decisions, and what belongs to a compaction."""
        relief, state = planned.relief, planned.state
        record = write_record(planned, messages)
        executed = self._execute(planned, record)
        handoff = max((done.plan.writes.handoff_tokens for done in executed if done.plan.writes), default=0)
        drafts: list[Draft] = []
        if any(done.plan.writes is not None for done in executed):
            drafts += self._compactor.compactor.take_events()
        if handoff:
            drafts += self._continuity.before_compaction(state, relief.before, planned.rules, handoff)
        for done in executed:
            payload = _payload(done, planned, messages)
            if record is not None and done is executed[-1]:
                payload |= {"record": record.to_json(), "record_before": state.record_seq}
            drafts.append(self._events.draft(_kind(done.plan), payload))
            score = done.record.get("fidelity", {}).get("score", 1.0)
            if score < FIDELITY_ALARM:
                low = {"score": score, "alarm": FIDELITY_ALARM, "policy": done.plan.policy}
                drafts.append(self._events.draft(FIDELITY_LOW, low))
        if handoff:
            drafts += self._continuity.replay(state, drafts)
        return PendingDecision(drafts=tuple(drafts), after=state.seq, record=record)

    def open_window(
        self,
        planned: PlannedRelief,
        messages: MessageCache,
        before: Sequence[Draft],
        *,
        by: str = "",
        reason: str = "",
    ) -> PendingDecision:
        """The events that open a new window: what goes before it, and the decision, even if nothing is evicted.

        `by` and `reason` say who asked for it, and why.
        """
        record = write_record(planned, messages)
        executed = self._execute(planned, record)
        if not executed:
            nothing = f"a new window; {planned.relief.postponed or 'nothing may leave, or it is not worth a summary'}"
            executed = [ExecutedPlan(plan=Plan(policy="new_window", reason=nothing))]
        payloads = [_payload(done, planned, messages) for done in executed]
        for payload in payloads if by else ():
            payload |= {"by": by, "reason": f"{reason}; {payload['reason']}" if reason else payload["reason"]}
        if record is not None:
            payloads[-1] |= {"record": record.to_json(), "record_before": planned.state.record_seq}
        decisions = [self._events.draft(NEW_WINDOW, payload) for payload in payloads]
        return PendingDecision(drafts=(*before, *decisions), after=planned.state.seq)

    def _indexed(
        self, relief: Relief, state: WindowState, rules: ReliefRules, builder: PromptBuilder, cache: CacheAge
    ) -> tuple[Relief, str]:
        if self._recall is None:
            return relief, "off"
        touched = _touched(relief)
        if not touched:
            return relief, ""
        confirmed = self._recall.confirm_indexed(touched)
        if confirmed.words:
            return relief, confirmed.summary
        if builder.prompt_tokens(state) <= rules.input_budget:
            return replace(relief, plans=(), postponed=f"not in the index yet: {confirmed.reason}"), ""
        again = plan_relief(state, replace(rules, may_evict=False), builder, cache)
        return again, confirmed.summary

    def _execute(self, planned: PlannedRelief, record: WorkingRecord | None) -> list[ExecutedPlan]:
        plans = planned.relief.plans
        if any(plan.writes is not None for plan in plans):
            return self._compactor.compactor.carry_out(plans, planned.state, record.text if record else "")
        costs = planned.state.costs() | {short.seq: short.tokens for plan in plans for short in plan.shortens}
        return [ExecutedPlan(plan=part) for plan in plans for part in _merge_first(plan, costs)]


def write_record(planned: PlannedRelief, messages: MessageCache) -> WorkingRecord | None:
    """The working record after a relief; None where none is written."""
    state, after = planned.state, planned.relief.state
    if not planned.rules.record_tokens or not any(plan.evicts or plan.shortens for plan in planned.relief.plans):
        return None
    evicted = messages.views(seq for seq in state.messages if seq not in after.messages)
    shortened = messages.views(seq for seq in after.shortened if seq not in state.shortened)
    record = extend_record(state.record or WorkingRecord(), evicted, shortened, planned.rules.record_tokens)
    visible = [after.shortened[seq].text if seq in after.shortened else messages.text_of(seq) for seq in after.messages]
    if state.summary is not None and not any(plan.writes and plan.evicts for plan in planned.relief.plans):
        visible.append(state.summary.text)
    limit = after.planned_record_tokens - messages.count(RECORD_HEADING) - 8
    since = messages.views(seq for seq in after.messages if seq > after.last_evicted)
    return replace(record, text=render_record(record, visible, limit, messages.count, since))


def _payload(done: ExecutedPlan, planned: PlannedRelief, messages: MessageCache) -> dict[str, Any]:
    plan, relief, state = done.plan, planned.relief, planned.state
    evicted = sorted(seq for unit in plan.evicts for seq in unit.seqs)
    payload: dict[str, Any] = {
        "policy": plan.policy,
        "reason": plan.reason,
        "left": ranges_of(evicted),
        "shrunk": {str(shrink.seq): {"text": shrink.text, "tokens": shrink.tokens} for shrink in plan.shortens},
        "kept": ranges_of(relief.state.messages),
        "tokens_before": relief.before,
        "tokens_after": relief.after,
        "frees": plan.frees,
        "cache_mark": messages.newest_cache_mark(evicted),
        "scores": {str(seq): dict(parts) for seq, parts in plan.scores.items()},
        "indexed": planned.indexed,
        "gone": messages.calls_lost(state, relief.state, [*evicted, *(shrink.seq for shrink in plan.shortens)]),
    }
    if plan.clears:
        payload["cleared"] = {str(cleared.seq): cleared.tokens for cleared in plan.clears}
    if plan.merges:
        payload["merged"] = [asdict(unit) for unit in plan.merges]
    if done.summary is not None:
        payload |= {"summary": done.summary.to_json(), "replaces": state.summary.decision_seq if state.summary else 0}
    if done.record:
        payload["compression"] = dict(done.record)
    return payload


def _kind(plan: Plan) -> str:
    if plan.writes is not None:
        return {"new_window": NEW_WINDOW, "compact": COMPACTION, "delegate": COMPACTION}.get(plan.policy, COMPRESSED)
    if plan.merges:
        return MERGED
    if plan.clears:
        return CLEARED
    if plan.evicts and plan.policy.startswith("evict."):
        return EVICTED
    return TRIMMED if plan.shortens and not plan.evicts else PRUNED


def _merge_first(plan: Plan, costs: Mapping[int, int]) -> list[Plan]:
    """A plan as decisions that are undone one by one: what it merges, and what it evicts beyond that."""
    if not plan.merges:
        return [plan]
    merged = {unit.first for unit in plan.merges}
    same = tuple(unit for unit in plan.evicts if unit.first in merged)
    rest = tuple(unit for unit in plan.evicts if unit.first not in merged)
    frees = sum(costs[seq] for unit in same for seq in unit.seqs) if rest else plan.frees
    said_again = ", ".join(f"{unit.first} repeats {unit.kept}" for unit in plan.merges)
    merging = replace(plan, evicts=same, frees=frees, reason=f"newer units say the same: {said_again}")
    if not rest:
        return [merging]
    reason = f"still needed after merging: {describe_units(rest)}"
    return [merging, replace(plan, evicts=rest, frees=plan.frees - frees, reason=reason, merges=(), scores={})]


def _touched(relief: Relief) -> list[int]:
    """The entries that would be evicted or trimmed."""
    evicted = [seq for plan in relief.plans for unit in plan.evicts for seq in unit.seqs]
    shortened = [shrink.seq for plan in relief.plans for shrink in plan.shortens]
    return evicted + shortened + [cleared.seq for plan in relief.plans for cleared in plan.clears]


_LEVELS = ("ok", "warning", "violation")


class Measurement(Struct, frozen=True, kw_only=True):
    """The pressure of a state, and the events to record for it: a new zone, a passed budget, a spike."""

    reading: PressureReading
    events: tuple[tuple[str, Mapping[str, Any]], ...]


def pressure_of(
    state: WindowState, builder: PromptBuilder, rules: ReliefRules, input_budget: int, used: int | None = None
) -> PressureReading:
    """The pressure of a state. `used` are the tokens of its prompt, where they are known already."""
    warned = state.warned_window
    believed = warned >= PLAUSIBLE_RATIOS[0] * input_budget
    pressure = Pressure(
        input_budget=min(input_budget, warned) if believed else input_budget,
        thresholds=rules.thresholds,
        growth=state.growth.over(rules.velocity_turns),
        turns=state.turn,
        spike_factor=rules.spike_factor,
    )
    counted = builder.prompt_tokens(state) if used is None else used
    exact = builder.messages.meter.exact
    size, source = prompt_size(state, counted, exact=exact)
    return pressure.read(size.tokens, source, state.tokens)


def prompt_size(state: WindowState, counted: int, *, exact: bool) -> tuple[PromptSize, Source]:
    """The size of the prompt of a state, by the newest report or budget warning and our own count since; its source."""
    if state.warned_tokens:
        added = max(state.tokens - state.warned_at, 0)
        size = measure_prompt(counted, state.warned_tokens, added=added, exact=exact)
        if size.tokens != counted:
            return size, "warning"
    size = _reported_size(state, counted, exact=exact)
    return size, source_of(size, counted, exact=exact)


def _reported_size(state: WindowState, counted: int, *, exact: bool) -> PromptSize:
    if not state.reported_tokens:
        return PromptSize(counted, None)
    added = max(counted - state.counted_tokens, 0)
    # What was quoted for the last question alone is gone by now, and so is what the provider counted for it.
    removed = max(state.counted_tokens - counted, 0) * state.reported_tokens // max(state.counted_tokens, 1)
    return measure_prompt(counted, state.reported_tokens - removed, added=added, exact=exact)


def usage_of(state: WindowState, builder: PromptBuilder, budget: Budget) -> tuple[ComponentUsage, ...]:
    """What each component uses of its budget."""
    return budget.usage(_used_by(state, builder, budget, builder.marker_cost(state)), state.burn)


def _used_by(state: WindowState, builder: PromptBuilder, budget: Budget, marker: int) -> dict[Component, int]:
    """The tokens of each component; `marker` are those of the marker."""
    extras = builder.extras
    used = state.components()
    used["tools"] = extras.tools
    used["memory"] = extras.digest + (extras.recalled.tokens if extras.recalled else 0)
    used["reserve"] = budget.reserve
    used["system"] += builder.foreword_cost(builder.wire_of(state)) - extras.digest + extras.system
    used["history"] += marker
    return used


def check_budget(line: WindowMessage, state: WindowState, budget: Budget) -> BudgetVerdict:
    """Whether one more message keeps its component of the budget within its limits; called before it is added."""
    component = component_of(line)
    return budget.check(component, state.components()[component], line.tokens)


def measure(
    state: WindowState,
    builder: PromptBuilder,
    used: int,
    rules: ReliefRules,
    budget: Budget,
    previous: PressureReading | None,
    marker: int,
) -> Measurement:
    """The pressure of a state whose prompt has `used` tokens, and what has changed since the previous reading.

    `marker` are the tokens of its marker. Measured for every prompt, so it must stay cheap.
    """
    marker += builder.notes_cost(state)
    reading = pressure_of(state, builder, rules, budget.input_budget, used)
    events: list[tuple[str, Mapping[str, Any]]] = []
    if reading.zone != state.zone:
        change = {"before": state.zone, "after": reading.zone, "utilization": round(reading.utilization, 4)}
        events.append((ZONE, change))
    # A prompt with tokens to spare has no component that takes too many of them.
    if budget.enforced == "per_component" or reading.zone != "green":
        events += _passed_limits(state, rules, budget, _used_by(state, builder, budget, marker), marker)
    spikes = [found for found in compare_readings(previous, reading) if isinstance(found, VelocitySpike)]
    events += [(SPIKE, {"gain": spike.gain, "baseline": round(spike.baseline, 1)}) for spike in spikes]
    return Measurement(reading=reading, events=tuple(events))


def _passed_limits(
    state: WindowState, rules: ReliefRules, budget: Budget, used: Mapping[Component, int], marker: int
) -> list[tuple[str, Mapping[str, Any]]]:
    """The events for components above their limits. A level is recorded once, until an edit takes it back."""
    events: list[tuple[str, Mapping[str, Any]]] = []
    for component in COMPONENTS:
        level, limit = budget.level(component, used[component]), budget.limits[component].hard
        if _LEVELS.index(level) <= _LEVELS.index(state.budget_levels.get(component, "ok")):
            continue
        payload: dict[str, Any] = {"component": component, "level": level, "used": used[component], "limit": limit}
        if level == "violation" and component in rules.component_rules:
            payload["protected"] = lasting_tokens(state, rules.protection, component)
            payload["protected"] += marker if component == "history" else 0
            if payload["protected"] <= limit:
                continue  # relief brings it below the limit before the next prompt
        events.append((VIOLATION if level == "violation" else WARNING, payload))
    return events


def composition_of(
    state: WindowState,
    builder: PromptBuilder,
    built: BuiltPrompt,
    rules: ReliefRules,
    budget: Budget,
    *,
    prefix: int,
    lag: int,
    reader: str,
) -> PromptComposition:
    """What the prompt that is sent consists of, but its pieces. Computed for every prompt, so it must stay cheap."""
    extras = builder.extras
    return PromptComposition(
        tokens=built.tokens,
        room=rules.input_budget,
        prefix=min(prefix, built.tokens),
        results=state.components()["results"],
        protected=extras.fixed + protected_tokens(state, rules.protection),
        recalled=extras.recalled.tokens if extras.recalled else 0,
        tools=max(extras.tools, 0),
        lag=lag,
        model=rules.card.name if rules.card else "",
        system=extras.system,
        window=budget.window,
        reserve=budget.reserve + extras.answer,
        wire=built.wire,
        reader=reader,
    )
