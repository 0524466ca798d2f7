"""What the stream captures of all formats share: server-sent events, the `Capture` contract, and text buffers.

A capture records the response of a stream while its bytes pass through the gateway. It yields the same messages as the
response would have had in one piece. It accepts any input and never raises: the stream belongs to the client, and an
event that cannot be parsed is skipped.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Protocol

from recto.errors import InputError, MalformedMessage
from recto.formats.json_spans import Json, parse, parse_shallow
from recto.formats.message import object_in, text_in
from recto.formats.response import ProviderReply
from recto.text.lazy_re import lazy_re

MAX_EVENT_BYTES: Final = 32 * 1024 * 1024
"""Maximum size of one event. A complete response with its images is one event."""

DONE: Final = "[DONE]"
"""The data of the event that ends a stream in OpenAI's formats."""

_SPLIT_BYTES: Final = 64 * 1024
"""Bytes that are split into events at once. Of a longer event, what was searched is not searched again."""
_BOM: Final = b"\xef\xbb\xbf"
_END = lazy_re(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")  # atomic, or a plain \r\n would look like two ends
_LINE_END = lazy_re(rb"\r\n|\n|\r")


class SseEvent(NamedTuple):
    """One event. A comment is an event without data, so that the events together are all bytes of the stream."""

    name: str
    """The value of `event:`; empty if there is none."""
    data: str
    raw: bytes
    """The exact bytes, including the blank line at the end."""


class SseReader:
    """Splits a stream into events in linear time, however the network chunks it."""

    def __init__(self, *, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self._seen = 0
        """The position before which no event ends: everything before it was searched."""
        self._first = True
        self._returns = False
        """Whether the stream contains carriage returns."""
        self._after_return = False
        """The last event ended with a carriage return; its line feed may be in the next chunk."""

    @property
    def rest(self) -> bytes:
        """The bytes of the incomplete last event."""
        return bytes(self._buffer)

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Returns the events that these bytes complete. Raises `MalformedMessage` if one is too long."""
        self._buffer += chunk
        self._returns = self._returns or b"\r" in chunk
        events: list[SseEvent] = []
        at = 0 if self._first else self._split(0, events)
        while (end := self._next_end(at)) is not None:
            if end - at > self._max_bytes:
                break
            events.append(_event(bytes(self._buffer[at:end]), first=self._first))
            self._after_return = end == len(self._buffer) and self._buffer[end - 1] == 0x0D
            self._first = False
            at = self._seen = end
            at = self._seen = self._split(at, events)
        del self._buffer[:at]
        self._seen -= at
        if len(self._buffer) > self._max_bytes and not events:
            raise MalformedMessage(f"an event of the stream is longer than {self._max_bytes:,} bytes")
        return events

    def _split(self, at: int, events: list[SseEvent]) -> int:
        """Adds all events that follow if they are separated as in nearly all streams. Returns where the rest begins."""
        if self._returns or len(self._buffer) - at > min(_SPLIT_BYTES, self._max_bytes):
            return at
        following = bytes(self._buffer[at:])
        if following.startswith(b"\n") or b"\n\n\n" in following:
            return at
        complete = following.split(b"\n\n")
        rest = complete.pop()
        events += [_event(event + b"\n\n", first=False) for event in complete]
        return at + len(following) - len(rest)

    def _next_end(self, at: int) -> int | None:
        if not self._returns and not self._first and self._buffer[at : at + 1] != b"\n":  # nearly always
            blank = self._buffer.find(b"\n\n", max(self._seen, at))
            if blank >= 0:
                return blank + 2
            self._seen = max(at, len(self._buffer) - 1)
            return None
        start = at
        if self._after_return and len(self._buffer) > at:
            start += self._buffer.startswith(b"\n", at)
        if self._first and self._buffer.startswith(_BOM):
            start += len(_BOM)
        empty = _LINE_END.match(self._buffer, start)
        if empty is not None:
            return empty.end()
        end = self._blank_line(max(self._seen, start))
        if end is None:
            self._seen = max(start, len(self._buffer) - 3)
        return end

    def _blank_line(self, start: int) -> int | None:
        """Returns the end of the first blank line. Nearly all streams have plain line feeds, and `find` is faster."""
        if not self._returns:
            at = self._buffer.find(b"\n\n", start)
            return None if at < 0 else at + 2
        match = _END.search(self._buffer, start)
        return None if match is None else match.end()


def sse(name: str | None, data: str | bytes) -> bytes:
    """Writes one event, without an `id`: with one, some clients report empty events later."""
    raw = data.encode(errors="replace") if isinstance(data, str) else data
    lines = [b"data: " + line + b"\n" for line in raw.splitlines() or [b""]]
    head = f"event: {name}\n".encode() if name else b""
    return head + b"".join(lines) + b"\n"


def _event(raw: bytes, *, first: bool) -> SseEvent:
    if raw.startswith(b"data: ") and raw.find(b"\n") == len(raw) - 2 and b"\r" not in raw:  # one line, nearly always
        return SseEvent("", raw[6:-2].decode(errors="replace"), raw)
    name = ""
    data: list[str] = []
    for line in (raw.removeprefix(_BOM) if first else raw).splitlines():
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value.decode(errors="replace"))
        elif field == b"event":
            name = value.decode(errors="replace")
    return SseEvent(name=name, data="\n".join(data), raw=raw)


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
