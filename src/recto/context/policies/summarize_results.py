"""Replace long tool results by summaries; the call stays, and the full result can be read by its pointer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from recto.context.compaction.tool_output import digest_result
from recto.context.policies.trim import TrimResults
from recto.context.window.plan import Plan, PolicyView, ShortenedResult, TextRequest

ON_ARRIVAL = "on_arrival"
"""The policy's name in decisions about results that have just arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarizeResults:
    """Shorten results above a size to a share of it, oldest first, until enough is free."""

    above: int = 500
    """Tokens above which a result is summarized."""
    share: float = 0.2
    """Share of the result's tokens that a summary may have."""
    most: int = 400
    """Maximum tokens of one summary."""
    chosen: TrimResults = field(default_factory=TrimResults)
    """Selects the results that may be shortened."""

    def __post_init__(self) -> None:
        if self.above < 1 or not 0 < self.share < 1 or self.most < 1:
            raise ValueError("compress: result_tokens must be at least 1, result_share between 0 and 1")

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        return "summarise_results"

    def plan(self, view: PolicyView, need: int) -> Plan:
        """Free `need` tokens, or as many as the old results contain."""
        shortened: list[ShortenedResult] = []
        frees = 0
        for message in self.chosen.candidates(view):
            if frees >= max(need, self.chosen.clear_at_least):
                break
            size = view.tokens[message.seq]
            if size <= self.above:
                continue
            text = self.text(view, message.seq)
            tokens = view.cost_with(message.seq, text)
            if tokens < size / 2:
                shortened.append(ShortenedResult(seq=message.seq, text=text, tokens=tokens))
                frees += size - tokens
        if need <= 0 or not shortened or frees < self.chosen.clear_at_least:
            return Plan(policy=self.name)
        reason = (
            f"long tool results, oldest first: {len(shortened)} of entries {shortened[0].seq} to {shortened[-1].seq}"
        )
        request = TextRequest(style="results", max_tokens=self.most)
        return Plan(policy=self.name, shortens=tuple(shortened), frees=frees, reason=reason, writes=request)

    def plan_arrivals(self, view: PolicyView, arrived: Collection[int]) -> Plan:
        """Shorten results that the model has not seen yet, if they are above the size.

        By rule alone, so that no turn waits for a model. Pinned and marked results and those of excluded tools stay
        whole, as do pictures and whatever else a text cannot replace.
        """
        results = [
            (unit, message)
            for unit in (*view.eligible, *view.recent, *view.protected)
            for message in unit.messages
            if message.seq in arrived and message.has_result and view.tokens[message.seq] > self.above
        ]
        shortened: list[ShortenedResult] = []
        for unit, message in results:
            if message.marked or message.seq in view.shortened or self.chosen.is_excluded(unit, message):
                continue
            text = self.text(view, message.seq)
            tokens = view.cost_with(message.seq, text)
            if tokens < view.tokens[message.seq] / 2:
                shortened.append(ShortenedResult(seq=message.seq, text=text, tokens=tokens))
        frees = sum(view.tokens[result.seq] - result.tokens for result in shortened)
        reason = f"tool results above {self.above:,} tokens are summarised on arrival"
        return Plan(policy=ON_ARRIVAL, shortens=tuple(shortened), frees=frees, reason=reason)

    def text(self, view: PolicyView, seq: int) -> str:
        """The text shown in place of a result: its most informative lines and its pointer."""
        result, size, pointer = view.result_of(seq), view.tokens[seq], view.pointer_of(seq)
        available = int(size * self.share) - view.count(frame_summary("", size, pointer)) - _ENVELOPE_TOKENS
        return frame_summary(
            digest_result(result, max(min(available, self.most), _MIN_SUMMARY_TOKENS), view.count), size, pointer
        )


_MIN_SUMMARY_TOKENS = 24
"""Tokens of the shortest useful summary."""
_ENVELOPE_TOKENS = 12
"""Tokens of a message around its text."""


def frame_summary(text: str, size: int, pointer: str) -> str:
    """Append the line that marks a text as a shortened result."""
    return f"{text}\n[Shortened from {size} tokens; the whole is {pointer}]"
