"""The older an exchange, the less of it stays: key points, then one line, then a title; each from the raw text."""

from __future__ import annotations

from dataclasses import dataclass

from recto.context.compaction.levels import level_for
from recto.context.facts.types import Level
from recto.context.policies.prune import told
from recto.context.window.plan import Plan, PolicyView, TextOrder
from recto.context.window.units import Unit

COSTS: dict[Level, int] = {"full": 140, "key_points": 140, "one_line": 56, "title": 28}
"""What an exchange may cost at a level, with the entries it stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressive:
    """Exchanges leave, oldest first, and a few words of each stay."""

    key_points_turns: int = 5
    """Up to this age in turns its key points stay."""
    line_turns: int = 20
    """Up to this age one line stays; beyond it a title."""
    most_tokens: int = 3_000
    """What all of it may have, with what was written before."""

    def __post_init__(self) -> None:
        if not 0 <= self.key_points_turns <= self.line_turns or self.most_tokens < 1:
            raise ValueError("progressive: key_points_turns must not be above line_turns, most_tokens not below 1")

    @property
    def name(self) -> str:
        """As it is configured and recorded."""
        return "progressive"

    def plan(self, view: PolicyView, need: int) -> Plan:
        """Frees `need` tokens, or as much as pays: an exchange leaves where its words cost less than it does."""
        newest = max((unit.exchange for unit in (*view.eligible, *view.protected)), default=0)
        leaves: list[Unit] = []
        frees, written = 0, view.written
        seen: set[int] = set()
        for unit in view.eligible:
            if frees >= need:
                break
            level = level_for(newest - unit.exchange, self.key_points_turns, self.line_turns)
            words = 0 if unit.exchange in seen else COSTS[level]
            if view.cost(unit) <= 2 * words or written + words > self.most_tokens:
                continue
            seen.add(unit.exchange)
            leaves.append(unit)
            written += words
            frees += view.cost(unit) - words
        if not leaves:
            return Plan(policy=self.name)
        reason = f"older exchanges to key points, a line or a title: {told(tuple(leaves))}"
        order = TextOrder(style="levels", most=max(written, _LEAST))
        return Plan(policy=self.name, leaves=tuple(leaves), frees=frees, reason=reason, writes=order)


_LEAST = 100
"""Tokens that the frame of the text needs."""
