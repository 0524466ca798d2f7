"""Calibration: learn from reported usage how far a token estimate is off.

`Calibration` is immutable: `observe` returns a new one. It errs on the high side: it uses the highest of the recent
ratios, does not lower estimates on thin evidence, and never lowers an exact count.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

MAX_RATIOS = 20
"""Number of reports remembered."""
MIN_REPORTS_TO_LOWER = 3
"""Reports needed before an estimate may be lowered."""
MARGIN = 1.01
"""Margin above the highest ratio seen: the next prompt will differ from the last ones."""


class Calibration(Struct, frozen=True, kw_only=True):
    """What recent reports say about one counter on one model."""

    exact: bool = False
    """Whether the counter is the model's own tokenizer: its counts may be raised but not lowered."""
    ratios: tuple[float, ...] = ()
    """Reported over counted tokens, oldest first."""

    def observe(self, counted: int, reported: int) -> Calibration:
        """Add a report; `counted` is the raw count of the prompt. Implausible reports are ignored."""
        if counted <= 0 or reported <= 0 or not 0.25 <= reported / counted <= 4:
            return self
        return replace(self, ratios=(*self.ratios, reported / counted)[-MAX_RATIOS:])

    @property
    def factor(self) -> float:
        """The factor for raw counts."""
        if not self.ratios:
            return 1.0
        highest = max(self.ratios)
        if highest > 1:
            return highest * MARGIN
        if self.exact or len(self.ratios) < MIN_REPORTS_TO_LOWER:
            return 1.0
        return min(1.0, highest * MARGIN)

    def apply(self, counted: int) -> int:
        """The calibrated count."""
        return ceil(counted * self.factor)

    @property
    def estimate_error(self) -> float | None:
        """Mean error of raw counts: 0.3 is 30 % too high, -0.1 is 10 % too low. None before the first report."""
        if not self.ratios:
            return None
        return sum(1 / ratio - 1 for ratio in self.ratios) / len(self.ratios)


def prompt_tokens(usage: Mapping[str, object]) -> int | None:
    """All prompt tokens in a usage object, including cached ones; None if it reports none.

    Reads OpenAI chat (`prompt_tokens`), OpenAI Responses (`input_tokens`), Anthropic (`input_tokens`, without tokens
    read from or written to the cache) and Gemini (`prompt_token_count`).
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
