"""Relief planner: when the prompt is too full, apply one policy after another until it is down to the floor. Pure.

Relief starts above the ceiling and goes down to the floor in one step, so that the prompt is edited rarely. It starts
before a turn that is expected to pass the ceiling, rather than in the middle of it. Where components have limits of
their own, each that passed its limit is first taken to its own floor in the same way. Between the
ceiling and the input budget it is optional, and postponed if too little may be evicted or if the edit would cost more
in cache writes than it saves. Above the input budget it is mandatory: the newest messages lose their protection by
halves, and finally tool results in flight are cut to head and tail. The plans are returned; executing and recording
them is the caller's task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from recto.context.policies.edits import TrimResults
from recto.context.policies.eviction import Compact, Prune
from recto.context.window.budget import (
    SPIKE_FACTOR,
    VELOCITY_TURNS,
    CacheAge,
    Component,
    PromptEdit,
    Thresholds,
    remaining_steps,
    weigh_edit,
)
from recto.context.window.state import (
    Protection,
    WindowState,
    component_of,
    in_flight,
    lasting_tokens,
    protected_tokens,
)
from recto.context.window.units import Plan, Policy, PolicyView, ShortenedResult
from recto.tokens.model_card import ModelCard

if TYPE_CHECKING:  # start-up: most windows summarise nothing
    from recto.context.policies.edits import SummarizeResults

CLAMP = "clamp"
"""Policy name under which tool results in flight are cut to head and tail."""
_SPARE_TOKENS = 8
"""Tokens left free around a text that is cut: in its message it may cost a few more than alone."""
_MIN_AROUND_TOKENS = 64
"""Tokens reserved at least for what is around such a text."""
WARM = CacheAge()
_MAX_ROUNDS = 40


class ComponentRules(Struct, frozen=True, kw_only=True):
    """How one component of the budget is kept within a limit of its own."""

    limit: int
    """Tokens above which relief starts. It is not postponed."""
    floor: int
    """Tokens to which it goes, in one step."""
    shortens: Sequence[Policy] = ()
    """Policies that shorten results, in order: also results of recent messages, except those in flight."""
    evicts: Sequence[Policy] = ()
    """Policies that evict messages, in order; recent ones only where the others are not enough."""


class ReliefRules(Struct, frozen=True, kw_only=True):
    """When relief starts, how far it goes, and what it may touch."""

    input_budget: int
    """Tokens a prompt may have."""
    ceiling: float = 0.96
    floor: float = 0.70
    cold_floor: float = 0.70
    """How far relief goes where the provider's cache is cold or about to expire: the cut rewrites nothing that would
    have been read from the cache, and a deeper one puts the next off."""
    protection: Protection = field(default_factory=Protection)
    policies: Sequence[Policy] = field(default_factory=lambda: (Prune(),))
    """The cascade, in order; each policy is applied only while tokens are still needed."""
    policy_starts: Mapping[str, float] = field(default_factory=dict)
    """Share of the input budget from which a policy is applied, by policy name; others are always applied."""
    mandatory_from: float = 1.0
    """Share of the input budget from which relief is not postponed."""
    compact: Compact = field(default_factory=Compact)
    """The policy for compaction on request."""
    warning: float = 0.0
    """Share of the input budget from which an upcoming compaction is announced and a checkpoint written; 0: never."""
    forced_policy: Policy = field(default_factory=Prune)
    """The policy applied last, when the newest messages have to lose their protection."""
    thresholds: Thresholds = field(default_factory=Thresholds)
    """Where the pressure zones begin."""
    velocity_turns: int = VELOCITY_TURNS
    """Turns over which growth is averaged."""
    spike_factor: float = SPIKE_FACTOR
    """How many times the usual growth is a spike."""
    mark: str = ""
    """A message whose text contains this is never evicted."""
    may_evict: bool = True
    """Whether units may be evicted. If not, results are still shortened: they can be read in full by pointer."""
    clamp_in_flight: bool = True
    """Whether a result in flight that alone exceeds the input budget is cut to head and tail."""
    clamp_protected: bool = True
    """Whether other protected messages are cut too, where the prompt does not fit otherwise."""
    component_rules: Mapping[Component, ComponentRules] = field(default_factory=dict)
    """Limits per component, if they are enforced; empty: only the input budget is enforced."""
    card: ModelCard | None = None
    """The model, whose prices decide whether an optional edit pays off."""
    arrivals: SummarizeResults | None = None
    """Summarises large results before the model sees them; None: they are sent whole first."""
    record_tokens: int = 0
    """Tokens of the working record that a decision writes at most; 0: none is written."""
    looks_ahead: bool = True
    """Whether relief comes before a turn that is expected to pass the ceiling."""
    cache_aware: bool = True
    """Whether an optional edit that does not pay off is postponed. Without a model card it is always made."""

    def __post_init__(self) -> None:
        if not 0 < self.floor < self.ceiling <= 1:
            raise ValueError("the floor must be below the ceiling, both between 0 and 1")

    def evictable_tokens(self, state: WindowState) -> int:
        """What relief can evict, if it must, without the working record that it leaves."""
        lasting = protected_tokens(state, replace(self.protection, min_recent_messages=0))
        return max(state.tokens - lasting - self.record_tokens, 0)

    def needs_relief(self, tokens: int, state: WindowState) -> bool:
        """Whether something may have to be evicted from a prompt of this size."""
        over = tokens > self.ceiling * self.input_budget
        return over or bool(self.component_rules) or self.growth_ahead(tokens, state) > 0

    @property
    def middle(self) -> float:
        """The share half-way from the floor to the ceiling: an edit that does not get below it is not worth making."""
        return (self.floor + self.ceiling) / 2

    def growth_ahead(self, tokens: int, state: WindowState) -> int:
        """Tokens that a turn is expected to add, if it begins now and would pass the ceiling; 0 otherwise.

        A prompt that is below the middle between floor and ceiling is left alone.
        """
        begins = self.looks_ahead and state.question > state.last_assistant
        if not begins or not self.middle < tokens / max(self.input_budget, 1) <= self.ceiling:
            return 0
        expected = state.growth.over(self.velocity_turns).high_gain - state.growth.gain(state.tokens)
        return expected if tokens + expected > self.ceiling * self.input_budget else 0


class PlannerInputs(Protocol):
    """What the planner needs to know about messages beyond the window state."""

    def prompt_tokens(self, state: WindowState) -> int:
        """Tokens of the prompt for a state, including generated parts."""
        ...

    def marker_cost(self, state: WindowState) -> int:
        """Tokens of what is shown in place of evicted messages."""
        ...

    def view(self, state: WindowState, protection: Protection) -> PolicyView:
        """The view passed to a policy."""
        ...

    def cost_with(self, seq: int, text: str) -> int:
        """Cost of a message with its results replaced by a text."""
        ...

    def clamp_text(self, seq: int, tokens: int) -> str:
        """Head and tail of a message's results, in about `tokens` tokens."""
        ...


class Relief(Struct, frozen=True, kw_only=True):
    """Plans to execute in this order, and the resulting state."""

    plans: tuple[Plan, ...]
    state: WindowState
    before: int
    after: int
    postponed: str = ""
    """Why nothing is done yet although the ceiling is exceeded."""


def plan_arrivals(state: WindowState, rules: ReliefRules, inputs: PlannerInputs, after: int) -> Relief | None:
    """Summarise large results behind entry `after` that the model has not seen yet, where the rules ask for that.

    The record stays as it is: rewriting it for each result would change the beginning of the prompt.
    """
    if rules.arrivals is None:
        return None
    arrived: list[int] = []
    for line in reversed(state.messages.values()):
        if line.seq <= after or line.role == "assistant":
            break
        if line.has_result and line.tokens > rules.arrivals.above and line.seq not in state.pins:
            arrived.append(line.seq)
    if not arrived:
        return None
    plan = rules.arrivals.plan_arrivals(inputs.view(state, rules.protection), arrived)
    if not plan.shortens:
        return None
    planner = _ReliefPlanner(state.copy(), replace(rules, record_tokens=0), inputs)
    before = planner.used
    planner.apply(plan)
    return Relief(plans=tuple(planner.plans), state=planner.state, before=before, after=planner.used)


def plan_next(state: WindowState, rules: ReliefRules, inputs: PlannerInputs) -> tuple[Plan, ...]:
    """What a relief that begins now would do with its policies, whether or not the prompt is above the ceiling."""
    planner = _ReliefPlanner(state.copy(), rules, inputs)
    target = int(planner.used * rules.floor / rules.ceiling)
    for policy in rules.policies:
        planner.apply_policy(policy, rules.protection, target)
    recent = rules.protection.min_recent_messages
    while not planner.plans and recent:  # the newest messages fill the prompt: they lose their protection by halves
        recent //= 2
        planner.apply_policy(rules.forced_policy, replace(rules.protection, min_recent_messages=recent), target)
    return _join_plans(planner.plans)


def plan_relief(
    state: WindowState,
    rules: ReliefRules,
    inputs: PlannerInputs,
    cache: CacheAge = WARM,
    used: int | None = None,
) -> Relief:
    """Plan the relief that brings a prompt down to the floor; below the ceiling, none.

    `cache` is the age of the provider's cache: an edit is free once it is cold. `used` are the tokens of the prompt,
    where they are known already.
    """
    before = inputs.prompt_tokens(state) if used is None else used
    if not rules.needs_relief(before, state):
        return Relief(plans=(), state=state, before=before, after=before)
    component_planner = _ReliefPlanner(state.copy(), rules, inputs)
    component_planner.bind_components()
    bound = Relief(
        plans=_join_plans(component_planner.plans),
        state=component_planner.state,
        before=before,
        after=before if used is None and not component_planner.plans else component_planner.used,
    )
    ahead = rules.growth_ahead(bound.after, component_planner.state)
    if bound.after <= rules.ceiling * rules.input_budget and not ahead:
        return bound
    planner = _ReliefPlanner(component_planner.state.copy(), rules, inputs)
    planner.know(bound.after)
    floor = min(rules.floor, rules.cold_floor) if _is_expiring(rules, cache) else rules.floor
    target, enough = int(floor * rules.input_budget), int(rules.middle * rules.input_budget)
    utilization = bound.after / rules.input_budget
    policies = rules.policies if rules.may_evict else (TrimResults(),)
    started = [policy for policy in policies if utilization >= rules.policy_starts.get(policy.name, 0.0)]
    for policy in started:
        planner.apply_policy(policy, rules.protection, target)
    if planner.used > enough:
        # A new window evicts the newest messages all at once, which loses more than a smaller record.
        shown = 0 if isinstance(rules.forced_policy, Compact) else _record_tokens(state, inputs)
        planner.shrink_record(planner.used - enough, shown)
        for policy in started:  # with the whole record, what a policy evicts may free less than the record grows
            planner.apply_policy(policy, rules.protection, target)
    if bound.after <= rules.mandatory_from * rules.input_budget:
        reason = _postponement_reason(bound, planner, enough, cache)
        if reason:
            return replace(bound, postponed=reason)
    recent = rules.protection.min_recent_messages
    while planner.used > enough and rules.may_evict:
        recent //= 2
        planner.apply_policy(rules.forced_policy, replace(rules.protection, min_recent_messages=recent), target)
        if not recent:
            break
    planner.widen_record(rules.record_tokens, target if planner.used < target else enough)
    if planner.used > rules.input_budget:
        planner.fit(target)
    plans = _join_plans([*component_planner.plans, *_with_expectation(planner.plans, ahead)])
    return Relief(plans=plans, state=planner.state, before=before, after=planner.used)


class _ReliefPlanner(Struct):
    """Plans so far and the state they lead to."""

    state: WindowState
    rules: ReliefRules
    inputs: PlannerInputs
    plans: list[Plan] = field(default_factory=list)
    _measured: tuple[WindowState | None, int, int] = (None, 0, 0)
    """The state and the number of plans whose prompt was measured last, and its tokens."""

    @property
    def used(self) -> int:
        """What the prompt of the state costs; measured again once a plan has changed it."""
        state, plans, used = self._measured
        if state is not self.state or plans != len(self.plans):
            used = self.inputs.prompt_tokens(self.state)
            self.know(used)
        return used

    def know(self, used: int) -> None:
        """Take what the prompt of the state costs from whoever has measured it."""
        self._measured = self.state, len(self.plans), used

    def apply_policy(
        self, policy: Policy, protection: Protection, target: int, component: Component | None = None
    ) -> None:
        """Apply a policy until `target` is reached. Markers cost tokens too, so it may be applied repeatedly.

        With a `component` the target is one of that component, and only units with messages of it are touched.
        """
        for _ in range(_MAX_ROUNDS):
            need = self.used_by(component) - target
            if need <= 0:
                return
            plan = policy.plan(self._view(protection, component), need)
            if not plan:
                return
            before, plans = self.state.copy(), len(self.plans)
            self.apply(plan)
            if self.used_by(component) - target >= need:  # the text would cost more than it frees
                self.state = before
                del self.plans[plans:]
                return

    def fit(self, target: int) -> None:
        """Bring a prompt that is over the input budget below it, whatever has to leave."""
        budget, protection = self.rules.input_budget, self.rules.protection
        self.shrink_record(self.used - budget)
        # No text was worth writing: evict without one.
        if self.used > budget and self.rules.may_evict:
            self.apply_policy(Prune(), replace(protection, min_recent_messages=0), target)
        if self.rules.clamp_in_flight and self.used > budget:
            self.clamp()
        # What the question answers is evicted before the question is refused.
        if self.used > budget and self.rules.may_evict:
            self.apply_policy(Prune(), replace(protection, min_recent_messages=0, answered=False), budget)

    def shrink_record(self, tokens: int, shown: int = 0) -> None:
        """Take so many tokens from the working record, but leave it a twentieth of the input budget.

        It keeps the `shown` tokens that it has now, up to a seventh: in recorded runs this supports the next action
        better than what the newest messages would gain, and what the user decided stays.
        """
        budget = self.rules.input_budget
        left = max(self.state.planned_record_tokens - tokens, budget // 20, min(shown, budget // 7))
        self.rules = replace(self.rules, record_tokens=min(self.rules.record_tokens, left))
        self.state.planned_record_tokens = min(self.state.planned_record_tokens, self.rules.record_tokens)
        self._measured = None, 0, 0

    def widen_record(self, most: int, target: int) -> None:
        """Return to a record that was shrunk what is free below `target`: evictions may have freed more than needed."""
        if self.rules.record_tokens < most and self.used < target:
            left = min(self.rules.record_tokens + target - self.used, most)
            self.rules = replace(self.rules, record_tokens=left)
            self.state.planned_record_tokens = max_record_tokens(self.state, self.rules)
            self._measured = None, 0, 0

    def used_by(self, component: Component | None) -> int:
        """What a component of the state costs; None: the prompt. What is shown for evicted messages is history."""
        if component is None:
            return self.used
        used = self.state.components().get(component, 0)
        return used + self._generated if component == "history" else used

    @property
    def _generated(self) -> int:
        planned = self.state.planned_text_tokens + self.state.planned_record_tokens
        return self.inputs.marker_cost(self.state) + planned

    def _view(self, protection: Protection, component: Component | None) -> PolicyView:
        view = self.inputs.view(self.state, protection)
        if component is None:
            return view
        touched = [unit for unit in view.eligible if any(component_of(line) == component for line in unit.messages)]
        return replace(view, eligible=touched)

    def bind_components(self) -> None:
        """Bring each component above its own limit down to its own floor, if limits are enforced."""
        for component, rules in self.rules.component_rules.items():
            if self.used_by(component) > rules.limit:
                self._bind(component, rules)

    def _bind(self, component: Component, rules: ComponentRules) -> None:
        protected = lasting_tokens(self.state, self.rules.protection, component)
        protected += self._generated if component == "history" else 0
        # Where protected messages alone exceed the limit, the same distance above them keeps edits rare.
        limit = rules.limit if protected <= rules.limit else protected + rules.limit - rules.floor
        floor = max(rules.floor, protected)
        if self.used_by(component) <= limit:
            return
        protection = self.rules.protection
        for policy in rules.shortens:
            self.apply_policy(policy, replace(protection, min_recent_messages=0), floor, component)
        if not self.rules.may_evict:
            return
        for policy in rules.evicts:
            self.apply_policy(policy, protection, floor, component)
        recent, enough = protection.min_recent_messages, (floor + limit) // 2
        while self.used_by(component) > enough:
            recent //= 2
            self.apply_policy(Prune(), replace(protection, min_recent_messages=recent), floor, component)
            if not recent:
                break
        if component == "history" and self.used_by(component) > limit:
            self.shrink_record(self.used_by(component) - limit)

    def clamp(self) -> None:
        """Cut the largest protected messages to head and tail until the prompt fits or nothing more can be cut.

        Results in flight come first, then injected text, long answers of the model, the task and other protected
        messages, last the system text: a session is never refused because of boilerplate.
        """
        flying = in_flight(self.state)

        def order(seq: int) -> tuple[int, int, int]:
            line = self.state.messages[seq]
            if line.has_result:
                rank = 0 if seq in flying else 1
            else:
                rank = 5 if line.role == "system" else 2 if line.is_injected else 3 if line.role == "assistant" else 4
            return rank, -self.state.cost(seq), seq

        # Calls and reasoning are never changed, because providers check them, and a question is sent as it was typed
        # until the model has seen it. An answer whose words are not in the index stays whole.
        question = self.state.question
        if any(line.role == "assistant" and line.seq > question for line in self.state.messages.values()):
            question = 0
        lines = [
            line
            for line in self.state.messages.values()
            if line.role != "assistant" or (self.rules.may_evict and not (line.calls or line.wire or line.leads))
        ]
        if not self.rules.clamp_protected:
            lines = [line for line in lines if line.answers and line.seq in flying]
        for seq in sorted((line.seq for line in lines if line.has_result or line.seq != question), key=order):
            self._clamp_message(seq)
            self._clamp_message(seq)  # the record of what was cut costs tokens too
            if self.used <= self.rules.input_budget:
                return

    def _clamp_message(self, seq: int) -> None:
        over = self.used - self.rules.input_budget
        if over <= 0:
            return
        # What stays around the text: the frame of each result, and with several results in one message a line in each.
        around = max(self.inputs.cost_with(seq, "") + _SPARE_TOKENS, _MIN_AROUND_TOKENS)
        text = self.inputs.clamp_text(seq, max(self.state.cost(seq) - over - around, 32))
        shortened = ShortenedResult(seq=seq, text=text, tokens=self.inputs.cost_with(seq, text))
        if shortened.tokens < self.state.cost(seq):
            is_too_large = self.state.cost(seq) > self.rules.input_budget
            what = f"entry {seq} alone" if is_too_large else "what may not be evicted"
            reason = f"{what} does not fit the input budget"
            frees = self.state.cost(seq) - shortened.tokens
            self.apply(Plan(policy=CLAMP, shortens=(shortened,), frees=frees, reason=reason))

    def apply(self, plan: Plan) -> None:
        """Apply a plan to the state."""
        if not plan:
            return
        costs = [self.inputs.cost_with(result.seq, result.text) for result in plan.shortens]
        exact = tuple(
            result if result.tokens == tokens else replace(result, tokens=tokens)
            for result, tokens in zip(plan.shortens, costs, strict=True)
        )
        smaller = tuple(result for result in exact if result.tokens < self.state.cost(result.seq))
        before = self.state.tokens
        self.state.shorten(smaller)
        self.state.evict(seq for unit in plan.evicts for seq in unit.seqs)
        self.state.merge(plan.merges)
        self.state.clear_thinking(plan.clears)
        if plan.writes is not None and plan.evicts:
            self.state.summary, self.state.planned_text_tokens = (
                None,
                plan.writes.max_tokens + plan.writes.handoff_tokens,
            )
        if self.rules.record_tokens and (smaller or plan.evicts):
            self.state.record, self.state.planned_record_tokens = None, max_record_tokens(self.state, self.rules)
        self.plans.append(replace(plan, shortens=smaller, frees=before - self.state.tokens))


def _record_tokens(state: WindowState, inputs: PlannerInputs) -> int:
    """What the working record of a state costs in its prompt."""
    if state.record is None:
        return 0
    without = state.copy()
    without.record = None
    return inputs.marker_cost(state) - inputs.marker_cost(without)


def max_record_tokens(state: WindowState, rules: ReliefRules) -> int:
    """What the working record of a state may cost: its share of the input budget, or a quarter of what it replaces."""
    shortened = sum(state.messages[seq].tokens - short.tokens for seq, short in state.shortened.items())
    return min(rules.record_tokens, (state.evicted_tokens + shortened) // 4)


def _is_expiring(rules: ReliefRules, cache: CacheAge) -> bool:
    return rules.card is not None and rules.cache_aware and cache.is_expiring(rules.card.provider)


def _with_expectation(plans: Sequence[Plan], ahead: int) -> Sequence[Plan]:
    """Say in the reason of each plan what the turn is expected to add, where that is why it is made."""
    reason = f"before a turn that may add {ahead:,} tokens"
    return [replace(plan, reason=f"{reason}: {plan.reason}") for plan in _join_plans(plans)] if ahead else plans


def _join_plans(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """One plan per policy, though some were applied several times: relief is one step and recorded as one."""
    joined: dict[str, Plan] = {}
    for plan in plans:
        first = joined.get(plan.policy)
        if first is None:
            joined[plan.policy] = plan
            continue
        joined[plan.policy] = replace(
            first,
            evicts=(*first.evicts, *plan.evicts),
            shortens=tuple({result.seq: result for result in (*first.shortens, *plan.shortens)}.values()),
            frees=first.frees + plan.frees,
            reason=first.reason if plan.reason in first.reason else f"{first.reason}; {plan.reason}",
            scores={**first.scores, **plan.scores},
            writes=plan.writes or first.writes,
            merges=(*first.merges, *plan.merges),
            clears=(*first.clears, *plan.clears),
        )
    # A later round may evict what an earlier one had merged others into.
    evicted = {seq for plan in plans for unit in plan.evicts for seq in unit.seqs}
    for name, plan in joined.items():
        if plan.merges:
            kept = [unit for unit in plan.merges if unit.kept not in evicted]
            joined[name] = replace(plan, merges=tuple(sorted(kept, key=lambda unit: unit.first)))
    return tuple(joined.values())


def _postponement_reason(bound: Relief, planner: _ReliefPlanner, enough: int, cache: CacheAge) -> str:
    """Why optional relief should be postponed; empty if it should be done now."""
    state, before, after = bound.state, bound.after, planner.used
    if after > enough:
        return f"only {before - after} tokens may leave yet: too few for an edit"
    card = planner.rules.card
    if card is None or not planner.rules.cache_aware:
        return ""
    touched = [seq for plan in planner.plans for unit in plan.evicts for seq in unit.seqs]
    touched += [result.seq for plan in planner.plans for result in plan.shortens]
    touched += [cleared.seq for plan in planner.plans for cleared in plan.clears]
    first = min(touched)
    prefix = sum(state.cost(seq) for seq in state.messages if seq < first)
    edit = PromptEdit(
        prefix=prefix,
        removed=max(before - after, 0),
        suffix=max(after - prefix, 0),
        steps=remaining_steps(state.steps),
        grows=int(state.growth.over(planner.rules.velocity_turns).pace * state.turn / max(state.steps, 1)),
        cache=cache,
    )
    verdict = weigh_edit(card, edit)
    if verdict.pays:
        return ""
    amount = f" by {-verdict.net} picodollars" if verdict.known else ""
    return f"an edit now would cost more than it saves{amount}"
