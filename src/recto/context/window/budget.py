"""Token budget: how many tokens each component of a prompt may use, and how many are reserved for the output.

Limits are tracked for six components and enforced for the prompt as a whole; per component only if configured. A
component that is enforced has a floor too, to which relief takes it. A budget says how much, never what to evict.
Counting happens elsewhere.

Budget warnings are what a provider or a harness lets a context-aware model know about its own window.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from msgspec import Struct, field

from recto.context.window import Enforced
from recto.context.window.pressure import VELOCITY_TURNS, Growth, turns_until
from recto.text.lazy_re import lazy_re
from recto.tokens.model_card import ModelCard

Component = Literal["system", "tools", "history", "results", "memory", "reserve"]
Level = Literal["ok", "warning", "violation"]

COMPONENTS: tuple[Component, ...] = get_args(Component)
GROWING: frozenset[Component] = frozenset({"history", "results", "memory"})
"""Components that a turn adds to. The others are as large as they are made, and are not used up."""

ENFORCEABLE: tuple[Component, ...] = ("results", "history", "memory")
"""Components that can be made smaller. System text and tools are as the caller sends them: they are reported."""

SOFT_LIMIT_SHARE = 0.80
"""Share of a hard limit above which the level is `warning`."""
FLOOR_SHARE = 0.70
"""Share of a hard limit to which relief takes a component that passed it."""
MIN_RESERVE = 4096
"""Minimum output reserve: about the size of an answer with a tool call or a short file in it."""
MIN_RESERVE_DIVISOR = 4
"""The minimum reserve is at most the window divided by this: below 16 K, 4,096 tokens would leave too few for the
prompt."""
ROUNDING = 1e-6


class BudgetShares(Struct, frozen=True, kw_only=True):
    """The share of the window each component gets. The shares add up to 1."""

    system: float = 0.06
    tools: float = 0.04
    history: float = 0.65
    results: float = 0.12
    memory: float = 0.08
    reserve: float = 0.05

    def __post_init__(self) -> None:
        values = [self[component] for component in COMPONENTS]
        if min(values) < 0 or self.reserve >= 1:
            raise ValueError("a share must be at least 0, and the reserve less than the whole")
        if abs(sum(values) - 1) > ROUNDING:
            raise ValueError(f"shares must add up to 1, and these are {sum(values):.4f}")

    def __getitem__(self, component: Component) -> float:
        share: float = getattr(self, component)
        return share

    def with_shares(self, overrides: Mapping[Component, float]) -> BudgetShares:
        """Replace some shares; the others keep their proportions and fill the rest."""
        for name in overrides:
            if name not in COMPONENTS:
                raise ValueError(f"'{name}' is no component of a prompt; these are: {', '.join(COMPONENTS)}")
        remaining = 1 - sum(overrides.values())
        others = sum(self[component] for component in COMPONENTS if component not in overrides)
        if remaining < -ROUNDING:
            raise ValueError(f"shares must not add up to more than 1, and these are {1 - remaining:.4f}")
        scale = max(0.0, remaining) / others if others else 0.0
        return BudgetShares(**{name: overrides.get(name, self[name] * scale) for name in COMPONENTS})


PROFILES: Mapping[str, BudgetShares] = MappingProxyType(
    {
        "default": BudgetShares(),
        # Diffs and files arrive as tool results and must be visible together.
        "code_review": BudgetShares(system=0.06, tools=0.05, history=0.60, results=0.18, memory=0.06, reserve=0.05),
        # Pages and papers as results, and findings noted as memory.
        "research": BudgetShares(system=0.05, tools=0.05, history=0.55, results=0.15, memory=0.15, reserve=0.05),
        # Long instructions and a long conversation; lookups are short.
        "customer_support": BudgetShares(
            system=0.08, tools=0.03, history=0.70, results=0.08, memory=0.06, reserve=0.05
        ),
    }
)


class Limit(Struct, frozen=True, kw_only=True):
    """Limits of one component."""

    soft: int
    hard: int
    floor: int = 0
    """Tokens to which relief takes the component once it has passed the hard limit, where limits are enforced."""


class BudgetVerdict(Struct, frozen=True, kw_only=True):
    """The result of adding tokens to a component."""

    component: Component
    used: int
    adding: int
    soft: int
    hard: int
    level: Level

    @property
    def over(self) -> int:
        """Tokens above the hard limit."""
        return max(0, self.used + self.adding - self.hard)


class ComponentUsage(Struct, frozen=True, kw_only=True):
    """Usage of one component."""

    component: Component
    used: int
    soft: int
    hard: int
    level: Level
    burn: float
    """Tokens gained per turn. Never negative."""
    turns_left: int | None
    """Turns until the hard limit: None if the component does not grow, 0 if the limit is reached."""


class Burn(Struct, frozen=True, kw_only=True):
    """Growth of each component over the last turns. Immutable: `turn` returns a new value."""

    growths: Mapping[Component, Growth] = field(default_factory=lambda: MappingProxyType({}))

    def turn(self, used: Mapping[Component, int]) -> Burn:
        """End a turn with these sizes; components not named have size 0."""
        return Burn(
            growths=MappingProxyType({name: self[name].turn(used.get(name, 0)) for name in COMPONENTS}),
        )

    def relieved(self, component: Component, tokens: int, before: int | None = None) -> Burn:
        """Account for a decision that reduced a component to `tokens`, which is not growth."""
        changed = self[component].relieved(tokens, before)
        return Burn(growths=MappingProxyType({**self.growths, component: changed}))

    def __getitem__(self, component: Component) -> Growth:
        return self.growths.get(component, Growth())


class Budget(Struct, frozen=True, kw_only=True):
    """Limits for one model's prompts. Create it with `of` or `for_model`."""

    window: int
    input_budget: int
    """Tokens a prompt may have: the window minus the reserve, and at most the model's maximum input."""
    limits: Mapping[Component, Limit]
    enforced: Enforced = "globally"
    velocity_turns: int = VELOCITY_TURNS
    """Turns over which burn rates are averaged."""

    @classmethod
    def of(
        cls,
        window: int,
        max_output: int | None = None,
        profile: str = "default",
        *,
        shares: Mapping[Component, float] | None = None,
        soft: float = SOFT_LIMIT_SHARE,
        reserve: int | None = None,
        enforced: Enforced = "globally",
    ) -> Budget:
        """Budget for a window size. `shares` and `reserve` override the profile's."""
        card = ModelCard(name="", window=window, max_input=window, max_output=max_output or window)
        return cls.for_model(card, profile, shares=shares, soft=soft, reserve=reserve, enforced=enforced)

    @classmethod
    def for_model(
        cls,
        card: ModelCard,
        profile: str = "default",
        *,
        shares: Mapping[Component, float] | None = None,
        soft: float = SOFT_LIMIT_SHARE,
        floors: Mapping[Component, float] | None = None,
        reserve: int | None = None,
        enforced: Enforced = "globally",
        velocity_turns: int = VELOCITY_TURNS,
    ) -> Budget:
        """Budget for a model. Any reserve above its share is taken from the other components in proportion.

        `floors` are shares of the components' own limits.
        """
        if profile not in PROFILES:
            raise ValueError(f"there is no budget profile '{profile}'; these are: {', '.join(PROFILES)}")
        parts = PROFILES[profile].with_shares(shares or {})
        reserved = _output_reserve(card, parts.reserve, reserve)
        input_budget = card.input_budget(reserved)
        hard: dict[Component, int] = {
            name: reserved if name == "reserve" else int(input_budget * parts[name] / (1 - parts.reserve) + ROUNDING)
            for name in COMPONENTS
        }
        limits = {
            name: Limit(
                soft=int(tokens * soft + ROUNDING),
                hard=tokens,
                floor=int(tokens * (floors or {}).get(name, FLOOR_SHARE) + ROUNDING),
            )
            for name, tokens in hard.items()
        }
        return cls(
            window=card.window,
            input_budget=input_budget,
            limits=MappingProxyType(limits),
            enforced=enforced,
            velocity_turns=velocity_turns,
        )

    @property
    def reserve(self) -> int:
        """Tokens reserved for the output."""
        return self.limits["reserve"].hard

    def level(self, component: Component, used: int) -> Level:
        """Whether a component that uses so many tokens is within its limits. The reserve always is: it is set aside."""
        return "ok" if component == "reserve" else _level(used, self.limits[component])

    def check(self, component: Component, used: int, adding: int = 0) -> BudgetVerdict:
        """Check whether a component may take `adding` more tokens."""
        limit = self.limits[component]
        return BudgetVerdict(
            component=component,
            used=used,
            adding=adding,
            soft=limit.soft,
            hard=limit.hard,
            level=_level(used + adding, limit),
        )

    def refuses(self, verdict: BudgetVerdict) -> bool:
        """Whether the checked tokens must not be added. With global enforcement only the input budget counts."""
        return self.enforced == "per_component" and verdict.level == "violation"

    def usage(self, used: Mapping[Component, int], burn: Burn | None = None) -> tuple[ComponentUsage, ...]:
        """Usage of every component, in order."""
        growths = burn or Burn()
        return tuple(self._usage(name, used.get(name, 0), growths[name]) for name in COMPONENTS)

    def _usage(self, component: Component, used: int, growth: Growth) -> ComponentUsage:
        limit = self.limits[component]
        burn = growth.over(self.velocity_turns).pace_with(used) if component in GROWING else 0.0
        return ComponentUsage(
            component=component,
            used=used,
            soft=limit.soft,
            hard=limit.hard,
            level=self.level(component, used),
            burn=burn,
            turns_left=turns_until(limit.hard - used, burn),
        )


def _level(tokens: int, limit: Limit) -> Level:
    if tokens > limit.hard:
        return "violation"
    return "warning" if tokens > limit.soft else "ok"


def _output_reserve(card: ModelCard, share: float, requested: int | None) -> int:
    """The output reserve: at least the minimum (smaller for tiny windows), at most what the model can output."""
    least = min(MIN_RESERVE, max(1, card.window // MIN_RESERVE_DIVISOR))
    reserve = int(card.window * share + ROUNDING) if requested is None else requested
    return min(max(reserve, least), card.max_output, card.window)


_USAGE = lazy_re(
    r"<(system_warning|system-reminder)>\s*Token usage: ([\d,]{1,15})/([\d,]{1,15})(?:; [\d,]{1,15} remaining)?\s*</\1>"
)
_WINDOW = lazy_re(r"<budget:token_budget>\s*([\d,]{1,15})\s*</budget:token_budget>")


class BudgetWarning(NamedTuple):
    """What a message says about the model's window."""

    used: int
    """Tokens of the prompt up to the message; 0 if it does not say."""
    window: int
    """Tokens of the whole window."""


def may_warn(raw: bytes) -> bool:
    """Whether the bytes of a message can contain a warning. Most cannot, and their text need not be searched."""
    return b"oken" in raw and (b"Token usage: " in raw or b"token_budget" in raw)


def read_warning(text: str) -> BudgetWarning | None:
    """The last warning in a text; None if there is none, or if it contradicts itself."""
    usage = None
    for usage in _USAGE.finditer(text):  # noqa: B007  # the last one counts
        pass
    if usage is not None:
        used, window = _number(usage[2]), _number(usage[3])
        return BudgetWarning(used, window) if 0 < used <= window else None
    found = _WINDOW.findall(text)
    window = _number(found[-1]) if found else 0
    return BudgetWarning(0, window) if window else None


def _number(text: str) -> int:
    return int(text.replace(",", "") or 0)
