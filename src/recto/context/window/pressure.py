"""Pressure: how full the prompt is, how fast it fills, and when it will be too full.

`Pressure` is immutable: `turn` and `relieved` return a new value. `read` may be called at any moment, also within a
turn, before each model call and after each tool result. It works on token counts alone and knows nothing of the
prompt's content, relief or alerts.
"""

from __future__ import annotations

from math import ceil
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from recto.context.window import MAX_VELOCITY_TURNS

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
