"""Long tool results become summaries of themselves; the pair stays, and the whole can be read by its pointer."""

from __future__ import annotations

from dataclasses import dataclass, field

from recto.context.compaction.tool_output import digest
from recto.context.policies.trim import TrimResults
from recto.context.window.plan import Plan, PolicyView, Shrink, TextOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class SummariseResults:
    """Results above a size shrink to a share of it, oldest first, until enough is free."""

    above: int = 500
    """Tokens from which on a result is summarised."""
    share: float = 0.2
    """What a summary may have of the result's tokens."""
    most: int = 400
    """Tokens of one summary, however long the result."""
    chosen: TrimResults = field(default_factory=TrimResults)
    """Which results may shrink."""

    def __post_init__(self) -> None:
        if self.above < 1 or not 0 < self.share < 1 or self.most < 1:
            raise ValueError("compress: result_tokens must be at least 1, result_share between 0 and 1")

    @property
    def name(self) -> str:
        """As it is configured and recorded."""
        return "summarise_results"

    def plan(self, view: PolicyView, need: int) -> Plan:
        """Frees `need` tokens, or as much as the old results hold."""
        shrinks: list[Shrink] = []
        frees = 0
        for line in self.chosen.candidates(view):
            if frees >= max(need, self.chosen.clear_at_least):
                break
            size = view.tokens[line.seq]
            if size <= self.above:
                continue
            text = self.text(view, line.seq)
            tokens = view.cost_with(line.seq, text)
            if tokens < size / 2:
                shrinks.append(Shrink(seq=line.seq, text=text, tokens=tokens))
                frees += size - tokens
        if need <= 0 or not shrinks or frees < self.chosen.clear_at_least:
            return Plan(policy=self.name)
        reason = f"long tool results, oldest first: {len(shrinks)} of entries {shrinks[0].seq} to {shrinks[-1].seq}"
        order = TextOrder(style="results", most=self.most)
        return Plan(policy=self.name, shrinks=tuple(shrinks), frees=frees, reason=reason, writes=order)

    def text(self, view: PolicyView, seq: int) -> str:
        """What stands in place of a result: the most telling of it, and where it is whole."""
        result, size, pointer = view.result_of(seq), view.tokens[seq], view.pointer_of(seq)
        room = int(size * self.share) - view.count(framed("", size, pointer)) - _ENVELOPE
        return framed(digest(result, max(min(room, self.most), _LEAST), view.count), size, pointer)


_LEAST = 24
"""Tokens of the shortest summary that says anything."""
_ENVELOPE = 12
"""Tokens that a message has around its text."""


def framed(said: str, size: int, pointer: str) -> str:
    """A summary of a result with the line that says it is one."""
    return f"{said}\n[Shortened from {size} tokens; the whole is {pointer}]"
