"""Model cards: a model's limits, tokenizer and prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType

from recto.text.lazy_re import lazy_re

_CLAUDE = lazy_re(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d+))?")

UNKNOWN_WINDOW = 8192
"""Window assumed for unknown models: no chat model in service has less, and a prompt that is too short is answered
while one that is too long is rejected."""
UNKNOWN_OUTPUT = 4096
"""Maximum output assumed for unknown models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """One model. Prices are whole picodollars per token: 2,500,000 is 2.50 dollars per million tokens."""

    name: str
    provider: str = ""
    window: int
    """Tokens of prompt and output together."""
    max_input: int
    """Maximum prompt tokens, even with a short output. Never more than the window."""
    max_output: int
    """Maximum output tokens."""
    tokenizer: str = "unknown"
    """Tokenizer family in `recto.tokens.meter`."""
    images: str = "unknown"
    """Image formula in `recto.tokens._images`."""
    input_price: int | None = None
    output_price: int | None = None
    cache_read_price: int | None = None
    cache_write_price: int | None = None
    long_from: int | None = None
    """Longer prompts are charged the `long_` prices, from their first token on."""
    long_input_price: int | None = None
    long_output_price: int | None = None
    long_cache_read_price: int | None = None
    cache_minimum: int | None = None
    """The shortest prefix the provider caches, in tokens."""
    known: bool = True
    """False if the limits are the conservative default and not the model's own."""
    source: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    """Source of each field that was set."""

    def __post_init__(self) -> None:
        for limit in ("window", "max_input", "max_output"):
            if getattr(self, limit) < 1:
                raise ValueError(f"{limit} of model '{self.name}' must be at least 1")
        if self.max_input > self.window:
            raise ValueError(f"max_input of model '{self.name}' is more than its window")

    @property
    def binds_thinking(self) -> bool:
        """Whether a thinking block is rejected once anything before it was edited: Claude from 5.1 on."""
        match = _CLAUDE.search(self.name)
        if match is None:
            return False
        minor = int(match[2] or 0)
        return (int(match[1]), minor if minor < 100 else 0) >= (5, 1)  # a longer number is a date

    def input_budget(self, reserve: int) -> int:
        """Tokens a prompt may have when `reserve` tokens are reserved for the output."""
        return max(0, min(self.max_input, self.window - reserve))


SETTABLE = frozenset(card_field.name for card_field in fields(ModelCard)) - {"name", "known", "source"}
"""Fields a configuration may set."""
TEXT_FIELDS = frozenset({"provider", "tokenizer", "images"})
"""Those that are text; the others are integers."""
