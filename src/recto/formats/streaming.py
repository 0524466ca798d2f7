"""What the stream captures of all formats share: the `Capture` contract, event parsing, and text buffers.

A capture records the response of a stream while its bytes pass through the gateway. It yields the same messages as the
response would have had in one piece. It accepts any input and never raises: the stream belongs to the client, and an
event that cannot be parsed is skipped.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from recto.errors import InputError
from recto.formats.json_spans import Json, parse, parse_shallow
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
    """Returns the code of an error in any provider's shape, its type or its status; empty if it has none."""
    error = object_in(value)
    return (text_in(error.get("code")) or text_in(error.get("type")) or text_in(error.get("status")))[:_MAX_CODE]


def index_of(value: Json) -> int | None:
    """Returns the value if it is a valid list index."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


_PLAIN_TEXT: Final = re.compile(r'[^"\\\x00-\x1f]*')
"""A text that needs no escapes in JSON."""
_TEXT_START: Final = re.compile(r'\s*:\s*"')
"""What is between a key and its text."""


class RepeatedEvent:
    """Recognises events that differ from an earlier one in a single text, and reads only that text.

    Nearly all events of a stream are such: between the same bytes is the next piece of the response. What is not
    exactly of this form has to be parsed.
    """

    __slots__ = ("_head", "_tail", "key")

    def __init__(self, key: str, head: str, tail: str) -> None:
        self.key = key
        self._head = head
        self._tail = tail

    @classmethod
    def of(cls, data: str, key: str) -> RepeatedEvent | None:
        """Return the form of an event whose text has this key; `None` if the text cannot be found without parsing."""
        # Without escapes, the name in quotes is a key or a whole text, and nothing else can be the key.
        if "\\" in data or data.count(f'"{key}"') != 1:
            return None
        found = _TEXT_START.match(data, data.find(f'"{key}"') + len(key) + 2)
        if found is None:
            return None
        end = data.find('"', found.end())
        return cls(key, data[: found.end()], data[end:])

    def text_in(self, data: str) -> str | None:
        """Return the text of an event of this form; `None` for any other."""
        start, end = len(self._head), len(data) - len(self._tail)
        if end < start or not data.startswith(self._head) or not data.endswith(self._tail):
            return None
        if _PLAIN_TEXT.fullmatch(data, start, end):
            return data[start:end]
        try:
            text = parse(f'"{data[start:end]}"')
        except InputError:
            return None
        return text if isinstance(text, str) else None


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
