"""Neutral stream events: every format's stream is read into them and written from them.

Chat may interleave the arguments of several calls and never marks a call as complete. Other formats stream one part
after the other: for them, `SequentialParts` holds events of later parts back until the earlier part is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias

from recto.formats.convert.types import Ending
from recto.formats.json_spans import Json
from recto.formats.sse import SseEvent


@dataclass(frozen=True, slots=True)
class StreamStart:
    """The response starts."""

    model: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next characters of text, of reasoning, or of a refusal."""

    kind: Literal["text", "thought", "refusal"]
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningSealed:
    """Reasoning is complete; the client must send this block back."""

    block: dict[str, Json]


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call starts; `key` identifies it in this stream."""

    key: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """The next characters of a call's arguments."""

    key: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """A call is complete."""

    key: int


@dataclass(frozen=True, slots=True)
class PartEnd:
    """The current part is complete. Readers emit it only for reasoning, which nothing else ends."""


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The response is complete."""

    ending: Ending


@dataclass(frozen=True, slots=True)
class StreamFailure:
    """The provider reported an error."""

    message: str


StreamEvent: TypeAlias = (
    StreamStart | TextDelta | ReasoningSealed | CallStart | CallDelta | CallEnd | PartEnd | StreamEnd | StreamFailure
)


class StreamReader(Protocol):
    """Reads one stream of a format."""

    def read(self, event: SseEvent) -> Iterator[StreamEvent]:
        """Yields what an event holds. Raises `CannotCross` for what neutral events cannot hold."""
        ...

    def finish(self) -> Iterator[StreamEvent]:
        """Yields what remains when the stream is over."""
        ...


class StreamWriter(Protocol):
    """Writes one stream of a format."""

    def write(self, event: StreamEvent) -> Iterator[bytes]:
        """Yields the format's events for a neutral one."""
        ...

    def fail(self, code: str, message: str) -> bytes:
        """Returns the last events of a stream that cannot go on."""
        ...


@dataclass(slots=True)
class _StreamPart:
    key: int | str
    events: list[StreamEvent] = field(default_factory=list)
    ended: bool = False


class SequentialParts:
    """Reorders events so that one part follows the other."""

    def __init__(self) -> None:
        self._parts: list[_StreamPart] = []

    def feed(self, events: Iterable[StreamEvent]) -> Iterator[StreamEvent]:
        """Takes events, and yields those that no earlier part holds back any more."""
        for event in events:
            match event:
                case TextDelta(kind=kind):
                    self._part_for(kind).events.append(event)
                case ReasoningSealed():
                    part = self._part_for("thought")
                    part.events.append(event)
                    part.ended = True
                case PartEnd():
                    if self._parts and self._parts[-1].key == "thought":
                        self._parts[-1].ended = True
                case CallStart(key=key):
                    self._part_for(key).events.append(event)
                case CallDelta(key=key) | CallEnd(key=key):
                    self._add_to_call(key, event)
                case _:
                    if isinstance(event, StreamEnd):
                        for part in self._parts:
                            part.ended = True
                    yield from self._released()
                    yield event
        yield from self._released()

    def _part_for(self, key: int | str) -> _StreamPart:
        last = self._parts[-1] if self._parts else None
        if last is not None and last.key == key and not last.ended:
            return last
        if last is not None and isinstance(last.key, str):
            last.ended = True
        self._parts.append(_StreamPart(key))
        return self._parts[-1]

    def _add_to_call(self, key: int, event: StreamEvent) -> None:
        for part in self._parts:
            if part.key == key:
                if isinstance(event, CallEnd):
                    part.ended = True
                else:
                    part.events.append(event)
                return

    def _released(self) -> Iterator[StreamEvent]:
        while self._parts:
            part = self._parts[0]
            yield from part.events
            part.events = []
            if not part.ended:
                return
            yield PartEnd()
            self._parts.pop(0)


_CHUNK: Final = 4096
"""Characters of one delta, for text that is complete already."""


def text_chunks(text: str) -> Iterator[str]:
    """Splits a text into the deltas of a stream."""
    for at in range(0, len(text), _CHUNK):
        yield text[at : at + _CHUNK]
