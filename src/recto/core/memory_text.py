"""What of a text cannot be seen, and the text with it made visible or without it.

Whoever approves something must see all of it: a mark that turns the direction of text, a filler or a tag character
changes what a machine reads and not what a person sees. What the text says is not known here.
"""

from __future__ import annotations

import re

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ue000-\uf8ff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U0001d173-\U0001d17a\U000e0000-\U0010ffff]"
    "|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])|[\u200c\u200d]{2,}"
)
"""Controls, direction marks, fillers, selectors, tags, surrogates, private characters; joiners where they join nothing.
Between letters of other scripts and in pictures a joiner is part of the writing."""
_NAMED = 5


def plain(text: str) -> str:
    """The text without what cannot be seen. The same for what it returns; never raises."""
    while _UNSEEN.search(text):
        text = _UNSEEN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return text


def unseen_in(text: str) -> list[str]:
    """The names of characters that cannot be seen, such as `U+202E`, each once, a few at most."""
    found = dict.fromkeys(char for one in _UNSEEN.finditer(text) for char in one[0])
    return [f"U+{ord(char):04X}" for char in found][:_NAMED]


def shown(text: str) -> str:
    """The text with the name of each such character in its place, so that nothing in it is hidden."""
    return _UNSEEN.sub(lambda found: "".join(f"⟨U+{ord(char):04X}⟩" for char in found[0]), text)
