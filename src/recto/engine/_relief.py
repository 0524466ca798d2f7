"""Relief in a window: plans become decisions, once what is evicted is indexed and every summary is written.

`plan` decides what should be evicted or trimmed. `carry_out` turns the plans into events. Everything that belongs to
one relief is stored at once, all or nothing: the warning, the checkpoint and the handoff that go before a compaction,
the decisions, and the replay of the handoff.
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
from recto.context.window.cache_cost import CacheAge
from recto.context.window.plan import Plan
from recto.context.window.state import WindowState, ranges_of
from recto.context.window.summary import FIDELITY_ALARM, ExecutedPlan
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
    TRIMMED,
    EventLog,
)
from recto.engine.prompt_builder import RECORD_HEADING, MessageCache, PromptBuilder
from recto.engine.recall_injection import RecallInjection
from recto.errors import InputError
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
