"""What the stream captures of all formats share: the `Capture` contract, event parsing, and text buffers.

A capture records the response of a stream while its bytes pass through the gateway. It yields the same messages as the
response would have had in one piece. It accepts any input and never raises: the stream belongs to the client, and an
event that cannot be parsed is skipped.
"""

from __future__ import annotations

from typing import Final, Protocol

from recto.errors import InputError
from recto.formats.json_spans import Json, parse_shallow
from recto.formats.message import object_in, text_in
from recto.formats.response import ProviderReply
from recto.formats.sse import SseEvent

MAX_CAPTURED_BYTES: Final = 64 * 1024 * 1024
"""Bytes of event data that one capture keeps in memory."""
_MAX_CODE: Final = 100
"""Characters of an error code that are kept."""


class Capture(Protocol):
    """The response of one stream, as far as it has arrived."""

    ended: bool
    """Every part of the message has arrived. Usage may still follow."""
    failed: str
    """The provider's error message; empty while there is none."""
    code: str
    """The provider's error code, or its type; empty while there is none."""
    overflowed: bool
    """More data arrived than the capture keeps, so the response is incomplete."""
    id: str
    """The id that the provider gave the response."""

    def take(self, event: SseEvent) -> None:
        """Records an event."""
        ...

    def reply(self) -> ProviderReply:
        """Returns the response of a stream that ended, as `read_reply` would; no messages if there was no output."""
        ...

    def partial(self) -> ProviderReply:
        """Returns what can be stored of a stream that was cut: text as far as it came, and only complete calls."""
        ...


def event_object(event: SseEvent) -> dict[str, Json] | None:
    """Parses the data of an event; `None` if it is not a JSON object."""
    try:
        value = parse_shallow(event.data)
    except InputError:
        return None
    return value if isinstance(value, dict) else None


def error_in(value: Json) -> str:
    """Returns the message of an error in any provider's shape; empty if there is none."""
    if isinstance(value, str):
        return value
    error = object_in(value)
    return text_in(error.get("message")) or text_in(error.get("code")) or text_in(error.get("type"))


def code_in(value: Json) -> str:
    """Returns the code of an error in any provider's shape, or its type; empty if it has neither."""
    error = object_in(value)
    return (text_in(error.get("code")) or text_in(error.get("type")))[:_MAX_CODE]


def index_of(value: Json) -> int | None:
    """Returns the value if it is a valid list index."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


class TextBuffer:
    """Text that arrives in pieces and is joined once."""

    __slots__ = ("_pieces",)

    def __init__(self, first: str = "") -> None:
        self._pieces = [first]

    def add(self, piece: str) -> None:
        """Appends a piece."""
        self._pieces.append(piece)

    def __str__(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0]
