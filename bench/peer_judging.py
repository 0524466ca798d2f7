"""Judges a prompt of any peer: whether it is valid, whether it fits, and whether it contains what was needed.

A prompt is a list of parts, in the form of the peers' scripts: `("text", role, text)`, `("call", id, name, arguments)`,
`("result", id, text)`. The module runs in the peers' environments and therefore uses the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

Part = tuple[str, ...]
WRONG = {
    "over": "over",
    "result_alone": "result alone",
    "call_alone": "call alone",
    "no_user": "no user",
    "empty": "empty",
    "refused": "refused",
}
"""What a prompt can be blamed for, and the words for it."""
SHORTEST_LINE = 20
"""Characters a line must have to be looked for by itself: shorter ones stand anywhere."""
_SPACE = re.compile(r"\s+")
_QUOTED = re.compile(r"^> ?", re.MULTILINE)


def tokens_of(part: Part, count: Callable[[str], int]) -> int:
    """Contents only: what a message costs beside them differs between providers, and is in nobody's favour here."""
    return sum(count(text) for text in (part[2:] if part[0] == "call" else part[2:3]))


def faults(parts: Sequence[Part], budget: int, count: Callable[[str], int]) -> set[str]:
    """Why a provider would refuse this prompt, or why it is not what was asked for."""
    called = {part[1]: place for place, part in enumerate(parts) if part[0] == "call"}
    answered = {part[1]: place for place, part in enumerate(parts) if part[0] == "result"}
    found = {
        "over": sum(tokens_of(part, count) for part in parts) > budget,
        "result_alone": any(place < called.get(call, len(parts)) for call, place in answered.items()),
        "call_alone": any(answered.get(call, -1) < place for call, place in called.items()),
        "no_user": not any(part[:2] == ("text", "user") for part in parts),
        "empty": not parts,
    }
    return {name for name, is_so in found.items() if is_so}


class Shown:
    """A prompt, or anything else that was shown, which can be asked what stands in it."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = list(texts)

    @cached_property
    def _exactly(self) -> set[str]:
        return set(self._texts)

    @cached_property
    def _plain(self) -> str:
        """All of it, whatever the breaks of lines are, and whether it is quoted or not."""
        return plain(_QUOTED.sub("", "\n".join(self._texts)))

    def whole(self, text: str) -> bool:
        return text in self._exactly or plain(text) in self._plain

    def lines(self, text: str) -> float:
        """The share of its lines that stand there."""
        if self.whole(text):
            return 1.0
        looked_for = [line for line in map(plain, text.splitlines()) if len(line) >= SHORTEST_LINE]
        return sum(line in self._plain for line in looked_for) / len(looked_for) if looked_for else 0.0


def texts_of(parts: Iterable[Part]) -> list[str]:
    """What the parts say; calls say nothing that evidence could be."""
    return [part[2] for part in parts if part[0] != "call"]


def plain(text: str) -> str:
    return _SPACE.sub(" ", text).strip()
