"""What Recto knows about one model: its limits, how to count for it, and what tokens cost."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType

_CLAUDE = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d+))?")

UNKNOWN_WINDOW = 8192
"""The window of a model nobody told us about: no chat model now served has less, and a prompt that is too short is
answered, one that is too long is refused."""
UNKNOWN_OUTPUT = 4096
"""The longest answer assumed where none is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """One model. Prices are whole picodollars per token: 2,500,000 is 2.50 dollars per million tokens."""

    name: str
    provider: str = ""
    window: int
    """Prompt and answer together."""
    max_input: int
    """The most a prompt may be, even with a short answer. Never more than the window."""
    max_output: int
    """The most an answer may be."""
    tokenizer: str = "unknown"
    """The tokenizer family, as `recto.tokens.tokenizers` names it."""
    images: str = "unknown"
    """The image formula, as `recto.tokens.images` names it."""
    input_price: int | None = None
    output_price: int | None = None
    cache_read_price: int | None = None
    cache_write_price: int | None = None
    long_from: int | None = None
    """Prompts longer than this are charged the `long_` prices, from their first token on."""
    long_input_price: int | None = None
    long_output_price: int | None = None
    long_cache_read_price: int | None = None
    cache_minimum: int | None = None
    """The shortest prefix the provider caches, in tokens."""
    known: bool = True
    """False where the limits are the conservative default and not the model's own."""
    source: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    """For each field that was given, where its value came from."""

    def __post_init__(self) -> None:
        for limit in ("window", "max_input", "max_output"):
            if getattr(self, limit) < 1:
                raise ValueError(f"{limit} of model '{self.name}' must be at least 1")
        if self.max_input > self.window:
            raise ValueError(f"max_input of model '{self.name}' is more than its window")

    @property
    def binds_thinking(self) -> bool:
        """Whether a thinking block is refused once anything before it was edited: Claude from 5.1 on."""
        found = _CLAUDE.search(self.name)
        if found is None:
            return False
        minor = int(found[2] or 0)
        return (int(found[1]), minor if minor < 100 else 0) >= (5, 1)  # a longer number is a date

    def input_budget(self, reserve: int) -> int:
        """How many tokens a prompt may have when `reserve` are kept for the answer."""
        return max(0, min(self.max_input, self.window - reserve))


SETTABLE = frozenset(found.name for found in fields(ModelCard)) - {"name", "known", "source"}
"""The fields a configuration may give."""
TEXTS = frozenset({"provider", "tokenizer", "images"})
"""Those of them that are text; the others are whole numbers."""
