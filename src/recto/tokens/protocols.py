"""The protocol of a token counter."""

from __future__ import annotations

from typing import Protocol


class TokenCounter(Protocol):
    """Counts the tokens of a text as one model family does."""

    @property
    def name(self) -> str:
        """Stored with every count it makes."""
        ...

    @property
    def exact(self) -> bool:
        """Whether it is the model's own tokenizer; if not, it errs on the high side."""
        ...

    def count(self, text: str) -> int:
        """Count tokens. Never raises; linear in the length of the text."""
        ...
