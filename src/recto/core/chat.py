"""What a model is asked to write, and what it wrote. Values only: who answers, and how, is not known here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Ending = Literal["stop", "length", "refused", "unknown"]
"""Why a model stopped: it was done, it ran out of room, it would not, or nobody said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question to a model: instructions, and the text they are about."""

    system: str
    text: str
    max_tokens: int
    """What the answer may have."""
    seconds: float
    """How long it may take in all, other attempts included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a model wrote."""

    text: str
    ending: Ending
    prompt_tokens: int = 0
    answer_tokens: int = 0
    """What the provider counted; 0 where it does not say."""
