"""Trends and forecast: how the metrics of a session move, and how many turns remain until its window is full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum

from msgspec import Struct
from msgspec.structs import replace

from recto.context.window.budget import VELOCITY_TURNS, PressureReading, Thresholds, turns_until
from recto.health.metrics import TURN_METRICS, Alert, Direction, TurnHealth

STEADY = 0.05
"""Relative changes smaller than this count as steady."""
MEASURES: Mapping[str, Direction] = {metric.field: metric.worse for metric in TURN_METRICS if metric.worse}
"""The metrics that are tracked, and the direction in which each gets worse."""


class Trend(Struct, frozen=True, kw_only=True):
    """How one metric moves over the turns examined."""

    name: str
    values: tuple[float | None, ...]
    """One per turn, oldest first; None where a turn has none."""
    now: float | None
    """The newest known value."""
    delta: float | None
    """Mean of the newer half minus mean of the older half; None if too few values are known."""
    direction: Direction
    worse: bool
    """Whether that is the wrong direction."""


class Forecast(Struct, frozen=True, kw_only=True):
    """When the window is full at the current pace."""

    pace: float
    """Average tokens added per turn."""
    until_red: int | None
    """Turns until the red zone; 0 if already red, None if the prompt does not grow."""
    until_full: int | None
    """Turns until the prompt would not fit without relief."""

    @classmethod
    def of(cls, reading: PressureReading) -> Forecast:
        """The forecast for a prompt, at the pace of its reading."""
        return cls(
            pace=reading.velocity,
            until_red=reading.turns_until_red,
            until_full=turns_until(reading.room - reading.tokens, reading.velocity),
        )

    @property
    def says(self) -> str:
        """The forecast as a sentence."""
        if self.until_red is None or self.until_full is None:
            return "it does not grow"
        pace, full = f"{self.pace:,.0f} tokens a turn", _turns(self.until_full)
        if not self.until_red:
            return f"{pace}; it is red, and needs relief in {full}"
        return f"{pace}; red in {_turns(self.until_red)}, full in {full} unless relieved"


class HealthReport(Struct, frozen=True, kw_only=True):
    """How a session is, and where it is heading."""

    session: str
    turns: tuple[TurnHealth, ...]
    """The last turns that were measured, oldest first; empty where none was."""
    trends: tuple[Trend, ...]
    forecast: Forecast | None
    alerts: tuple[Alert, ...]
    """Active alerts."""
    reading: PressureReading | None = None
    """How full the prompt is now, as every screen shows it; None where only the stored turns were read."""
    sinks_failed: int = 0
    """How often a health sink failed since the session was opened."""

    def now(self, reading: PressureReading) -> HealthReport:
        """The report with what every screen shows of the prompt as it is now, and the forecast from there."""
        return replace(self, reading=reading, forecast=self.forecast and Forecast.of(reading))

    @property
    def last(self) -> TurnHealth | None:
        """The newest turn."""
        return self.turns[-1] if self.turns else None

    @property
    def critical(self) -> bool:
        """Whether a critical alert is active."""
        return any(alert.grade == "critical" for alert in self.alerts)


def compute_trends(turns: Sequence[TurnHealth]) -> tuple[Trend, ...]:
    """Compute the trend of every metric over these turns."""
    return tuple(_trend(name, [getattr(turn, name) for turn in turns]) for name in MEASURES)


def _trend(name: str, values: Sequence[float | None]) -> Trend:
    known = [float(value) for value in values if value is not None]
    half = len(known) // 2
    delta: float | None = None
    direction: Direction = "steady"
    if half:
        older, newer = (fsum(part) / len(part) for part in (known[:half], known[half:]))
        delta = newer - older
        if abs(delta) > STEADY * max(abs(older), abs(newer)):
            direction = "rising" if delta > 0 else "falling"
    return Trend(
        name=name,
        values=tuple(values),
        now=known[-1] if known else None,
        delta=delta,
        direction=direction,
        worse=direction == MEASURES[name],
    )


def compute_forecast(turns: Sequence[TurnHealth], red: float | None = None) -> Forecast | None:
    """Forecast how many turns remain until the prompt is red and until it is full."""
    if not turns:
        return None
    last = turns[-1]
    burns = [turn.burn for turn in turns[-VELOCITY_TURNS:] if turn.turn > 1]  # the initial prompt is not growth
    pace = sum(burns) / len(burns) if burns else 0.0
    red = Thresholds.for_window(last.room).red if red is None else red
    return Forecast(
        pace=pace,
        until_red=turns_until(red * last.room - last.tokens, pace),
        until_full=turns_until(last.room - last.tokens, pace),
    )


def make_report(
    session: str, turns: Sequence[TurnHealth], alerts: Sequence[Alert], *, red: float | None, sinks_failed: int = 0
) -> HealthReport:
    """Build the health report of these turns."""
    return HealthReport(
        session=session,
        turns=tuple(turns),
        trends=compute_trends(turns) if turns else (),
        forecast=compute_forecast(turns, red),
        alerts=tuple(alerts),
        sinks_failed=sinks_failed,
    )


def _turns(count: int) -> str:
    return f"{count:,} turn" if count == 1 else f"{count:,} turns"
