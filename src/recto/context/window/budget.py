"""How many tokens each component of a prompt may have, and how much is kept for the answer.

Limits are tracked for six components and enforced for the whole prompt; for each component only where asked. A budget
says how much and never what should leave. How the components are counted is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, get_args

from recto.context.window.pressure import Growth, turns_until
from recto.tokens.model_card import ModelCard

Component = Literal["system", "tools", "history", "results", "memory", "reserve"]
Enforced = Literal["globally", "per_component"]
Level = Literal["ok", "warning", "violation"]

COMPONENTS: tuple[Component, ...] = get_args(Component)

SOFT = 0.80
"""The share of a hard limit from which on there is a warning."""
LEAST_RESERVE = 4096
"""An answer with a tool call or a short file in it needs about this much."""
LEAST_RESERVE_PARTS = 4
"""The least reserve is at most one part in this many of the window: below 16 K, 4,096 tokens would leave too little to
answer from."""
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetShares:
    """The part of the window each component gets. Together they are the whole."""

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

    def replaced(self, given: Mapping[Component, float]) -> BudgetShares:
        """With some shares given; the others keep their proportions and fill what is left."""
        for name in given:
            if name not in COMPONENTS:
                raise ValueError(f"'{name}' is no component of a prompt; these are: {', '.join(COMPONENTS)}")
        left = 1 - sum(given.values())
        others = sum(self[component] for component in COMPONENTS if component not in given)
        if left < -ROUNDING:
            raise ValueError(f"shares must not add up to more than 1, and these are {1 - left:.4f}")
        scale = max(0.0, left) / others if others else 0.0
        return BudgetShares(**{name: given.get(name, self[name] * scale) for name in COMPONENTS})


PROFILES: Mapping[str, BudgetShares] = MappingProxyType(
    {
        "default": BudgetShares(),
        # Diffs and files come as tool results and must stand side by side; the talk about them is short.
        "code_review": BudgetShares(system=0.05, tools=0.05, history=0.45, results=0.33, memory=0.06, reserve=0.06),
        # Pages and papers as results, findings noted on the way as memory, and a long report as the answer.
        "research": BudgetShares(system=0.04, tools=0.04, history=0.42, results=0.26, memory=0.14, reserve=0.10),
        # Long instructions and what is known about the customer; lookups and answers are short.
        "customer_support": BudgetShares(
            system=0.12, tools=0.05, history=0.58, results=0.08, memory=0.13, reserve=0.04
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What one component may have."""

    soft: int
    hard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetVerdict:
    """What adding some tokens to a component would mean."""

    component: Component
    used: int
    adding: int
    soft: int
    hard: int
    level: Level

    @property
    def over(self) -> int:
        """By how many tokens the hard limit would be passed."""
        return max(0, self.used + self.adding - self.hard)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentUsage:
    """How one component stands."""

    component: Component
    used: int
    soft: int
    hard: int
    level: Level
    burn: float
    """Tokens gained per turn. Never negative."""
    turns_left: int | None
    """Turns until the hard limit: None where it does not grow, 0 where it is reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Burn:
    """How each component grew over the last turns. A value: `turn` gives a new one."""

    growths: Mapping[Component, Growth] = field(default_factory=lambda: MappingProxyType({}))

    def turn(self, used: Mapping[Component, int]) -> Burn:
        """A turn has ended with these sizes; a component that is not named has none."""
        return Burn(
            growths=MappingProxyType({name: self[name].turn(used.get(name, 0)) for name in COMPONENTS}),
        )

    def relieved(self, component: Component, tokens: int, before: int | None = None) -> Burn:
        """A decision brought a component down to `tokens`, which says nothing about its growth."""
        changed = self[component].relieved(tokens, before)
        return Burn(growths=MappingProxyType({**self.growths, component: changed}))

    def __getitem__(self, component: Component) -> Growth:
        return self.growths.get(component, Growth())


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of one model's prompts. Made by `of` or `for_model`."""

    window: int
    room: int
    """What a prompt may have: the window without the reserve, and not more than the model takes as input."""
    limits: Mapping[Component, Limit]
    enforced: Enforced = "globally"

    @classmethod
    def of(
        cls,
        window: int,
        max_output: int | None = None,
        profile: str = "default",
        *,
        shares: Mapping[Component, float] | None = None,
        reserve: int | None = None,
        enforced: Enforced = "globally",
    ) -> Budget:
        """For a window alone. `shares` and `reserve` override the profile's."""
        card = ModelCard(name="", window=window, max_input=window, max_output=max_output or window)
        return cls.for_model(card, profile, shares=shares, reserve=reserve, enforced=enforced)

    @classmethod
    def for_model(
        cls,
        card: ModelCard,
        profile: str = "default",
        *,
        shares: Mapping[Component, float] | None = None,
        reserve: int | None = None,
        enforced: Enforced = "globally",
    ) -> Budget:
        """For a model. What the reserve takes above its share comes off the others, in proportion."""
        if profile not in PROFILES:
            raise ValueError(f"there is no budget profile '{profile}'; these are: {', '.join(PROFILES)}")
        parts = PROFILES[profile].replaced(shares or {})
        kept = _reserve(card, parts.reserve, reserve)
        room = card.room(kept)
        hard: dict[Component, int] = {
            name: kept if name == "reserve" else int(room * parts[name] / (1 - parts.reserve) + ROUNDING)
            for name in COMPONENTS
        }
        limits = {name: Limit(soft=int(tokens * SOFT), hard=tokens) for name, tokens in hard.items()}
        return cls(window=card.window, room=room, limits=MappingProxyType(limits), enforced=enforced)

    @property
    def reserve(self) -> int:
        """What is kept for the answer."""
        return self.limits["reserve"].hard

    def check(self, component: Component, used: int, adding: int = 0) -> BudgetVerdict:
        """Whether a component may have more, asked before it is added."""
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
        """Whether what was checked must not be added. Where limits are enforced globally only the room counts."""
        return self.enforced == "per_component" and verdict.level == "violation"

    def usage(self, used: Mapping[Component, int], burn: Burn | None = None) -> tuple[ComponentUsage, ...]:
        """How every component stands, in their order."""
        growths = burn or Burn()
        return tuple(self._usage(name, used.get(name, 0), growths[name]) for name in COMPONENTS)

    def _usage(self, component: Component, used: int, growth: Growth) -> ComponentUsage:
        limit = self.limits[component]
        burn = growth.pace_with(used)
        return ComponentUsage(
            component=component,
            used=used,
            soft=limit.soft,
            hard=limit.hard,
            level=_level(used, limit),
            burn=burn,
            turns_left=turns_until(limit.hard - used, burn),
        )


def _level(tokens: int, limit: Limit) -> Level:
    if tokens > limit.hard:
        return "violation"
    return "warning" if tokens > limit.soft else "ok"


def _reserve(card: ModelCard, share: float, asked: int | None) -> int:
    """What is kept for the answer: never under the least, which tiny windows scale down, never over what the model
    can answer."""
    least = min(LEAST_RESERVE, max(1, card.window // LEAST_RESERVE_PARTS))
    wanted = int(card.window * share + ROUNDING) if asked is None else asked
    return min(max(wanted, least), card.max_output, card.window)
