"""Text as a terminal may be given it: nothing that a terminal would obey, and nothing that turns or hides letters.

Transcripts hold whatever a model or a tool produced. Control characters are shown as pictures of themselves; every
character stays one character, so that places in a text stay where they are. Who draws it, and how, is not known here.
"""

from __future__ import annotations

import unicodedata

_KEPT = frozenset("\n\t")


def safe(text: str) -> str:
    """The text with nothing left in it that a terminal would obey: controls, escapes, direction overrides."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in _KEPT else _picture(char) for char in text)


def one_line(text: str, width: int) -> str:
    """The beginning of a text, safe and without line breaks."""
    flat = " ".join(safe(text[: width * 4]).split())
    return flat if len(flat) <= width and len(text) <= width * 4 else flat[: max(width - 1, 0)] + "…"


def _picture(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if unicodedata.category(char) in {"Zs", "Zl", "Zp"}:
        return " "
    return "\N{REPLACEMENT CHARACTER}"
