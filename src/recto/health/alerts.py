"""When somebody should be told about a session, and what they should do: raised once, ended once, never a storm.

It goes by turns alone, and by the times they carry: there is no clock here, so the same turns raise the same alerts
whenever they are looked at. Who is told is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from recto.context.window.pressure import MIN_SPIKE_TOKENS
from recto.health.metrics import Alert, AlertName, Grade, TurnHealth


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRules:
    """From where on somebody should be told; see the settings `health.alerts`."""

    utilization: float = 0.9
    utilization_turns: int = 3
    evictions: float = 5.0
    eviction_turns: int = 5
    fidelity: float = 0.75
    ratio: float = 2.0
    bloat: float = 0.3
    burn: float = 3.0
    clear: float = 0.9
    """How far back within its threshold a value must be for its alert to end."""
    quiet_seconds: float = 300.0
    """The same alert is not raised again within this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """One alert in words: what is the matter, with its value as `x`, and what to do."""

    grade: Grade
    says: str
    action: str
    low: bool = False
    """Whether it is too little that alarms, and not too much."""


KINDS: Mapping[AlertName, _Kind] = {
    "utilization": _Kind(
        grade="critical",
        says="the last {turns} prompts filled at least {x:.0%} of their room",
        action="let more leave at once (window.floor_percent), choose a model with a larger window, or go on in a new "
        "one (recto resume)",
    ),
    "evictions": _Kind(
        grade="degradation",
        says="{x:.1f} messages left in each of the last turns, on average",
        action="let one relief last longer (lower window.floor_percent), or have what comes in shortened first "
        "(window.mode: zones)",
    ),
    "fidelity": _Kind(
        grade="critical",
        says="a summary holds only {x:.0%} of what it stands for",
        action="see what was lost (recto context detail), undo the decision (recto restore), and have a better model "
        "write (compress.model.model)",
        low=True,
    ),
    "ratio": _Kind(
        grade="degradation",
        says="compression makes text only {x:.1f} times shorter",
        action="ask for shorter texts (compress.summary_tokens, compress.result_tokens), or let old messages leave "
        "instead (window.mode: sliding_window)",
        low=True,
    ),
    "bloat": _Kind(
        grade="degradation",
        says="tool results are {x:.0%} of the prompt",
        action="have old results trimmed and summarised (window.mode: zones), and see which are the largest "
        "(recto context detail)",
    ),
    "burn": _Kind(
        grade="anomaly",
        says="a turn added {x:.1f} times what turns add",
        action="see what came in (recto context detail); have tools answer more briefly, or hand long readings to a "
        "sub-agent (session.delegate)",
    ),
}


@dataclass(frozen=True, slots=True)
class _Told:
    """An alert that was raised: when, at which turn, at which value, and whether it still holds."""

    ts: int
    turn: int
    value: float
    active: bool


class Alerting:
    """Follows the turns of one session."""

    def __init__(self, session: str, rules: AlertRules | None = None) -> None:
        self.session = session
        self.rules = rules or AlertRules()
        self._recent: tuple[tuple[float, int], ...] = ()
        """Utilization and evictions of the last turns."""
        self._told: dict[AlertName, _Told] = {}

    def after(self, turn: TurnHealth) -> list[Alert]:
        """What is raised and what is ended by one more turn."""
        most = max(self.rules.utilization_turns, self.rules.eviction_turns)
        self._recent = (*self._recent, (turn.utilization, turn.evicted))[-most:]
        found = []
        for name, value in self._values(turn).items():
            told = self._told.get(name)
            if value is None:
                continue
            if told is not None and told.active:
                if self._is_over(name, value):
                    self._told[name] = replace(told, active=False)
                    ended = _Told(ts=turn.ts, turn=turn.turn, value=value, active=False)
                    found.append(self._alert(name, ended, ended=True))
            elif self._is_bad(name, value) and not self._is_quiet(told, turn.ts):
                raised = _Told(ts=turn.ts, turn=turn.turn, value=value, active=True)
                self._told[name] = raised
                found.append(self._alert(name, raised))
        return found

    @property
    def active(self) -> tuple[Alert, ...]:
        """What was raised and is not over, as it was when it was raised."""
        return tuple(self._alert(name, told) for name, told in self._told.items() if told.active)

    def _values(self, turn: TurnHealth) -> dict[AlertName, float | None]:
        """What each alert goes by; None where a turn says nothing about it."""
        full = [share for share, _ in self._recent[-self.rules.utilization_turns :]]
        left = [count for _, count in self._recent[-self.rules.eviction_turns :]]
        return {
            "utilization": min(full) if len(full) == self.rules.utilization_turns else None,
            "evictions": sum(left) / len(left) if len(left) == self.rules.eviction_turns else None,
            "fidelity": turn.fidelity,
            "ratio": turn.ratio,
            "bloat": turn.bloat,
            "burn": _times(turn.burn, turn.burn_usual),
        }

    def _threshold(self, name: AlertName) -> float:
        threshold: float = getattr(self.rules, name)
        return threshold

    def _is_bad(self, name: AlertName, value: float) -> bool:
        threshold = self._threshold(name)
        if name == "evictions" and not self._is_sustained():
            return False
        return value < threshold if KINDS[name].low else value > threshold

    def _is_sustained(self) -> bool:
        """Whether something left in most of the last turns: one large relief in many is how a window works."""
        left = [count for _, count in self._recent[-self.rules.eviction_turns :]]
        return 2 * sum(map(bool, left)) > len(left)

    def _is_over(self, name: AlertName, value: float) -> bool:
        """Well back within the threshold; a share cannot be asked to be above 1."""
        threshold, clear = self._threshold(name), self.rules.clear
        if not KINDS[name].low:
            return value <= threshold * clear
        return value >= (min(threshold / clear, 1.0) if name == "fidelity" else threshold / clear)

    def _is_quiet(self, told: _Told | None, ts: int) -> bool:
        """Whether it was raised just now. Times may go backwards: then it is as if as much time had passed."""
        return told is not None and abs(ts - told.ts) < self.rules.quiet_seconds * 1e6

    def _alert(self, name: AlertName, told: _Told, *, ended: bool = False) -> Alert:
        kind, threshold = KINDS[name], self._threshold(name)
        says = kind.says.format(x=told.value, turns=self.rules.utilization_turns)
        return Alert(
            name=name,
            grade=kind.grade,
            session=self.session,
            turn=told.turn,
            ts=told.ts,
            value=told.value,
            threshold=threshold,
            says=f"over: now {says}" if ended else says,
            action="nothing" if ended else kind.action,
            ended=ended,
        )

    def carried(self) -> dict[str, Any]:
        """The state, for who goes on from here without the turns before."""
        told = {name: [one.ts, one.turn, one.value, one.active] for name, one in self._told.items()}
        return {"recent": [list(pair) for pair in self._recent], "told": told}

    def take_up(self, carried: Mapping[str, Any]) -> None:
        """Goes on from a state that was carried along."""
        self._recent = tuple((share, count) for share, count in carried["recent"])
        self._told = {name: _Told(*one) for name, one in carried["told"].items() if name in KINDS}

    def begin_anew(self) -> None:
        """Forgets everything: nobody knows what was before."""
        self._recent, self._told = (), {}


def _times(burn: int, usual: float | None) -> float | None:
    """How many times more than usual came in. Little is never much: three times a short chat alarms nobody."""
    if not usual:
        return None
    return round(burn / usual, 4) if burn > MIN_SPIKE_TOKENS else 0.0
