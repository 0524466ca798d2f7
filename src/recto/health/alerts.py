"""Alert rules: when a session needs attention, and what to do. Each alert is raised once and ended once.

Alerts depend only on turns and their timestamps, not on a clock, so the same turns always raise the same alerts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from recto.context.window.budget import MIN_SPIKE_TOKENS
from recto.health.metrics import Alert, AlertName, Grade, TurnHealth


class AlertRules(Struct, frozen=True, kw_only=True):
    """Alert thresholds; see the settings `health.alerts`."""

    utilization: float = 0.9
    utilization_turns: int = 3
    evictions: float = 5.0
    eviction_turns: int = 5
    fidelity: float = 0.75
    ratio: float = 2.0
    bloat: float = 0.3
    burn: float = 3.0
    loop: int = 3
    clear: float = 0.9
    """An alert ends when its value is back within this share of the threshold."""
    quiet_seconds: float = 300.0
    """The same alert is not raised again within this time."""


class _AlertKind(Struct, frozen=True, kw_only=True):
    """The texts of one alert: the problem, with its value as `x`, and the remedy."""

    grade: Grade
    says: str
    action: str
    low: bool = False
    """Whether low values raise the alert, not high ones."""


ALERT_KINDS: Mapping[AlertName, _AlertKind] = {
    "utilization": _AlertKind(
        grade="critical",
        says="the last {turns} prompts filled at least {x:.0%} of their room",
        action="let more leave at once (window.floor_percent), choose a model with a larger window, or go on in a new "
        "one (recto resume)",
    ),
    "evictions": _AlertKind(
        grade="degradation",
        says="{x:.1f} messages were evicted in each of the last turns, on average",
        action="let one relief last longer (lower window.floor_percent), or have what comes in shortened first "
        "(window.mode: zones)",
    ),
    "fidelity": _AlertKind(
        grade="critical",
        says="a summary holds only {x:.0%} of what it replaces",
        action="see what was lost (recto context detail), undo the decision (recto restore), and have a better model "
        "write (compress.model.model)",
        low=True,
    ),
    "ratio": _AlertKind(
        grade="degradation",
        says="compression makes text only {x:.1f} times shorter",
        action="ask for shorter texts (compress.summary_tokens, compress.result_tokens), or let old messages leave "
        "instead (window.mode: sliding_window)",
        low=True,
    ),
    "bloat": _AlertKind(
        grade="degradation",
        says="tool results take {x:.0%} of the input budget",
        action="have old results trimmed and summarised (window.mode: zones), and see which are the largest "
        "(recto context detail)",
    ),
    "loop": _AlertKind(
        grade="anomaly",
        says="the same tool calls gave the same results {x:.0f} times in a row",
        action="see the calls (recto context detail); say what to do instead in a message, or stop the agent; raise "
        "health.alerts.loop where a tool is polled",
    ),
    "burn": _AlertKind(
        grade="anomaly",
        says="a turn added {x:.1f} times what turns add",
        action="see what came in (recto context detail); have tools answer more briefly, or hand long readings to a "
        "sub-agent (session.delegate)",
    ),
}


class _RaisedAlert(Struct, frozen=True):
    """When an alert was raised, at which turn and value, and whether it is still active."""

    ts: int
    turn: int
    value: float
    active: bool


class AlertTracker:
    """Raises and ends the alerts of one session, turn by turn."""

    def __init__(self, session: str, rules: AlertRules | None = None) -> None:
        self.session = session
        self.rules = rules or AlertRules()
        self._recent: tuple[tuple[float, int], ...] = ()
        """Utilization and evictions of the last turns."""
        self._raised: dict[AlertName, _RaisedAlert] = {}

    def update(self, turn: TurnHealth) -> list[Alert]:
        """Return the alerts that one more turn raises or ends."""
        window = max(self.rules.utilization_turns, self.rules.eviction_turns)
        self._recent = (*self._recent, (turn.utilization, turn.evicted))[-window:]
        alerts = []
        for name, value in self._values(turn).items():
            previous = self._raised.get(name)
            if value is None:
                continue
            if previous is not None and previous.active:
                if self._is_over(name, value):
                    self._raised[name] = replace(previous, active=False)
                    ended = _RaisedAlert(ts=turn.ts, turn=turn.turn, value=value, active=False)
                    alerts.append(self._alert(name, ended, ended=True))
            elif self._is_bad(name, value) and not self._is_quiet(previous, turn.ts):
                current = _RaisedAlert(ts=turn.ts, turn=turn.turn, value=value, active=True)
                self._raised[name] = current
                alerts.append(self._alert(name, current))
        return alerts

    @property
    def active(self) -> tuple[Alert, ...]:
        """Alerts that were raised and have not ended, as of when they were raised."""
        return tuple(self._alert(name, raised) for name, raised in self._raised.items() if raised.active)

    def _values(self, turn: TurnHealth) -> dict[AlertName, float | None]:
        """The value behind each alert; None where the turn has none."""
        utilizations = [share for share, _ in self._recent[-self.rules.utilization_turns :]]
        evictions = [count for _, count in self._recent[-self.rules.eviction_turns :]]
        return {
            "utilization": min(utilizations) if len(utilizations) == self.rules.utilization_turns else None,
            "evictions": sum(evictions) / len(evictions) if len(evictions) == self.rules.eviction_turns else None,
            "fidelity": turn.fidelity,
            "ratio": turn.ratio,
            "bloat": turn.bloat,
            "burn": _burn_ratio(turn.burn, turn.burn_usual),
            "loop": turn.loop,
        }

    def _threshold(self, name: AlertName) -> float:
        threshold: float = getattr(self.rules, name)
        return threshold

    def _is_bad(self, name: AlertName, value: float) -> bool:
        threshold = self._threshold(name)
        if name == "evictions" and not self._is_sustained():
            return False
        return value < threshold if ALERT_KINDS[name].low else value > threshold

    def _is_sustained(self) -> bool:
        """Whether messages were evicted in most of the last turns. A single large relief among many turns is normal."""
        evictions = [count for _, count in self._recent[-self.rules.eviction_turns :]]
        return 2 * sum(map(bool, evictions)) > len(evictions)

    def _is_over(self, name: AlertName, value: float) -> bool:
        """Whether the value is clearly back within the threshold; a share cannot exceed 1."""
        threshold, clear = self._threshold(name), self.rules.clear
        if not ALERT_KINDS[name].low:
            return value <= threshold * clear
        return value >= (min(threshold / clear, 1.0) if name == "fidelity" else threshold / clear)

    def _is_quiet(self, previous: _RaisedAlert | None, ts: int) -> bool:
        """Whether the alert was raised recently. Timestamps may go backwards, hence the absolute difference."""
        return previous is not None and abs(ts - previous.ts) < self.rules.quiet_seconds * 1e6

    def _alert(self, name: AlertName, raised: _RaisedAlert, *, ended: bool = False) -> Alert:
        kind, threshold = ALERT_KINDS[name], self._threshold(name)
        text = kind.says.format(x=raised.value, turns=self.rules.utilization_turns)
        return Alert(
            name=name,
            grade=kind.grade,
            session=self.session,
            turn=raised.turn,
            ts=raised.ts,
            value=raised.value,
            threshold=threshold,
            says=f"over: now {text}" if ended else text,
            action="nothing" if ended else kind.action,
            ended=ended,
        )

    def to_state(self) -> dict[str, Any]:
        """Serialise the state, so that tracking can continue without earlier turns."""
        raised = {name: [alert.ts, alert.turn, alert.value, alert.active] for name, alert in self._raised.items()}
        return {"recent": [list(pair) for pair in self._recent], "told": raised}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore a serialised state."""
        self._recent = tuple((share, count) for share, count in state["recent"])
        self._raised = {name: _RaisedAlert(*values) for name, values in state["told"].items() if name in ALERT_KINDS}

    def reset(self) -> None:
        """Forget everything: the state before this point is unknown."""
        self._recent, self._raised = (), {}


def _burn_ratio(burn: int, usual: float | None) -> float | None:
    """How many times the usual growth a turn added. Small absolute growth never counts."""
    if not usual:
        return None
    return round(burn / usual, 4) if burn > MIN_SPIKE_TOKENS else 0.0
