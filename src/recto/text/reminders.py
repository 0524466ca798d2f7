"""Reminders that coding agents add to what the user says: `<system-reminder>` blocks, which the user did not type."""

from __future__ import annotations

from typing import Final

_OPENS: Final = "<system-reminder>"
_CLOSES: Final = "</system-reminder>"


def has_reminders(text: str | bytes) -> bool:
    """Whether a text contains reminders."""
    return _OPENS in text if isinstance(text, str) else _OPENS.encode() in text


def without_reminders(text: str) -> str:
    """Return a text without the reminders in it; one that is not closed is a part of the text."""
    if _OPENS not in text:
        return text
    kept, at = list[str](), 0
    while (start := text.find(_OPENS, at)) >= 0 and (end := text.find(_CLOSES, start)) >= 0:
        kept.append(text[at:start])
        at = end + len(_CLOSES)
    return "".join((*kept, text[at:])).strip()
