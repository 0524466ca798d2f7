"""How full the prompt is, how fast it fills, and when it will be too full.

A `Pressure` is a value: `turn` and `relieved` give a new one. It is asked with `read` at any moment, inside a turn too:
before each call of the model and after each tool result. It goes by token counts alone; what is in the prompt, what
to do about it and who must be told are not known here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Literal, NamedTuple, TypeAlias

Zone = Literal["green", "yellow", "orange", "red"]

TURNS = 5
"""How many turns velocity looks back over: enough to smooth one large file, few enough to notice a new pace."""
SPIKE = 3.0
"""A turn that gains more than this many times the baseline is a spike."""
SPIKE_TURNS = 3
"""Turns that must be known before there is a baseline: two are no habit."""
SPIKE_FLOOR = 1024
"""Tokens a turn must gain to be a spike at all. Three times a chat of 50-token turns alarms nobody."""
DISCREPANCY = 0.10
"""The share by which a report may differ from our count before it is told."""
PLAUSIBLE = (0.25, 4.0)
"""Reported over counted. Outside of this the report is of something else: cached tokens left out, calls added up."""

SMALL_WINDOW = 16_384
LARGE_WINDOW = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Where the zones begin, as shares of the room."""

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
        """What suits a window of this size.

        Up to 16 K, 40/65/80: one tool result of 1,500 tokens is a tenth of the room, so that a prompt can jump from
        75 % over the limit in one step. From 200 K on, 60/80/90: half full leaves 100 K tokens, many turns of work, and
        an early alarm would only break a warm cache. Red stays where it is: a large window also gets larger results.
        """
        if window <= SMALL_WINDOW:
            return cls(yellow=0.40, orange=0.65, red=0.80)
        if window >= LARGE_WINDOW:
            return cls(yellow=0.60, orange=0.80, red=0.90)
        return cls()

    def zone(self, utilization: float) -> Zone:
        """The zone of a prompt that fills this share of the room."""
        if utilization >= self.red:
            return "red"
        if utilization >= self.orange:
            return "orange"
        return "yellow" if utilization >= self.yellow else "green"


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How a count grew over the last turns. Growth only: what a decision took away is never seen as a loss."""

    level: int | None = None
    """Where this turn's growth is counted from; None before the first turn has ended. After a decision it is what the
    turn would have begun with had the decision been made before, which can be less than nothing."""
    gains: tuple[int, ...] = ()
    """What each of the last turns added, oldest first."""

    def turn(self, tokens: int) -> Growth:
        """With one more turn ended. The first only sets the level: a system prompt is no growth."""
        if self.level is None:
            return replace(self, level=tokens)
        return Growth(level=tokens, gains=(*self.gains, self.gain(tokens))[-TURNS:])

    def relieved(self, tokens: int, before: int | None = None) -> Growth:
        """With a decision that took the count from `before` to `tokens`; this turn's gain stays as it was.

        Where `before` is not known, this turn counts from the lower of its old level and `tokens`: too little growth
        rather than growth that never was. Undoing a decision is the same, upwards.
        """
        if self.level is None:
            return self
        level = min(self.level, tokens) if before is None else self.level - before + tokens
        return replace(self, level=level)

    def gain(self, tokens: int) -> int:
        """What this turn has added so far."""
        return 0 if self.level is None else max(0, tokens - self.level)

    @property
    def pace(self) -> float:
        """Tokens per turn, over the turns that have ended."""
        return sum(self.gains) / len(self.gains) if self.gains else 0.0

    def pace_with(self, tokens: int) -> float:
        """The same, with this turn counted once it has added more than the others: half a turn slows nothing."""
        gains = (*self.gains, self.gain(tokens))[-TURNS:]
        return max(self.pace, sum(gains) / len(gains))


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureReading:
    """What was measured at one moment."""

    tokens: int
    room: int
    """What a prompt may have: the window without the reserve."""
    utilization: float
    zone: Zone
    velocity: float
    """Tokens gained per turn. Never negative."""
    turns_until_red: int | None
    """None where the prompt does not grow, 0 where it is red."""
    spike: bool
    """Whether this turn gained far more than turns do."""
    baseline: float | None
    """What turns gained before this one; None while too few are known."""
    gain: int = 0
    """What this turn gained so far."""
    turn: int = 0
    """How many turns had ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """What is remembered between measurements."""

    room: int
    thresholds: Thresholds = Thresholds()
    growth: Growth = Growth()
    turns: int = 0
    """How many turns have ended."""

    def __post_init__(self) -> None:
        if self.room < 0:
            raise ValueError(f"the room of a prompt cannot be {self.room} tokens")

    def turn(self, tokens: int) -> Pressure:
        """A turn has ended with a prompt of this size."""
        return replace(self, growth=self.growth.turn(tokens), turns=self.turns + 1)

    def relieved(self, tokens: int, before: int | None = None) -> Pressure:
        """A decision brought the prompt down to `tokens`: neither a negative gain now nor a spike afterwards."""
        return replace(self, growth=self.growth.relieved(tokens, before))

    def read(self, tokens: int) -> PressureReading:
        """What a prompt of this size means now."""
        utilization = tokens / self.room if self.room else max(1.0, tokens)
        zone = self.thresholds.zone(utilization)
        velocity = self.growth.pace_with(tokens)
        gain = self.growth.gain(tokens)
        short = max(1.0, self.thresholds.red * self.room - tokens)  # what is not red is at least a token short of it
        known = len(self.growth.gains) >= SPIKE_TURNS
        return PressureReading(
            tokens=tokens,
            room=self.room,
            utilization=utilization,
            zone=zone,
            velocity=velocity,
            turns_until_red=0 if zone == "red" else turns_until(short, velocity),
            spike=known and gain > max(SPIKE_FLOOR, SPIKE * self.growth.pace),
            baseline=self.growth.pace if known else None,
            gain=gain,
            turn=self.turns,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneChanged:
    """The prompt went from one zone to another, in either direction."""

    before: Zone
    after: Zone


@dataclass(frozen=True, slots=True, kw_only=True)
class VelocitySpike:
    """A turn gained far more than turns do. Told once per turn."""

    gain: int
    baseline: float


Change: TypeAlias = ZoneChanged | VelocitySpike


def changes(before: PressureReading | None, after: PressureReading) -> tuple[Change, ...]:
    """What is worth telling between two readings. Before the first, a prompt is taken to be green."""
    found: list[Change] = []
    zone = "green" if before is None else before.zone
    if zone != after.zone:
        found.append(ZoneChanged(before=zone, after=after.zone))
    is_told = before is not None and before.spike and before.turn == after.turn
    if after.spike and not is_told:
        found.append(VelocitySpike(gain=after.gain, baseline=after.baseline or 0.0))
    return tuple(found)


class PromptSize(NamedTuple):
    """A prompt's size, from our count and the provider's report together."""

    tokens: int
    """What to go by."""
    discrepancy: float | None
    """How far the report was off our count of the same prompt, where it is worth telling: 0.2 is 20 % more."""


def measured(counted: int, reported: int | None, *, added: int = 0, exact: bool = True) -> PromptSize:
    """The size to go by of a prompt of `counted` tokens, of which `added` came after the provider's report.

    The report is preferred for what the provider saw, our count is used for what came since. A count by the model's own
    tokenizer (`exact`) is never gone below. A report that cannot be of this prompt is told and not used.
    """
    seen = counted - added
    if reported is None or reported <= 0 or seen <= 0:
        return PromptSize(counted, None)
    off = (reported - seen) / seen
    told = off if abs(off) > DISCREPANCY else None
    if not PLAUSIBLE[0] <= reported / seen <= PLAUSIBLE[1]:
        return PromptSize(counted, told)
    tokens = reported + added
    return PromptSize(max(counted, tokens) if exact else tokens, told)


def turns_until(distance: float, pace: float) -> int | None:
    """After how many turns a distance is covered: 0 where there is none left, None where nothing moves."""
    if distance <= 0:
        return 0
    return ceil(distance / pace) if pace > 0 else None
