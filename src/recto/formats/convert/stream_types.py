"""What a stream says, piece by piece, whichever format it comes in; and how pieces come one part after the other.

Chat may tell the arguments of several calls at once and never says that a call is complete. The other formats tell one
part after the other, so what belongs to a later part waits until the earlier one is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from recto.formats.convert.types import Ending
from recto.formats.json_spans import Json


@dataclass(frozen=True, slots=True)
class Begin:
    """The answer begins."""

    model: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next words of text, of reasoning, or of a refusal."""

    kind: Literal["text", "thought", "refusal"]
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningSealed:
    """Reasoning is complete, and this block is what has to go back."""

    block: dict[str, Json]


@dataclass(frozen=True, slots=True)
class CallBegin:
    """A call begins; `key` tells it from the others of this stream."""

    key: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallWords:
    """The next piece of a call's arguments."""

    key: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """A call is complete."""

    key: int


@dataclass(frozen=True, slots=True)
class PartEnd:
    """The part that was told is complete. Listeners say so of reasoning, which nothing else ends."""


@dataclass(frozen=True, slots=True)
class End:
    """The answer is complete."""

    ending: Ending


@dataclass(frozen=True, slots=True)
class Broke:
    """The provider says that something went wrong."""

    message: str


Piece: TypeAlias = Begin | TextDelta | ReasoningSealed | CallBegin | CallWords | CallEnd | PartEnd | End | Broke


@dataclass(slots=True)
class _Part:
    key: int | str
    pieces: list[Piece] = field(default_factory=list)
    ended: bool = False


class InOrder:
    """Pieces, one part after the other."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []

    def feed(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The pieces whose turn it is."""
        for piece in pieces:
            match piece:
                case TextDelta(kind=kind):
                    self._part_for(kind).pieces.append(piece)
                case ReasoningSealed():
                    part = self._part_for("thought")
                    part.pieces.append(piece)
                    part.ended = True
                case PartEnd():
                    if self._parts and self._parts[-1].key == "thought":
                        self._parts[-1].ended = True
                case CallBegin(key=key):
                    self._part_for(key).pieces.append(piece)
                case CallWords(key=key) | CallEnd(key=key):
                    self._of_call(key, piece)
                case _:
                    if isinstance(piece, End):
                        for part in self._parts:
                            part.ended = True
                    yield from self._told()
                    yield piece
        yield from self._told()

    def _part_for(self, key: int | str) -> _Part:
        last = self._parts[-1] if self._parts else None
        if last is not None and last.key == key and not last.ended:
            return last
        if last is not None and isinstance(last.key, str):
            last.ended = True
        self._parts.append(_Part(key))
        return self._parts[-1]

    def _of_call(self, key: int, piece: Piece) -> None:
        for part in self._parts:
            if part.key == key:
                if isinstance(piece, CallEnd):
                    part.ended = True
                else:
                    part.pieces.append(piece)
                return

    def _told(self) -> Iterator[Piece]:
        while self._parts:
            part = self._parts[0]
            yield from part.pieces
            part.pieces = []
            if not part.ended:
                return
            yield PartEnd()
            self._parts.pop(0)
