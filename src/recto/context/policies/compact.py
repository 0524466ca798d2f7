"""Compaction: evict everything but the newest messages at once and replace it by one text in sections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recto.context.policies.prune import describe_units
from recto.context.window.plan import Plan, PolicyView, TextRequest
from recto.context.window.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact:
    """Compact the older part of the conversation."""

    name: Literal["compact", "delegate", "new_window"] = "compact"
    """Name in settings and decisions: `delegate` has a sub-agent write, `new_window` is the last resort."""
    keep_recent_tokens: int = 20_000
    """Tokens of the newest messages that stay; whole units only."""
    summary_tokens: int = 3_000
    """Maximum tokens of the text that replaces the evicted messages."""
    least_ratio: float = 2.0
    """Minimum ratio of evicted to written tokens; below it compaction does not pay off."""
    handoff_tokens: int = 600
    """Maximum tokens of a handoff that is shown for one turn afterwards."""
    focus: str = ""
    """What the text must keep above all."""

    def __post_init__(self) -> None:
        if self.keep_recent_tokens < 0 or self.summary_tokens < 1 or self.least_ratio < 1:
            raise ValueError("compact: keep_recent_tokens must not be below 0, summary_tokens and least_ratio below 1")

    def plan(self, view: PolicyView, need: int) -> Plan:
        """Evict all but the newest units, however little is needed, so that a text is written once and not
        repeatedly."""
        evicted = self._older(view)
        frees = sum(view.cost(unit) for unit in evicted)
        # The new text replaces the previous one, whose tokens are freed too.
        max_tokens = min(self.summary_tokens, int((frees + view.written) / self.least_ratio))
        if (
            need <= 0
            or not evicted
            or frees + view.written < self.least_ratio * max_tokens
            or max_tokens < _MIN_SUMMARY_TOKENS
        ):
            return Plan(policy=self.name)
        style: Literal["delegated", "sections"] = "delegated" if self.name == "delegate" else "sections"
        return Plan(
            policy=self.name,
            evicts=evicted,
            frees=frees + view.written - max_tokens,
            reason=f"all but the newest {self.keep_recent_tokens:,} tokens: {describe_units(evicted)}",
            writes=TextRequest(
                style=style, max_tokens=max_tokens, focus=self.focus, handoff_tokens=self.handoff_tokens
            ),
        )

    def _older(self, view: PolicyView) -> tuple[Unit, ...]:
        """Evictable units that are not among the newest."""
        evictable = {unit.first for unit in view.eligible}
        newer_tokens = 0
        older: list[Unit] = []
        for unit in sorted((*view.eligible, *view.protected), key=lambda unit: unit.last, reverse=True):
            newer_tokens += view.cost(unit)
            if newer_tokens > self.keep_recent_tokens and unit.first in evictable:
                older.append(unit)
        return tuple(sorted(older, key=lambda unit: unit.first))


_MIN_SUMMARY_TOKENS = 150
"""Below this many tokens a text in sections carries no information."""
