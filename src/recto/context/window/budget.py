"""Budget, pressure and cost: how many tokens a prompt may have, how full it is, and what it costs.

Limits are tracked for six components and enforced for the prompt as a whole; per component only if configured. A
component that is enforced has a floor too, to which relief takes it. A budget says how much, never what to evict.
Counting happens elsewhere. Budget warnings are what a provider or a harness lets a context-aware model know about its
own window.

`Pressure` is immutable: `turn` and `relieved` return a new value. `read` may be called at any moment, also within a
turn, before each model call and after each tool result. It works on token counts alone and knows nothing of the
prompt's content, relief or alerts.

The cost of a prompt depends on what the provider has cached of its prefix, and so does whether an edit pays off.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import ceil, inf
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from recto.context.window import MAX_VELOCITY_TURNS, Enforced
from recto.text.lazy_re import lazy_re
from recto.tokens.model_card import ModelCard

Zone = Literal["green", "yellow", "orange", "red"]
Source = Literal["reported", "warning", "counted", "estimated"]
"""Where the size of a prompt comes from: the provider's report, a budget warning to the model in a message, the model's
own tokenizer, or an estimate."""
Urgency = Literal["normal", "warning", "critical"]
CRITICAL_TURNS, WARNING_TURNS = 3, 10
"""With fewer turns than these left until the red zone, the urgency is `critical` or `warning`."""

VELOCITY_TURNS = 5
"""Turns over which velocity is averaged: enough to smooth out one large file, few enough to notice a new pace."""
SPIKE_FACTOR = 3.0
"""A turn that gains more than this many times the baseline is a spike."""
MIN_BASELINE_TURNS = 3
"""Turns needed before there is a baseline."""
MIN_SPIKE_TOKENS = 1024
"""Minimum gain of a spike. Three times the gain of a chat with 50-token turns is not worth an alert."""
MAX_DISCREPANCY = 0.10
"""Relative difference between reported and counted tokens above which it is reported."""
PLAUSIBLE_RATIOS = (0.25, 4.0)
"""Plausible range of reported over counted tokens. Outside it, the report omits cached tokens or adds up several
calls."""

SMALL_WINDOW = 16_384
MEDIUM_WINDOW = 32_768
LARGE_WINDOW = 200_000


class Thresholds(Struct, frozen=True, kw_only=True):
    """Where the zones begin, as shares of the input budget."""

    yellow: float = 0.50
    orange: float = 0.75
    red: float = 0.90

    def __post_init__(self) -> None:
        if not 0 < self.yellow < self.orange < self.red <= 1:
            raise ValueError(
                f"thresholds must ascend between 0 and 1: yellow {self.yellow}, orange {self.orange}, red {self.red}"
            )

    @classmethod
    def for_window(cls, window: int) -> Thresholds:
        """Thresholds that suit a window of this size.

        Up to 16 K, 40/65/80: one tool result of 1,500 tokens is a tenth of the input budget, so a prompt can jump from
        75 % over the limit in one step. Up to 32 K, 45/70/85, for the same reason. From 200 K on, 60/80/90: half full
        leaves 100 K tokens, many turns of work, and an early alarm would only break a warm cache. Red stays where it
        is: a large window also gets larger results.
        """
        if window <= SMALL_WINDOW:
            return cls(yellow=0.40, orange=0.65, red=0.80)
        if window <= MEDIUM_WINDOW:
            return cls(yellow=0.45, orange=0.70, red=0.85)
        if window >= LARGE_WINDOW:
            return cls(yellow=0.60, orange=0.80, red=0.90)
        return cls()

    def zone(self, utilization: float) -> Zone:
        """The zone of a prompt that fills this share of the input budget."""
        if utilization >= self.red:
            return "red"
        if utilization >= self.orange:
            return "orange"
        return "yellow" if utilization >= self.yellow else "green"


class Growth(Struct, frozen=True, kw_only=True):
    """Growth of a token count over the last turns. Reductions by decisions do not count as negative growth."""

    level: int | None = None
    """The count from which this turn's growth is measured; None before the first turn has ended. After a decision it is
    the count this turn would have begun with had the decision come before it, which may be negative."""
    gains: tuple[int, ...] = ()
    """Tokens added by each of the last turns, oldest first."""
    turns: int = VELOCITY_TURNS
    """How many of them count."""

    def over(self, turns: int) -> Growth:
        """The same growth, judged by the last so many turns."""
        return self if turns == self.turns else replace(self, turns=turns)

    @property
    def _recent(self) -> tuple[int, ...]:
        return self.gains[-self.turns :]

    def turn(self, tokens: int) -> Growth:
        """End a turn. The first one only sets the level: a system prompt is not growth."""
        if self.level is None:
            return replace(self, level=tokens)
        return Growth(level=tokens, gains=(*self.gains, self.gain(tokens))[-MAX_VELOCITY_TURNS:], turns=self.turns)

    def relieved(self, tokens: int, before: int | None = None) -> Growth:
        """Account for a decision that changed the count from `before` to `tokens`; this turn's gain is unchanged.

        If `before` is unknown, this turn is measured from the lower of its old level and `tokens`, which underestimates
        growth rather than inventing it. Undoing a decision works the same way, upwards.
        """
        if self.level is None:
            return self
        level = min(self.level, tokens) if before is None else self.level - before + tokens
        return replace(self, level=level)

    def gain(self, tokens: int) -> int:
        """Tokens added by this turn so far."""
        return 0 if self.level is None else max(0, tokens - self.level)

    @property
    def pace(self) -> float:
        """Tokens per turn, over the turns that have ended."""
        gains = self._recent
        return sum(gains) / len(gains) if gains else 0.0

    @property
    def high_gain(self) -> int:
        """What a turn seldom adds more than: the 90th percentile of the last turns' gains. 0 if there are too few."""
        if len(self.gains) < MIN_BASELINE_TURNS:
            return 0
        gains = sorted(self.gains[-max(self.turns, MIN_BASELINE_TURNS) :])
        return gains[ceil(0.9 * len(gains)) - 1]

    def pace_with(self, tokens: int) -> float:
        """The pace including this turn, if that raises it: an unfinished turn does not lower the pace."""
        gains = (*self.gains, self.gain(tokens))[-self.turns :]
        return max(self.pace, sum(gains) / len(gains))


class PressureReading(Struct, frozen=True, kw_only=True):
    """One measurement."""

    tokens: int
    room: int
    """The input budget: the window minus the reserve."""
    utilization: float
    zone: Zone
    velocity: float
    """Tokens gained per turn. Never negative."""
    turns_until_red: int | None
    """None if the prompt does not grow, 0 if it is red."""
    spike: bool
    """Whether this turn gained far more than usual."""
    baseline: float | None
    """Average gain of the turns before this one; None if there are too few."""
    gain: int = 0
    """Tokens gained by this turn so far."""
    turn: int = 0
    """Turns that had ended."""
    source: Source = "counted"
    """Where `tokens` comes from."""

    @property
    def urgency(self) -> Urgency:
        """`critical` with fewer than 3 turns left until the red zone, `warning` with fewer than 10."""
        if self.turns_until_red is None or self.turns_until_red >= WARNING_TURNS:
            return "normal"
        return "critical" if self.turns_until_red < CRITICAL_TURNS else "warning"


class Pressure(Struct, frozen=True, kw_only=True):
    """Measurement state between readings."""

    input_budget: int
    thresholds: Thresholds = Thresholds()
    growth: Growth = Growth()
    turns: int = 0
    """Turns that have ended."""
    spike_factor: float = SPIKE_FACTOR
    """A turn that gains more than this many times the baseline is a spike."""

    def __post_init__(self) -> None:
        if self.input_budget < 0:
            raise ValueError(f"the room of a prompt cannot be {self.input_budget} tokens")

    def turn(self, tokens: int) -> Pressure:
        """End a turn with a prompt of this size."""
        return replace(self, growth=self.growth.turn(tokens), turns=self.turns + 1)

    def relieved(self, tokens: int, before: int | None = None) -> Pressure:
        """Account for a decision that reduced the prompt to `tokens`: neither a negative gain now nor a spike later."""
        return replace(self, growth=self.growth.relieved(tokens, before))

    def read(self, tokens: int, source: Source = "counted", messages: int | None = None) -> PressureReading:
        """Measure a prompt of this size, which comes from this source.

        `messages` are the tokens of its messages, where turns were measured by those alone: the definitions of tools
        and the record of what was evicted are in every prompt, and are no growth.
        """
        level = tokens if messages is None else messages
        utilization = tokens / self.input_budget if self.input_budget else max(1.0, tokens)
        zone = self.thresholds.zone(utilization)
        velocity = self.growth.pace_with(level)
        gain = self.growth.gain(level)
        # A prompt that is not red is at least one token short of it.
        distance = max(1.0, self.thresholds.red * self.input_budget - tokens)
        known = len(self.growth.gains) >= MIN_BASELINE_TURNS
        return PressureReading(
            tokens=tokens,
            room=self.input_budget,
            utilization=utilization,
            zone=zone,
            velocity=velocity,
            turns_until_red=0 if zone == "red" else turns_until(distance, velocity),
            spike=known and gain > max(MIN_SPIKE_TOKENS, self.spike_factor * self.growth.pace),
            baseline=self.growth.pace if known else None,
            gain=gain,
            turn=self.turns,
            source=source,
        )


class ZoneChanged(Struct, frozen=True, kw_only=True):
    """The prompt changed zones, in either direction."""

    before: Zone
    after: Zone


class VelocitySpike(Struct, frozen=True, kw_only=True):
    """A turn gained far more than usual. Reported once per turn."""

    gain: int
    baseline: float


PressureChange: TypeAlias = ZoneChanged | VelocitySpike


def compare_readings(before: PressureReading | None, after: PressureReading) -> tuple[PressureChange, ...]:
    """Changes worth reporting between two readings. Before the first reading the zone counts as green."""
    changes: list[PressureChange] = []
    zone = "green" if before is None else before.zone
    if zone != after.zone:
        changes.append(ZoneChanged(before=zone, after=after.zone))
    is_reported = before is not None and before.spike and before.turn == after.turn
    if after.spike and not is_reported:
        changes.append(VelocitySpike(gain=after.gain, baseline=after.baseline or 0.0))
    return tuple(changes)


class PromptSize(NamedTuple):
    """Size of a prompt, from our count and the provider's report."""

    tokens: int
    """The size to use."""
    discrepancy: float | None
    """Relative difference of the report from our count of the same prompt, if worth reporting: 0.2 is 20 % more."""


def measure_prompt(counted: int, reported: int | None, *, added: int = 0, exact: bool = True) -> PromptSize:
    """Size of a prompt of `counted` tokens, of which `added` came after the provider's report.

    The report is used for what the provider saw, our count for what came since. A count by the model's own tokenizer
    (`exact`) is a lower bound. An implausible report is returned as a discrepancy and not used.
    """
    reported_part = counted - added
    if reported is None or reported <= 0 or reported_part <= 0:
        return PromptSize(counted, None)
    difference = (reported - reported_part) / reported_part
    discrepancy = difference if abs(difference) > MAX_DISCREPANCY else None
    if not PLAUSIBLE_RATIOS[0] <= reported / reported_part <= PLAUSIBLE_RATIOS[1]:
        return PromptSize(counted, discrepancy)
    tokens = reported + added
    return PromptSize(max(counted, tokens) if exact else tokens, discrepancy)


def source_of(
    size: PromptSize, counted: int, *, exact: bool, report: Literal["reported", "warning"] = "reported"
) -> Source:
    """Where the size of a prompt of `counted` tokens comes from; `report` is what it was measured with."""
    if size.tokens != counted:
        return report
    return "counted" if exact else "estimated"


def corrected_budget(input_budget: int, counted: int, reported: int) -> int:
    """The input budget in our own tokens, where the provider reported more for the last prompt than we counted.

    A prompt of about the same size is off by the same ratio; after a small one only the tokens that it was off by are
    taken into account, because most of them are a fixed addition. A report below our count or an implausible one
    changes nothing: an estimate is not lowered, so that no prompt is too long.
    """
    if not counted < reported <= PLAUSIBLE_RATIOS[1] * counted:
        return input_budget
    return input_budget - (reported - counted) if 2 * counted < input_budget else input_budget * counted // reported


def turns_until(distance: float, pace: float) -> int | None:
    """Turns until a distance is covered: 0 if there is none, None if nothing moves."""
    if distance <= 0:
        return 0
    return ceil(distance / pace) if pace > 0 else None


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


PromptPiece: TypeAlias = tuple[Hashable, int]
"""One piece of a prompt: its identity (its bytes or a hash of them) and its tokens."""

DEFAULT_CACHE_MINIMUM = 1024
"""Minimum cacheable prefix assumed for models that do not state one; it is the most common value."""

CACHE_LIFETIMES: Mapping[str, float] = MappingProxyType({"anthropic": 300.0, "openai": 86_400.0})
"""Seconds of idle time after which a cache is cold, where the client's cache marks ask for no other lifetime. Providers
not listed promise none, so their caches are never certainly cold."""
_EXPIRING = 0.8
"""Share of its lifetime after which a cache is about to expire: it may be cold before the prompt arrives."""
_REQUESTED_LIFETIME = lazy_re(
    rb'"(?:cache_control|prompt_cache_breakpoint)"\s{0,9}:\s{0,9}\{[^{}]{0,200}?"ttl"\s{0,9}:\s{0,9}"(\d{1,4})([smh])"'
)

MIN_REMAINING_STEPS = 5
MAX_REMAINING_STEPS = 50


class Rates(Struct, frozen=True, kw_only=True):
    """Prices for a prompt of a certain length, in picodollars per token."""

    fresh: int
    """Input that is neither read from nor written to the cache."""
    read: int
    write: int
    output: int
    known: bool = True
    """False if the values are only relative to each other."""


RELATIVE_RATES = Rates(fresh=1_000_000, read=100_000, write=1_250_000, output=5_000_000, known=False)
"""For models without known prices: typical ratios, with fresh input as 1."""


def rates_for(card: ModelCard, tokens: int) -> Rates:
    """Prices for a prompt of this length.

    Without a cache-read price there is no discount; without a cache-write price writing costs as much as fresh input.
    Above `long_from`, prices that are not listed rise in proportion to the input price.
    """
    if card.input_price is None:
        return RELATIVE_RATES
    fresh = card.input_price
    read = fresh if card.cache_read_price is None else card.cache_read_price
    write = fresh if card.cache_write_price is None else card.cache_write_price
    output = fresh * RELATIVE_RATES.output // RELATIVE_RATES.fresh if card.output_price is None else card.output_price
    if card.long_from is None or tokens <= card.long_from:
        return Rates(fresh=fresh, read=read, write=write, output=output)
    long = fresh if card.long_input_price is None else card.long_input_price

    def scaled_price(price: int, listed: int | None) -> int:
        if listed is not None:
            return listed
        return price * long // fresh if fresh else long

    return Rates(
        fresh=long,
        read=scaled_price(read, card.long_cache_read_price),
        write=scaled_price(write, None),
        output=scaled_price(output, card.long_output_price),
    )


def call_price(card: ModelCard, prefix_tokens: int, fresh_tokens: int, output: int = 0) -> int:
    """Price of one call whose first `prefix_tokens` were sent before, unchanged.

    A prefix shorter than the provider's minimum is not read from the cache, and a prompt shorter than it is not
    written.
    """
    total = prefix_tokens + fresh_tokens
    minimum = DEFAULT_CACHE_MINIMUM if card.cache_minimum is None else card.cache_minimum
    prices = rates_for(card, total)
    output_price = output * prices.output
    if total < minimum:
        return total * prices.fresh + output_price
    read = prefix_tokens if prefix_tokens >= minimum else 0
    return read * prices.read + (total - read) * prices.write + output_price


def cached_tokens(card: ModelCard | None, prefix_tokens: int, fresh_tokens: int) -> tuple[int, int]:
    """Tokens of one call read from the cache and written to it, consistent with `call_price`.

    A price list without a cache-read price means no caching; without a cache-write price, writes are billed as fresh
    input and count as 0. If no prices are known, the tokens that could be read are returned.
    """
    total = prefix_tokens + fresh_tokens
    minimum = DEFAULT_CACHE_MINIMUM if card is None or card.cache_minimum is None else card.cache_minimum
    if total < minimum:
        return 0, 0
    reads = card is None or card.input_price is None or card.cache_read_price is not None
    read = prefix_tokens if reads and prefix_tokens >= minimum else 0
    writes = card is not None and card.input_price is not None and card.cache_write_price is not None
    return read, total - read if writes else 0


class CacheAge(Struct, frozen=True, kw_only=True):
    """How long the provider's cache of a session was not used, and how long it lives."""

    idle: float = 0.0
    """Seconds since the last call; infinite if there was none."""
    ttl: float | None = None
    """Lifetime of a cached prefix in seconds, if the client asked for one; else the provider's default."""

    def lifetime(self, provider: str) -> float:
        """Seconds of idle time after which the cache is cold."""
        return CACHE_LIFETIMES.get(provider, inf) if self.ttl is None else self.ttl

    def is_cold(self, provider: str) -> bool:
        """Whether the cache is certainly cold."""
        return self.idle >= self.lifetime(provider)

    def is_expiring(self, provider: str) -> bool:
        """Whether a call was made before and its cache is cold or about to expire."""
        return _EXPIRING * self.lifetime(provider) <= self.idle < inf


def requested_lifetime(payloads: Iterable[bytes]) -> float | None:
    """The longest cache lifetime, in seconds, that cache marks in these payloads ask for; None if none does."""
    seconds = {b"s": 1.0, b"m": 60.0, b"h": 3600.0}
    # Looked for in every prompt: tools and system text are long, and most clients name no lifetime.
    named = (payload for payload in payloads if b'"ttl"' in payload)
    asked = [match for payload in named for match in _REQUESTED_LIFETIME.findall(payload)]
    return max((int(number) * seconds[unit] for number, unit in asked), default=None)


class PromptEdit(Struct, frozen=True, kw_only=True):
    """An edit of the prompt before the next call, in tokens."""

    prefix: int
    """Tokens before the edit, unchanged."""
    removed: int
    suffix: int
    """Tokens after the edit, which must be written to the cache again."""
    steps: int
    """Model calls still expected, including the next one."""
    added: int = 0
    """Tokens added in place of the removed ones: markers, placeholders, a summary."""
    grows: int = 0
    """Tokens each call adds at the end. Determines how long a prompt stays below a price step."""
    output: int = 0
    """Output tokens of each call."""
    cache: CacheAge = field(default_factory=CacheAge)

    def __post_init__(self) -> None:
        if min(self.prefix, self.removed, self.suffix, self.steps, self.added, self.grows, self.output) < 0:
            raise ValueError("an edit has no negative amounts")


class CostVerdict(Struct, frozen=True, kw_only=True):
    """Financial effect of an edit over all calls still expected."""

    saves: int
    """Savings, had the prompt been short from the start."""
    costs: int
    """One-time cost of writing to the cache again."""
    known: bool = True
    """False if the model's prices are unknown and the amounts are relative."""

    @property
    def net(self) -> int:
        """Savings minus costs."""
        return self.saves - self.costs

    @property
    def pays(self) -> bool:
        """Whether the edit is cheaper than not editing."""
        return self.net > 0


def weigh_edit(card: ModelCard, edit: PromptEdit) -> CostVerdict:
    """Compute whether an edit pays off.

    With a warm cache and no price step in reach this compares removed × steps × read with suffix × (write − read). With
    a cold cache everything is written again in any case, and the edit is free. A prompt that falls below `long_from`
    saves the price difference as long as it stays there.
    """
    before = edit.prefix + edit.removed + edit.suffix
    after = edit.prefix + edit.added + edit.suffix
    is_cold = edit.cache.is_cold(card.provider)
    unedited = _expected_price(card, edit, before, 0 if is_cold else before)
    ideal = _expected_price(card, edit, after, 0 if is_cold else after)
    edited = _expected_price(card, edit, after, 0 if is_cold else edit.prefix)
    return CostVerdict(saves=unedited - ideal, costs=edited - ideal, known=card.input_price is not None)


def _expected_price(card: ModelCard, edit: PromptEdit, size: int, cached: int) -> int:
    """Price of the expected calls for a prompt of this size, of which `cached` tokens are cached at the first call."""
    total = 0
    for _ in range(edit.steps):
        total += call_price(card, cached, size - cached + edit.grows, edit.output)
        size += edit.grows
        cached = size
    return total


def remaining_steps(done: int) -> int:
    """Estimate how many calls follow after `done` of them.

    As many again, at least 5 and at most 50. The minimum is what short tool-using runs have left at any point. The
    maximum holds because the next relief comes before it, and savings do not outlive their prefix.
    """
    return min(max(done, MIN_REMAINING_STEPS), MAX_REMAINING_STEPS)


def stable_prefix(before: Iterable[PromptPiece], after: Iterable[PromptPiece]) -> int:
    """Tokens of a prompt that are an unchanged prefix of the next one.

    A piece that changed anywhere counts as changed from its beginning: providers look up cached prefixes at such
    boundaries.
    """
    tokens = 0
    for (was, cost), (now, _) in zip(before, after, strict=False):
        if was != now:
            break
        tokens += cost
    return tokens


def cached_share(before: Sequence[PromptPiece], after: Sequence[PromptPiece]) -> float:
    """Share of a prompt's tokens that are an unchanged prefix of the previous one. 0 for an empty prompt."""
    total = sum(tokens for _, tokens in after)
    return min(1.0, stable_prefix(before, after) / total) if total else 0.0
