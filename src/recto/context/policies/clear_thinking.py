"""Leave the thinking of older turns out of the prompt; everything else in those messages stays."""

from __future__ import annotations

from dataclasses import dataclass

from recto.context.window.plan import ClearedThinking, Plan, PolicyView


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearThinking:
    """Clear thinking that is older than some user turns, all of it at once.

    It runs first in a relief and never by itself: clearing turn by turn would rewrite the provider's cache at every
    turn, while a relief rewrites it anyway. Between two reliefs thinking stays, and costs what cached tokens cost.
    """

    turns: int = 2
    """User turns whose thinking stays, the current one included."""

    def __post_init__(self) -> None:
        if self.turns < 1:
            raise ValueError("window.thinking_turns must be at least 1 to clear any thinking")

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        return "clear_thinking"

    def plan(self, view: PolicyView, need: int) -> Plan:
        """Clear all thinking that may be cleared, whatever `need` is, unless nothing is needed."""
        found = view.thinking(self.turns) if need > 0 else {}
        clears = tuple(
            ClearedThinking(seq=seq, tokens=tokens)
            for seq, tokens in sorted(found.items())
            if tokens < view.tokens.get(seq, 0)
        )
        if not clears:
            return Plan(policy=self.name)
        frees = sum(view.tokens[cleared.seq] - cleared.tokens for cleared in clears)
        reason = (
            f"thinking older than {self.turns} turns: {len(clears)} messages of entries {clears[0].seq} "
            f"to {clears[-1].seq}"
        )
        return Plan(policy=self.name, clears=clears, frees=frees, reason=reason)
