"""Progressive compaction: the older an exchange, the less of it stays: key points, one line, then a title."""

from __future__ import annotations

from dataclasses import dataclass

from recto.context.compaction.levels import level_for
from recto.context.facts.types import Level
from recto.context.policies.prune import describe_units
from recto.context.window.plan import Plan, PolicyView, TextRequest
from recto.context.window.units import Unit

LEVEL_COSTS: dict[Level, int] = {"full": 140, "key_points": 140, "one_line": 56, "title": 28}
"""Maximum tokens of an exchange at a level, including its source entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progressive:
    """Evict exchanges, oldest first, and keep a short text of each, written from the raw messages."""

    key_points_turns: int = 5
    """Up to this age in turns, key points are kept."""
    line_turns: int = 20
    """Up to this age, one line is kept; beyond it, a title."""
    most_tokens: int = 3_000
    """Maximum tokens of all texts, including those written before."""

    def __post_init__(self) -> None:
        if not 0 <= self.key_points_turns <= self.line_turns or self.most_tokens < 1:
            raise ValueError("progressive: key_points_turns must not be above line_turns, most_tokens not below 1")

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        return "progressive"

    def plan(self, view: PolicyView, need: int) -> Plan:
        """Free `need` tokens, or as many as pay off: an exchange is evicted if its text costs less than it does."""
        newest = max((unit.exchange for unit in (*view.eligible, *view.protected)), default=0)
        evicted: list[Unit] = []
        frees, written = 0, view.written
        seen: set[int] = set()
        for unit in view.eligible:
            if frees >= need:
                break
            level = level_for(newest - unit.exchange, self.key_points_turns, self.line_turns)
            text_tokens = 0 if unit.exchange in seen else LEVEL_COSTS[level]
            if view.cost(unit) <= 2 * text_tokens or written + text_tokens > self.most_tokens:
                continue
            seen.add(unit.exchange)
            evicted.append(unit)
            written += text_tokens
            frees += view.cost(unit) - text_tokens
        if not evicted:
            return Plan(policy=self.name)
        reason = f"older exchanges to key points, a line or a title: {describe_units(tuple(evicted))}"
        request = TextRequest(style="levels", max_tokens=max(written, _FRAME_TOKENS))
        return Plan(policy=self.name, evicts=tuple(evicted), frees=frees, reason=reason, writes=request)


_FRAME_TOKENS = 100
"""Tokens of the text's frame."""
