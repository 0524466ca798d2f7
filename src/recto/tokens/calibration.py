"""Learns from the usage providers report how far an estimate is off.

A `Calibration` is a value: `observe` gives a new one. It stays on the high side: it goes by the highest of the recent
ratios, lowers nothing on thin evidence, and never takes an exact counter below its own count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

WINDOW = 20
"""How many reports are remembered."""
ENOUGH = 3
"""Reports needed before an estimate may be lowered."""
MARGIN = 1.01
"""Kept above the highest ratio seen: the next prompt will not be quite like the last ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What the last reports say about one counter on one model."""

    exact: bool = False
    """Whether the counter is the model's own tokenizer: then it may be raised but not lowered."""
    ratios: tuple[float, ...] = ()
    """Reported over counted, oldest first."""

    def observe(self, counted: int, reported: int) -> Calibration:
        """With one more report: `counted` is the raw count of the prompt. What cannot be true is ignored."""
        if counted <= 0 or reported <= 0 or not 0.25 <= reported / counted <= 4:
            return self
        return replace(self, ratios=(*self.ratios, reported / counted)[-WINDOW:])

    @property
    def factor(self) -> float:
        """What a raw count is multiplied by."""
        if not self.ratios:
            return 1.0
        highest = max(self.ratios)
        if highest > 1:
            return highest * MARGIN
        if self.exact or len(self.ratios) < ENOUGH:
            return 1.0
        return min(1.0, highest * MARGIN)

    def apply(self, counted: int) -> int:
        """The count to go by."""
        return ceil(counted * self.factor)

    @property
    def estimate_error(self) -> float | None:
        """How far raw counts were off, on average: 0.3 is 30 % too high, -0.1 is 10 % too low. None before a report."""
        if not self.ratios:
            return None
        return sum(1 / ratio - 1 for ratio in self.ratios) / len(self.ratios)


def prompt_tokens(usage: Mapping[str, object]) -> int | None:
    """All prompt tokens a usage object reports, cached ones included; None where it reports none.

    Reads OpenAI chat (`prompt_tokens`), OpenAI Responses (`input_tokens`), Anthropic (`input_tokens`, which leaves out
    what was read from or written to the cache) and Gemini (`prompt_token_count`).
    """
    for key in ("prompt_tokens", "prompt_token_count", "promptTokenCount"):
        total = _tokens(usage.get(key))
        if total is not None:
            tools = _tokens(usage.get("tool_use_prompt_token_count", usage.get("toolUsePromptTokenCount")))
            return total + (tools or 0)
    fresh = _tokens(usage.get("input_tokens"))
    if fresh is None:
        return None
    written = _tokens(usage.get("cache_creation_input_tokens")) or 0
    read = _tokens(usage.get("cache_read_input_tokens")) or 0
    return fresh + written + read


def _tokens(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
