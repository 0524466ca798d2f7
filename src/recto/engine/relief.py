"""Relief in the life of a window: plans become decisions once what leaves can be found again and what is written is.

Everything that belongs to one relief is stored at once: the warning, the checkpoint and the handoff that go before a
compaction, the decisions, and the replay of the handoff. Either all of it happened or nothing did.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from recto.context.policies.planner import Relief, ReliefRules, plan_relief
from recto.context.window.plan import Plan
from recto.context.window.state import WindowState, ranges_of
from recto.context.window.summary import FIDELITY_ALARM, ExecutedPlan
from recto.engine.projection import (
    COMPACTION,
    COMPRESSED,
    EVICTED,
    FIDELITY_LOW,
    HANDOFF,
    MERGED,
    NEW_WINDOW,
    PRUNED,
    REPLAYED,
    REQUIRED,
    TRIMMED,
    replay_key,
)
from recto.engine.prompt_builder import PromptBuilder
from recto.engine.recall_injection import RecallInjection
from recto.transcript.entries import Draft

if TYPE_CHECKING:
    from recto.engine.checkpoints import Checkpoints
    from recto.engine.compactor import Compactor

Drafting = Callable[..., Draft]
HANDOFF_TOKENS = 600
"""What a handoff may have in the prompt of the turn after a compaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingDecision:
    """What is to be stored, and the entry it follows."""

    drafts: tuple[Draft, ...]
    after: int


class ReliefExecutor:
    """Turns plans into what is stored."""

    def __init__(
        self,
        material: PromptBuilder,
        compressor: Callable[[], Compactor],
        recollection: RecallInjection | None,
        checkpoints: Callable[[], Checkpoints],
        draft: Drafting,
    ) -> None:
        self._material = material
        self._compressor = compressor
        self._recollection = recollection
        self.checkpoints = checkpoints
        self.draft = draft

    def decide(self, state: WindowState, rules: ReliefRules, idle: float) -> PendingDecision | None:
        """What should be stored to relieve a window now; nothing where it needs none."""
        relief, indexed = self._planned(state, rules, idle)
        if not relief.plans:
            return None
        carried = self._carried(relief, state)
        drafts: list[Draft] = []
        handoff = max((one.plan.writes.handoff_tokens for one in carried if one.plan.writes), default=0)
        if handoff:
            drafts += self._before_compaction(state, rules, relief, handoff)
        for one in carried:
            drafts.append(self.draft(*self._decision(one, relief, state, indexed)))
            score = one.record.get("fidelity", {}).get("score", 1.0)
            if score < FIDELITY_ALARM:
                drafts.append(
                    self.draft(FIDELITY_LOW, {"score": score, "alarm": FIDELITY_ALARM, "policy": one.plan.policy})
                )
        if handoff:
            drafts += self._replay(state, drafts)
        return PendingDecision(drafts=tuple(drafts), after=state.seq)

    def opening(self, state: WindowState, rules: ReliefRules, idle: float, first: Sequence[Draft]) -> PendingDecision:
        """What should be stored to open a new window: what goes before it, and the decision, whatever leaves by it."""
        relief, indexed = self._planned(state, rules, idle)
        drafts = list(first)
        for one in self._carried(relief, state):
            _, about = self._decision(one, relief, state, indexed)
            drafts.append(self.draft(NEW_WINDOW, about))
        if not relief.plans:
            reason = f"a new window; {relief.postponed or 'nothing may leave, or it is not worth a summary'}"
            nothing = ExecutedPlan(plan=Plan(policy="new_window", reason=reason))
            drafts.append(self.draft(NEW_WINDOW, self._decision(nothing, relief, state, indexed)[1]))
        return PendingDecision(drafts=tuple(drafts), after=state.seq)

    def _before_compaction(self, state: WindowState, rules: ReliefRules, relief: Relief, handoff: int) -> list[Draft]:
        checkpoints = self.checkpoints()
        made = checkpoints.made(state, reason="a compaction")
        drafts = checkpoints.drafts(made, state, handoff)
        if rules.warning:
            about = {
                "tokens": relief.before,
                "room": rules.input_budget,
                "utilization": round(relief.before / rules.input_budget, 4),
            }
            drafts.insert(0, self.draft(REQUIRED, about))
        return drafts

    def _replay(self, state: WindowState, drafts: Sequence[Draft]) -> list[Draft]:
        """The handoff that is stored with this relief is shown behind the question in flight, unless it was before."""
        place = next(place for place, draft in enumerate(drafts) if draft.kind == HANDOFF)
        digest = json.loads(drafts[place].content)["hash"]
        if self.checkpoints().was_replayed(digest):
            return []
        question = next((line.seq for line in reversed(state.messages.values()) if line.role == "user"), 0)
        about = {"handoff": state.seq + 1 + place, "question": question, "hash": digest}
        return [self.draft(REPLAYED, about, replay_key(digest))]

    def _planned(self, state: WindowState, rules: ReliefRules, idle: float) -> tuple[Relief, str]:
        """What should leave, once it can be found again: nothing leaves that is not in the index.

        Where the index fails, all of it stays as long as it fits. Where it does not, words alone are enough; without
        words nothing leaves, and results shrink to what their pointers lead to.
        """
        relief = plan_relief(state, rules, self._material, idle)
        if self._recollection is None:
            return relief, "off"
        touched = _touched(relief)
        if not touched:
            return relief, ""
        confirmed = self._recollection.may_leave(touched)
        if confirmed.whole:
            return relief, "words and vectors"
        if self._material.prompt_tokens(state) <= rules.input_budget:
            return replace(relief, plans=(), postponed=f"not in the index yet: {confirmed.reason}"), ""
        if confirmed.words:
            return relief, f"words alone: {confirmed.reason}"
        again = plan_relief(state, replace(rules, may_evict=False), self._material, idle)
        return again, f"nothing may leave: {confirmed.reason}"

    def _carried(self, relief: Relief, state: WindowState) -> list[ExecutedPlan]:
        if any(plan.writes is not None for plan in relief.plans):
            return self._compressor().carry_out(relief.plans, state)
        return [ExecutedPlan(plan=plan) for plan in relief.plans]

    def _decision(
        self, one: ExecutedPlan, relief: Relief, state: WindowState, indexed: str
    ) -> tuple[str, dict[str, Any]]:
        plan = one.plan
        left = sorted(seq for unit in plan.evicts for seq in unit.seqs)
        about: dict[str, Any] = {
            "policy": plan.policy,
            "reason": plan.reason,
            "left": ranges_of(left),
            "shrunk": {str(shrink.seq): {"text": shrink.text, "tokens": shrink.tokens} for shrink in plan.shortens},
            "kept": ranges_of(relief.state.messages),
            "tokens_before": relief.before,
            "tokens_after": relief.after,
            "frees": plan.frees,
            "cache_mark": self._material.newest_mark(left),
            "scores": {str(seq): dict(parts) for seq, parts in plan.scores.items()},
            "indexed": indexed,
            "gone": self._material.calls_gone(state, relief.state, [*left, *(shrink.seq for shrink in plan.shortens)]),
        }
        if one.summary is not None:
            about |= {"summary": one.summary.to_json(), "replaces": state.summary.decision_seq if state.summary else 0}
        if one.record:
            about["compression"] = dict(one.record)
        return _kind(plan), about


def _kind(plan: Plan) -> str:
    if plan.writes is not None:
        return {"new_window": NEW_WINDOW, "compact": COMPACTION, "delegate": COMPACTION}.get(plan.policy, COMPRESSED)
    if plan.evicts and plan.policy.startswith("evict."):
        return MERGED if plan.policy == "evict.semantic_merge" else EVICTED
    return TRIMMED if plan.shortens and not plan.evicts else PRUNED


def _touched(relief: Relief) -> list[int]:
    """The entries that would leave or shrink."""
    left = [seq for plan in relief.plans for unit in plan.evicts for seq in unit.seqs]
    return left + [shrink.seq for plan in relief.plans for shrink in plan.shortens]
