"""Window modes as relief rules: a mode is a list of policies and thresholds, not a code path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec import Struct, structs

from recto.config import Settings, WindowSettings
from recto.config.loader import override
from recto.context.policies.edits import ClearThinking, SummarizeResults, TrimResults
from recto.context.policies.eviction import Compact, Evict, Progressive, Prune, ToolUnitsOnly
from recto.context.policies.features import Scorer
from recto.context.policies.planner import ComponentRules, ReliefRules
from recto.context.policies.scorers import SCORERS, scorer_named
from recto.context.window.budget import Budget, Component, Thresholds
from recto.context.window.state import Protection
from recto.context.window.units import Policy
from recto.errors import SettingsError
from recto.tokens.model_card import ModelCard
from recto.tokens.model_registry import lower_limits

if TYPE_CHECKING:
    from recto.tokens.limits import ModelLimits

_DELEGATE: Literal["delegate"] = "delegate"
"""The name of the policy that lets a sub-agent summarise what is evicted."""
_LAST_RESORT = 0.95
"""Share of the input budget from which the last policies of the cascade run and relief is no longer postponed."""
_FLOOR, _SMALL_FLOOR = 0.70, 0.95
"""Shares of the input budget to which relief goes in a large and in a small window. In a small one the next action uses
each token (`python -m bench likelihood`); in a large one a deep cut costs it little and saves rewriting the cache
(`python -m bench action_support`). Below a ceiling that is set, it goes a tenth down."""
_SMALL_WINDOW, _LARGE_WINDOW = 16_384, 32_000
"""Tokens up to which a window is small, and from which on it is large."""
_RESULTS_FLOOR = 0.5
"""Share of their own limit to which results are shortened. It is deeper than that of the window, because their limit is
a small part of it and a result is one pointer away."""
_COLD_DEPTH = 0.2
"""How much further relief goes where the provider's cache is cold: the prompt is written to it anyway, and the next
cut, which rewrites a warm cache, comes later."""


def floor_share(window: WindowSettings, size: int) -> float:
    """Return the share of the input budget to which relief goes in a window of this size."""
    if window.floor_percent:
        return window.floor_percent / 100
    ceiling = window.ceiling_percent / 100
    floor = min(_FLOOR, 0.9 * ceiling)
    if window.mode != "sliding_window":
        return floor
    small = min(max((_LARGE_WINDOW - size) / (_LARGE_WINDOW - _SMALL_WINDOW), 0.0), 1.0)
    small_floor = _SMALL_FLOOR if window.ceiling_percent >= WindowSettings().ceiling_percent else 0.9 * ceiling
    return floor + (small_floor - floor) * small


def settings_for_start(window: WindowSettings, budget: Budget, percent: float) -> dict[str, Any]:
    """Return the settings with which relief starts at a percent of the input budget in this window's mode.

    What comes before or after it in that mode moves in proportion.
    """
    if window.mode == "sliding_window":
        return {"ceiling_percent": percent}
    recent = min(window.keep_recent_tokens, _most_recent_tokens(int(budget.input_budget * percent / 100)))
    if window.mode == "auto_compact":
        warning = window.checkpoint_warning_percent / window.compact_target_percent * percent
        changed = {"compact_target_percent": percent, "checkpoint_warning_percent": warning}
        return changed | {"keep_recent_tokens": recent}
    starts = _cascade_starts(window, zone_thresholds(window, budget.window))
    first = min(starts.values())
    moved = {name: min(start / first * percent, 100.0) for name, start in starts.items()}
    return {"cascade_percents": moved, "keep_recent_tokens": recent}


class WindowConfiguration(Struct):
    """The budget and the rules of a window, and what becomes of them when settings change at run time."""

    settings: Settings
    card: ModelCard
    policy: Policy | Scorer | None = None
    """Chooses what is evicted, in place of the policy that the settings name."""
    delegates: bool = False
    """Whether there is a dispatcher, so that a sub-agent can write where nothing else is enough."""

    def make(self) -> tuple[Budget, ReliefRules]:
        """Build both."""
        budget = make_budget(self.settings.window, self.card)
        eviction = None if self.policy is None else as_policy(self.policy)
        return budget, make_relief_rules(self.settings, budget, self.card, eviction, delegates=self.delegates)

    def change(self, changes: Mapping[str, Any]) -> tuple[Budget, ReliefRules]:
        """Change settings of the group `window` by name. Raises `SettingsError`, and nothing is changed then."""
        named = dict(changes)
        policy = None if "policy" in named else self.policy
        if not isinstance(named.get("policy", ""), str):
            policy = named.pop("policy")
        elif "policy" in named and "scorer" not in named:
            named["scorer"] = {}  # the settings of another policy
        changed = WindowConfiguration(override(self.settings, {"window": named}), self.card, policy, self.delegates)
        made = changed.make()
        self.settings, self.policy = changed.settings, changed.policy
        return made

    def lower(self, limits: ModelLimits) -> tuple[Budget, ReliefRules]:
        """Lower the model's limits to those that its provider stated; return both as if the settings stated them."""
        self.card = lower_limits(self.card, limits)
        return self.make()


def as_policy(policy: str | Policy | Scorer, **settings: object) -> Policy:
    """Return the eviction policy of a name, a policy or a scorer. Raises `SettingsError` for anything else."""
    if isinstance(policy, str):
        if policy not in (names := ("prune", *SCORERS)):
            nearest = get_close_matches(policy, names, n=1)
            raise SettingsError("policy", f"'{policy}' is none of {', '.join(names)}", nearest[0] if nearest else None)
        return Prune() if policy == "prune" else Evict(scorer=scorer_named(policy, **settings))
    if callable(getattr(policy, "plan", None)):
        return cast("Policy", policy)
    if callable(getattr(policy, "score", None)):
        return Evict(scorer=cast("Scorer", policy))
    raise SettingsError("policy", f"'{type(policy).__name__}' has neither the calls of a policy nor those of a scorer")


def make_budget(window: WindowSettings, card: ModelCard) -> Budget:
    """Build the token budget of a model's prompts."""
    shares = {name: percent / 100 for name, percent in window.shares.items()}
    floor = floor_share(window, card.window)
    floors = {"history": floor, "results": min(floor, _RESULTS_FLOOR), "memory": floor}
    floors |= {name: percent / 100 for name, percent in window.floors.items()}
    return Budget.for_model(
        card,
        window.profile,
        shares=cast("Mapping[Component, float]", shares),
        soft=window.soft_percent / 100,
        floors=cast("Mapping[Component, float]", floors),
        reserve=window.reserve or None,
        enforced=window.enforced,
        velocity_turns=window.velocity_turns,
    )


def make_relief_rules(
    settings: Settings, budget: Budget, card: ModelCard, eviction: Policy | None = None, *, delegates: bool = False
) -> ReliefRules:
    """Build the rules that say when relief starts, how far it goes and what it may touch.

    `eviction` chooses what is evicted, in place of the policy that the settings name.
    """
    window = settings.window
    eviction = eviction or as_policy(window.policy, **window.scorer)
    compact = Compact(
        keep_recent_tokens=min(window.keep_recent_tokens, _most_recent_tokens(budget.input_budget)),
        summary_tokens=max(min(settings.compress.summary_tokens, budget.input_budget // 8), 1),
        handoff_tokens=min(settings.compress.handoff_tokens, budget.input_budget // 20),
    )
    floor = floor_share(window, budget.window)
    rules = ReliefRules(
        input_budget=budget.input_budget,
        ceiling=window.ceiling_percent / 100,
        floor=floor,
        cold_floor=max(floor - _COLD_DEPTH, 0.1),
        protection=Protection(
            min_recent_messages=window.min_recent_messages,
            tools=frozenset(window.keep_tools),
            task=window.protect_task,
            kinds=frozenset(window.protect),
        ),
        policies=(
            *_clear_thinking(window),
            *((_trim(window, budget.input_budget),) if window.shorten_outputs else ()),
            eviction,
        ),
        record_tokens=int(budget.input_budget * window.record_percent / 100),
        thresholds=zone_thresholds(window, budget.window),
        velocity_turns=window.velocity_turns,
        spike_factor=window.spike_factor,
        mark=window.mark,
        card=card,
        cache_aware=window.cache_aware,
        looks_ahead=window.look_ahead,
        arrivals=_arrivals(settings, budget.input_budget),
        compact=compact,
    )
    if window.mode == "auto_compact":
        rules = _auto_compact(rules, window)
    elif window.mode == "zones":
        rules = _cascade(rules, settings, eviction)
        if delegates and _DELEGATE in window.cascade:
            # A sub-agent reads what nothing else made small enough, recent messages too, instead of a new window.
            rules = structs.replace(
                rules, forced_policy=structs.replace(rules.compact, name=_DELEGATE, keep_recent_tokens=0)
            )
    if window.enforced == "per_component":
        rules = structs.replace(rules, component_rules=_component_rules(rules, window, budget, eviction))
    return rules


def _most_recent_tokens(tokens: int) -> int:
    """Return how many tokens of the newest messages a compaction of a prompt of this size leaves at most."""
    return tokens * 2 // 5


def _component_rules(
    rules: ReliefRules, window: WindowSettings, budget: Budget, eviction: Policy
) -> dict[Component, ComponentRules]:
    """Shorten results, then evict them with their exchange; of history, evict or compact what the mode does.

    Recall keeps memory within its limit.
    """
    trim = structs.replace(TrimResults(**asdict(window.trim)), clear_at_least=0, keep_share=0.0)
    summaries = [
        structs.replace(policy, chosen=trim) for policy in rules.policies if isinstance(policy, SummarizeResults)
    ]
    evicts = [
        policy
        for policy in rules.policies
        if not isinstance(policy, TrimResults | SummarizeResults) and policy.name != _DELEGATE
    ]
    results, history = budget.limits["results"], budget.limits["history"]
    return {
        "results": ComponentRules(
            limit=results.hard,
            floor=results.floor,
            shortens=(*summaries, trim, structs.replace(trim, keep_newest=0)),
            evicts=(eviction,),
        ),
        "history": ComponentRules(limit=history.hard, floor=history.floor, evicts=evicts),
    }


def _trim(window: WindowSettings, input_budget: int) -> TrimResults:
    trim = TrimResults(**asdict(window.trim))
    return structs.replace(trim, clear_at_least=min(trim.clear_at_least, input_budget // 20))


def _arrivals(settings: Settings, input_budget: int) -> SummarizeResults | None:
    compress = settings.compress
    if not compress.on_arrival_tokens:
        return None
    trim = _trim(settings.window, input_budget)
    return SummarizeResults(above=compress.on_arrival_tokens, share=compress.result_share, chosen=trim)


def _clear_thinking(window: WindowSettings) -> tuple[Policy, ...]:
    return (ClearThinking(turns=window.thinking_turns),) if window.thinking_turns else ()


def _auto_compact(rules: ReliefRules, window: WindowSettings) -> ReliefRules:
    """Compact everything but the newest messages at once, however far below the target that leads.

    A compaction is announced instead of brought forward: it loses more than other relief.
    """
    target = window.compact_target_percent / 100
    return structs.replace(
        rules,
        ceiling=target,
        floor=min(rules.floor, 0.9 * target),
        mandatory_from=target,
        warning=window.checkpoint_warning_percent / 100,
        looks_ahead=False,
        protection=structs.replace(rules.protection, min_recent_messages=0),
        policies=(*_clear_thinking(window), rules.compact),
        forced_policy=structs.replace(rules.compact, name="new_window", keep_recent_tokens=0),
    )


def _cascade(rules: ReliefRules, settings: Settings, eviction: Policy) -> ReliefRules:
    """Policies in order of cost: the cheapest per freed token first; the most expensive and most lossy last."""
    compress, window, thresholds = settings.compress, settings.window, rules.thresholds
    trim = _trim(window, rules.input_budget)
    policies: Mapping[str, Policy] = {
        "summarise_results": SummarizeResults(above=compress.result_tokens, share=compress.result_share, chosen=trim),
        "trim": trim,
        "evict": ToolUnitsOnly(eviction),
        "progressive": Progressive(
            key_points_turns=compress.key_points_turns,
            line_turns=compress.line_turns,
            most_tokens=rules.compact.summary_tokens,
        ),
        "compact": rules.compact,
        _DELEGATE: structs.replace(rules.compact, name=_DELEGATE),
    }
    starts = _cascade_starts(window, thresholds)
    ceiling = min(starts.values())
    return structs.replace(
        rules,
        ceiling=ceiling,
        floor=min(rules.floor, (thresholds.yellow + thresholds.orange) / 2, 0.9 * ceiling),
        mandatory_from=_LAST_RESORT,
        policies=(*_clear_thinking(window), *(policies[name] for name in window.cascade)),
        policy_starts={policies[name].name: start for name, start in starts.items() if start > ceiling},
        forced_policy=structs.replace(rules.compact, name="new_window", keep_recent_tokens=0),
    )


def _cascade_starts(window: WindowSettings, thresholds: Thresholds) -> dict[str, float]:
    """The share of the input budget from which each policy of the cascade is applied, in its order.

    One whose start is not set never starts after one that comes behind it.
    """
    usual = {"compact": thresholds.red, "delegate": max(_LAST_RESORT, thresholds.red)}
    starts: dict[str, float] = {}
    latest = 1.0
    for name in reversed(window.cascade):
        given = window.cascade_percents.get(name)
        latest = min(usual.get(name, thresholds.orange), latest) if given is None else given / 100
        starts[name] = latest
    return dict(reversed(starts.items()))


def zone_thresholds(settings: WindowSettings, window: int) -> Thresholds:
    """Return where the zones begin: as set, else as suits a window of this size. Raises `SettingsError`."""
    defaults = Thresholds.for_window(window)
    try:
        return Thresholds(
            yellow=settings.yellow_percent / 100 or defaults.yellow,
            orange=settings.orange_percent / 100 or defaults.orange,
            red=settings.red_percent / 100 or defaults.red,
        )
    except ValueError as error:
        cure = "set window.yellow_percent, orange_percent and red_percent together"
        raise SettingsError("window", f"{error}; {cure}") from None
