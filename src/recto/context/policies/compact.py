"""Everything but the newest messages leaves at once, and one text in sections stands in its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recto.context.policies.prune import told
from recto.context.window.plan import Plan, PolicyView, TextOrder
from recto.context.window.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact:
    """The older part of the conversation is compacted."""

    name: Literal["compact", "delegate", "new_window"] = "compact"
    """As it is configured and recorded: `delegate` lets a sub-agent write, `new_window` is the last resort."""
    keep_recent_tokens: int = 20_000
    """The newest messages that stay, whole units only, by what they cost."""
    summary_tokens: int = 3_000
    """What the text may have that stands in their place."""
    least_ratio: float = 2.0
    """How many times as much has to leave, or it does not pay."""
    handoff_tokens: int = 600
    """What a handoff may have that is shown for one turn afterwards."""
    focus: str = ""
    """What it should keep above all."""

    def __post_init__(self) -> None:
        if self.keep_recent_tokens < 0 or self.summary_tokens < 1 or self.least_ratio < 1:
            raise ValueError("compact: keep_recent_tokens must not be below 0, summary_tokens and least_ratio below 1")

    def plan(self, view: PolicyView, need: int) -> Plan:
        """Takes out all but the newest, however little is needed: a text is written once and not again and again."""
        leaves = self._older(view)
        frees = sum(view.cost(unit) for unit in leaves)
        # What is written replaces what was written before, so that is freed too.
        most = min(self.summary_tokens, int((frees + view.written) / self.least_ratio))
        if need <= 0 or not leaves or frees + view.written < self.least_ratio * most or most < _LEAST:
            return Plan(policy=self.name)
        style: Literal["delegated", "sections"] = "delegated" if self.name == "delegate" else "sections"
        return Plan(
            policy=self.name,
            leaves=leaves,
            frees=frees + view.written - most,
            reason=f"all but the newest {self.keep_recent_tokens:,} tokens: {told(leaves)}",
            writes=TextOrder(style=style, most=most, focus=self.focus, handoff=self.handoff_tokens),
        )

    def _older(self, view: PolicyView) -> tuple[Unit, ...]:
        """Units that may leave and are not among the newest."""
        free = {unit.first for unit in view.eligible}
        kept = 0
        older: list[Unit] = []
        for unit in sorted((*view.eligible, *view.protected), key=lambda unit: unit.last, reverse=True):
            kept += view.cost(unit)
            if kept > self.keep_recent_tokens and unit.first in free:
                older.append(unit)
        return tuple(sorted(older, key=lambda unit: unit.first))


_LEAST = 150
"""Tokens below which a text in sections says nothing."""
