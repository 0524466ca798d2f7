"""Budget warnings in messages: what a provider or a harness lets a context-aware model know about its own window.

They are the model's own view of its prompt, with everything that is added behind the client's back.
"""

from __future__ import annotations

from typing import NamedTuple

from recto.text.lazy_re import lazy_re

_USAGE = lazy_re(
    r"<(system_warning|system-reminder)>\s*Token usage: ([\d,]{1,15})/([\d,]{1,15})(?:; [\d,]{1,15} remaining)?\s*</\1>"
)
_WINDOW = lazy_re(r"<budget:token_budget>\s*([\d,]{1,15})\s*</budget:token_budget>")


class BudgetWarning(NamedTuple):
    """What a message says about the model's window."""

    used: int
    """Tokens of the prompt up to the message; 0 if it does not say."""
    window: int
    """Tokens of the whole window."""


def may_warn(raw: bytes) -> bool:
    """Whether the bytes of a message can contain a warning. Most cannot, and their text need not be searched."""
    return b"Token usage: " in raw or b"token_budget" in raw


def read_warning(text: str) -> BudgetWarning | None:
    """The last warning in a text; None if there is none, or if it contradicts itself."""
    usage = None
    for usage in _USAGE.finditer(text):  # noqa: B007  # the last one counts
        pass
    if usage is not None:
        used, window = _number(usage[2]), _number(usage[3])
        return BudgetWarning(used, window) if 0 < used <= window else None
    found = _WINDOW.findall(text)
    window = _number(found[-1]) if found else 0
    return BudgetWarning(0, window) if window else None


def _number(text: str) -> int:
    return int(text.replace(",", "") or 0)
