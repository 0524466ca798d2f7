"""What to do when the prompt is too full: asks one policy after the other until it is down to the floor. Pure.

Relief starts above the ceiling and goes to the floor in one step, so that the prompt is edited seldom. Between the
ceiling and the whole room it is optional, and put off where too little may leave or where the edit would cost more in
re-billed cache than it saves. Above the room it is not: then the newest messages lose their protection by halves, and
at last the results in flight are cut to head and tail. Plans are returned; who writes them down is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from recto.context.policies.compact import Compact
from recto.context.policies.prune import Prune
from recto.context.policies.trim import TrimResults
from recto.context.window.budget import Component
from recto.context.window.cache_cost import PromptEdit, remaining_turns, weigh
from recto.context.window.plan import Plan, Policy, PolicyView, Shrink
from recto.context.window.pressure import Thresholds
from recto.context.window.state import Protection, WindowState, component_of, in_flight
from recto.tokens.model_card import ModelCard

CLAMP = "clamp"
"""The name under which results in flight are cut to head and tail."""
_ROUNDS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliefRules:
    """When relief starts, how far it goes, and what it may touch."""

    room: int
    """What a prompt may have."""
    ceiling: float = 0.92
    floor: float = 0.70
    protection: Protection = field(default_factory=Protection)
    policies: Sequence[Policy] = field(default_factory=lambda: (Prune(),))
    """The cascade: asked in this order, each only while it is needed."""
    starts: Mapping[str, float] = field(default_factory=dict)
    """The share of the room from which on a policy is asked, by its name; others are asked at any time."""
    must: float = 1.0
    """The share of the room from which on relief is not put off."""
    compact: Compact = field(default_factory=Compact)
    """How the older part is compacted when somebody asks for it."""
    warning: float = 0.0
    """The share of the room from which on a compaction is announced, and the work's state written down; 0: never."""
    forced: Policy = field(default_factory=Prune)
    """What is asked at last, when the newest messages have to lose their protection."""
    thresholds: Thresholds = field(default_factory=Thresholds)
    """Where the zones of pressure begin."""
    mark: str = ""
    """A message whose text holds this never leaves."""
    may_leave: bool = True
    """Whether units may leave at all. Where not, results still shrink, for they can be read whole by their pointers."""
    clamp_in_flight: bool = True
    """Whether a result in flight that alone overflows the room is cut to head and tail."""
    limits: Mapping[Component, int] = field(default_factory=dict)
    """What components may have where budgets bind each of them; empty: only the room binds."""
    card: ModelCard | None = None
    """The model, whose prices decide whether an optional edit pays."""
    cache_aware: bool = True
    """Whether an optional edit that does not pay is put off. Without a card it is not known, and it is made."""

    def __post_init__(self) -> None:
        if not 0 < self.floor < self.ceiling <= 1:
            raise ValueError("the floor must be below the ceiling, both between 0 and 1")


class PlannerInputs(Protocol):
    """What relief has to know about messages beyond their lines."""

    def used(self, state: WindowState) -> int:
        """What the prompt of a state costs, with everything that would be made for it."""
        ...

    def view(self, state: WindowState, protection: Protection) -> PolicyView:
        """What a policy may look at."""
        ...

    def cost_with(self, seq: int, text: str) -> int:
        """What a message costs when its results are replaced by a text."""
        ...

    def clamped(self, seq: int, tokens: int) -> str:
        """Head and tail of a message's results, in about so many tokens."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Relief:
    """What should be done, in this order, and where it leads."""

    plans: tuple[Plan, ...]
    state: WindowState
    before: int
    after: int
    postponed: str = ""
    """Why nothing is done yet, though the ceiling is passed."""


def relieve(state: WindowState, rules: ReliefRules, look: PlannerInputs, idle: float = 0.0) -> Relief:
    """Plans what brings a prompt down to the floor; below the ceiling nothing.

    `idle` is how many seconds ago the model was last called: an edit is free once a provider's cache is cold.
    """
    before = look.used(state)
    if state.task in state.lines and state.cost(state.task) > rules.room:
        # A task that no prompt can hold would keep the session from ever being used again.
        rules = replace(rules, protection=replace(rules.protection, task=False))
    first = _Work(state.copy(), rules, look)
    first.bind_components()
    bound = Relief(plans=_joined(first.plans), state=first.state, before=before, after=look.used(first.state))
    if bound.after <= rules.ceiling * rules.room:
        return bound
    work = _Work(first.state.copy(), rules, look)
    target, enough = int(rules.floor * rules.room), int((rules.floor + rules.ceiling) / 2 * rules.room)
    filled = bound.after / rules.room
    for policy in rules.policies if rules.may_leave else (TrimResults(),):
        if filled >= rules.starts.get(policy.name, 0.0):
            work.ask(policy, rules.protection, target)
    if bound.after <= rules.must * rules.room:
        put_off = _put_off(bound, work, enough, idle)
        if put_off:
            return replace(bound, postponed=put_off)
    recent = rules.protection.min_recent_messages
    while look.used(work.state) > enough and rules.may_leave:
        recent //= 2
        work.ask(rules.forced, replace(rules.protection, min_recent_messages=recent), target)
        if not recent:
            break
    if look.used(work.state) > rules.room and rules.may_leave:  # a text was not worth writing: they leave without one
        work.ask(Prune(), replace(rules.protection, min_recent_messages=0), target)
    if rules.clamp_in_flight and look.used(work.state) > rules.room:
        work.clamp()
    plans = _joined([*first.plans, *work.plans])
    return Relief(plans=plans, state=work.state, before=before, after=look.used(work.state))


@dataclass(slots=True)
class _Work:
    """Plans so far, and the state they lead to."""

    state: WindowState
    rules: ReliefRules
    look: PlannerInputs
    plans: list[Plan] = field(default_factory=list)

    def ask(self, policy: Policy, protection: Protection, target: int) -> None:
        """Lets a policy free what is still needed. Markers cost something too, so it may be asked again."""
        for _ in range(_ROUNDS):
            need = self.look.used(self.state) - target
            if need <= 0:
                return
            plan = policy.plan(self.look.view(self.state, protection), need)
            if not plan:
                return
            before, plans = self.state.copy(), len(self.plans)
            self._take(plan)
            if self.look.used(self.state) - target >= need:  # what it would write costs more than what leaves
                self.state = before
                del self.plans[plans:]
                return

    def bind_components(self) -> None:
        """Brings each component below its own limit, where limits bind: results shrink, history leaves."""
        for component, limit in self.rules.limits.items():
            over = self.state.components().get(component, 0) - limit
            if over <= 0:
                continue
            view = self.look.view(self.state, self.rules.protection)
            if component == "results":
                self._take(TrimResults().plan(view, over))
            over = self.state.components().get(component, 0) - limit
            if over > 0 and self.rules.may_leave:
                own = [unit for unit in view.eligible if any(component_of(line) == component for line in unit.lines)]
                self._take(Prune().plan(replace(view, eligible=own), over))

    def clamp(self) -> None:
        """Cuts the largest results in flight, until the prompt fits or nothing is left to cut."""
        flying = [seq for seq in in_flight(self.state) if self.state.lines[seq].answers]
        for seq in sorted(flying, key=lambda seq: (-self.state.cost(seq), seq)):
            over = self.look.used(self.state) - self.rules.room
            if over <= 0:
                return
            text = self.look.clamped(seq, max(self.state.cost(seq) - over - 64, 32))
            shrink = Shrink(seq=seq, text=text, tokens=self.look.cost_with(seq, text))
            if shrink.tokens < self.state.cost(seq):
                reason = "a result in flight alone overflows the room"
                frees = self.state.cost(seq) - shrink.tokens
                self._take(Plan(policy=CLAMP, shrinks=(shrink,), frees=frees, reason=reason))

    def _take(self, plan: Plan) -> None:
        if not plan:
            return
        exact = tuple(replace(s, tokens=self.look.cost_with(s.seq, s.text)) for s in plan.shrinks)
        kept = tuple(shrink for shrink in exact if shrink.tokens < self.state.cost(shrink.seq))
        before = self.state.tokens
        self.state.shrink(kept)
        self.state.leave(seq for unit in plan.leaves for seq in unit.seqs)
        if plan.writes is not None and plan.leaves:
            self.state.summary, self.state.promised = None, plan.writes.most + plan.writes.handoff
        self.plans.append(replace(plan, shrinks=kept, frees=before - self.state.tokens))


def _joined(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """One plan for each policy, though some were asked several times: relief is one step, and told as one."""
    joined: dict[str, Plan] = {}
    for plan in plans:
        first = joined.get(plan.policy)
        if first is None:
            joined[plan.policy] = plan
            continue
        joined[plan.policy] = replace(
            first,
            leaves=(*first.leaves, *plan.leaves),
            shrinks=(*first.shrinks, *plan.shrinks),
            frees=first.frees + plan.frees,
            reason=f"{first.reason}; {plan.reason}",
            scores={**first.scores, **plan.scores},
            writes=plan.writes or first.writes,
        )
    return tuple(joined.values())


def _put_off(bound: Relief, work: _Work, enough: int, idle: float) -> str:
    """Why relief that is not needed yet is better made later; nothing where it should be made now."""
    state, before, after = bound.state, bound.after, work.look.used(work.state)
    if after > enough:
        return f"only {before - after} tokens may leave yet: too few for an edit"
    card = work.rules.card
    if card is None or not work.rules.cache_aware:
        return ""
    touched = [seq for plan in work.plans for unit in plan.leaves for seq in unit.seqs]
    touched += [shrink.seq for plan in work.plans for shrink in plan.shrinks]
    prefix = sum(state.cost(seq) for seq in state.lines if seq < min(touched))
    edit = PromptEdit(
        prefix=prefix,
        removed=max(before - after, 0),
        suffix=max(after - prefix, 0),
        turns=remaining_turns(state.calls),
        grows=int(state.growth.pace * state.turn / max(state.calls, 1)),
        idle=idle,
    )
    verdict = weigh(card, edit)
    if verdict.pays:
        return ""
    amount = f" by {-verdict.net} picodollars" if verdict.known else ""
    return f"an edit now would cost more than it saves{amount}"
