"""Blocks that coding agents add to what the user says, which the user did not type.

Claude Code and those after it write `<system-reminder>`, goose writes `<turn-context>`.
"""

from __future__ import annotations

from typing import Final

_TAGS: Final = tuple((f"<{name}>", f"</{name}>") for name in ("system-reminder", "turn-context"))


def has_reminders(text: str | bytes) -> bool:
    """Whether a text contains reminders."""
    if isinstance(text, bytes):
        return any(opens.encode() in text for opens, _ in _TAGS)
    return any(opens in text for opens, _ in _TAGS)


def without_reminders(text: str) -> str:
    """Return a text without the reminders in it; one that is not closed is a part of the text."""
    for opens, closes in _TAGS:
        if opens in text:
            text = _without(text, opens, closes)
    return text


def _without(text: str, opens: str, closes: str) -> str:
    kept, at = list[str](), 0
    while (start := text.find(opens, at)) >= 0 and (end := text.find(closes, start)) >= 0:
        kept.append(text[at:start])
        at = end + len(closes)
    return "".join((*kept, text[at:])).strip()
